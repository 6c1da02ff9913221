//! What of a scenario cannot be executed.

use std::path::PathBuf;

use tenantry::cards;
use tenantry::failure::Failure;
use tenantry::runs::Loaded;
use tenantry_core::spec::PoolSpec;
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
        let models_bytes = models_bytes(run);
        let there = device.available_host_bytes();
        if device.is_cpu() && models_bytes > there {
            let must = format!(
                "a system whose models fit the memory that is free on this machine, {}",
                human::bytes(there as f64)
            );
            let got = human::bytes(models_bytes as f64);
            let key = format!("systems[{index}]");
            return Err(Failure::bad_input(loaded.scenario.wrong(&key, &must, got)));
        }
    }
    check_files(loaded)
}

/// What a run's models take at least of the one memory that stands for all cards. A model that stays is there once, for all of its instances; one that
/// comes and goes has room on each card that it may come to, beside that which it is loaded from.
fn models_bytes(run: &RunSpec) -> u64 {
    let system = &run.system;
    let on_cards = |pool: &PoolSpec, cards: usize| pool.shared_model_bytes() * (1 + cards as u64);
    if let Some(route) = &system.route {
        let stages = route.stages.iter().filter(|stage| !stage.continues());
        return stages
            .map(|stage| on_cards(&stage.pool, stage.scale.map_or(0, |_| stage.gpus.len())))
            .sum();
    }
    if let Some(runtimes) = &system.pool.runtimes {
        let models = { runtimes.streams.iter() }.map(|stream| stream.model.parameters() * stream.dtype.bytes());
        // A card has room for the largest.
        return models.clone().sum::<u64>() + u64::from(run.gpus) * models.max().unwrap_or(0);
    }
    let generation = system.pool.generation.as_ref();
    let scaled = generation.filter(|generation| generation.scale.is_some());
    on_cards(
        &system.pool,
        scaled.map_or(0, |generation| (run.gpus / generation.tensor_parallel) as usize),
    )
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::needs::tests::runs;

    fn of(name: &str, gpus: u32, system: &str) -> u64 {
        let runs = runs(name, &[&format!("cluster.gpus={gpus}")]);
        models_bytes(runs.iter().find(|run| run.system.name == system).unwrap())
    }

    /// All cards are one memory, in which a model that stays lies once.
    #[test]
    fn a_model_that_stays_is_counted_once() {
        let once = of("punica/scale", 16, "kept");
        // 6.74 thousand million parameters of two bytes.
        assert_eq!(once / 10_000_000, 1347, "{once}");
        assert_eq!(of("punica/scale", 2, "kept"), once);
        assert_eq!(of("punica/scale", 16, "scaled"), 17 * once);
        assert_eq!(of("punica/scale", 2, "scaled"), 3 * once);
    }

    #[test]
    fn a_stage_that_scales_is_counted_on_each_of_its_cards() {
        let once = of("tabi/scale", 8, "tabi-fixed");
        assert_eq!(of("tabi/scale", 8, "tabi-scaled"), 9 * once);
    }

    #[test]
    fn each_card_has_room_for_a_runtime() {
        let on = |gpus| of("arlo/fig-8", gpus, "arlo-dt");
        assert_eq!(on(20) - on(10), 10 * (on(10) / 11));
    }
}
