//! `tenantry check`: whether a scenario is valid, and what it resolves to.

use serde_json::json;
use tenantry_traces::management::ManagementSpec;

use crate::cli::{CheckArgs, OutputArgs};
use crate::failure::Failure;
use crate::output::{next, print};
use crate::runs::{Loaded, cluster};

pub fn run(args: &CheckArgs, output: &OutputArgs) -> Result<(), Failure> {
    let loaded = Loaded::load(&args.scenario, None)?;
    fits(&loaded)?;
    let scenario = &loaded.scenario;
    let value = json!({ "scenario": scenario.name, "valid": true, "runs": loaded.runs.len() });
    print(output, &value, || {
        let resolved = scenario.resolved_yaml();
        format!(
            "{resolved}\n# {} is valid: {} runs, and its card has every table that they need.",
            scenario.name,
            loaded.runs.len()
        )
    })?;
    next(output, &format!("tenantry simulate {}", args.scenario.scenario));
    Ok(())
}

/// Whether each system can be made on its card, and each of its ops has a price there.
pub fn fits(loaded: &Loaded) -> Result<(), Failure> {
    for run in &loaded.runs {
        let card = loaded.card(run);
        let in_system =
            |error: &dyn std::fmt::Display| Failure::BadInput(format!("system {}: {error}", run.system.name));
        tenantry_core::Server::on_card(card, &cluster(run, card), &run.system, run.tenants)
            .map_err(|e| in_system(&e))?;
        let prices = tenantry_sim::Prices::of_system(card, &run.system, tenantry_sim::Jitter::None);
        let prices = match run.workload.management {
            ManagementSpec::None => prices,
            _ => prices.and_then(|prices| prices.with_management(card)),
        };
        prices.map_err(|e| in_system(&e))?;
    }
    Ok(())
}
