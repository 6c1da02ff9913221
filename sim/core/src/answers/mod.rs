//! What the models of a route make of requests: revealed batch by batch as answers, judged when a request leaves.
//!
//! Nothing here depends on what was asked before: an answer is a function of the ticket and the model. Answers are
//! [`drawn`] from tables or generators, or are what trained models made of labelled texts when they were [`profiled`];
//! a machine that has those models asks them instead, and only [`judges`](Judge) by what is here.

mod drawn;
mod judge;
mod profiled;

use tenantry_traces::TraceError;
use tenantry_traces::outcome::{AnswersSpec, ItemDraws, PruneStep};

use self::drawn::Drawn;
use self::profiled::Profiled;
use crate::command::Finish;
use crate::event::Answer;
use crate::ids::BatchId;
use crate::op::Member;
use crate::policy::route::{self, Answered, NextStage, Route};
use crate::spec::{RouteSpec, StageSpec, SystemSpec};

pub use self::judge::Judge;

/// Answers that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum AnswersError {
    /// The table of outcomes, or what was saved of models.
    #[error(transparent)]
    Outcomes(#[from] TraceError),
    /// A stage's model of which nothing is known.
    #[error("outcomes: must have the route's model {model}, got {}", known.join(", "))]
    Model {
        /// The stage.
        index: usize,
        /// Its model.
        model: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// A dispatcher prunes, and nothing says how much or what that costs.
    #[error(
        "outcomes.pruned: must say how many words go at degree {alpha} and what that costs, got that of degrees \
         {known:?}"
    )]
    Pruning {
        /// The stage.
        index: usize,
        /// Eq. 5's degree.
        alpha: f64,
        /// Degrees of which it is known.
        known: Vec<f64>,
    },
    /// A generator knows what some averages bring, and not this one.
    #[error("outcomes.averages: must say what an average by {weights:?} brings, got that of {known:?}")]
    Average {
        /// Eq. 6's weights.
        weights: Vec<f64>,
        /// Those of which it is known.
        known: Vec<Vec<f64>>,
    },
    /// Attention prunes words, and a later model was not profiled on what that leaves.
    #[error(
        "outcomes: must have what {model} makes of words pruned by {}, got {}; `tenantry cascade profile --route \
         {route}` measures it",
        described(steps),
        described_all(known)
    )]
    Pruned {
        /// The stage that reads what is left.
        index: usize,
        /// The last one before it that prunes.
        by: usize,
        /// The model of the one that reads.
        model: String,
        /// Which models' attention took words away before it, and to which degrees.
        steps: Vec<PruneStep>,
        /// The route's models and degrees, as the command takes them.
        route: String,
        /// How the items were pruned that it was profiled on.
        known: Vec<Vec<PruneStep>>,
    },
    /// A stage's head has another number of classes than its model.
    #[error("stage {model}: classes must be {must}, as the profiled model has, got {got}")]
    Classes {
        /// The stage.
        index: usize,
        /// Its model.
        model: String,
        /// What that puts out.
        must: usize,
        /// What the stage says.
        got: u32,
    },
    /// Probabilities are averaged, and a model is less sure of its answer than the likeliest of so many classes can be.
    #[error("stage {model}: must be sure by 1 / {classes} classes at least, got {least}")]
    Unsure {
        /// The stage.
        index: usize,
        /// Its model.
        model: String,
        /// What its head puts out.
        classes: u32,
        /// Its least confidence.
        least: f32,
    },
    /// Answers are averaged, or some of them drawn and put to a vote, of fewer classes than models have answers.
    #[error(
        "stage {model}: classes must be {} at least, since models give {wrong} different wrong answers to one item, got \
         {classes}",
        wrong + 1
    )]
    Answers {
        /// A stage's model.
        model: String,
        /// What its head puts out.
        classes: u32,
        /// Different wrong answers to one item, at most.
        wrong: u32,
    },
    /// Chances are averaged.
    #[error("join: must be last or a vote, since a chance of being right is no probability of the answer, got average")]
    Chances,
    /// A generator's small model comes after a stage that prunes, or is averaged with others.
    #[error(
        "stage {model}: must come first where words are pruned or answers averaged, since a generator's small model is \
         nothing but what it is alone"
    )]
    Small {
        /// The stage.
        index: usize,
        /// The model.
        model: String,
    },
    /// Numbers have no majority.
    #[error("join: must be last or average, since these models answer numbers, got vote")]
    Vote,
    /// Somebody must be told how sure a model is.
    #[error("system {system}: must have outcomes to decide by, got none: add `outcomes` to the scenario")]
    None {
        /// Whose dispatcher.
        system: String,
    },
}

/// `small at 0.5, then middle at 0.3`.
pub fn described(steps: &[PruneStep]) -> String {
    let steps: Vec<String> = steps.iter().map(PruneStep::to_string).collect();
    steps.join(", then ")
}

/// How items were pruned, way by way.
pub fn described_all(ways: &[Vec<PruneStep>]) -> String {
    let ways: Vec<String> = ways.iter().map(|steps| described(steps)).collect();
    match ways.is_empty() {
        true => "whole ones only".into(),
        false => ways.join("; "),
    }
}

