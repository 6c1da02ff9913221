//! Decoders: requests join and leave an instance between steps, and keep pages of its key-value cache while they are
//! there (Punica, section 5; continuous batching after Orca).
//!
//! A request waits in one queue for all instances, in order of arrival. [`GenerationServer::dispatch`] gives it to an
//! instance that has room; what its tenant has of its own comes in beside what runs, and its prompt may be looked up
//! there. [`GenerationServer::advance`] submits an instance's next run of steps: at most until someone ends, the pages
//! are used up, or somebody new is ready to join, who interrupts it.

mod asking;
mod by_tenant;
mod ended;
mod gaps;
mod generating;
mod host;
mod instance;
mod laws;
mod leaving;
mod loads;
mod managing;
mod memory;
mod page;
mod placing;
mod prefixes;
mod retrieving;
mod scaling;
mod sequence;
mod step;
mod transfer;
mod turns;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tenantry_traces::{Duration, ManageRequest, Request, Ticket, Time};

use super::FLEET;
use super::memory::{MemoryUse, ServerError};
use super::slots::{Acquired, Slots, SwapCounts};
use super::tenancy::{Begun, Tenancy, discard};
use crate::command::{Command, Commands, FailureReason, Finish, RejectReason, Verdict, Waits};
use crate::durations::Durations;
use crate::event::{Done, Ended, Event, RunOutcome};
use crate::ids::{BatchId, InstanceId, RequestId};
use crate::op::{After, BatchShape, CopyIn, Layers, Load, Member, NO_SLOT, Op, OpKind};
use crate::policy::admit::{self, Admit};
use crate::slab::Slab;
use crate::spec::{ClusterSpec, GenerationSpec, JoinSpec, LookupsInSteps, PlaceSpec, PlotSpec, SystemSpec};
use crate::topology::Topology;
use asking::Asked;
use by_tenant::ByTenant;
use gaps::{Gaps, RunGaps};
use generating::{Generating, Took};
use host::{HostMemory, InHost, Waiting};
use instance::{InFlight, Instance, PrefixPages};
use loads::ByLoad;
use memory::{GenerationMemory, Pages, Rooms};
use page::PageSize;
use prefixes::{Entered, Prefixes};
use scaling::Cards;
use sequence::{Made, Place, Queue, Retrieval, Sequence, Sequences, Transferred};
use transfer::Sending;
use turns::Turns;

/// Whose event a pool's own timer is.
const POOL: InstanceId = InstanceId(0);

/// What generation did beside generating.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GenerationCounts {
    /// Requests that left an instance for want of pages.
    pub evictions: u64,
    /// Requests that left an instance so that it would be empty.
    pub migrations: u64,
    /// Tokens that had to come into a cache again after either.
    pub recomputed_tokens: u64,
    /// Tokens of prompts that were found in the cache, where another request of the tenant had computed them.
    pub shared_tokens: u64,
    /// Adapters that were read from the disk, where host memory does not hold all.
    pub reads: u64,
    /// Requests whose keys and values were copied from the card that took their prompts in to another.
    pub transfers: u64,
    /// Bytes that were copied for that.
    pub transferred_bytes: u64,
    /// Time for which cards had a request on them, summed over cards.
    pub occupied: Duration,
    /// Requests that are given fewer tokens than they ask for, since the model has no positions for more.
    pub shortened: u64,
}

impl GenerationCounts {
    /// What came after the counts `before`. Requests that were given fewer tokens are counted from the start, as
    /// requests are; cards' time is [told](super::Server::count_cards_from) from when it counts.
    pub fn since(self, before: GenerationCounts) -> GenerationCounts {
        GenerationCounts {
            evictions: self.evictions - before.evictions,
            migrations: self.migrations - before.migrations,
            recomputed_tokens: self.recomputed_tokens - before.recomputed_tokens,
            shared_tokens: self.shared_tokens - before.shared_tokens,
            reads: self.reads - before.reads,
            transfers: self.transfers - before.transfers,
            transferred_bytes: self.transferred_bytes - before.transferred_bytes,
            occupied: self.occupied,
            shortened: self.shortened,
        }
    }
}

