//! What the server wants done.

use tenantry_traces::{Duration, ManageRequest, Request, Time};

use crate::event::BatchTiming;
use crate::ids::{BatchId, InstanceId, RequestId};
use crate::op::{BatchShape, Load, Member, Op, OpKind, PetGroup, Submission};
use crate::policy::coordinated::PoolQuestion;
use crate::policy::fleet::Question;

/// Why a request was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RejectReason {
    /// Too many were waiting.
    QueueFull,
    /// Its tenant asks more often than it may.
    RateLimited,
    /// Longer than the model's positions or the pool's padding.
    TooLong,
    /// Of more tokens than a card's memory for keys and values holds.
    CacheTooSmall,
    /// Of a tenant that the system does not have.
    UnknownTenant,
    /// Of a task whose registration was refused.
    TaskRefused(TaskFault),
    /// Of a tenant whose model is not there yet.
    NotCreated,
    /// Of a tenant whose model was deleted.
    Deleted,
}

/// Why a task was refused when it was registered or loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskFault {
    /// No shared model has its tag.
    UnknownModel,
    /// Nobody implements its kind.
    UnknownKind,
    /// Its parameters were trained on a model of another shape.
    WrongShape,
    /// Its mask has not one element for each weight.
    WrongMask,
    /// Its file is no task's, or cannot be read.
    Unreadable,
    /// There is a task of this name already, which stays.
    RegisteredTwice,
    /// No memory was left for it.
    OutOfMemory,
}

impl TaskFault {
    /// As results call it.
    pub fn name(self) -> &'static str {
        match self {
            TaskFault::UnknownModel => "task_of_unknown_model",
            TaskFault::UnknownKind => "task_of_unknown_kind",
            TaskFault::WrongShape => "task_of_wrong_shape",
            TaskFault::WrongMask => "task_with_wrong_mask",
            TaskFault::Unreadable => "task_of_unreadable_file",
            TaskFault::RegisteredTwice => "task_registered_twice",
            TaskFault::OutOfMemory => "task_out_of_memory",
        }
    }
}

impl RejectReason {
    /// Whether it would be served if there were more cards: who comes in vain for the queue's sake needs them like
    /// those who are let in, and whose rate is limited does not.
    pub fn asks_for_cards(self) -> bool {
        self == RejectReason::QueueFull
    }

    /// As results call it.
    pub fn name(self) -> &'static str {
        match self {
            RejectReason::QueueFull => "queue_full",
            RejectReason::RateLimited => "rate_limited",
            RejectReason::TooLong => "too_long",
            RejectReason::CacheTooSmall => "cache_too_small",
            RejectReason::UnknownTenant => "unknown_tenant",
            RejectReason::TaskRefused(fault) => fault.name(),
            RejectReason::NotCreated => "not_created",
            RejectReason::Deleted => "deleted",
        }
    }
}

/// Why a request that was let in got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureReason {
    /// The tenant's parameters could not be brought in.
    LoadFailed,
    /// The device had no memory left for the op.
    OutOfMemory,
    /// Its representations could not be looked up.
    LookupFailed,
    /// The op itself failed.
    ComputeFailed,
    /// The tenant's model was deleted while it waited.
    Deleted,
}

impl FailureReason {
    /// As results call it.
    pub fn name(self) -> &'static str {
        match self {
            FailureReason::LoadFailed => "load_failed",
            FailureReason::OutOfMemory => "out_of_memory",
            FailureReason::LookupFailed => "lookup_failed",
            FailureReason::ComputeFailed => "compute_failed",
            FailureReason::Deleted => "deleted",
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Answered.
    Served,
    /// Turned away.
    Rejected(RejectReason),
    /// Let in, and not answered.
    Failed(FailureReason),
    /// Its client gave up.
    Cancelled,
}

/// Where a request's time went. For a request that ran, the parts add up to its latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// From arrival to the submission of its batch.
    pub queue: Duration,
    /// From submission until its compute lane was free.
    pub lane: Duration,
    /// The lane was free, and the batch's parameters or inputs were not there.
    pub stall: Duration,
    /// Its batch's ops ran on the compute lane.
    pub compute: Duration,
    /// From the end of the last op until the server had handled it.
    pub tell: Duration,
}

/// A request leaves the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finish {
    /// The server's handle, stale from now on; absent for a request that was turned away at the door.
    pub request: Option<RequestId>,
    /// Its position in the workload.
    pub ticket: u64,
    /// Whose it was.
    pub tenant: u32,
    /// Its service class.
    pub class: u16,
    /// When it came.
    pub arrival: Time,
    /// Its length.
    pub input_tokens: u32,
    /// Requests in its batch; 0 if it never ran.
    pub batch_requests: u32,
    /// Tokens made; 0 for encoders.
    pub output_tokens: u32,
    /// When the first of them was made.
    pub first_token: Option<Time>,
    /// The longest time from one of them to the next, as far as it is known of each: see
    /// [`crate::ledger::RunRecord::token_gap`]. Zero where there were not two.
    pub longest_gap: Duration,
    /// How it ended.
    pub verdict: Verdict,
    /// Where its time went.
    pub waits: Waits,
    /// Which of a route's models answered it; nothing without a route, and where it was not answered.
    pub returned: Option<Returned>,
}

