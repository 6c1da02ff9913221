//! The real machine: the same lanes and ops as the virtual one, done rather than priced.
//!
//! A coordinator (the thread that runs the loop) keeps the [`Board`] and issues each op to its lane's worker as soon as
//! what it waits for on other lanes has ended; workers keep the order of their own lane, so an op is issued while the
//! one before it still runs. Workers stamp when each op started and ended. [`Workers`] hides whether they are threads
//! or a script.

pub(crate) mod cascading;
pub mod clocks;
pub mod errors;
pub mod execute;
mod first_passes;
pub mod generating;
pub(crate) mod hand_overs;
pub mod inputs;
mod managing;
mod pool_serving;
mod retrieval;
pub mod serving;
mod stage_cards;
pub mod tasks;
mod texts;
pub mod threads;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tenantry_core::answers::Answers;
use tenantry_core::board::{Board, OpRef};
use tenantry_core::command::Finish;
use tenantry_core::event::{Answer, Done, Ended, Event, Failed, MemberFailure, RunOutcome};
use tenantry_core::ids::{InstanceId, LaneId, RequestId};
use tenantry_core::machine::{LaneUse, LookupCounts, Machine, MachineError, Next};
use tenantry_core::op::{BatchShape, Load, Member, OpKind, PetGroup};
use tenantry_core::policy::coordinated::{PoolPlan, PoolQuestion};
use tenantry_core::policy::fleet::{Allocated, Question};
use tenantry_core::timers::Timers;
use tenantry_core::{Command, Commands, Topology};
use tenantry_traces::{Duration, Time};

use self::cascading::KeptStates;
use self::generating::GeneratedTokens;
use self::retrieval::Retrieved;
pub use self::texts::Number;
use self::texts::ServedTexts;
pub(crate) use self::texts::{TextProbe, TextServing};

/// A batch as the ops on it see it.
#[derive(Debug)]
pub struct Batch {
    /// Who runs it.
    pub instance: InstanceId,
    /// Its sizes.
    pub shape: BatchShape,
    /// Its requests.
    pub members: Vec<Member>,
    /// What its copies bring in.
    pub loads: Vec<Load>,
    /// Its mini-batches, where tasks share a model.
    pub groups: Vec<PetGroup>,
    /// Members that failed in an op so far.
    pub failures: Mutex<Vec<MemberFailure>>,
    /// Whether its run of steps is to end at the next.
    pub interrupted: AtomicBool,
    /// What came of its run of steps.
    pub outcome: Mutex<Option<Outcome>>,
    /// What stands for the lower layers.
    pub(crate) retrieved: Mutex<Retrieved>,
    /// What a dispatcher decides by, where trained models answered.
    pub(crate) revealed: Mutex<Vec<Answer>>,
    /// What its solver is asked.
    pub question: Option<Question>,
    /// What that answered.
    pub answer: Mutex<Option<Allocated>>,
    /// The pool that it splits.
    pub pool: Option<PoolQuestion>,
    /// How that was split, as far as it is.
    pub plan: Mutex<Option<PoolPlan>>,
}

impl Batch {
    /// Of these requests, with nothing to be loaded, asked or planned, of which nothing has come yet.
    pub(crate) fn new(instance: InstanceId, shape: BatchShape, members: Vec<Member>) -> Batch {
        Batch {
            instance,
            shape,
            members,
            loads: Vec::new(),
            groups: Vec::new(),
            failures: Mutex::default(),
            interrupted: AtomicBool::new(false),
            outcome: Mutex::default(),
            retrieved: Mutex::default(),
            revealed: Mutex::default(),
            question: None,
            answer: Mutex::default(),
            pool: None,
            plan: Mutex::default(),
        }
    }
}

/// What came of a run of steps.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Steps made.
    pub steps: u32,
    /// When the first was over.
    pub first_step_ended: Time,
    /// When each [`STEPS_ALIKE`](tenantry_core::event::STEPS_ALIKE)th was.
    pub marks: Vec<Time>,
    /// Requests that have their last token, in the order in which they joined.
    pub ended: Vec<Ended>,
    /// Requests that failed, likewise.
    pub failed: Vec<Failed>,
}

