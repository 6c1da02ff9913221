//! What is said of a run: `summary.json`.
//!
//! What does not apply is absent, never zero: a system that finished nothing has no `latency_ms`, one that swaps
//! nothing has no `swap`. Counts of requests are always there. All times are milliseconds but `duration_s`; shares lie
//! between 0 and 1.
//!
//! Floats are rounded to six significant digits, which is more than any measurement here has and keeps the file
//! readable and identical for the same input. Nothing in it comes from a clock, a host or a path.

mod asked;
mod cascade;
mod figures;
mod fleet;
mod labels;
mod management;
mod memory;
mod number;
mod run;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::curves::Run;

pub use asked::{Across, FairnessSummary, Tokens, WorkloadSummary};
pub use cascade::{CascadeSummary, ScalingSummary, StageSummary};
pub use figures::{Distribution, LaneSummary, RequestCounts, SloSummary};
pub use fleet::FleetSummary;
pub use labels::{Parameters, RunLabels, VIRTUAL};
pub use management::ManagementSummary;
pub use memory::{GenerationSummary, LookupSummary, MemorySummary, SwapSummary};
pub use number::rounded;
pub use run::RunSummary;

/// A whole `summary.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Of the file's form: 1.
    pub schema: u32,
    /// The scenario's name.
    pub scenario: String,
    /// The scenario's seed.
    pub seed: u64,
    /// In the order in which they were asked for.
    pub runs: Vec<RunSummary>,
}

impl Summary {
    /// Of all runs of a scenario.
    pub fn new(scenario: &str, seed: u64, runs: &[Run]) -> Summary {
        let runs = runs.iter().map(|run| run.summary.clone()).collect();
        Summary {
            schema: 1,
            scenario: scenario.to_owned(),
            seed,
            runs,
        }
    }
}
