//! A cascade beside its own models: accuracy against latency, level by level and device by device.

use std::sync::atomic::AtomicBool;

use tenantry_cascade::ensemble::weights_of_route;
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
    /// The share of right answers among the items that the cascade re-routes, whoever answers them here; nothing if
    /// there are none.
    pub re_routed_accuracy: Option<f64>,
}

/// What an average of several models' answers changes, of the items that are re-routed.
#[derive(Clone, Debug, PartialEq)]
pub struct EnsembleEffect {
    /// Whether words were pruned.
    pub pruned: bool,
    /// Of the models' answers, one for each: what a scenario's `join: { average: … }` takes.
    pub weights: Vec<f64>,
    /// Items that are re-routed.
    pub items: usize,
    /// Of these: the last model asked is wrong.
    pub wrong: usize,
    /// Of the wrong: a model asked before it is right, of what it read there (pruned words too, from the second on),
    /// which is all that any average could mend where there are two classes.
    pub earlier_right: usize,
    /// Of the wrong: the average is right.
    pub mended: usize,
    /// Of the others: the average is wrong.
    pub broken: usize,
}

/// What [`judge`] found.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Each model alone, and the cascade in its forms: those that prune where `alpha` is above 0.
    pub judged: Vec<Judged>,
    /// Of the ensemble, without and, where `alpha` is above 0, with pruning.
    pub ensemble: Vec<EnsembleEffect>,
    /// Of each model but those that answer a number.
    pub calibration: Vec<CalibrationError>,
}

impl Judged {
    fn new(name: &str, levels: usize, items: &[Item], answers: &[(Answered, bool)], re_routed: &[usize]) -> Judged {
        let share = |count: usize| count as f64 / answers.len() as f64;
        let mut service_us: Vec<f64> = answers.iter().map(|(answered, _)| answered.service_us).collect();
        service_us.sort_by(f64::total_cmp);
        let at_last = answers.iter().zip(items).filter(|((answered, _), _)| answered.level + 1 == levels);
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
    /// What its logits are divided by; nothing where it is calibrated class by class.
    pub temperature: Option<f64>,
    /// Expected calibration error of its probabilities as they are.
    pub before: f64,
    /// And calibrated.
    pub after: f64,
}

/// The settings of a cascade that are judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// When the next level is asked.
    pub reroute: Reroute,
    /// The degree of pruning; 0 for none.
    pub alpha: f64,
}

