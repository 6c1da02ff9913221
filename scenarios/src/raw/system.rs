//! `systems:` — one system is one list of decisions.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use tenantry_profiles::{AdapterImplementation, DType, Tier, of_checkpoint};

use super::{RawCascade, RawRuntimes, RawTasks};
use crate::presets;
use crate::scalar::{Count, Index, InstanceCount, LongPeriod, Memory, Name, Part, Rate, Span, WidthCount};

/// One serving system: a preset with the keys that differ, or all its decisions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(transform = presets_fill_in)]
pub struct RawSystem {
    /// Where the keys that are left out come from: a system that comes with the program, or a YAML file's.
    // Filled in before a system is decoded: there it is always absent.
    #[serde(default, skip_serializing)]
    pub preset: Option<PresetName>,
    /// As reports call it. Default: the preset's name.
    pub name: Name,
    /// Which requests are let in.
    #[serde(default)]
    pub admit: RawAdmit,
    /// The backbone: a key of `models`, or a built-in model.
    #[serde(default = "backbone")]
    pub model: String,
    /// Number format of weights and activations.
    #[serde(default = "single_precision")]
    #[schemars(schema_with = "dtypes")]
    pub dtype: DType,
    /// Classes of each tenant's head.
    #[serde(default = "two_classes")]
    pub classes: WidthCount,
    /// What each tenant's head says of a request.
    #[serde(default)]
    pub heads: RawHeads,
    /// A precomputed table in place of the lower layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plot: Option<RawPlot>,
    /// What each tenant has of its own, and so what is swapped. Its head comes on top, and is always resident.
    pub tenant_state: RawTenantState,
    /// To what length the requests of a batch are padded.
    #[serde(default)]
    pub padding: RawPadding,
    /// Instances on each card; they share its memory evenly.
    #[serde(default = "one_instance")]
    pub instances_per_gpu: InstanceCount,
    /// Which instance serves a request.
    #[serde(default)]
    pub place: RawPlace,
    /// What runs next on an instance. Encoders need it; decoders have `generation` instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<RawBatch>,
    /// What leaves the card's memory for what must come in.
    #[serde(default)]
    pub swap: RawSwap,
    /// How a batch becomes work for the copy engine and the compute units. Encoders need it; decoders have it where
    /// they look up in a table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<RawPipeline>,
    /// How requests to a decoder run; decoders need it, and encoders have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<RawGeneration>,
    /// Parameter-efficient tasks over shared models; each tenant is one. In place of `batch` and `pipeline`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<RawTasks>,
    /// Weights and texts of one's own, for executions; random where absent. Paths are relative to the working
    /// directory.
    #[serde(default, skip_serializing_if = "Files::is_empty")]
    pub files: Files,
    /// Several models instead of one, which all tenants share; `model` is then not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cascade: Option<RawCascade>,
    /// Runtimes of several lengths, each of which serves one request at a time; nothing where an instance serves
    /// batches of any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtimes: Option<RawRuntimes>,
}

/// How requests to a decoder run from step to step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct RawGeneration {
    /// Low-rank adapters of each tenant. Default: none; all share the backbone, or have what `tenant_state` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora: Option<RawLora>,
    /// Tenants for whose own models or adapters an instance has room, where `tenant_state` says that they have such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<Count>,
    /// Who may run together.
    #[serde(default)]
    pub join: RawJoin,
    /// Requests that an instance runs at once, at most.
    pub max_batch: Count,
    /// How prompts get into the cache.
    #[serde(default)]
    pub prefill: RawPrefill,
    /// Tokens of a page of the key-value cache.
    #[serde(default = "sixteen")]
    pub page_tokens: Count,
    /// Whether an evicted request that returns to its card finds what has not been overwritten of its pages.
    #[serde(default)]
    pub prefix_caching: bool,
    /// Cards that share each instance's layers.
    #[serde(default = "one")]
    pub tensor_parallel: Count,
    /// Whether nearly empty instances are emptied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consolidate: Option<RawConsolidate>,
    /// Whether cards come and go, up to `cluster.gpus`. Default: all are there always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<RawCardScale>,
    /// What ends a sequence.
    #[serde(default)]
    pub stop: RawSequenceEnd,
    /// Who is next of those that wait.
    #[serde(default)]
    pub queue: RawQueue,
    /// What a tenant's prompts begin with in common, cached once on an instance; not with plot. Default: each is cached
    /// alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_prefix: Option<RawSharedPrefix>,
    /// Of `cluster.gpus`, those that only take prompts in; what they cache is copied to the others, which only make the
    /// tokens after the first (`cluster.link`). Default: none; every card does both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefill_gpus: Option<Count>,
}

