//! Batches that are planned as requests arrive.

use tenantry_reports::RunSummary;

use crate::commands::reproduce::lab::Lab;
use crate::commands::reproduce::row::Row;
use crate::failure::Failure;

/// Quality of service, which the paper leaves as future work.
pub fn online(lab: &Lab) -> Result<Vec<Row>, Failure> {
    const FIGURE: &str = "Section 8";
    let runs = lab.runs("pets/online", &[])?;
    let p98 = |run: &RunSummary| run.latency_ms.map_or(f64::INFINITY, |latency| latency.p98);
    let mut rows = Vec::new();
    for rate in ["100/s", "300/s", "500/s", "700/s", "900/s", "1000/s"] {
        let of = |system| p98(runs.find(system, &[("workload.arrivals.poisson.rate", rate.into())]));
        let (pets, full) = (of("pets"), of("fixed-32").min(of("fixed-8")));
        let what = format!(
            "{rate}: p98 of batches planned online over that of batches of 8 or 32 that wait until they are full: below 1"
        );
        rows.push(Row::shape(FIGURE, what, "×", pets / full, pets < full));
        let greedy = of("fixed-32-at-once").min(of("fixed-128-at-once"));
        let what = format!("{rate}: over that of up to 32 or 128 taken as soon as the card is free: at most 1.02");
        rows.push(Row::shape(FIGURE, what, "×", pets / greedy, pets <= 1.02 * greedy));
    }
    Ok(rows)
}
