//! Runs whose requests came at another rate than their scenario names.

use serde::{Deserialize, Serialize};
use tenantry_reports::{Run, human};
use tenantry_scenarios::RunSpec;
use tenantry_traces::Time;
use tenantry_traces::spec::WorkloadSpec;

/// Rates further from what is asked for are worth a note: a part of it, of so many requests that a Poisson process is nearer by six standard
/// deviations.
const FAR: f64 = 0.1;
const REQUESTS: u64 = 4_000;

/// How fast a run's requests came, where that is far from what its scenario names: its arrivals swing by more than evens out while it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnotherRate {
    came_per_s: f64,
    asked_per_s: f64,
}

impl AnotherRate {
    /// Nothing where the rates are near each other, or the scenario names none.
    pub fn of(spec: &RunSpec, run: &Run) -> Option<AnotherRate> {
        let summary = &run.summary;
        let asked_per_s = spec.workload.arrivals.rate_per_s()?;
        let came_per_s = summary.workload?.rate_rps?;
        AnotherRate::far(came_per_s, asked_per_s, summary.requests.offered).filter(|_| !summary.interrupted)
    }

    /// As [`AnotherRate::of`], of so many requests of a workload, the last of which arrives at `last`.
    pub fn of_workload(spec: &WorkloadSpec, requests: u64, last: Time) -> Option<AnotherRate> {
        let came_per_s = requests as f64 / last.as_secs_f64();
        AnotherRate::far(came_per_s, spec.arrivals.rate_per_s()?, requests)
    }

    fn far(came_per_s: f64, asked_per_s: f64, requests: u64) -> Option<AnotherRate> {
        let is_far = (came_per_s / asked_per_s - 1.0).abs() > FAR;
        (requests >= REQUESTS && is_far).then_some(AnotherRate {
            came_per_s,
            asked_per_s,
        })
    }

    fn in_words(self) -> String {
        let [came, asked] = [self.came_per_s, self.asked_per_s].map(human::number);
        format!("{came} and not {asked} a second")
    }
}

/// One sentence on those of so many runs.
pub fn another_rate_caveat(of: impl IntoIterator<Item = AnotherRate>, runs: usize) -> Option<String> {
    let mut far: Vec<AnotherRate> = of.into_iter().collect();
    far.sort_by(|a, b| (a.came_per_s / a.asked_per_s).total_cmp(&(b.came_per_s / b.asked_per_s)));
    let (least, most) = (far.first()?.in_words(), far.last()?.in_words());
    let which = match far.len() == runs {
        true => String::new(),
        false => format!("in {} of {runs} runs ", far.len()),
    };
    let rates = match least == most {
        true => least,
        false => format!("from {least} to {most}"),
    };
    Some(format!(
        "{which}requests came at another rate than the scenario asks for ({rates}): its arrivals swing by more than \
         evens out while a run lasts. Longer runs (`workload.stop`) come nearer, several seeds (`repeats`) show how \
         far they swing."
    ))
}

/// The same on a trace that is generated.
pub fn another_rate_of_trace(of: AnotherRate) -> String {
    format!(
        "requests come at another rate than is asked for ({}): arrivals swing by more than evens out. A longer trace \
         (`--requests`, `--after`) comes nearer; other seeds (`--seed`) swing otherwise.",
        of.in_words()
    )
}
