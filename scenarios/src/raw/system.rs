//! `systems:` — one system is one list of decisions.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use tenantry_profiles::{AdapterImplementation, DType};

use crate::presets;
use crate::scalar::{Count, Name, Span};

/// One serving system: a preset with the keys that differ, or all its decisions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = presets_fill_in)]
pub struct RawSystem {
    /// Where the keys that are left out come from. Presets are filled in before a system is decoded, so this is always absent.
    #[serde(default, skip_serializing)]
    pub preset: Option<PresetName>,
    /// As reports call it. Default: the preset's name.
    pub name: Name,
    /// Which requests are let in.
    #[serde(default)]
    pub admit: RawAdmit,
    /// The backbone: a key of `models`.
    #[serde(default = "backbone")]
    pub model: String,
    /// Number format of weights and activations.
    #[serde(default = "single_precision")]
    #[schemars(schema_with = "dtypes")]
    pub dtype: DType,
    /// Classes of each tenant's head.
    #[serde(default = "two")]
    pub classes: Count,
    /// What each tenant has of its own, and so what is swapped. Its head comes on top, and is always resident.
    pub tenant_state: RawTenantState,
    /// To what length the requests of a batch are padded.
    #[serde(default)]
    pub padding: RawPadding,
    /// Instances on each card; they share its memory evenly.
    #[serde(default = "one")]
    pub instances_per_gpu: Count,
    /// Which instance serves a request.
    #[serde(default)]
    pub place: RawPlace,
    /// What runs next on an instance.
    pub batch: RawBatch,
    /// What leaves the card's memory for what must come in.
    #[serde(default)]
    pub swap: RawSwap,
    /// How a batch becomes work for the copy engine and the compute units.
    pub pipeline: RawPipeline,
}

fn backbone() -> String {
    "backbone".to_string()
}

fn single_precision() -> DType {
    DType::F32
}

fn two() -> Count {
    Count(2)
}

fn one() -> Count {
    Count(1)
}

/// With a preset, no other key is required.
fn presets_fill_in(schema: &mut Schema) {
    if let Some(required) = schema.remove("required") {
        schema.insert(
            "anyOf".to_string(),
            serde_json::json!([{"required": ["preset"]}, {"required": required}]),
        );
    }
}

/// The name of a preset.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PresetName(String);

impl JsonSchema for PresetName {
    fn schema_name() -> Cow<'static, str> {
        "PresetName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "enum": presets::names()})
    }
}

fn dtypes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": DType::NAMES})
}

fn implementations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": AdapterImplementation::NAMES})
}

/// Which requests are let in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawAdmit {
    /// All.
    #[default]
    Open,
    /// Those that find few enough waiting.
    BoundedQueue {
        /// Waiting requests at which the door closes.
        max_waiting: Count,
    },
}

/// What each tenant has of its own.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawTenantState {
    /// A whole fine-tuned model.
    Model,
    /// Houlsby adapters in every layer of a shared backbone.
    Adapters {
        /// Width inside the adapter.
        bottleneck: Count,
        /// How a batch of several tenants is computed.
        #[schemars(schema_with = "implementations")]
        implementation: AdapterImplementation,
    },
    /// Nothing but its head: the backbone is a shared feature extractor.
    Head,
}

/// To what length the requests of a batch are padded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawPadding {
    /// To the longest of the batch.
    #[default]
    Longest,
    /// To this number of tokens; longer requests are refused.
    To(Count),
}

/// Which instance serves a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawPlace {
    /// The one with the fewest requests waiting or running.
    #[default]
    LeastLoaded,
    /// In turn.
    RoundRobin,
}

/// What runs next on an instance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawBatch {
    /// The tenant that has waited longest, with all its waiting requests.
    PerTenant {
        /// Largest batch.
        max_size: Count,
    },
    /// Exactly so many requests, however long it takes until they are there.
    FixedSize {
        /// The size.
        size: Count,
    },
    /// As soon as there are enough requests or the oldest has waited long enough.
    SizeOrTimeout {
        /// Largest batch.
        max_size: Count,
        /// Longest wait of the oldest; 0 starts with whatever is there.
        max_wait: Span,
    },
}

/// What leaves the card's memory for what must come in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawSwap {
    /// The least recently used.
    #[default]
    Lru,
}

/// How a batch becomes work for the copy engine and the compute units.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawPipeline {
    /// One batch at a time; it computes when all its parameters are there.
    Synchronous,
    /// The next batch's parameters come in while this one computes.
    Prefetch,
    /// As prefetch, and each layer computes as soon as its own adapters are there.
    Layerwise,
}
