//! The time from one token of a request to its next.
//!
//! All that make tokens on an instance make one in each of its steps. Before the first step of a run comes whatever the instance did since its
//! run before: that gap is known of each run, and so is one that an eviction or a move makes. The further steps of a run follow one another
//! alike, but for contexts that grow by a token and for jitter: they are counted as their mean, however many they are, so that a machine that
//! leaps over them need not visit them. A run ends whenever somebody joins, leaves, or has a part of a prompt taken in.

use tenantry_traces::{Duration, Time};

use crate::durations::{Durations, InRuns};
use crate::event::RunOutcome;

/// Gaps in one run of an instance.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunGaps {
    /// Between its further steps, in the mean; zero where there are none.
    pub later: Duration,
    /// How many each request has of these that makes tokens to its end.
    later_times: u32,
    pub first_step_ended: Time,
    pub ended: Time,
}

impl RunGaps {
    /// Of a run whose last step ended then.
    pub fn new(outcome: &RunOutcome<'_>, ended: Time) -> RunGaps {
        let later_times = outcome.steps.saturating_sub(1);
        // Two clocks' reading of one instant may differ by their resolution.
        let later_ns = ended.0.saturating_sub(outcome.first_step_ended.0) / u64::from(later_times.max(1));
        RunGaps {
            later: Duration(if later_times == 0 { 0 } else { later_ns }),
            later_times,
            first_step_ended: outcome.first_step_ended,
            ended,
        }
    }

    /// Before its first token, for who made one at `last`.
    pub fn first(&self, last: Time) -> Duration {
        Duration(self.first_step_ended.0.saturating_sub(last.0))
    }
}

/// Of all requests together.
#[derive(Debug, Default)]
pub(super) struct Gaps(InRuns<1>);

impl Gaps {
    /// So many requests had this one.
    pub fn add(&mut self, gap: Duration, requests: u32) {
        if requests > 0 {
            self.0.record_times([gap], requests.into());
        }
    }

    /// So many requests made tokens in all of a run's steps, but for `surplus` tokens that were made after some had their last.
    pub fn add_later(&mut self, run: &RunGaps, requests: u32, surplus: u32) {
        let times = u64::from(requests) * u64::from(run.later_times) - u64::from(surplus);
        if times > 0 {
            self.0.record_times([run.later], times);
        }
    }

    /// Forgets those so far.
    pub fn forget(&mut self) {
        self.0 = InRuns::default();
    }

    pub fn durations(&self) -> Durations {
        let [durations] = self.0.clone().into_durations();
        durations
    }
}
