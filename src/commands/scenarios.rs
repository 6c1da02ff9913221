//! `tenantry scenarios`: the scenarios that come with the program, to be run, printed, copied and changed.

use serde_json::json;
use tenantry_profiles::did_you_mean;
use tenantry_scenarios::{about, shipped_names, shipped_yaml};

use crate::cli::{OutputArgs, ScenariosArgs};
use crate::failure::Failure;
use crate::output::{next, print, print_yaml};

pub fn run(args: &ScenariosArgs, output: &OutputArgs) -> Result<(), Failure> {
    let Some(name) = &args.name else {
        let all = shipped_names().into_iter().filter_map(|name| Some((name, about(shipped_yaml(name)?))));
        let all: Vec<(&str, String)> = all.collect();
        let value: Vec<_> = all.iter().map(|(name, about)| json!({ "name": name, "about": about })).collect();
        print(output, &value, || {
            let width = all.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
            let lines = all.iter().map(|(name, about)| format!("{name:width$}  {about}"));
            lines.collect::<Vec<_>>().join("\n")
        })?;
        next(
            output,
            "tenantry simulate gallery/shops-one-a100-or-two-l4, or tenantry scenarios quickstart > mine.yaml",
        );
        return Ok(());
    };
    let Some(yaml) = shipped_yaml(name) else {
        let meant = did_you_mean(name, shipped_names());
        return Err(Failure::BadInput(format!(
            "scenario: must be one of those that `tenantry scenarios` lists, got {name}{meant}"
        )));
    };
    print_yaml(output, yaml)
}