/// The beginning of all prompts of a tenant. Whole pages of it are shared, and the last token of a prompt never is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct RawSharedPrefix {
    /// How long it is; a shorter prompt has as much of it as fits.
    pub tokens: Count,
}

/// Who is next of those that wait for an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawQueue {
    /// Who came first.
    #[default]
    Arrival,
    /// The oldest request of the tenant that was served the fewest tokens, since it began to wait.
    VirtualTokenCounter {
        /// What a token of a prompt counts.
        #[serde(default = "one")]
        input_weight: Count,
        /// What a generated token counts.
        #[serde(default = "two")]
        output_weight: Count,
    },
}

/// What ends a sequence. Policies are not told where it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawSequenceEnd {
    /// The workload's output length.
    #[default]
    Length,
    /// An end-of-sequence token, and the workload's output length at the latest.
    Eos {
        /// Its id: what an executed model must make.
        #[serde(default = "llamas_end")]
        token: Index,
        /// How likely each token is to be it, in simulations, which make no tokens.
        chance: Part,
    },
}

/// Low-rank adapters on all dense projections.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct RawLora {
    /// Rank of the adapters' products.
    pub rank: WidthCount,
    /// How a step of several tenants is computed.
    #[schemars(schema_with = "implementations")]
    pub implementation: AdapterImplementation,
    /// Tenants whose adapters an instance has room for.
    pub slots: Count,
    /// Tenants whose adapters host memory has room for; the others' are read from the disk. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_slots: Option<Count>,
}

/// Who may run together on an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawJoin {
    /// Anyone, whenever there is room.
    #[default]
    AnyTenant,
    /// Those of the running tenant, as long as they are first in the queue.
    HeadRun,
    /// As `head-run`, and only while nothing runs: all wait for the longest.
    HeadRunStatic,
    /// Those of the running tenant, from a queue of its own.
    QueuePerTenant,
}

/// How prompts get into the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawPrefill {
    /// One whole prompt in a step, beside the others' new tokens.
    #[default]
    OnePerStep,
    /// As much of prompts as fits.
    Chunked {
        /// Tokens of a step, new ones included.
        max_tokens: Count,
    },
}

/// Instances with little to do give it to others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct RawConsolidate {
    /// How often it is looked at.
    pub every: LongPeriod,
    /// Requests up to which an instance has little to do.
    pub light: Count,
}

/// A card is asked for while none that is there has as little to do as `consolidate.light` says, and given back while
/// it has nothing to do and another has little.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct RawCardScale {
    /// Cards at the start.
    pub start: Count,
    /// Cards that are kept, at least.
    #[serde(default = "one")]
    pub min: Count,
    /// From the decision to ask for a card until it begins to load the model.
    pub start_up: Span,
    /// How long a card has had nothing to do before it is given back.
    pub patience: Span,
}

fn llamas_end() -> Index {
    Index(2)
}

fn sixteen() -> Count {
    Count(16)
}

pub(crate) fn backbone() -> String {
    "backbone".to_string()
}

fn single_precision() -> DType {
    DType::F32
}

fn two_classes() -> WidthCount {
    WidthCount(2)
}

fn two() -> Count {
    Count(2)
}

fn one_instance() -> InstanceCount {
    InstanceCount(1)
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

/// The name of a preset, or the file of one's own.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PresetName(String);

impl JsonSchema for PresetName {
    fn schema_name() -> Cow<'static, str> {
        "PresetName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "anyOf": [{"enum": presets::names()}, {"pattern": "\\.yaml$"}]})
    }
}

fn dtypes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": DType::NAMES})
}

fn implementations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": AdapterImplementation::NAMES})
}

