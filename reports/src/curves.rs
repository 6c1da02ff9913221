//! What is drawn of a run: its latencies as quantiles, and its series over time.

use serde::{Deserialize, Serialize};
use tenantry_core::RunRecord;
use tenantry_core::ledger::{Series, Window};
use tenantry_traces::{Duration, Time};

use crate::seen::Seen;
use crate::summary::{Parameters, RunLabels, RunSummary, rounded};

/// What is kept of a run's record.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The figures.
    pub summary: RunSummary,
    /// The pictures.
    pub curves: Curves,
}

impl Run {
    /// Of a run that has ended. The record, whose histograms are large, can be dropped.
    pub fn new(labels: RunLabels, record: &RunRecord) -> Run {
        Run {
            summary: RunSummary::new(labels, record),
            curves: Curves::of(record),
        }
    }

    /// With what was noted of it beside the record.
    pub fn with_seen(mut self, seen: &Seen) -> Run {
        self.summary.workload = seen.workload();
        self.summary.fairness = seen.fairness(self.summary.interrupted);
        self.summary.classes = seen.classes(self.summary.interrupted);
        self.curves.tenant_ms = seen.tenant_quantiles_ms();
        self.curves.ops = seen.ops();
        self
    }

    /// A quantile of latency by its name, such as `p98`, in milliseconds: of the summary, or of what is drawn where the
    /// summary does not hold it; nothing where no request was answered.
    pub fn latency_at(&self, name: &str) -> Option<f64> {
        let latency = self.summary.latency_ms?;
        latency.at(name).or_else(|| {
            let percent: f64 = name.strip_prefix('p')?.parse().ok()?;
            latency_within(&self.curves.latency_ms, percent / 100.0)
        })
    }
}

/// An op that is drawn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpDrawn {
    /// An index of [`Curves::lanes`].
    pub lane: usize,
    /// What was done: `encode layers 0–11`.
    pub name: String,
    /// `compute`, `copy`, `lookup`.
    pub category: String,
    /// In nanoseconds since the start of the run.
    pub started_ns: u64,
    /// Likewise.
    pub ended_ns: u64,
    /// In its batch.
    pub requests: u32,
}

/// What is drawn of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curves {
    /// Latency in milliseconds at each of [`shares`]; empty where nothing finished.
    pub latency_ms: Vec<f64>,
    /// Windows from the start of the run, the warm-up included.
    pub series: Series,
    /// The last event: where the last window ends, whatever its width.
    pub end: Time,
    /// Tenants' mean latencies in milliseconds at each of [`shares`] of the tenants; empty where nobody looked.
    pub tenant_ms: Vec<f64>,
    /// The lanes' names, by id.
    pub lanes: Vec<String>,
    /// The first ops after the warm-up; empty where nobody looked.
    pub ops: Vec<OpDrawn>,
}

impl Curves {
    /// Of a run that has ended.
    pub fn of(record: &RunRecord) -> Curves {
        let latency = &record.latency;
        let quantiles = latency.quantiles_ns(shares()).map(|quantile_ns| quantile_ns as f64 / 1e6);
        Curves {
            latency_ms: if latency.count() > 0 {
                quantiles.collect()
            } else {
                Vec::new()
            },
            series: record.series.clone(),
            end: record.end,
            tenant_ms: Vec::new(),
            lanes: record.lanes.iter().map(|lane| lane.name.clone()).collect(),
            ops: Vec::new(),
        }
    }
}

/// Ops are drawn, and kept, of so many runs at most: of more, a reader sees none, and they weigh most of all.
pub const MAX_RUNS_WITH_OPS: usize = 48;

/// `curves.json`: what is drawn of the runs of `summary.json`, in the same order, so that a page can be made again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurvesFile {
    /// Of the file's form: 1.
    pub schema: u32,
    /// Of the requests, or of the tenants: where `latency_ms` and `tenant_ms` of each run are taken, from 0 to 1.
    #[serde(default)]
    pub shares: Vec<f64>,
    /// What the columns of each run's `windows` are.
    #[serde(default)]
    pub window_columns: Vec<String>,
    /// In the order of `summary.json`.
    pub runs: Vec<RunCurves>,
}

