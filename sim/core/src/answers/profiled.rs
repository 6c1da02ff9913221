//! Answers that trained models gave to labelled texts when they were profiled (Tabi, section 5).

use std::path::Path;

use tenantry_traces::Ticket;
use tenantry_traces::outcome::{ItemDraws, ProfiledModels, SavedOutputs};

use super::{AnswersError, Judge, TextLengths};
use crate::command::Returned;
use crate::event::Answer;
use crate::spec::{AnswerJoin, OrderSpec, RouteSpec};

/// What was saved of a route's models.
#[derive(Debug)]
pub(super) struct Profiled {
    items: ItemDraws,
    labels: Vec<f32>,
    stages: Vec<Stage>,
    judge: Judge,
    /// Whether an answer goes to the next stage, and not all are asked at once.
    one_by_one: bool,
}

/// What a stage's model makes of the texts as they come to it.
#[derive(Debug)]
struct Stage {
    outputs: Vec<Vec<f32>>,
    confidences: Vec<f32>,
    tokens: Vec<u32>,
    /// Before any word was pruned.
    whole_tokens: Vec<u32>,
}

impl Profiled {
    pub fn new(folder: &Path, route: &RouteSpec, seed: u64) -> Result<Profiled, AnswersError> {
        let models = ProfiledModels::read(folder)?;
        let prunes = |stage: usize| {
            let dispatch = route.stages.get(stage).and_then(|stage| stage.dispatch);
            dispatch
                .and_then(|dispatch| dispatch.prune_alpha)
                .filter(|&alpha| alpha > 0.0)
        };
        let mut stages = Vec::new();
        for (index, stage) in route.stages.iter().enumerate() {
            let name = &stage.pool.name;
            let model = models.find(name).ok_or_else(|| AnswersError::Model {
                index,
                model: name.clone(),
                known: models.names().into_iter().map(str::to_owned).collect(),
            })?;
            let must = model.whole.outputs();
            if stage.pool.classes as usize != must {
                return Err(AnswersError::Classes {
                    index,
                    model: name.clone(),
                    must,
                    got: stage.pool.classes,
                });
            }
            if let (1.., Some(alpha)) = (index, prunes(index)) {
                return Err(AnswersError::PrunedAgain {
                    index,
                    model: name.clone(),
                    alpha,
                });
            }
            let alpha = prunes(0).filter(|_| index > 0);
            let pass = model.at(alpha).ok_or_else(|| AnswersError::Degree {
                index,
                model: name.clone(),
                alpha: alpha.unwrap_or(0.0),
                known: degrees(model.degrees()),
            })?;
            stages.push(Stage::new(pass, &model.whole));
        }
        let tolerance = models.models[0].whole.calibration.tolerance();
        if tolerance.is_some() && matches!(route.join, AnswerJoin::Vote(_)) {
            return Err(AnswersError::Vote);
        }
        Ok(Profiled {
            items: ItemDraws::new(seed, models.labels().len()),
            labels: models.labels().to_vec(),
            stages,
            judge: Judge::new(route.join.clone(), tolerance),
            one_by_one: route.order == OrderSpec::OneByOne,
        })
    }

    pub fn text_lengths(&self) -> TextLengths {
        TextLengths {
            items: self.items,
            tokens: self.stages.iter().map(|stage| stage.whole_tokens.clone()).collect(),
        }
    }

    pub fn answer(&self, ticket: Ticket, stage: usize, tokens: u32) -> Answer {
        let item = self.items.of(ticket);
        let next = self.stages.get(stage + 1).filter(|_| self.one_by_one);
        Answer {
            confidence_ppm: (f64::from(self.stages[stage].confidences[item]) * 1e6).round() as u32,
            next_tokens: next.map_or(tokens, |next| next.tokens[item]),
        }
    }

    pub fn is_right(&self, ticket: Ticket, returned: Returned) -> bool {
        let item = self.items.of(ticket);
        let asked: Vec<(usize, &[f32])> = returned
            .asked_stages()
            .map(|stage| (stage, &self.stages[stage].outputs[item][..]))
            .collect();
        self.judge.is_right(&asked, self.labels[item].into())
    }
}

impl Stage {
    fn new(pass: &SavedOutputs, whole: &SavedOutputs) -> Stage {
        Stage {
            outputs: pass.softmax.clone(),
            confidences: pass.confidences.clone(),
            tokens: pass.input_tokens.clone(),
            whole_tokens: whole.input_tokens.clone(),
        }
    }
}

fn degrees(known: impl Iterator<Item = f64>) -> String {
    let known: Vec<String> = known.map(|alpha| alpha.to_string()).collect();
    if known.is_empty() {
        "none".into()
    } else {
        known.join(", ")
    }
}
