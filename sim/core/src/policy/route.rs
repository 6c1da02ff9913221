//! Which models a request is sent to: at its arrival, and again with each answer.

use tenantry_cascade::Reroute;
use tenantry_traces::outcome::DispatchCoins;

use crate::spec::{OrderSpec, RouteSpec};

/// An answer, as a route sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Key of the request's coins.
    pub ticket: u64,
    /// Which model's.
    pub stage: usize,
    /// In parts of a million.
    pub confidence_ppm: u32,
    /// Models that were asked and have not answered.
    pub outstanding: u32,
}

/// What becomes of a request that a model has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStage {
    /// The answer is returned: that of the model at this stage, or what comes of joining it with those that were asked
    /// too.
    Return(usize),
    /// That stage's model is asked too.
    Ask(usize),
    /// Other answers are still to come.
    Wait,
}

/// Chooses models.
pub trait Route: Send + Sync + std::fmt::Debug {
    /// How many stages, from the first, a new request is sent to.
    fn asked_first(&self) -> usize;

    /// What becomes of a request that a model has answered.
    fn next(&self, answered: Answered) -> NextStage;
}

/// From a small model to larger ones, by chance and confidence (Tabi, Eq. 4). With one stage, a single model.
#[derive(Debug)]
struct OneByOne {
    /// Of each stage but the last.
    dispatchers: Vec<Reroute>,
    coins: DispatchCoins,
}

impl Route for OneByOne {
    fn asked_first(&self) -> usize {
        1
    }

    fn next(&self, answered: Answered) -> NextStage {
        let Some(reroute) = self.dispatchers.get(answered.stage) else {
            return NextStage::Return(answered.stage);
        };
        let confidence = f64::from(answered.confidence_ppm) / 1e6;
        let coin = self.coins.of(answered.ticket, answered.stage as u32);
        match reroute.asks_next(confidence, coin) {
            true => NextStage::Ask(answered.stage + 1),
            false => NextStage::Return(answered.stage),
        }
    }
}

/// All models at once (Cocktail).
#[derive(Debug)]
struct AtOnce {
    stages: usize,
}

impl Route for AtOnce {
    fn asked_first(&self) -> usize {
        self.stages
    }

    fn next(&self, answered: Answered) -> NextStage {
        match answered.outstanding {
            // Whoever is done last, it is the last model's.
            0 => NextStage::Return(self.stages - 1),
            _ => NextStage::Wait,
        }
    }
}

/// The policy that a spec names.
pub fn build(spec: &RouteSpec) -> Box<dyn Route> {
    match spec.order {
        OrderSpec::OneByOne => Box::new(OneByOne {
            dispatchers: spec.stages.iter().map_while(|stage| Some(stage.dispatch?.reroute)).collect(),
            coins: DispatchCoins::new(spec.seed),
        }),
        OrderSpec::AtOnce => Box::new(AtOnce {
            stages: spec.stages.len(),
        }),
    }
}
