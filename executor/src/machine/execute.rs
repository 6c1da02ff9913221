//! One run on the real machine, from specs to a record.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tch::Device;
use tenantry_core::answers::{Answers, AnswersError};
use tenantry_core::in_time::Target;
use tenantry_core::ledger::{BrokenLaw, Ledger, RunRecord};
use tenantry_core::run::{Observer, RunError, run};
use tenantry_core::server::{Server, ServerError};
use tenantry_core::spec::{PlotSpec, PoolSpec, TenantState};
use tenantry_core::{ClusterSpec, SystemSpec};
use tenantry_profiles::Card;
use tenantry_traces::generate::Domains;
use tenantry_traces::outcome::AnswersSpec;
use tenantry_traces::{Time, Workload};

use super::cascading::CascadeServing;
use super::clocks::LaneClocks;
use super::errors::LaneErrors;
use super::generating::{self, Generated, GenerationServing};
use super::inputs::Inputs;
use super::pool_serving::{AnswerList, PoolServing};
use super::serving::{Answer, Provision, Serving, Tagged};
use super::tasks::{TaskProvision, TaskServing};
use super::texts::{Number, TextServing};
use super::threads::Threads;
use super::{Answering, RealMachine};
use crate::adapters::{AdapterCache, AdapterShape};
use crate::device::{DeviceMemory, device_memory, prepare_loop_thread, synchronize_all};
use crate::error::ExecutorError;
use crate::files::Files;
use crate::host::lies_in_memory;
use crate::lora::{LoraCache, LoraShape, Segment};
use crate::pet::KINDS;
use crate::plot::{Building, Origin, Tables, tables_folder};

/// What is to be executed.
#[derive(Clone)]
pub struct Run<'a> {
    /// Where.
    pub device: Device,
    /// What policies know of it.
    pub card: &'a Card,
    /// How many cards, with how much memory.
    pub cluster: ClusterSpec,
    /// The policies.
    pub system: &'a SystemSpec,
    /// Tenants `0..tenants`.
    pub tenants: u32,
    /// Left out of the figures.
    pub warm_up: Time,
    /// Within which requests are to be answered.
    pub target: Option<Target>,
    /// Of weights and token ids.
    pub seed: u64,
    /// What a route's models answer, with the seed; a route of several stages decides by it. Profiled models are asked
    /// themselves.
    pub outcomes: Option<(&'a AnswersSpec, u64)>,
    /// Host memory that tenants' parameters may take.
    pub max_host_bytes: u64,
    /// In place of random weights and texts.
    pub files: Files,
    /// Where tables to look up in are kept from one run to the next: [`tables_folder`].
    pub tables: PathBuf,
    /// Whether it is asked which tokens each request got: they are kept until the run ends then, and else until the
    /// request leaves.
    pub tokens: bool,
    /// Of the workload's tenants.
    pub domains: Domains,
    /// Told how the building of tables goes on, before anything is served.
    pub building: &'a dyn Fn(Building<'_>),
}

