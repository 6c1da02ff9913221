//! What a trace looks like: dispersion of its arrivals, lengths, tenant concentration, and how far two samples are
//! apart.

use std::collections::BTreeMap;

use crate::time::{Duration, Time};

/// Two years: longer than any recording, and 256 MiB of counts.
pub const MAX_SECONDS: u64 = 1 << 26;

/// The silence before a recording's first arrival, where it is longer than all of them last: its clock counts from some
/// other moment, midnight or the year 1970. In whole seconds, which is what is said of it and cut off, and one at least.
pub fn silence_before(first: Time, last: Time) -> Option<Duration> {
    let silent = Duration::from_secs(first.0 / 1_000_000_000);
    (silent > Duration::ZERO && silent > last.since(first)).then_some(silent)
}

/// Whether the highest number of a tenant is far beyond how many tenants there are, so that most of those that a replay
/// makes room for never ask: ten times as many, and ten thousand more.
pub fn is_sparse(tenants: u64, highest: u32) -> bool {
    let numbers = u64::from(highest) + 1;
    numbers >= 10 * tenants && numbers - tenants >= 10_000
}

/// A distribution of lengths, in tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LengthFigures {
    /// The mean.
    pub mean: f64,
    /// The smallest length that half of them do not exceed.
    pub p50: u32,
    /// As above, for 90 %.
    pub p90: u32,
    /// As above, for 95 %.
    pub p95: u32,
    /// As above, for 98 %.
    pub p98: u32,
    /// As above, for 99 %.
    pub p99: u32,
    /// The longest.
    pub max: u32,
}

/// How often each length occurs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Lengths below [`Histogram::DENSE`], by length; the others are rare and kept aside.
    dense: Vec<u64>,
    sparse: BTreeMap<u32, u64>,
    count: u64,
}

impl Histogram {
    const DENSE: u32 = 1 << 16;

    /// Takes one length.
    #[inline]
    pub fn add(&mut self, tokens: u32) {
        if tokens < Histogram::DENSE {
            let tokens = tokens as usize;
            if self.dense.len() <= tokens {
                self.dense.resize(tokens + 1, 0);
            }
            self.dense[tokens] += 1;
        } else {
            *self.sparse.entry(tokens).or_default() += 1;
        }
        self.count += 1;
    }

