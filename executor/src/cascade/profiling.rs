//! The offline pass over a repository of models (Tabi, section 5): each model once on whole items, and each but the
//! first again on items that are pruned more and more; and what routes need that prune more than once.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use tenantry_cascade::CascadeError;
use tenantry_traces::outcome::{PruneStep, SavedPruning};

use super::items::{Item, Label};
use super::live::TextModel;
use super::outputs::{Calibration, CalibrationMethod, Outputs, Source};
use super::text::Texts;
use crate::error::ExecutorError;

/// The degrees of pruning that are tried, in tenths: from 0.5 up by 0.1.
const ALPHA_TENTHS: std::ops::RangeInclusive<u32> = 5..=20;
/// Pruning goes on until a model loses more accuracy than this.
const ACCURACY_LOSS_MAX: f64 = 0.02;

/// What was measured of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct Profiled {
    /// On whole items.
    pub whole: Outputs,
    /// On pruned ones, in the order in which they were asked for; of those by the first model's attention, the last may
    /// have lost too much.
    pub pruned: Vec<Outputs>,
}

/// Models in the order in which they are asked, each but the last with the degree to which its attention prunes what
/// those after it read.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileRoute {
    /// Names and degrees; 0 where a model prunes nothing.
    pub levels: Vec<(String, f64)>,
}

/// A calibration, and what it was fitted to.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// How confidence is read.
    pub calibration: Calibration,
    /// A hash of the items.
    pub items_hash: String,
}

/// What models are profiled on, and how.
#[derive(Clone, Copy, Debug)]
pub struct ProfileItems<'a> {
    /// The items.
    pub items: &'a [Item],
    /// Their file.
    pub path: &'a Path,
    /// A hash of it.
    pub hash: &'a str,
    /// What is fitted to them where classes are answered.
    pub method: CalibrationMethod,
    /// How far off the right answer of a regression may be.
    pub tolerance: f64,
    /// Each model's calibration, by name, where it was fitted to other items; else it is fitted to these.
    pub calibrations: Option<&'a BTreeMap<String, Fitted>>,
    /// Routes whose models are profiled on what each of them comes to read, beside the degrees of the search.
    pub routes: &'a [ProfileRoute],
    /// Of an earlier run that was stopped, with the same models and items: what it made is not measured again.
    pub kept: &'a [Outputs],
}

/// Hears of each pass over the items.
pub struct PassHeard<'a> {
    /// A model, by its name, begins to read items that were pruned so.
    pub begins: &'a mut dyn FnMut(&str, &[PruneStep]),
    /// It has read all of them: what it made of them, to be kept for a later run. Nothing was fitted to those of whole
    /// items yet, unless calibrations are given.
    pub ends: &'a mut dyn FnMut(&Outputs) -> Result<(), ExecutorError>,
    /// A calibration begins to be fitted to what the model, by its name, made of the whole items.
    pub fits: &'a mut dyn FnMut(&str),
}

/// Runs `models`, in ascending order of cost, over items, one item at a time. Words are pruned by the attention of the
/// first model, which stands for the efficient ones, until a model loses too much; and along each of the routes by the
/// models that these name. Once `interrupt` is set it ends with the item, or the step of a fit.
///
/// # Errors
/// Models that answer different questions, labels that they do not have, texts that a tokenizer does not take, a
/// calibration that is missing, routes of other models, what `heard` cannot keep, or an interruption.
pub fn profile<'a>(
    models: &'a [TextModel],
    asked: ProfileItems<'a>,
    interrupt: &'a AtomicBool,
    heard: PassHeard<'a>,
) -> Result<Vec<Profiled>, ExecutorError> {
    for model in models {
        model.check_answers_as(&models[0])?;
    }
    // What a tokenizer does not take is told before anything is measured.
    for model in models {
        for (number, item) in asked.items.iter().enumerate() {
            model.encode(&item.texts).map_err(|error| error.of_item(number))?;
        }
    }
    let mut pass = OfflinePass {
        models,
        asked,
        labels: asked.items.iter().map(|item| item.label).collect(),
        texts: vec![(Vec::new(), asked.items.iter().map(|item| item.texts.clone()).collect())],
        interrupt,
        heard,
        done: Vec::new(),
    };
    for route in asked.routes {
        pass.check(route)?;
    }
    for model in 0..models.len() {
        pass.outputs(model, &[])?;
        pass.search(model)?;
    }
    for route in asked.routes {
        pass.along(route)?;
    }
    Ok(pass.done)
}

