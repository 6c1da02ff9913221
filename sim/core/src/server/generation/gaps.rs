//! The time from one token of a request to its next.
//!
//! All that make tokens on an instance make one in each of its steps. Before the first step of a run comes whatever the instance did since its
//! run before: that gap is known of each run, and so is one that an eviction or a move makes. The further steps of a run follow one another
//! alike, but for contexts that grow by a token and for jitter: of each [`STEPS_ALIKE`](crate::event::STEPS_ALIKE) the mean is counted, so
//! that a machine that leaps over them need not visit them. A run ends whenever somebody joins, leaves, or has a part of a prompt taken in.

use tenantry_traces::{Duration, Time};

use crate::durations::{AT_ONCE, Durations, Tally};
use crate::event::{Further, RunOutcome};

/// From one token to another. A real machine's two readings of an instant may differ by their resolution.
#[inline]
pub(super) fn between(before: Time, after: Time) -> Duration {
    Duration(after.0.saturating_sub(before.0))
}

/// The longest between two of a run's steps, from its first one on up to so many.
#[inline]
pub(super) fn longest_further(outcome: &RunOutcome<'_>, ended: Time, steps: u32) -> Duration {
    let further = outcome.further(ended).take_while(|further| further.after < steps);
    further.map(|further| further.each()).max().unwrap_or(Duration::ZERO)
}

/// Of all requests together.
#[derive(Clone, Debug, Default)]
pub(super) struct Gaps {
    /// Not counted yet, [`AT_ONCE`] at most, and how many times.
    recent: Vec<(Duration, u64)>,
    tally: Tally,
}

impl Gaps {
    /// So many requests waited so long for a token.
    #[inline]
    pub fn count(&mut self, gap: Duration, times: u64) {
        if times == 0 {
            return;
        }
        if self.recent.len() == AT_ONCE {
            self.settle();
        }
        self.recent.push((gap, times));
    }

    /// So many requests made tokens in further steps of a run that count from `from` on, but for the tokens after each one's last, which
    /// some made that had theirs in these steps of the run.
    pub fn further(&mut self, further: Further, from: Time, requests: u32, last: impl Iterator<Item = u32>) {
        let counted = further.since(from);
        let end = further.after + further.steps;
        let surplus = last.map(|last| u64::from(end.saturating_sub(last).min(counted)));
        let made = u64::from(requests) * u64::from(counted) - surplus.sum::<u64>();
        self.count(further.each(), made);
    }

    /// Of one request that came back.
    pub fn away(&mut self, gap: Duration) {
        self.tally.record(gap);
    }

    #[inline(never)]
    fn settle(&mut self) {
        self.tally.count(self.recent.drain(..));
    }

    /// All of them.
    pub fn durations(&self) -> Durations {
        let mut all = self.clone();
        all.settle();
        all.tally.into_durations()
    }
}