/// An op handed to a worker.
#[derive(Clone, Debug)]
pub struct Job {
    /// Where it runs.
    pub lane: LaneId,
    /// Which op it is.
    pub op: OpRef,
    /// What is done.
    pub kind: OpKind,
    /// To which requests.
    pub batch: Arc<Batch>,
}

/// An op that ran.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// Where it ran.
    pub lane: LaneId,
    /// When it started.
    pub started: Time,
    /// When it ended.
    pub ended: Time,
}

/// Those who do the ops: each lane's in the order of their issue.
pub trait Workers {
    /// Time since the start of the run.
    fn now(&self) -> Time;

    /// Queues an op on its lane.
    ///
    /// # Errors
    /// When the lane's worker is lost.
    fn issue(&mut self, job: Job) -> Result<(), MachineError>;

    /// Waits for the next op to end, until `deadline`; without one, for as long as ops are in hand. `None` means that
    /// the time has come, or that nothing is in hand.
    ///
    /// # Errors
    /// When a worker is lost or the user asked to stop.
    fn wait(&mut self, deadline: Option<Time>) -> Result<Option<Ran>, MachineError>;

    /// A request has left the instance that computes on this lane: its memory is free at once, and what the lane knows
    /// of it can be let go after the ops issued before.
    ///
    /// # Errors
    /// When the lane's worker is lost.
    fn release(&mut self, lane: LaneId, request: RequestId) -> Result<(), MachineError> {
        let _ = (lane, request);
        Ok(())
    }

    /// A request that computes on this lane is in no more of its runs, after the ops issued before; what is cached of
    /// it stays.
    ///
    /// # Errors
    /// When the lane's worker is lost.
    fn park(&mut self, lane: LaneId, request: RequestId) -> Result<(), MachineError> {
        let _ = (lane, request);
        Ok(())
    }

    /// Nobody reads a shared prefix on the instance that computes on this lane any more: its memory is free at once.
    ///
    /// # Errors
    /// When the lane's worker is lost.
    fn release_prefix(&mut self, lane: LaneId, prefix: u32) -> Result<(), MachineError> {
        let _ = (lane, prefix);
        Ok(())
    }

    /// What was looked up so far; nothing where nothing is.
    fn lookups(&self) -> Option<LookupCounts> {
        None
    }
}

/// Where a dispatcher's answers come from.
#[derive(Debug)]
enum Answering {
    /// There is no dispatcher.
    None,
    /// As on the virtual machine.
    Drawn(Box<Answers>),
    /// The lanes' models give them.
    Texts(Arc<ServedTexts>),
}

impl Answering {
    /// Random weights have nothing to say: where there is a dispatcher, answers are drawn.
    fn drawn(answers: Option<Answers>) -> Answering {
        answers.map_or(Answering::None, |answers| Answering::Drawn(Box::new(answers)))
    }
}

/// A machine over real workers.
#[derive(Debug)]
pub struct RealMachine<W> {
    workers: W,
    topology: Topology,
    board: Board,
    /// By batch slot.
    batches: Vec<Option<Arc<Batch>>>,
    timers: Timers,
    busy: Vec<Duration>,
    /// Busy time before is not counted.
    count_from: Time,
    /// Lent to the server with the event.
    failures: Vec<MemberFailure>,
    /// Likewise: the batch's requests, and what came of its run.
    outcome: Option<(u32, Outcome)>,
    /// What a route's models answer, where there is one.
    answers: Answering,
    /// Likewise: answers of trained models.
    revealed: Vec<Answer>,
    /// Likewise: what the solver answered.
    answer: Option<Allocated>,
    /// Likewise: how a pool was split.
    plan: Option<PoolPlan>,
    /// Hidden states that a route's models keep of requests which may go on.
    kept: Option<Arc<KeptStates>>,
    /// Tokens that nobody asks for once their request has left.
    generated: Option<GeneratedTokens>,
}

