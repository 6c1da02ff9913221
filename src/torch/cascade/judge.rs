//! `tenantry cascade judge`: a cascade beside its own models.

use serde_json::{Value, json};
use tenantry_executor::cascade::{
    CalibrationError, EnsembleEffect, Judged, Outputs, Settings, TextModel, Verdict, judge,
};
use tenantry_traces::outcome::{DispatchCoins, PruneStep};

use super::{Asked, failure, few_beyond_p99, profiled_in, table};
use tenantry::cli::{CascadeJudgeArgs, OutputArgs};
use tenantry::failure::Failure;
use tenantry::interrupt;
use tenantry::output::{counted, print, say};

pub fn run(args: &CascadeJudgeArgs, output: &OutputArgs) -> Result<(), Failure> {
    let reroute = super::reroute(args.cut_off, args.slope)?;
    if args.alpha < 0.0 {
        let message = format!("--alpha: must be at least 0, got {}", args.alpha);
        return Err(Failure::BadInput(message));
    }
    let asked = Asked::read(&args.models)?;
    let (profiled, _) = profiles(&asked, args, |_| Vec::new())?;
    // Each model's attention prunes to the same degree what those after it read.
    let (pruned, of_whole_items) = profiles(&asked, args, |level| {
        let before = asked.models[..level].iter();
        let step = |model: &TextModel| PruneStep {
            by: model.name().into(),
            alpha: args.alpha,
        };
        before.map(step).filter(|step| step.alpha > 0.0).collect()
    })?;
    if !of_whole_items.is_empty() {
        say(output, &not_profiled(&asked, args, &of_whole_items));
    }
    let fitted_here = fitted_to(&asked.items_hash, profiled.iter().chain(&pruned));
    if let Some(what) = fitted_here {
        let items = args.models.items.display();
        say(
            output,
            &format!(
                "note: {what} were fitted to {items}, the very items that are judged: others tell what models are worth"
            ),
        );
    }
    let settings = Settings {
        reroute,
        alpha: args.alpha,
    };
    let coins = DispatchCoins::new(args.seed);
    let coin = |item: u64, level: u32| coins.of(item, level);
    let profiled = [profiled.as_slice(), &pruned];
    let verdict = judge(
        &asked.models,
        profiled,
        &asked.items,
        settings,
        &coin,
        &interrupt::flag(),
    )
    .map_err(failure)?;
    let value = json!({
        "items": asked.items.len(),
        "fitted_to_these_items": fitted_here,
        "weights_by_whole_items": of_whole_items,
        "runs": verdict.judged.iter().map(judged_json).collect::<Vec<_>>(),
        "ensemble": verdict.ensemble.iter().map(effect_json).collect::<Vec<_>>(),
        "calibration": verdict.calibration.iter().map(calibration_json).collect::<Vec<_>>(),
    });
    let items = asked.items.len();
    print(output, &value, || {
        format!("{}:\n\n{}", counted(items as u64, "item", "items"), text(&verdict))
    })?;
    if let Some(note) = few_beyond_p99("p99", items) {
        say(output, &format!("note: {note}"));
    }
    Ok(())
}

fn judged_json(judged: &Judged) -> Value {
    json!({
        "name": judged.name,
        "accuracy": judged.accuracy,
        "latency_ms": {
            "mean": judged.mean_us() / 1e3,
            "p50": judged.quantile_us(0.5) / 1e3,
            "p98": judged.quantile_us(0.98) / 1e3,
            "p99": judged.quantile_us(0.99) / 1e3,
        },
        "returned_share_by_stage": judged.returned,
        "words_left": judged.words_left,
        "re_routed_accuracy": judged.re_routed_accuracy,
    })
}

fn effect_json(effect: &EnsembleEffect) -> Value {
    json!({
        "pruned": effect.pruned,
        "weights": effect.weights,
        "re_routed": effect.items,
        "last_wrong": effect.wrong,
        "earlier_right": effect.earlier_right,
        "mended": effect.mended,
        "broken": effect.broken,
    })
}

fn calibration_json(error: &CalibrationError) -> Value {
    json!({
        "model": error.model,
        "temperature": error.temperature,
        "ece_before": error.before,
        "ece_after": error.after,
    })
}

/// The verdict as tables.
fn text(verdict: &Verdict) -> String {
    let judged = table(
        [
            "answered by",
            "accuracy",
            "mean, ms",
            "p50",
            "p98",
            "p99",
            "returned by level",
            "words left",
            "right of re-routed",
        ],
        verdict.judged.iter().map(row),
    );
    let effects = table(
        [
            "ensemble, of re-routed",
            "weights",
            "items",
            "last wrong",
            "an earlier right",
            "mended",
            "broken",
        ],
        verdict.ensemble.iter().map(effect),
    );
    let mut tables = vec![judged, effects];
    // A regression has no temperature.
    if !verdict.calibration.is_empty() {
        let header = ["model", "temperature", "ECE before", "after"];
        tables.push(table(header, verdict.calibration.iter().map(calibration)));
    }
    tables.join("\n\n")
}

