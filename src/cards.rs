//! The cards that scenarios and commands name: where they are found, and what a run is on its card.

use std::path::PathBuf;

use tenantry_core::server::{Server, ServerError};
use tenantry_core::spec::{AllocateSpec, Met, PoolSpec, TenantState};
use tenantry_core::{ClusterSpec, SystemSpec};
use tenantry_profiles::roofline::Need;
use tenantry_profiles::{Card, DeviceKind, MissingTable, ModelShape, ProfileError};
use tenantry_reports::human;
use tenantry_scenarios::{RunSpec, Scenario};
use tenantry_sim::Prices;
use tenantry_traces::management::ManagementSpec;
use tenantry_traces::{TraceError, Workload};

use crate::failure::Failure;
use crate::lookups::Lookups;

/// Folders whose `profiles/cards` are searched before the embedded cards.
pub fn card_folders() -> Vec<PathBuf> {
    vec![PathBuf::from(".")]
}

/// The cards that are known by name.
pub fn card_names() -> Vec<String> {
    Card::available(&card_folders())
}

/// What to do where a card is missed.
const MEASURE: &str =
    "measure this machine's with `tenantry profile --device cpu --suite quick --out out/here`, and name it as out/here";

/// A card by name or path, as an argument gives it.
pub fn find_card(name: &str) -> Result<Card, Failure> {
    card_of_option("card", name)
}

/// The folder of a card that is there.
pub fn folder_of(name: &str) -> Option<PathBuf> {
    Card::folder(name, &card_folders())
}

/// A card that an option of the command line names.
pub fn card_of_option(option: &str, name: &str) -> Result<Card, Failure> {
    Card::find(name, &card_folders()).map_err(|error| match error {
        ProfileError::UnknownCard { .. } => Failure::BadInput(format!("{option}: {error} ({MEASURE})")),
        error => Failure::bad_input(error),
    })
}

/// A card that a scenario names. Where there is none, the error says where in the scenario it is named.
pub fn card_of(scenario: &Scenario, name: &str) -> Result<Card, Failure> {
    Card::find(name, &card_folders()).map_err(|error| match error {
        ProfileError::UnknownCard {
            name,
            available,
            suggested,
        } => {
            let must = format!("a folder with a card.yaml or one of {}", available.join(", "));
            let error = scenario.wrong_card(&name, must, suggested);
            Failure::BadInput(format!("{error} ({MEASURE})"))
        }
        error => Failure::bad_input(error),
    })
}

/// The name of a scenario's card that finds it from any folder: its own where it comes with the program, else its
/// folder's path.
pub fn card_from_anywhere(name: &str) -> Result<String, Failure> {
    let Some(folder) = Card::folder(name, &card_folders()) else {
        return Ok(name.to_owned());
    };
    let card = Card::load(&folder).map_err(Failure::bad_input)?;
    let same = |embedded: &Card| embedded.digest() == card.digest();
    if Card::embedded(name).map_err(Failure::bad_input)?.as_ref().is_some_and(same) {
        return Ok(name.to_owned());
    }
    let folder = std::path::absolute(&folder).map_err(Failure::running)?;
    Ok(folder.display().to_string())
}

/// The models of a run, of which its card is to be [completed](tenantry_profiles::roofline::complete).
pub fn needs(run: &RunSpec) -> impl Iterator<Item = Need> {
    let SystemSpec { pool, route, .. } = &run.system;
    let need = |model: &ModelShape, dtype, pool: &PoolSpec| Need {
        model: model.clone(),
        dtype,
        bottleneck: match pool.tenant_state {
            TenantState::Adapters { bottleneck, .. } => Some(bottleneck),
            TenantState::Model | TenantState::Head => None,
        },
        rank: pool.generation.as_ref().and_then(|generation| Some(generation.lora?.rank)),
        tensor_parallel: pool.generation.as_ref().map_or(1, |generation| generation.tensor_parallel),
    };
    let stages = route.iter().flat_map(|route| &route.stages).map(|stage| &stage.pool);
    let pools = [pool].into_iter().chain(stages);
    let of_pools = pools.map(move |pool| need(&pool.model, pool.dtype, pool));
    let streams = pool.runtimes.iter().flat_map(|runtimes| &runtimes.streams);
    let of_streams = streams.map(move |stream| need(&stream.model, stream.dtype, pool));
    let shared = pool.tasks.iter().flat_map(|tasks| tasks.models(&pool.model));
    let of_tasks = shared.map(move |model| need(model, pool.dtype, pool));
    of_pools.chain(of_streams).chain(of_tasks)
}