impl<W: Workers> RealMachine<W> {
    /// A machine whose time starts with that of its workers.
    pub fn new(topology: &Topology, workers: W) -> RealMachine<W> {
        RealMachine {
            workers,
            board: Board::new(topology.lanes.len()),
            busy: vec![Duration::ZERO; topology.lanes.len()],
            count_from: Time::ZERO,
            topology: topology.clone(),
            batches: Vec::new(),
            timers: Timers::default(),
            failures: Vec::new(),
            outcome: None,
            answers: Answering::None,
            revealed: Vec::new(),
            answer: None,
            plan: None,
            kept: None,
            generated: None,
        }
    }

    /// Reveals these answers to a route's dispatcher, and judges by them, as the virtual machine does.
    pub fn with_answers(self, answers: Option<Answers>) -> RealMachine<W> {
        self.answering(Answering::drawn(answers))
    }

    /// Reveals what there is to say to a route's dispatcher, and judges by it.
    fn answering(self, answers: Answering) -> RealMachine<W> {
        RealMachine { answers, ..self }
    }

    /// Tells these who has left, where there are any.
    fn with_kept_states(self, kept: Option<Arc<KeptStates>>) -> RealMachine<W> {
        RealMachine { kept, ..self }
    }

    /// Lets go of the tokens of who has left, where there are any and nobody asks for them.
    fn forgetting(self, generated: Option<GeneratedTokens>) -> RealMachine<W> {
        RealMachine { generated, ..self }
    }

    /// The workers, when the run is over. Runs that are still under way end with the step that they make.
    pub fn into_workers(self) -> W {
        for batch in self.batches.iter().flatten() {
            batch.interrupted.store(true, Ordering::Relaxed);
        }
        self.workers
    }

    /// Issues what has become ready on a lane.
    fn issue(&mut self, lane: LaneId) -> Result<(), MachineError> {
        while let Some(op) = self.board.ready(lane) {
            self.board.issue(lane);
            let batch = self.batches[op.batch.slot as usize].clone().expect("a batch on the board is kept");
            self.workers.issue(Job {
                lane,
                op,
                kind: self.board.op(op).kind,
                batch,
            })?;
        }
        Ok(())
    }

    /// Books an op that ran. The server's event, if it asked to be told.
    fn ran(&mut self, ran: Ran) -> Result<Option<(Time, OpRef, tenantry_core::event::BatchTiming)>, MachineError> {
        let counted_from = ran.started.max(self.count_from);
        if ran.ended > counted_from {
            self.busy[ran.lane.index()] += ran.ended.since(counted_from);
        }
        let op = self.board.ran(ran.lane, ran.started, ran.ended);
        let pool = self.topology.instances[self.board.instance(op.batch).index()].pool;
        let mut woken = Vec::new();
        let noticed = self.board.notice(op, |lane| woken.push(lane));
        for lane in woken {
            self.issue(lane)?;
        }
        let slot = op.batch.slot as usize;
        if noticed.told.is_some() {
            let batch = self.batches[slot].as_ref().expect("a batch on the board is kept");
            let mut failures = batch.failures.lock().expect("no worker panics with the list");
            self.failures.clear();
            self.failures.append(&mut failures);
            self.failures.sort_by_key(|failure| failure.member);
            self.failures.dedup_by_key(|failure| failure.member);
            let mut outcome = batch.outcome.lock().expect("no worker panics with what came of a run");
            self.outcome = outcome.take().map(|outcome| (batch.shape.requests, outcome));
            match &mut self.answers {
                Answering::None => {}
                Answering::Drawn(answers) => answers.reveal(op.batch, pool.index()),
                Answering::Texts(_) => {
                    let mut revealed = batch.revealed.lock().expect("no worker panics with the answers");
                    self.revealed = std::mem::take(&mut *revealed);
                }
            }
            self.answer = batch.answer.lock().expect("no worker panics with the answer").take();
            self.plan = batch.plan.lock().expect("no worker panics with the plan").take();
        }
        if noticed.batch_ended {
            self.batches[slot] = None;
        }
        Ok(noticed.told.map(|timing| (self.workers.now(), op, timing)))
    }
}

