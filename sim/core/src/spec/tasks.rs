//! Parameter-efficient tasks over shared models, and the systems that serve them (PetS).

use std::collections::BTreeSet;

use tenantry_profiles::{ModelShape, PetKind, PoolBatching};
use tenantry_traces::Duration;

use crate::command::TaskFault;
use crate::pet::work::{PetSizes, merges};
use crate::policy::coordinated::Batching;

/// Tasks that are registered with a pool, each tenant's its own, and how they are served. The pool's model is the first
/// shared model; what it says of batches, padding, pipeline, swapping and tenants' state is not used.
#[derive(Clone, Debug, PartialEq)]
pub struct TasksSpec {
    /// What registrations call the pool's own model.
    pub model: String,
    /// Shared models beside it, each with weights of its own.
    pub more_models: Vec<SharedModel>,
    /// In the order in which they come. Tenants without one are unknown to the system.
    pub registrations: Vec<Registration>,
    /// Of the tasks' parameters.
    pub sizes: PetSizes,
    /// What runs a batch.
    pub engine: EngineSpec,
    /// The most queries of a batch; activations for so many of `max_tokens` are kept free on the card, or for fewer
    /// where they do not fit, at least one.
    pub max_batch: u32,
    /// The longest query that is let in, in tokens.
    pub max_tokens: u32,
    /// When the waiting queries are split into batches.
    pub planning: PlanningSpec,
}

/// A shared model. Two of them may have one shape, whose costs are then the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedModel {
    /// What registrations call it.
    pub name: String,
    /// Its shape, under whose name profiles list its costs.
    pub shape: ModelShape,
}

/// A developer hands a task in (PetS, section 3.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Where it is written, as errors say it: `pets.yaml: systems[0].tasks.registrations[2]`.
    pub at: String,
    /// The task, by its tenant.
    pub task: u32,
    /// The shared model's name.
    pub model: String,
    /// The kind's name.
    pub kind: String,
    /// The shape of the model that the parameters were trained on; that of the shared model where it is not said.
    pub trained_on: Option<ModelShape>,
    /// Elements of the mask over all weights, for kinds that have one; as many as weights where it is not said.
    pub mask_elements: Option<u64>,
    /// What holds its parameters; random ones of the pool's sizes where nothing does.
    pub file: Option<TaskFile>,
}

impl Registration {
    /// What says the task's kind and model: its file, or else the scenario.
    pub fn place(&self) -> &str {
        self.file.as_ref().map_or(&self.at, |file| &file.path)
    }
}

/// A file that holds a task's parameters, and what whoever has read it found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskFile {
    /// Where it is.
    pub path: String,
    /// What the parameters take on the card: of no use where the kind or the model is not known.
    pub resident_bytes: Option<u64>,
    /// Whether it holds a pooler too.
    pub pooled: bool,
    /// What is wrong with it, and why.
    pub fault: Option<(TaskFault, String)>,
}

/// What runs a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EngineSpec {
    /// The shared model once for the whole batch, and each task's operators over its mini-batches (PetS).
    Shared {
        /// How waiting queries are split into batches.
        batching: Batching,
        /// Streams that a layer's operators run on.
        streams: StreamsSpec,
    },
    /// A full model of each task, one after another (PetS, section 6.2, SeqS).
    Sequential {
        /// What each is.
        models: FullModels,
    },
    /// A full model of each task, side by side (ParS).
    Parallel {
        /// What each is.
        models: FullModels,
        /// Models that compute at once on a card, at most; a task stays with its stream.
        streams: u32,
    },
}

impl EngineSpec {
    /// What each task's full model is, where each has one.
    pub fn full_models(&self) -> Option<FullModels> {
        match *self {
            EngineSpec::Shared { .. } => None,
            EngineSpec::Sequential { models } | EngineSpec::Parallel { models, .. } => Some(models),
        }
    }

    /// Whether a task of this kind has operators beside the model that it is computed with.
    pub fn has_operators(&self, kind: PetKind) -> bool {
        match self.full_models() {
            None => true,
            Some(models) => models.fine_tuned == FineTuned::ByKind && !merges(kind),
        }
    }

    /// The kinds of registered tasks that have such operators.
    pub fn kinds_with_operators(&self, registrations: &[Registration]) -> Vec<PetKind> {
        let asked = |kind: &PetKind| registrations.iter().any(|of| of.kind == kind.name()) && self.has_operators(*kind);
        PetKind::ALL.iter().copied().filter(asked).collect()
    }
}

/// What a task's full model is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FullModels {
    /// Whether each has an embedding of its own, or all of one shared model use its.
    pub own_embeddings: bool,
    /// How they came from the shared model.
    pub fine_tuned: FineTuned,
}

