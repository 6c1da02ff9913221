//! What came out of a point's measurements, as the last columns of every table hold it.

use crate::cells::{Cells, Field, Refused, RefusedIn};
use crate::schema::{Column, Form};

/// How often a point was measured and what came out, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stats {
    /// Measurements; 0 of a point that an importer added, where the table goes on along its first axis from the two
    /// points before.
    pub count: u64,
    /// Their mean: what throughput follows from, and far above the median where a few ops take much longer.
    pub mean_us: f64,
    /// Half of the measurements took no longer.
    pub median_us: f64,
    /// 5 % took no longer.
    pub p05_us: f64,
    /// 95 % took no longer.
    pub p95_us: f64,
    /// 99 % took no longer.
    pub p99_us: f64,
}

/// The columns of [`Stats`], last in every table.
pub(crate) const STATS_COLUMNS: [&str; 6] = ["count", "mean_us", "median_us", "p05_us", "p95_us", "p99_us"];

/// The cell of [`Stats::count`].
struct Count(u64);

impl Field for Count {
    fn form() -> Form {
        u64::form().or_zero()
    }

    fn read(text: &str) -> Result<Self, Refused> {
        match text {
            "0" => Ok(Count(0)),
            _ => u64::read(text).map(Count),
        }
    }

    fn write(&self) -> String {
        self.0.write()
    }
}

/// The form of [`STATS_COLUMNS`].
pub(crate) fn columns() -> Vec<Column> {
    const DESCRIPTIONS: [&str; 6] = [
        "Measurements; 0 where nothing was measured and the table goes on along its first axis.",
        "Their mean, in microseconds.",
        "Half of the measurements took no longer.",
        "5 % took no longer.",
        "95 % took no longer.",
        "99 % took no longer.",
    ];
    let described = STATS_COLUMNS.into_iter().zip(DESCRIPTIONS);
    let column = |(name, description)| match name {
        "count" => Column::of::<Count>(name, description),
        _ => Column::of::<f64>(name, description),
    };
    described.map(column).collect()
}

/// The nearest rank: the smallest of the ascending values that `percent` % of them do not exceed.
pub(crate) fn nearest_rank(ascending: &[f64], percent: usize) -> f64 {
    ascending[(ascending.len() * percent).div_ceil(100) - 1]
}

/// The middle of the ascending values: of an even number of them the mean of the two in the middle.
///
/// # Panics
/// Without any.
pub fn middle(ascending: &[f64]) -> f64 {
    let half = ascending.len() / 2;
    match ascending.len() % 2 {
        0 => (ascending[half - 1] + ascending[half]) / 2.0,
        _ => ascending[half],
    }
}

/// Rounded to four significant digits.
fn four_digits(value: f64) -> f64 {
    format!("{value:.3e}").parse().expect("it was a number")
}

impl Stats {
    /// What came out of these measurements, in microseconds; sorts them.
    ///
    /// # Panics
    /// Nothing was measured.
    pub fn of(samples_us: &mut [f64]) -> Stats {
        assert!(!samples_us.is_empty(), "statistics of no measurements");
        samples_us.sort_unstable_by(f64::total_cmp);
        Stats {
            count: samples_us.len() as u64,
            mean_us: samples_us.iter().sum::<f64>() / samples_us.len() as f64,
            median_us: nearest_rank(samples_us, 50),
            p05_us: nearest_rank(samples_us, 5),
            p95_us: nearest_rank(samples_us, 95),
            p99_us: nearest_rank(samples_us, 99),
        }
    }