/// The answers of one run.
#[derive(Debug)]
pub struct Answers {
    known: Known,
    /// Who goes on, as the dispatcher decides.
    route: Box<dyn Route>,
    /// By stage: whether words are pruned of what goes on.
    prunes: Vec<bool>,
    /// By batch slot: ticket and tokens of its members.
    batches: Vec<Vec<(u64, u32)>>,
    /// Reused.
    revealed: Vec<Answer>,
}

#[derive(Debug)]
enum Known {
    Drawn(Drawn),
    Profiled(Profiled),
}

impl Known {
    fn answer(&self, ticket: u64, stage: usize, tokens: u32) -> Answer {
        match self {
            Known::Drawn(drawn) => drawn.answer(ticket, stage, tokens),
            Known::Profiled(profiled) => profiled.answer(ticket, stage, tokens),
        }
    }
}

impl Answers {
    /// Those of a route's models, under a seed.
    ///
    /// # Errors
    /// Where a model or a share is not known, or what is known cannot be read.
    pub fn new(spec: &AnswersSpec, route: &RouteSpec, seed: u64) -> Result<Answers, AnswersError> {
        let known = match spec {
            AnswersSpec::Drawn(spec) => Known::Drawn(Drawn::new(spec, route, seed)?),
            AnswersSpec::Profiled(folder) => Known::Profiled(Profiled::new(folder, route, seed)?),
        };
        let prunes = |stage: &StageSpec| {
            let alpha = stage.dispatch.and_then(|dispatch| dispatch.prune_alpha);
            alpha.is_some_and(|alpha| alpha > 0.0)
        };
        Ok(Answers {
            known,
            route: route::build(route),
            prunes: route.stages.iter().map(prunes).collect(),
            batches: Vec::new(),
            revealed: Vec::new(),
        })
    }

    /// Those that a system's route needs; nothing without a route, or where nobody decides by them and none are known.
    /// `known` goes with the seed.
    ///
    /// # Errors
    /// As [`Answers::new`], and where a dispatcher has nothing to decide by.
    pub fn of_system(system: &SystemSpec, known: Option<(&AnswersSpec, u64)>) -> Result<Option<Answers>, AnswersError> {
        let Some(route) = &system.route else {
            return Ok(None);
        };
        match known {
            Some((known, seed)) => Answers::new(known, route, seed).map(Some),
            None if route.stages.iter().all(|stage| stage.dispatch.is_none()) => Ok(None),
            None => Err(AnswersError::None {
                system: system.name.clone(),
            }),
        }
    }

    /// How long each request is for each stage, where that follows from the text that it is about.
    pub fn text_lengths(&self) -> Option<TextLengths> {
        match &self.known {
            Known::Drawn(_) => None,
            Known::Profiled(profiled) => Some(profiled.text_lengths()),
        }
    }

    /// Remembers whom a batch is about.
    pub fn submitted(&mut self, batch: BatchId, members: &[Member]) {
        let slot = batch.slot as usize;
        if slot >= self.batches.len() {
            self.batches.resize_with(slot + 1, Vec::new);
        }
        let about = &mut self.batches[slot];
        about.clear();
        about.extend(members.iter().map(|member| (member.ticket, member.input_tokens)));
    }

    /// The answers revealed last.
    pub fn revealed(&self) -> &[Answer] {
        &self.revealed
    }

    /// Reveals what a stage's model makes of a batch.
    pub fn reveal(&mut self, batch: BatchId, stage: usize) {
        self.revealed.clear();
        for &(ticket, tokens) in &self.batches[batch.slot as usize] {
            self.revealed.push(self.known.answer(ticket, stage, tokens));
        }
    }

    /// Of how many requests of a batch words are pruned after a stage: those that go on from one that prunes.
    pub fn pruned(&self, batch: BatchId, stage: usize) -> u32 {
        if !self.prunes[stage] {
            return 0;
        }
        let goes_on = |&&(ticket, tokens): &&(u64, u32)| {
            let answered = Answered {
                ticket,
                stage,
                confidence_ppm: self.known.answer(ticket, stage, tokens).confidence_ppm,
                outstanding: 0,
            };
            matches!(self.route.next(answered), NextStage::Ask(_))
        };
        self.batches[batch.slot as usize].iter().filter(goes_on).count() as u32
    }

    /// Whether the joined answer to a request is right, where it was answered.
    pub fn is_right(&self, finish: &Finish) -> Option<bool> {
        let returned = finish.returned?;
        Some(match &self.known {
            Known::Drawn(drawn) => drawn.is_right(finish.ticket, returned),
            Known::Profiled(profiled) => profiled.is_right(finish.ticket, returned),
        })
    }
}

/// How long requests are that are about texts, as each stage's tokenizer counts them at the door.
#[derive(Clone, Debug)]
pub struct TextLengths {
    /// Which text a request is about.
    pub items: ItemDraws,
    /// By stage and text.
    pub tokens: Vec<Vec<u32>>,
}

impl TextLengths {
    /// Tokens that a stage's model has to read of a request, words that may be pruned too.
    pub fn of(&self, ticket: u64, stage: usize) -> u32 {
        self.tokens[stage][self.items.of(ticket)]
    }
}
