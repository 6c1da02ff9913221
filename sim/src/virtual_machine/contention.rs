//! How lanes slow each other down.

use tenantry_core::board::OpRef;
use tenantry_core::ids::{InstanceId, LaneId};
use tenantry_core::op::OpKind;
use tenantry_core::topology::LaneKind;
use tenantry_profiles::Contention;
use tenantry_traces::Duration;

use super::VirtualMachine;
use super::lanes::Work;
use crate::ppm::{ONE, scaled};
use crate::prices::Cores;

/// What is done of the work in `ns` at a stretch, in nanoseconds.
fn worked(ns: u64, stretch_ppm: u64) -> u64 {
    match ns.checked_mul(ONE) {
        Some(product) => product / stretch_ppm,
        None => (u128::from(ns) * u128::from(ONE) / u128::from(stretch_ppm)) as u64,
    }
}

/// How much slower a lane of each kind is, by [`Beside::what`] else its card does: factors of [`Contention`] in parts
/// of a million.
#[derive(Clone, Copy, Debug)]
pub struct ContentionPpm([[u64; Beside::WHATS]; LANE_KINDS.len()]);

/// In their order, so that each is found by its number.
const LANE_KINDS: [LaneKind; 6] = [
    LaneKind::Compute,
    LaneKind::Copy,
    LaneKind::Lookup,
    LaneKind::Solve,
    LaneKind::Link,
    LaneKind::Disk,
];

impl ContentionPpm {
    pub fn new(of: &Contention) -> ContentionPpm {
        let factor = |disturbed: bool, factor: f64| match disturbed {
            true => (factor * ONE as f64).round() as u64,
            false => ONE,
        };
        let beside = |kind: LaneKind, what: usize| {
            let [computing, copying, looking_up] = [0, 1, 2].map(|bit| what >> bit & 1 == 1);
            match kind {
                LaneKind::Compute => {
                    factor(copying, of.compute_beside_copy).max(factor(looking_up, of.compute_beside_lookup))
                }
                LaneKind::Copy | LaneKind::Link => factor(computing, of.copy_beside_compute),
                LaneKind::Lookup => factor(computing, of.lookup_beside_compute),
                LaneKind::Solve | LaneKind::Disk => ONE,
            }
        };
        ContentionPpm(LANE_KINDS.map(|kind| std::array::from_fn(|what| beside(kind, what))))
    }

    /// Whether lanes of different kinds never slow each other.
    pub fn is_nothing(&self) -> bool {
        self.0.as_flattened().iter().all(|&factor| factor == ONE)
    }
}

/// Lanes of a card on which an op runs: by kind, and all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beside {
    pub computing: u32,
    pub copying: u32,
    pub looking_up: u32,
    busy: u32,
}

impl Beside {
    /// As many as [`what`](Self::what) tells apart.
    const WHATS: usize = 8;

    #[inline]
    fn of(&mut self, kind: LaneKind) -> Option<&mut u32> {
        match kind {
            LaneKind::Compute => Some(&mut self.computing),
            // To memory that computes beside it, one copy is like another.
            LaneKind::Copy | LaneKind::Link => Some(&mut self.copying),
            LaneKind::Lookup => Some(&mut self.looking_up),
            LaneKind::Solve | LaneKind::Disk => None,
        }
    }

    #[inline]
    pub fn starts(&mut self, kind: LaneKind) {
        self.busy += 1;
        if let Some(of_kind) = self.of(kind) {
            *of_kind += 1;
        }
    }

    #[inline]
    pub fn ends(&mut self, kind: LaneKind) {
        self.busy -= 1;
        if let Some(of_kind) = self.of(kind) {
            *of_kind -= 1;
        }
    }

    /// Whether any compute, copy and look up, a bit each.
    #[inline]
    fn what(&self) -> usize {
        usize::from(self.computing > 0) | usize::from(self.copying > 0) << 1 | usize::from(self.looking_up > 0) << 2
    }
}

impl VirtualMachine {
    /// How much slower the op that a lane of this kind runs is for what runs beside it on its card.
    #[inline]
    pub(super) fn stretch(&self, kind: LaneKind, card: usize, op: OpRef) -> u64 {
        if self.undisturbed {
            return ONE;
        }
        let beside = &self.beside[card];
        match beside.busy {
            1 if kind != LaneKind::Link => ONE,
            _ => self.disturbed(kind, beside, op),
        }
    }

