//! Lanes in virtual time.
//!
//! An op is priced when it starts, not when it is submitted, since only then is it known what runs beside it. Lanes of
//! one card slow each other down by the factors that the profiler measured: when a lane starts or ends, the card's
//! running ops are re-priced for what is left of them.

mod contention;
mod lanes;
mod submitting;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenantry_core::answers::Answers;
use tenantry_core::board::{Board, OpRef};
use tenantry_core::command::Finish;
use tenantry_core::event::{BatchTiming, Done, Event, RunOutcome};
use tenantry_core::ids::{BatchId, LaneId};
use tenantry_core::machine::{LaneUse, LookupCounts, Machine, MachineError, Next};
use tenantry_core::op::PetGroup;
use tenantry_core::policy::coordinated::{Planner, PoolPlan};
use tenantry_core::policy::fleet::Allocated;
use tenantry_core::spec::{PlotSpec, StopSpec};
use tenantry_core::timers::Timers;
use tenantry_core::topology::LaneKind;
use tenantry_core::{Command, Commands, Topology};
use tenantry_profiles::Contention;
use tenantry_traces::{Duration, Time};

use self::contention::{Beside, ContentionPpm};
use self::lanes::{Lane, Outcome, busy_between};
use self::submitting::Owner;
use crate::ends::Ends;
use crate::last_tokens::LastTokens;
use crate::leap::Leap;
use crate::pending::{Pending, PendingEvents, What};
use crate::prices::{Cores, Prices, Warmth};

/// How many calls pass between looks at the interrupt flag.
const INTERRUPT_CHECK: u64 = 1 << 12;

/// The virtual machine.
#[derive(Debug)]
pub struct VirtualMachine {
    topology: Topology,
    /// Lanes that disturb those of each card: its own, or all where all are threads of one processor.
    lanes_of_gpu: Vec<Vec<LaneId>>,
    /// Of that processor, where there is one.
    cores: Option<Cores>,
    prices: Prices,
    contention: ContentionPpm,
    /// Whether nothing ever slows anything else on its card: then nobody asks.
    undisturbed: bool,
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
    timers: Timers,
    now: Time,
    /// Busy time before is not counted.
    count_from: Time,
    /// When the loop was last awake: it sleeps between the events that it hears.
    awake: Time,
    /// The last alarm that was drawn: for when, since when the loop slept, and when it notices. It is asked for again
    /// after each end in between.
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
        let gpus = topology.lanes.iter().map(|lane| lane.gpu.index() + 1).max().unwrap_or(0);
        let mut lanes_of_gpu = vec![Vec::new(); gpus];
        for (index, lane) in topology.lanes.iter().enumerate() {
            lanes_of_gpu[lane.gpu.index()].push(LaneId(index as u32));
        }
        let cores = prices.cores();
        let is_one_processor = matches!(cores, Some(Cores::OfAllCards(_)));
        if is_one_processor {
            lanes_of_gpu.fill((0..topology.lanes.len() as u32).map(LaneId).collect());
        }
        let contention = ContentionPpm::new(contention);
        let has_links = topology.lanes.iter().any(|lane| lane.kind == LaneKind::Link);
        let compute_apart = lanes_of_gpu.iter().all(|lanes| {
            let computing = |lane: &&LaneId| topology.lanes[lane.index()].kind == LaneKind::Compute;
            lanes.iter().filter(computing).count() <= 1
        });
        VirtualMachine {
            undisturbed: contention.is_nothing() && cores.is_none() && compute_apart && !has_links,
            lanes_of_gpu,
            cores,
            looked_up: prices.plot().map(|_| LookupCounts::default()),
            plot: prices.plot(),
            prices,
            contention,
            board: Board::new(topology.lanes.len()),
            lanes: topology
                .lanes
                .iter()
                .map(|lane| Lane {
                    kind: lane.kind,
                    card: if is_one_processor { 0 } else { lane.gpu.index() },
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
            timers: Timers::default(),
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

    /// Visits every step of a decoder's run instead of leaping over them. All results are the same: this is how tests
    /// know.
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
        self.pending.made() + self.timers.count()
    }

    /// Ops that were started so far.
    pub fn ops(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.ops).sum()
    }

    /// What came of a run; nothing for other ops.
    fn told_run(&self, op: OpRef) -> Option<RunOutcome<'_>> {
        let outcome = self.outcomes.get(op.batch.slot as usize)?;
        (outcome.steps > 0).then_some(RunOutcome {
            requests: outcome.requests,
            steps: outcome.steps,
            first_step_ended: outcome.first_step_ended,
            marks: &outcome.marks,
            ended: &outcome.ended,
            failed: &[],
        })
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

    /// What is neither a submission nor that somebody leaves.
    #[inline(never)]
    fn perform_other(&mut self, now: Time, command: &Command) {
        match command {
            Command::SetTimer { instance, at } => self.timers.set(*at, *instance),
            Command::Interrupt { instance, batch } => self.interrupt_run(now, *instance, *batch),
            Command::Park { instance, request } | Command::Release { instance, request } => {
                if let Some(last_tokens) = self.last_tokens.get_mut(instance.index()) {
                    last_tokens.leave(*request);
                }
            }
            Command::Submit(_) | Command::Finish(_) | Command::Managed(_) | Command::ReleasePrefix { .. } => {}
        }
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
        let until = self.timers.or_before(deadline);
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
                        return Ok(match self.timers.go_off(noticed) {
                            Some(instance) => Next::Event(noticed, Event::Timer(instance)),
                            None => Next::Due(noticed),
                        });
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

    /// Inlined, since most commands are that somebody leaves, of which a machine that computes nothing has nothing to
    /// do.
    #[inline(always)]
    fn perform(&mut self, now: Time, command: &Command, commands: &Commands) -> Result<(), MachineError> {
        self.now = now;
        match command {
            Command::Submit(submission) => self.submit(now, submission, commands),
            Command::Finish(_) => Ok(()),
            other => {
                self.perform_other(now, other);
                Ok(())
            }
        }
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
