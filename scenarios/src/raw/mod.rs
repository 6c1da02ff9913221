//! A scenario as its YAML says it. Every type here mirrors one mapping or choice of the file, with its defaults; ranges
//! of single values are checked by their types, what concerns several values is checked when specifications are made of
//! them.

/// Reads a value that is a list, or a mapping: each becomes a variant.
macro_rules! list_or_mapping {
    ($type:ident, $expecting:literal, $list:ident, $mapping:ident) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                struct Either;

                impl<'de> serde::de::Visitor<'de> for Either {
                    type Value = $type;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($expecting)
                    }

                    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, list: A) -> Result<$type, A::Error> {
                        let list = serde::de::value::SeqAccessDeserializer::new(list);
                        serde::Deserialize::deserialize(list).map($type::$list)
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(self, mapping: A) -> Result<$type, A::Error> {
                        let mapping = serde::de::value::MapAccessDeserializer::new(mapping);
                        serde::Deserialize::deserialize(mapping).map($type::$mapping)
                    }
                }

                deserializer.deserialize_any(Either)
            }
        }
    };
}

mod cascade;
mod management;
mod plan;
mod runtimes;
mod sweep;
mod system;
mod tasks;
mod tenants;
mod workload;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use tenantry_profiles::{ModelKind, ModelShape};

pub use cascade::*;
pub use management::*;
pub use plan::*;
pub use runtimes::*;
pub use sweep::*;
pub use system::*;
pub use tasks::*;
pub use tenants::*;
pub use workload::*;

use crate::scalar::{
    AtQuantile, Bandwidth, Count, GpuCount, Memory, Name, Percent, Period, Positive, RepeatCount, Span,
};

/// A question: which systems, under which load, on which hardware.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Tenantry scenario")]
pub struct RawScenario {
    /// As reports call it.
    pub name: Name,
    /// Every draw is a function of it. Repeats use this seed, the next one, and so on.
    #[serde(default)]
    pub seed: u64,
    /// The card's profile: a folder of profiles/cards by name, or a path.
    #[serde(default = "cpu")]
    pub card: Name,
    /// The hardware: cards, their memory, and the link between them.
    #[serde(default)]
    pub cluster: RawCluster,
    /// What cards cost an hour, by profile, in any currency: then what a million requests cost is said.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub prices: BTreeMap<String, Positive>,
    /// The models that systems name.
    pub models: BTreeMap<String, RawModel>,
    /// Who asks.
    pub tenants: RawTenants,
    /// What they ask, and when.
    pub workload: RawWorkload,
    /// What models make of the requests, for systems that send them from model to model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcomes: Option<RawOutcomes>,
    /// What is compared. All see the same requests.
    pub systems: Vec<RawSystem>,
    /// The service-level objective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo: Option<RawSlo>,
    /// Keys of this file, by dotted path, each with a list of values or a range. Every combination of the lists is run,
    /// the last key changing fastest, and in each the same draws from the ranges.
    #[serde(default, skip_serializing_if = "RawSweep::is_empty")]
    pub sweep: RawSweep,
    /// How many points are drawn from the sweep's ranges, and how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<RawSamples>,
    /// What `tenantry plan` searches for, among what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<RawPlan>,
    /// How often each run is repeated, with other seeds.
    #[serde(default = "once")]
    pub repeats: RepeatCount,
    /// How far simulated and executed figures may differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validate: Option<RawLimits>,
    /// Whether durations are drawn from the measured spread.
    #[serde(default)]
    pub jitter: Jitter,
}

fn cpu() -> Name {
    Name("cpu".to_string())
}

fn once() -> RepeatCount {
    RepeatCount(1)
}

fn one_card() -> GpuCount {
    GpuCount(1)
}

/// The hardware.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawCluster {
    /// Number of cards.
    #[serde(default = "one_card")]
    pub gpus: GpuCount,
    /// What the server may fill of each card's memory. Default: all of it, less what the runtime keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_memory: Option<Memory>,
    /// What carries cached keys and values from one card to another, for systems with `generation.prefill_gpus`.
    /// Default: that costs what the card's profile has between two such cards or, where it has none, what the card's
    /// copies cost, page by page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<RawLink>,
}

