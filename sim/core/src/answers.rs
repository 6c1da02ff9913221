//! What the models of a route make of requests: revealed batch by batch as answers, judged when a request leaves.
//!
//! Nothing here depends on what was asked before: an answer is a function of the ticket and the model. Words are pruned to the share that is
//! known for the dispatcher's degree, rounded by a draw so that the mean is exact.

use crate::command::{Finish, Returned};
use crate::event::Answer;
use crate::ids::BatchId;
use crate::op::Member;
use crate::spec::{AnswerJoin, RouteSpec, SystemSpec};
use tenantry_cascade::ensemble;
use tenantry_traces::TraceError;
use tenantry_traces::draw::{Draws, Purpose};
use tenantry_traces::fit::quantiles;
use tenantry_traces::outcome::{AnswersSpec, Outcome, OutcomeSource};

/// Answers that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum AnswersError {
    /// The table of outcomes.
    #[error(transparent)]
    Outcomes(#[from] TraceError),
    /// A stage's model of which nothing is known.
    #[error("outcomes: must have the route's model {model}, got {known}")]
    Model {
        /// The model.
        model: String,
        /// Those that there are.
        known: String,
    },
    /// A dispatcher prunes, and nothing says how much.
    #[error("outcomes.pruned: must say which share of words goes at degree {alpha}, got nothing")]
    Pruning {
        /// Eq. 5's degree.
        alpha: f64,
    },
    /// Somebody must be told how sure a model is.
    #[error("system {system}: must have outcomes to decide by, got none: add `outcomes` to the scenario")]
    None {
        /// Whose dispatcher.
        system: String,
    },
}

/// The answers of one run.
#[derive(Debug)]
pub struct Answers {
    source: OutcomeSource,
    stages: Vec<Stage>,
    join: AnswerJoin,
    pruning_loss: f64,
    average_gain: f64,
    draws: Draws,
    /// By batch slot: ticket and tokens of its members.
    batches: Vec<Vec<(u64, u32)>>,
    /// Reused.
    revealed: Vec<Answer>,
}

#[derive(Clone, Copy, Debug)]
struct Stage {
    /// Among the source's.
    model: usize,
    /// Share of the words that the next model need not read.
    pruned: Option<f64>,
    classes: u32,
}

impl Answers {
    /// Those of a route's models, under a seed.
    ///
    /// # Errors
    /// Where a model or a share is not known, or the table cannot be read.
    pub fn new(spec: &AnswersSpec, route: &RouteSpec, seed: u64) -> Result<Answers, AnswersError> {
        let source = OutcomeSource::new(&spec.outcomes, seed)?;
        let stage = |stage: &crate::spec::StageSpec| {
            let name = &stage.pool.name;
            let model = source.names().iter().position(|known| known == name);
            let alpha = stage.dispatch.and_then(|dispatch| dispatch.prune_alpha);
            Ok(Stage {
                model: model.ok_or_else(|| AnswersError::Model {
                    model: name.clone(),
                    known: source.names().join(", "),
                })?,
                pruned: match alpha {
                    Some(alpha) if spec.pruned.is_empty() => return Err(AnswersError::Pruning { alpha }),
                    alpha => alpha.map(|alpha| quantiles::value_at(&spec.pruned, alpha)),
                },
                classes: stage.pool.classes,
            })
        };
        let stages = route.stages.iter().map(stage).collect::<Result<_, AnswersError>>()?;
        Ok(Answers {
            source,
            stages,
            join: route.join.clone(),
            pruning_loss: spec.pruning_loss,
            average_gain: spec.average_gain,
            draws: Draws::new(seed, Purpose::Answer),
            batches: Vec::new(),
            revealed: Vec::new(),
        })
    }

    /// Those that a system's route needs; nothing without a route, or where nobody decides by them and none are known. `known` goes with the
    /// seed.
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
        let Stage { model, pruned, .. } = self.stages[stage];
        self.revealed.clear();
        for &(ticket, tokens) in &self.batches[batch.slot as usize] {
            let confidence = f64::from(self.source.of(ticket, model).confidence);
            let next_tokens = match pruned {
                None => tokens,
                Some(share) => {
                    let coin = self.draws.part(stage as u64).about(ticket).unit();
                    // Something must be left to be read.
                    ((f64::from(tokens) * (1.0 - share) + coin) as u32).clamp(1, tokens)
                }
            };
            self.revealed.push(Answer {
                confidence_ppm: (confidence * 1e6).round() as u32,
                next_tokens,
            });
        }
    }

    /// Whether the joined answer to a request is right, where it was answered.
    pub fn is_right(&self, finish: &Finish) -> Option<bool> {
        let Returned { stage, asked } = finish.returned?;
        let asked = (0..self.stages.len()).filter(|stage| asked & 1 << stage != 0);
        let last = usize::from(stage);
        Some(match &self.join {
            AnswerJoin::Last => self.outcome(finish.ticket, last, 0.0).correct,
            AnswerJoin::Average(weights) if self.source.is_generated() => {
                let gain = if weights.len() > 1 && last > 0 {
                    self.average_gain
                } else {
                    0.0
                };
                self.outcome(finish.ticket, last, gain).correct
            }
            AnswerJoin::Average(weights) => {
                let classes = self.stages[last].classes as usize;
                let mut sums = vec![0.0; classes];
                for stage in asked {
                    let confidence = f64::from(self.outcome(finish.ticket, stage, 0.0).confidence);
                    let class = self.class(finish.ticket, stage);
                    // Of the other classes' probabilities only the sum is known.
                    let each = (1.0 - confidence) / (classes - 1).max(1) as f64;
                    for (other, sum) in sums.iter_mut().enumerate() {
                        *sum += weights[stage] * if other == class { confidence } else { each };
                    }
                }
                ensemble::likeliest(&sums) == 0
            }
            AnswerJoin::Vote(weights) => {
                let votes: Vec<(usize, f64)> = asked
                    .map(|stage| (self.class(finish.ticket, stage), weights[stage]))
                    .collect();
                ensemble::vote(&votes) == Some(0)
            }
        })
    }

    /// A stage's outcome, with what the words that it did not read cost it, and a gain.
    fn outcome(&self, ticket: u64, stage: usize, gain: f64) -> Outcome {
        let pruned = stage > 0 && self.stages[stage - 1].pruned.is_some();
        let loss = if pruned { self.pruning_loss } else { 0.0 };
        self.source.shifted(ticket, self.stages[stage].model, gain - loss)
    }

    /// The class that a stage's model answers: 0 is the right one, and of the wrong ones any, all alike and each model on its own.
    fn class(&self, ticket: u64, stage: usize) -> usize {
        if self.outcome(ticket, stage, 0.0).correct {
            return 0;
        }
        let wrong = u64::from(self.stages[stage].classes.max(2) - 1);
        let part = (1 << 32) | self.stages[stage].model as u64;
        1 + self.draws.part(part).about(ticket).below(wrong) as usize
    }
}
