//! `tenantry cascade select`: candidates from saved outputs, and the fastest that meets the targets (Tabi, section 5).

use std::iter;
use std::path::{Path, PathBuf};

use serde_json::json;
use tenantry_cascade::CascadeError;
use tenantry_cascade::candidates::{Candidate, Joins, ModelProfile, PassProfile, PrunedProfile, Repository, Rules};
use tenantry_cascade::search::{EarlyStops, Search, Targets, select};
use tenantry_reports::human::{apart, percent_apart};
use tenantry_reports::manifest::quoted;
use tenantry_reports::whole::remove_earlier;
use tenantry_traces::outcome::{ProfiledModel, ProfiledModels, SavedOutputs};

use super::{few_beyond_p99, median, profiled_in, scenario, table};
use tenantry::caveats::few_items_caveat;
use tenantry::cli::{CascadeSelectArgs, EarlyStopsName, OutputArgs};
use tenantry::failure::Failure;
use tenantry::output::{check_ending, check_file, counted, next, print, say, write_in_folder};

pub fn run(args: &CascadeSelectArgs, output: &OutputArgs) -> Result<(), Failure> {
    check(args)?;
    let profiled = profiled_in(&args.profiled)?;
    if let Some(scenario) = &args.scenario {
        check_file("--scenario", scenario, read_for(&profiled, &args.profiled))?;
        check_ending("--scenario", scenario, &[".yaml", ".yml"])?;
    }
    let repository = repository(&profiled, &args.profiled)?;
    let rules = Rules {
        slopes: args.slope.clone(),
        levels_max: args.levels as usize,
        join: match args.early_stops {
            EarlyStopsName::None => Joins::Both,
            // The paper's candidates always average.
            EarlyStopsName::Paper => Joins::Average,
        },
        ..Rules::default()
    };
    let targets = Targets {
        accuracy: args.accuracy / 100.0,
        mean_ms: args.mean_ms,
        p99_ms: args.p99_ms,
    };
    let search = match args.early_stops {
        EarlyStopsName::None => best(&repository, &rules, &targets),
        EarlyStopsName::Paper => {
            repository.candidates(&rules, Some(&EarlyStops::PAPER)).map(|left| chosen_of(left, &targets))
        }
    };
    let search = search.map_err(Failure::bad_input)?;
    let (rows, found): (Vec<&Candidate>, bool) = match &search.chosen {
        Ok(chosen) => (vec![chosen], true),
        Err(nearest) => (nearest.iter().collect(), false),
    };
    if let (true, Some(path)) = (found, &args.scenario) {
        let text = scenario::text(rows[0], &profiled, &args.profiled)?;
        write_in_folder(path, &text)?;
        say(output, &format!("scenario: {}", path.display()));
        let what = quoted(&path.display().to_string());
        next(
            output,
            &format!(
                "tenantry profile --device cpu --for {what} --out out/card, then tenantry validate {what} --profile \
                 out/card --device cpu"
            ),
        );
    }
    let items = profiled.labels().len();
    let value = json!({
        "items": items,
        "candidates": search.candidates,
        "measured": search.measured,
        "selected": found.then(|| described(rows[0])),
        "nearest": if found { Vec::new() } else { rows.iter().map(|row| described(row)).collect() },
    });
    print(output, &value, || {
        let header = [
            "models",
            "c",
            "k",
            "α",
            "weights",
            "accuracy",
            "mean, ms",
            "p75",
            "p99",
            "returned by level",
        ];
        let title = if found {
            "selected"
        } else {
            "no candidate meets the targets; the nearest"
        };
        format!(
            "{title}, of {} candidates ({} measured) on {}:\n\n{}",
            search.candidates,
            search.measured,
            counted(items as u64, "item", "items"),
            table(header, rows.iter().map(|row| cells(row, &targets)))
        )
    })?;
    for note in few_items(&targets, items, rows[0]).chain(of_outliers(&profiled)) {
        say(output, &format!("note: {note}"));
    }
    if found {
        return Ok(());
    }
    let nearest: Vec<String> = rows
        .iter()
        .map(|row| {
            format!(
                "{} ({}, {} ms in the mean, {} ms at p99)",
                named(row),
                percent_apart(row.accuracy, targets.accuracy),
                ms_apart(row.mean_ms, targets.mean_ms),
                ms_apart(row.p99_ms, targets.p99_ms)
            )
        })
        .collect();
    // That of another question would be taken for this one's answer. One of the user's own is the user's.
    if let Some(path) = &args.scenario
        && std::fs::read(path).is_ok_and(|text| text.starts_with(scenario::FIRST_LINE.as_bytes()))
    {
        remove_earlier(path).map_err(Failure::running)?;
    }
    Err(Failure::LimitNotMet(format!(
        "no candidate is right in {} % of the items in time; the nearest: {}",
        args.accuracy,
        nearest.join("; ")
    )))
}

