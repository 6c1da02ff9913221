//! Lanes in virtual time.
//!
//! An op is priced when it starts, not when it is submitted, since only then is it known what runs beside it. Lanes of one card
//! slow each other down by the factors that the profiler measured: when a lane starts or ends, the card's running ops are
//! re-priced for what is left of them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenantry_core::answers::Answers;
use tenantry_core::board::{Board, OpRef, Started};
use tenantry_core::command::Finish;
use tenantry_core::event::{BatchTiming, Done, Ended, Event, RunOutcome};
use tenantry_core::ids::{BatchId, InstanceId, LaneId};
use tenantry_core::machine::{LaneUse, LookupCounts, Machine, MachineError, Next};
use tenantry_core::op::{Member, Op, OpKind, PetGroup, Submission};
use tenantry_core::policy::coordinated::{Planner, PoolPlan};
use tenantry_core::policy::fleet::Allocated;
use tenantry_core::spec::{PlotSpec, StopSpec};
use tenantry_core::topology::LaneKind;
use tenantry_core::{Command, Commands, Topology};
use tenantry_profiles::{Contention, Rhythm};
use tenantry_solver::answer;
use tenantry_traces::{Duration, Time};

use crate::ends::Ends;
use crate::last_tokens::LastTokens;
use crate::leap::{Leap, RunPlan};
use crate::pending::{Pending, PendingEvents, What};
use crate::prices::{Before, ModelBefore, OpSpread, Prices, Warmth};

/// An op that runs, or is about to.
#[derive(Debug)]
struct Running {
    op: OpRef,
    started: Time,
    work: Work,
    /// Time that a million nanoseconds of work take.
    stretch_ppm: u64,
    /// From hearing of the lane's last end until this was handed over.
    pause: Duration,
    /// For what is drawn when it has ended.
    spread: OpSpread,
}

/// What is left of a running op.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// At `since`, in nanoseconds on an undisturbed lane.
    Whole { left_ns: u64, since: Time },
    /// A decoder's steps: those of its batch's leap.
    Steps,
}

/// What came of a run, until the server hears of it.
#[derive(Debug, Default)]
struct Outcome {
    requests: u32,
    steps: u32,
    first_step_ended: Time,
    ended: Vec<Ended>,
}

const UNDISTURBED: u64 = 1_000_000;

#[derive(Debug)]
struct Lane {
    kind: LaneKind,
    /// Where what runs beside it is counted: its card, or the first where all are threads of one processor.
    card: usize,
    running: Option<Running>,
    ops: u64,
    /// Whose whole model its last op was computed with, where tenants have such.
    model_of: Option<u32>,
    warmth: Warmth,
    /// Of decoders' runs.
    steps: u64,
    busy: Duration,
    /// When the end of its last op is heard of: no later op's end is heard of sooner, since a lane tells in order.
    heard: Time,
    /// What its last op took.
    last_work: Duration,
}

/// What `ns` of work take at a stretch, in nanoseconds.
fn stretched(ns: u64, stretch_ppm: u64) -> u64 {
    match ns.checked_mul(stretch_ppm) {
        Some(product) => product / UNDISTURBED,
        // Hours: a division of 128 bits is slow.
        None => (u128::from(ns) * u128::from(stretch_ppm) / u128::from(UNDISTURBED)) as u64,
    }
}

/// What is done of the work in `ns` at a stretch, in nanoseconds.
fn worked(ns: u64, stretch_ppm: u64) -> u64 {
    match ns.checked_mul(UNDISTURBED) {
        Some(product) => product / stretch_ppm,
        None => (u128::from(ns) * u128::from(UNDISTURBED) / u128::from(stretch_ppm)) as u64,
    }
}

/// How many calls pass between looks at the interrupt flag.
const INTERRUPT_CHECK: u64 = 1 << 12;

fn busy_between(start: Time, end: Time) -> Duration {
    if end > start { end.since(start) } else { Duration::ZERO }
}

/// How much slower a lane of each kind is, by [`Beside::what`] else its card does: factors of [`Contention`] in parts of a million.
#[derive(Clone, Copy, Debug)]
struct ContentionPpm([[u64; Beside::WHATS]; LANE_KINDS.len()]);

/// In their order, so that each is found by its number.
const LANE_KINDS: [LaneKind; 5] = [
    LaneKind::Compute,
    LaneKind::Copy,
    LaneKind::Lookup,
    LaneKind::Solve,
    LaneKind::Link,
];

