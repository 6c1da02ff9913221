//! What a summary says of tasks that share models.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tenantry_core::server::tasks::TaskCounts;

/// The reason of a registration that found no memory.
pub const TASK_OUT_OF_MEMORY: &str = "task_out_of_memory";

/// Tasks of a run, and how their queries were batched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSummary {
    /// Registrations that came.
    pub registrations: u32,
    /// Tasks that lie on each card.
    pub loaded: u32,
    /// Of those, how many were loaded before one found no memory for the first time.
    pub loaded_until_full: u32,
    /// Registrations that were refused, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, u32>,
    /// Loaded tasks by kind.
    pub kinds: BTreeMap<String, KindSummary>,
    /// Kept free for activations on each card.
    pub activation_bytes: u64,
    /// The most queries of a batch.
    pub max_batch: u32,
    /// As many as were asked for, where activations leave fewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_batch_asked: Option<u32>,
    /// Pools that were taken up after the warm-up, to be split into batches where that is to be done.
    pub plans: u64,
    /// Mini-batches that ran after it, each of one task; absent where a full model of each task computes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mini_batches: Option<u64>,
}

/// Loaded tasks of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindSummary {
    /// How many.
    pub tasks: u32,
    /// Of their own parameters on each card, heads apart.
    pub bytes: u64,
}

impl TaskSummary {
    /// Of a run that has ended.
    pub fn new(counts: &TaskCounts) -> TaskSummary {
        let refused = counts.refused.iter();
        let kinds = counts.by_kind.iter();
        TaskSummary {
            registrations: counts.registrations,
            loaded: counts.loaded,
            loaded_until_full: counts.loaded_until_full,
            refused: refused.map(|(fault, count)| (fault.name().to_owned(), *count)).collect(),
            kinds: kinds
                .map(|&(kind, tasks, bytes)| (kind.name().to_owned(), KindSummary { tasks, bytes }))
                .collect(),
            activation_bytes: counts.activation_bytes,
            max_batch: counts.max_batch,
            max_batch_asked: None,
            plans: counts.plans,
            mini_batches: (counts.groups > 0).then_some(counts.groups),
        }
    }
}