    /// The same of measurements that stand for more or fewer of the ops than others: each with its weight. Sorts them.
    ///
    /// # Panics
    /// Nothing was measured.
    pub fn weighted(samples: &mut [(f64, f64)]) -> Stats {
        assert!(!samples.is_empty(), "statistics of no measurements");
        samples.sort_unstable_by(|(a, _), (b, _)| a.total_cmp(b));
        let all: f64 = samples.iter().map(|(_, weight)| weight).sum();
        let rank = |percent: f64| {
            // Sums of parts may fall short of the whole by as little as they are rounded.
            let wanted = all * percent / 100.0 * (1.0 - 1e-9);
            let mut sum = 0.0;
            let reached = samples.iter().find(|(_, weight)| {
                sum += weight;
                sum >= wanted
            });
            reached.or(samples.last()).expect("something was measured").0
        };
        Stats {
            count: samples.len() as u64,
            mean_us: samples.iter().map(|(us, weight)| us * weight).sum::<f64>() / all,
            median_us: rank(50.0),
            p05_us: rank(5.0),
            p95_us: rank(95.0),
            p99_us: rank(99.0),
        }
    }

    /// The same of ops that take so many times as long.
    pub(crate) fn at_pace(self, ratio: f64) -> Stats {
        let [mean_us, median_us, p05_us, p95_us, p99_us] =
            [self.mean_us, self.median_us, self.p05_us, self.p95_us, self.p99_us].map(|us| us * ratio);
        Stats {
            mean_us,
            median_us,
            p05_us,
            p95_us,
            p99_us,
            ..self
        }
    }

    /// The same median, with a spread about it as these others have about theirs.
    pub fn spread_like(self, others: Stats) -> Stats {
        Stats {
            count: self.count,
            median_us: self.median_us,
            ..others.at_pace(self.median_us / others.median_us)
        }
    }

    /// Whether any measurement took another time than the median.
    pub(crate) fn varies(&self) -> bool {
        [self.mean_us, self.p05_us, self.p95_us, self.p99_us] != [self.median_us; 4]
    }

    /// The same with four digits; what is equal stays equal, and the mean one that the quantiles allow.
    pub(crate) fn rounded(self) -> Stats {
        let [median_us, p05_us, p95_us, p99_us] =
            [self.median_us, self.p05_us, self.p95_us, self.p99_us].map(four_digits);
        let rounded = Stats {
            mean_us: four_digits(self.mean_us),
            median_us,
            p05_us,
            p95_us,
            p99_us,
            ..self
        };
        let least_us = rounded.least_mean_us();
        if rounded.mean_us >= least_us {
            return rounded;
        }
        // One digit more than is kept lies between: the next number of four digits is no less.
        let mean_us = [least_us, least_us * 1.001].map(four_digits).into_iter().find(|mean_us| *mean_us >= least_us);
        Stats {
            mean_us: mean_us.unwrap_or(least_us),
            ..rounded
        }
    }

    /// Of differences, some of which are below zero, as a cost, which is not: nor is its mean below what its quantiles
    /// allow.
    pub fn not_negative(self) -> Stats {
        let cost = |us: f64| us.max(1e-3);
        let of = Stats {
            count: self.count,
            mean_us: cost(self.mean_us),
            median_us: cost(self.median_us),
            p05_us: cost(self.p05_us),
            p95_us: cost(self.p95_us),
            p99_us: cost(self.p99_us),
        };
        Stats {
            mean_us: of.mean_us.max(of.least_mean_us()),
            ..of
        }
    }

    /// The least mean that measurements with these quantiles can have: each as low as the quantile below it, the lowest
    /// 5 % at zero.
    pub(crate) fn least_mean_us(&self) -> f64 {
        0.45 * self.p05_us + 0.45 * self.median_us + 0.04 * self.p95_us + 0.01 * self.p99_us
    }

    pub(crate) fn read(cells: &impl Cells) -> Result<Stats, RefusedIn> {
        let Count(count) = cells.cell("count")?;
        Ok(Stats {
            count,
            mean_us: cells.cell("mean_us")?,
            median_us: cells.cell("median_us")?,
            p05_us: cells.cell("p05_us")?,
            p95_us: cells.cell("p95_us")?,
            p99_us: cells.cell("p99_us")?,
        })
    }

    pub(crate) fn write(&self) -> [String; 6] {
        let Stats {
            count,
            mean_us,
            median_us,
            p05_us,
            p95_us,
            p99_us,
        } = *self;
        [
            Count(count).write(),
            mean_us.write(),
            median_us.write(),
            p05_us.write(),
            p95_us.write(),
            p99_us.write(),
        ]
    }
}