/// How a task's full model came from the shared one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FineTuned {
    /// By the task's parameters merged in; those of a kind that does not merge stay beside it.
    ByKind,
    /// As a whole: whatever the task's kind, it is of the shared model's shape, and nothing is beside it.
    AsAWhole,
}

/// Streams that a layer's operators run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamsSpec {
    /// As many as take the least time by the card's profile, by operational intensity (Algorithm 2).
    ByProfile {
        /// The most of them.
        many: u32,
    },
    /// So many, by operational intensity.
    Fixed {
        /// At least 1.
        count: u32,
    },
    /// So many, by operational intensity, each with as much of the time as the others rather than as many operators.
    Even {
        /// At least 1.
        count: u32,
    },
    /// So many, one task after the other, whatever its operators need: what sorting them is worth.
    InTurn {
        /// At least 1.
        count: u32,
    },
    /// One for each task: what Algorithm 2 is compared with.
    OneEach,
}

/// When the waiting queries are split into batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanningSpec {
    /// When so many wait, or the oldest has waited for so long; the batches then run to their end (PetS, section 6.4).
    Pool {
        /// Queries of a pool, at least 1.
        size: u32,
        /// Nothing waits for ever where it is given.
        max_wait: Option<Duration>,
    },
    /// Afresh for each batch, over what waits ([`crate::policy::urgency`]); the batch with the earliest deadline runs.
    /// A fixed size and the baselines take what waits as it came.
    Online {
        /// Of those that wait so many are looked at.
        window: u32,
        /// From arrival to answer, by service class; the last holds for the classes beyond.
        targets: Vec<Duration>,
    },
}

impl TasksSpec {
    /// Whether waiting queries are split into batches of many tasks: the baselines only take what each task has.
    pub fn plans(&self) -> bool {
        matches!(self.engine, EngineSpec::Shared { .. })
    }

    /// The most queries that a batch can have, if memory allows: no more than are looked at together.
    pub fn largest_batch(&self) -> u32 {
        let pool = match self.planning {
            PlanningSpec::Pool { size, .. } => size,
            PlanningSpec::Online { window, .. } => window,
        };
        let fixed = match self.engine {
            EngineSpec::Shared {
                batching: Batching::Fixed { size },
                ..
            } => size,
            _ => u32::MAX,
        };
        self.max_batch.min(pool).min(fixed)
    }

    /// The rules by which pools may be split.
    pub fn batchings(&self) -> &'static [PoolBatching] {
        match self.engine {
            EngineSpec::Shared { batching, .. } => match batching {
                Batching::Fixed { .. } => &[PoolBatching::Fixed],
                Batching::AlphaOnly => &[PoolBatching::AlphaOnly],
                Batching::BetaOnly => &[PoolBatching::BetaOnly],
                Batching::Coordinated => &[PoolBatching::Coordinated],
                Batching::ByVariance { .. } | Batching::Cheaper => {
                    &[PoolBatching::AlphaOnly, PoolBatching::Coordinated]
                }
            },
            EngineSpec::Sequential { .. } | EngineSpec::Parallel { .. } => &[],
        }
    }

    /// Batches that compute on a card at once: of tasks side by side, no more than there are.
    pub fn batches_at_once(&self) -> u32 {
        match self.engine {
            EngineSpec::Parallel { streams, .. } => {
                let tasks: BTreeSet<u32> = self.registrations.iter().map(|registration| registration.task).collect();
                streams.min(tasks.len().max(1) as u32)
            }
            EngineSpec::Shared { .. } | EngineSpec::Sequential { .. } => 1,
        }
    }

    /// Streams that a batch's operators may be put on, as far as that is known beforehand: where each has one of its
    /// own, batches tell.
    pub fn known_streams(&self) -> u32 {
        let EngineSpec::Shared { streams, .. } = self.engine else {
            return 1;
        };
        match streams {
            StreamsSpec::ByProfile { many: most }
            | StreamsSpec::Fixed { count: most }
            | StreamsSpec::Even { count: most }
            | StreamsSpec::InTurn { count: most } => most.clamp(1, self.max_batch.max(1)),
            StreamsSpec::OneEach => 1,
        }
    }

    /// The shapes of all shared models, of a pool whose own is `first`.
    pub fn models<'a>(&'a self, first: &'a ModelShape) -> impl Iterator<Item = &'a ModelShape> {
        self.named_models(first).map(|(_, shape)| shape)
    }

    /// The same with their names.
    pub fn named_models<'a>(&'a self, first: &'a ModelShape) -> impl Iterator<Item = (&'a str, &'a ModelShape)> {
        let more = self.more_models.iter().map(|model| (model.name.as_str(), &model.shape));
        std::iter::once((self.model.as_str(), first)).chain(more)
    }
}
