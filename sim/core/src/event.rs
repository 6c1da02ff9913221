//! What the server hears.

use tenantry_traces::{Duration, ManageRequest, Request, Ticket, Time};

use crate::command::FailureReason;
use crate::ids::{BatchId, InstanceId, RequestId};
use crate::policy::coordinated::PoolPlan;
use crate::policy::fleet::Allocated;

/// A member of a batch that failed while the others went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberFailure {
    /// Index among the submission's members.
    pub member: u32,
    /// Why.
    pub reason: FailureReason,
}

/// When a batch's ops ran on its compute lane. `lane + stall + busy` is the time from submission to the end of the last
/// op.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchTiming {
    /// Other batches' ops were on the lane.
    pub lane: Duration,
    /// The lane was free and waited for this batch's other lanes.
    pub stall: Duration,
    /// This batch's ops ran.
    pub busy: Duration,
    /// End of the last op.
    pub ended: Time,
}

/// The end of a told op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done<'a> {
    /// Whose op.
    pub batch: BatchId,
    /// Its index in the submission.
    pub op: u32,
    /// How the batch fared until then.
    pub timing: BatchTiming,
    /// Members that failed in any op so far, those of a run aside; borrowed from the machine.
    pub failures: &'a [MemberFailure],
    /// What came of a decoder's run; nothing for other ops.
    pub run: Option<RunOutcome<'a>>,
    /// What the solver answered; nothing for other ops.
    pub allocation: Option<&'a Allocated>,
    /// The batches of a pool that was to be split; nothing for other ops.
    pub plan: Option<&'a PoolPlan>,
    /// What the model makes of each member, where a route asks for it; borrowed from the machine.
    pub answers: &'a [Answer],
}

impl<'a> Done<'a> {
    /// Its failures, to be asked for member by member.
    #[inline]
    pub fn failures(&self) -> Failures<'a> {
        Failures(self.failures)
    }
}

/// The failures of a batch that members have not been asked of.
#[derive(Clone, Copy, Debug)]
pub struct Failures<'a>(&'a [MemberFailure]);

impl Failures<'_> {
    /// Why a member failed, if it did. Members are asked for in order.
    #[inline]
    pub fn of(&mut self, member: usize) -> Option<FailureReason> {
        let (first, others) = self.0.split_first()?;
        (first.member as usize == member).then(|| {
            self.0 = others;
            first.reason
        })
    }
}

/// What a model makes of a request, as far as a dispatcher sees it. Whether the answer is right is nobody's to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The calibrated confidence (Tabi, Eq. 3), in parts of a million.
    pub confidence_ppm: u32,
    /// Tokens that a next model would have to read: fewer than this one did, where words are pruned (Eq. 5).
    pub next_tokens: u32,
}

/// Of a run's steps so many at most are taken to be as long as each other.
pub const STEPS_ALIKE: u32 = 32;

/// What came of a decoder's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunOutcome<'a> {
    /// Its requests.
    pub requests: u32,
    /// Steps made.
    pub steps: u32,
    /// When the first was over.
    pub first_step_ended: Time,
    /// When each [`STEPS_ALIKE`]th was over, as far as others followed; borrowed from the machine.
    pub marks: &'a [Time],
    /// Requests that have their last token, in the order in which they joined; borrowed from the machine.
    pub ended: &'a [Ended],
    /// Requests that failed while the others went on, likewise.
    pub failed: &'a [Failed],
}

impl RunOutcome<'_> {
    /// Its steps after the first, where the last was over at `ended`: from mark to mark.
    #[inline]
    pub fn further(&self, ended: Time) -> impl Iterator<Item = Further> {
        let RunOutcome { steps, marks, .. } = *self;
        let (mut passed, mut after, mut from) = (0, 1, self.first_step_ended);
        std::iter::from_fn(move || {
            if after >= steps {
                return None;
            }
            passed += 1;
            let (until, end) = match marks.get(passed - 1) {
                Some(&mark) if passed as u32 * STEPS_ALIKE < steps => (mark, passed as u32 * STEPS_ALIKE),
                _ => (ended, steps),
            };
            let further = Further {
                after,
                steps: end - after,
                from,
                until,
            };
            (after, from) = (end, until);
            Some(further)
        })
    }

    /// Steps after the first that were over at a time or later, where the last was at `ended`.
    #[inline]
    pub fn further_steps_since(&self, from: Time, ended: Time) -> u32 {
        if self.first_step_ended >= from {
            return self.steps.saturating_sub(1);
        }
        self.further(ended).map(|further| further.since(from)).sum()
    }
}

/// Steps of a run that followed one another, each as long as another, as far as a run says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Further {
    /// Steps of the run before them.
    pub after: u32,
    /// How many they are.
    pub steps: u32,
    from: Time,
    until: Time,
}

impl Further {
    /// Of each. A real machine's two readings of an instant may differ by their resolution.
    #[inline]
    pub fn each(&self) -> Duration {
        Duration(self.until.0.saturating_sub(self.from.0) / u64::from(self.steps))
    }

    /// How many were over at a time or later.
    #[inline]
    pub fn since(&self, from: Time) -> u32 {
        if self.from >= from {
            return self.steps;
        }
        if self.until < from {
            return 0;
        }
        let [passed, all] = [from, self.until].map(|at| u128::from(at.since(self.from).0));
        let earlier = (passed * u128::from(self.steps)).div_ceil(all).saturating_sub(1);
        self.steps - earlier as u32
    }
}

/// A request of a run that has its last token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The server's handle.
    pub request: RequestId,
    /// Step of the run that made it, from 1: earlier than the run's last where all wait for the longest.
    pub step: u32,
}

/// A request that failed in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The server's handle.
    pub request: RequestId,
    /// Why.
    pub reason: FailureReason,
}

/// What the server hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A told op has ended.
    Done(Done<'a>),
    /// An instant that a policy asked for has come.
    Timer(InstanceId),
    /// A request has come.
    Arrived(Request),
    /// A request's client has given up.
    Cancelled(Ticket),
    /// A tenant's model or a domain's table is to change.
    Manage(ManageRequest),
}
