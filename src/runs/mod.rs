//! From a scenario to its runs: what `simulate`, `execute` and `validate` share.

mod loaded;
mod outcome;
mod simulated;

use tenantry_reports::RunLabels;
use tenantry_scenarios::{Override, RunSpec, Scenario};

pub use self::loaded::Loaded;
pub use self::outcome::{Outcome, publish};
pub use self::simulated::{SimulatedRun, failure_of, run_failure, seen, simulate, simulate_watched, summarized};
use crate::cli::ScenarioArgs;
use crate::failure::Failure;

/// Reads a scenario with the overrides of the command line.
pub fn scenario(args: &ScenarioArgs) -> Result<Scenario, Failure> {
    let mut overrides: Vec<Override> = args.set.iter().map(|text| Override::set(text)).collect();
    overrides.extend(args.seed.map(seed));
    Scenario::load_with(&args.scenario, &overrides).map_err(Failure::bad_input)
}

/// `--seed`.
pub fn seed(seed: u64) -> Override {
    Override::option("--seed", "seed", &seed.to_string())
}

/// What a run's folder calls it.
pub fn labels(run: &RunSpec, machine: &str, repeat: u32) -> RunLabels {
    RunLabels {
        system: run.system.name.clone(),
        parameters: run.parameters.iter().cloned().collect(),
        repeat,
        machine: machine.to_owned(),
        seed: run.seed,
        slo: run.slo,
        card: run.card.clone(),
        gpus: run.gpus,
        price_per_hour: run.price_per_hour,
    }
}
