//! The whole: Tables 1 and 2, Fig. 7.

use tenantry_reports::RunSummary;

use super::{TASKS, tasks};
use crate::commands::reproduce::lab::{Lab, latency_ms};
use crate::commands::reproduce::row::Row;
use crate::failure::Failure;

/// Table 1: systems of the scenario, and their latencies.
const LATENCIES_MS: [(&str, f64); 12] = [
    ("bert-small", 6.0),
    ("distilbert", 7.0),
    ("albert-base", 14.0),
    ("prunebert", 15.0),
    ("deberta-small", 12.0),
    ("bert-base", 17.0),
    ("roberta-base", 19.0),
    ("deberta-base", 20.0),
    ("bert-large", 24.0),
    ("roberta-large", 26.0),
    ("deberta-large", 29.0),
    ("deberta-xlarge", 38.0),
];

/// Table 2, for each of the two tasks: latency, accuracy, cost and throughput of INFaaS, Cocktail and Tabi.
struct Measured {
    latency_ms: [f64; 3],
    accuracy: f64,
    cost: [f64; 3],
    per_s: [f64; 3],
    reduction: f64,
}

const MEASURED: [Measured; 2] = [
    Measured {
        latency_ms: [22.0, 17.8, 13.2],
        accuracy: 95.6,
        cost: [11.6, 9.4, 5.8],
        per_s: [42.7, 53.2, 63.8],
        reduction: 40.0,
    },
    Measured {
        latency_ms: [25.8, 22.9, 20.3],
        accuracy: 90.4,
        cost: [13.3, 15.3, 9.3],
        per_s: [36.1, 40.0, 42.1],
        reduction: 22.0,
    },
];

const SYSTEMS: [(&str, &str); 3] = [("infaas-best", "INFaaS"), ("cocktail", "Cocktail"), ("tabi", "Tabi")];

/// Accuracy in percent; not a number where nobody can tell.
pub fn accuracy(run: &RunSummary) -> f64 {
    run.cascade
        .as_ref()
        .and_then(|cascade| cascade.accuracy)
        .map_or(f64::NAN, |share| 100.0 * share)
}

/// Each of the twelve models alone.
pub fn table_1(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Table 1";
    let runs = lab.runs("tabi/table-1", &[])?;
    let row = |(system, paper): (&str, f64)| Row::input(FIGURE, system, "ms", paper, latency_ms(runs.of(system)));
    let mut rows: Vec<Row> = LATENCIES_MS.into_iter().map(row).collect();
    rows.push(Row::not_checkable(
        FIGURE,
        "accuracies",
        "what trained models answer; the outcomes of SST-2 and MNLI are made from section 7.3.2 instead",
    ));
    Ok(rows)
}

/// Two of its ten tasks.
pub fn table_2(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Table 2";
    let runs = tasks(lab)?;
    let mut rows = Vec::new();
    for ((task, runs), paper) in TASKS.iter().zip(&runs).zip(MEASURED) {
        let [infaas, cocktail, tabi] = SYSTEMS.map(|(system, _)| runs.of(system));
        let name = |system: &str, what: &str| format!("{}, {system}, {what}", task.name);
        let latency =
            |system, paper, run| Row::predicted(FIGURE, name(system, "latency"), "ms", [paper, latency_ms(run)], 0.05);
        rows.push(match task.name {
            "SST-2" => Row::input(
                FIGURE,
                name("INFaaS", "latency"),
                "ms",
                paper.latency_ms[0],
                latency_ms(infaas),
            ),
            _ => latency("INFaaS", paper.latency_ms[0], infaas),
        });
        let members = "assumes its members and their accuracies (DeBERTa-small, BERT-base or DeBERTa-base, RoBERTa-base), which the paper \
                       does not name: the latency is that of the slowest";
        rows.push(
            Row::assumed(
                FIGURE,
                name("Cocktail", "latency"),
                "ms",
                Some(paper.latency_ms[1]),
                latency_ms(cocktail),
            )
            .note(members),
        );
        rows.push(
            latency("Tabi", paper.latency_ms[2], tabi)
                .note("inputs: returned and pruned shares, and 1.35 ms of control"),
        );
        let reduction = 100.0 * (1.0 - latency_ms(tabi) / latency_ms(infaas));
        rows.push(Row::predicted(
            FIGURE,
            name("Tabi", "latency below INFaaS's"),
            "%",
            [paper.reduction, reduction],
            0.1,
        ));
        rows.push(
            Row::input(FIGURE, name("Tabi", "accuracy"), "%", paper.accuracy, accuracy(tabi))
                .note("exact by construction: the accuracies of both branches are inputs (section 7.3.2), the paper's total is 0.3 points off theirs"),
        );
        let formula = "assumes nothing but the paper's formula with its Table 1, ΣW T / Pf, which does not give the paper's figure";
        for (index, run) in [infaas, cocktail, tabi].into_iter().enumerate() {
            let cost = run
                .cascade
                .as_ref()
                .and_then(|cascade| cascade.packed_gpu_ms_per_request);
            let system = SYSTEMS[index].1;
            rows.push(
                Row::assumed(
                    FIGURE,
                    name(system, "cost"),
                    "",
                    Some(paper.cost[index]),
                    cost.unwrap_or(f64::NAN),
                )
                .note(formula),
            );
        }
        for (index, run) in [infaas, cocktail, tabi].into_iter().enumerate() {
            let note = "assumes that a query comes when the one before has left: 1 / latency. The paper's is lower for every system, and the text \
                        does not say what else takes time";
            let per_s = run.throughput_rps.unwrap_or(f64::NAN);
            rows.push(
                Row::assumed(
                    FIGURE,
                    name(SYSTEMS[index].1, "queries"),
                    "/s",
                    Some(paper.per_s[index]),
                    per_s,
                )
                .note(note),
            );
        }
    }
    Ok(rows)
}

/// Percentiles: the text has their order.
pub fn figure_7(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 7";
    let runs = tasks(lab)?;
    let mut rows = Vec::new();
    for (task, runs) in TASKS.iter().zip(&runs) {
        let quantile = |system: &str, read: fn(tenantry_reports::summary::Distribution) -> f64| {
            runs.of(system).latency_ms.map_or(f64::NAN, read)
        };
        let below = |system: &str, read| 100.0 * (1.0 - quantile("tabi", read) / quantile(system, read));
        if task.name == "SST-2" {
            for (system, name, paper) in [("infaas-best", "INFaaS", 62.0), ("cocktail", "Cocktail", 45.0)] {
                let ours = below(system, |latency| latency.p50);
                let what = format!("SST-2, median below {name}'s: up to {paper} %");
                rows.push(Row::shape(FIGURE, what, "%", ours, ours > 0.0));
            }
        }
        rows.push(
            Row::shape(
                FIGURE,
                format!("{}, p99 over INFaaS's: a modest drawback", task.name),
                "×",
                quantile("tabi", |latency| latency.p99) / quantile("infaas-best", |latency| latency.p99),
                quantile("tabi", |latency| latency.p99) < 1.3 * quantile("infaas-best", |latency| latency.p99),
            )
            .note(format!(
                "without pruning {:.2} ×: pruning makes up for most of the small model's time",
                quantile("no-pruning", |latency| latency.p99) / quantile("infaas-best", |latency| latency.p99)
            )),
        );
    }
    rows.push(Row::not_checkable(FIGURE, "its boxes", "the figure is lost"));
    Ok(rows)
}
