//! `workload.management:` — tenants and domains that come, change and go while requests are served.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::scalar::{Index, Moment, Part, Period, Positive, RateOrZero, Span};

/// Tenants and domains that come, change and go, until the workload's `stop`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawManagement {
    /// At random instants, of random tenants and domains, until the last request where `stop` gives no time.
    Rates(RawManagementRates),
    /// These. A tenant or domain of which the first is a creation is not there before.
    List(Vec<RawChangeAt>),
    /// Those of a recording, once. Arrivals that replay the same recording again and again are refused beside it.
    Trace(RawManagementTrace),
}

/// How often what is asked.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawManagementRates {
    /// Share of the tenants that are there at the start.
    #[serde(default = "all")]
    pub present_at_start: Part,
    /// Models of tenants that are not there.
    #[serde(default = "never")]
    pub create: RateOrZero,
    /// New versions of models that are there.
    #[serde(default = "never")]
    pub update: RateOrZero,
    /// Models that go.
    #[serde(default = "never")]
    pub delete: RateOrZero,
    /// New versions of domains' tables, where systems look up.
    #[serde(default = "never")]
    pub update_domain: RateOrZero,
}

/// One change and its instant: exactly one of the others beside `at`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawChangeAt {
    /// When it is asked for.
    pub at: Span,
    /// This tenant's model comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create: Option<Index>,
    /// This tenant's model has a new version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<Index>,
    /// This tenant's model goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete: Option<Index>,
    /// This domain's table comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create_domain: Option<Index>,
    /// This domain's table has a new version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_domain: Option<Index>,
}

/// Changes of a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawManagementTrace {
    /// A trace of Tenantry's own, recorded from a workload with management requests. Relative to the working directory.
    pub path: PathBuf,
    /// How many times faster than recorded.
    #[serde(default = "as_recorded")]
    pub speed: Positive,
    /// Where it begins; this instant becomes the start of the run. Who was not there by then is absent at first.
    #[serde(default)]
    pub from: Moment,
    /// How long it is, in the recording's own time. Default: to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<Period>,
}

fn all() -> Part {
    Part::WHOLE
}

fn never() -> RateOrZero {
    RateOrZero(0.0)
}

fn as_recorded() -> Positive {
    Positive(1.0)
}
