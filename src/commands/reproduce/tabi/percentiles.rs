//! Fig. 7: percentiles, of which the text has bounds and an order.

use tenantry_core::durations::Durations;

use super::TASKS;
use super::lengths::{LENGTHS, as_long_as};
use super::overall::below;
use crate::commands::reproduce::lab::Lab;
use crate::commands::reproduce::number::fixed;
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
        let as_long = as_long_as(task);
        let [real, mean] = [lab.load(task.scenario, &[&as_long])?, lab.load(task.scenario, &[])?];
        let of = |system: &str| Ok::<_, Failure>([lab.latencies(&real, system)?, lab.latencies(&mean, system)?]);
        let tabi = of("tabi")?;
        let others = [
            ("INFaaS", of("infaas-best")?, 62.0),
            ("Cocktail", of("cocktail")?, 45.0),
        ];
        for (name, other, at_most) in &others {
            for (quantile, percentile) in [(0.25, "p25"), (0.5, "median")] {
                let reduction = |lengths: usize| {
                    below(
                        quantile_ms(&tabi[lengths], quantile),
                        quantile_ms(&other[lengths], quantile),
                    )
                };
                let what = format!("{}, {percentile} below {name}'s: by up to {at_most} %", task.name);
                let assumed = match *name {
                    "Cocktail" => "; Cocktail's members are assumed",
                    _ => "",
                };
                let holds = reduction(0) > 0.0 && reduction(0) <= *at_most;
                rows.push(Row::shape(FIGURE, what, "%", reduction(0), holds).note(format!(
                    "{LENGTHS}. Were all as long as the mean, {} %{assumed}",
                    fixed(reduction(1), 1)
                )));
            }
        }
        let [(_, infaas, _), (_, cocktail, _)] = &others;
        let over = |other: &[Durations; 2], quantile: f64, lengths: usize| {
            quantile_ms(&tabi[lengths], quantile) / quantile_ms(&other[lengths], quantile)
        };
        for (quantile, percentile) in [(0.75, "p75"), (0.99, "p99")] {
            let ours = over(infaas, quantile, 0);
            let what = format!("{}, {percentile} over INFaaS's: better (section 7.2)", task.name);
            rows.push(Row::shape(FIGURE, what, "×", ours, ours < 1.0).note(format!(
                "{LENGTHS}; were all as long as the mean, {:.2} ×. Section 7.3.2 says of the same that the tail \"does \
                 not improve much\", the caption that it is maintained",
                over(infaas, quantile, 1)
            )));
        }
        let ours = over(cocktail, 0.99, 0);
        let what = format!("{}, p99 over Cocktail's: not as good (section 7.3.2)", task.name);
        rows.push(Row::shape(FIGURE, what, "×", ours, ours > 1.0).note(format!(
            "{LENGTHS}; were all as long as the mean, {:.2} ×. Section 7.2 calls it close, of which there is no size; \
             Cocktail's members are assumed",
            over(cocktail, 0.99, 1)
        )));
    }
    rows.push(Row::not_checkable(FIGURE, "its boxes", "the figure is lost"));
    Ok(rows)
}