/// Passes over the items, each made once.
struct OfflinePass<'a> {
    models: &'a [TextModel],
    asked: ProfileItems<'a>,
    labels: Vec<Label>,
    /// The items as they were pruned, the whole ones first.
    texts: Vec<(Vec<PruneStep>, Vec<Texts>)>,
    interrupt: &'a AtomicBool,
    heard: PassHeard<'a>,
    done: Vec<Profiled>,
}

impl<'a> OfflinePass<'a> {
    /// More and more is pruned by the first model's attention, until a model loses too much.
    fn search(&mut self, model: usize) -> Result<(), ExecutorError> {
        if model == 0 {
            return Ok(());
        }
        let least = self.done[model].whole.accuracy() - ACCURACY_LOSS_MAX;
        for tenths in ALPHA_TENTHS {
            let alpha = f64::from(tenths) / 10.0;
            let by = self.models[0].name().into();
            if self.outputs(model, &[PruneStep { by, alpha }])?.accuracy() < least {
                break;
            }
        }
        Ok(())
    }

    fn check(&self, route: &ProfileRoute) -> Result<(), ExecutorError> {
        for (name, alpha) in &route.levels {
            self.find(name)?;
            if !(*alpha >= 0.0 && alpha.is_finite()) {
                return Err(ExecutorError::input(
                    format!("route: degree of {name}"),
                    "at least 0",
                    alpha,
                ));
            }
        }
        Ok(())
    }