/// See [`RunCurves::windows`].
const WINDOW_COLUMNS: [&str; 4] = ["arrived", "served", "batches", "batch_requests"];

/// The curves of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunCurves {
    /// Which run: the system.
    #[serde(default)]
    pub system: String,
    /// The sweep point.
    #[serde(default, skip_serializing_if = "Parameters::is_empty")]
    pub parameters: Parameters,
    /// The machine.
    #[serde(default)]
    pub machine: String,
    /// Counted from 0.
    #[serde(default)]
    pub repeat: u32,
    /// See [`Curves::latency_ms`].
    pub latency_ms: Vec<f64>,
    /// The last event, in nanoseconds.
    pub end_ns: u64,
    /// Of each window, in nanoseconds.
    pub window_ns: u64,
    /// From time 0: requests that arrived, requests that were served, batches, and requests in them.
    pub windows: Vec<[u64; 4]>,
    /// Of each window, the sum of the latencies of the requests that were served, in nanoseconds.
    #[serde(default)]
    pub latency_sum_ns: Vec<u64>,
    /// See [`Curves::tenant_ms`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenant_ms: Vec<f64>,
    /// See [`Curves::lanes`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lanes: Vec<String>,
    /// See [`Curves::ops`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ops: Vec<OpDrawn>,
}

impl CurvesFile {
    /// Of all runs.
    pub fn new(runs: &[Run]) -> CurvesFile {
        let mut file = CurvesFile {
            schema: 1,
            shares: shares().collect(),
            window_columns: WINDOW_COLUMNS.map(str::to_owned).to_vec(),
            runs: runs.iter().map(RunCurves::of).collect(),
        };
        if runs.len() > MAX_RUNS_WITH_OPS {
            file.runs.iter_mut().for_each(|run| run.ops.clear());
        }
        file
    }
}

impl RunCurves {
    /// Of a run, with fewer windows than it has.
    pub fn of(run: &Run) -> RunCurves {
        let Run { summary, curves } = run;
        /// More than a page draws.
        const MAX_WINDOWS: usize = 256;
        let Series { width, windows } = &curves.series;
        let merge = windows.len().div_ceil(MAX_WINDOWS).next_power_of_two();
        let sum = |windows: &[Window]| {
            windows.iter().fold([0; 4], |[arrived, served, batches, requests], window| {
                [
                    arrived + window.arrived,
                    served + window.served,
                    batches + window.batches,
                    requests + window.batch_requests,
                ]
            })
        };
        RunCurves {
            system: summary.system.clone(),
            parameters: summary.parameters.clone(),
            machine: summary.machine.clone(),
            repeat: summary.repeat,
            latency_ms: curves.latency_ms.iter().copied().map(rounded).collect(),
            end_ns: curves.end.0,
            window_ns: width.0 * merge as u64,
            windows: windows.chunks(merge).map(sum).collect(),
            latency_sum_ns: windows
                .chunks(merge)
                .map(|windows| windows.iter().map(|window| window.latency_sum_ns).sum::<u128>())
                .map(|sum_ns| u64::try_from(sum_ns).unwrap_or(u64::MAX))
                .collect(),
            tenant_ms: curves.tenant_ms.clone(),
            lanes: curves.lanes.clone(),
            ops: curves.ops.clone(),
        }
    }
}

impl From<RunCurves> for Curves {
    fn from(curves: RunCurves) -> Curves {
        let window = |(i, &[arrived, served, batches, batch_requests]): (usize, &[u64; 4])| Window {
            arrived,
            served,
            batches,
            batch_requests,
            latency_sum_ns: curves.latency_sum_ns.get(i).copied().unwrap_or_default().into(),
        };
        Curves {
            latency_ms: curves.latency_ms,
            series: Series {
                width: Duration(curves.window_ns.max(1)),
                windows: curves.windows.iter().enumerate().map(window).collect(),
            },
            end: Time(curves.end_ns),
            tenant_ms: curves.tenant_ms,
            lanes: curves.lanes,
            ops: curves.ops,
        }
    }
}