/// A link between two cards.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawLink {
    /// Bandwidth in one direction.
    pub bandwidth: Bandwidth,
    /// Time of a copy before its first byte.
    #[serde(default)]
    pub latency: Span,
}

impl Default for RawCluster {
    fn default() -> RawCluster {
        RawCluster {
            gpus: one_card(),
            gpu_memory: None,
            link: None,
        }
    }
}

/// The service-level objective: a request is in time that keeps all that is given, one at least.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("anyOf" = [{"required": ["latency"]}, {"required": ["ttft"]}, {"required": ["tpot"]}]))]
pub struct RawSlo {
    /// From arrival to the whole answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Period>,
    /// From arrival to the first token, where tokens are made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft: Option<Period>,
    /// From one token to the next, in each request's mean from the first to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpot: Option<Period>,
    /// By which share of the requests: p98 is 98 %.
    pub at: AtQuantile,
}

/// How far simulated and executed figures may differ, relative to the executed ones. What is left out has no limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawLimits {
    /// How far the mean latency may be off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean: Option<Percent>,
    /// How far the latency at p98 may be off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p98: Option<Percent>,
    /// How far the throughput may be off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<Percent>,
}

/// Whether simulated durations vary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Jitter {
    /// Drawn from the measured spread.
    #[default]
    Measured,
    /// Always the measured median.
    None,
}

/// A model: a built-in by name, or an encoder's shape.
#[derive(Clone, Debug, PartialEq)]
pub enum RawModel {
    /// By name.
    Builtin(String),
    /// By shape.
    Shape(RawShape),
}

/// The shape of a BERT-like encoder, or of a decoder like OPT or Llama. Profiles list its costs under its key in
/// `models`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawShape {
    /// Transformer layers.
    pub layers: Count,
    /// Width of the hidden state.
    pub hidden: Count,
    /// Attention heads; they share `hidden` evenly.
    pub heads: Count,
    /// Width inside the feed-forward block.
    pub intermediate: Count,
    /// Tokens in the vocabulary.
    pub vocabulary: Count,
    /// Longest input in tokens. Default: 512, as BERT's.
    #[serde(default = "positions")]
    pub positions: Count,
    /// What it does with its input.
    #[serde(default = "encoder", skip_serializing_if = "is_encoder")]
    pub kind: ModelKind,
    /// Of a decoder: key and value heads, where queries share them. Default: `heads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_heads: Option<Count>,
    /// Of a decoder: whether its layers are Llama's, with a gate, RMS norms, rotary positions and no biases; else
    /// OPT's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gated: bool,
}

/// Those of BERT.
fn positions() -> Count {
    Count(512)
}

fn encoder() -> ModelKind {
    ModelKind::Encoder
}

fn is_encoder(kind: &ModelKind) -> bool {
    *kind == ModelKind::Encoder
}

impl Serialize for RawModel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            RawModel::Builtin(name) => serializer.serialize_str(name),
            RawModel::Shape(shape) => shape.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for RawModel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawModel, D::Error> {
        struct ModelVisitor;

        impl<'de> Visitor<'de> for ModelVisitor {
            type Value = RawModel;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a built-in model, or a mapping with its layers, hidden, heads, …")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<RawModel, E> {
                Ok(RawModel::Builtin(name.to_string()))
            }

            fn visit_map<A: MapAccess<'de>>(self, shape: A) -> Result<RawModel, A::Error> {
                RawShape::deserialize(MapAccessDeserializer::new(shape)).map(RawModel::Shape)
            }
        }

        deserializer.deserialize_any(ModelVisitor)
    }
}

impl JsonSchema for RawModel {
    fn schema_name() -> Cow<'static, str> {
        "RawModel".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let shape = generator.subschema_for::<RawShape>();
        json_schema!({"anyOf": [{"type": "string", "enum": ModelShape::builtin_names()}, shape]})
    }
}
