//! Lanes in virtual time.
//!
//! An op is priced when it starts, not when it is submitted, since only then is it known what runs beside it. Lanes of one card
//! slow each other down by the factors that the profiler measured: when a lane starts or ends, the card's running ops are
//! re-priced for what is left of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenantry_core::board::{Board, OpRef};
use tenantry_core::event::{BatchTiming, Done, Event};
use tenantry_core::ids::{InstanceId, LaneId};
use tenantry_core::machine::{LaneUse, Machine, MachineError, Next};
use tenantry_core::topology::LaneKind;
use tenantry_core::{Command, Commands, Topology};
use tenantry_profiles::Contention;
use tenantry_traces::{Duration, Time};

use crate::prices::Prices;

/// What the heap holds. Events at one instant come in the order of the variants, then of their making: a lane that falls free is
/// free before its batch's end is heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// The lane's running op ends, if its end has not been moved since: `version` tells.
    LaneEnds { lane: u32, version: u32 },
    /// The end of an op is heard.
    Heard { op: OpIndex },
}

/// An [`OpRef`] with an order, so that the heap is total. The order is never used: `sequence` comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OpIndex(OpRef);

impl PartialOrd for OpIndex {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OpIndex {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0.batch, self.0.index).cmp(&(other.0.batch, other.0.index))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pending {
    at: Time,
    class: u8,
    sequence: u64,
    what: What,
}

/// An op that runs, or is about to.
#[derive(Clone, Copy, Debug)]
struct Running {
    started: Time,
    /// Work left at `since`, in nanoseconds on an undisturbed lane.
    left_ns: u64,
    since: Time,
    /// Time that a million nanoseconds of work take.
    stretch_ppm: u64,
    /// From its end until that is heard.
    tell: Duration,
}

impl Running {
    fn ends(&self) -> Time {
        let ns = u128::from(self.left_ns) * u128::from(self.stretch_ppm) / u128::from(UNDISTURBED);
        self.since + Duration(ns as u64)
    }

    fn restretch(&mut self, now: Time, stretch_ppm: u64) {
        if now > self.since {
            let done = u128::from(now.since(self.since).0) * u128::from(UNDISTURBED) / u128::from(self.stretch_ppm);
            self.left_ns = self.left_ns.saturating_sub(done as u64);
            self.since = now;
        }
        self.stretch_ppm = stretch_ppm;
    }
}

const UNDISTURBED: u64 = 1_000_000;

#[derive(Debug)]
struct Lane {
    running: Option<Running>,
    version: u32,
    ops: u64,
    busy: Duration,
}

/// How many calls pass between looks at the interrupt flag.
const INTERRUPT_CHECK: u64 = 1 << 12;

fn busy_between(start: Time, end: Time) -> Duration {
    if end > start { end.since(start) } else { Duration::ZERO }
}

/// The virtual machine.
#[derive(Debug)]
pub struct VirtualMachine {
    topology: Topology,
    /// Lanes of each card.
    lanes_of_gpu: Vec<Vec<LaneId>>,
    prices: Prices,
    compute_beside_copy_ppm: u64,
    copy_beside_compute_ppm: u64,
    board: Board,
    lanes: Vec<Lane>,
    heap: BinaryHeap<Reverse<Pending>>,
    sequence: u64,
    timers: BinaryHeap<Reverse<(Time, u64, InstanceId)>>,
    now: Time,
    /// Busy time before is not counted.
    count_from: Time,
    /// When the loop was last awake: it sleeps between the events that it hears.
    awake: Time,
    /// Reused: lanes on which an op has become ready.
    woken: Vec<LaneId>,
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
        let ppm = |factor: f64| (factor * UNDISTURBED as f64).round() as u64;
        VirtualMachine {
            lanes_of_gpu,
            prices,
            compute_beside_copy_ppm: ppm(contention.compute_beside_copy),
            copy_beside_compute_ppm: ppm(contention.copy_beside_compute),
            board: Board::new(topology.lanes.len()),
            lanes: (0..topology.lanes.len())
                .map(|_| Lane {
                    running: None,
                    version: 0,
                    ops: 0,
                    busy: Duration::ZERO,
                })
                .collect(),
            topology: topology.clone(),
            heap: BinaryHeap::new(),
            sequence: 0,
            timers: BinaryHeap::new(),
            now: Time::ZERO,
            count_from: Time::ZERO,
            calls: 0,
            awake: Time::ZERO,
            woken: Vec::new(),
            interrupt,
        }
    }

