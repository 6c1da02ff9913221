//! Distributions of durations, and how they are recorded.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use tenantry_traces::Duration;

/// A distribution of durations: exact mean and maximum, quantiles within 0.1 %.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Counted", into = "Counted")]
pub struct Durations {
    histogram: Histogram<u64>,
    sum_ns: u128,
    max_ns: u64,
}

/// A distribution as it is written: how many durations each cell that has any holds, by the cell's largest.
#[derive(Serialize, Deserialize)]
struct Counted {
    counts: Vec<(u64, u64)>,
    sum_ns: u128,
    max_ns: u64,
}

impl From<Durations> for Counted {
    fn from(of: Durations) -> Counted {
        let cells = of.histogram.iter_recorded();
        Counted {
            counts: cells.map(|cell| (cell.value_iterated_to(), cell.count_at_value())).collect(),
            sum_ns: of.sum_ns,
            max_ns: of.max_ns,
        }
    }
}

impl From<Counted> for Durations {
    fn from(Counted { counts, sum_ns, max_ns }: Counted) -> Durations {
        let mut durations = Durations::default();
        // The longest first: the histogram grows once.
        for (largest_ns, times) in counts.into_iter().rev() {
            durations.record_times(Duration(largest_ns), times);
        }
        Durations {
            sum_ns,
            max_ns,
            ..durations
        }
    }
}

impl Default for Durations {
    fn default() -> Self {
        let mut histogram = Histogram::new(3).expect("three digits are allowed");
        histogram.auto(true);
        Durations {
            histogram,
            sum_ns: 0,
            max_ns: 0,
        }
    }
}

impl Durations {
    /// Adds one.
    pub fn record(&mut self, duration: Duration) {
        self.record_times(duration, 1);
    }

    fn record_times(&mut self, duration: Duration, times: u64) {
        let recorded = self.histogram.record_n(duration.0, times);
        recorded.expect("the histogram resizes itself");
        self.sum_ns += u128::from(duration.0) * u128::from(times);
        self.max_ns = self.max_ns.max(duration.0);
    }

    /// Adds all of another distribution.
    pub fn add(&mut self, other: &Durations) {
        self.histogram.add(&other.histogram).expect("the histogram resizes itself");
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Exact mean in nanoseconds; 0 where there is none.
    pub fn mean_ns(&self) -> f64 {
        if self.count() == 0 {
            0.0
        } else {
            self.sum_ns as f64 / self.count() as f64
        }
    }

    /// The least duration that a share `q` of all does not exceed, in nanoseconds.
    pub fn quantile_ns(&self, q: f64) -> u64 {
        self.histogram.value_at_quantile(q).min(self.max_ns())
    }

    /// The same of several shares, which do not fall.
    pub fn quantiles_ns(&self, shares: impl IntoIterator<Item = f64>) -> impl Iterator<Item = u64> {
        let quantiles = self.histogram.value_at_quantiles(shares);
        quantiles.map(|quantile_ns| quantile_ns.min(self.max_ns()))
    }

    /// The largest, in nanoseconds.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The share that is at most `duration`; 1 where there is none.
    pub fn share_within(&self, duration: Duration) -> f64 {
        if self.count() == 0 {
            return 1.0;
        }
        self.histogram.count_between(0, duration.0) as f64 / self.count() as f64
    }
}

/// Durations while they are recorded, cell by cell of the histogram that they will be in: one place of an array each,
/// where the histogram also looks at its range, its total and its extremes (some 27 instructions instead of 65).
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Not counted yet: fewer than [`AT_ONCE`].
    recent: Vec<Duration>,
    /// By cell, as far as there is one.
    counts: Vec<u64>,
    sum_ns: u128,
    max_ns: u64,
}

/// So many are counted at once. Their cells lie anywhere in what is more than a processor's first cache holds, and
/// places that are asked for together are waited for together.
pub(crate) const AT_ONCE: usize = 32;

/// Durations are told apart to so many binary digits: three decimal ones.
const DIGITS: u32 = 11;

/// The cell of a duration: below 2^11 ns each has its own, and then so do 2^10 parts of each doubling.
#[inline]
fn cell(ns: u64) -> usize {
    let shift = u64::BITS - DIGITS - (ns | 1 << (DIGITS - 1)).leading_zeros();
    ((u64::from(shift) << (DIGITS - 1)) + (ns >> shift)) as usize
}

/// The shortest duration of a cell.
fn shortest(cell: usize) -> u64 {
    let shift = (cell >> (DIGITS - 1)).saturating_sub(1);
    ((cell - (shift << (DIGITS - 1))) as u64) << shift
}

impl Tally {
    /// Adds one.
    #[inline]
    pub fn record(&mut self, duration: Duration) {
        self.recent.push(duration);
        if self.recent.len() == AT_ONCE {
            self.count_recent();
        }
    }