/// The shares of requests at which latencies are kept, from 0 to 1: every half percent, and closer in the tail.
pub fn shares() -> impl Iterator<Item = f64> {
    let body = (0..9_900).step_by(50);
    let tail = (9_900..9_990).step_by(10).chain([9_990, 9_995, 9_999, 10_000]);
    body.chain(tail).map(|per_ten_thousand| f64::from(per_ten_thousand) / 10_000.0)
}

/// The share of requests that took at most `x_ms`, from latencies at each of [`shares`], linear between them.
pub fn share_within(latency_ms: &[f64], x_ms: f64) -> f64 {
    let shares: Vec<f64> = shares().collect();
    assert_eq!(latency_ms.len(), shares.len());
    let above = latency_ms.partition_point(|&latency| latency <= x_ms);
    if above == 0 {
        return 0.0;
    }
    if above == latency_ms.len() {
        return 1.0;
    }
    let (low, high) = (latency_ms[above - 1], latency_ms[above]);
    let part = (x_ms - low) / (high - low);
    shares[above - 1] + part * (shares[above] - shares[above - 1])
}

/// The latency that `share` of the requests did not exceed, from latencies at each of [`shares`], linear between them;
/// nothing where none are kept.
fn latency_within(latency_ms: &[f64], share: f64) -> Option<f64> {
    let shares: Vec<f64> = shares().collect();
    let above = shares.partition_point(|&kept| kept < share);
    let high = *latency_ms.get(above)?;
    let Some(below) = above.checked_sub(1) else {
        return Some(high);
    };
    let part = (share - shares[below]) / (shares[above] - shares[below]);
    Some(rounded(latency_ms[below] + part * (high - latency_ms[below])))
}

/// `points` values from `low` to `high` at equal ratios. Both must be positive.
pub fn log_grid(low: f64, high: f64, points: usize) -> impl Iterator<Item = f64> {
    (0..points).map(move |i| low * (high / low).powf(i as f64 / (points - 1) as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::record;

    #[test]
    fn a_distribution_is_found_again_from_its_quantiles() {
        let record = record(10_000, Duration::from_millis(100));
        let curves = Curves::of(&record);
        for ms in [0.5, 1.0, 10.0, 33.0, 99.0, 100.0, 200.0] {
            let exact = record.latency.share_within(Duration::from_secs_f64(ms / 1e3).unwrap());
            let found = share_within(&curves.latency_ms, ms);
            assert!((found - exact).abs() <= 0.011, "{ms} ms: {found} against {exact}");
        }
    }

    #[test]
    fn equal_latencies_are_one_step() {
        let same = vec![5.0; shares().count()];
        assert_eq!([4.9, 5.0, 5.1].map(|ms| share_within(&same, ms)), [0.0, 1.0, 1.0]);
    }

    #[test]
    fn grids_reach_both_ends_at_equal_ratios() {
        let grid: Vec<f64> = log_grid(0.1, 1000.0, 5).collect();
        for (found, expected) in grid.iter().zip([0.1, 1.0, 10.0, 100.0, 1000.0]) {
            assert!((found / expected - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn a_quantile_that_no_summary_holds_is_in_the_curve() {
        let mut run = Run::new(
            crate::testing::labels("hmi", "virtual"),
            &record(10_000, Duration::from_millis(100)),
        );
        for (name, ms) in [("p98", 98.0), ("p75", 75.0), ("p97.3", 97.5), ("p99.99", 100.0)] {
            let found = run.latency_at(name).unwrap();
            assert!((found - ms).abs() < 0.6, "{name}: {found}");
        }
        run.curves.latency_ms.clear();
        assert!(run.latency_at("p75").is_none() && run.latency_at("p98").is_some());
    }

    #[test]
    fn nothing_finished_draws_nothing() {
        assert!(Curves::of(&RunRecord::default()).latency_ms.is_empty());
    }
}