/// What the run's systems are asked.
pub fn workload(run: &RunSpec) -> Result<Box<dyn Workload + Send>, Failure> {
    tenantry_traces::build(&run.workload).map_err(|error| workload_failure(Some(&run.file), &error))
}

/// What is wrong with a workload, which is so whichever system serves it: a field is one of the scenario's file, where
/// there is one.
pub fn workload_failure(file: Option<&str>, error: &TraceError) -> Failure {
    match (error, file) {
        (TraceError::Spec { .. }, Some(file)) => Failure::BadInput(format!("{file}: {error}")),
        _ => Failure::bad_input(error),
    }
}

/// The same of one that is being read: a file that breaks off is no fault of what was asked for.
pub fn reading_failure(file: Option<&str>, error: &TraceError) -> Failure {
    match error {
        TraceError::Io { .. } => Failure::running(error),
        error => workload_failure(file, error),
    }
}

/// The run's system with what can be known only of a card and a workload: what look-ups meet, what runtimes take, and
/// how many there are of each where the whole workload decides; or why it cannot be had there. Texts and tables that
/// are known are in `lookups`.
pub fn on_card(run: &RunSpec, card: &Card, lookups: &Lookups) -> Result<Result<SystemSpec, String>, Failure> {
    let mut system = run.system.clone();
    if let Some(plot) = system.pool.plot.as_mut().filter(|plot| plot.met == Met::Counted) {
        lookups.count(run, plot)?;
    }
    let Some(runtimes) = &mut system.pool.runtimes else {
        return Ok(Ok(system));
    };
    let unfit = |error: &dyn std::fmt::Display| format!("system {}: {error}", run.system.name);
    match runtimes.on(card, system.pool.instances_per_gpu) {
        Ok(known) => *runtimes = known,
        Err(error) => return Ok(Err(unfit(&error))),
    }
    if let AllocateSpec::Global(solver) = runtimes.allocate {
        let mut workload = workload(run)?;
        let cards = runtimes.scale.map_or(run.gpus, |scale| scale.cards_at_start);
        let question =
            tenantry_sim::whole_workload(runtimes, &mut *workload, cards * system.pool.instances_per_gpu, solver)
                .map_err(Failure::bad_input)?;
        match tenantry_sim::allocate(&question) {
            Ok(answer) => runtimes.allocate = AllocateSpec::Solved(answer),
            Err(error) => return Ok(Err(unfit(&error))),
        }
    }
    Ok(Ok(system))
}

/// Memory of a card that a run may use, where its scenario gives it no less.
pub fn usable_bytes(card: &Card) -> u64 {
    card.device.memory_bytes - card.device.reserve_bytes
}

/// The cluster of a run on its card.
pub fn cluster(run: &RunSpec, card: &Card) -> ClusterSpec {
    let (copy_lanes, lookup_lanes) = match card.device.kind {
        // Each GPU has a copy engine of its own, and the host's cores do nothing else.
        DeviceKind::Cuda => (run.gpus, run.gpus),
        // With a single core to spare, the copy lane looks up as well.
        DeviceKind::Cpu => (card.lanes.host.div_ceil(2), card.lanes.host / 2),
    };
    ClusterSpec {
        shares_host_memory: card.device.shares_host_memory,
        ..run.cluster(usable_bytes(card), copy_lanes, lookup_lanes)
    }
}

/// That a run's cards are too small, by the key that says how large they are, and how large they must be.
fn does_not_fit(run: &RunSpec, card: &Card, error: &ServerError) -> Option<String> {
    let Missing { model, .. } = missing(run, error)?;
    let there = cluster(run, card);
    let lacks = |gpu_memory_bytes: u64| {
        let larger = ClusterSpec {
            gpu_memory_bytes,
            ..there.clone()
        };
        missing(run, &Server::on_card(card, &larger, &run.system, run.tenants).err()?)
    };
    // What is missed first is not all: tenants' parameters come after what they share, and a model after the one before
    // it.
    let (mut enough, mut of_tenants) = (there.gpu_memory_bytes, "");
    // No card that a scenario may have is larger, however much more would be missed there.
    while enough <= ClusterSpec::CARD_BYTES_MAX
        && let Some(more) = lacks(enough)
    {
        enough = enough.saturating_add(more.bytes);
        if more.is_of_tenants {
            of_tenants = " and one tenant's parameters for each instance";
        }
    }
    // Of the card where the scenario does not say.
    let key = match run.gpu_memory_bytes {
        Some(_) => "cluster.gpu_memory",
        None => "card",
    };
    Some(format!(
        "{}: {key}: must be of at least {} of memory for system {} with {model}{of_tenants}, got {}",
        run.file,
        size(enough, f64::ceil),
        run.system.name,
        size(there.gpu_memory_bytes, f64::floor)
    ))
}

