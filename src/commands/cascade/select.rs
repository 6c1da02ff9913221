//! `tenantry cascade select`: candidates from saved outputs, and the fastest that meets the targets (Tabi, section 5).

use std::path::{Path, PathBuf};

use serde_json::json;
use tenantry_cascade::candidates::{Candidate, ModelProfile, PrunedProfile, Repository, Rules, Targets, select};
use tenantry_executor::cascade::{Answer, Label, Outputs};
use tenantry_reports::terminal;

use crate::cli::{CascadeSelectArgs, OutputArgs};
use crate::failure::Failure;
use crate::output::{print, style};

pub fn run(args: &CascadeSelectArgs, output: &OutputArgs) -> Result<(), Failure> {
    let repository = repository(&args.profiled)?;
    let rules = Rules {
        slope: args.slope,
        levels_max: args.levels as usize,
        early_stops: !args.exhaustive,
        ..Rules::default()
    };
    let targets = Targets {
        accuracy: args.accuracy / 100.0,
        mean_ms: args.mean_ms,
        p99_ms: args.p99_ms,
    };
    let candidates = repository.candidates(&rules).map_err(Failure::bad_input)?;
    let chosen = select(&candidates, &targets);
    let (rows, found): (Vec<&Candidate>, bool) = match &chosen {
        Ok(chosen) => (vec![chosen], true),
        Err(nearest) => (nearest.clone(), false),
    };
    let value = json!({
        "candidates": candidates.len(),
        "selected": found.then(|| described(rows[0])),
        "nearest": if found { Vec::new() } else { rows.iter().map(|row| described(row)).collect() },
    });
    print(output, &value, || {
        let header = [
            "models",
            "c",
            "α",
            "accuracy",
            "mean, ms",
            "p75",
            "p99",
            "returned by level",
        ];
        let mut table = vec![header.map(str::to_owned).to_vec()];
        table.extend(rows.iter().map(|row| cells(row)));
        let title = if found {
            "selected"
        } else {
            "no candidate meets the targets; the nearest"
        };
        format!(
            "{title}, of {} candidates:\n\n{}",
            candidates.len(),
            terminal::figures(&table, style())
        )
    })?;
    if found {
        return Ok(());
    }
    let nearest: Vec<String> = rows
        .iter()
        .map(|row| {
            format!(
                "{} ({:.1} %, {:.2} ms)",
                row.models.join(" + "),
                100.0 * row.accuracy,
                row.mean_ms
            )
        })
        .collect();
    Err(Failure::LimitNotMet(format!(
        "no candidate is right in {} % of the items in time; the nearest: {}",
        args.accuracy,
        nearest.join("; ")
    )))
}

fn described(candidate: &Candidate) -> serde_json::Value {
    json!({
        "models": candidate.models,
        "cut_off": candidate.cut_off,
        "alpha": candidate.alpha,
        "weights": candidate.weights,
        "accuracy": candidate.accuracy,
        "latency_ms": { "mean": candidate.mean_ms, "p75": candidate.p75_ms, "p99": candidate.p99_ms },
        "returned_share_by_stage": candidate.returned,
    })
}

fn cells(candidate: &Candidate) -> Vec<String> {
    let number = |number: Option<f64>| number.map_or(String::new(), |number| format!("{number:.2}"));
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    vec![
        candidate.models.join(" + "),
        number(candidate.cut_off),
        number(candidate.alpha),
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

/// All models of a folder that `cascade profile` wrote.
fn repository(folder: &Path) -> Result<Repository, Failure> {
    let failed = |error: std::io::Error| Failure::BadInput(format!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .map_err(failed)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()
        .map_err(failed)?;
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "safetensors"));
    paths.sort();
    let outputs = paths
        .iter()
        .map(|path| Outputs::read(path))
        .collect::<Result<Vec<_>, _>>();
    let outputs = outputs.map_err(Failure::bad_input)?;
    let wrong = |must: &str, got: String| Failure::BadInput(format!("{}: must {must}, got {got}", folder.display()));
    let Some(first) = outputs.first() else {
        return Err(wrong("have the files of `tenantry cascade profile`", "none".into()));
    };
    if let Some(other) = outputs
        .iter()
        .find(|other| other.items_hash != first.items_hash || other.answer != first.answer)
    {
        return Err(wrong(
            "be about the same items and classes throughout",
            format!("{} beside {}", other.model, first.model),
        ));
    }
    if first.answer == Answer::Number {
        return Err(wrong(
            "be about classes",
            "a regression, whose confidence is the same for all items".into(),
        ));
    }
    let labels = first.labels.iter().map(|label| match label {
        Label::Class(class) => *class,
        Label::Number(_) => unreachable!("classes are labelled by class"),
    });
    let labels: Vec<usize> = labels.collect();
    let (whole, pruned): (Vec<&Outputs>, Vec<&Outputs>) = outputs.iter().partition(|outputs| outputs.pruning.is_none());
    if let Some(twice) = whole
        .iter()
        .enumerate()
        .find(|(i, one)| whole[..*i].iter().any(|other| other.model == one.model))
    {
        return Err(wrong(
            "have each model's whole items once",
            format!("{} twice", twice.1.model),
        ));
    }
    let models = whole.into_iter().map(|whole| {
        let of_model = pruned.iter().filter(|pruned| pruned.model == whole.model);
        let mut pruned: Vec<PrunedProfile> = of_model
            .filter_map(|pruned| {
                Some(PrunedProfile {
                    alpha: pruned.pruning.as_ref()?.alpha,
                    latency_ms: latency_ms(pruned),
                    outputs: probabilities(pruned),
                })
            })
            .collect();
        pruned.sort_by(|a, b| a.alpha.total_cmp(&b.alpha));
        ModelProfile {
            name: whole.model.clone(),
            latency_ms: latency_ms(whole),
            outputs: probabilities(whole),
            pruned,
        }
    });
    Ok(Repository {
        labels,
        models: models.collect(),
        // What lies between the models is in their measured times.
        control_ms: 0.0,
    })
}

fn probabilities(outputs: &Outputs) -> Vec<Vec<f64>> {
    let share = |&share: &f32| f64::from(share).clamp(0.0, 1.0);
    outputs
        .softmax
        .iter()
        .map(|shares| shares.iter().map(share).collect())
        .collect()
}

/// Mean of the items alone.
fn latency_ms(outputs: &Outputs) -> f64 {
    let sum: f64 = outputs.observed.service_us.iter().copied().map(f64::from).sum();
    sum / 1e3 / outputs.observed.service_us.len().max(1) as f64
}