/// What can be known of the arguments alone.
fn check(args: &CascadeSelectArgs) -> Result<(), Failure> {
    check_percent(args.accuracy)?;
    for (name, target) in [("--mean-ms", args.mean_ms), ("--p99-ms", args.p99_ms)] {
        if let Some(got) = target.filter(|ms| *ms <= 0.0) {
            return Err(Failure::BadInput(format!("{name}: must be above 0, got {got}")));
        }
    }
    for &slope in &args.slope {
        // Whatever the cut-offs that are tried.
        super::reroute(0.0, slope)?;
    }
    Ok(())
}

/// A share in place of the percent that are asked for would be met by anything.
fn check_percent(accuracy: f64) -> Result<(), Failure> {
    if accuracy > 1.0 && accuracy <= 100.0 {
        return Ok(());
    }
    // Of a share a hundred times as much is a decimal too, and not the binary number beside it.
    let meant = match accuracy > 0.0 && accuracy <= 1.0 {
        true => format!("; did you mean {}?", (1e8 * accuracy).round() / 1e6),
        false => String::new(),
    };
    Err(Failure::BadInput(format!(
        "--accuracy: must be in percent, above 1 and up to 100, got {accuracy}{meant}"
    )))
}

/// What a model's folder has.
const MODEL_FILES: [&str; 3] = ["config.json", "model.safetensors", "tokenizer.json"];

/// The files that candidates are made of, under whichever name they are given: the profile's, and those of its models
/// and items, where they were when it was made.
fn read_for(profiled: &ProfiledModels, folder: &Path) -> Vec<PathBuf> {
    let of_model = |model: &ProfiledModel| {
        let passes = iter::once(&model.whole).chain(&model.pruned);
        let saved: Vec<PathBuf> = passes.map(|pass| folder.join(pass.file_name())).collect();
        let own = MODEL_FILES.map(|name| model.whole.folder.join(name));
        saved.into_iter().chain(own).chain([model.whole.items.clone()])
    };
    profiled.models.iter().flat_map(of_model).collect()
}

/// The fastest that meets the targets, or the nearest to them. That a cascade whose last model nobody reaches is faster
/// than the same without it is chance: then it is looked for among the others.
fn best(repository: &Repository, rules: &Rules, targets: &Targets) -> Result<Search, CascadeError> {
    let search = repository.best(rules, targets)?;
    let is_chance = match &search.chosen {
        Ok(chosen) => asks_nobody(chosen),
        Err(nearest) => nearest.iter().any(asks_nobody),
    };
    match is_chance {
        true => Ok(chosen_of(repository.candidates(rules, None)?, targets)),
        false => Ok(search),
    }
}

/// Chooses among these candidates, but for cascades whose last model nobody reaches.
fn chosen_of(candidates: Vec<Candidate>, targets: &Targets) -> Search {
    let (count, mut asking) = (candidates.len(), candidates);
    asking.retain(|candidate| !asks_nobody(candidate));
    let chosen = select(&asking, targets).cloned();
    Search {
        chosen: chosen.map_err(|nearest| nearest.into_iter().cloned().collect()),
        candidates: count,
        measured: count,
    }
}