enum Flight {
    Run {
        instance: InstanceId,
    },
    Load {
        instance: InstanceId,
        tenant: u32,
        slot: u32,
        /// Of host memory, where that does not hold all; `NO_SLOT` elsewhere.
        host_slot: u32,
        /// Whether it is read into that from the disk first.
        is_read: bool,
    },
    /// The look-up of a prompt.
    Retrieve {
        instance: InstanceId,
        request: RequestId,
    },
    /// Its keys and values, from where its prompt was taken in.
    Transfer {
        from: InstanceId,
        to: InstanceId,
        request: RequestId,
    },
    /// The model, onto a card that was asked for.
    LoadModel {
        instance: InstanceId,
    },
    Manage(ManageRequest),
}

/// A serving system of decoders.
pub struct GenerationServer {
    admit: Box<dyn Admit>,
    place: PlaceSpec,
    spec: GenerationSpec,
    layers: Layers,
    lookups: LookupsInSteps,
    /// Bytes of a token's representation.
    row_bytes: u64,
    tenants: u32,
    positions: u32,
    topology: Topology,
    memory: GenerationMemory,

    sequences: Sequences,
    queue: Queue,
    /// Those who wait for an instance that goes on after their prompts, in the order in which these were complete, but
    /// those who have asked one.
    parked: BTreeSet<(Time, Ticket, RequestId)>,
    /// How often the parameters of tenants have been renewed, of those whose were.
    versions: BTreeMap<u32, u32>,
    parked_asking: u32,
    instances: Vec<Instance>,
    /// Where it does not hold all tenants' adapters.
    host: Option<HostMemory>,
    /// All instances by load; where there is only one, it stays as it was.
    by_load: ByLoad,
    /// Where only requests of one tenant join each other, on several instances.
    by_tenant: Option<ByTenant>,
    /// Where they come and go.
    cards: Option<Cards>,
    flights: Slab<BatchId, Flight>,
    tenancy: Tenancy,
    placed: u64,
    counts: GenerationCounts,
    gaps: Gaps,
    /// Of the run that is over.
    run_gaps: RunGaps,
    /// Tokens are counted that are made from then on.
    warm_up: Time,
    occupied_instances: u32,
    occupied_since: Time,
    /// Of the last event.
    now: Time,
    consolidation_set: bool,
    /// Run that last counted each tenant, to count the different tenants of its prompts.
    counted_in: Vec<u64>,
    runs: u64,
    /// Requests whose clients have given up while they ran.
    given_up: u32,
    turns: Turns,
    /// Reused.
    touched: Vec<InstanceId>,
    rooms: Rooms,
    leaving: Vec<(RequestId, Verdict)>,
}

impl GenerationServer {
    /// A system on a cluster, for tenants `0..tenants`.
    ///
    /// # Errors
    /// When weights, adapters and a page of the cache do not fit on an instance's cards.
    pub fn new(
        cluster: &ClusterSpec,
        system: &SystemSpec,
        generation: &GenerationSpec,
        tenants: u32,
    ) -> Result<GenerationServer, ServerError> {
        let pool = &system.pool;
        let topology = Topology::new(cluster, pool);
        let memory = GenerationMemory::plan(cluster, pool, generation, tenants, topology.instances.len())?;
        let page = PageSize::new(generation.page_tokens);
        let slots = || memory.slots().map(|slots| Slots::new(tenants, slots, pool.swap));
        let instance = |_| Instance {
            running: Vec::new(),
            prompts: Vec::new(),
            generating: Generating::new(page, tenants),
            ended: 0,
            joining: VecDeque::new(),
            parked: Vec::new(),
            sending: Vec::new(),
            asking: Vec::new(),
            pages: Pages::new(page, memory.pages),
            prefixes: Prefixes::new(generation.shared_prefix_tokens, generation.page_tokens),
            slots: slots(),
            copies: vec![0; memory.slots().unwrap_or(0) as usize],
            run: None,
            emptying: false,
            closed: false,
            turn_since: Time::ZERO,
        };
        Ok(GenerationServer {
            admit: admit::build(&system.admit),
            place: pool.place,
            layers: Layers::from(pool.first_layer(), pool.model.layers),
            lookups: pool.lookups_in_steps(),
            row_bytes: PlotSpec::row_bytes(pool.model.hidden),
            tenants,
            positions: pool.model.positions,
            instances: topology.instance_ids().map(instance).collect(),
            host: generation.host_slots().map(|slots| HostMemory::new(tenants, slots)),
            by_load: ByLoad::new(topology.instance_ids()),
            by_tenant: (generation.join != JoinSpec::AnyTenant && topology.instances.len() > 1)
                .then(|| ByTenant::new(topology.instances.len() as u32)),
            cards: generation
                .scale
                .map(|scale| Cards::new(scale, generation.tensor_parallel, topology.instances.len())),
            topology,
            tenancy: Tenancy::new(pool, tenants, memory.stored_bytes()),
            memory,
            sequences: Sequences::default(),
            queue: Queue::new(generation, tenants),
            parked: BTreeSet::new(),
            versions: BTreeMap::new(),
            parked_asking: 0,
            flights: Slab::default(),
            placed: 0,
            counts: GenerationCounts::default(),
            gaps: Gaps::default(),
            run_gaps: RunGaps::default(),
            warm_up: Time::ZERO,
            occupied_instances: 0,
            occupied_since: Time::ZERO,
            now: Time::ZERO,
            consolidation_set: false,
            counted_in: vec![u64::MAX; tenants as usize],
            runs: 0,
            given_up: 0,
            turns: Turns::default(),
            touched: Vec::new(),
            rooms: Rooms::default(),
            leaving: Vec::new(),
            spec: generation.clone(),
        })
    }

