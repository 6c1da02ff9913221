//! `tenantry cascade select`: candidates from saved outputs, and the fastest that meets the targets (Tabi, section 5).

use std::path::Path;

use serde_json::json;
use tenantry_cascade::CascadeError;
use tenantry_cascade::candidates::{Candidate, Joins, ModelProfile, PassProfile, PrunedProfile, Repository, Rules};
use tenantry_cascade::search::{EarlyStops, Search, Targets, select};
use tenantry_reports::manifest::quoted;
use tenantry_reports::whole::remove_earlier;
use tenantry_traces::outcome::{ProfiledModel, ProfiledModels, SavedOutputs};

use super::{scenario, table};
use tenantry::cli::{CascadeSelectArgs, EarlyStopsName, OutputArgs};
use tenantry::failure::Failure;
use tenantry::output::{check_no_result, next, print, say, write_in_folder};

pub fn run(args: &CascadeSelectArgs, output: &OutputArgs) -> Result<(), Failure> {
    if !(args.accuracy > 0.0 && args.accuracy <= 100.0) {
        let message = format!(
            "--accuracy: must be above 0 and at most 100 percent, got {}",
            args.accuracy
        );
        return Err(Failure::BadInput(message));
    }
    for (name, target) in [("--mean-ms", args.mean_ms), ("--p99-ms", args.p99_ms)] {
        if let Some(got) = target.filter(|ms| !(*ms > 0.0 && ms.is_finite())) {
            return Err(Failure::BadInput(format!("{name}: must be above 0, got {got}")));
        }
    }
    for &slope in &args.slope {
        // Whatever the cut-offs that are tried.
        super::reroute(0.0, slope)?;
    }
    if let Some(scenario) = &args.scenario {
        check_no_result("--scenario", scenario, [&args.profiled])?;
    }
    let profiled = ProfiledModels::read(&args.profiled).map_err(Failure::bad_input)?;
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
        EarlyStopsName::None => repository.best(&rules, &targets),
        EarlyStopsName::Paper => given_up_early(&repository, &rules, &targets),
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
    let value = json!({
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
            "{title}, of {} candidates ({} measured):\n\n{}",
            search.candidates,
            search.measured,
            table(header, rows.iter().map(|row| cells(row)))
        )
    })?;
    if found {
        return Ok(());
    }
    let nearest: Vec<String> = rows
        .iter()
        .map(|row| {
            format!(
                "{} ({:.1} %, {:.2} ms in the mean, {:.2} ms at p99)",
                row.models.join(" + "),
                100.0 * row.accuracy,
                row.mean_ms,
                row.p99_ms
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

/// By what the paper's early stops leave.
fn given_up_early(repository: &Repository, rules: &Rules, targets: &Targets) -> Result<Search, CascadeError> {
    let left = repository.candidates(rules, Some(&EarlyStops::PAPER))?;
    let chosen = select(&left, targets).cloned();
    Ok(Search {
        chosen: chosen.map_err(|nearest| nearest.into_iter().cloned().collect()),
        candidates: left.len(),
        measured: left.len(),
    })
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

fn cells(candidate: &Candidate) -> Vec<String> {
    let number = |number: Option<f64>| number.map_or(String::new(), |number| format!("{number:.2}"));
    let list = |numbers: Vec<String>| numbers.join(", ");
    let degree = |alpha: &Option<f64>| alpha.map_or("–".into(), |alpha| alpha.to_string());
    let weight = |weight: &f64| format!("{weight:.3}");
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    vec![
        candidate.models.join(" + "),
        number(candidate.cut_off),
        candidate.slope.map_or(String::new(), |slope| slope.to_string()),
        list(candidate.prune.iter().map(degree).collect()),
        match &candidate.weights {
            Some(weights) => list(weights.iter().map(weight).collect()),
            None if candidate.models.len() > 1 => "last answer".into(),
            None => String::new(),
        },
        percent(candidate.accuracy),
        format!("{:.3}", candidate.mean_ms),
        format!("{:.3}", candidate.p75_ms),
        format!("{:.3}", candidate.p99_ms),
        candidate
            .returned
            .iter()
            .map(|&share| percent(share))
            .collect::<Vec<_>>()
            .join(", "),
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
    outputs
        .softmax
        .iter()
        .map(|shares| shares.iter().map(share).collect())
        .collect()
}
