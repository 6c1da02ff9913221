//! What the server wants done.

use tenantry_traces::{Duration, Time};

use crate::ids::{BatchId, InstanceId, RequestId};
use crate::op::{Load, Member, Op, Submission};

/// Why a request was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RejectReason {
    /// Too many were waiting.
    QueueFull,
    /// Longer than the model's positions or the pool's padding.
    TooLong,
    /// Of a tenant that the system does not have.
    UnknownTenant,
}

impl RejectReason {
    /// As results call it.
    pub fn name(self) -> &'static str {
        match self {
            RejectReason::QueueFull => "queue_full",
            RejectReason::TooLong => "too_long",
            RejectReason::UnknownTenant => "unknown_tenant",
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
}

impl FailureReason {
    /// As results call it.
    pub fn name(self) -> &'static str {
        match self {
            FailureReason::LoadFailed => "load_failed",
            FailureReason::OutOfMemory => "out_of_memory",
            FailureReason::LookupFailed => "lookup_failed",
            FailureReason::ComputeFailed => "compute_failed",
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
    /// How it ended.
    pub verdict: Verdict,
    /// Where its time went.
    pub waits: Waits,
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
    /// Let the batch's run end at its next step.
    Interrupt {
        /// Who runs it.
        instance: InstanceId,
        /// Which.
        batch: BatchId,
    },
    /// A request that leaves an instance without having ended: what is cached of it is of no use any more.
    Release {
        /// Where it ran.
        instance: InstanceId,
        /// The server's handle.
        request: RequestId,
    },
}

/// The commands of one event, with what they refer to. One buffer is used for the whole run, so that nothing is allocated for
/// each event.
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
}

impl Commands {
    /// Forgets all and keeps the memory.
    pub fn clear(&mut self) {
        self.list.clear();
        self.members.clear();
        self.loads.clear();
        self.ops.clear();
    }

    /// A submission's requests.
    pub fn members(&self, submission: &Submission) -> &[Member] {
        &self.members[submission.members.clone()]
    }

    /// What a submission copies in.
    pub fn loads(&self, submission: &Submission) -> &[Load] {
        &self.loads[submission.loads.clone()]
    }

    /// A submission's ops.
    pub fn ops(&self, submission: &Submission) -> &[Op] {
        &self.ops[submission.ops.clone()]
    }
}
