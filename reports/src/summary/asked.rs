//! What was asked, and how evenly those who asked were served.

use serde::{Deserialize, Serialize};

/// What was asked, the warm-up included.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadSummary {
    /// Before the first request, in whole seconds, where that is longer than all requests last: a recording whose clock
    /// counts from some other moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_s: Option<f64>,
    /// Requests a second, from the second of the first arrival up to the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_rps: Option<f64>,
    /// Variance over mean of the requests in a second: 1 for a Poisson process, more for bursts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispersion: Option<f64>,
    /// Of an input.
    pub input_tokens: Tokens,
    /// Of an output; absent for encoders.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<Tokens>,
    /// Tenants that asked at all.
    pub tenants: u64,
    /// The part of the requests that the busiest tenth of them sent.
    pub busiest_tenth_share: f64,
}

/// Lengths in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are the field's own")]
pub struct Tokens {
    pub mean: f64,
    pub p50: u32,
    pub p98: u32,
    pub max: u32,
}

/// How evenly tenants were served, of the requests that arrived after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FairnessSummary {
    /// Tenants with a request that is judged: answered, turned away or failed, or there for more than the target.
    pub tenants: u64,
    /// Those of them with a request that was answered; absent in files of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenants_answered: Option<u64>,
    /// Each tenant's mean latency, over the tenants that were answered.
    pub tenant_mean_latency_ms: Across,
    /// Jain's index of those means: 1 where they all wait alike, 1/n where one waits and the others do not (Jain, Chiu
    /// and Hawe, 1984).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jain_index: Option<f64>,
    /// Share of the tenants for whom the latency target was met, counted as for `slo_attainment`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenants_in_slo: Option<f64>,
}

impl FairnessSummary {
    /// Of the tenants, the share that was answered, of which alone latencies are.
    pub fn answered_share(&self) -> f64 {
        self.tenants_answered.map_or(1.0, |answered| answered as f64 / self.tenants as f64)
    }
}

/// A figure over tenants.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are the field's own")]
pub struct Across {
    pub min: f64,
    pub p50: f64,
    pub p98: f64,
    pub max: f64,
}
