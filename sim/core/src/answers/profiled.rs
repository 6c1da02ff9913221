//! Answers that trained models gave to labelled texts when they were profiled (Tabi, section 5).

use std::path::Path;

use tenantry_traces::Ticket;
use tenantry_traces::outcome::{ItemDraws, ProfiledModels, PruneStep, SavedOutputs};

use super::{AnswersError, Judge, TextLengths};
use crate::command::Returned;
use crate::event::Answer;
use crate::spec::{AnswerJoin, OrderSpec, RouteSpec, StageSpec};

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
        let mut stages = Vec::new();
        // Who took words away so far, and at which stage the last of them.
        let (mut steps, mut pruned_by) = (Vec::<PruneStep>::new(), 0);
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
            let pass = model.after(&steps).ok_or_else(|| AnswersError::Pruned {
                index,
                by: pruned_by,
                model: name.clone(),
                steps: steps.clone(),
                route: as_asked(route, index),
                known: model.prunings().map(<[PruneStep]>::to_vec).collect(),
            })?;
            stages.push(Stage::new(pass, &model.whole));
            // What this one leaves is what all after it read.
            if let Some(alpha) = prune_alpha(stage) {
                let by = name.clone();
                steps.push(PruneStep { by, alpha });
                pruned_by = index;
            }
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
        let asked: Vec<(usize, &[f32])> =
            returned.asked_stages().map(|stage| (stage, &self.stages[stage].outputs[item][..])).collect();
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

/// The degree to which a stage's attention prunes.
fn prune_alpha(stage: &StageSpec) -> Option<f64> {
    stage.dispatch?.prune_alpha.filter(|&alpha| alpha > 0.0)
}

/// The route up to a stage, as `tenantry cascade profile --route` takes it: `small=0.5,large`.
fn as_asked(route: &RouteSpec, until: usize) -> String {
    let stage = |(index, stage): (usize, &StageSpec)| match prune_alpha(stage).filter(|_| index < until) {
        Some(alpha) => format!("{}={alpha}", stage.pool.name),
        None => stage.pool.name.clone(),
    };
    let stages: Vec<String> = route.stages[..=until].iter().enumerate().map(stage).collect();
    stages.join(",")
}
