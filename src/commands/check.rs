//! `tenantry check`: whether a scenario is valid, and what it resolves to.

use serde_json::json;

use crate::cli::{CheckArgs, OutputArgs};
use crate::failure::Failure;
use crate::output::{counted, next, print};
use crate::runs::Loaded;

pub fn run(args: &CheckArgs, output: &OutputArgs) -> Result<(), Failure> {
    let loaded = Loaded::load(&args.scenario, None)?;
    loaded.check_priced()?;
    loaded.check_texts()?;
    let scenario = &loaded.scenario;
    if let Some(plan) = &scenario.plan {
        Loaded::of_plan(scenario.clone(), plan)?;
    }
    let value = json!({ "scenario": scenario.name, "valid": true, "runs": loaded.runs.len() });
    print(output, &value, || {
        let resolved = scenario.resolved_yaml();
        format!(
            "{resolved}\n# {} is valid: {}, and its card has every table that is needed.",
            scenario.name,
            counted(loaded.runs.len() as u64, "run", "runs")
        )
    })?;
    let command = if scenario.plan.is_some() { "plan" } else { "simulate" };
    next(output, &format!("tenantry {command} {}", args.scenario.words()));
    Ok(())
}