/// Whether a cascade returns no item at its last level, as far as shares are told.
fn asks_nobody(candidate: &Candidate) -> bool {
    const TOLD_AS_NONE: f64 = 5e-4;
    let last = candidate.returned.last().expect("there is a level");
    candidate.models.len() > 1 && *last < TOLD_AS_NONE
}

/// On targets that the items say little of. Ten wrong answers of the `nearest` candidate tell as much as ten that may
/// be.
fn few_items(targets: &Targets, items: usize, nearest: &Candidate) -> impl Iterator<Item = String> {
    let wrong = (1.0 - nearest.accuracy) * items as f64;
    let allowed = 1.0 - targets.accuracy;
    let of_accuracy = few_items_caveat("Whether --accuracy is met", items, allowed, "may be answered wrongly");
    let of_tail = targets.p99_ms.and_then(|_| few_beyond_p99("Whether --p99-ms is met", items));
    [of_accuracy.filter(|_| wrong < 10.0), of_tail].into_iter().flatten()
}

/// On models whose mean latency, by which candidates are ordered, is that of a few items.
fn of_outliers(profiled: &ProfiledModels) -> impl Iterator<Item = String> {
    profiled.models.iter().filter_map(|model| {
        let whole = &model.whole;
        let (mean_us, median_us) = (whole.mean_service_us(), f64::from(median(&whole.service_us)));
        (mean_us > 2.0 * median_us).then(|| {
            format!(
                "{} takes {:.3} ms in the mean and {:.3} in the median, as where it was profiled beside other programs: \
                 candidates are ordered by means; `tenantry cascade profile` measures it again.",
                whole.model,
                mean_us / 1e3,
                median_us / 1e3
            )
        })
    })
}

/// A candidate by what tells it from others.
fn named(candidate: &Candidate) -> String {
    let mut name = candidate.models.join(" + ");
    if let (Some(cut_off), Some(slope)) = (candidate.cut_off, candidate.slope) {
        name += &format!(", c = {cut_off:.2}, k = {slope}");
    }
    if candidate.prune.iter().any(Option::is_some) {
        name += &format!(", α = {}", degrees(candidate));
    }
    name + match &candidate.weights {
        Some(_) => ", averaged",
        None if candidate.models.len() > 1 => ", last answer",
        None => "",
    }
}

/// To which degree each model but the last prunes.
fn degrees(candidate: &Candidate) -> String {
    let degree = |alpha: &Option<f64>| alpha.map_or("–".into(), |alpha| alpha.to_string());
    let degrees: Vec<String> = candidate.prune.iter().map(degree).collect();
    degrees.join(", ")
}

fn described(candidate: &Candidate) -> serde_json::Value {
    json!({
        "models": candidate.models,
        "cut_off": candidate.cut_off,
        "slope": candidate.slope,
        "prune": candidate.prune,
        "weights": candidate.weights,
        "accuracy": candidate.accuracy,
        "latency_ms": { "mean": candidate.mean_ms, "p75": candidate.p75_ms, "p99": candidate.p99_ms },
        "returned_share_by_stage": candidate.returned,
    })
}

/// Milliseconds with three decimals, and more where they would look like a limit that they are not.
fn ms_apart(ms: f64, limit: Option<f64>) -> String {
    apart(ms, limit.unwrap_or(ms), 3..=6, |ms, decimals| {
        format!("{ms:.decimals$}")
    })
}

/// With as many digits as tell its figures from the targets.
fn cells(candidate: &Candidate, targets: &Targets) -> Vec<String> {
    let number = |number: Option<f64>| number.map_or(String::new(), |number| format!("{number:.2}"));
    let list = |numbers: Vec<String>| numbers.join(", ");
    let weight = |weight: &f64| format!("{weight:.3}");
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    vec![
        candidate.models.join(" + "),
        number(candidate.cut_off),
        candidate.slope.map_or(String::new(), |slope| slope.to_string()),
        degrees(candidate),
        match &candidate.weights {
            Some(weights) => list(weights.iter().map(weight).collect()),
            None if candidate.models.len() > 1 => "last answer".into(),
            None => String::new(),
        },
        percent_apart(candidate.accuracy, targets.accuracy),
        ms_apart(candidate.mean_ms, targets.mean_ms),
        format!("{:.3}", candidate.p75_ms),
        ms_apart(candidate.p99_ms, targets.p99_ms),
        candidate.returned.iter().map(|&share| percent(share)).collect::<Vec<_>>().join(", "),
    ]
}

