//! What of a scenario cannot be executed.

use std::path::PathBuf;

use tenantry::cards;
use tenantry::failure::Failure;
use tenantry::runs::Loaded;
use tenantry_core::Server;
use tenantry_core::spec::{PoolSpec, SystemFamily};
use tenantry_executor::ExecutorError;
use tenantry_executor::machine::execute;
use tenantry_profiles::ModelShape;
use tenantry_reports::human;
use tenantry_scenarios::{Files, RunSpec};

use crate::device::Device;

/// Refuses what cannot be executed of any system before the first is: what is only simulated, what does not fit its
/// card, or the host whose memory is all cards', implementations that the device lacks, weights and texts that are not
/// there or are another model's.
pub fn check(loaded: &Loaded, device: &Device) -> Result<(), Failure> {
    // Other seeds change nothing of that.
    for (index, run) in by_system(&loaded.runs).filter(|(_, run)| run.repeat == 0) {
        if let Err(ExecutorError::Input { what, must, got }) = execute::check(&run.system) {
            let key = format!("systems[{index}].generation.{what}");
            return Err(Failure::bad_input(loaded.scenario.wrong(&key, &must, got)));
        }
        let server = cards::server(run, loaded.card(run)).map_err(Failure::BadInput)?;
        let of_host = host_bytes_least(run, &server);
        let needed_bytes = needed_bytes(run, &server) + of_host;
        let there = device.available_host_bytes();
        // Half of what is there is for what the host keeps of tenants.
        if device.is_cpu() && (needed_bytes > there || 2 * of_host > there) {
            let must = format!(
                "a system whose models, slots and caches fit the memory that is free on this machine, {}",
                human::bytes(there as f64)
            );
            let got = human::bytes(needed_bytes as f64);
            let key = format!("systems[{index}]");
            return Err(Failure::bad_input(loaded.scenario.wrong(&key, &must, got)));
        }
    }
    check_files(loaded)?;
    loaded.check_texts()?;
    let systems = by_system(&loaded.runs).filter(|(_, run)| run.repeat == 0);
    for (_, run) in systems {
        let checked = execute::check_here(&run.system, &files(run), device.torch());
        checked.map_err(|error| device.failure(&run.system.name, &error))?;
    }
    Ok(())
}

/// What a run takes at least of the one memory that stands for all cards. What the host keeps of tenants beside it
/// comes to what is left.
pub fn needed_bytes(run: &RunSpec, server: &Server) -> u64 {
    models_bytes(run) + execute::tenants_bytes(&run.system, server)
}

/// What the host keeps of tenants at least: of files all, of random parameters one tenant's, which all can share.
fn host_bytes_least(run: &RunSpec, server: &Server) -> u64 {
    let tenants = match (server, &run.files.tenants) {
        // Tasks lie where they are computed.
        (Server::Tasks(_), _) => 0,
        (_, Some(_)) => u64::from(run.workload.tenants),
        (_, None) => 1,
    };
    tenants * server.memory().per_tenant_bytes
}

/// The files that are read in place of random weights and texts.
pub fn files(run: &RunSpec) -> tenantry_executor::Files {
    tenantry_executor::Files {
        model: run.files.model.clone(),
        models: run.files.models.clone(),
        domains: run.files.domains.clone(),
        tenants: run.files.tenants.clone(),
        corpus: run.files.corpus.clone(),
    }
}

