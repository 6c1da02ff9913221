//! Statistics out of what a source publishes: a single figure, or least, most, mean, median and deviation.

use super::sheet::{Line, Place};
use crate::stats::{Stats, middle};

/// Times in microseconds, as a source summarises them. Sums of operators add up as if each varied by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Times {
    pub count: u64,
    pub mean_us: f64,
    pub median_us: f64,
    pub least_us: f64,
    pub most_us: f64,
    /// Of the measurements, squared.
    pub variance: f64,
    /// p95 and p99, where a source publishes them.
    pub tail_us: Option<[f64; 2]>,
    /// Where they, or the most of what they are a sum of, were read.
    pub place: Option<Place>,
}

/// 95 % of a normal distribution lie below its mean and so many deviations.
const DEVIATIONS_P95: f64 = 1.645;

/// And 99 %.
const DEVIATIONS_P99: f64 = 2.326;

impl Times {
    /// The only figure that was published.
    pub fn only(us: f64, count: u64) -> Times {
        Times {
            count,
            mean_us: us,
            median_us: us,
            least_us: us,
            most_us: us,
            variance: 0.0,
            tail_us: None,
            place: None,
        }
    }

    /// The same, read in this line.
    pub fn of(self, line: Line) -> Times {
        Times {
            place: Some(line.place()),
            ..self
        }
    }

    pub fn plus(self, other: Times) -> Times {
        Times {
            // An empty sum has not been measured; a sum has been as often as its rarest part.
            count: if self.count == 0 {
                other.count
            } else {
                self.count.min(other.count)
            },
            mean_us: self.mean_us + other.mean_us,
            median_us: self.median_us + other.median_us,
            least_us: self.least_us + other.least_us,
            most_us: self.most_us + other.most_us,
            variance: self.variance + other.variance,
            tail_us: None,
            place: match self.median_us > other.median_us {
                true => self.place,
                false => other.place,
            },
        }
    }

    pub fn times(self, factor: f64) -> Times {
        Times {
            count: self.count,
            mean_us: factor * self.mean_us,
            median_us: factor * self.median_us,
            least_us: factor * self.least_us,
            most_us: factor * self.most_us,
            variance: factor * factor * self.variance,
            tail_us: self.tail_us.map(|tail| tail.map(|us| factor * us)),
            place: self.place,
        }
    }

    /// On the line from `self` to `other`, where `share` is 1.
    pub fn towards(self, other: Times, share: f64) -> Times {
        let mut between = self.times(1.0 - share).plus(other.times(share));
        // What lies between two points varies as they do, not less.
        between.variance = (1.0 - share) * self.variance + share * other.variance;
        between
    }

    /// Several measurements of one thing: the middle of their medians, all their spread.
    pub fn pooled(mut all: Vec<Times>) -> Times {
        assert!(!all.is_empty(), "a pool of no measurements");
        all.sort_by(|a, b| a.median_us.total_cmp(&b.median_us));
        let share = 1.0 / all.len() as f64;
        let medians: Vec<f64> = all.iter().map(|times| times.median_us).collect();
        let total = |part: fn(&Times) -> f64| all.iter().map(part).sum::<f64>() * share;
        Times {
            count: all.iter().map(|times| times.count).sum(),
            mean_us: total(|times| times.mean_us),
            median_us: middle(&medians),
            least_us: all.iter().map(|times| times.least_us).fold(f64::INFINITY, f64::min),
            most_us: all.iter().map(|times| times.most_us).fold(0.0, f64::max),
            variance: total(|times| times.variance),
            tail_us: None,
            place: all[all.len() / 2].place,
        }
    }

    /// Median and mean as published, and quantiles where they are; the others as if normal about the median, within
    /// least and most. All to four digits, as no source is truer than that.
    pub fn stats(self) -> Stats {
        let median_us = self.median_us.max(LEAST_US);
        let deviation_us = self.variance.max(0.0).sqrt();
        let above = |deviations: f64| (median_us + deviations * deviation_us).min(self.most_us);
        let [p95_us, p99_us] = self.tail_us.unwrap_or_else(|| [above(DEVIATIONS_P95), above(DEVIATIONS_P99)]);
        let p05_us = (median_us - DEVIATIONS_P95 * deviation_us).max(self.least_us);
        let p95_us = p95_us.max(median_us);
        let stats = Stats {
            count: self.count,
            mean_us: self.mean_us.max(LEAST_US),
            median_us,
            p05_us: p05_us.clamp(LEAST_US, median_us),
            p95_us,
            p99_us: p99_us.max(p95_us),
        };
        stats.rounded()
    }
}

/// What takes no time in a source's resolution still takes some.
const LEAST_US: f64 = 1e-3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_figure_has_no_spread() {
        let stats = Times::only(12.345_67, 3).stats();
        let Stats {
            count,
            mean_us,
            median_us,
            p05_us,
            p95_us,
            p99_us,
        } = stats;
        assert_eq!(count, 3);
        assert_eq!([mean_us, median_us, p05_us, p95_us, p99_us], [12.35; 5]);
    }

    #[test]
    fn sums_vary_less_than_their_parts_one_after_the_other() {
        let part = Times {
            count: 20,
            mean_us: 101.0,
            median_us: 100.0,
            least_us: 80.0,
            most_us: 130.0,
            variance: 100.0,
            tail_us: None,
            place: None,
        };
        let stats = part.plus(part).plus(part).plus(part).stats();
        assert_eq!((stats.count, stats.median_us, stats.mean_us), (20, 400.0, 404.0));
        // Four parts of deviation 10 have one of 20.
        assert_eq!((stats.p05_us, stats.p95_us, stats.p99_us), (367.1, 432.9, 446.5));
    }

    #[test]
    fn quantiles_stay_within_what_was_seen_and_the_mean_within_what_they_allow() {
        let skewed = Times {
            count: 3,
            mean_us: 1.0,
            median_us: 10.0,
            least_us: 9.9,
            most_us: 10.1,
            variance: 400.0,
            tail_us: None,
            place: None,
        };
        let stats = skewed.stats();
        assert_eq!((stats.p05_us, stats.p95_us, stats.p99_us), (9.9, 10.1, 10.1));
        assert!(stats.mean_us >= stats.least_mean_us());
    }
}
