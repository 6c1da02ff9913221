//! What a record does not know about its run.

use std::collections::BTreeMap;

use tenantry_core::in_time::Slo;

/// The machine on which simulated runs ran; any other is a device: `cpu`, `cuda:0`.
pub const VIRTUAL: &str = "virtual";

/// The sweep point: a scenario's path and the value it had.
pub type Parameters = BTreeMap<String, serde_json::Value>;

/// What a record does not know about its run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunLabels {
    /// The system's name.
    pub system: String,
    /// The sweep point.
    pub parameters: Parameters,
    /// Counted from 0.
    pub repeat: u32,
    /// [`VIRTUAL`] or a device.
    pub machine: String,
    /// Of this repeat.
    pub seed: u64,
    /// The card's profile, as the scenario calls it.
    pub card: String,
    /// Cards of the cluster.
    pub gpus: u32,
    /// The scenario's target.
    pub slo: Option<Slo>,
    /// Of one card, in the scenario's currency, where it has a price for the card.
    pub price_per_hour: Option<f64>,
}
