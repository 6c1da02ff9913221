//! Decoders: Table 4's latencies and Fig. 15's tokens a second, of served systems.

use crate::commands::reproduce::lab::{Changed, Lab, change, tokens_per_s};
use crate::commands::reproduce::row::Row;
use crate::failure::Failure;

/// Latency of half the layers, one request at a time.
pub fn table_4(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Table 4";
    const PAPER: f64 = -49.0;
    let runs = lab.runs("hmi/table-4", &[])?;
    // The median: the first request loads its model.
    let median = |system: &str| runs.of(system).latency_ms.map_or(f64::INFINITY, |latency| latency.p50);
    let saved = |system: &str| 100.0 * (median(system) / median("gpt-dedicated") - 1.0);
    let row = |what: &str, system: &str| Row::predicted(FIGURE, what, "%", [PAPER, saved(system)], 0.1);
    Ok(vec![
        row("hGPT-PLOT 6+6, latency against twelve layers", "hgpt-plot-6+6").note(
            "the backbone above the table alone, as the paper compares it: every token's look-up and copy is in \
             it",
        ),
        row("GPT-compress distil", "gpt-compress")
            .note("and of the paper's GPT-compress tiny6, which has as many layers, and whose width it does not say"),
        Row::assumed(
            FIGURE,
            "hGPT 6+6 with a tenant's adapters",
            "%",
            Some(PAPER),
            saved("hgpt-6+6"),
        )
        .note(
            "assumes that the table compares models without adapters: at batch 1 launches bind, and an adapter \
             has five to a layer's twenty",
        ),
    ])
}

const SYSTEMS: [(&str, &str); 4] = [
    ("gpt-dedicated", "GPT-dedicated"),
    ("gpt-compress", "GPT-compress"),
    ("gpt-shared", "GPT-shared"),
    ("hgpt", "hGPT"),
];
const TENANTS: [u32; 5] = [1, 10, 100, 1000, 10_000];

/// Tokens a second of all systems against the number of tenants.
pub fn figure_15(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 15";
    const ASSUMPTION: &str = "assumes 64 requests inside, and prompts and answers of 128 tokens";
    let runs = lab.runs("hmi/fig-15", &[])?;
    let of = |system: &str| TENANTS.map(|tenants| tokens_per_s(runs.among(system, tenants)));
    let list = |rates: &[f64]| rates.iter().map(|rate| format!("{rate:.0}")).collect::<Vec<_>>().join(", ");
    let mut rows = Vec::new();
    for (system, name) in SYSTEMS {
        let rates = of(system);
        let (first, last) = (rates[0], rates[TENANTS.len() - 1]);
        let (what, holds) = match system {
            "gpt-dedicated" | "gpt-compress" => ("falls", last < 0.5 * first),
            _ => ("constant", rates.iter().all(|rate| (rate / first - 1.0).abs() < 0.05)),
        };
        rows.push(
            Row::shape(
                FIGURE,
                format!("{name}, 10,000 tenants over 1: {what}"),
                "×",
                last / first,
                holds,
            )
            .note(format!(
                "tokens/s of 1 to 10,000 tenants: {}; {ASSUMPTION}",
                list(&rates)
            ))
            .extrapolated(runs.beyond(&[system])),
        );
    }
    let at_most = |system: &str| of(system)[TENANTS.len() - 1];
    let hgpt = at_most("hgpt");
    for (system, name) in &SYSTEMS[..3] {
        let over = hgpt / at_most(system);
        rows.push(
            Row::shape(
                FIGURE,
                format!("hGPT over {name} at 10,000 tenants: above 1"),
                "×",
                over,
                over > 1.0,
            )
            .extrapolated(runs.beyond(&["hgpt", system])),
        );
    }
    let many = "sweep={tenants.count: [10000]}";
    let hgpt_with = |set: &[&str]| -> Result<f64, Failure> {
        let set: Vec<&str> = [many].into_iter().chain(set.iter().copied()).collect();
        Ok(tokens_per_s(lab.runs("hmi/fig-15", &set)?.of("hgpt")))
    };
    let synchronous = hgpt_with(&["systems[3].pipeline=synchronous"])?;
    let short = hgpt_with(&["workload.lengths.output.fixed=32"])?;
    let slower = lab.runs_if("hmi/fig-15", &[many], "lookup_memory_ms", Changed::By(2.0))?;
    rows.push(
        Row::assumed(FIGURE, "hGPT at 10,000 tenants", "tokens/s", None, hgpt).note(format!(
            "{ASSUMPTION}; answers of 32 tokens change it by {},{} and prompts looked up in their first step instead \
             of beside what runs by {}",
            change(hgpt, short),
            slower.map_or(String::new(), |slower| format!(
                " look-ups that take twice as long by {},",
                change(hgpt, tokens_per_s(slower.of("hgpt")))
            )),
            change(hgpt, synchronous),
        )),
    );
    rows.push(Row::not_checkable(
        FIGURE,
        "tokens/s themselves",
        "the figure is lost, and the text says only that hGPT's are consistently high",
    ));
    Ok(rows)
}
