//! One run on the virtual machine, and what is kept of a run's record.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenantry_core::run::{Observer, RunError};
use tenantry_core::spec::{EngineSpec, GenerationSpec, PlotSpec};
use tenantry_core::{RunRecord, SystemSpec};
use tenantry_profiles::Card;
use tenantry_reports::summary::GenerationSummary;
use tenantry_reports::{Run, Seen, ServiceClass};
use tenantry_scenarios::{Jitter, RunSpec};
use tenantry_sim::{PriceError, SimulateError, Simulated};
use tenantry_traces::Time;

use super::labels;
use crate::cards::{cluster, no_server, reading_failure, without_price, workload};
use crate::caveats::{AnotherRate, Extrapolated, lookup_caveats, of_workload};
use crate::failure::Failure;
use crate::keep::{Kept, Watch};

/// A simulated run.
pub struct SimulatedRun {
    pub run: Run,
    pub interrupted: bool,
    pub events: u64,
    /// Op families priced beyond what was measured, and how far at most.
    pub extrapolated: Vec<Extrapolated>,
    /// What a reader must know of its workload.
    pub caveats: Vec<String>,
    pub another_rate: Option<AnotherRate>,
    /// What was written down of it.
    pub kept: Option<Kept>,
}

/// Simulates one run. Nothing where the user had stopped before it began.
pub fn simulate(
    run: &RunSpec,
    card: &Card,
    interrupt: &Arc<AtomicBool>,
    mut watch: Option<Watch>,
) -> Result<Option<SimulatedRun>, Failure> {
    if interrupt.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let mut seen = seen(run);
    let interrupt = Arc::clone(interrupt);
    let done = match &mut watch {
        None => simulate_watched(run, card, interrupt, Some(&mut seen)),
        Some(watch) => simulate_watched(run, card, interrupt, Some(&mut (&mut seen, watch))),
    }?;
    let summarized = summarized(run, tenantry_reports::summary::VIRTUAL, run.repeat, &done.record).with_seen(&seen);
    let mut caveats = of_workload(run, &summarized);
    caveats.extend(lookup_caveats(run, card, &summarized.summary));
    Ok(Some(SimulatedRun {
        caveats,
        another_rate: AnotherRate::of(run, &summarized.summary),
        kept: watch.map(|watch| watch.finish(&done.record)).transpose()?,
        interrupted: done.record.interrupted,
        events: done.events,
        extrapolated: done.extrapolated.into_iter().map(Extrapolated::from).collect(),
        run: summarized,
    }))
}

/// Simulates one run under an observer, until `interrupt` is set.
pub fn simulate_watched(
    run: &RunSpec,
    card: &Card,
    interrupt: Arc<AtomicBool>,
    watch: Option<&mut dyn Observer>,
) -> Result<Simulated, Failure> {
    let mut workload = workload(run)?;
    let done = tenantry_sim::simulate(&simulation(run, card, &run.system), &mut *workload, interrupt, watch);
    done.map_err(|error| failure_of(run, card, error))
}

/// What is simulated of a run: `system` is its own, or with what can be known only of its card.
pub fn simulation<'a>(run: &'a RunSpec, card: &'a Card, system: &'a SystemSpec) -> tenantry_sim::Run<'a> {
    tenantry_sim::Run {
        warm_up: Time::ZERO + run.warm_up,
        target: run.slo.map(|slo| slo.target),
        jitter: match run.jitter {
            Jitter::None => tenantry_sim::Jitter::None,
            Jitter::Measured => tenantry_sim::Jitter::Measured { seed: run.seed },
        },
        seed: run.seed,
        answers: run.answers.as_ref().map(|answers| (answers, run.seed)),
        ..tenantry_sim::Run::new(card, cluster(run, card), system, run.tenants)
    }
}

/// Notes what the page shows of a run beside its record.
pub fn seen(run: &RunSpec) -> Seen {
    let classes = run.tenant_groups.classes.iter().zip(&run.class_targets);
    let classes = classes.map(|(name, target)| ServiceClass {
        name: name.clone(),
        target: *target,
    });
    Seen::new(Time::ZERO + run.warm_up, run.slo, run.repeat == 0).with_classes(classes.collect())
}

