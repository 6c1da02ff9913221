//! `tenantry presets`: the named systems, to be printed, copied and changed.

use tenantry_profiles::did_you_mean;
use tenantry_scenarios::presets;

use crate::cli::{OutputArgs, PresetsArgs};
use crate::failure::Failure;
use crate::output::{next, print, print_yaml};

pub fn run(args: &PresetsArgs, output: &OutputArgs) -> Result<(), Failure> {
    let Some(name) = &args.name else {
        print(output, &presets::names(), || presets::names().join("\n"))?;
        next(
            output,
            "tenantry presets hmi > mine.yaml (change it, and name it in a scenario's systems: `preset: mine.yaml`)",
        );
        return Ok(());
    };
    let Some(yaml) = presets::yaml(name) else {
        let hint = did_you_mean(name, presets::names().iter().copied());
        return Err(Failure::BadInput(format!(
            "preset: must be one of {}, got {name}{hint}",
            presets::names().join(", ")
        )));
    };
    print_yaml(output, yaml)
}
