//! Answers drawn from tables or from a generator.
//!
//! Words are pruned to the share that is known for the dispatcher's degree, rounded by a draw so that the mean is
//! exact.

use tenantry_cascade::ensemble;
use tenantry_traces::Ticket;
use tenantry_traces::draw::{Draws, Purpose};
use tenantry_traces::outcome::{DrawnSpec, Outcome, OutcomeSource};

use super::AnswersError;
use crate::command::Returned;
use crate::event::Answer;
use crate::spec::{AnswerJoin, RouteSpec, StageSpec};

/// By which part a confidence may be below that of classes which are all alike.
const ROUNDING: f32 = 0.01;

/// Which of the draws about a request says which of classes that are as likely is answered; the others are of stages
/// and models.
const TIE: u64 = 2 << 32;

/// What is drawn for a route's models.
#[derive(Debug)]
pub(super) struct Drawn {
    source: OutcomeSource,
    stages: Vec<Stage>,
    join: AnswerJoin,
    /// By what an average raises the accuracy of a generator's model that is asked after another.
    average_gain: f64,
    draws: Draws,
}

#[derive(Clone, Copy, Debug)]
struct Stage {
    /// Among the source's.
    model: usize,
    /// Share of the words that the next model need not read, and what that costs it.
    pruned: Option<(f64, f64)>,
    classes: u32,
}

impl Drawn {
    pub fn new(spec: &DrawnSpec, route: &RouteSpec, seed: u64) -> Result<Drawn, AnswersError> {
        let source = OutcomeSource::new(&spec.outcomes, seed)?;
        let stage = |(index, stage): (usize, &StageSpec)| {
            let name = &stage.pool.name;
            let model = source.names().iter().position(|known| known == name);
            let alpha = stage.dispatch.and_then(|dispatch| dispatch.prune_alpha);
            Ok(Stage {
                model: model.ok_or_else(|| AnswersError::Model {
                    index,
                    model: name.clone(),
                    known: source.names().to_vec(),
                })?,
                pruned: match alpha {
                    None => None,
                    Some(alpha) => Some(spec.pruning(alpha).ok_or_else(|| {
                        let known = spec.pruned.iter().filter(|point| point.loss.is_some());
                        AnswersError::Pruning {
                            index,
                            alpha,
                            known: known.map(|point| point.degree).collect(),
                        }
                    })?),
                },
                // A single number is right or wrong.
                classes: stage.pool.classes.max(2),
            })
        };
        let stages = route.stages.iter().enumerate().map(stage).collect::<Result<Vec<Stage>, AnswersError>>()?;
        // Two numbers that are wrong are not the same, as two answers of two classes are.
        let of_numbers = route.stages.iter().any(|stage| stage.pool.classes == 1);
        if of_numbers && matches!(route.join, AnswerJoin::Vote(_)) {
            return Err(AnswersError::Vote);
        }
        let averages = matches!(route.join, AnswerJoin::Average(_)) && stages.len() > 1;
        if averages && source.is_of_chances() {
            return Err(AnswersError::Chances);
        }
        for index in 1..stages.len() {
            let reads_less = stages[..index].iter().any(|before| before.pruned.is_some());
            if (averages || reads_less) && source.is_small(stages[index].model) {
                let model = route.stages[index].pool.name.clone();
                return Err(AnswersError::Small { index, model });
            }
        }
        // What is wrong by a draw is one of the classes, and so a vote counts these too where it meets what a table's
        // models answered.
        let is_drawn = |stage: &Stage| stage.pruned.is_some() || source.has_unknown_answers(stage.model);
        let votes = matches!(route.join, AnswerJoin::Vote(_)) && stages.len() > 1;
        if !of_numbers && (averages || votes && stages.iter().any(is_drawn)) {
            let wrong = source.wrong_answers();
            if let Some(index) = stages.iter().position(|stage| wrong >= stage.classes) {
                return Err(AnswersError::Answers {
                    model: route.stages[index].pool.name.clone(),
                    classes: stages[index].classes,
                    wrong,
                });
            }
        }
        if averages {
            for (index, (stage, of)) in stages.iter().zip(&route.stages).enumerate() {
                let least = source.least_confidence(stage.model);
                // Confidences are rounded.
                if let Some(least) = least.filter(|least| least * stage.classes as f32 <= 1.0 - ROUNDING) {
                    return Err(AnswersError::Unsure {
                        index,
                        model: of.pool.name.clone(),
                        classes: stage.classes,
                        least,
                    });
                }
            }
        }
        let average_gain = match &route.join {
            AnswerJoin::Average(weights) if source.is_generated() && averages => {
                spec.average_gain(weights).ok_or_else(|| AnswersError::Average {
                    weights: weights.clone(),
                    known: spec.averages.iter().map(|known| known.weights.clone()).collect(),
                })?
            }
            _ => 0.0,
        };
        Ok(Drawn {
            source,
            stages,
            join: route.join.clone(),
            average_gain,
            draws: Draws::new(seed, Purpose::Answer),
        })
    }