    /// See [`super::Server::topology`].
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// See [`super::Server::with_management`].
    pub(super) fn add_disk(&mut self) {
        self.topology.add_disk();
    }

    /// See [`super::Server::slots_per_instance`].
    pub fn slots_per_instance(&self) -> Option<u32> {
        self.memory.slots()
    }

    /// Pages of each instance's cache.
    pub fn pages_per_instance(&self) -> u32 {
        self.memory.pages
    }

    /// See [`super::Server::memory`].
    pub fn memory(&self) -> MemoryUse {
        let slots = self.instances.iter().filter_map(|i| i.slots.as_ref()).map(Slots::used);
        let pages = self.instances.iter().map(|i| u64::from(i.pages.peak()));
        let loaded = self.cards.as_ref().map(Cards::ours_most);
        let loaded = loaded.unwrap_or(self.instances.len() as u32);
        self.memory.used(loaded, slots.sum(), pages.sum())
    }

    /// See [`super::Server::swaps`].
    pub fn swaps(&self) -> Option<SwapCounts> {
        let counts = self.instances.iter().filter_map(|i| i.slots.as_ref()).map(|slots| slots.counts);
        counts.reduce(|a, b| a + b)
    }

    /// See [`super::Server::in_flight`].
    pub fn in_flight(&self) -> u64 {
        self.sequences.len() as u64
    }

    /// What was done beside generating, up to the last event or the end of the warm-up.
    pub fn counts(&self) -> GenerationCounts {
        GenerationCounts {
            reads: self.host.as_ref().map_or(0, HostMemory::reads),
            occupied: self.counts.occupied + self.occupied_since_then(),
            ..self.counts
        }
    }

    /// See [`super::Server::token_gaps`].
    pub fn token_gaps(&self) -> Durations {
        self.gaps.durations()
    }

    /// See [`super::Server::warmed_up`].
    pub fn warmed_up(&mut self, at: Time) {
        self.now = at;
        self.warm_up = at;
        self.gaps = Gaps::default();
    }

    /// Takes an event and says what is to be done about it.
    pub fn handle(&mut self, now: Time, event: &Event<'_>, commands: &mut Commands) {
        self.now = now;
        if self.cards.is_some() {
            self.before_event(now, commands);
        }
        match *event {
            Event::Arrived(ref request) => self.arrived(now, request, commands),
            Event::Cancelled(ticket) => self.cancelled(now, ticket, commands),
            Event::Manage(request) => self.manage(now, request, commands),
            Event::Timer(FLEET) => {}
            Event::Timer(_) => self.consolidate(now, commands),
            Event::Done(ref done) => self.done(now, done, commands),
        }
        if self.cards.is_some() {
            self.after_event(now, commands);
        }
        self.set_consolidation(now, commands);
    }