    #[inline(never)]
    fn count_recent(&mut self) {
        let recent = std::mem::take(&mut self.recent);
        self.count(recent.iter().map(|&duration| (duration, 1)));
        self.recent = recent;
        self.recent.clear();
    }

    /// Adds durations, each so many times.
    #[inline]
    pub(crate) fn count(&mut self, all: impl Iterator<Item = (Duration, u64)>) {
        // Kept apart, since for all that a compiler knows the cells could lie where these do.
        let (mut sum_ns, mut max_ns) = (self.sum_ns, self.max_ns);
        for (duration, times) in all {
            let cell = cell(duration.0);
            match self.counts.get_mut(cell) {
                Some(count) => *count += times,
                None => self.grow(cell, times),
            }
            sum_ns += u128::from(duration.0) * u128::from(times);
            max_ns = max_ns.max(duration.0);
        }
        (self.sum_ns, self.max_ns) = (sum_ns, max_ns);
    }

    #[cold]
    fn grow(&mut self, cell: usize, times: u64) {
        self.counts.resize(cell + 1, 0);
        self.counts[cell] = times;
    }

    /// The distribution of all.
    pub fn into_durations(mut self) -> Durations {
        self.count_recent();
        let mut durations = Durations::default();
        // The longest first: the histogram grows once.
        for (cell, count) in self.counts.into_iter().enumerate().rev().filter(|&(_, count)| count > 0) {
            let recorded = durations.histogram.record_n(shortest(cell), count);
            recorded.expect("the histogram resizes itself");
        }
        Durations {
            sum_ns: self.sum_ns,
            max_ns: self.max_ns,
            ..durations
        }
    }
}

/// Several durations of each request that come many times in a row, as the requests of a batch share theirs: each run
/// of equals is counted at once, and so are several runs.
#[derive(Debug)]
pub(crate) struct InRuns<const N: usize> {
    tallies: [Tally; N],
    /// Not counted yet, and how often each came in a row: at most [`AT_ONCE`].
    recent: Vec<([Duration; N], u64)>,
}

impl<const N: usize> Default for InRuns<N> {
    fn default() -> Self {
        InRuns {
            tallies: std::array::from_fn(|_| Tally::default()),
            recent: Vec::new(),
        }
    }
}

impl<const N: usize> InRuns<N> {
    #[inline]
    pub fn record(&mut self, durations: [Duration; N]) {
        if let Some((last, times)) = self.recent.last_mut()
            && *last == durations
        {
            *times += 1;
            return;
        }
        if self.recent.len() == AT_ONCE {
            self.settle();
        }
        self.recent.push((durations, 1));
    }

    #[inline(never)]
    fn settle(&mut self) {
        for (part, tally) in self.tallies.iter_mut().enumerate() {
            tally.count(self.recent.iter().map(|(durations, times)| (durations[part], *times)));
        }
        self.recent.clear();
    }

    pub fn into_durations(mut self) -> [Durations; N] {
        self.settle();
        self.tallies.map(Tally::into_durations)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_tally_is_the_histogram_that_all_were_recorded_in(
            all in proptest::collection::vec(prop_oneof![0..5_000_u64, 0..1_u64 << 40, any::<u64>()], 0..100),
            asked in 0..1_u64 << 40,
            share in 0.0..=1.0_f64,
        ) {
            let (mut tally, mut durations) = (Tally::default(), Durations::default());
            for ns in all.into_iter().map(Duration) {
                tally.record(ns);
                durations.record(ns);
            }
            let tallied = tally.into_durations();
            prop_assert_eq!(tallied.count(), durations.count());
            prop_assert_eq!(tallied.mean_ns().to_bits(), durations.mean_ns().to_bits());
            prop_assert_eq!(tallied.max_ns(), durations.max_ns());
            prop_assert_eq!(tallied.quantile_ns(share), durations.quantile_ns(share));
            let both: Vec<u64> = tallied.quantiles_ns([share, 0.5 * (1.0 + share)]).collect();
            prop_assert_eq!(both, [share, 0.5 * (1.0 + share)].map(|share| durations.quantile_ns(share)));
            prop_assert_eq!(tallied.share_within(Duration(asked)), durations.share_within(Duration(asked)));
        }

        #[test]
        fn what_is_written_is_read_as_it_was(all in proptest::collection::vec(prop_oneof![0..5_000_u64, any::<u64>()], 0..100)) {
            let mut durations = Durations::default();
            all.into_iter().for_each(|ns| durations.record(Duration(ns)));
            let read = Durations::from(Counted::from(durations.clone()));
            prop_assert_eq!(read, durations);
        }

        #[test]
        fn cells_follow_each_other(ns in any::<u64>()) {
            let cell = cell(ns);
            prop_assert!(shortest(cell) <= ns && super::cell(shortest(cell)) == cell);
            prop_assert!(ns == u64::MAX || super::cell(ns + 1) - cell <= 1);
        }
    }
}