impl ContentionPpm {
    fn new(of: &Contention) -> ContentionPpm {
        let factor = |disturbed: bool, factor: f64| match disturbed {
            true => (factor * UNDISTURBED as f64).round() as u64,
            false => UNDISTURBED,
        };
        let beside = |kind: LaneKind, what: usize| {
            let [computing, copying, looking_up] = [0, 1, 2].map(|bit| what >> bit & 1 == 1);
            match kind {
                LaneKind::Compute => {
                    factor(copying, of.compute_beside_copy).max(factor(looking_up, of.compute_beside_lookup))
                }
                LaneKind::Copy | LaneKind::Link => factor(computing, of.copy_beside_compute),
                LaneKind::Lookup => factor(computing, of.lookup_beside_compute),
                LaneKind::Solve => UNDISTURBED,
            }
        };
        ContentionPpm(LANE_KINDS.map(|kind| std::array::from_fn(|what| beside(kind, what))))
    }
}

/// Lanes of a card on which an op runs: by kind, and all.
#[derive(Clone, Copy, Debug, Default)]
struct Beside {
    computing: u32,
    copying: u32,
    looking_up: u32,
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
            LaneKind::Solve => None,
        }
    }

    #[inline]
    fn starts(&mut self, kind: LaneKind) {
        self.busy += 1;
        if let Some(of_kind) = self.of(kind) {
            *of_kind += 1;
        }
    }

    #[inline]
    fn ends(&mut self, kind: LaneKind) {
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

/// Whose whole model a batch is computed with.
#[derive(Clone, Copy, Debug)]
struct Owner {
    tenant: u32,
    /// Whether the batch has it copied first.
    copied: bool,
}

/// The virtual machine.
#[derive(Debug)]
pub struct VirtualMachine {
    topology: Topology,
    /// Lanes that disturb those of each card: its own, or all where all are threads of one processor.
    lanes_of_gpu: Vec<Vec<LaneId>>,
    /// Of that processor, where there is one.
    cores: Option<u64>,
    prices: Prices,
    contention: ContentionPpm,
    looked_up: Option<LookupCounts>,
    plot: Option<PlotSpec>,
    board: Board,
    lanes: Vec<Lane>,
    /// Lanes that run an op, on all cards: threads of one host.
    running: u32,
    /// By card.
    beside: Vec<Beside>,
    /// By instance: transfers under way between it and those that have link lanes. They share its link.
    on_link: Vec<u32>,
    pending: PendingEvents,
    timers: BinaryHeap<Reverse<(Time, u64, InstanceId)>>,
    timers_set: u64,
    now: Time,
    /// Busy time before is not counted.
    count_from: Time,
    /// When the loop was last awake: it sleeps between the events that it hears.
    awake: Time,
    /// The last alarm that was drawn: for when, since when the loop slept, and when it notices. It is asked for again after each end in between.
    drawn_alarm: (Time, Time, Time),
    /// Reused: lanes on which an op has become ready.
    woken: Vec<LaneId>,
    /// By batch slot: decoders' runs. Those of batches that have ended lend their memory to the next.
    leaps: Vec<Leap>,
    /// By instance.
    last_tokens: Vec<LastTokens>,
    /// By batch slot: the groups of batches of tasks.
    groups: Vec<Vec<PetGroup>>,
    /// By batch slot: whose whole model it is computed with, where that matters.
    owners: Vec<Option<Owner>>,
    /// By batch slot: what came of runs.
    outcomes: Vec<Outcome>,
    /// Where sequences end that do not end by length.
    ends: Option<Ends>,
    /// What a route's models answer, where there is one.
    answers: Option<Answers>,
    /// What the solver will have answered, by batch.
    allocations: BTreeMap<BatchId, Allocated>,
    /// The last answer told, which the event borrows.
    allocated: Option<Allocated>,
    planner: Planner,
    /// As `allocations` and `allocated`: how pools will have been split.
    plans: BTreeMap<BatchId, PoolPlan>,
    pool_plan: Option<PoolPlan>,
    /// Whether every step of a run is visited.
    one_by_one: bool,
    calls: u64,
    interrupt: Arc<AtomicBool>,
}

impl VirtualMachine {
    /// An idle machine at time 0. It stops when `interrupt` is set.
    pub fn new(
        topology: &Topology,
        prices: Prices,
        contention: &Contention,
        interrupt: Arc<AtomicBool>,
    ) -> VirtualMachine {
        let gpus = topology
            .lanes
            .iter()
            .map(|lane| lane.gpu.index() + 1)
            .max()
            .unwrap_or(0);
        let mut lanes_of_gpu = vec![Vec::new(); gpus];
        for (index, lane) in topology.lanes.iter().enumerate() {
            lanes_of_gpu[lane.gpu.index()].push(LaneId(index as u32));
        }
        let cores = prices.cores_shared();
        if cores.is_some() {
            lanes_of_gpu.fill((0..topology.lanes.len() as u32).map(LaneId).collect());
        }
        VirtualMachine {
            lanes_of_gpu,
            cores,
            looked_up: prices.plot().map(|_| LookupCounts::default()),
            plot: prices.plot(),
            prices,
            contention: ContentionPpm::new(contention),
            board: Board::new(topology.lanes.len()),
            lanes: { topology.lanes.iter() }
                .map(|lane| Lane {
                    kind: lane.kind,
                    card: if cores.is_some() { 0 } else { lane.gpu.index() },
                    running: None,
                    ops: 0,
                    model_of: None,
                    warmth: Warmth::WARM,
                    steps: 0,
                    busy: Duration::ZERO,
                    heard: Time::ZERO,
                    last_work: Duration::ZERO,
                })
                .collect(),
            running: 0,
            topology: topology.clone(),
            beside: vec![Beside::default(); gpus],
            on_link: vec![0; topology.instances.len()],
            pending: PendingEvents::new(topology.lanes.len()),
            timers_set: 0,
            timers: BinaryHeap::new(),
            now: Time::ZERO,
            count_from: Time::ZERO,
            leaps: Vec::new(),
            last_tokens: Vec::new(),
            groups: Vec::new(),
            owners: Vec::new(),
            outcomes: Vec::new(),
            ends: None,
            answers: None,
            allocations: BTreeMap::new(),
            allocated: None,
            planner: Planner::default(),
            plans: BTreeMap::new(),
            pool_plan: None,
            one_by_one: false,
            calls: 0,
            awake: Time::ZERO,
            drawn_alarm: (Time::ZERO, Time::ZERO, Time::ZERO),
            woken: Vec::new(),
            interrupt,
        }
    }

    /// Visits every step of a decoder's run instead of leaping over them. All results are the same: this is how tests know.
    pub fn step_by_step(mut self) -> VirtualMachine {
        self.one_by_one = true;
        self
    }

    /// Lets sequences end as `stop` says, where that is not by length: drawn with a seed.
    pub fn with_ends(mut self, stop: StopSpec, seed: u64) -> VirtualMachine {
        self.ends = Ends::new(stop, seed);
        self
    }

    /// Reveals these answers to a route's dispatcher, and judges by them.
    pub fn with_answers(mut self, answers: Option<Answers>) -> VirtualMachine {
        self.answers = answers;
        self
    }

    /// The prices, with what was extrapolated.
    pub fn prices(&self) -> &Prices {
        &self.prices
    }

    /// Events so far: a measure of the machine's work.
    pub fn events(&self) -> u64 {
        self.pending.made() + self.timers_set
    }

    /// Ops that were started so far.
    pub fn ops(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.ops).sum()
    }

    /// Starts the next op of an idle lane, if it is ready.
    fn try_start(&mut self, lane: LaneId) {
        let Some(Started {
            op,
            kind,
            shape,
            instance,
            free_since,
        }) = self.board.start(lane)
        else {
            return;
        };
        let state = &mut self.lanes[lane.index()];
        let mut spread = self.prices.spread(lane.0, state.ops);
        // A lane that has just ended an op takes the next from its queue; an idle one must be woken.
        let idle = self.now.since(free_since);
        let just_freed = state.ops > 0 && idle == Duration::ZERO;
        state.ops += 1;
        let (wake, pause) = if just_freed {
            (0, Duration::ZERO)
        } else {
            let pause = busy_between(state.heard, self.now);
            let rhythm = Rhythm {
                pause_ns: pause.0,
                work_ns: state.last_work.0,
                others_busy: self.prices.fills_cores(self.running),
            };
            (self.prices.wake_ns(rhythm, &mut spread), pause)
        };
        self.running += 1;
        let pool = self.topology.instances[instance.index()].pool;
        let started = self.now + Duration(wake);
        let on = &self.lanes[lane.index()];
        let others = self.beside[on.card].computing;
        if others > 0 && on.kind == LaneKind::Compute {
            self.prices.note_side_by_side(pool, kind, others + 1, shape);
        }
        let mut work = match kind {
            OpKind::Run(_) => {
                let made_before = self.lanes[lane.index()].steps;
                self.leaps[op.batch.slot as usize].start(started, made_before, self.one_by_one);
                Work::Steps
            }
            OpKind::Pet(pet) => Work::Whole {
                left_ns: self.prices.tasks_ns(
                    pet,
                    self.groups.get(op.batch.slot as usize).map_or(&[], Vec::as_slice),
                    shape,
                    &mut spread,
                ),
                since: started,
            },
            OpKind::Inspect => {
                let pruned = { self.answers.as_ref() }.map_or(0, |answers| answers.pruned(op.batch, pool.index()));
                Work::Whole {
                    left_ns: self.prices.look_ns(pool, shape, pruned, &mut spread),
                    since: started,
                }
            }
            _ => Work::Whole {
                left_ns: self.prices.work_ns(pool, kind, shape, &mut spread),
                since: started,
            },
        };
        if let OpKind::Lookup(lookup) = kind {
            let fragments = lookup.fragments;
            self.count_lookup(fragments.into());
        }
        let Lane {
            kind: kind_of_lane,
            card,
            ..
        } = self.lanes[lane.index()];
        let model = match kind_of_lane {
            LaneKind::Compute => self.takes_up_model(lane, op.batch),
            _ => ModelBefore::Same,
        };
        let before = Before { idle, model };
        if self.prices.cools_down(kind_of_lane, pool, before) {
            let work_ns = match &work {
                Work::Whole { left_ns, .. } => *left_ns,
                Work::Steps => {
                    let plan = &self.leaps[op.batch.slot as usize].plan;
                    self.prices.steps().between(&plan.costs, 0, plan.steps)
                }
            };
            let warmth = &mut self.lanes[lane.index()].warmth;
            let prices = &self.prices;
            let resume_ns = prices.resume_ns(kind_of_lane, pool, before, work_ns, warmth, &mut spread);
            match &mut work {
                Work::Whole { left_ns, .. } => *left_ns += resume_ns,
                // The whole run's, before its first step: most of it is the first steps'.
                Work::Steps => self.leaps[op.batch.slot as usize].delay(Duration(resume_ns)),
            }
        }
        self.beside[card].starts(kind_of_lane);
        let far_end = self.far_end(kind_of_lane, op);
        if let Some(far_end) = far_end {
            self.on_link[far_end.index()] += 1;
        }
        let stretch_ppm = self.stretch(lane, op);
        self.lanes[lane.index()].running = Some(Running {
            op,
            started,
            work,
            stretch_ppm,
            pause,
            spread,
        });
        match work {
            Work::Whole { left_ns, since } => {
                let at = since + Duration(stretched(left_ns, stretch_ppm));
                self.pending.lane_ends(at, lane);
            }
            Work::Steps => {
                self.next_segment(lane, op, stretch_ppm);
                self.schedule_end(lane);
            }
        }
        self.restretch_neighbours(lane);
        self.restretch_link(far_end);
    }

    /// Notes whose whole model the lane computes with from now on, and says whose it was until now.
    fn takes_up_model(&mut self, lane: LaneId, batch: BatchId) -> ModelBefore {
        let Some(&Some(Owner { tenant, copied })) = self.owners.get(batch.slot as usize) else {
            return ModelBefore::Same;
        };
        match self.lanes[lane.index()].model_of.replace(tenant) {
            Some(last) if last == tenant => ModelBefore::Same,
            _ if copied => ModelBefore::Copied,
            _ => ModelBefore::Other,
        }
    }

    /// A segment of a lane's steps has ended: the next goes at the pace that what runs beside it leaves.
    fn segment_ends(&mut self, lane: LaneId) {
        let running = self.lanes[lane.index()].running.as_ref().expect("an op runs");
        let op = running.op;
        let stretch_ppm = self.stretch(lane, op);
        let running = self.lanes[lane.index()].running.as_mut().expect("an op runs");
        running.stretch_ppm = stretch_ppm;
        self.next_segment(lane, op, stretch_ppm);
        self.schedule_end(lane);
    }

    fn next_segment(&mut self, lane: LaneId, op: OpRef, stretch_ppm: u64) {
        let leap = &mut self.leaps[op.batch.slot as usize];
        let block = leap.next_block();
        let jitter_ppm = leap.jitter_ppm(block, |typical| self.prices.block_ppm(lane.0, block, typical));
        leap.next_segment(self.prices.steps(), stretch_ppm, jitter_ppm);
    }

    /// Shares of the specification, since no tokens are there to be found in any table.
    fn count_lookup(&mut self, fragments: u64) {
        let (Some(counts), Some(plot)) = (&mut self.looked_up, &self.plot) else {
            return;
        };
        // Of all together, so that small batches round nothing away.
        counts.tokens += fragments;
        let share = |ppm: u32| (u128::from(counts.tokens) * u128::from(ppm) / 1_000_000) as u64;
        let (domain_hits_ppm, fallbacks_ppm) = plot.met_ppm();
        counts.domain_hits = share(domain_hits_ppm);
        counts.fallbacks = share(fallbacks_ppm);
        counts.root_hits = counts.tokens - counts.domain_hits - counts.fallbacks;
    }

    #[inline(always)]
    fn schedule_end(&mut self, lane: LaneId) {
        let running = self.lanes[lane.index()].running.as_ref().expect("an op runs");
        match running.work {
            Work::Whole { left_ns, since } => {
                let at = since + Duration(stretched(left_ns, running.stretch_ppm));
                self.pending.lane_ends(at, lane);
            }
            Work::Steps => {
                let leap = &self.leaps[running.op.batch.slot as usize];
                match leap.is_last() {
                    true => self.pending.lane_ends(leap.segment_ends(), lane),
                    false => self.pending.segment_ends(leap.segment_ends(), lane),
                }
            }
        }
    }

    /// How much slower the op that the lane runs is for what runs beside it on its card.
    #[inline]
    fn stretch(&self, lane: LaneId, op: OpRef) -> u64 {
        let on = &self.lanes[lane.index()];
        let beside = &self.beside[on.card];
        match beside.busy {
            1 if on.kind != LaneKind::Link => UNDISTURBED,
            _ => self.disturbed(on.kind, beside, op),
        }
    }

    #[inline]
    fn disturbed(&self, kind: LaneKind, beside: &Beside, op: OpRef) -> u64 {
        let mut disturbed = self.contention.0[kind as usize][beside.what()];
        if kind == LaneKind::Compute && beside.computing > 1 {
            disturbed = disturbed * self.among_streams(beside.computing, op) / UNDISTURBED;
        }
        if let Some(far_end) = self.far_end(kind, op) {
            disturbed *= u64::from(self.on_link[far_end.index()]);
        }
        match self.cores {
            // Threads take turns on the cores.
            Some(cores) if u64::from(beside.busy) > cores => disturbed * u64::from(beside.busy) / cores,
            _ => disturbed,
        }
    }

    fn among_streams(&self, streams: u32, op: OpRef) -> u64 {
        let pool = self.topology.instances[self.board.instance(op.batch).index()].pool;
        let (kind, shape) = (&self.board.op(op).kind, self.board.shape(op.batch));
        self.prices
            .streams_ppm(pool, kind, streams, shape)
            .unwrap_or(UNDISTURBED)
    }

    /// The instance between which and the lane's own a transfer goes: it has a link too, and no lane that transfers queue for. Nothing where
    /// cards are threads that copy in one memory.
    #[inline]
    fn far_end(&self, kind: LaneKind, op: OpRef) -> Option<InstanceId> {
        if kind != LaneKind::Link || !self.prices.has_links() {
            return None;
        }
        let OpKind::Transfer(transfer) = self.board.op(op).kind else {
            unreachable!("a link carries keys and values")
        };
        let to = self.board.instance(op.batch);
        let to_has_lane = self.topology.instances[to.index()].link.is_some();
        Some(if to_has_lane { transfer.from } else { to })
    }

    /// A transfer has started or ended: the others to or from that instance go at another pace from now on.
    #[inline]
    fn restretch_link(&mut self, far_end: Option<InstanceId>) {
        if far_end.is_none() {
            return;
        }
        for index in 0..self.lanes.len() {
            let lane = LaneId(index as u32);
            let on = &self.lanes[index];
            let Some(running) = on.running.as_ref().filter(|_| on.kind == LaneKind::Link) else {
                continue;
            };
            let stretch_ppm = self.stretch(lane, running.op);
            if running.stretch_ppm != stretch_ppm {
                self.change_pace(lane, stretch_ppm);
            }
        }
    }

    /// A lane has started or ended: the others of its card go at another pace from now on.
    #[inline(always)]
    fn restretch_neighbours(&mut self, lane: LaneId) {
        let Lane { card, running, .. } = &self.lanes[lane.index()];
        // Mostly it is alone.
        if self.beside[*card].busy != u32::from(running.is_some()) {
            self.restretch_others(lane, *card);
        }
    }

    #[inline(never)]
    fn restretch_others(&mut self, lane: LaneId, card: usize) {
        for i in 0..self.lanes_of_gpu[card].len() {
            let other = self.lanes_of_gpu[card][i];
            let on = &self.lanes[other.index()];
            let Some(running) = on.running.as_ref().filter(|_| other != lane) else {
                continue;
            };
            let stretch_ppm = self.disturbed(on.kind, &self.beside[card], running.op);
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
            }
            Work::Steps => {
                let leap = &mut self.leaps[running.op.batch.slot as usize];
                let block = leap.block();
                let jitter_ppm = leap.jitter_ppm(block, |typical| self.prices.block_ppm(lane.0, block, typical));
                leap.change_pace(self.prices.steps(), now, stretch_ppm, jitter_ppm);
            }
        }
        running.stretch_ppm = stretch_ppm;
        self.schedule_end(lane);
    }

    fn lane_ends(&mut self, lane: LaneId) {
        let state = &mut self.lanes[lane.index()];
        let Running {
            op: ended,
            started,
            work,
            pause,
            mut spread,
            ..
        } = state.running.take().expect("an op runs");
        let batch = ended.batch;
        let mut looked_up = 0;
        if let Work::Steps = work {
            let slot = batch.slot as usize;
            let leap = &self.leaps[slot];
            state.steps += u64::from(leap.steps());
            if slot >= self.outcomes.len() {
                self.outcomes.resize_with(slot + 1, Outcome::default);
            }
            let outcome = &mut self.outcomes[slot];
            outcome.requests = leap.plan.requests;
            outcome.steps = leap.steps();
            outcome.first_step_ended = leap.first_step_ended;
            let instance = self.board.instance(batch);
            self.last_tokens[instance.index()].ran(leap.steps(), &mut outcome.ended);
            looked_up = leap.plan.costs.looked_up(leap.steps());
        }
        state.busy += busy_between(started.max(self.count_from), self.now);
        state.last_work = busy_between(started, self.now);
        self.running -= 1;
        let rhythm = Rhythm {
            pause_ns: pause.0,
            work_ns: state.last_work.0,
            others_busy: self.prices.fills_cores(self.running),
        };
        let tell = Duration(self.prices.tell_ns(rhythm, &mut spread));
        self.beside[state.card].ends(state.kind);
        let kind = state.kind;
        let far_end = self.far_end(kind, ended);
        if let Some(far_end) = far_end {
            self.on_link[far_end.index()] -= 1;
        }
        if looked_up > 0 {
            self.count_lookup(looked_up);
        }
        let op = self.board.ran(lane, started, self.now);
        // Whoever waits on this lane needs no telling; other lanes and the server do.
        if self.board.is_waited_for(lane) {
            self.try_start(lane);
        }
        // Where the next has started, that has been done.
        if !self.board.is_running(lane) {
            self.restretch_neighbours(lane);
        }
        self.restretch_link(far_end);
        let heard = &mut self.lanes[lane.index()].heard;
        *heard = (*heard).max(self.now + tell);
        let at = *heard;
        self.pending.will_be_heard(at, op);
    }

    /// What came of a run; nothing for other ops.
    fn told_run(&self, op: OpRef) -> Option<RunOutcome<'_>> {
        let outcome = self.outcomes.get(op.batch.slot as usize)?;
        (outcome.steps > 0).then_some(RunOutcome {
            requests: outcome.requests,
            steps: outcome.steps,
            first_step_ended: outcome.first_step_ended,
            ended: &outcome.ended,
            failed: &[],
        })
    }

    /// Keeps what a run's pace follows from until it starts, and the groups of a batch of tasks.
    fn plan(&mut self, submission: &Submission, commands: &Commands) {
        let slot = submission.batch.slot as usize;
        let pool = self.topology.instances[submission.instance.index()].pool;
        if self.prices.changes_model(pool) || slot < self.owners.len() {
            if slot >= self.owners.len() {
                self.owners.resize(slot + 1, None);
            }
            // All members are of one tenant; a run without members goes on with the last one's.
            let copies = |op: &Op| matches!(op.kind, OpKind::CopyIn(_));
            let owner = { commands.members(submission).first() }.map(|member| Owner {
                tenant: member.tenant,
                copied: commands.ops(submission).iter().any(copies),
            });
            self.owners[slot] = owner.filter(|_| self.prices.changes_model(pool));
        }
        if !submission.groups.is_empty() || slot < self.groups.len() {
            if slot >= self.groups.len() {
                self.groups.resize_with(slot + 1, Vec::new);
            }
            self.groups[slot].clear();
            self.groups[slot].extend_from_slice(commands.groups(submission));
        }
        if let Some(outcome) = self.outcomes.get_mut(slot) {
            outcome.steps = 0;
        }
        let runs = commands.ops(submission).iter().find_map(|op| match op.kind {
            OpKind::Run(run) => Some(run),
            _ => None,
        });
        let Some(run) = runs else { return };
        if slot >= self.leaps.len() {
            self.leaps.resize_with(slot + 1, Leap::default);
        }
        let instance = submission.instance.index();
        if instance >= self.last_tokens.len() {
            self.last_tokens.resize_with(instance + 1, LastTokens::default);
        }
        let last_tokens = &mut self.last_tokens[instance];
        let members = commands.members(submission);
        for Member {
            request,
            ticket,
            sequence,
            ..
        } in members.iter().filter(|member| member.sequence.completes)
        {
            let longest = sequence.output_tokens;
            let tokens = { self.ends }.map_or(longest, |ends| ends.output_tokens(*ticket, longest));
            last_tokens.join(*request, tokens.saturating_sub(sequence.generated_tokens).max(1));
        }
        let steps = last_tokens
            .steps(run.until)
            .map_or(run.max_steps, |steps| steps.min(run.max_steps));
        self.leaps[slot].plan = RunPlan {
            costs: self.prices.run(members, run.going_on, submission.shape.tenants),
            requests: submission.shape.requests,
            steps: steps.max(1),
        };
    }

    /// Solves what a submission asks. The answer is told when the time that it takes has passed.
    fn solve(&mut self, submission: &Submission, commands: &Commands) -> Result<(), MachineError> {
        if commands.questions.is_empty() {
            return Ok(());
        }
        if let Some(question) = commands.question(submission) {
            let answer = answer(question).map_err(|error| MachineError::Invariant(error.to_string()))?;
            self.allocations.insert(submission.batch, answer);
        }
        Ok(())
    }

    /// Splits the pool that a submission asks about. As with [`solve`](Self::solve), the plan is told when its time has passed.
    fn split_pool(&mut self, submission: &Submission, commands: &Commands) {
        if commands.pools.is_empty() {
            return;
        }
        let Some(question) = commands.pool(submission) else {
            return;
        };
        let mut plan = PoolPlan::default();
        for op in commands.ops(submission) {
            if let OpKind::PlanPool(of) = op.kind {
                self.planner.answer(question, of.model, &mut plan);
            }
        }
        self.plans.insert(submission.batch, plan);
    }

    /// Lets a batch's run end at its next step.
    fn interrupt_run(&mut self, now: Time, instance: InstanceId, batch: BatchId) {
        let lane = self.topology.instances[instance.index()].compute;
        let running = self.lanes[lane.index()].running.as_ref();
        let Some(running) = running.filter(|running| running.op.batch == batch) else {
            // It has not started; or it has ended, that has not been heard yet, and this makes no difference.
            self.leaps[batch.slot as usize].plan.steps = 1;
            return;
        };
        if let Work::Steps = running.work {
            let leap = &mut self.leaps[batch.slot as usize];
            leap.cut(self.prices.steps(), now);
            leap.end_here();
            self.schedule_end(lane);
        }
    }

    fn submit(&mut self, now: Time, submission: &Submission, commands: &Commands) -> Result<(), MachineError> {
        let ops = commands.ops(submission);
        self.plan(submission, commands);
        if let Some(answers) = &mut self.answers {
            answers.submitted(submission.batch, commands.members(submission));
        }
        self.solve(submission, commands)?;
        self.split_pool(submission, commands);
        self.board
            .submit(now, submission.batch, submission.instance, submission.shape, ops);
        for op in ops {
            self.try_start(op.lane);
        }
        Ok(())
    }

    /// What the server is told of an op's end.
    fn done(&mut self, op: OpRef, timing: BatchTiming) -> Done<'_> {
        if let Some(answers) = &mut self.answers {
            let stage = self.topology.instances[self.board.instance(op.batch).index()].pool;
            answers.reveal(op.batch, stage.index());
        }
        // Few servers ask the machine anything.
        if !self.allocations.is_empty() || self.allocated.is_some() {
            self.allocated = self.allocations.remove(&op.batch);
        }
        if !self.plans.is_empty() || self.pool_plan.is_some() {
            self.pool_plan = self.plans.remove(&op.batch);
        }
        Done {
            batch: op.batch,
            op: op.index,
            timing,
            failures: &[],
            run: self.told_run(op),
            answers: self.answers.as_ref().map_or(&[], Answers::revealed),
            allocation: self.allocated.as_ref(),
            plan: self.pool_plan.as_ref(),
        }
    }

    /// The end of an op has become known. The batch's timing, where the server asked to be told.
    fn heard(&mut self, op: OpRef) -> Option<BatchTiming> {
        let woken = &mut self.woken;
        let noticed = self.board.notice(op, |lane| woken.push(lane));
        for i in 0..self.woken.len() {
            self.try_start(self.woken[i]);
        }
        self.woken.clear();
        noticed.told
    }

    /// When the loop, which sleeps, notices that an instant has come.
    #[inline]
    fn alarm(&mut self, until: Time) -> Time {
        let (drawn_until, slept_since, noticed) = self.drawn_alarm;
        if (drawn_until, slept_since) == (until, self.awake) {
            return noticed;
        }
        let noticed = until + Duration(self.prices.alarm_ns(until, until.since(self.awake)));
        self.drawn_alarm = (until, self.awake, noticed);
        noticed
    }
}

