//! `systems: - cascade:` — several models behind one door; `outcomes:` — what they make of requests.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{RawBatch, RawScaling};
use crate::scalar::{Count, InstanceCount, Name, NotNegative, Part, Period, Positive};

/// Models that a request is sent to, one after the other or all at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawCascade {
    /// In their order, at most 32; with one, a single model whose answers are judged.
    pub stages: Vec<RawStage>,
    /// When each is asked.
    #[serde(default)]
    pub order: RawOrder,
    /// How several answers become one.
    #[serde(default)]
    pub join: RawAnswerJoin,
}

/// One model of a cascade.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawStage {
    /// A key of `models`, or a built-in model.
    pub model: Name,
    /// What `outcomes` calls it. Default: as the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// The cards that it runs on, from 0. Default: all, or where it goes on from the stage before, that one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<Vec<u32>>,
    /// Instances on each of these cards. Default: the system's; left out where it goes on from the stage before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instances_per_gpu: Option<InstanceCount>,
    /// What runs next on an instance. Default: the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<RawBatch>,
    /// Layers that it computes, if not all: an early exit. A stage that begins above layer 0 goes on where the one
    /// before has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<RawLayers>,
    /// Who goes on to the next model. All stages but the last have it where they are asked one by one, and none
    /// otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reroute: Option<RawReroute>,
    /// How many of its cards have the model, by its own load. Default: all, all the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<RawScaling>,
    /// The latency promised of this model alone, from being asked until it has answered: what target tracking goes by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo: Option<Period>,
    /// Instances that a card runs at once before each is slowed down by more than a tenth: cost is reckoned by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packing: Option<Positive>,
}

impl RawStage {
    /// What `outcomes` and reports call it.
    pub fn called(&self) -> &str {
        &self.name.as_ref().unwrap_or(&self.model).0
    }
}

/// A run of a model's layers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawLayers {
    /// The first, from 0.
    #[serde(default)]
    pub from: u32,
    /// The layer after the last.
    pub to: Count,
}

/// Tabi's dispatcher (Eq. 4) and pruning (Eq. 5).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawReroute {
    /// c: confidence up to which all go on, from 0 to 1.
    pub cut_off: NotNegative,
    /// k: how steeply the chance of going on falls above it. A large one is a step half way between the cut-off and 1.
    pub slope: NotNegative,
    /// α: words that were paid no more than this part of the mean attention are left out. Default: none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prune: Option<NotNegative>,
}

/// When the models of a cascade are asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RawOrder {
    /// One after the other, as long as the answer is not sure enough.
    #[default]
    OneByOne,
    /// All at once.
    AtOnce,
}

/// How several models' answers become one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawAnswerJoin {
    /// The last model's is the answer.
    #[default]
    Last,
    /// The weighted average of the probabilities (Eq. 6): a weight for each model.
    Average(Vec<NotNegative>),
    /// A vote, with a weight for each model.
    Vote(Vec<NotNegative>),
}

/// What the models make of requests, by the names that stages have for them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawOutcomes {
    /// Real items, a generator, or trained models.
    pub from: RawOutcomeSource,
    /// Which share of the words goes at which degree of pruning, and what that costs, by rising degree.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pruned: Vec<RawPruned>,
    /// What weighted averages bring to a generator's models, by their weights.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub averages: Vec<RawKnownAverage>,
}

/// Where outcomes come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RawOutcomeSource {
    /// A CSV of real items, with the columns MODEL_conf (from 0 to 1) and MODEL_correct (0 or 1), or MODEL_pred beside
    /// a reference. Votes and averages count which wrong answers models give: by MODEL_pred, or drawn where there is no
    /// such column.
    Table {
        /// The file; it may be compressed by gzip.
        file: PathBuf,
        /// Models, and what the columns call them.
        models: BTreeMap<String, String>,
        /// The column's name of the model whose answers count as right, where there are no gold labels.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reference: Option<String>,
    },
    /// How hard real items are: a CSV with the column n_correct_of_100, of how many of 100 models of one kind get each
    /// of them right. Models here are more of that kind, right about an item by that chance, each on its own, and as
    /// sure as it is great.
    Difficulty {
        /// The file; it may be compressed by gzip.
        file: PathBuf,
        /// The models, by the names that stages have for them.
        models: Vec<String>,
    },
    /// Trained models that answer labelled texts: simulated by what `tenantry cascade profile` saved of them, executed
    /// by themselves.
    Profiled {
        /// The folder that it wrote. Relative to the working directory, as the models and items that it names are.
        folder: PathBuf,
    },
    /// A small and a large model as Tabi's text describes them, and others.
    Generated {
        /// The small model.
        small: String,
        /// The large model.
        large: String,
        /// The task that the items are of.
        task: RawTask,
        /// Others, by name.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        others: BTreeMap<String, RawOther>,
        /// How much the others err on the same items, given what the large model does, from 0 (each by a draw of its
        /// own) to 1.
        #[serde(default, skip_serializing_if = "is_zero")]
        correlation: f64,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives references")]
fn is_zero(number: &f64) -> bool {
    *number == 0.0
}

/// A task that Tabi's text says enough about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RawTask {
    /// Sentiment of sentences, two classes.
    #[serde(rename = "sst-2")]
    Sst2,
    /// Entailment between two sentences, three classes.
    Mnli,
}

/// A model beside the two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawOther {
    /// Which part of the answers has at most which confidence, by rising parts.
    #[serde(default = "certain")]
    pub confidence: Vec<RawConfidence>,
    /// The chance that it is right where the large model is.
    pub right_if_large_is: Part,
    /// The chance that it is right where the large model is not.
    pub right_if_large_is_not: Part,
}

fn certain() -> Vec<RawConfidence> {
    vec![RawConfidence {
        share: 1.0,
        confidence: 1.0,
    }]
}

/// A point of a distribution of confidences.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawConfidence {
    /// Which part of the answers has at most this confidence, from 0 to 1.
    pub share: f64,
    /// The confidence, from 0 to 1.
    pub confidence: f64,
}

/// How much goes at a degree of pruning.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawPruned {
    /// The degree of pruning, as a cascade's `reroute.prune` has it (Tabi's α, Eq. 5).
    pub degree: NotNegative,
    /// The share of the words that goes at this degree.
    pub words: Part,
    /// By what that lowers the accuracy of a model that reads what is left; of a table's models, the share of their
    /// right answers that turns wrong. Where it is left out nobody knows, and nothing is pruned to that degree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Part>,
}

/// What a weighted average brings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawKnownAverage {
    /// A weight for each model, as a cascade's `join.average` has them; their proportions count.
    pub weights: Vec<NotNegative>,
    /// By what it raises the accuracy of a model that is asked after another.
    pub gain: Part,
}