    pub fn answer(&self, ticket: Ticket, stage: usize, tokens: u32) -> Answer {
        let Stage { model, pruned, .. } = self.stages[stage];
        let confidence = f64::from(self.source.of(ticket, model).confidence);
        Answer {
            confidence_ppm: (confidence * 1e6).round() as u32,
            next_tokens: match pruned {
                None => tokens,
                Some((share, _)) => {
                    let coin = self.draws.part(stage as u64).about(ticket).unit();
                    // Something must be left to be read.
                    ((f64::from(tokens) * (1.0 - share) + coin) as u32).clamp(1, tokens)
                }
            },
        }
    }

    pub fn is_right(&self, ticket: Ticket, returned: Returned) -> bool {
        let asked = returned.asked_stages();
        let last = usize::from(returned.stage);
        match &self.join {
            AnswerJoin::Last => self.outcome(ticket, last, 0.0).correct,
            AnswerJoin::Average(_) if self.source.is_generated() => {
                let gain = if last > 0 { self.average_gain } else { 0.0 };
                self.outcome(ticket, last, gain).correct
            }
            AnswerJoin::Average(weights) => {
                let classes = self.stages[last].classes as usize;
                let answered = |stage| {
                    let confidence = f64::from(self.outcome(ticket, stage, 0.0).confidence);
                    // Of the other classes' probabilities only the sum is known.
                    let each = (1.0 - confidence) / (classes - 1) as f64;
                    let mut probabilities = vec![each; classes];
                    // Of a number there is right and wrong.
                    probabilities[self.class(ticket, stage).min(classes - 1)] = confidence;
                    (weights[stage], probabilities)
                };
                let answered: Vec<(f64, Vec<f64>)> = asked.map(answered).collect();
                let asked = answered.iter().map(|(weight, of)| (*weight, of.as_slice()));
                let sums = ensemble::average(asked).expect("all have as many classes");
                // Of classes that are as likely, any: the right one has no name by which it would be the first.
                let most = sums.iter().copied().fold(0.0, f64::max);
                let likeliest = sums.iter().filter(|&&sum| sum == most).count() as u64;
                sums[0] == most && (likeliest == 1 || self.draws.part(TIE).about(ticket).below(likeliest) == 0)
            }
            AnswerJoin::Vote(weights) => {
                let votes: Vec<(usize, f64)> = asked.map(|stage| (self.class(ticket, stage), weights[stage])).collect();
                ensemble::vote(&votes) == Some(0)
            }
        }
    }

    /// A stage's outcome, with what the words that it did not read cost it, and a gain. Words that are gone are gone
    /// for all that come after, and each stage that prunes takes others: their losses add up.
    fn outcome(&self, ticket: u64, stage: usize, gain: f64) -> Outcome {
        let prunings = self.stages[..stage].iter().filter_map(|before| before.pruned);
        let loss = prunings.map(|(_, loss)| loss).sum();
        self.source.shifted(ticket, self.stages[stage].model, [gain, loss])
    }

    /// The class that a stage's model answers: 0 is the right one, and of the wrong ones that which a table has; where
    /// nobody says which, any, all alike and each model on its own.
    fn class(&self, ticket: u64, stage: usize) -> usize {
        let outcome = self.outcome(ticket, stage, 0.0);
        if outcome.correct {
            return 0;
        }
        if let Some(wrong) = outcome.wrong {
            return usize::from(wrong.get());
        }
        let wrong = u64::from(self.stages[stage].classes - 1);
        let part = (1 << 32) | self.stages[stage].model as u64;
        1 + self.draws.part(part).about(ticket).below(wrong) as usize
    }
}
