//! A cascade beside its own models: accuracy against latency, level by level and device by device.

use tenantry_cascade::ensemble::weights;
use tenantry_cascade::{Reroute, Temperature, expected_calibration_error};

use super::items::Item;
use super::live::{Answered, Cascade, Level, TextModel};
use super::outputs::{Calibration, Outputs};
use crate::error::ExecutorError;

/// Buckets of confidence over which calibration errors are taken.
const BUCKETS: usize = 15;

/// How one way to answer did on items.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The models' names, or what the cascade does.
    pub name: String,
    /// The share of right answers.
    pub accuracy: f64,
    /// Microseconds of each item, ascending.
    pub service_us: Vec<f64>,
    /// The share of items that each level returned.
    pub returned: Vec<f64>,
    /// The share of words that the last level read, of the items that it was asked about; nothing if there were none.
    pub words_left: Option<f64>,
    /// The share of right answers among the items that the cascade re-routes, whoever answers them here; nothing if there are none.
    pub re_routed_accuracy: Option<f64>,
}

/// What an average of several models' answers changes, of the items that are re-routed.
#[derive(Clone, Debug, PartialEq)]
pub struct EnsembleEffect {
    /// Whether words were pruned.
    pub pruned: bool,
    /// Items that are re-routed.
    pub items: usize,
    /// Of these: the last model asked is wrong.
    pub wrong: usize,
    /// Of the wrong: a model before it is right alone, which is all that any average could mend where there are two classes.
    pub earlier_right: usize,
    /// Of the wrong: the average is right.
    pub mended: usize,
    /// Of the others: the average is wrong.
    pub broken: usize,
}

/// What [`judge`] found.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Each model alone, and the cascade in its forms.
    pub judged: Vec<Judged>,
    /// Of the ensemble, without and with pruning.
    pub ensemble: Vec<EnsembleEffect>,
    /// Of each model but those that answer a number.
    pub calibration: Vec<CalibrationError>,
}

impl Judged {
    fn new(name: &str, levels: usize, items: &[Item], answers: &[(Answered, bool)], re_routed: &[usize]) -> Judged {
        let share = |count: usize| count as f64 / answers.len() as f64;
        let mut service_us: Vec<f64> = answers.iter().map(|(answered, _)| answered.service_us).collect();
        service_us.sort_by(f64::total_cmp);
        let at_last = answers
            .iter()
            .zip(items)
            .filter(|((answered, _), _)| answered.level + 1 == levels);
        let (read, all) = at_last.fold((0, 0), |(read, all), ((answered, _), item)| {
            (read + answered.words[levels - 1], all + item.texts.words())
        });
        Judged {
            name: name.into(),
            accuracy: share(answers.iter().filter(|(_, right)| *right).count()),
            service_us,
            returned: (0..levels)
                .map(|level| share(answers.iter().filter(|(answered, _)| answered.level == level).count()))
                .collect(),
            words_left: (all > 0).then(|| read as f64 / all as f64),
            re_routed_accuracy: (!re_routed.is_empty()).then(|| {
                let right = re_routed.iter().filter(|&&item| answers[item].1).count();
                right as f64 / re_routed.len() as f64
            }),
        }
    }

    /// Mean microseconds of an item.
    pub fn mean_us(&self) -> f64 {
        self.service_us.iter().sum::<f64>() / self.service_us.len() as f64
    }

    /// The microseconds that a share of items do not exceed.
    pub fn quantile_us(&self, share: f64) -> f64 {
        let rank = (share * self.service_us.len() as f64).ceil() as usize;
        self.service_us[rank.clamp(1, self.service_us.len()) - 1]
    }
}

/// How far a model's confidence is from its accuracy.
#[derive(Clone, Debug, PartialEq)]
pub struct CalibrationError {
    /// The model's name.
    pub model: String,
    /// What its logits are divided by.
    pub temperature: f64,
    /// Expected calibration error without it.
    pub before: f64,
    /// And with it.
    pub after: f64,
}

/// The settings of a cascade that are judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// When the next level is asked.
    pub reroute: Reroute,
    /// The degree of pruning.
    pub alpha: f64,
}

