//! Planning: which candidate, and how much of it, is the best that meets a target; in as few runs as the answer needs.
//!
//! Pure: a run is a closure's affair, and nothing here knows what a candidate is. A *candidate* is a way to serve (a
//! system with its parameters, a card); its *levels* are ordered from the best to the most generous (1, 2, 3, … cards;
//! rates from the highest down), each with a *value*, of which less is better. Whether a level meets the target is
//! expected to be monotone: what meets it goes on to at more generous levels. So the first that meets it is found by
//! bisection, and a candidate that misses it where it would merely be as good as the best known is given up after one
//! cell. Both are checked: see [`Search::best`].
//!
//! Read `stats.rs` for how sure a figure is, `bursts.rs` for what few runs say where requests come in bursts,
//! `judgement.rs` for what that makes of a cell, `search.rs` for the search, `race.rs` for the tightest latency.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tenantry_core::durations::Durations;
use tenantry_traces::Duration;

mod bursts;
mod judgement;
mod race;
mod search;
mod stats;

pub use bursts::Bursts;
pub use judgement::Judgement;
pub use race::Race;
pub use search::{Answer, Candidate, Cell, Search, Standing};
pub use stats::Estimate;

/// What is said of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Of each batch of its requests, the share that kept the target; batches without requests are left out.
    pub within: Vec<f64>,
    /// Requests that were to be judged …
    pub judged: u64,
    /// … and how many of them kept the target; of a run that was stopped early, as many as could have.
    pub kept: u64,
    /// How much more unevenly requests come than independent ones: the index of dispersion of their counts, at least 1.
    /// So many of them tell as much as one.
    pub dispersion: f64,
    /// When they come by many seeds, where few runs tell too little of that. It is the load's, and not written with
    /// each of its runs.
    #[serde(skip)]
    pub bursts: Option<Arc<Bursts>>,
    /// Of each batch, the latency at the target's quantile, in milliseconds, where anybody was served: for tests
    /// between candidates.
    pub score: Vec<Option<f64>>,
    /// Of all requests that were served.
    pub latencies: Durations,
    /// What they took as the target reckons it, where that is not the latency:
    /// [`Target::taken`](tenantry_core::in_time::Target::taken).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<Durations>,
    /// What the first token took, where the target limits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_token: Option<Durations>,
    /// What each further token took of answers with at least two, where the target limits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_token: Option<Durations>,
    /// The run was stopped early: so many requests had missed the target that other repeats could not make up for it.
    pub hopeless: bool,
    /// It is no answer whatever its requests say: it cannot run, has no memory for some who ask, or is wrong too often.
    pub refused: bool,
    /// The busiest lane's share of time: what tells too much load from too little.
    pub busy: f64,
    /// Nobody is turned away because others wait: whether all are answered is no matter of chance.
    pub is_open: bool,
    /// The longest that a request waits for its batch to fill, by the system's own clock: only who waits longer tells
    /// of others before it. 0 where batches do not wait, or nobody knows for how long.
    pub fills: Duration,
}

impl Sample {
    /// Of a run in which nobody was judged.
    pub fn empty() -> Sample {
        Sample {
            within: Vec::new(),
            judged: 0,
            kept: 0,
            dispersion: 1.0,
            bursts: None,
            score: Vec::new(),
            latencies: Durations::default(),
            taken: None,
            first_token: None,
            per_token: None,
            hopeless: false,
            refused: false,
            busy: 0.0,
            is_open: false,
            fills: Duration::ZERO,
        }
    }

    /// What requests that were served took as the target reckons it.
    pub fn taken(&self) -> &Durations {
        self.taken.as_ref().unwrap_or(&self.latencies)
    }

    /// By how much larger the scores of its batches are than another run's over the same requests, where both served
    /// some of a batch.
    pub fn differences(&self, other: &Sample) -> Vec<f64> {
        let pairs = self.score.iter().zip(&other.score);
        pairs.filter_map(|(own, other)| Some((*own)? - (*other)?)).collect()
    }
}

/// The rules of a decision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// The share of requests that must keep the target.
    pub share: f64,
    /// There is a target. Without one a request need only be answered.
    pub has_target: bool,
    /// At which quantile latency is read off.
    pub quantile: f64,
    /// How sure a decision must be before repeats end.
    pub confidence: f64,
    /// Repeats that a decision takes at least: other seeds show what one run cannot, how much runs differ.
    pub seeds: u32,
    /// Repeats of a cell at most.
    pub repeats: u32,
}

#[cfg(test)]
impl Rules {
    /// Those of tests.
    const SOME: Rules = Rules {
        share: 0.98,
        has_target: true,
        quantile: 0.98,
        confidence: 0.95,
        seeds: 3,
        repeats: 8,
    };
}
