//! `tenants:` — who asks.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use tenantry_traces::generate::Domains;

use crate::scalar::{AboveOne, Count, LongPeriod, NotNegative, Period, Span};

/// Who asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawTenants {
    /// How many there are.
    pub count: Count,
    /// The domains that their texts come from, each with a table of its own where systems look up: how many, all alike,
    /// or their names with their shares of the tenants. Default: eight, tenants in turns.
    #[serde(default, skip_serializing_if = "RawGroups::is_empty")]
    pub domains: RawGroups,
    /// Kinds of tenants, such as kinds of adapters: how many, all alike, or their names with their shares of the
    /// tenants.
    #[serde(default, skip_serializing_if = "RawGroups::is_empty")]
    pub kinds: RawGroups,
    /// Service classes: how many, all alike, or their names with their shares of the tenants.
    #[serde(default, skip_serializing_if = "RawGroups::is_empty")]
    pub classes: RawGroups,
    /// Which of them asks.
    #[serde(default)]
    pub popularity: RawPopularity,
    /// When each of them is awake. Default: always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub presence: Option<RawPresence>,
}

impl RawTenants {
    /// How many domains there are.
    pub(crate) fn domain_count(&self) -> u32 {
        match self.domains.shares().len() {
            0 => Domains::UNSAID,
            count => count as u32,
        }
    }
}

/// Which tenant asks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawPopularity {
    /// Each request another tenant, in turns.
    Distinct,
    /// All tenants alike.
    #[default]
    Uniform,
    /// As many as the square root of their number alike, the rest silent.
    UniformSqrt,
    /// All requests are for one tenant.
    Identical,
    /// Tenant i in proportion to i to the minus this power.
    Zipf(NotNegative),
    /// Each tenant asked so many times as often as the next.
    Skewed(AboveOne),
    /// In proportion to these weights, one for each tenant.
    Weights(Vec<NotNegative>),
    /// A day of Azure Functions, from a generator that was fitted to it.
    AzureFunctions,
    /// In proportion to the totals of a recording of tenants' activity. The path is relative to the working directory.
    File(PathBuf),
    /// As the arrivals say: periodic tenants, recorded ones.
    OfArrivals,
}

/// When each tenant is awake. A request of a tenant that sleeps is not sent. Rates keep their mean over time under
/// `on_off` and `diurnal`, not under `lifetimes`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawPresence {
    /// Each tenant is awake and asleep in turns of exponential length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_off: Option<RawOnOff>,
    /// Each tenant has a day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diurnal: Option<RawDiurnal>,
    /// Tenants appear and go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetimes: Option<RawLifetimes>,
}

/// Turns of exponential length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawOnOff {
    /// Mean time awake, at least 1/10,000 of `mean_off`.
    pub mean_on: LongPeriod,
    /// Mean time asleep.
    pub mean_off: LongPeriod,
}

/// A cosine over the day.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawDiurnal {
    /// From peak to peak.
    #[serde(default = "day")]
    pub period: Period,
    /// How much a tenant asks half a period after its peak, of what it asks at the peak: 0 to 1.
    pub trough: NotNegative,
    /// When the peaks are.
    #[serde(default)]
    pub phases: RawPhases,
}

fn day() -> Period {
    Period(tenantry_traces::Duration::from_secs(86_400))
}

/// When tenants' peaks are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawPhases {
    /// All at once, half a period after the start.
    #[default]
    Together,
    /// At any time of the period, drawn for each tenant.
    Spread,
}

/// Tenants appear and go for good.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawLifetimes {
    /// Share of the tenants that are there from the start: 0 to 1.
    pub present_at_start: NotNegative,
    /// The others appear at any time before this one.
    #[serde(default)]
    pub appear_within: Span,
    /// Mean of the exponential time that a tenant stays. Default: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_stay: Option<Period>,
}

/// Groups that tenants fall into, in the file's order: a number of alike ones, or names with shares in any unit.
#[derive(Clone, Debug, PartialEq)]
pub enum RawGroups {
    /// So many, each as likely.
    Alike(Count),
    /// By name.
    Named(Vec<(String, NotNegative)>),
}

impl Default for RawGroups {
    fn default() -> RawGroups {
        RawGroups::Named(Vec::new())
    }
}

impl RawGroups {
    fn is_empty(&self) -> bool {
        *self == RawGroups::default()
    }

    /// The groups' names; numbers from 0 where they have none.
    pub fn names(&self) -> Vec<String> {
        match self {
            RawGroups::Alike(count) => (0..count.0).map(|i| i.to_string()).collect(),
            RawGroups::Named(groups) => groups.iter().map(|(name, _)| name.clone()).collect(),
        }
    }

    /// The groups' shares in any unit.
    pub fn shares(&self) -> Vec<f64> {
        match self {
            RawGroups::Alike(count) => vec![1.0; count.0 as usize],
            RawGroups::Named(groups) => groups.iter().map(|(_, share)| share.0).collect(),
        }
    }
}

impl Serialize for RawGroups {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            RawGroups::Alike(count) => count.serialize(serializer),
            RawGroups::Named(groups) => {
                let mut entries = serializer.serialize_map(Some(groups.len()))?;
                for (name, share) in groups {
                    entries.serialize_entry(name, share)?;
                }
                entries.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for RawGroups {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawGroups, D::Error> {
        struct GroupsVisitor;

        impl<'de> Visitor<'de> for GroupsVisitor {
            type Value = RawGroups;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of groups from 1 to 65535, or a mapping of their names to shares")
            }

            fn visit_u64<E: Error>(self, count: u64) -> Result<RawGroups, E> {
                let small = u16::try_from(count).ok().filter(|&count| count > 0);
                let must = || E::invalid_value(serde::de::Unexpected::Unsigned(count), &self);
                small.map(|count| RawGroups::Alike(Count(count.into()))).ok_or_else(must)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<RawGroups, A::Error> {
                let mut groups = Vec::new();
                while let Some(entry) = entries.next_entry()? {
                    groups.push(entry);
                }
                Ok(RawGroups::Named(groups))
            }
        }

        deserializer.deserialize_any(GroupsVisitor)
    }
}

impl JsonSchema for RawGroups {
    fn schema_name() -> Cow<'static, str> {
        "RawGroups".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [
            {"type": "integer", "minimum": 1, "maximum": u16::MAX},
            {"type": "object", "additionalProperties": {"type": "number", "minimum": 0}},
        ]})
    }
}