impl<W: Workers> Machine for RealMachine<W> {
    fn next(&mut self, deadline: Option<Time>) -> Result<Next<'_>, MachineError> {
        loop {
            let until = self.timers.or_before(deadline);
            if let Some(ran) = self.workers.wait(until)? {
                if let Some((now, op, timing)) = self.ran(ran)? {
                    let done = Done {
                        batch: op.batch,
                        op: op.index,
                        timing,
                        failures: &self.failures,
                        run: self.outcome.as_ref().map(|(requests, outcome)| RunOutcome {
                            requests: *requests,
                            steps: outcome.steps,
                            first_step_ended: outcome.first_step_ended,
                            marks: &outcome.marks,
                            ended: &outcome.ended,
                            failed: &outcome.failed,
                        }),
                        answers: match &self.answers {
                            Answering::Drawn(answers) => answers.revealed(),
                            Answering::None | Answering::Texts(_) => &self.revealed,
                        },
                        allocation: self.answer.as_ref(),
                        plan: self.plan.as_ref(),
                    };
                    return Ok(Next::Event(now, Event::Done(done)));
                }
                continue;
            }
            let now = self.workers.now();
            if let Some(instance) = self.timers.go_off(now) {
                return Ok(Next::Event(now, Event::Timer(instance)));
            }
            match (until, deadline) {
                (_, Some(due)) if due <= now => return Ok(Next::Due(now)),
                (None, _) => return Ok(Next::Idle),
                _ => {}
            }
        }
    }

    fn perform(&mut self, now: Time, command: &Command, commands: &Commands) -> Result<(), MachineError> {
        match command {
            Command::Submit(submission) => {
                let ops = commands.ops(submission);
                if let Answering::Drawn(answers) = &mut self.answers {
                    answers.submitted(submission.batch, commands.members(submission));
                }
                let slot = submission.batch.slot as usize;
                if slot >= self.batches.len() {
                    self.batches.resize_with(slot + 1, || None);
                }
                let members = commands.members(submission).to_vec();
                self.batches[slot] = Some(Arc::new(Batch {
                    loads: commands.loads(submission).to_vec(),
                    groups: commands.groups(submission).to_vec(),
                    question: commands.question(submission).cloned(),
                    pool: commands.pool(submission).cloned(),
                    ..Batch::new(submission.instance, submission.shape, members)
                }));
                self.board.submit(now, submission.batch, submission.instance, submission.shape, ops);
                for op in ops {
                    self.issue(op.lane)?;
                }
            }
            Command::SetTimer { instance, at } => self.timers.set(*at, *instance),
            Command::Interrupt { batch, .. } => {
                // A batch that has ended has nothing to be interrupted.
                if let Some(batch) = &self.batches[batch.slot as usize] {
                    batch.interrupted.store(true, Ordering::Relaxed);
                }
            }
            Command::Release { instance, request } => {
                let lane = self.topology.instances[instance.index()].compute;
                self.workers.release(lane, *request)?;
            }
            Command::Park { instance, request } => {
                let lane = self.topology.instances[instance.index()].compute;
                self.workers.park(lane, *request)?;
            }
            Command::ReleasePrefix { instance, prefix } => {
                let lane = self.topology.instances[instance.index()].compute;
                self.workers.release_prefix(lane, *prefix)?;
            }
            Command::Finish(finish) => {
                if let Answering::Texts(texts) = &self.answers {
                    texts.left(finish.ticket);
                }
                if let Some(kept) = &self.kept {
                    kept.left(finish.ticket);
                }
                if let Some(generated) = &self.generated {
                    let mut generated = generated.lock().expect("no lane panics with the tokens");
                    generated.remove(&finish.ticket);
                }
            }
            Command::Managed(_) => {}
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
        self.workers.lookups()
    }

    fn is_right(&mut self, finish: &Finish) -> Option<bool> {
        match &self.answers {
            Answering::None => None,
            Answering::Drawn(answers) => answers.is_right(finish),
            Answering::Texts(texts) => texts.is_right(finish),
        }
    }

    fn lanes(&self, _: Time) -> Vec<LaneUse> {
        let lanes = self.topology.lanes.iter().zip(&self.busy);
        lanes
            .map(|(lane, &busy)| LaneUse {
                name: lane.name.clone(),
                busy,
            })
            .collect()
    }
}
