//! What of a scenario cannot be executed.

use std::path::PathBuf;

use tenantry::cards;
use tenantry::failure::Failure;
use tenantry::runs::Loaded;
use tenantry_executor::ExecutorError;
use tenantry_executor::machine::execute;
use tenantry_reports::human;
use tenantry_scenarios::{Files, RunSpec};

use crate::device::Device;

/// Refuses what cannot be executed of any system before the first is: what is only simulated, what does not fit its card, or the host whose memory is
/// all cards', weights and texts that are not there.
pub fn check(loaded: &Loaded, device: &Device) -> Result<(), Failure> {
    // Other seeds change nothing of that.
    for (index, run) in by_system(&loaded.runs).filter(|(_, run)| run.repeat == 0) {
        if let Err(ExecutorError::Input { what, must, got }) = execute::check(&run.system) {
            let key = format!("systems[{index}].generation.{what}");
            return Err(Failure::bad_input(loaded.scenario.wrong(&key, &must, got)));
        }
        cards::server(run, loaded.card(run)).map_err(Failure::BadInput)?;
        let models_bytes = cards::models_bytes(run, loaded.card(run));
        let there = device.available_host_bytes();
        if device.is_cpu() && models_bytes > there {
            let must = format!(
                "a system whose models fit the memory that is free on this machine, {}",
                human::bytes(there as f64)
            );
            let got = format!("{} on all cards together", human::bytes(models_bytes as f64));
            let key = format!("systems[{index}]");
            return Err(Failure::bad_input(loaded.scenario.wrong(&key, &must, got)));
        }
    }
    check_files(loaded)
}

/// The runs, each with the place of its system in the scenario.
fn by_system(runs: &[RunSpec]) -> impl Iterator<Item = (usize, &RunSpec)> {
    let mut systems: Vec<&str> = Vec::new();
    runs.iter().map(move |run| {
        let name = run.system.name.as_str();
        let known = systems.iter().position(|known| *known == name);
        let index = known.unwrap_or_else(|| {
            systems.push(name);
            systems.len() - 1
        });
        (index, run)
    })
}

fn check_files(loaded: &Loaded) -> Result<(), Failure> {
    let mut checked = 0;
    for (index, run) in by_system(&loaded.runs) {
        if index < checked {
            continue;
        }
        checked += 1;
        let own = format!("systems[{index}].files");
        let Files {
            model,
            models,
            domains,
            tenants,
            corpus,
        } = &run.files;
        let several = |key: &'static str, paths: &[PathBuf]| -> Vec<(String, PathBuf)> {
            let paths = paths.iter().enumerate();
            paths
                .map(|(index, path)| (format!("{key}[{index}]"), path.clone()))
                .collect()
        };
        let one = |key: &str, path: &Option<PathBuf>| path.clone().map(|path| (key.to_owned(), path));
        let named = models.iter().map(|(key, path)| (format!("models.{key}"), path.clone()));
        let all = { one("model", model).into_iter() }
            .chain(one("tenants", tenants))
            .chain(named)
            .chain(several("domains", domains))
            .chain(several("corpus", corpus));
        if let Some((key, path)) = { all }.into_iter().find(|(_, path)| !path.exists()) {
            let must = "a path that can be read, relative to the folder you are in";
            let error = loaded.scenario.wrong(&format!("{own}.{key}"), must, path.display());
            return Err(Failure::bad_input(error));
        }
    }
    Ok(())
}
