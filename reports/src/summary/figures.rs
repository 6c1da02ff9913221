//! What every run has: counts of requests, distributions of times, a target, lanes.

use serde::{Deserialize, Serialize};
use tenantry_core::in_time::{Slo, Target};
use tenantry_core::ledger::{Counts, Durations};
use tenantry_traces::Duration;

use super::number::rounded;
use crate::human;

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

/// A target, each of its limits in milliseconds, and whether it was met.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SloSummary {
    /// The whole answer's limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<f64>,
    /// The first token's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_ms: Option<f64>,
    /// Of each further token, in a request's mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpot_ms: Option<f64>,
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
        let ms = |limit: Option<Duration>| limit.map(|limit| rounded(limit.as_millis_f64()));
        let Target {
            latency,
            first_token,
            per_token,
        } = slo.target;
        SloSummary {
            latency_ms: ms(latency),
            ttft_ms: ms(first_token),
            tpot_ms: ms(per_token),
            at: format!("p{}", rounded(slo.quantile * 100.0)),
            met: attainment.map(|share| share >= slo.quantile),
        }
    }

    /// Whether the targets are the same, whatever came of them.
    pub fn same_target(&self, other: &SloSummary) -> bool {
        self.limits() == other.limits() && self.at == other.at
    }

    /// Of the whole answer, the first token, each further one.
    fn limits(&self) -> [Option<f64>; 3] {
        [self.latency_ms, self.ttft_ms, self.tpot_ms]
    }

    /// The whole answer's limit, where there is no other.
    pub(crate) fn only_latency_ms(&self) -> Option<f64> {
        self.latency_ms.filter(|_| self.ttft_ms.is_none() && self.tpot_ms.is_none())
    }

    /// All limits: "100 ms", "1 s to the first token and 50 ms a token".
    pub fn in_words(&self) -> String {
        human::limits(self.limits())
    }
}

impl Distribution {
    /// `None` where nothing was recorded.
    pub fn of(durations: &Durations) -> Option<Distribution> {
        let mut quantiles = durations.quantiles_ns([0.5, 0.9, 0.95, 0.98, 0.99, 0.999]);
        let mut next_ms = || rounded(quantiles.next().expect("one for each share") as f64 / 1e6);
        (durations.count() > 0).then(|| Distribution {
            mean: rounded(durations.mean_ns() / 1e6),
            p50: next_ms(),
            p90: next_ms(),
            p95: next_ms(),
            p98: next_ms(),
            p99: next_ms(),
            p999: next_ms(),
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