/// A table of what the lower layers make of short fragments, looked up in host memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct RawPlot {
    /// Layers that it replaces, with the embedding.
    pub lower_layers: Count,
    /// Tokens of a fragment: at most 512, and as many as the model's longest input.
    #[serde(default = "three")]
    pub fragment_tokens: Count,
    /// Threads that share the look-ups of a batch, at most 256.
    #[serde(default = "one")]
    pub threads: Count,
    /// Where the root table lies.
    #[serde(default = "memory")]
    #[schemars(schema_with = "tiers")]
    pub tier: Tier,
    /// Of a domain's occurrences of fragments, those that its own table has: the most frequent ones (HMI's α).
    #[serde(default = "half")]
    pub domain_hits: Part,
    /// Of all occurrences, those that the root's table leaves out, so that only shorter fragments answer.
    #[serde(default = "none")]
    pub fallbacks: Part,
    /// What look-ups meet in such tables, in simulations.
    #[serde(default)]
    pub met: RawMet,
    /// Size of a domain's own table, which creating and updating the domain reads, in simulations. Default: where `met`
    /// is `counted`, that of the table that is executed; else the paper's domains' (HMI, Table 5: 463 GB for all
    /// occurrences, 1.42 for half of them, 0.31 for 30 %), by the width of a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain_table: Option<Memory>,
}

/// What look-ups meet in the tables, in simulations: executed ones meet what they meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawMet {
    /// `domain_hits` and `fallbacks`: texts are like the corpus that the tables were built from.
    #[default]
    AsBuilt,
    /// What the texts that are executed meet, counted over the workload's first requests.
    Counted,
    /// These shares of the look-ups.
    Shares {
        /// That a domain's own table answers.
        domain_hits: Part,
        /// That only shorter fragments answer.
        fallbacks: Part,
    },
}

fn three() -> Count {
    Count(3)
}

fn memory() -> Tier {
    Tier::Memory
}

fn half() -> Part {
    Part::from(50.0)
}

fn none() -> Part {
    Part::from(0.0)
}

fn tiers(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": Tier::NAMES})
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
    /// Of each tenant so many, whatever others ask: a bucket of tokens that holds `burst` and is filled at `rate`.
    RateLimit {
        /// Rate at which a tenant is served that asks all the time.
        rate: Rate,
        /// Requests that a tenant may make at once after a silence.
        #[serde(default = "one_at_once")]
        burst: Count,
    },
}

fn one_at_once() -> Count {
    Count(1)
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
        bottleneck: WidthCount,
        /// How a batch of several tenants is computed.
        #[schemars(schema_with = "implementations")]
        implementation: AdapterImplementation,
    },
    /// Nothing but its head: the backbone is a shared feature extractor.
    Head,
}

/// Weights and texts of one's own, in place of random ones. Checkpoints are folders in Hugging Face's layout
/// (`model.safetensors`, `config.json`), or a safetensors file with `config.json` beside it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Files {
    /// The checkpoint of the backbone, of tasks' shared model, or of the generic model that a table is built from. A
    /// `tokenizer.json` beside it reads `corpus`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<PathBuf>,
    /// Of tasks: the checkpoints of the shared models beside the system's own, by their keys of `models`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub models: BTreeMap<String, PathBuf>,
    /// Checkpoints further pretrained for domains, whose lower layers fill these domains' tables; those beyond have the
    /// model's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<PathBuf>,
    /// A folder with a safetensors file for each tenant, in the order of their names and in turns: adapters and
    /// `classifier`, whole models, or PEFT's folders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenants: Option<PathBuf>,
    /// Texts, one a line, that tables are built from and requests are taken from: token ids, or text for the tokenizer,
    /// whose template's special tokens come around each. Domain `d` has the `d`-th file, in turns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub corpus: Vec<PathBuf>,
}

impl Files {
    /// Whether all is random.
    pub fn is_empty(&self) -> bool {
        *self == Files::default()
    }

    /// The model's tokenizer, where it lies beside its weights.
    pub fn tokenizer(&self) -> Option<PathBuf> {
        let path = of_checkpoint(self.model.as_ref()?, "tokenizer.json");
        path.exists().then_some(path)
    }
}

/// What tenants' heads say of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RawHeads {
    /// One of so many classes, from the first token.
    #[default]
    Classification,
    /// One of so many labels for every token, as named-entity recognition does.
    Tagging,
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
    /// The one that runs most and has room. Decoders only.
    LargestWorkingSet,
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
        /// Requests of a batch.
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
    /// The one that was in the fewest batches.
    Lfu,
}

/// How a batch becomes work for the copy engine and the compute units.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawPipeline {
    /// One batch at a time; it computes when all its parameters are there.
    Synchronous,
    /// The next batch's representations are looked up while this one computes; parameters come in between.
    PrefetchRetrieval,
    /// The next batch's representations and parameters come in while this one computes.
    Prefetch,
    /// As prefetch, and each layer computes as soon as its own adapters are there.
    Layerwise,
    /// As layerwise, but representations are looked up between batches.
    LayerwiseParameters,
}
