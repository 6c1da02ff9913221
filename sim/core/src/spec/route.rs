//! How requests go from model to model, as plain data.

use tenantry_cascade::Reroute;

use super::{PoolSpec, ScaleSpec};
use crate::op::Layers;

/// How requests go from model to model, and how their answers become one.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteSpec {
    /// The models in their order, at least one; the first is the system's own pool.
    pub stages: Vec<StageSpec>,
    /// When each is asked.
    pub order: OrderSpec,
    /// How several answers become one.
    pub join: AnswerJoin,
    /// Of the dispatcher's coins: the run's seed.
    pub seed: u64,
}

/// One model of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct StageSpec {
    /// Its instances.
    pub pool: PoolSpec,
    /// The cards that they run on, at least one; the pool's `instances_per_gpu` on each. Ignored where `continues`.
    pub gpus: Vec<u32>,
    /// Its layers. A stage that begins above layer 0 goes on with the hidden states of the stage before, on the same
    /// instances: an early exit between layers (DeeBERT).
    pub layers: Layers,
    /// Who is returned here and who goes on; nothing at the last stage, and where all are asked at once.
    pub dispatch: Option<DispatchSpec>,
    /// How many of its cards have the model, by this stage's own load; all, where nothing scales. Nothing where
    /// `continues`, and where the next stage does.
    pub scale: Option<ScaleSpec>,
    /// Instances of the model that a card runs at once before they slow each other down by more than a tenth
    /// (Cocktail's packing factor), where that is known. Reports reckon cost by it.
    pub packing: Option<f64>,
}

impl StageSpec {
    /// Whether it goes on where the stage before has ended.
    pub fn continues(&self) -> bool {
        self.layers.first > 0
    }
}

/// What a dispatcher does with an answer (Tabi, sections 4.1 and 4.2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DispatchSpec {
    /// By which chance the next model is asked.
    pub reroute: Reroute,
    /// Eq. 5's degree of pruning; nothing where the next model reads every word.
    pub prune_alpha: Option<f64>,
}

/// When the models of a route are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderSpec {
    /// One after the other, as long as the answer is not sure enough (Tabi).
    OneByOne,
    /// All at once; the request is answered when all have answered (Cocktail).
    AtOnce,
}

/// How several models' answers become one. It does not change what runs: machines and reports judge by it.
#[derive(Clone, Debug, PartialEq)]
pub enum AnswerJoin {
    /// The last model's is the answer.
    Last,
    /// The weighted average of the probabilities of all that were asked (Tabi, Eq. 6): a weight for each stage, of
    /// which only the proportions count.
    Average(Vec<f64>),
    /// A vote, with a weight for each stage (Cocktail).
    Vote(Vec<f64>),
}
