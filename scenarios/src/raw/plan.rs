//! `plan:` — what is searched for, among what.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_yaml::Value;

use crate::scalar::{Count, Part, Percent, Positive, RepeatCount};

/// What is searched for, among what. The scenario's systems are the candidates, each with every combination of its
/// choices on every card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawPlan {
    /// What is best.
    pub find: RawObjective,
    /// Numbers of cards. Default: `cluster.gpus`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<RawNumbers>,
    /// Numbers of tenants, for most-tenants; each asks as often as in the scenario.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenants: Option<RawBetween>,
    /// How many times the scenario's load, for highest-rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<RawFactors>,
    /// Cards by profile: a list, at the prices that `prices` has for them, or each with its price an hour in any
    /// currency. Default: the scenario's card; for least-cost all cards that `prices` names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cards: Option<RawCards>,
    /// By system: its keys, by dotted path, with the values that are tried.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, BTreeMap<String, Vec<serde_json::Value>>>")]
    pub choices: BTreeMap<String, BTreeMap<String, Vec<Value>>>,
    /// All cards together cost at most this an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_per_hour: Option<Positive>,
    /// The share of the answers that must be right, where systems have a cascade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_accuracy: Option<Part>,
    /// How close tenants and load are told apart.
    #[serde(default = "two_percent")]
    pub precision: Percent,
    /// How sure each decision is to be, where the repeats suffice.
    #[serde(default = "ninety_five_percent")]
    pub confidence: Percent,
    /// How often a run is repeated at most, with other seeds, for a close decision.
    #[serde(default = "eight")]
    pub repeats: RepeatCount,
}

fn two_percent() -> Percent {
    Percent::from(2.0)
}

fn ninety_five_percent() -> Percent {
    Percent::from(95.0)
}

fn eight() -> RepeatCount {
    RepeatCount(8)
}

/// What is best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RawObjective {
    /// The fewest cards that keep the objective.
    FewestCards,
    /// The cards that keep it at the least cost an hour.
    LeastCost,
    /// The most tenants for whom it is kept.
    MostTenants,
    /// The highest load under which it is kept.
    HighestRate,
    /// The least latency at the objective's quantile, or at p98.
    TightestLatency,
}

impl RawObjective {
    /// As a scenario writes it.
    pub fn name(self) -> &'static str {
        match self {
            RawObjective::FewestCards => "fewest-cards",
            RawObjective::LeastCost => "least-cost",
            RawObjective::MostTenants => "most-tenants",
            RawObjective::HighestRate => "highest-rate",
            RawObjective::TightestLatency => "tightest-latency",
        }
    }
}

/// Whole numbers: a list, or all from one to another.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum RawNumbers {
    /// These.
    List(Vec<Count>),
    /// All of them.
    Between(RawBetween),
}

/// Kinds of cards, by profile: a list, or each with its price an hour.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum RawCards {
    /// These, at the prices that the scenario has for them.
    List(Vec<String>),
    /// These, at these prices.
    Priced(BTreeMap<String, Positive>),
}

/// From one number to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawBetween {
    /// The least number.
    pub from: Count,
    /// The greatest number.
    pub to: Count,
}

/// From one factor to another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawFactors {
    /// The least factor.
    pub from: Positive,
    /// The greatest factor.
    pub to: Positive,
}

list_or_mapping!(RawNumbers, "a list of numbers, or {from: …, to: …}", List, Between);

impl JsonSchema for RawNumbers {
    fn schema_name() -> Cow<'static, str> {
        "RawNumbers".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let count = generator.subschema_for::<Count>();
        let between = generator.subschema_for::<RawBetween>();
        json_schema!({"anyOf": [{"type": "array", "items": count, "minItems": 1}, between]})
    }
}

list_or_mapping!(
    RawCards,
    "a list of cards, or each with its price an hour, such as {l4: 0.8}",
    List,
    Priced
);

impl JsonSchema for RawCards {
    fn schema_name() -> Cow<'static, str> {
        "RawCards".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let price = generator.subschema_for::<Positive>();
        json_schema!({"anyOf": [
            {"type": "array", "items": {"type": "string"}, "minItems": 1},
            {"type": "object", "additionalProperties": price}
        ]})
    }
}