/// Answers `items` one at a time by each of `models` alone, and by their cascade: with and without pruning, with and without an ensemble.
/// Calibrations and weights are those of `profiled`, what the models make of other items whole; weights where words are pruned are those of `pruned`, what
/// each model makes of the other items as they come to it then. Coins are drawn by item and level.
///
/// # Errors
/// Profiles that are not of these models, or what the models do not take.
pub fn judge(
    models: &[TextModel],
    [profiled, pruned]: [&[Outputs]; 2],
    items: &[Item],
    settings: Settings,
    coin: &dyn Fn(u64, u32) -> f64,
) -> Result<Verdict, ExecutorError> {
    let levels = models
        .iter()
        .zip(profiled)
        .map(
            |(model, outputs)| match (model.name(), model.answer()) == (&outputs.model, &outputs.answer) {
                true => Ok(Level {
                    model,
                    calibration: outputs.calibration,
                }),
                false => Err(ExecutorError::input(
                    "profile",
                    format!("that of {}", model.name()),
                    &outputs.model,
                )),
            },
        )
        .collect::<Result<Vec<_>, _>>()?;
    let run = |levels: Vec<Level<'_>>, alpha, weights| -> Result<Vec<(Answered, bool)>, ExecutorError> {
        Cascade::new(levels, settings.reroute, alpha, weights)?.answer_all(items, coin)
    };
    let alone = levels
        .iter()
        .map(|level| run(vec![*level], 0.0, None))
        .collect::<Result<Vec<_>, _>>()?;
    // The dispatcher's choice is the same in all forms of a cascade of two.
    let cascade = run(levels.clone(), 0.0, None)?;
    let re_routed: Vec<usize> = (0..items.len()).filter(|&item| cascade[item].0.level > 0).collect();
    let mut judged: Vec<Judged> = levels
        .iter()
        .zip(&alone)
        .map(|(level, answers)| Judged::new(&format!("{} only", level.model.name()), 1, items, answers, &re_routed))
        .collect();
    let mut ensemble = Vec::new();
    for (name, alpha, profiled) in [("cascade", 0.0, profiled), ("cascade, pruned", settings.alpha, pruned)] {
        let weights = weights_of_levels(&profiled.iter().collect::<Vec<_>>(), settings.reroute)?;
        let last = match alpha > 0.0 {
            true => run(levels.clone(), alpha, None)?,
            false => cascade.clone(),
        };
        let averaged = run(levels.clone(), alpha, Some(weights))?;
        ensemble.push(EnsembleEffect::new(alpha > 0.0, &re_routed, &alone, &last, &averaged));
        for (name, answers) in [(name.to_owned(), &last), (format!("{name}, ensemble"), &averaged)] {
            judged.push(Judged::new(&name, levels.len(), items, answers, &re_routed));
        }
    }
    let errors = levels
        .iter()
        .filter_map(|level| calibration_error(level, items).transpose());
    Ok(Verdict {
        judged,
        ensemble,
        calibration: errors.collect::<Result<_, _>>()?,
    })
}

impl EnsembleEffect {
    /// `last` are the answers of the last model asked, `averaged` those of all that were, `alone` each model's.
    fn new(
        pruned: bool,
        re_routed: &[usize],
        alone: &[Vec<(Answered, bool)>],
        last: &[(Answered, bool)],
        averaged: &[(Answered, bool)],
    ) -> EnsembleEffect {
        let right = |answers: &[(Answered, bool)], item: usize| answers[item].1;
        let (good, wrong): (Vec<usize>, Vec<usize>) = re_routed.iter().copied().partition(|&item| right(last, item));
        let earlier_right = |item: &&usize| {
            alone[..last[**item].0.level]
                .iter()
                .any(|answers| right(answers, **item))
        };
        EnsembleEffect {
            pruned,
            items: re_routed.len(),
            wrong: wrong.len(),
            earlier_right: wrong.iter().filter(earlier_right).count(),
            mended: wrong.iter().filter(|&&item| right(averaged, item)).count(),
            broken: good.iter().filter(|&&item| !right(averaged, item)).count(),
        }
    }
}

/// For each level but the first, the weights of the levels up to it: their accuracies on the items that reach it (Tabi, section 4.3).
///
/// # Errors
/// Levels that are never right on those items.
pub fn weights_of_levels(profiled: &[&Outputs], reroute: Reroute) -> Result<Vec<Vec<f64>>, ExecutorError> {
    let items = profiled.first().map_or(0, |outputs| outputs.labels.len());
    let right: Vec<Vec<bool>> = profiled.iter().map(|outputs| outputs.right()).collect();
    // The chance of each item to reach a level.
    let mut reach = vec![1.0; items];
    let mut all = Vec::new();
    for last in 1..profiled.len() {
        for (chance, confidence) in reach.iter_mut().zip(&profiled[last - 1].confidences) {
            *chance *= reroute.probability((*confidence).into());
        }
        let sum: f64 = reach.iter().sum();
        let accuracy = |right: &Vec<bool>| {
            let hits = reach.iter().zip(right).filter(|(_, right)| **right);
            (hits.map(|(chance, _)| chance).sum::<f64>() / sum.max(f64::MIN_POSITIVE)).min(1.0)
        };
        let accuracies: Vec<f64> = right[..=last].iter().map(accuracy).collect();
        // Where nothing reaches a level, its weights do not matter.
        let fallback = vec![1.0; last + 1];
        let of = if sum > 0.0 { &accuracies } else { &fallback };
        all.push(weights(of).map_err(|error| ExecutorError::Cascade {
            what: format!("ensemble of {} levels", last + 1),
            error,
        })?);
    }
    Ok(all)
}

/// Nothing for a regression, whose confidence is the same for all items.
fn calibration_error(level: &Level<'_>, items: &[Item]) -> Result<Option<CalibrationError>, ExecutorError> {
    let Calibration::Classes(temperature) = level.calibration else {
        return Ok(None);
    };
    let observed = level.model.observe(items.iter().map(|item| &item.texts), false)?;
    let error = |temperature| {
        let calibration = Calibration::Classes(temperature);
        let pairs = observed.logits.iter().zip(items).map(|(logits, item)| {
            let (shares, confidence) = calibration.apply(logits);
            (confidence, calibration.is_right(&shares, item.label))
        });
        expected_calibration_error(pairs, BUCKETS).map_err(|error| ExecutorError::Cascade {
            what: level.model.name().into(),
            error,
        })
    };
    Ok(Some(CalibrationError {
        model: level.model.name().into(),
        temperature: temperature.value(),
        before: error(Temperature::ONE)?,
        after: error(temperature)?,
    }))
}
