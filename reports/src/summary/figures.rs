//! What every run has: counts of requests, distributions of times, a target, lanes.

use serde::{Deserialize, Serialize};
use tenantry_core::ledger::{Counts, Durations};

use super::labels::Slo;
use super::number::rounded;

/// Requests by how they ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestCounts {
    /// Arrived: the sum of all below.
    pub offered: u64,
    /// Answered.
    pub finished: u64,
    /// Turned away.
    pub rejected: u64,
    /// Let in, not answered.
    pub failed: u64,
    /// Given up by their clients.
    pub cancelled: u64,
    /// Still inside at the end.
    pub unfinished: u64,
}

/// A distribution of times in milliseconds: exact mean and maximum, quantiles within 0.1 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are the field's own")]
pub struct Distribution {
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p95: f64,
    pub p98: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

/// A target, and whether it was met.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SloSummary {
    /// The target in milliseconds.
    pub latency_ms: f64,
    /// For which share of requests: `p98`.
    pub at: String,
    /// Whether `slo_attainment` is at least that; absent where no request was judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub met: Option<bool>,
}

/// A lane.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaneSummary {
    /// Share of `duration_s` in which an op ran.
    pub busy_share: f64,
}

impl RequestCounts {
    pub(super) fn of(counts: Counts) -> RequestCounts {
        RequestCounts {
            offered: counts.offered,
            finished: counts.served,
            rejected: counts.rejected,
            failed: counts.failed,
            cancelled: counts.cancelled,
            unfinished: counts.unfinished,
        }
    }
}

impl SloSummary {
    pub(super) fn of(slo: Slo, attainment: Option<f64>) -> SloSummary {
        SloSummary {
            latency_ms: rounded(slo.latency.as_millis_f64()),
            at: format!("p{}", rounded(slo.quantile * 100.0)),
            met: attainment.map(|share| share >= slo.quantile),
        }
    }
}

impl Distribution {
    /// `None` where nothing was recorded.
    pub fn of(durations: &Durations) -> Option<Distribution> {
        let ms = |q: f64| rounded(durations.quantile_ns(q) as f64 / 1e6);
        (durations.count() > 0).then(|| Distribution {
            mean: rounded(durations.mean_ns() / 1e6),
            p50: ms(0.5),
            p90: ms(0.9),
            p95: ms(0.95),
            p98: ms(0.98),
            p99: ms(0.99),
            p999: ms(0.999),
            max: rounded(durations.max_ns() as f64 / 1e6),
        })
    }

    /// A quantile in milliseconds by its name, such as `p98`; nothing for names that summaries do not hold.
    pub fn at(&self, name: &str) -> Option<f64> {
        match name {
            "p50" => Some(self.p50),
            "p90" => Some(self.p90),
            "p95" => Some(self.p95),
            "p98" => Some(self.p98),
            "p99" => Some(self.p99),
            "p99.9" => Some(self.p999),
            "p100" => Some(self.max),
            _ => None,
        }
    }
}
