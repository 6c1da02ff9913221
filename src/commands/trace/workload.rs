//! Workloads without a system that serves them.

use tenantry_scenarios::{Override, Scenario};
use tenantry_traces::spec::WorkloadSpec;

use crate::failure::Failure;

/// What a scenario must have beside its workload: a model that no length is too long for.
const BASE: &str = "\
name: workload
seed: 1
models: { backbone: { layers: 1, hidden: 2, heads: 1, intermediate: 2, vocabulary: 2, positions: 1048576 } }
tenants: { count: 1 }
workload:
  arrivals: { poisson: { rate: 1/s } }
  lengths: { input: { fixed: 1 } }
systems:
  - preset: bert-shared
";

/// The workload that overrides (`path=value`, as `--set` has them) make.
pub fn of_overrides(overrides: &[String]) -> Result<WorkloadSpec, Failure> {
    let overrides: Vec<Override> = overrides.iter().map(|text| Override::set(text)).collect();
    one(&of_options(&overrides)?)
}

/// A scenario with the workload that overrides make.
pub fn of_options(overrides: &[Override]) -> Result<Scenario, Failure> {
    Scenario::from_yaml_with("workload", BASE, overrides).map_err(|mut errors| {
        // What the user has not said is in no file.
        for error in errors.told.iter_mut().filter(|error| error.line.is_some()) {
            (error.file, error.line) = ("the flags".into(), None);
        }
        Failure::bad_input(errors)
    })
}

/// The one workload of a scenario. Of repeats it is the first.
pub fn one(scenario: &Scenario) -> Result<WorkloadSpec, Failure> {
    let runs: Vec<_> = scenario.runs().into_iter().filter(|run| run.repeat == 0).collect();
    let others = runs.iter().filter(|run| run.workload != runs[0].workload).count();
    if others > 0 {
        return Err(Failure::BadInput(format!(
            "{}: sweep: must leave one workload to generate, got {others} runs with others than the first; choose one \
             with --set",
            scenario.name
        )));
    }
    Ok(runs.into_iter().next().expect("a scenario has a run").workload)
}
