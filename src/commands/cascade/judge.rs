//! `tenantry cascade judge`: a cascade beside its own models.

use serde_json::json;
use tenantry_cascade::Reroute;
use tenantry_executor::cascade::{Judged, Outputs, Settings, judge};
use tenantry_reports::terminal;
use tenantry_traces::outcome::DispatchCoins;

use super::{Asked, failure};
use crate::cli::{CascadeJudgeArgs, OutputArgs};
use crate::failure::Failure;
use crate::output::{print, style};

pub fn run(args: &CascadeJudgeArgs, output: &OutputArgs) -> Result<(), Failure> {
    let reroute = Reroute::new(args.cut_off, args.slope).map_err(Failure::bad_input)?;
    let asked = Asked::read(&args.models)?;
    let profiled = asked
        .models
        .iter()
        .map(|model| Outputs::read(&args.profiled.join(format!("{}.safetensors", model.name()))))
        .collect::<Result<Vec<_>, _>>()
        .map_err(Failure::bad_input)?;
    let settings = Settings {
        reroute,
        alpha: args.alpha,
    };
    let coins = DispatchCoins::new(args.seed);
    let coin = |item: u64, level: u32| coins.of(item, level);
    let borrowed: Vec<&Outputs> = profiled.iter().collect();
    let (judged, errors) = judge(&asked.models, &borrowed, &asked.items, settings, &coin).map_err(failure)?;
    let rows: Vec<_> = judged
        .iter()
        .map(|judged| {
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
            })
        })
        .collect();
    let calibration: Vec<_> = errors
        .iter()
        .map(|error| json!({ "model": error.model, "temperature": error.temperature, "ece_before": error.before, "ece_after": error.after }))
        .collect();
    let value = json!({ "items": asked.items.len(), "runs": rows, "calibration": calibration });
    print(output, &value, || {
        let header = [
            "answered by",
            "accuracy",
            "mean, ms",
            "p50",
            "p98",
            "p99",
            "returned by level",
            "words left",
        ];
        let mut table = vec![header.map(str::to_owned).to_vec()];
        for judged in &judged {
            table.push(row(judged));
        }
        let mut calibration = vec![
            ["model", "temperature", "ECE before", "after"]
                .map(str::to_owned)
                .to_vec(),
        ];
        for error in &errors {
            calibration.push(vec![
                error.model.clone(),
                format!("{:.3}", error.temperature),
                percent(error.before),
                percent(error.after),
            ]);
        }
        let calibration = terminal::figures(&calibration, style());
        format!("{}\n\n{calibration}", terminal::figures(&table, style()))
    })
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
        judged
            .returned
            .iter()
            .map(|&share| percent(share))
            .collect::<Vec<_>>()
            .join(", "),
        judged.words_left.map_or(String::new(), percent),
    ]
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
