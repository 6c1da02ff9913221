//! Fig. 7: percentiles, of which the text has bounds and an order.

use tenantry_core::durations::Durations;

use super::TASKS;
use super::overall::below;
use crate::commands::reproduce::lab::Lab;
use crate::commands::reproduce::row::Row;
use crate::failure::Failure;

fn quantile_ms(latencies: &Durations, quantile: f64) -> f64 {
    latencies.quantile_ns(quantile) as f64 / 1e6
}

/// Of both tasks.
pub fn figure_7(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Fig. 7";
    let mut rows = Vec::new();
    for task in &TASKS {
        let loaded = lab.load(task.scenario, &[])?;
        let of = |system: &str| lab.latencies(&loaded, system);
        let (tabi, no_pruning, small) = (of("tabi")?, of("no-pruning")?, of("small-alone")?);
        let others = [
            ("INFaaS", of("infaas-best")?, 62.0),
            ("Cocktail", of("cocktail")?, 45.0),
        ];
        for (name, other, at_most) in &others {
            for (quantile, percentile) in [(0.25, "p25"), (0.5, "median")] {
                let ours = quantile_ms(&tabi, quantile);
                let reduction = below(ours, quantile_ms(other, quantile));
                let what = format!("{}, {percentile} below {name}'s: by up to {at_most} %", task.name);
                let first = quantile_ms(&small, 0.5);
                let would_be = quantile_ms(other, quantile) * (1.0 - at_most / 100.0);
                let note = match reduction > 0.0 {
                    true => format!(
                        "a query that the small model answers takes {ours:.1} ms here, {first:.1} of them the model (Table 1) and the rest control. {at_most} % \
                         would be {would_be:.1} ms, and so much control would add {:.1} ms to Tabi's mean in Table 2. Cocktail's members are assumed",
                        would_be - ours
                    ),
                    false => "49.4 % are returned (section 7.3.2), so that the median query is one that both models answer. Table 5's 12.7 ms with −2.3 % \
                              says 13.0 ms for it, which is neither one model's time here nor both"
                        .to_owned(),
                };
                let holds = reduction > 0.0 && reduction <= *at_most;
                rows.push(Row::shape(FIGURE, what, "%", reduction, holds).note(note));
            }
        }
        let [(_, infaas, _), (_, cocktail, _)] = &others;
        let over =
            |of: &Durations, other: &Durations, quantile| quantile_ms(of, quantile) / quantile_ms(other, quantile);
        for (quantile, percentile) in [(0.75, "p75"), (0.99, "p99")] {
            let ours = over(&tabi, infaas, quantile);
            let whole = over(&no_pruning, infaas, quantile);
            let offset = 100.0 * (whole - ours) / (whole - 1.0);
            let what = format!("{}, {percentile} over INFaaS's: better (section 7.2)", task.name);
            rows.push(Row::shape(FIGURE, what, "×", ours, ours < 1.0).note(format!(
                "such a query waits for the small model and control, and then for the pruned large one: by Tables 1 and 3 that is more than the large one \
                 alone. Pruning makes up for {offset:.0} % of it ({whole:.2} × without), where section 7.3.3 says that it about offsets it. Section 7.3.2 \
                 takes back section 7.2: the tail \"does not improve much\"; the caption calls it maintained"
            )));
        }
        let ours = over(&tabi, cocktail, 0.99);
        let what = format!("{}, p99 over Cocktail's: not as good (section 7.3.2)", task.name);
        rows.push(
            Row::shape(FIGURE, what, "×", ours, ours > 1.0)
                .note("section 7.2 calls it close, of which there is no size; Cocktail's members are assumed"),
        );
    }
    rows.push(Row::not_checkable(FIGURE, "its boxes", "the figure is lost"));
    Ok(rows)
}