    /// Lengths and how often they occur, by rising length.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u64)> {
        let dense = (0u32..).zip(self.dense.iter().copied()).filter(|(_, count)| *count > 0);
        dense.chain(self.sparse.iter().map(|(&tokens, &count)| (tokens, count)))
    }

    /// The smallest length that a share of `probability` does not exceed; `None` where there is none at all.
    pub fn quantile(&self, probability: f64) -> Option<u32> {
        let rank = ((probability * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        self.iter()
            .find(|(_, count)| {
                seen += count;
                seen >= rank
            })
            .map(|(tokens, _)| tokens)
    }

    /// The usual figures; `None` where there is no length.
    pub fn figures(&self) -> Option<LengthFigures> {
        let sum: f64 = self.iter().map(|(tokens, count)| f64::from(tokens) * count as f64).sum();
        Some(LengthFigures {
            mean: sum / self.count as f64,
            p50: self.quantile(0.5)?,
            p90: self.quantile(0.9)?,
            p95: self.quantile(0.95)?,
            p98: self.quantile(0.98)?,
            p99: self.quantile(0.99)?,
            max: self.quantile(1.0)?,
        })
    }

    /// The Kolmogorov-Smirnov distance: the largest difference between the two distribution functions, from 0 to 1.
    /// `None` where either is empty.
    pub fn distance(&self, other: &Histogram) -> Option<f64> {
        if self.count == 0 || other.count == 0 {
            return None;
        }
        let share = |histogram: &Histogram, count: u64| count as f64 / histogram.count as f64;
        let mut steps: BTreeMap<u32, f64> = self.iter().map(|(tokens, count)| (tokens, share(self, count))).collect();
        for (tokens, count) in other.iter() {
            *steps.entry(tokens).or_default() -= share(other, count);
        }
        let mut difference = 0.0f64;
        let at_each = steps.values().map(|step| {
            difference += step;
            difference.abs()
        });
        Some(at_each.fold(0.0, f64::max))
    }
}

impl FromIterator<u32> for Histogram {
    fn from_iter<I: IntoIterator<Item = u32>>(lengths: I) -> Histogram {
        let mut histogram = Histogram::default();
        lengths.into_iter().for_each(|tokens| histogram.add(tokens));
        histogram
    }
}

/// The index of dispersion: variance over mean of the requests in windows of `window_s` seconds, 1 for a Poisson
/// process. An incomplete last window is left out; `None` where there are fewer than two windows or no requests.
pub fn dispersion(requests_per_s: &[u32], window_s: usize) -> Option<f64> {
    let windows = || {
        requests_per_s
            .chunks_exact(window_s)
            .map(|window| window.iter().map(|&n| f64::from(n)).sum::<f64>())
    };
    let count = windows().len() as f64;
    if count < 2.0 {
        return None;
    }
    let mean = windows().sum::<f64>() / count;
    let variance = windows().map(|n| (n - mean) * (n - mean)).sum::<f64>() / count;
    (mean > 0.0).then(|| variance / mean)
}

/// The share of the requests that the most active `share` of the tenants sent: of the tenants with any, rounded to the
/// nearest number of them and at least one. `None` where there are no requests.
pub fn concentration(requests_by_tenant: &[f64], share: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = requests_by_tenant.iter().copied().filter(|&requests| requests > 0.0).collect();
    sorted.sort_unstable_by(|a, b| b.total_cmp(a));
    let top = ((sorted.len() as f64 * share).round() as usize).max(1);
    let total: f64 = sorted.iter().sum();
    (total > 0.0).then(|| sorted.iter().take(top).sum::<f64>() / total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equal_counts_do_not_disperse() {
        assert_eq!(dispersion(&[5; 100], 10), Some(0.0));
        assert_eq!(dispersion(&[0, 2, 0, 2], 1), Some(1.0));
        assert_eq!(dispersion(&[0, 2, 0, 2], 2), Some(0.0));
        assert_eq!(dispersion(&[7], 1), None);
        assert_eq!(dispersion(&[0, 0], 1), None);
    }

    #[test]
    fn tenants_are_sparse_where_most_numbers_are_nobodys() {
        assert!(is_sparse(49, 90_000_048) && is_sparse(1, u32::MAX));
        assert!(!is_sparse(1_000, 9_998), "few in all");
        assert!(!is_sparse(500_000, 999_999), "half of them ask");
        assert!(!is_sparse(10_000, 9_999), "all of them ask");
    }

    #[test]
    fn concentration_counts_tenants_that_asked() {
        let requests = [0.0, 1.0, 3.0, 0.0, 6.0];
        assert_eq!(concentration(&requests, 0.01), Some(0.6));
        assert_eq!(concentration(&requests, 2.0 / 3.0), Some(0.9));
        assert_eq!(concentration(&[0.0], 0.01), None);
    }

    proptest! {
        #[test]
        fn distance_is_a_metric(
            a in proptest::collection::vec(1u32..100_000, 1..60),
            b in proptest::collection::vec(1u32..100_000, 1..60),
            c in proptest::collection::vec(1u32..100_000, 1..60),
        ) {
            let [a, b, c] = [a, b, c].map(Histogram::from_iter);
            let distance = |x: &Histogram, y: &Histogram| x.distance(y).unwrap();
            prop_assert!(distance(&a, &a) < 1e-12);
            prop_assert!((distance(&a, &b) - distance(&b, &a)).abs() < 1e-12);
            prop_assert!(distance(&a, &c) <= distance(&a, &b) + distance(&b, &c) + 1e-12);
            prop_assert!(distance(&a, &b) <= 1.0 + 1e-12);
        }

        #[test]
        fn quantiles_are_of_the_sorted_list(mut lengths in proptest::collection::vec(0u32..100_000, 1..200), p in 0.0f64..=1.0) {
            let histogram = Histogram::from_iter(lengths.iter().copied());
            lengths.sort_unstable();
            let rank = ((p * lengths.len() as f64).ceil() as usize).max(1);
            prop_assert_eq!(histogram.quantile(p), Some(lengths[rank - 1]));
        }
    }
}
