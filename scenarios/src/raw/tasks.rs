//! `systems[].tasks:` — parameter-efficient tasks over shared models. Each tenant is a task, whose kind `tenants.kinds`
//! says.

use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use tenantry_profiles::PetKind;

use crate::scalar::{Count, LongCount, NotNegative, Part, Period, Span, WidthCount};

/// Tasks, and how they are served. `tenants.kinds` names their kinds (`mask-bert`), and with them, where it is not the
/// system's own, the shared model (`large/mask-bert`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawTasks {
    /// What runs a batch.
    pub engine: RawEngine,
    /// The most queries of a batch; memory for their activations is kept free.
    pub max_batch: Count,
    /// The longest query that is let in, in tokens.
    pub max_tokens: Count,
    /// When waiting queries are split into batches.
    pub planning: RawPlanning,
    /// Sizes of tasks' parameters.
    #[serde(default)]
    pub sizes: RawSizes,
    /// Tasks that are handed in otherwise than `tenants.kinds` says, after all others. What is wrong with one is
    /// refused alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub registrations: Vec<RawRegistration>,
}

/// What runs a batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawEngine {
    /// The shared model for the whole batch, and each task's own operators.
    Shared {
        /// How waiting queries are split into batches.
        batching: RawBatching,
        /// Streams that a layer's operators run on.
        #[serde(default)]
        streams: RawStreams,
    },
    /// A full model of each task, one after another.
    Sequential {
        /// Whether each has an embedding of its own.
        #[serde(default = "yes")]
        own_embeddings: bool,
        /// How they came from the shared model.
        #[serde(default)]
        fine_tuned: RawFineTuned,
    },
    /// A full model of each task, side by side.
    Parallel {
        /// Whether each has an embedding of its own.
        #[serde(default = "yes")]
        own_embeddings: bool,
        /// How they came from the shared model.
        #[serde(default)]
        fine_tuned: RawFineTuned,
        /// Models that compute at once on a card, at most.
        #[serde(default = "many")]
        streams: Count,
    },
}

/// How a task's full model came from the shared one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RawFineTuned {
    /// By the task's parameters merged in. Adapters cannot be merged: they stay beside it.
    #[default]
    ByKind,
    /// As a whole, as the baselines of PetS were: nothing is beside it, whatever the task's kind.
    AsAWhole,
}

fn yes() -> bool {
    true
}

fn many() -> Count {
    Count(32)
}

/// How waiting queries are split into batches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawBatching {
    /// As they came, so many at a time.
    Fixed {
        /// Queries in a batch.
        size: Count,
    },
    /// Sorted by length, and split by what the shared model costs.
    AlphaOnly,
    /// Each task's queries split by what its operators cost.
    BetaOnly,
    /// Each task's queries by what its operators cost, then put together by what the shared model costs.
    Coordinated,
    /// Coordinated where lengths differ little, alpha-only where they differ much.
    ByVariance {
        /// The largest standard deviation of lengths, in tokens, at which it is coordinated.
        std_tokens: NotNegative,
    },
    /// Planned both ways, coordinated and alpha-only, and run as it takes less by the card's tables.
    Cheaper,
}

/// Streams that a layer's operators run on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawStreams {
    /// As many of 1, 2, 8, 32 and this as take the least time by the card's profile.
    ByProfile {
        /// How many streams at most.
        many: Count,
    },
    /// So many.
    Fixed {
        /// How many streams.
        count: Count,
    },
    /// So many, each with as much of the time as the others.
    Even {
        /// How many streams.
        count: Count,
    },
    /// So many, tasks in turn, whatever their operators need.
    InTurn {
        /// How many streams.
        count: Count,
    },
    /// One for each task.
    OneEach,
}

impl Default for RawStreams {
    fn default() -> RawStreams {
        RawStreams::ByProfile { many: many() }
    }
}

/// When waiting queries are split into batches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawPlanning {
    /// When so many wait; the batches then run to their end.
    Pool {
        /// Queries of a pool.
        size: Count,
        /// Longest wait of the oldest. Default: for ever.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_wait: Option<Span>,
    },
    /// Afresh for each batch; that with the earliest deadline runs.
    Online {
        /// Of those that wait the oldest so many are looked at.
        #[serde(default = "window")]
        window: Count,
        /// From arrival to answer, by service class in the order of `tenants.classes`; the last holds for the rest.
        targets: Vec<Period>,
    },
}

fn window() -> Count {
    Count(256)
}

/// Sizes of tasks' parameters. Defaults are those of PetS, Table 4, and rank 16 for LoRA.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawSizes {
    /// Width inside an adapter.
    pub bottleneck: WidthCount,
    /// Rank of LoRA's products.
    pub rank: WidthCount,
    /// Share of each weight's elements that a mask takes away.
    pub masked: Part,
    /// Share of each weight's elements that differ.
    pub differences: Part,
}

impl Default for RawSizes {
    fn default() -> RawSizes {
        RawSizes {
            bottleneck: WidthCount(64),
            rank: WidthCount(16),
            masked: Part::from(5.0),
            differences: Part::from(0.5),
        }
    }
}

/// A task that is handed in. It is served if it fits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawRegistration {
    /// The task, by its tenant, from 0.
    pub task: u32,
    /// The shared model. Default: the system's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The kind; left out where a file says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "kinds")]
    pub kind: Option<String>,
    /// A safetensors file with its parameters, whose header names the shared model and the kind. The path is relative
    /// to the working directory. Default: random parameters of `sizes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The model that its parameters were trained on. Default: the shared model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trained_on: Option<String>,
    /// Elements of its mask. Default: as many as weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask_elements: Option<LongCount>,
}

fn kinds(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "examples": PetKind::NAMES})
}