    /// The prices, with what was extrapolated.
    pub fn prices(&self) -> &Prices {
        &self.prices
    }

    /// Events so far: a measure of the machine's work.
    pub fn events(&self) -> u64 {
        self.sequence
    }

    fn push(&mut self, at: Time, what: What) {
        let class = match what {
            What::LaneEnds { .. } => 0,
            What::Heard { .. } => 1,
        };
        self.heap.push(Reverse(Pending {
            at,
            class,
            sequence: self.sequence,
            what,
        }));
        self.sequence += 1;
    }

    /// Starts the next op of an idle lane, if it is ready.
    fn try_start(&mut self, lane: LaneId) {
        if self.board.is_running(lane) {
            return;
        }
        let Some(op) = self.board.ready(lane) else { return };
        self.board.issue(lane);
        let state = &mut self.lanes[lane.index()];
        let mut spread = self.prices.spread(lane.0, state.ops);
        // A lane that has just ended an op takes the next from its queue; an idle one must be woken.
        let just_freed = state.ops > 0 && self.board.free_since(lane) == self.now;
        state.ops += 1;
        let wake = if just_freed {
            0
        } else {
            self.prices.wake_ns(&mut spread)
        };
        let shape = self.board.shape(op.batch);
        let mut left_ns = self.prices.work_ns(&self.board.op(op).kind, shape, &mut spread);
        if !just_freed && self.topology.lanes[lane.index()].kind == LaneKind::Compute {
            let idle = self.now.since(self.board.free_since(lane));
            left_ns += self.prices.resume_ns(idle, left_ns, &mut spread);
        }
        let tell = Duration(self.prices.tell_ns(&mut spread));
        let started = self.now + Duration(wake);
        let stretch_ppm = self.stretch(lane);
        self.lanes[lane.index()].running = Some(Running {
            started,
            left_ns,
            since: started,
            stretch_ppm,
            tell,
        });
        self.schedule_end(lane);
        self.restretch_neighbours(lane);
    }

    fn schedule_end(&mut self, lane: LaneId) {
        let state = &mut self.lanes[lane.index()];
        state.version = state.version.wrapping_add(1);
        let at = state.running.as_ref().expect("an op runs").ends();
        let version = state.version;
        self.push(at, What::LaneEnds { lane: lane.0, version });
    }

    /// How much slower the lane is for what runs beside it on its card.
    fn stretch(&self, lane: LaneId) -> u64 {
        let Topology { lanes, .. } = &self.topology;
        let kind = lanes[lane.index()].kind;
        let disturbed = self.lanes_of_gpu[lanes[lane.index()].gpu.index()].iter().any(|&other| {
            other != lane && lanes[other.index()].kind != kind && self.lanes[other.index()].running.is_some()
        });
        match (disturbed, kind) {
            (false, _) => UNDISTURBED,
            (true, LaneKind::Compute) => self.compute_beside_copy_ppm,
            (true, LaneKind::Copy) => self.copy_beside_compute_ppm,
        }
    }

    /// A lane has started or ended: the others of its card go at another pace from now on.
    fn restretch_neighbours(&mut self, lane: LaneId) {
        let gpu = self.topology.lanes[lane.index()].gpu.index();
        for i in 0..self.lanes_of_gpu[gpu].len() {
            let other = self.lanes_of_gpu[gpu][i];
            if other == lane {
                continue;
            }
            let stretch_ppm = self.stretch(other);
            let now = self.now;
            if let Some(running) = &mut self.lanes[other.index()].running
                && running.stretch_ppm != stretch_ppm
            {
                running.restretch(now, stretch_ppm);
                self.schedule_end(other);
            }
        }
    }

