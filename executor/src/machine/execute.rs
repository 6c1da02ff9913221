//! One run on the real machine, from specs to a record.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use tch::Device;
use tenantry_core::ledger::{BrokenLaw, Ledger, RunRecord};
use tenantry_core::machine::Machine;
use tenantry_core::run::{Observer, RunError, run};
use tenantry_core::server::{Server, ServerError};
use tenantry_core::{ClusterSpec, SystemSpec};
use tenantry_traces::{Time, Workload};

use super::serving::{Answer, Serving};
use super::{RealMachine, threads::Threads};
use crate::error::ExecutorError;

/// What is to be executed.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    /// Where.
    pub device: Device,
    /// How many cards, with how much memory.
    pub cluster: ClusterSpec,
    /// The policies.
    pub system: &'a SystemSpec,
    /// Tenants `0..tenants`.
    pub tenants: u32,
    /// Left out of the figures.
    pub warm_up: Time,
    /// Of weights and token ids.
    pub seed: u64,
    /// Host memory that tenants' parameters may take.
    pub max_host_bytes: u64,
}

/// What came of it.
#[derive(Debug)]
pub struct Executed {
    /// The run's figures.
    pub record: RunRecord,
    /// The class that each request got, by ticket.
    pub answers: Vec<Answer>,
    /// Bytes of tenants' parameters in host memory.
    pub host_bytes: u64,
    /// Parameter sets that differ, where the host's memory did not hold one for each tenant.
    pub shared_sets: Option<u32>,
}

/// A run that cannot be executed.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// The system does not fit its cards.
    #[error(transparent)]
    Server(#[from] ServerError),
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

/// Serves `workload` on a device, as fast as its requests come. The clock starts when all parameters are in place.
///
/// # Errors
/// When the system does not fit, the device is lost, or the workload cannot be read.
pub fn execute(
    spec: &Run<'_>,
    workload: &mut dyn Workload,
    interrupt: Arc<AtomicBool>,
    watch: impl Observer,
) -> Result<Executed, ExecuteError> {
    let mut server = Server::new(&spec.cluster, spec.system, spec.tenants)?;
    let topology = server.topology().clone();
    let slots = server.slots_per_instance();
    let serving = Serving::new(
        &spec.system.pool,
        &topology,
        spec.tenants,
        slots,
        spec.seed,
        spec.device,
        spec.max_host_bytes,
    )?;
    let answers = Arc::default();
    let threads = Threads::start(serving.lanes(&topology, &answers), interrupt).map_err(RunError::Machine)?;
    let mut machine = RealMachine::new(&topology, threads);
    let mut ledger = Ledger::new(spec.warm_up);
    let end = run(&mut server, workload, &mut machine, &mut ledger, watch)?;
    let record = ledger.close(end, &server, machine.lanes(end.at))?;
    machine.into_workers().stop();
    let mut answers = std::mem::take(&mut *Mutex::lock(&answers).expect("no lane panics with the list"));
    answers.sort_unstable();
    Ok(Executed {
        record,
        answers,
        host_bytes: serving.host_bytes(),
        shared_sets: serving.shared_sets(),
    })
}
