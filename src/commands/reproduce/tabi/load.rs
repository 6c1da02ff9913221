//! Under load, which the paper does not measure: queries come as tweets do, at shares of what the large model alone can
//! serve.

use tenantry_reports::RunSummary;

use super::overall::accuracy;
use crate::commands::reproduce::lab::{Lab, latency_ms, rate};
use crate::commands::reproduce::row::Row;
use crate::failure::Failure;

const SYSTEMS: [(&str, &str); 3] = [
    ("tabi", "cascade"),
    ("large-alone", "large alone"),
    ("small-alone", "small alone"),
];

/// The rate that the scenario names.
const SHIPPED_PER_S: f64 = 145.0;

/// Clients enough that all batches are full.
const SATURATED: &str = "workload.arrivals={closed-loop: {clients: 128, think_time: 0s}}";

/// Two cards for each system.
pub fn under_load(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Under load";
    let capacity = lab.runs("tabi/load", &[SATURATED, "workload.stop={requests: 20000}"])?;
    let of_large = rate(capacity.of("large-alone"));
    let not_theirs = "the paper has single queries only: no number of its own. Queries come as the Twitter sample's \
                      do, with bursts; batches up to 8, two cards each";
    let mut rows: Vec<Row> = SYSTEMS
        .iter()
        .map(|(system, name)| {
            Row::assumed(
                FIGURE,
                format!("{name}, capacity"),
                "/s",
                None,
                rate(capacity.of(system)),
            )
            .note("assumes the card's time for batches, by packing factor (Table 1)")
        })
        .collect();
    // The pattern's mean over this hour of it is not that over days.
    let as_shipped = lab.runs("tabi/load", &[])?;
    let hour = rate(as_shipped.of("small-alone")) / SHIPPED_PER_S;
    let mut worst = Vec::new();
    for share in [50, 80, 95] {
        let per_s = of_large * f64::from(share) / 100.0 / hour;
        let arrivals = format!("workload.arrivals={{twitter: {{rate: {per_s:.3}/s}}}}");
        let runs = lab.runs("tabi/load", &[&arrivals])?;
        for (system, name) in SYSTEMS {
            let run = runs.of(system);
            let [p50, p98] = quantiles(run);
            let what = |what: &str| format!("{name} at {share} % of the large model's capacity, {what}");
            let note = format!(
                "{not_theirs}; mean {:.1} ms, accuracy {:.1} %, {:.1} answered a second",
                latency_ms(run),
                accuracy(run),
                rate(run)
            );
            rows.push(Row::assumed(FIGURE, what("p50"), "ms", None, p50).note(&note));
            rows.push(Row::assumed(FIGURE, what("p98"), "ms", None, p98).note(&note));
        }
        worst.push(quantiles(runs.of("tabi"))[1] / quantiles(runs.of("large-alone"))[1]);
    }
    rows.push(Row::ours(
        FIGURE,
        "cascade's p98 over the large model's at 95 %: bursts overload it far less",
        "×",
        worst[2],
        worst[2] < 1.0,
    ));
    Ok(rows)
}

fn quantiles(run: &RunSummary) -> [f64; 2] {
    run.latency_ms.map_or([f64::NAN; 2], |latency| [latency.p50, latency.p98])
}