    fn lane_ends(&mut self, lane: LaneId) {
        let state = &mut self.lanes[lane.index()];
        let Running { started, tell, .. } = state.running.take().expect("an op runs");
        state.busy += busy_between(started.max(self.count_from), self.now);
        let op = self.board.ran(lane, started, self.now);
        // Whoever waits on this lane needs no telling; other lanes and the server do.
        self.try_start(lane);
        self.restretch_neighbours(lane);
        self.push(self.now + tell, What::Heard { op: OpIndex(op) });
    }
}

impl VirtualMachine {
    /// The end of an op has become known. The batch's timing, where the server asked to be told.
    fn heard(&mut self, op: OpRef) -> Option<BatchTiming> {
        let mut woken = std::mem::take(&mut self.woken);
        let noticed = self.board.notice(op, |lane| woken.push(lane));
        for lane in woken.drain(..) {
            self.try_start(lane);
        }
        self.woken = woken;
        noticed.told
    }
}

impl Machine for VirtualMachine {
    fn next(&mut self, deadline: Option<Time>) -> Result<Next<'_>, MachineError> {
        self.calls += 1;
        if self.calls.is_multiple_of(INTERRUPT_CHECK) && self.interrupt.load(Ordering::Relaxed) {
            return Err(MachineError::Interrupted);
        }
        loop {
            let timer = self.timers.peek().map(|&Reverse((at, _, instance))| (at, instance));
            let until = match (deadline, timer) {
                (Some(due), Some((at, _))) => Some(due.min(at)),
                (due, timer) => due.or(timer.map(|(at, _)| at)),
            };
            // A loop that is awake anyway sees at once that the time has come; a sleeping one is woken for it.
            let noticed = until.map(|until| match self.heap.peek() {
                _ if until <= self.awake => self.awake,
                // What happens before needs no alarm to be drawn.
                Some(Reverse(pending)) if pending.at <= until => until,
                _ => until + Duration(self.prices.alarm_ns(until)),
            });
            match (self.heap.peek(), noticed) {
                (Some(&Reverse(pending)), noticed) if noticed.is_none_or(|noticed| pending.at <= noticed) => {
                    self.heap.pop();
                    match pending.what {
                        What::LaneEnds { lane, version } if self.lanes[lane as usize].version == version => {
                            self.now = pending.at;
                            self.lane_ends(LaneId(lane));
                        }
                        // Its end has been moved.
                        What::LaneEnds { .. } => {}
                        What::Heard { op: OpIndex(op) } => {
                            self.now = pending.at;
                            self.awake = pending.at;
                            if let Some(timing) = self.heard(op) {
                                let done = Done {
                                    batch: op.batch,
                                    op: op.index,
                                    timing,
                                    failures: &[],
                                };
                                return Ok(Next::Event(self.now, Event::Done(done)));
                            }
                        }
                    }
                }
                (_, Some(noticed)) => {
                    self.now = noticed;
                    self.awake = noticed;
                    if let Some((_, instance)) = timer.filter(|(at, _)| *at <= noticed) {
                        self.timers.pop();
                        return Ok(Next::Event(noticed, Event::Timer(instance)));
                    }
                    return Ok(Next::Due(noticed));
                }
                (_, None) => return Ok(Next::Idle),
            }
        }
    }

    fn perform(&mut self, now: Time, command: &Command, commands: &Commands) -> Result<(), MachineError> {
        self.now = now;
        match command {
            Command::Submit(submission) => {
                let ops = commands.ops(submission);
                self.board
                    .submit(now, submission.batch, submission.instance, submission.shape, ops);
                for op in ops {
                    self.try_start(op.lane);
                }
            }
            Command::SetTimer { instance, at } => {
                self.timers.push(Reverse((*at, self.sequence, *instance)));
                self.sequence += 1;
            }
            Command::Finish(_) => {}
        }
        Ok(())
    }

    fn count_busy_from(&mut self, start: Time) {
        self.count_from = start;
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