    #[inline]
    fn disturbed(&self, kind: LaneKind, beside: &Beside, op: OpRef) -> u64 {
        let mut disturbed = self.contention.0[kind as usize][beside.what()];
        if kind == LaneKind::Compute && beside.computing > 1 {
            disturbed = disturbed * self.among_streams(beside.computing, op) / ONE;
        }
        if let Some(far_end) = self.far_end(kind, op) {
            disturbed *= u64::from(self.on_link[far_end.index()]);
        }
        let (threads, cores) = match self.cores {
            Some(Cores::OfAllCards(cores)) => (u64::from(beside.busy), cores),
            Some(Cores::OfEachCard(cores)) => (u64::from(beside.computing), cores),
            None => return disturbed,
        };
        // Threads take turns on the cores.
        match threads > cores {
            true => disturbed * threads / cores,
            false => disturbed,
        }
    }

    fn among_streams(&self, streams: u32, op: OpRef) -> u64 {
        let pool = self.topology.instances[self.board.instance(op.batch).index()].pool;
        let (kind, shape) = (&self.board.op(op).kind, self.board.shape(op.batch));
        self.prices.streams_ppm(pool, kind, streams, shape).unwrap_or(ONE)
    }

    /// The instance between which and the lane's own a transfer goes: it has a link too, and no lane that transfers
    /// queue for. Nothing where cards are threads that copy in one memory.
    #[inline(always)]
    pub(super) fn far_end(&self, kind: LaneKind, op: OpRef) -> Option<InstanceId> {
        match kind {
            LaneKind::Link => self.far_end_of_link(op),
            _ => None,
        }
    }

    #[inline(never)]
    fn far_end_of_link(&self, op: OpRef) -> Option<InstanceId> {
        if !self.prices.has_links() {
            return None;
        }
        let OpKind::Transfer(transfer) = self.board.op(op).kind else {
            unreachable!("a link carries keys and values")
        };
        let to = self.board.instance(op.batch);
        let to_has_lane = self.topology.instances[to.index()].link.is_some();
        Some(if to_has_lane { transfer.from } else { to })
    }

    /// A transfer has started or ended: the others to or from its far end go at another pace from now on.
    #[inline(never)]
    pub(super) fn restretch_links(&mut self) {
        for index in 0..self.lanes.len() {
            let lane = LaneId(index as u32);
            let on = &self.lanes[index];
            let Some(running) = on.running.as_ref().filter(|_| on.kind == LaneKind::Link) else {
                continue;
            };
            let stretch_ppm = self.stretch(running.working_as, on.card, running.op);
            if running.stretch_ppm != stretch_ppm {
                self.change_pace(lane, stretch_ppm);
            }
        }
    }

    /// A lane has started or ended, and so many are busy if it is alone: the others of its card go at another pace from
    /// now on.
    #[inline(always)]
    pub(super) fn restretch_neighbours(&mut self, lane: LaneId, card: usize, alone: u32) {
        // Mostly it is.
        if !self.undisturbed && self.beside[card].busy != alone {
            self.restretch_others(lane, card);
        }
    }

    #[inline(never)]
    pub(super) fn restretch_others(&mut self, lane: LaneId, card: usize) {
        for i in 0..self.lanes_of_gpu[card].len() {
            let other = self.lanes_of_gpu[card][i];
            let on = &self.lanes[other.index()];
            let Some(running) = on.running.as_ref().filter(|_| other != lane) else {
                continue;
            };
            let stretch_ppm = self.disturbed(running.working_as, &self.beside[card], running.op);
            if running.stretch_ppm != stretch_ppm {
                self.change_pace(other, stretch_ppm);
            }
        }
    }

    /// What a lane runs goes at another pace from now on.
    fn change_pace(&mut self, lane: LaneId, stretch_ppm: u64) {
        let now = self.now;
        let running = self.lanes[lane.index()].running.as_mut().expect("an op runs");
        match &mut running.work {
            Work::Whole { left_ns, since } => {
                if now > *since {
                    *left_ns = left_ns.saturating_sub(worked(now.since(*since).0, running.stretch_ppm));
                    *since = now;
                }
                let at = *since + Duration(scaled(*left_ns, stretch_ppm));
                self.pending.lane_ends(at, lane);
            }
            Work::Steps => {
                let leap = &mut self.leaps[running.op.batch.slot as usize];
                let block = leap.block();
                let jitter_ppm = leap.jitter_ppm(block, |typical| self.prices.block_ppm(lane.0, block, typical));
                leap.change_pace(self.prices.steps(), now, stretch_ppm, jitter_ppm);
                self.pending.segment_of(lane, leap);
            }
        }
        running.stretch_ppm = stretch_ppm;
    }
}
