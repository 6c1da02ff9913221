//! From a scenario to its runs: what `simulate`, `execute` and `validate` share.

mod loaded;
mod outcome;
mod place;
mod simulated;

use tenantry_reports::RunLabels;
use tenantry_scenarios::{Override, RunSpec, Scenario};

pub use self::loaded::Loaded;
pub use self::outcome::{Outcome, publish};
pub use self::place::Place;
pub use self::simulated::{
    SimulatedRun, failure_of, run_failure, seen, simulate, simulate_watched, simulation, summarized,
};
use crate::cli::ScenarioArgs;
use crate::failure::Failure;

/// Reads a scenario with the overrides of the command line. `profile` is to replace its card.
pub fn scenario(args: &ScenarioArgs, profile: Option<&str>) -> Result<Scenario, Failure> {
    let mut overrides: Vec<Override> = args.set.iter().map(|text| Override::set(text)).collect();
    if let Some(of_option) = args.seed {
        check_not_set(&args.set, "--seed", "seed", &of_option.to_string())?;
        overrides.push(seed(of_option));
    }
    if let Some(profile) = profile {
        check_not_set(&args.set, "--profile", "card", profile)?;
    }
    Scenario::load_with(&args.scenario, &overrides).map_err(Failure::bad_input)
}

/// Refuses a flag beside a `--set` of what the flag gives: the flag would win, and nobody would say so.
pub fn check_not_set(set: &[String], option: &str, path: &str, value: &str) -> Result<(), Failure> {
    let is_within = |set: &&String| {
        let key = set.split_once('=').map_or("", |(key, _)| key.trim());
        let rest = key.strip_prefix(path);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    match set.iter().find(is_within) {
        None => Ok(()),
        Some(set) => Err(Failure::BadInput(format!(
            "{option}: must be left out where --set gives {path}, got {value} beside --set {set}"
        ))),
    }
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
