//! Batches that are planned as requests arrive, and latency targets by service class. The paper leaves quality of
//! service as future work (section 7): all rows are ours.

use tenantry_reports::RunSummary;
use tenantry_scenarios::RunSpec;

use crate::commands::reproduce::lab::{Lab, rate};
use crate::commands::reproduce::row::Row;
use crate::failure::Failure;
use crate::runs::seen;

const FIGURE: &str = "Section 7";
const SCENARIO: &str = "pets/online";
const RATE: &str = "workload.arrivals.poisson.rate";
/// Requests a second that wait for each other; at fewer all ways of planning take what there is.
const BUSY: [&str; 4] = ["500/s", "700/s", "900/s", "1000/s"];
/// More than can be answered.
const OVERLOAD: &str = "1300/s";

/// Quality of service.
pub fn online(lab: &Lab) -> Result<Vec<Row>, Failure> {
    let runs = Online::simulate(lab)?;
    let mut rows = Vec::new();
    for rate in BUSY {
        let p98 = |system| runs.of(system, rate).latency_ms.map_or(f64::INFINITY, |latency| latency.p98);
        // Of all requests alike, as the others plan.
        let planned = p98("one-target");
        let full = p98("fixed-32").min(p98("fixed-8"));
        let what = format!(
            "{rate}: p98 of batches planned online over that of batches of 8 or 32 that wait until they are full: \
             below 1"
        );
        rows.push(Row::ours(FIGURE, what, "×", planned / full, planned < full));
        let greedy = p98("fixed-32-at-once").min(p98("fixed-128-at-once"));
        let what = format!("{rate}: over that of up to 32 or 128 taken as soon as the card is free: at most 1.02");
        rows.push(Row::ours(FIGURE, what, "×", planned / greedy, planned <= 1.02 * greedy));
    }
    for rate in ["900/s", "1000/s", OVERLOAD] {
        let [interactive, same] = ["pets", "one-target"].map(|system| runs.in_time(system, rate, "interactive"));
        let bulk = runs.in_time("pets", rate, "bulk");
        let what = format!(
            "{rate}: interactive queries within 150 ms where bulk ones have 600 ms, over planning with 150 ms for all: \
             more"
        );
        rows.push(
            Row::ours(FIGURE, what, "points", interactive - same, interactive > same).note(format!(
                "{interactive:.1} of {same:.1} %; bulk queries within 600 ms: {bulk:.1} of {:.1} %",
                runs.in_time("one-target", rate, "bulk")
            )),
        );
    }
    let [two, one] = ["pets", "one-target"].map(|system| rate(runs.of(system, OVERLOAD)));
    rows.push(
        Row::ours(
            FIGURE,
            format!("{OVERLOAD}: requests answered a second with both targets, over planning with 150 ms for all"),
            "×",
            two / one,
            two > 0.9 * one,
        )
        .note(format!(
            "{two:.0} of {one:.0}: what putting the urgent first costs; at least 0.9"
        )),
    );
    Ok(rows)
}

/// The scenario's runs, all judged by the targets of the first system.
struct Online(Vec<RunSummary>);

impl Online {
    fn simulate(lab: &Lab) -> Result<Online, Failure> {
        let loaded = lab.load(SCENARIO, &[])?;
        let nothing_yet = seen(&loaded.runs[0]);
        let run = |run: &RunSpec| {
            let mut seen = nothing_yet.clone();
            let mut summary = lab.run(run, loaded.card(run), Some(&mut seen))?;
            summary.classes = seen.classes(false);
            Ok(summary)
        };
        loaded.runs.iter().map(run).collect::<Result<_, Failure>>().map(Online)
    }

    fn of(&self, system: &str, rate: &str) -> &RunSummary {
        let mut runs = self.0.iter();
        let run = runs.find(|run| run.system == system && run.parameters.get(RATE) == Some(&rate.into()));
        run.unwrap_or_else(|| panic!("the scenario has a run of {system} at {rate}"))
    }

    /// Share answered within their class's target, in percent.
    fn in_time(&self, system: &str, rate: &str, class: &str) -> f64 {
        let class = &self.of(system, rate).classes[class];
        100.0 * class.attainment.expect("each class has a target")
    }
}
