//! Of tenants and domains that come, change and go.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tenantry_core::command::{FailureReason, Refusal};
use tenantry_core::ledger::ManagementRecord;

use super::figures::Distribution;
use super::number::named;

/// Management requests by what came of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ManagementSummary {
    /// The sum of all below.
    pub offered: u64,
    /// Done, by kind: `create`, `update`, `delete`, `create-domain`, `update-domain`.
    pub made: BTreeMap<String, u64>,
    /// Refused, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused_by: BTreeMap<String, u64>,
    /// Failed, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failed_by: BTreeMap<String, u64>,
    /// Not answered when the user stopped the run.
    pub unfinished: u64,
    /// From a request to its being done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_ms: Option<Distribution>,
}

impl ManagementSummary {
    pub(super) fn of(record: &ManagementRecord) -> Option<ManagementSummary> {
        (record.offered > 0).then(|| ManagementSummary {
            offered: record.offered,
            made: named(&record.made, |kind| kind),
            refused_by: named(&record.refused, Refusal::name),
            failed_by: named(&record.failed, FailureReason::name),
            unfinished: record.unfinished,
            made_ms: Distribution::of(&record.latency),
        })
    }
}