/// What a server lacks of each card's memory to be made.
struct Missing {
    model: String,
    /// Above 0; more may be missing once they are there.
    bytes: u64,
    is_of_tenants: bool,
}

fn missing(run: &RunSpec, error: &ServerError) -> Option<Missing> {
    let pool = &run.system.pool;
    match error {
        ServerError::BackboneDoesNotFit {
            model,
            needed_bytes,
            available_bytes,
        } => {
            // Cards that share a model share what it takes.
            let cards = pool.generation.as_ref().map_or(1, |generation| generation.tensor_parallel.into());
            Some(Missing {
                model: model.clone(),
                bytes: (needed_bytes - available_bytes).div_ceil(cards),
                is_of_tenants: false,
            })
        }
        ServerError::TenantDoesNotFit {
            model,
            tenant_bytes,
            free_bytes,
        } => Some(Missing {
            model: model.clone(),
            bytes: (tenant_bytes - free_bytes).saturating_mul(pool.instances_per_gpu.into()),
            is_of_tenants: true,
        }),
        _ => None,
    }
}

/// An amount of memory that a scenario may have, in three digits: `3.19 MiB`.
fn size(bytes: u64, round: fn(f64) -> f64) -> String {
    // Scenarios know no larger unit.
    const GIB: (f64, &str) = (1_073_741_824.0, "GiB");
    let bytes = bytes as f64;
    let (unit, name) = Some(human::binary_unit(bytes)).filter(|(unit, _)| *unit <= GIB.0).unwrap_or(GIB);
    let amount = bytes / unit;
    let decimals = match amount {
        _ if unit == 1.0 => 0,
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    let scale = 10f64.powi(decimals);
    format!("{:.*} {name}", decimals as usize, round(amount * scale) / scale)
}

/// Why this run, whose system is [on its card](on_card), cannot be run there, whatever is asked of it; nothing where it
/// can: each of its ops has a price, and its models fit.
pub fn refusal(run: &RunSpec, card: &Card) -> Option<String> {
    server(run, card).err().or_else(|| {
        let prices = Prices::of_system(card, &run.system, tenantry_sim::Jitter::None);
        let priced = match run.workload.management {
            ManagementSpec::None => prices,
            _ => prices.and_then(|prices| prices.with_management(card)),
        };
        let refused = without_price(run, priced.err()?.0);
        Some(format!("system {}: {refused}", run.system.name))
    })
}

/// What is missing where a run asks for it: the command measures all that its file needs, and tasks are computed in
/// single precision only.
pub fn without_price(run: &RunSpec, missing: MissingTable) -> MissingTable {
    let missing = missing.asked_by(&run.file);
    match run.system.pool.tasks {
        Some(_) => missing.in_this_format_only(),
        None => missing,
    }
}

/// A server of a run's system on its card, whatever its ops cost.
///
/// # Errors
/// Why none can be made.
pub fn server(run: &RunSpec, card: &Card) -> Result<Server, String> {
    let made = Server::on_card(card, &cluster(run, card), &run.system, run.tenants);
    made.map_err(|error| no_server(run, card, error))
}

/// Why no server of a run's system can be made on its card.
pub fn no_server(run: &RunSpec, card: &Card, error: ServerError) -> String {
    let error = match error {
        // Tasks are batched by the card's tables.
        ServerError::MissingTable(missing) => without_price(run, missing).into(),
        error => error,
    };
    does_not_fit(run, card, &error).unwrap_or_else(|| format!("system {}: {error}", run.system.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_enough_and_what_is_there_is_no_more() {
        for (bytes, up, down) in [
            (1024, "1.00 KiB", "1.00 KiB"),
            (3_342_656, "3.19 MiB", "3.18 MiB"),
            (1_048_575, "1024 KiB", "1023 KiB"),
            (717, "717 B", "717 B"),
            (85_899_345_921, "80.1 GiB", "80.0 GiB"),
            (3 << 40, "3072 GiB", "3072 GiB"),
        ] {
            assert_eq!(
                (size(bytes, f64::ceil), size(bytes, f64::floor)),
                (up.into(), down.into())
            );
        }
    }
}