impl Machine for VirtualMachine {
    fn next(&mut self, deadline: Option<Time>) -> Result<Next<'_>, MachineError> {
        self.calls += 1;
        if self.calls.is_multiple_of(INTERRUPT_CHECK) && self.interrupt.load(Ordering::Relaxed) {
            return Err(MachineError::Interrupted);
        }
        let timer = self.timers.peek().map(|&Reverse((at, _, instance))| (at, instance));
        let until = match (deadline, timer) {
            (Some(due), Some((at, _))) => Some(due.min(at)),
            (due, timer) => due.or(timer.map(|(at, _)| at)),
        };
        loop {
            let first = self.pending.first();
            match until {
                None if first == Pending::NEVER => return Ok(Next::Idle),
                // What happens before needs no alarm to be drawn.
                Some(until) if !first.is_before(until) => {
                    // A loop that is awake anyway sees at once that the time has come; a sleeping one is woken for it.
                    let noticed = match until <= self.awake {
                        true => self.awake,
                        false => self.alarm(until),
                    };
                    if !first.is_before(noticed) {
                        self.now = noticed;
                        self.awake = noticed;
                        if let Some((_, instance)) = timer.filter(|(at, _)| *at <= noticed) {
                            self.timers.pop();
                            return Ok(Next::Event(noticed, Event::Timer(instance)));
                        }
                        return Ok(Next::Due(noticed));
                    }
                }
                _ => {}
            }
            self.now = first.at();
            match first.what() {
                What::LaneEnds => {
                    self.pending.take_end(first.lane());
                    self.lane_ends(first.lane());
                }
                What::SegmentEnds => {
                    self.pending.take_end(first.lane());
                    self.segment_ends(first.lane());
                }
                What::Heard => {
                    let op = self.pending.hear().expect("the end of an op is next");
                    self.awake = self.now;
                    if let Some(timing) = self.heard(op) {
                        return Ok(Next::Event(self.now, Event::Done(self.done(op, timing))));
                    }
                }
            }
        }
    }

    /// Inlined, since most commands are that somebody leaves, of which a machine that computes nothing has nothing to do.
    #[inline]
    fn perform(&mut self, now: Time, command: &Command, commands: &Commands) -> Result<(), MachineError> {
        self.now = now;
        match command {
            Command::Submit(submission) => self.submit(now, submission, commands)?,
            Command::SetTimer { instance, at } => {
                self.timers.push(Reverse((*at, self.timers_set, *instance)));
                self.timers_set += 1;
            }
            Command::Interrupt { instance, batch } => self.interrupt_run(now, *instance, *batch),
            Command::Park { instance, request } | Command::Release { instance, request } => {
                if let Some(last_tokens) = self.last_tokens.get_mut(instance.index()) {
                    last_tokens.leave(*request);
                }
            }
            Command::Finish(_) | Command::Managed(_) | Command::ReleasePrefix { .. } => {}
        }
        Ok(())
    }

    fn count_busy_from(&mut self, start: Time) {
        self.count_from = start;
    }

    fn board(&mut self) -> &mut Board {
        &mut self.board
    }

    fn lookups(&self) -> Option<LookupCounts> {
        self.looked_up
    }

    fn is_right(&mut self, finish: &Finish) -> Option<bool> {
        self.answers.as_ref()?.is_right(finish)
    }

    fn lanes(&self, now: Time) -> Vec<LaneUse> {
        let running = |lane: &Lane| match &lane.running {
            Some(running) => busy_between(running.started.max(self.count_from), now),
            None => Duration::ZERO,
        };
        let used = self.topology.lanes.iter().zip(&self.lanes);
        used.map(|(lane, state)| LaneUse {
            name: lane.name.clone(),
            busy: state.busy + running(state),
        })
        .collect()
    }
}