fn calibration(error: &CalibrationError) -> Vec<String> {
    let temperature = error.temperature.map(|temperature| format!("{temperature:.3}"));
    vec![
        error.model.clone(),
        temperature.unwrap_or_else(|| "by class".to_owned()),
        percent(error.before),
        percent(error.after),
    ]
}

fn row(judged: &Judged) -> Vec<String> {
    let quantile = |share: f64| format!("{:.3}", judged.quantile_us(share) / 1e3);
    vec![
        judged.name.clone(),
        percent(judged.accuracy),
        format!("{:.3}", judged.mean_us() / 1e3),
        quantile(0.5),
        quantile(0.98),
        quantile(0.99),
        judged.returned.iter().map(|&share| percent(share)).collect::<Vec<_>>().join(", "),
        judged.words_left.map_or(String::new(), percent),
        judged.re_routed_accuracy.map_or(String::new(), percent),
    ]
}

fn effect(effect: &EnsembleEffect) -> Vec<String> {
    let counts = [
        effect.items,
        effect.wrong,
        effect.earlier_right,
        effect.mended,
        effect.broken,
    ];
    let name = if effect.pruned { "pruned" } else { "whole" };
    let weights: Vec<String> = effect.weights.iter().map(|weight| format!("{weight:.4}")).collect();
    [name.into(), weights.join(", ")]
        .into_iter()
        .chain(counts.map(|count| count.to_string()))
        .collect()
}

/// What to make of weights that are not by what the models read here, and how to have them.
fn not_profiled(asked: &Asked, args: &CascadeJudgeArgs, models: &[String]) -> String {
    let (last, before) = asked.models.split_last().expect("there are models");
    let pruning = before.iter().map(|model| format!("{}={}", model.name(), args.alpha));
    let route: Vec<String> = pruning.chain([last.name().to_owned()]).collect();
    format!(
        "note: what {} makes of words pruned to {} is not in {}: the weights where words are pruned are by its \
         accuracy on whole items; `tenantry cascade profile --route {}` measures it",
        models.join(" and "),
        args.alpha,
        args.profiled.display(),
        route.join(",")
    )
}

/// What each model made of the profiled items as `pruned` has them at its level; of whole ones, where those were not
/// profiled, and of which models that is.
fn profiles(
    asked: &Asked,
    args: &CascadeJudgeArgs,
    pruned: impl Fn(usize) -> Vec<PruneStep>,
) -> Result<(Vec<Outputs>, Vec<String>), Failure> {
    let folder = profiled_in(&args.profiled)?;
    let mut of_whole_items = Vec::new();
    let mut outputs = |(level, model): (usize, &TextModel)| {
        let Some(profiled) = folder.find(model.name()) else {
            let (place, known) = (args.profiled.display(), folder.names().join(", "));
            let message = format!("{place}: must have the model {}, got {known}", model.name());
            return Err(Failure::BadInput(message));
        };
        let saved = profiled.after(&pruned(level)).unwrap_or_else(|| {
            of_whole_items.push(model.name().to_owned());
            &profiled.whole
        });
        let place = args.profiled.join(saved.file_name());
        model.check_profiled(&saved.model_hash, &place).map_err(Failure::bad_input)?;
        Outputs::of_saved(saved.clone()).map_err(Failure::bad_input)
    };
    let all = asked.models.iter().enumerate().map(&mut outputs).collect::<Result<_, _>>()?;
    Ok((all, of_whole_items))
}

/// What was fitted to these very items: calibrations, or weights.
fn fitted_to<'a>(items_hash: &str, profiled: impl Iterator<Item = &'a Outputs> + Clone) -> Option<&'static str> {
    let any = |hash: fn(&Outputs) -> &str| profiled.clone().any(|outputs| hash(outputs) == items_hash);
    match (
        any(|outputs| outputs.source.calibrated_on.as_str()),
        any(|outputs| outputs.source.items_hash.as_str()),
    ) {
        (true, true) => Some("calibrations and weights"),
        (true, false) => Some("calibrations"),
        (false, true) => Some("weights"),
        (false, false) => None,
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regression_has_no_table_of_temperatures() {
        let mut verdict = Verdict {
            judged: vec![Judged {
                name: "small".into(),
                accuracy: 0.9,
                service_us: vec![100.0],
                returned: vec![1.0],
                words_left: None,
                re_routed_accuracy: None,
            }],
            ensemble: Vec::new(),
            calibration: Vec::new(),
        };
        assert!(!text(&verdict).contains("temperature"), "{}", text(&verdict));
        verdict.calibration.push(CalibrationError {
            model: "small".into(),
            temperature: Some(1.5),
            before: 0.2,
            after: 0.1,
        });
        assert!(text(&verdict).contains("temperature") && text(&verdict).contains("1.500"));
    }
}