/// Which of a route's models answered a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Returned {
    /// The last.
    pub stage: u8,
    /// All of them, a bit for each stage.
    pub asked: u32,
}

impl Returned {
    /// The stages that were asked, in their order.
    pub fn asked_stages(self) -> impl Iterator<Item = usize> {
        (0..u32::BITS as usize).filter(move |stage| self.asked & 1 << stage != 0)
    }
}

impl Waits {
    /// Of a request that came at `arrival`, whose batch was submitted at `submitted` and was heard of at `heard`.
    pub(crate) fn of_batch(arrival: Time, submitted: Time, timing: BatchTiming, heard: Time) -> Waits {
        Waits {
            queue: submitted.since(arrival),
            lane: timing.lane,
            stall: timing.stall,
            compute: timing.busy,
            tell: heard.since(timing.ended),
        }
    }

    /// All parts together.
    pub fn total(&self) -> Duration {
        self.queue + self.lane + self.stall + self.compute + self.tell
    }

    /// Of a request that never ran.
    pub(crate) fn in_queue(queue: Duration) -> Waits {
        Waits {
            queue,
            ..Waits::default()
        }
    }
}

impl Verdict {
    /// How a request ended that ran: who gave up meanwhile hears of no failure.
    pub(crate) fn of_run(cancelled: bool, failure: Option<FailureReason>) -> Verdict {
        match failure {
            _ if cancelled => Verdict::Cancelled,
            Some(reason) => Verdict::Failed(reason),
            None => Verdict::Served,
        }
    }
}

impl Finish {
    /// From arrival to the first token, or until it leaves now without one.
    #[inline]
    pub fn to_first_token(&self, now: Time) -> Duration {
        self.first_token.unwrap_or(now).since(self.arrival)
    }

    /// From one token to the next in the mean, up to its end now; nothing where there were not two.
    #[inline]
    pub fn per_token(&self, now: Time) -> Option<Duration> {
        let later_tokens = u64::from(self.output_tokens).checked_sub(1).filter(|&later| later > 0)?;
        Some(Duration(now.since(self.first_token?).0 / later_tokens))
    }

    /// The same of an answer that is whole; nothing of it where there are no two tokens.
    #[inline]
    pub fn pace(&self, now: Time) -> Duration {
        match self.verdict {
            Verdict::Served => self.per_token(now).unwrap_or(Duration::ZERO),
            _ => Duration::ZERO,
        }
    }

    /// Of a request that is turned away at the door.
    pub fn rejected(request: &Request, reason: RejectReason) -> Finish {
        Finish::unrun(request, Verdict::Rejected(reason))
    }

    /// Of a request as it came, without what running it would add.
    pub(crate) fn unrun(request: &Request, verdict: Verdict) -> Finish {
        Finish {
            request: None,
            ticket: request.ticket,
            tenant: request.tenant,
            class: request.class,
            arrival: request.arrival,
            input_tokens: request.input_tokens,
            batch_requests: 0,
            output_tokens: 0,
            first_token: None,
            longest_gap: Duration::ZERO,
            verdict,
            waits: Waits::default(),
            returned: None,
        }
    }
}

/// Why a management request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// The system has no tenant or domain of that number, or nothing of its kind.
    Unknown,
    /// It is there already, or on its way.
    Exists,
    /// It is not there, or was deleted meanwhile.
    Absent,
    /// What was deleted is still used by requests that run.
    InUse,
}

impl Refusal {
    /// As results call it.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Unknown => "unknown",
            Refusal::Exists => "exists",
            Refusal::Absent => "absent",
            Refusal::InUse => "in_use",
        }
    }
}

/// What came of a management request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManageOutcome {
    /// It is as it was to be.
    Made,
    /// Nothing was done.
    Refused(Refusal),
    /// It could not be done; all is as before.
    Failed(FailureReason),
}

/// A management request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Managed {
    /// Which.
    pub request: ManageRequest,
    /// What came of it.
    pub outcome: ManageOutcome,
}