    /// Time for which cards had a request on them, since their number last changed.
    fn occupied_since_then(&self) -> Duration {
        let cards = u64::from(self.occupied_instances * self.spec.tensor_parallel);
        Duration(cards * self.now.0.saturating_sub(self.occupied_since.0))
    }

    /// Apart, as all that is not an end: who hands ends on, which come most, needs little then.
    #[inline(never)]
    fn arrived(&mut self, now: Time, request: &Request, commands: &mut Commands) {
        let waiting = self.queue.len() + self.parked.len() as u32 + self.parked_asking;
        let refused = self.check(request).and_then(|()| self.admit.admit(now, request, waiting));
        if let Err(reason) = refused {
            commands.list.push(Command::Finish(Finish::rejected(request, reason)));
            return;
        }
        let mut sequence = Sequence::new(request, now);
        // As any server does, generation ends where the model's positions do.
        let most = self.positions - request.input_tokens;
        self.counts.shortened += u64::from(sequence.output_tokens > most);
        sequence.output_tokens = sequence.output_tokens.min(most);
        let id = self.sequences.insert(sequence);
        self.queue.push(id, &self.sequences[id]);
        // A real machine may hear of it after a turn has begun for which it came in time.
        self.reconsider_turns_since(self.sequences[id].arrival);
        self.dispatch(now, commands);
    }

    fn check(&self, request: &Request) -> Result<(), RejectReason> {
        self.tenancy.check(request.tenant)?;
        let pages = &self.instances[0].pages;
        if request.input_tokens >= self.positions {
            Err(RejectReason::TooLong)
        } else if pages.of(request.input_tokens) > pages.total() {
            Err(RejectReason::CacheTooSmall)
        } else {
            Ok(())
        }
    }

    /// A request that runs leaves at the next step, one whose keys and values are being copied when
    /// they have been.
    #[inline(never)]
    fn cancelled(&mut self, now: Time, ticket: Ticket, commands: &mut Commands) {
        let Some(id) = self.sequences.with_ticket(ticket).next() else {
            return;
        };
        let sequence = &self.sequences[id];
        match sequence.place {
            Place::Queue => {
                self.forget_asking(id);
                let turn = self.sequences[id].turn;
                self.queue.remove(id, &self.sequences[id]);
                self.reconsider_turns_after(id, turn);
                self.finish(now, id, Verdict::Cancelled, commands);
                self.dispatch(now, commands);
            }
            Place::Instance(instance) if self.runs_now(id, instance) || sequence.transferred == Transferred::Coming => {
                let known = std::mem::replace(&mut self.sequences[id].cancelled, true);
                self.given_up += u32::from(!known);
                if self.runs_now(id, instance) {
                    self.interrupt(instance, commands);
                }
            }
            Place::Instance(instance) => {
                self.leave(now, id, instance, commands);
                self.finish(now, id, Verdict::Cancelled, commands);
                self.dispatch(now, commands);
                self.advance(now, instance, commands);
            }
        }
    }

    /// Whether a run that has not ended has this request in it.
    fn runs_now(&self, id: RequestId, instance: InstanceId) -> bool {
        self.instances[instance.index()].run.is_some() && self.sequences[id].started
    }

    fn done(&mut self, now: Time, done: &Done<'_>, commands: &mut Commands) {
        match self.flights.remove(done.batch).expect("a batch ends once") {
            Flight::Load {
                instance,
                tenant,
                slot,
                host_slot,
                is_read,
            } => {
                if let Some(host) = &mut self.host {
                    let failed = !done.failures.is_empty();
                    for waiting in host.loaded(tenant, host_slot, is_read, failed) {
                        self.load_after_waiting(now, waiting, commands);
                    }
                }
                self.loaded(now, done, instance, tenant, slot, commands);
            }
            Flight::Retrieve { instance, request } => self.retrieved(now, done, instance, request, commands),
            Flight::Transfer { from, to, request } => self.transferred(now, done, from, to, request, commands),
            Flight::Run { instance } => self.ran(now, done, instance, commands),
            Flight::LoadModel { instance } => match done.failures.is_empty() {
                true => self.serve_on(now, instance, commands),
                false => self.without_model(now, instance),
            },
            Flight::Manage(request) => {
                let failed = done.failures.first().map(|failure| failure.reason);
                self.managed(now, request, failed, commands);
            }
        }
    }