/// What candidates are made of: all models of a folder that `cascade profile` wrote.
fn repository(profiled: &ProfiledModels, folder: &Path) -> Result<Repository, Failure> {
    if profiled.models[0].whole.classes.is_none() {
        return Err(Failure::BadInput(format!(
            "{}: must be about classes, got a regression, whose confidence is the same for all items",
            folder.display()
        )));
    }
    let pruned = |saved: &SavedOutputs| {
        Ok(PrunedProfile {
            by: saved.steps().iter().map(|step| (step.by.clone(), step.alpha)).collect(),
            pass: pass(saved)?,
        })
    };
    let model = |model: &ProfiledModel| {
        Ok(ModelProfile {
            name: model.whole.model.clone(),
            whole: pass(&model.whole)?,
            pruned: model.pruned.iter().map(pruned).collect::<Result<_, Failure>>()?,
        })
    };
    Ok(Repository {
        labels: profiled.labels().iter().map(|&class| class as usize).collect(),
        models: profiled.models.iter().map(model).collect::<Result<_, Failure>>()?,
        // Some microseconds a text (docs/tabi.md), which a profile's times leave out.
        control_ms: 0.0,
    })
}

fn pass(saved: &SavedOutputs) -> Result<PassProfile, Failure> {
    if saved.attended_us.is_empty() {
        return Err(Failure::BadInput(format!(
            "{}: attended_us: must be measured, got none; `tenantry cascade profile` measures it",
            saved.file_name()
        )));
    }
    let ms = |us: &[f32]| -> Vec<f64> { us.iter().map(|&us| f64::from(us) / 1e3).collect() };
    Ok(PassProfile {
        latency_ms: ms(&saved.service_us),
        attended_ms: ms(&saved.attended_us),
        outputs: probabilities(saved),
    })
}

