//! The time from one token of a request to its next.
//!
//! All that make tokens on an instance make one in each of its steps. Before the first step of a run comes whatever the instance did since its
//! run before: that gap is known of each run, and so is one that an eviction or a move makes. The further steps of a run follow one another
//! alike, but for contexts that grow by a token and for jitter: they are counted as their mean, however many they are, so that a machine that
//! leaps over them need not visit them. A run ends whenever somebody joins, leaves, or has a part of a prompt taken in.

use tenantry_traces::{Duration, Time};

use crate::durations::{AT_ONCE, Durations, Tally};
use crate::event::RunOutcome;

/// Gaps in a run of an instance.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RunGaps {
    /// Before the token of its first step, for those who made the one before on this instance.
    pub first: Duration,
    /// Between its further steps, in the mean; zero where there are none.
    pub later: Duration,
}

impl RunGaps {
    /// Of a run that made steps until `ended`, on an instance that had made a token at `last`.
    #[inline]
    pub fn new(outcome: &RunOutcome<'_>, last: Time, ended: Time) -> RunGaps {
        let later = match outcome.steps {
            ..=1 => Duration::ZERO,
            steps => Duration(between(outcome.first_step_ended, ended).0 / u64::from(steps - 1)),
        };
        RunGaps {
            first: between(last, outcome.first_step_ended),
            later,
        }
    }
}

/// From one token to another. A real machine's two readings of an instant may differ by their resolution.
#[inline]
pub(super) fn between(before: Time, after: Time) -> Duration {
    Duration(after.0.saturating_sub(before.0))
}

/// Of all requests together.
#[derive(Clone, Debug, Default)]
pub(super) struct Gaps {
    /// Not counted yet, [`AT_ONCE`] at most, and how many requests had the first of each run and how many times there were others.
    recent: Vec<(RunGaps, u64, u64)>,
    tally: Tally,
}

impl Gaps {
    /// A run is over in which so many went on, with so many further steps after the warm-up, and perhaps its first.
    #[inline]
    pub fn ran(&mut self, gaps: RunGaps, requests: u32, is_first_counted: bool, further_steps: u32) {
        if self.recent.len() == AT_ONCE {
            self.settle();
        }
        let (requests, further_steps) = (u64::from(requests), u64::from(further_steps));
        let of_first = if is_first_counted { requests } else { 0 };
        self.recent.push((gaps, of_first, requests * further_steps));
    }

    /// A request has made its first token on an instance in that run's first step.
    #[inline]
    pub fn joined(&mut self, further_steps: u32) {
        if let Some((_, _, times)) = self.recent.last_mut() {
            *times += u64::from(further_steps);
        }
    }

    /// So many tokens of that run were made after somebody's last.
    pub fn less(&mut self, tokens: u32) {
        if let Some((_, _, times)) = self.recent.last_mut() {
            *times -= u64::from(tokens);
        }
    }

    /// Of one request that came back.
    pub fn away(&mut self, gap: Duration) {
        self.tally.record(gap);
    }

    #[inline(never)]
    fn settle(&mut self) {
        let first = self.recent.iter().map(|&(gaps, requests, _)| (gaps.first, requests));
        self.tally.count(first.filter(|&(_, requests)| requests > 0));
        let later = self.recent.iter().map(|&(gaps, _, times)| (gaps.later, times));
        self.tally.count(later.filter(|&(_, times)| times > 0));
        self.recent.clear();
    }

    /// All of them.
    pub fn durations(&self) -> Durations {
        let mut all = self.clone();
        all.settle();
        all.tally.into_durations()
    }
}