/// What is kept of a run's record.
pub fn summarized(run: &RunSpec, machine: &str, repeat: u32, record: &RunRecord) -> Run {
    let mut done = Run::new(labels(run, machine, repeat), record);
    done.summary.host_memory_bytes = host_memory_bytes(run, record);
    if let Some(of) = &mut done.summary.lookup {
        of.staged_bytes = Some(staged_bytes(run, record));
    }
    if let (Some(of), Some(asked)) = (&mut done.summary.tasks, &run.system.pool.tasks) {
        of.max_batch_asked = (of.max_batch < asked.max_batch).then_some(asked.max_batch);
        let may_compose = matches!(asked.engine, EngineSpec::Shared { .. });
        of.mini_batches = of.mini_batches.or(may_compose.then_some(0));
    }
    if let (Some(of), Some(asked)) = (&mut done.summary.generation, &run.system.pool.generation) {
        none_is_zero(of, asked);
    }
    done
}

/// What a system may do and did not do is 0, where what it cannot do is absent.
fn none_is_zero(of: &mut GenerationSummary, asked: &GenerationSpec) {
    let zero = |may: bool| may.then_some(0);
    let apart = asked.disaggregated.is_some();
    of.shared_tokens = of.shared_tokens.or(zero(asked.shared_prefix_tokens > 0));
    of.reads = of.reads.or(zero(asked.host_slots().is_some()));
    of.transfers = of.transfers.or(zero(apart));
    of.transferred_bytes = of.transferred_bytes.or(zero(apart));
}

/// What the host holds of tenants' parameters: of all, where it does not read them from the disk. Tasks' lie on the
/// cards.
fn host_memory_bytes(run: &RunSpec, record: &RunRecord) -> Option<u64> {
    let pool = &run.system.pool;
    let lora = pool.generation.as_ref().and_then(|generation| generation.lora);
    let held = lora.and_then(|lora| lora.host_slots).map_or(run.tenants, |slots| slots.min(run.tenants));
    // Cards that share layers have some of a tenant's LoRA each; the host has it once.
    let own = match lora {
        Some(lora) => {
            let layers = u64::from(pool.computed_layers());
            layers * pool.model.lora_parameters_per_layer(lora.rank) * pool.dtype.bytes()
        }
        None => record.memory.per_tenant_bytes,
    };
    let bytes = u64::from(held).saturating_mul(own);
    (bytes > 0 && pool.tasks.is_none() && pool.runtimes.is_none() && run.system.route.is_none()).then_some(bytes)
}

/// What was looked up and copied to the cards: of an encoder's batches all tokens with their padding, of a decoder's
/// those that were looked up, since each of them ends a fragment.
fn staged_bytes(run: &RunSpec, record: &RunRecord) -> u64 {
    let pool = &run.system.pool;
    let rows = match (&pool.generation, record.lookups) {
        (Some(_), Some(lookups)) => lookups.tokens,
        _ => record.padded_tokens,
    };
    rows * PlotSpec::row_bytes(pool.model.hidden)
}

/// Why a run was not simulated to its end.
pub fn failure_of(run: &RunSpec, card: &Card, error: SimulateError) -> Failure {
    let of_system = |error: &dyn std::fmt::Display| format!("system {}: {error}", run.system.name);
    match error {
        SimulateError::Server(error) => Failure::BadInput(no_server(run, card, error)),
        SimulateError::Price(PriceError(missing)) => Failure::BadInput(of_system(&without_price(run, missing))),
        SimulateError::Answers(error) => Failure::BadInput(of_system(&error)),
        SimulateError::Run(error) => run_failure(run, of_system(&error), &error),
        SimulateError::Law(error) => Failure::Running(of_system(&error)),
    }
}

/// A trace that cannot be read is the input's fault, whatever else breaks a run off is not; `message` says what of the
/// latter.
pub fn run_failure(run: &RunSpec, message: String, error: &RunError) -> Failure {
    match error {
        RunError::Workload(error) => reading_failure(Some(&run.file), error),
        RunError::Machine(_) | RunError::Law(_) => Failure::Running(message),
    }
}
