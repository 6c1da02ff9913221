//! Of runtimes of several lengths.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tenantry_core::policy::fleet::Fallback;
use tenantry_core::server::runtimes::FleetUse;
use tenantry_traces::Time;

use super::number::{is_zero, rounded};

/// How a fleet of runtimes was used, over the whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FleetSummary {
    /// Allocations that were solved for, one before the start included.
    pub decisions: u64,
    /// Of those, allocations that stand for a solution.
    pub fallbacks: u64,
    /// The same by why they do.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fallbacks_by: BTreeMap<String, u64>,
    /// Periods in which the solver was still at the last question.
    pub late: u64,
    /// Instances that changed their runtime.
    pub replaced: u64,
    /// Requests that were dispatched anew because their instance left.
    pub redispatched: u64,
    /// Cards added.
    pub cards_added: u64,
    /// Cards released.
    pub cards_released: u64,
    /// The columns of `allocations`: `stream/longest request`.
    pub runtimes: Vec<String>,
    /// From when on, in seconds, each runtime has, or is to have, so many instances.
    pub allocations: Vec<(f64, Vec<u32>)>,
    /// Changes after the last of these, where there were more than are kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub allocations_left_out: u64,
}

impl FleetSummary {
    pub(super) fn new(fleet: &FleetUse) -> FleetSummary {
        let column = |(stream, length): &(String, u32)| format!("{stream}/{length}");
        let row = |(from, counts): &(Time, Vec<u32>)| (rounded(from.as_secs_f64()), counts.clone());
        let why = |(why, count): (&Fallback, &u64)| (why.name().to_owned(), *count);
        FleetSummary {
            decisions: fleet.decisions,
            fallbacks: fleet.fallbacks.values().sum(),
            fallbacks_by: fleet.fallbacks.iter().map(why).collect(),
            late: fleet.late,
            replaced: fleet.replaced,
            redispatched: fleet.redispatched,
            cards_added: fleet.added,
            cards_released: fleet.released,
            runtimes: fleet.runtimes.iter().map(column).collect(),
            allocations: fleet.allocations.iter().map(row).collect(),
            allocations_left_out: fleet.allocations_left_out,
        }
    }
}