/// What a run's models take of the one memory that stands for all cards. A model that stays is there once, for all of
/// its instances; one that comes and goes has room on each card that it may come to, beside that which it is loaded
/// from.
fn models_bytes(run: &RunSpec) -> u64 {
    let pool = &run.system.pool;
    let on_cards = |pool: &PoolSpec, cards: usize| pool.shared_model_bytes() * (1 + cards as u64);
    match run.system.family() {
        SystemFamily::Cascade(route) => {
            let stages = route.stages.iter().filter(|stage| !stage.continues());
            stages.map(|stage| on_cards(&stage.pool, stage.scale.map_or(0, |_| stage.gpus.len()))).sum()
        }
        SystemFamily::Tasks(tasks) => {
            let parameters = tasks.models(&pool.model).map(ModelShape::parameters);
            parameters.sum::<u64>() * pool.dtype.bytes()
        }
        SystemFamily::Runtimes(runtimes) => {
            let models = runtimes.streams.iter().map(|stream| stream.model.parameters() * stream.dtype.bytes());
            // A card has room for the largest.
            models.clone().sum::<u64>() + u64::from(run.gpus) * models.max().unwrap_or(0)
        }
        SystemFamily::Generation(generation) if generation.scale.is_some() => {
            on_cards(pool, (run.gpus / generation.tensor_parallel) as usize)
        }
        SystemFamily::Generation(_) | SystemFamily::Encoding => on_cards(pool, 0),
    }
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
            paths.map(|(index, path)| (format!("{key}[{index}]"), path.clone())).collect()
        };
        let one = |key: &str, path: &Option<PathBuf>| path.clone().map(|path| (key.to_owned(), path));
        let named = models.iter().map(|(key, path)| (format!("models.{key}"), path.clone()));
        let all = one("model", model)
            .into_iter()
            .chain(one("tenants", tenants))
            .chain(named)
            .chain(several("domains", domains))
            .chain(several("corpus", corpus));
        if let Some((key, path)) = all.into_iter().find(|(_, path)| !path.exists()) {
            let must = "a path that can be read, relative to the folder you are in";
            let error = loaded.scenario.wrong(&format!("{own}.{key}"), must, path.display());
            return Err(Failure::bad_input(error));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tenantry::cli::ScenarioArgs;

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

    fn loaded(scenario: &str, set: &[&str]) -> Loaded {
        let args = ScenarioArgs {
            scenario: scenario.into(),
            set: set.iter().map(|text| (*text).to_owned()).collect(),
            seed: None,
        };
        Loaded::load(&args, None).unwrap_or_else(|error| panic!("{scenario}: {error}"))
    }

    /// Each card's slots and caches lie in the one memory, and so do tasks' own models.
    #[test]
    fn what_tenants_take_of_the_cards_is_counted() {
        let beside_models = |scenario: &str, set: &[&str], system: usize| {
            let loaded = loaded(scenario, set);
            let run = &loaded.runs[system];
            let server = cards::server(run, loaded.card(run)).unwrap();
            needed_bytes(run, &server) - models_bytes(run)
        };
        // 256 MiB hold so many whole models of the thousand, beside all heads.
        let dedicated = beside_models("quickstart", &[], 0);
        assert!((250 << 20..256 << 20).contains(&dedicated), "{dedicated}");
        assert_eq!(beside_models("quickstart", &["cluster.gpus=3"], 0), 3 * dedicated);
        assert_eq!(beside_models("quickstart", &[], 2), 0, "heads alone");
        // Two workers of 8 MiB each, of which the weights are 1 MiB at least.
        let paged = beside_models("punica/tiny-two-workers", &[], 0);
        assert!((10 << 20..14 << 20).contains(&paged), "{paged}");
        // A model of 45 MB for each of 64 tasks.
        let full = beside_models("pets/mixed-64", &[], 5);
        assert!((64 * 44_000_000..64 * 46_000_000).contains(&full), "{full}");
    }

    /// The first system is not executed in vain.
    #[test]
    fn what_a_later_system_cannot_do_is_known_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("later.yaml");
        let cpu = Device::find("cpu").unwrap();
        let refused = |of: &str, other: &str| {
            let quickstart = include_str!("../../scenarios/quickstart.yaml");
            assert!(quickstart.contains(of));
            std::fs::write(&path, quickstart.replace(of, other)).unwrap();
            let refused = check(&loaded(path.to_str().unwrap(), &[]), &cpu).unwrap_err();
            assert!(matches!(refused, Failure::BadInput(_)));
            refused.to_string()
        };
        let grouped = refused("{ bottleneck: 16 }", "{ bottleneck: 3, implementation: grouped }");
        assert!(
            grouped.contains("system hbert-adapter on cpu: adapter implementation grouped: must be"),
            "{grouped}"
        );
        let weights = folder.path().join("broken.safetensors");
        std::fs::write(&weights, "no tensors").unwrap();
        let last = "- preset: bert-shared ";
        let broken = refused(last, &format!("{last}\n    files: {{ model: {} }}", weights.display()));
        assert!(
            broken.contains("system bert-shared on cpu: ") && broken.contains("broken.safetensors: header: must be"),
            "{broken}"
        );
    }

    #[test]
    fn each_card_has_room_for_a_runtime() {
        let on = |gpus| of("arlo/fig-8", gpus, "arlo-dt");
        assert_eq!(on(20) - on(10), 10 * (on(10) / 11));
    }
}
