//! What a run is remembered by.

use tenantry_traces::{Change, Duration, Time};

use super::series::Series;
use crate::command::{FailureReason, ManageOutcome, Managed, Refusal, RejectReason};
use crate::durations::Durations;
use crate::in_time::InTime;
use crate::machine::{LaneUse, LookupCounts};
use crate::server::cascade::StageCounts;
use crate::server::generation::GenerationCounts;
use crate::server::runtimes::FleetUse;
use crate::server::tasks::TaskCounts;
use crate::server::{MemoryUse, ScalingUse, SwapCounts};

/// Requests by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Arrived.
    pub offered: u64,
    /// Answered.
    pub served: u64,
    /// Turned away.
    pub rejected: u64,
    /// Let in, not answered.
    pub failed: u64,
    /// Given up by their clients.
    pub cancelled: u64,
    /// Still inside at the end.
    pub unfinished: u64,
}

/// Management requests by what came of them, over the whole run.
#[derive(Clone, Debug, Default)]
pub struct ManagementRecord {
    /// Made.
    pub offered: u64,
    /// Done, by what they are called.
    pub made: ByReason<&'static str>,
    /// Refused, by reason.
    pub refused: ByReason<Refusal>,
    /// Failed, by reason.
    pub failed: ByReason<FailureReason>,
    /// Not answered at the end.
    pub unfinished: u64,
    /// From a request to its being done.
    pub latency: Durations,
}

impl ManagementRecord {
    pub(super) fn answered(&self) -> u64 {
        let refused: u64 = self.refused.values().sum();
        self.made.values().sum::<u64>() + refused + self.failed.values().sum::<u64>()
    }

    #[inline(never)]
    pub(super) fn answer(&mut self, now: Time, managed: &Managed) {
        let change: Change = managed.request.change;
        match managed.outcome {
            ManageOutcome::Made => {
                *self.made.entry(change.name()).or_default() += 1;
                self.latency.record(now.since(managed.request.at));
            }
            ManageOutcome::Refused(reason) => *self.refused.entry(reason).or_default() += 1,
            ManageOutcome::Failed(reason) => *self.failed.entry(reason).or_default() += 1,
        }
    }
}

/// Requests turned away or failed, by reason.
pub type ByReason<R> = std::collections::BTreeMap<R, u64>;

/// What a run is remembered by. Figures cover requests that arrived after the warm-up; `counts` and `series` cover all.
#[derive(Clone, Debug, Default)]
pub struct RunRecord {
    /// All requests.
    pub counts: Counts,
    /// Turned away, by reason.
    pub rejected: ByReason<RejectReason>,
    /// Failed, by reason.
    pub failed: ByReason<FailureReason>,
    /// When the last request left: see [`RunEnd::at`](crate::run::RunEnd::at).
    pub end: Time,
    /// From the end of the warm-up until then.
    pub duration: Duration,
    /// Whether the user stopped it.
    pub interrupted: bool,
    /// Answered after the warm-up.
    pub served: u64,
    /// Of those that arrived after the warm-up: turned away or failed.
    pub refused: u64,
    /// Of all of them: in time for the target, or late.
    pub in_time: InTime,
    /// From arrival to answer.
    pub latency: Durations,
    /// Parts of the latency: see [`crate::command::Waits`].
    pub queue: Durations,
    /// Other batches on the compute lane.
    pub lane: Durations,
    /// The compute lane waited for parameters.
    pub stall: Durations,
    /// The batch computed.
    pub compute: Durations,
    /// From the end of the batch until the server handled it.
    pub tell: Durations,
    /// From arrival to the first token; empty for encoders.
    pub first_token: Durations,
    /// Of each request with several tokens: its mean time from one to the next, up to its end.
    pub per_token: Durations,
    /// From each token that was made after the warm-up, a request's first aside, back to the one before it. Where steps
    /// of a run follow each other with nothing between them, of each [`STEPS_ALIKE`](crate::event::STEPS_ALIKE) the
    /// mean is counted.
    pub token_gap: Durations,
    /// Of each request with several tokens: the longest of these.
    pub longest_gap: Durations,
    /// Tokens that were made after the warm-up, of the requests answered after it: an answer's as if evenly from its
    /// first one to its end.
    pub output_tokens: u64,
    /// Absent for encoders.
    pub generation: Option<GenerationCounts>,
    /// Of the whole run, but for pools and mini-batches; absent where tenants are no tasks.
    pub tasks: Option<TaskCounts>,
    /// Batches; steps of a decoder.
    pub batches: u64,
    /// Requests in them.
    pub batch_requests: u64,
    /// Tokens of those requests.
    pub input_tokens: u64,
    /// Tokens computed, padding included.
    pub padded_tokens: u64,
    /// Requests inside, averaged over the whole run.
    pub in_flight_mean: f64,
    /// Over the whole run.
    pub series: Series,
    /// Busy time of each lane.
    pub lanes: Vec<LaneUse>,
    /// On all cards.
    pub memory: MemoryUse,
    /// Management requests.
    pub management: ManagementRecord,
    /// Absent where nothing is swapped.
    pub swaps: Option<SwapCounts>,
    /// Absent where nothing is looked up.
    pub lookups: Option<LookupCounts>,
    /// Of the whole run; absent where there are no runtimes.
    pub fleet: Option<FleetUse>,
    /// Of the whole run; absent where no cards of stages or of decoders come and go.
    pub scaling: Option<ScalingUse>,
    /// Of a route between models; absent without one.
    pub cascade: Option<CascadeRecord>,
}

/// What a route between models came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CascadeRecord {
    /// What each stage did.
    pub stages: Vec<StageCounts>,
    /// Requests that each stage returned, of those that arrived after the warm-up.
    pub returned: Vec<u64>,
    /// Of all of those, whichever stage returned them: who was asked at each stage.
    pub asked: Vec<u64>,
    /// Of those that each returned: judged.
    pub judged: Vec<u64>,
    /// Of these: right.
    pub right: Vec<u64>,
}

impl CascadeRecord {
    pub(super) fn resize(&mut self, stages: usize) {
        for counts in [&mut self.returned, &mut self.asked, &mut self.judged, &mut self.right] {
            counts.resize(stages, 0);
        }
    }
}
