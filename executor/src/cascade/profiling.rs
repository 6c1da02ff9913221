//! The offline pass over a repository of models (Tabi, section 5): each model once on whole items, and each but the first again on
//! items that are pruned more and more.

use std::collections::BTreeMap;
use std::path::Path;

use tenantry_traces::outcome::SavedPruning;

use super::items::Item;
use super::live::TextModel;
use super::outputs::{Calibration, Outputs, Source};
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
    /// On pruned ones, by ascending degree; the last one may have lost too much.
    pub pruned: Vec<Outputs>,
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
    /// How far off the right answer of a regression may be.
    pub tolerance: f64,
    /// Each model's calibration, by name, where it was fitted to other items; else it is fitted to these.
    pub calibrations: Option<&'a BTreeMap<String, Calibration>>,
}

/// Runs `models`, in ascending order of cost, over items, one item at a time. Words are pruned by the attention of the first model, which
/// stands for the efficient ones. `watch` is told of each pass, by the model's name and the degree.
///
/// # Errors
/// Models that answer different questions, labels that they do not have, texts that a tokenizer does not take, a calibration that is missing.
pub fn profile(
    models: &[TextModel],
    asked: ProfileItems<'_>,
    watch: &mut dyn FnMut(&str, Option<f64>),
) -> Result<Vec<Profiled>, ExecutorError> {
    let ProfileItems { items, tolerance, .. } = asked;
    let labels: Vec<_> = items.iter().map(|item| item.label).collect();
    let outputs = |model: &TextModel, texts: &[Texts], importance, calibration: Option<Calibration>| {
        let observed = model.observe(texts, importance)?;
        let fitted = asked.calibrations.map(|fitted| {
            let found = fitted.get(model.name()).copied();
            let known = || fitted.keys().cloned().collect::<Vec<_>>().join(", ");
            found.ok_or_else(|| ExecutorError::input("calibrations", format!("one of {}", model.name()), known()))
        });
        let calibration = match calibration.map(Ok).or(fitted).transpose()? {
            Some(calibration) => calibration,
            None => Calibration::fit(&observed.logits, &labels, tolerance).map_err(|error| ExecutorError::Cascade {
                what: model.name().into(),
                error,
            })?,
        };
        let source = Source {
            model: model.folder().to_path_buf(),
            items: asked.path.to_path_buf(),
            items_hash: asked.hash.into(),
        };
        Outputs::new(model.name(), model.answer(), source, &labels, observed, calibration)
    };
    let texts: Vec<Texts> = items.iter().map(|item| item.texts.clone()).collect();
    let mut profiled: Vec<Profiled> = Vec::with_capacity(models.len());
    for model in models {
        if let Some(other) = models.iter().find(|other| other.answer() != model.answer()) {
            let what = format!("answers of {}", other.name());
            let must = format!("{:?}, as {} has it", model.answer(), model.name());
            return Err(ExecutorError::input(what, must, format!("{:?}", other.answer())));
        }
        watch(model.name(), None);
        let whole = outputs(model, &texts, true, None)?;
        let mut pruned: Vec<Outputs> = Vec::new();
        // Each degree reads what the last one left to be tried.
        let within =
            |last: Option<&Outputs>| last.is_none_or(|last| last.accuracy() >= whole.accuracy() - ACCURACY_LOSS_MAX);
        let mut degrees = ALPHA_TENTHS.map(|tenths| f64::from(tenths) / 10.0);
        while let (Some(first), true) = (profiled.first(), within(pruned.last())) {
            let Some(alpha) = degrees.next() else { break };
            watch(model.name(), Some(alpha));
            let shorter = without(&models[0], &texts, &first.whole.observed.importance, alpha)?;
            let mut outputs = outputs(model, &shorter, false, Some(whole.calibration))?;
            let words = |texts: &[Texts]| texts.iter().map(Texts::words).sum::<usize>() as f64;
            outputs.pruning = Some(SavedPruning {
                alpha,
                by: models[0].name().into(),
                words_left: words(&shorter) / words(&texts),
            });
            pruned.push(outputs);
        }
        profiled.push(Profiled { whole, pruned });
    }
    Ok(profiled)
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
        texts
            .pruned(&tokens, importance, alpha)
            .map_err(|error| ExecutorError::Cascade {
                what: model.name().into(),
                error,
            })
    };
    texts.iter().zip(importance).map(pruned).collect()
}
