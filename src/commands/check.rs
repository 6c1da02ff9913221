//! `tenantry check`: whether a scenario is valid, and what it resolves to.

use serde_json::json;

use crate::cli::{CheckArgs, OutputArgs};
use crate::failure::Failure;
use crate::output::print;
use crate::runs::{Loaded, cluster};

pub fn run(args: &CheckArgs, output: &OutputArgs) -> Result<(), Failure> {
    let loaded = Loaded::load(&args.scenario, None)?;
    for run in &loaded.runs {
        let card = loaded.card(run);
        let in_system =
            |error: &dyn std::fmt::Display| Failure::BadInput(format!("system {}: {error}", run.system.name));
        tenantry_core::Server::new(&cluster(run, card), &run.system, run.tenants).map_err(|e| in_system(&e))?;
        tenantry_sim::Prices::new(card, &run.system.pool, tenantry_sim::Jitter::None).map_err(|e| in_system(&e))?;
    }
    let scenario = &loaded.scenario;
    let value = json!({ "scenario": scenario.name, "valid": true, "runs": loaded.runs.len() });
    print(output, &value, || {
        let resolved = scenario.resolved_yaml();
        format!(
            "{resolved}\n# {} is valid: {} runs, and its card has every table that they need.",
            scenario.name,
            loaded.runs.len()
        )
    })
}
