//! The time from one token of a request to its next.
//!
//! All that make tokens on an instance make one in each of its steps. Before the first step of a run comes whatever the
//! instance did since its run before: that gap is known of each run, and so is one that an eviction or a move makes.
//! The further steps of a run follow one another alike, but for contexts that grow by a token and for jitter: of each
//! [`STEPS_ALIKE`](crate::event::STEPS_ALIKE) the mean is counted, so that a machine that leaps over them need not
//! visit them. A run ends whenever somebody joins, leaves, or has a part of a prompt taken in.

use tenantry_traces::{Duration, Time};

use crate::durations::{AT_ONCE, Durations, Tally};
use crate::event::RunOutcome;

/// From one token to another. A real machine's two readings of an instant may differ by their resolution.
#[inline]
pub(super) fn between(before: Time, after: Time) -> Duration {
    Duration(after.0.saturating_sub(before.0))
}

/// Steps of a run that are as long as each other, as far as is known.
#[derive(Clone, Copy, Debug)]
struct Alike {
    gap: Duration,
    /// Steps of the run before them, and up to the last of them.
    after: u32,
    end: u32,
    /// Of them, after the warm-up.
    counted: u32,
}

/// Between a run's steps, from its first one on.
#[derive(Clone, Debug, Default)]
pub(super) struct RunGaps(Vec<Alike>);

impl RunGaps {
    /// Those of a run that made steps until `ended`, of which those count that are over at `from` or later.
    #[inline]
    pub fn of(&mut self, outcome: &RunOutcome<'_>, ended: Time, from: Time) {
        self.0.clear();
        let alike = outcome.further(ended).map(|further| Alike {
            gap: further.each(),
            after: further.after,
            end: further.after + further.steps,
            counted: further.since(from),
        });
        self.0.extend(alike);
    }

    /// The longest, up to so many steps of the run.
    #[inline]
    pub fn longest(&self, steps: u32) -> Duration {
        let made = self.0.iter().take_while(|alike| alike.after < steps);
        made.map(|alike| alike.gap).max().unwrap_or(Duration::ZERO)
    }
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

    /// So many requests made tokens in further steps of a run, but for those after each one's last, which `early` ones
    /// had in these steps of it.
    #[inline]
    pub fn further(&mut self, gaps: &RunGaps, requests: u32, early: impl Iterator<Item = u32> + Clone) {
        for alike in &gaps.0 {
            let after_last = |last: u32| u64::from(alike.end.saturating_sub(last).min(alike.counted));
            let surplus: u64 = early.clone().map(after_last).sum();
            self.count(alike.gap, u64::from(requests) * u64::from(alike.counted) - surplus);
        }
    }

    #[inline(never)]
    fn settle(&mut self) {
        self.tally.count(self.recent.iter().copied());
        self.recent.clear();
    }

    /// All of them.
    pub fn durations(&self) -> Durations {
        let mut all = self.clone();
        all.settle();
        all.tally.into_durations()
    }
}