impl<'a> Run<'a> {
    /// Of all that is served, without a target or answers that are known, with seed 1: weights and texts are drawn,
    /// domains are had in turns, tokens are told, and tenants' parameters may take a gibibyte.
    pub fn new(device: Device, card: &'a Card, cluster: ClusterSpec, system: &'a SystemSpec, tenants: u32) -> Run<'a> {
        Run {
            device,
            card,
            cluster,
            system,
            tenants,
            warm_up: Time::ZERO,
            target: None,
            seed: 1,
            outcomes: None,
            max_host_bytes: 1 << 30,
            files: Files::NONE,
            tables: tables_folder(),
            tokens: true,
            domains: Domains::IN_TURNS,
            building: &|_| {},
        }
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Executed {
    /// The run's figures.
    pub record: RunRecord,
    /// Lanes of its machine, each with a thread.
    pub lanes: usize,
    /// The class that each request got, by ticket; of a cascade from each model that was asked.
    pub answers: Vec<Answer>,
    /// The number that each model of a route answered a request with, by ticket, where they are regressions.
    pub numbers: Vec<Number>,
    /// The labels that each request's tokens got, by ticket, where heads label tokens.
    pub tagged: Vec<Tagged>,
    /// The tokens that each request got, by ticket, where that was asked.
    pub generated: Vec<Generated>,
    /// What they read.
    pub inputs: Inputs,
    /// Bytes of tenants' parameters in host memory.
    pub host_bytes: u64,
    /// Whether what is read from the folder for temporary files lies in memory all the same.
    pub disk_in_memory: bool,
    /// Parameter sets that differ, where the host's memory did not hold one for each tenant.
    pub shared_sets: Option<u32>,
    /// Why registrations of tasks were refused, or tenants' files, each alone.
    pub refused: Vec<String>,
    /// What ops took by a GPU's clock and the host's, lane by lane.
    pub clocks: Vec<LaneClocks>,
    /// What went wrong in ops, of lanes where something did.
    pub errors: Vec<LaneErrors>,
    /// A GPU's memory after the run.
    pub device_memory: Option<DeviceMemory>,
}

/// A run that cannot be executed.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// The system does not fit its cards.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// What models answer is not known.
    #[error(transparent)]
    Answers(#[from] AnswersError),
    /// The parameters cannot be made.
    #[error(transparent)]
    Executor(#[from] ExecutorError),
    /// The run broke off.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The record does not add up.
    #[error(transparent)]
    Law(#[from] BrokenLaw),
}

/// That a system asks for nothing that is only simulated: to be known before another is served.
///
/// # Errors
/// It does; the error names the key.
pub fn check(system: &SystemSpec) -> Result<(), ExecutorError> {
    generating::check(&system.pool)
}

/// That a device has the implementation that a system's tenants are computed by, and that the system's files are of its
/// models, as far as they say so without being read as a whole: likewise.
///
/// # Errors
/// An implementation that the device lacks, files that cannot be read or are of another shape, or no memory on the
/// device.
pub fn check_here(system: &SystemSpec, files: &Files, device: Device) -> Result<(), ExecutorError> {
    if system.route.is_some() {
        return Ok(());
    }
    check_implementation(&system.pool, device)?;
    files.check(&system.pool)
}

/// What a system's tenants take of a device that is all of its cards: slots for what they have of their own, keys and
/// values, tasks' own models. What all share, and what the host keeps of tenants beside it, are not counted.
pub fn tenants_bytes(system: &SystemSpec, server: &Server) -> u64 {
    let (pool, memory) = (&system.pool, server.memory());
    let instances = server.topology().instances.len() as u64;
    let slots = u64::from(server.slots_per_instance().unwrap_or(0)) * memory.per_tenant_bytes;
    match (server, &pool.generation) {
        (Server::Generation(server), Some(generation)) => {
            let tokens = u64::from(generating::pages(pool, generation, server)) * u64::from(generation.page_tokens);
            let layers = u64::from(pool.computed_layers());
            let cached = tokens * layers * pool.model.cached_per_token_and_layer() * pool.dtype.bytes();
            instances * (slots + cached)
        }
        // All cards compute with the same.
        (Server::Tasks(tasks), _) => u64::from(tasks.counts().loaded) * memory.per_tenant_bytes,
        _ => instances * slots,
    }
}

/// Tries the implementation out on one tenant's parameters of one layer.
fn check_implementation(pool: &PoolSpec, device: Device) -> Result<(), ExecutorError> {
    let lora = pool.generation.as_ref().and_then(|generation| generation.lora);
    match (pool.tenant_state, lora) {
        (
            TenantState::Adapters {
                bottleneck,
                implementation,
            },
            _,
        ) => {
            let mut shape = AdapterShape::new(&pool.model, bottleneck)?;
            shape.layers = 1;
            let cache = AdapterCache::new(shape, 1, pool.dtype, device)?;
            cache.plan(&[0], 1, implementation).map(drop)
        }
        (TenantState::Head, Some(lora)) => {
            let mut shape = LoraShape::new(&pool.model, lora.rank)?;
            shape.layers = 1;
            let cache = LoraCache::new(shape, 1, pool.dtype, device)?;
            let segment = Segment {
                slot: Some(0),
                tokens: 1,
            };
            cache.plan(&[segment], lora.implementation).map(drop)
        }
        _ => Ok(()),
    }
}

/// Serves `workload` on a device, as fast as its requests come. The clock starts when all parameters are in place.
///
/// # Errors
/// When the system does not fit, the device is lost, the workload cannot be read, or the user stops it before all is in
/// place.
pub fn execute(
    spec: &Run<'_>,
    workload: &mut dyn Workload,
    interrupt: Arc<AtomicBool>,
    watch: impl Observer,
) -> Result<Executed, ExecuteError> {
    let mut server = Server::on_card(spec.card, &spec.cluster, spec.system, spec.tenants)?;
    if workload.manages() {
        server = server.with_management();
    }
    let topology = server.topology().clone();
    let mut serving = provided(spec, &mut server, workload.manages(), &interrupt)?;
    if workload.manages() {
        serving.make_versions(&interrupt)?;
    }
    // Before the clock starts: a table of outcomes takes its time, and a ledger's histograms a millisecond.
    let answering = match serving.texts() {
        Some(texts) => {
            server = server.with_lengths(Some(texts.lengths()));
            Answering::Texts(texts)
        }
        None => Answering::drawn(Answers::of_system(spec.system, spec.outcomes)?),
    };
    let mut ledger = Ledger::new(spec.warm_up).with_target(spec.target);
    let answers = AnswerList::default();
    let lanes = serving.lanes(&topology, &answers);
    // Lanes have streams of their own, which do not wait for what made the parameters.
    synchronize_all(spec.device)?;
    let threads = Threads::start(lanes, interrupt).map_err(RunError::Machine)?;
    let threads = threads.counting(serving.lookups());
    prepare_loop_thread();
    let mut machine = RealMachine::new(&topology, threads)
        .answering(answering)
        .with_kept_states(serving.kept_states())
        .forgetting(serving.generated_tokens().filter(|_| !spec.tokens));
    let ended = run(&mut server, workload, &mut machine, &mut ledger, watch);
    let record = ended.map_err(ExecuteError::from).and_then(|end| Ok(ledger.close(end, &server, &machine)?));
    // Whatever became of the run: a process that ends under lanes which compute may crash.
    let lanes = machine.into_workers().stop();
    let record = record?;
    let errors = lanes.iter().filter_map(|lane| lane.errors.clone()).collect();
    let clocks = lanes.into_iter().filter_map(|lane| lane.clocks).collect();
    let mut answers = std::mem::take(&mut *answers.lock().expect("no lane panics with the list"));
    answers.sort_unstable();
    Ok(Executed {
        record,
        lanes: topology.lanes.len(),
        answers,
        numbers: serving.numbers(),
        tagged: serving.tagged(),
        generated: match spec.tokens {
            true => serving.generated(),
            false => Vec::new(),
        },
        inputs: serving.inputs(),
        host_bytes: serving.host_bytes(),
        disk_in_memory: serving.has_stored_blocks() && lies_in_memory(&std::env::temp_dir()),
        shared_sets: serving.shared_sets(),
        refused: match &server {
            Server::Tasks(tasks) => tasks.refusals().to_vec(),
            _ => serving.missing(),
        },
        clocks,
        errors,
        device_memory: device_memory(spec.device)?,
    })
}

/// The parameters of a system's pools and its tenants. Of tasks, those for which there is no memory are taken from the
/// server again.
fn provided(
    spec: &Run<'_>,
    server: &mut Server,
    manages: bool,
    interrupt: &Arc<AtomicBool>,
) -> Result<Box<dyn PoolServing>, ExecutorError> {
    if let Some(route) = &spec.system.route {
        return Ok(match spec.outcomes {
            Some((AnswersSpec::Profiled(folder), seed)) => {
                Box::new(TextServing::new(folder, route, seed, spec.device)?)
            }
            _ => Box::new(CascadeServing::new(route, spec.tenants, spec.seed, spec.device)?),
        });
    }
    let pool = &spec.system.pool;
    if let Server::Tasks(server) = server {
        let tasks = pool.tasks.as_ref().expect("a server of tasks was built from them");
        let provision = TaskProvision {
            tenants: spec.tenants,
            seed: spec.seed,
            device: spec.device,
            max_bytes: spec.cluster.gpu_memory_bytes,
            kinds: &KINDS,
            files: spec.files.clone(),
            interrupt: Arc::clone(interrupt),
        };
        return Ok(Box::new(TaskServing::new(pool, tasks, server, provision)?));
    }
    let provision = Provision {
        tenants: spec.tenants,
        slots: server.slots_per_instance(),
        seed: spec.seed,
        device: spec.device,
        max_host_bytes: spec.max_host_bytes,
        interrupt: Arc::clone(interrupt),
        tables: tables(spec, manages, interrupt)?,
        files: spec.files.clone(),
    };
    Ok(match (&pool.generation, server) {
        (Some(generation), Server::Generation(server)) => {
            Box::new(GenerationServing::new(pool, generation, server, provision)?)
        }
        (_, server) => Box::new(Serving::new(pool, server, provision)?),
    })
}

/// What the pool looks up in, where it does: as it was built for an earlier run, or built now.
fn tables(spec: &Run<'_>, updates: bool, interrupt: &AtomicBool) -> Result<Option<Tables>, ExecutorError> {
    let mut building = |at: Building<'_>| {
        (spec.building)(at);
        match interrupt.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    let origin = Origin {
        seed: spec.seed,
        files: &spec.files,
        domains: &spec.domains,
        updates,
    };
    let pool = &spec.system.pool;
    let open =
        |plot: &PlotSpec| Tables::open_or_build(&spec.tables, &pool.model, plot, origin, spec.device, &mut building);
    pool.plot.as_ref().map(open).transpose()
}