    fn loaded(
        &mut self,
        now: Time,
        done: &Done<'_>,
        instance: InstanceId,
        tenant: u32,
        slot: u32,
        commands: &mut Commands,
    ) {
        let state = &mut self.instances[instance.index()];
        // Whoever asked for it may have left, and the slot be another tenant's, whose copy is under way behind it.
        state.copies[slot as usize] -= 1;
        if let Some(failure) = done.failures.first() {
            // All who wait for what did not come fail with it.
            if let Some(slots) = &mut state.slots
                && slots.holds_in(tenant, slot)
            {
                slots.invalidate(tenant);
            }
            let waiting: Vec<RequestId> = state
                .joining
                .iter()
                .copied()
                .filter(|&id| self.sequences[id].slot == slot && self.sequences[id].tenant == tenant)
                .collect();
            for id in waiting {
                if self.sequences[id].transferred == Transferred::Coming {
                    self.sequences[id].failed = Some(failure.reason);
                    continue;
                }
                self.leave(now, id, instance, commands);
                self.finish(now, id, Verdict::Failed(failure.reason), commands);
            }
            self.dispatch(now, commands);
        } else {
            self.interrupt_if_ready(instance, commands);
            if self.host.is_some() {
                // What it kept in host memory may be let go of now.
                self.dispatch(now, commands);
            }
        }
        self.advance(now, instance, commands);
    }

    /// Whether an instance only takes prompts in.
    fn only_prefills(&self, instance: InstanceId) -> bool {
        instance.0 < self.spec.prefill_instances()
    }

    /// Whether an instance only goes on from prompts that another has taken in.
    fn only_decodes(&self, instance: InstanceId) -> bool {
        self.spec.disaggregated.is_some() && !self.only_prefills(instance)
    }

    /// An instance's load is no longer what it was.
    fn reload(&mut self, instance: InstanceId, was: u32) {
        let load = self.instances[instance.index()].load();
        if load == was {
            return;
        }
        // With a single instance nobody asks for the order.
        if self.instances.len() > 1 {
            self.by_load.change(instance, was, load);
            self.note_tenant(instance);
        }
        self.reconsider_turn(instance);
        if was == 0 || load == 0 {
            self.occupied_changed(was);
        }
        if let Some(cards) = &mut self.cards {
            cards.reloaded(instance);
        }
    }

    /// An instance may have another tenant's requests than it had, or nobody's.
    #[inline]
    fn note_tenant(&mut self, instance: InstanceId) {
        if self.by_tenant.is_some() {
            self.note_that_tenant(instance);
        }
    }

    #[inline(never)]
    fn note_that_tenant(&mut self, instance: InstanceId) {
        let state = &self.instances[instance.index()];
        let (tenant, load) = (self.tenant_on(state), state.load());
        if let Some(by_tenant) = &mut self.by_tenant {
            by_tenant.change(instance, tenant, load);
        }
    }

    /// An instance has its first request, or has lost its last.
    #[inline(never)]
    fn occupied_changed(&mut self, was: u32) {
        self.counts.occupied += self.occupied_since_then();
        self.occupied_since = self.occupied_since.max(self.now);
        match was {
            0 => self.occupied_instances += 1,
            _ => self.occupied_instances -= 1,
        }
    }

    /// Interrupts an instance's run, if somebody is ready to join.
    fn interrupt_if_ready(&mut self, instance: InstanceId, commands: &mut Commands) {
        let state = &self.instances[instance.index()];
        let mut joining = state.joining.iter();
        if joining.any(|&id| self.sequences[id].is_ready(&state.copies)) {
            self.interrupt(instance, commands);
        }
    }

    /// Lets an instance's run end at its next step, for somebody who is ready to join, is to leave, or asks whether
    /// there is room.
    fn interrupt(&mut self, instance: InstanceId, commands: &mut Commands) {
        if let Some(run) = &mut self.instances[instance.index()].run
            && run.interruptible
        {
            run.interruptible = false;
            commands.list.push(Command::Interrupt {
                instance,
                batch: run.batch,
            });
        }
    }
}