/// One wish of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Run a batch.
    Submit(Submission),
    /// Tell me when this instant has come. The server may have changed its mind by then: it asks its policies again.
    SetTimer {
        /// Whose batch policy waits.
        instance: InstanceId,
        /// The instant.
        at: Time,
    },
    /// This request has left.
    Finish(Finish),
    /// This management request is answered.
    Managed(Managed),
    /// Let the batch's run end at its next step.
    Interrupt {
        /// Who runs it.
        instance: InstanceId,
        /// Which.
        batch: BatchId,
    },
    /// A request is in no run of an instance any more, but what is cached of it stays until it is released.
    Park {
        /// Where it ran.
        instance: InstanceId,
        /// The server's handle.
        request: RequestId,
    },
    /// A request leaves an instance: it is in no run any more, and what is cached of it is of no use.
    Release {
        /// Where it ran.
        instance: InstanceId,
        /// The server's handle.
        request: RequestId,
    },
    /// Nobody reads a shared prefix any more, and its pages are wanted.
    ReleasePrefix {
        /// Where it lies.
        instance: InstanceId,
        /// Which of the instance's.
        prefix: u32,
    },
}

/// Where a submission begins in [`Commands`].
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// Its first member.
    pub(crate) members: usize,
    /// Its first load.
    pub(crate) loads: usize,
    ops: usize,
    /// Its first mini-batch.
    pub(crate) groups: usize,
}

/// The commands of one event, with what they refer to. One buffer is used for the whole run, so that nothing is
/// allocated for each event.
#[derive(Debug, Default)]
pub struct Commands {
    /// In order.
    pub list: Vec<Command>,
    /// Referred to by `Submission::members`.
    pub members: Vec<Member>,
    /// Referred to by `Submission::loads`.
    pub loads: Vec<Load>,
    /// Referred to by `Submission::ops`.
    pub ops: Vec<Op>,
    /// Referred to by `Submission::groups`.
    pub groups: Vec<PetGroup>,
    /// Referred to by [`crate::op::Solve::question`].
    pub questions: Vec<Question>,
    /// Referred to by [`crate::op::PlanPool::pool`].
    pub pools: Vec<PoolQuestion>,
}

impl Commands {
    /// Forgets all and keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.list.clear();
        self.members.clear();
        self.loads.clear();
        self.ops.clear();
        self.groups.clear();
        if !self.questions.is_empty() || !self.pools.is_empty() {
            self.clear_asked();
        }
    }

    /// What has memory of its own is dropped one by one, and mostly there is none.
    #[cold]
    fn clear_asked(&mut self) {
        self.questions.clear();
        self.pools.clear();
    }

    /// Sets an instance's timer, unless one is set that goes off as early.
    #[inline]
    pub fn wake(&mut self, instance: InstanceId, at: Time, set: &mut Option<Time>) {
        if set.is_none_or(|set| at < set) {
            *set = Some(at);
            self.list.push(Command::SetTimer { instance, at });
        }
    }

    /// Where what is pushed from now on begins: see [`Commands::submit`].
    #[inline]
    pub fn mark(&self) -> Mark {
        Mark {
            members: self.members.len(),
            loads: self.loads.len(),
            ops: self.ops.len(),
            groups: self.groups.len(),
        }
    }

    /// Submits a batch with the members, loads, mini-batches and ops that were pushed since `mark`.
    #[inline]
    pub fn submit(&mut self, batch: BatchId, instance: InstanceId, shape: BatchShape, mark: Mark) {
        self.list.push(Command::Submit(Submission {
            batch,
            instance,
            shape,
            members: mark.members..self.members.len(),
            loads: mark.loads..self.loads.len(),
            groups: mark.groups..self.groups.len(),
            ops: mark.ops..self.ops.len(),
        }));
    }

    /// A submission's requests.
    #[inline]
    pub fn members(&self, submission: &Submission) -> &[Member] {
        &self.members[submission.members.clone()]
    }

    /// What a submission copies in.
    #[inline]
    pub fn loads(&self, submission: &Submission) -> &[Load] {
        &self.loads[submission.loads.clone()]
    }

    /// A submission's ops.
    #[inline]
    pub fn ops(&self, submission: &Submission) -> &[Op] {
        &self.ops[submission.ops.clone()]
    }

    /// A submission's mini-batches.
    #[inline]
    pub fn groups(&self, submission: &Submission) -> &[PetGroup] {
        &self.groups[submission.groups.clone()]
    }

    /// What a submission's solver is asked, where it has one.
    pub fn question(&self, submission: &Submission) -> Option<&Question> {
        self.ops(submission).iter().find_map(|op| match op.kind {
            OpKind::Solve(solve) => Some(&self.questions[solve.question as usize]),
            _ => None,
        })
    }

    /// The pool that a submission splits into batches, where it does.
    pub fn pool(&self, submission: &Submission) -> Option<&PoolQuestion> {
        self.ops(submission).iter().find_map(|op| match op.kind {
            OpKind::PlanPool(plan) => Some(&self.pools[plan.pool as usize]),
            _ => None,
        })
    }
}