fn probabilities(outputs: &SavedOutputs) -> Vec<Vec<f64>> {
    let share = |&share: &f32| f64::from(share).clamp(0.0, 1.0);
    outputs.softmax.iter().map(|shares| shares.iter().map(share).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(models: &[&str], returned: &[f64]) -> Candidate {
        let several = models.len() > 1;
        Candidate {
            models: models.iter().map(|&name| name.to_owned()).collect(),
            cut_off: several.then_some(0.55),
            slope: several.then_some(10.0),
            prune: vec![None; models.len() - 1],
            weights: None,
            returned: returned.to_vec(),
            accuracy: 0.95,
            mean_ms: 1.0,
            p75_ms: 1.0,
            p99_ms: 1.0,
        }
    }

    #[test]
    fn shares_are_not_taken_for_percent() {
        let refused = |accuracy| check_percent(accuracy).unwrap_err().to_string();
        let must = "error: --accuracy: must be in percent, above 1 and up to 100, got";
        assert_eq!(refused(0.96), format!("{must} 0.96; did you mean 96?"));
        assert_eq!(refused(0.5701), format!("{must} 0.5701; did you mean 57.01?"));
        assert_eq!(refused(1.0), format!("{must} 1; did you mean 100?"));
        assert_eq!(refused(-5.0), format!("{must} -5"));
        assert!(check_percent(1.5).is_ok() && check_percent(100.0).is_ok());
    }

    #[test]
    fn candidates_are_told_apart() {
        let mut cascade = candidate(&["small", "large"], &[0.8, 0.2]);
        assert_eq!(named(&cascade), "small + large, c = 0.55, k = 10, last answer");
        cascade.prune = vec![Some(0.5)];
        cascade.weights = Some(vec![0.5, 0.5]);
        assert_eq!(named(&cascade), "small + large, c = 0.55, k = 10, α = 0.5, averaged");
        assert_eq!(named(&candidate(&["small"], &[1.0])), "small");
    }

    /// What misses a limit by little does not look as if it met it.
    #[test]
    fn figures_are_told_from_the_limits_that_they_miss() {
        let targets = Targets {
            accuracy: 0.9501,
            mean_ms: Some(0.9999),
            p99_ms: Some(0.999_98),
        };
        let cells = cells(&candidate(&["small"], &[1.0]), &targets);
        assert_eq!(cells[5..9], ["95.00\u{a0}%", "1.0000", "1.000", "1.00000"]);
        assert_eq!(ms_apart(1.0, None), "1.000");
        assert_eq!(ms_apart(1.0, Some(1.0)), "1.000");
    }

    #[test]
    fn a_cascade_asks_a_second_model() {
        assert!(asks_nobody(&candidate(&["small", "large"], &[0.9996, 0.0004])));
        assert!(!asks_nobody(&candidate(&["small", "large"], &[0.999, 0.001])));
        assert!(asks_nobody(&candidate(
            &["small", "middle", "large"],
            &[0.9, 0.0996, 0.0004]
        )));
        assert!(!asks_nobody(&candidate(
            &["small", "middle", "large"],
            &[0.9, 0.0, 0.1]
        )));
        assert!(!asks_nobody(&candidate(&["small"], &[1.0])));
    }

    /// Nothing but chance makes a pass with the attention the faster one.
    #[test]
    fn a_model_alone_is_chosen_before_a_cascade_that_asks_nobody() {
        let sure = |class: usize| vec![[0.9, 0.1], [0.1, 0.9]][class].to_vec();
        let pass = |latency_ms: f64, attended_ms: f64, classes: [usize; 4]| PassProfile {
            latency_ms: vec![latency_ms; 4],
            attended_ms: vec![attended_ms; 4],
            outputs: classes.map(sure).to_vec(),
        };
        let large = pass(5.0, 6.0, [0, 1, 0, 1]);
        let repository = Repository {
            labels: vec![0, 1, 0, 1],
            models: vec![
                ModelProfile {
                    name: "small".into(),
                    whole: pass(2.0, 1.0, [0, 1, 0, 0]),
                    pruned: Vec::new(),
                },
                ModelProfile {
                    name: "large".into(),
                    whole: large.clone(),
                    pruned: vec![PrunedProfile {
                        by: vec![("small".into(), 0.5)],
                        pass: large,
                    }],
                },
            ],
            control_ms: 0.0,
        };
        let rules = Rules {
            slopes: vec![1e6],
            ..Rules::default()
        };
        let targets = Targets {
            accuracy: 0.7,
            mean_ms: None,
            p99_ms: None,
        };
        let fastest = repository.best(&rules, &targets).unwrap().chosen.unwrap();
        assert!(asks_nobody(&fastest), "{fastest:?}");
        let chosen = best(&repository, &rules, &targets).unwrap().chosen.unwrap();
        assert_eq!(chosen.models, ["small"]);
    }

    #[test]
    fn what_few_items_say_of_targets_is_told() {
        let targets = |accuracy, p99_ms| Targets {
            accuracy,
            mean_ms: None,
            p99_ms,
        };
        let told = |targets, items| few_items(&targets, items, &candidate(&["small"], &[1.0])).collect::<Vec<_>>();
        assert_eq!(
            told(targets(0.96, Some(5.0)), 60),
            [
                "Whether --accuracy is met hangs on few items: there are 60, of which 2.4 may be answered wrongly. About \
                 250 would have ten of these.",
                "Whether --p99-ms is met hangs on few items: there are 60, of which 0.6 are expected beyond p99. About \
                 1,000 would have ten of these."
            ]
        );
        assert_eq!(told(targets(0.96, None), 250), [""; 0]);
        // Twelve are wrong: that is too many by any count.
        assert_eq!(told(targets(0.96, None), 240), [""; 0]);
    }
}
