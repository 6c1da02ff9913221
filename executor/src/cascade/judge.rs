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
}

impl Judged {
    fn new(name: &str, levels: usize, items: &[Item], answers: &[(Answered, bool)]) -> Judged {
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

/// Answers `items` one at a time by each of `models` alone, and by their cascade: without pruning, with it, and with pruning and an ensemble.
/// Calibrations and weights are those of `profiled`, what the models make of other items. Coins are drawn by item and level.
///
/// # Errors
/// Profiles that are not of these models, or what the models do not take.
pub fn judge(
    models: &[TextModel],
    profiled: &[&Outputs],
    items: &[Item],
    settings: Settings,
    coin: &dyn Fn(u64, u32) -> f64,
) -> Result<(Vec<Judged>, Vec<CalibrationError>), ExecutorError> {
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
    if let Some(other) = profiled
        .iter()
        .find(|outputs| outputs.source.items_hash != profiled[0].source.items_hash)
    {
        let what = format!("profile of {}", other.model);
        let must = format!("on the items of {}'s", profiled[0].model);
        return Err(ExecutorError::input(what, must, "on others"));
    }
    let weights = weights_of_levels(profiled, settings.reroute)?;
    let run = |name: &str, levels: Vec<Level<'_>>, alpha, weights| -> Result<Judged, ExecutorError> {
        let count = levels.len();
        let cascade = Cascade::new(levels, settings.reroute, alpha, weights)?;
        Ok(Judged::new(name, count, items, &cascade.answer_all(items, coin)?))
    };
    let mut judged = Vec::new();
    for level in &levels {
        judged.push(run(&format!("{} only", level.model.name()), vec![*level], 0.0, None)?);
    }
    judged.push(run("cascade", levels.clone(), 0.0, None)?);
    judged.push(run("cascade, pruned", levels.clone(), settings.alpha, None)?);
    judged.push(run(
        "cascade, pruned, ensemble",
        levels.clone(),
        settings.alpha,
        Some(weights),
    )?);
    let errors = levels
        .iter()
        .filter_map(|level| calibration_error(level, items).transpose());
    Ok((judged, errors.collect::<Result<_, _>>()?))
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