    /// Each model of a route reads what those before it have left.
    fn along(&mut self, route: &ProfileRoute) -> Result<(), ExecutorError> {
        let mut steps = Vec::new();
        for (name, alpha) in &route.levels {
            let model = self.find(name)?;
            self.outputs(model, &steps)?;
            if *alpha > 0.0 {
                steps.push(PruneStep {
                    by: name.clone(),
                    alpha: *alpha,
                });
            }
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Result<usize, ExecutorError> {
        let found = self.models.iter().position(|model| model.name() == name);
        let known = || self.models.iter().map(TextModel::name).collect::<Vec<_>>().join(", ");
        found.ok_or_else(|| ExecutorError::input("route", format!("of the models {}", known()), name))
    }

    /// What a model makes of items that were pruned so.
    fn outputs(&mut self, model: usize, steps: &[PruneStep]) -> Result<&Outputs, ExecutorError> {
        if self.made(model, steps).is_none() {
            self.make(model, steps)?;
        }
        Ok(self.made(model, steps).expect("it was just made"))
    }

    fn made(&self, model: usize, steps: &[PruneStep]) -> Option<&Outputs> {
        let Profiled { whole, pruned } = self.done.get(model)?;
        std::iter::once(whole).chain(pruned).find(|outputs| outputs.steps() == steps)
    }

    fn make(&mut self, model: usize, steps: &[PruneStep]) -> Result<(), ExecutorError> {
        let at = self.prune(steps)?;
        let of = &self.models[model];
        let kept = self.kept(of, steps);
        let observed = match kept {
            Some(kept) => kept.observed.clone(),
            None => {
                (self.heard.begins)(of.name(), steps);
                of.observe(&self.texts[at].1, true, self.interrupt)?
            }
        };
        let before = self.before_any_fit(model)?;
        let source = Source {
            model: of.folder().to_path_buf(),
            model_hash: of.hash().into(),
            items: self.asked.path.to_path_buf(),
            items_hash: self.asked.hash.into(),
            calibrated_on: before.items_hash,
        };
        let mut outputs = Outputs::new(
            of.name(),
            of.answer(),
            source,
            &self.labels,
            observed,
            before.calibration,
        )?;
        let words = |at: usize| self.texts[at].1.iter().map(Texts::words).sum::<usize>() as f64;
        outputs.pruning = (!steps.is_empty()).then(|| SavedPruning {
            steps: steps.to_vec(),
            words_left: words(at) / words(0),
        });
        // Before anything is fitted, which may take minutes.
        if kept.is_none() {
            (self.heard.ends)(&outputs)?;
        }
        if steps.is_empty() && self.asked.calibrations.is_none() {
            (self.heard.fits)(of.name());
            let ProfileItems { method, tolerance, .. } = self.asked;
            let logits = &outputs.observed.logits;
            let fitted = Calibration::fit(logits, &self.labels, method, tolerance, self.interrupt);
            outputs = outputs.calibrated(fitted.map_err(|error| in_model(of, error))?);
        }
        match self.done.get_mut(model) {
            Some(done) => done.pruned.push(outputs),
            // Whole items come first.
            None => self.done.push(Profiled {
                whole: outputs,
                pruned: Vec::new(),
            }),
        }
        Ok(())
    }

    /// What an earlier run has measured of a model, by how items were pruned.
    fn kept(&self, model: &TextModel, steps: &[PruneStep]) -> Option<&'a Outputs> {
        let is_it = |kept: &&Outputs| kept.model == model.name() && kept.steps() == steps;
        self.asked.kept.iter().find(is_it)
    }

    /// How a model's confidence is read of pruned items, as of the whole ones; and of these by what is given, or as it
    /// is, before it is fitted.
    fn before_any_fit(&self, model: usize) -> Result<Fitted, ExecutorError> {
        let of = &self.models[model];
        if let Some(Profiled { whole, .. }) = self.done.get(model) {
            return Ok(Fitted {
                calibration: whole.calibration.clone(),
                items_hash: whole.source.calibrated_on.clone(),
            });
        }
        let Some(given) = self.asked.calibrations else {
            let as_it_is = Calibration::unfitted(of.answer(), self.asked.tolerance);
            return Ok(Fitted {
                calibration: as_it_is.map_err(|error| in_model(of, error))?,
                items_hash: self.asked.hash.into(),
            });
        };
        let known = || given.keys().cloned().collect::<Vec<_>>().join(", ");
        let missing = || ExecutorError::input("calibrations", format!("one of {}", of.name()), known());
        given.get(of.name()).cloned().ok_or_else(missing)
    }

    /// Where the items are that were pruned so.
    fn prune(&mut self, steps: &[PruneStep]) -> Result<usize, ExecutorError> {
        if let Some(at) = self.texts.iter().position(|(pruned, _)| pruned == steps) {
            return Ok(at);
        }
        let (last, before) = steps.split_last().expect("whole items come first");
        let by = self.find(&last.by)?;
        let from = self.prune(before)?;
        self.outputs(by, before)?;
        let importance = &self.made(by, before).expect("it was just made").observed.importance;
        let shorter = without(&self.models[by], &self.texts[from].1, importance, last.alpha)?;
        self.texts.push((steps.to_vec(), shorter));
        Ok(self.texts.len() - 1)
    }
}

/// Texts without the words that `model` paid little attention to.
fn without(
    model: &TextModel,
    texts: &[Texts],
    importance: &[Vec<f32>],
    alpha: f64,
) -> Result<Vec<Texts>, ExecutorError> {
    let pruned = |(texts, importance): (&Texts, &Vec<f32>)| {
        let tokens = model.encode(texts)?;
        texts.pruned(&tokens, importance, alpha).map_err(|error| in_model(model, error))
    };
    texts.iter().zip(importance).map(pruned).collect()
}

/// What the arithmetic refuses of a model's outputs, or that it was interrupted.
fn in_model(model: &TextModel, error: CascadeError) -> ExecutorError {
    match error {
        CascadeError::Interrupted => ExecutorError::Interrupted,
        error => ExecutorError::Cascade {
            what: model.name().into(),
            error,
        },
    }
}
