//! What swapping whole models costs: Fig. 3, 4 and 11.

use tenantry_reports::RunSummary;

use crate::commands::reproduce::lab::{Lab, latency_ms, rate};
use crate::commands::reproduce::row::Row;
use crate::failure::Failure;

fn hits(run: &RunSummary) -> f64 {
    run.swap.and_then(|swap| swap.hit_share()).unwrap_or(0.0)
}

/// Hit rate and slowdown against the number of tenants.
pub fn figure_3(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 3";
    let runs = lab.runs("hmi/fig-3", &[])?;
    let frequent = lab.runs("hmi/fig-3", &["systems[0].swap=lfu", "sweep={tenants.count: [1000]}"])?;
    let periodic = lab.runs("hmi/fig-3-periodic", &[])?;
    let run = |tenants| runs.among("bert-dedicated", tenants);
    let misses = 1.0 - hits(run(1000));
    let slowdown = |tenants| latency_ms(run(tenants)) / latency_ms(run(1));
    let in_order = [1, 10, 35, 100, 1000, 10_000].map(slowdown);
    let circle = |tenants| hits(periodic.among("bert-dedicated", tenants));
    Ok(vec![
        Row::predicted(
            FIGURE,
            "1,000 tenants, share that loads a model",
            "%",
            [97.0, 100.0 * misses],
            0.02,
        )
        .note(format!(
            "whatever is kept: the least frequently used leaving instead of the least recently used, {:.1} %",
            100.0 * (1.0 - hits(frequent.among("bert-dedicated", 1000)))
        )),
        Row::shape(
            FIGURE,
            "slowdown at 1,000 tenants, rising from 1",
            "×",
            slowdown(1000),
            in_order.windows(2).all(|pair| pair[1] >= 0.999 * pair[0]),
        )
        .note("the figure is lost; a model's 438 MB take three times as long to come in as to compute"),
        Row::shape(
            FIGURE,
            "50 tenants that ask periodically: the least recently used hits nothing",
            "",
            circle(50),
            circle(30) > 0.9 && circle(50) == 0.0,
        )
        .note(format!(
            "36 models fit; of 30 tenants' requests {:.0} % hit. Not in the paper: Fig. 12's tenants ask in a circle",
            100.0 * circle(30)
        )),
    ])
}

/// Throughput of compressed models.
pub fn figure_4(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 4";
    let runs = lab.runs("hmi/fig-4", &[])?;
    let run = |tenants| runs.among("bert-compress-tiny4", tenants);
    let assumption = "assumes two batches of 32 in flight over tenants alike: 280 models fit, so that what is lost by \
                      100 tenants is lost to batches that fall apart";
    let row = |tenants: u32| {
        let run = run(tenants);
        Row::assumed(FIGURE, format!("TinyBERT-4, models: {tenants}"), "/s", None, rate(run)).note(format!(
            "batches of {:.1}, {:.1} % of the uses hit",
            run.batch_size_mean.unwrap_or(0.0),
            100.0 * hits(run)
        ))
    };
    let mut rows: Vec<Row> = [1, 10, 100, 1000].map(row).into();
    rows.push(
        Row::shape(
            FIGURE,
            "100 tenants over 10: a sharp decline",
            "×",
            rate(run(100)) / rate(run(10)),
            rate(run(100)) < 0.5 * rate(run(10)),
        )
        .note(assumption),
    );
    Ok(rows)
}

const SYSTEMS: [(&str, &str); 5] = [
    ("bert-dedicated", "BERT-dedicated"),
    ("bert-compress-tiny4", "BERT-compress tiny4"),
    ("bert-shared", "BERT-shared"),
    ("hbert-adapter", "hBERT-adapter"),
    ("hbert", "hBERT"),
];
const TENANTS: [u32; 5] = [1, 10, 100, 1000, 10_000];

/// Throughput of all systems against the number of tenants.
pub fn figure_11(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 11";
    let runs = lab.runs("hmi/fig-11", &[])?;
    let of = |system: &str| TENANTS.map(|tenants| rate(runs.among(system, tenants)));
    let mut rows = Vec::new();
    for (system, name) in SYSTEMS {
        let rates = of(system);
        let (first, last) = (rates[0], rates[TENANTS.len() - 1]);
        let shared = !["bert-dedicated", "bert-compress-tiny4"].contains(&system);
        let (what, holds) = match shared {
            true => ("constant", rates.iter().all(|rate| (rate / first - 1.0).abs() < 0.05)),
            false => (
                "falls",
                rates.windows(2).all(|pair| pair[1] < 1.02 * pair[0]) && last < 0.5 * first,
            ),
        };
        let list = rates.map(|rate| format!("{rate:.0}")).join(", ");
        rows.push(
            Row::shape(
                FIGURE,
                format!("{name}, 10,000 tenants over 1: {what}"),
                "×",
                last / first,
                holds,
            )
            .note(format!("requests/s of 1 to 10,000 tenants: {list}")),
        );
    }
    // Only the scalable ones serve 10,000 tenants' models as if they were one.
    let [few, ten, many] = [0, 1, TENANTS.len() - 1].map(|index| SYSTEMS.map(|(system, _)| of(system)[index]));
    let better = |rates: [f64; 5]| rates.iter().filter(|rate| **rate > rates[4]).count() as f64;
    for (tenants, rates) in [("1 tenant", few), ("10 tenants", ten)] {
        rows.push(Row::shape(
            FIGURE,
            format!("systems faster than hBERT at {tenants}: at most one"),
            "",
            better(rates),
            better(rates) <= 1.0,
        ));
    }
    rows.push(Row::shape(
        FIGURE,
        "systems faster than hBERT at 10,000 tenants: none",
        "",
        better(many),
        better(many) == 0.0,
    ));
    rows.push(Row::not_checkable(
        FIGURE,
        "throughputs themselves",
        "the figure is lost, and the text gives none",
    ));
    Ok(rows)
}
