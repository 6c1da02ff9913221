//! One run on the virtual machine, from specs to a record.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tenantry_core::answers::{Answers, AnswersError};
use tenantry_core::in_time::Target;
use tenantry_core::ledger::{BrokenLaw, Ledger, RunRecord};
use tenantry_core::run::{Observer, RunError, run};
use tenantry_core::server::{Server, ServerError};
use tenantry_core::spec::SystemFamily;
use tenantry_core::{ClusterSpec, SystemSpec};
use tenantry_profiles::{Beyond, Card, Family};
use tenantry_traces::outcome::AnswersSpec;
use tenantry_traces::{Time, Workload};

use crate::prices::{Jitter, PriceError, Prices};
use crate::virtual_machine::VirtualMachine;

/// What is to be simulated.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    /// Prices the ops.
    pub card: &'a Card,
    /// How many such cards, with how much memory.
    pub cluster: ClusterSpec,
    /// The policies.
    pub system: &'a SystemSpec,
    /// Tenants `0..tenants`.
    pub tenants: u32,
    /// Left out of the figures.
    pub warm_up: Time,
    /// What requests are to be answered within.
    pub target: Option<Target>,
    /// Of the ops' durations.
    pub jitter: Jitter,
    /// Of where sequences end that do not end by length.
    pub seed: u64,
    /// What a route's models answer, with the seed; a route of several stages decides by it.
    pub answers: Option<(&'a AnswersSpec, u64)>,
}

impl<'a> Run<'a> {
    /// Of all that is served, without a target, jitter or answers that are known; with seed 1.
    pub fn new(card: &'a Card, cluster: ClusterSpec, system: &'a SystemSpec, tenants: u32) -> Run<'a> {
        Run {
            card,
            cluster,
            system,
            tenants,
            warm_up: Time::ZERO,
            target: None,
            jitter: Jitter::None,
            seed: 1,
            answers: None,
        }
    }

    /// What decides a run beside its workload, as text: two runs of one workload for which it is the same have the same
    /// record, whatever else their cards say. None for tasks, whose server reads the card by itself.
    ///
    /// It is the `Debug` form of all that the server, the machine and the ledger are made of: these types derive it.
    ///
    /// # Errors
    /// When the card lacks a table.
    pub fn decided_by(&self, workload: &dyn Workload) -> Result<Option<String>, PriceError> {
        if let SystemFamily::Tasks(_) = self.system.family() {
            return Ok(None);
        }
        let prices = self.prices(workload)?;
        let of_card = (&self.cluster, self.system, prices, &self.card.contention);
        let of_run = (self.tenants, self.warm_up, self.target, self.seed, self.answers);
        Ok(Some(format!("{of_card:?} {of_run:?}")))
    }

    fn prices(&self, workload: &dyn Workload) -> Result<Prices, PriceError> {
        let prices = Prices::of_system(self.card, self.system, self.jitter)?;
        match workload.manages() {
            true => prices.with_management(self.card),
            false => Ok(prices),
        }
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Simulated {
    /// The run's figures.
    pub record: RunRecord,
    /// Families of which a cost was extrapolated, and how far at most: above what was measured, then below.
    pub extrapolated: Vec<(Family, Beyond)>,
    /// Events of the virtual machine.
    pub events: u64,
    /// Ops that it ran; a decoder's run of steps is one.
    pub ops: u64,
}

/// A run that cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// The system does not fit its cards.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The card lacks a table.
    #[error(transparent)]
    Price(#[from] PriceError),
    /// What models answer is not known.
    #[error(transparent)]
    Answers(#[from] AnswersError),
    /// The run broke off.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The record does not add up.
    #[error(transparent)]
    Law(#[from] BrokenLaw),
}

/// Serves `workload` on the virtual machine, until it ends or `interrupt` is set; `watch` sees each event and what the
/// server commands.
///
/// # Errors
/// When the system does not fit, the card lacks a table, or the workload cannot be read.
// Dynamic dispatch for observers: generic over them, the whole loop would be compiled again in each crate that has one.
pub fn simulate(
    spec: &Run<'_>,
    workload: &mut dyn Workload,
    interrupt: Arc<AtomicBool>,
    watch: Option<&mut dyn Observer>,
) -> Result<Simulated, SimulateError> {
    let answers = Answers::of_system(spec.system, spec.answers)?;
    let mut server = Server::on_card(spec.card, &spec.cluster, spec.system, spec.tenants)?
        .with_lengths(answers.as_ref().and_then(Answers::text_lengths));
    let prices = spec.prices(workload)?;
    if workload.manages() {
        server = server.with_management();
    }
    let mut machine =
        VirtualMachine::new(server.topology(), prices, &spec.card.contention, interrupt).with_answers(answers);
    if let Some(generation) = &spec.system.pool.generation {
        machine = machine.with_ends(generation.stop, spec.seed);
    }
    let mut ledger = Ledger::new(spec.warm_up).with_target(spec.target);
    let end = match watch {
        None => run(&mut server, workload, &mut machine, &mut ledger, ()),
        Some(watch) => run(&mut server, workload, &mut machine, &mut ledger, watch),
    }?;
    let record = ledger.close(end, &server, &machine)?;
    Ok(Simulated {
        record,
        extrapolated: machine.prices().extrapolated().collect(),
        events: machine.events(),
        ops: machine.ops(),
    })
}