/// Answers `items` one at a time by each of `models` alone, and by their cascade: with and without an ensemble, and
/// both with pruning where there is any. Calibrations and weights are those of `profiled`, what the models make of
/// other items whole; weights where words are pruned are those of `pruned`, what each model makes of the other items as
/// they come to it then. Coins are drawn by item and level. Once `interrupt` is set it ends with the item.
///
/// # Errors
/// Profiles that are not of these models, what the models do not take, or an interruption.
pub fn judge(
    models: &[TextModel],
    [profiled, pruned]: [&[Outputs]; 2],
    items: &[Item],
    settings: Settings,
    coin: &dyn Fn(u64, u32) -> f64,
    interrupt: &AtomicBool,
) -> Result<Verdict, ExecutorError> {
    let levels = models
        .iter()
        .zip(profiled)
        .map(
            |(model, outputs)| match (model.name(), model.answer()) == (&outputs.model, &outputs.answer) {
                true => Ok(Level {
                    model,
                    calibration: outputs.calibration.clone(),
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
        Cascade::new(levels, settings.reroute, alpha, weights)?.answer_all(items, coin, interrupt)
    };
    let alone = levels.iter().map(|level| run(vec![level.clone()], 0.0, None)).collect::<Result<Vec<_>, _>>()?;
    // The dispatcher's choice is the same in all forms of a cascade of two.
    let cascade = run(levels.clone(), 0.0, None)?;
    let re_routed: Vec<usize> = (0..items.len()).filter(|&item| cascade[item].0.level > 0).collect();
    let mut judged: Vec<Judged> = levels
        .iter()
        .zip(&alone)
        .map(|(level, answers)| Judged::new(&format!("{} only", level.model.name()), 1, items, answers, &re_routed))
        .collect();
    let mut ensemble = Vec::new();
    // A degree of 0 takes no word away: it would be the same cascade again, and noise for a difference.
    let with_pruning = (settings.alpha > 0.0).then_some(("cascade, pruned", settings.alpha, pruned));
    for (name, alpha, profiled) in [("cascade", 0.0, profiled)].into_iter().chain(with_pruning) {
        let weights = weights(profiled, settings.reroute)?;
        let last = match alpha > 0.0 {
            true => run(levels.clone(), alpha, None)?,
            false => cascade.clone(),
        };
        let averaged = run(levels.clone(), alpha, Some(weights.clone()))?;
        let is_right = |item: usize, answer: &[f64]| levels[0].calibration.is_right(answer, items[item].label);
        let effect = EnsembleEffect::new(alpha > 0.0, weights, &re_routed, [&last, &averaged], is_right);
        ensemble.push(effect);
        for (name, answers) in [(name.to_owned(), &last), (format!("{name}, ensemble"), &averaged)] {
            judged.push(Judged::new(&name, levels.len(), items, answers, &re_routed));
        }
    }
    let errors = levels.iter().filter_map(|level| calibration_error(level, items, interrupt).transpose());
    Ok(Verdict {
        judged,
        ensemble,
        calibration: errors.collect::<Result<_, _>>()?,
    })
}

impl EnsembleEffect {
    /// `last` are the answers of the last model asked, `averaged` those of all that were; `is_right` says it of an
    /// item's answer.
    fn new(
        pruned: bool,
        weights: Vec<f64>,
        re_routed: &[usize],
        [last, averaged]: [&[(Answered, bool)]; 2],
        is_right: impl Fn(usize, &[f64]) -> bool,
    ) -> EnsembleEffect {
        let right = |answers: &[(Answered, bool)], item: usize| answers[item].1;
        let (good, wrong): (Vec<usize>, Vec<usize>) = re_routed.iter().copied().partition(|&item| right(last, item));
        let earlier_right = |item: &&usize| {
            let answered = &last[**item].0;
            let mut earlier = answered.by_level[..answered.level].iter();
            earlier.any(|answer| is_right(**item, answer))
        };
        EnsembleEffect {
            pruned,
            weights,
            items: re_routed.len(),
            wrong: wrong.len(),
            earlier_right: wrong.iter().filter(earlier_right).count(),
            mended: wrong.iter().filter(|&&item| right(averaged, item)).count(),
            broken: good.iter().filter(|&&item| !right(averaged, item)).count(),
        }
    }
}

/// The models' weights: by their accuracies on what the first re-routes (Tabi, section 4.3), as `cascade select` has
/// them too.
fn weights(profiled: &[Outputs], reroute: Reroute) -> Result<Vec<f64>, ExecutorError> {
    let chance = |confidence: &f32| reroute.probability((*confidence).into());
    let re_routed: Vec<f64> = profiled[0].confidences.iter().map(chance).collect();
    let right: Vec<Vec<bool>> = profiled.iter().map(Outputs::right).collect();
    weights_of_route(&re_routed, &right).map_err(|error| ExecutorError::Cascade {
        what: format!("ensemble of {} levels", profiled.len()),
        error,
    })
}

/// Nothing for a regression, whose confidence is the same for all items.
fn calibration_error(
    level: &Level<'_>,
    items: &[Item],
    interrupt: &AtomicBool,
) -> Result<Option<CalibrationError>, ExecutorError> {
    let temperature = match &level.calibration {
        Calibration::Classes(temperature) => Some(temperature.value()),
        Calibration::Dirichlet(_) => None,
        Calibration::Number { .. } => return Ok(None),
    };
    let observed = level.model.observe(items.iter().map(|item| &item.texts), false, interrupt)?;
    let error = |calibration: &Calibration| {
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
        temperature,
        before: error(&Calibration::Classes(Temperature::ONE))?,
        after: error(&level.calibration)?,
    }))
}

#[cfg(test)]
mod tests {
    use tenantry_cascade::candidates::{Joins, ModelProfile, PassProfile, Repository, Rules};

    use super::super::config::Answer;
    use super::super::items::Label;
    use super::super::outputs::{Observed, Source};
    use super::*;

    /// A model of two classes that is right by `margins` above 0; every label is the first class.
    fn outputs(name: &str, margins: &[f32]) -> Outputs {
        let observed = Observed {
            logits: margins.iter().map(|&margin| vec![margin, 0.0]).collect(),
            ..Observed::default()
        };
        let labels = vec![Label::Class(0); margins.len()];
        let answer = Answer::Class(vec!["a".into(), "b".into()]);
        let calibration = Calibration::Classes(Temperature::ONE);
        Outputs::new(name, &answer, Source::default(), &labels, observed, calibration).unwrap()
    }

    /// What is judged can be served: a cascade of three has the weights, one for each model, that a candidate of the
    /// same models has.
    #[test]
    fn weights_are_those_of_candidates() {
        let profiled = [
            outputs("small", &[4.0, 4.0, 0.5, -0.5, -0.2, -1.0]),
            outputs("middle", &[4.0, 4.0, 3.0, 0.6, -0.4, -1.0]),
            outputs("large", &[4.0, 4.0, 4.0, 1.0, 1.0, -0.3]),
        ];
        let model = |outputs: &Outputs| ModelProfile {
            name: outputs.model.clone(),
            whole: PassProfile {
                latency_ms: vec![1.0; outputs.labels.len()],
                attended_ms: vec![1.0; outputs.labels.len()],
                outputs: outputs
                    .softmax
                    .iter()
                    .map(|shares| shares.iter().map(|&share| share.into()).collect())
                    .collect(),
            },
            pruned: Vec::new(),
        };
        let repository = Repository {
            labels: vec![0; 6],
            models: profiled.iter().map(model).collect(),
            control_ms: 0.0,
        };
        let rules = Rules {
            slopes: vec![10.0],
            join: Joins::Average,
            ..Rules::default()
        };
        let candidates = repository.candidates(&rules, None).unwrap();
        let mut compared = 0;
        for candidate in candidates.iter().filter(|candidate| candidate.models.len() == 3) {
            let reroute = Reroute::new(candidate.cut_off.unwrap(), 10.0).unwrap();
            let ours = weights(&profiled, reroute).unwrap();
            let theirs = candidate.weights.as_ref().unwrap();
            assert_eq!(ours.len(), 3);
            assert!(
                ours.iter().zip(theirs).all(|(a, b)| (a - b).abs() < 1e-6),
                "{ours:?} and {theirs:?}"
            );
            compared += 1;
        }
        assert_eq!(compared, 20);
        // Of four that are surely re-routed one, two and three are right; the two others hardly ever go on.
        let [small, middle, large] = weights(&profiled, Reroute::new(0.9, 1e6).unwrap()).unwrap()[..] else {
            unreachable!("there are three models");
        };
        assert!((small - 1.0 / 6.0).abs() < 1e-9 && (middle - 2.0 / 6.0).abs() < 1e-9);
        assert!((large - 3.0 / 6.0).abs() < 1e-9);
    }

    /// Of three levels the second reads what the first one's attention leaves: what it would have said of the whole
    /// text mends nothing.
    #[test]
    fn who_was_right_before_is_told_by_what_each_level_said_there() {
        let answered = |classes: &[usize]| {
            let share = |&class: &usize| if class == 0 { vec![0.9, 0.1] } else { vec![0.2, 0.8] };
            let by_level: Vec<Vec<f64>> = classes.iter().map(share).collect();
            let answer = by_level.last().unwrap().clone();
            let right = answer[0] > answer[1];
            let answered = Answered {
                answer,
                by_level,
                level: classes.len() - 1,
                service_us: 1.0,
                words: vec![1; classes.len()],
            };
            (answered, right)
        };
        let last = [
            // Returned by the first level, which is in no count.
            answered(&[0]),
            answered(&[1, 0, 1]),
            answered(&[1, 1, 1]),
            answered(&[0, 1]),
            answered(&[1, 1, 0]),
        ];
        let is_right = |_: usize, answer: &[f64]| answer[0] > answer[1];
        let effect = EnsembleEffect::new(true, vec![0.3, 0.3, 0.4], &[1, 2, 3, 4], [&last, &last], is_right);
        assert_eq!((effect.items, effect.wrong, effect.earlier_right), (4, 3, 2));
        assert_eq!((effect.mended, effect.broken), (0, 0));
    }
}
