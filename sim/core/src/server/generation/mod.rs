//! Decoders: requests join and leave an instance between steps, and keep pages of its key-value cache while they are there (Punica,
//! section 5; continuous batching after Orca).
//!
//! A request waits in one queue for all instances, in order of arrival. [`GenerationServer::dispatch`] gives it to an instance that has room;
//! what its tenant has of its own comes in beside what runs, and its prompt may be looked up there. [`GenerationServer::advance`] submits an instance's next run of steps: at most until
//! someone ends, the pages are used up, or somebody new is ready to join, who interrupts it.

mod asking;
mod gaps;
mod generating;
mod host;
mod laws;
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

use std::collections::{BTreeSet, VecDeque};

use tenantry_traces::{Duration, ManageRequest, Request, Ticket, Time};

use super::FLEET;
use super::memory::{MemoryUse, ServerError};
use super::slots::{Acquired, Slots, SwapCounts};
use super::tenancy::{Begun, Tenancy, discard};
use crate::command::{Command, Commands, FailureReason, Finish, RejectReason, Verdict, Waits};
use crate::durations::Durations;
use crate::event::{Done, Event, RunOutcome};
use crate::ids::{BatchId, InstanceId, RequestId};
use crate::op::{After, BatchShape, CopyIn, Layers, Load, Member, NO_SLOT, Op, OpKind};
use crate::policy::admit::{self, Admit};
use crate::slab::Slab;
use crate::spec::{ClusterSpec, GenerationSpec, JoinSpec, LookupsInSteps, PlaceSpec, SystemSpec, TenantState};
use crate::topology::Topology;
use asking::Asked;
use gaps::Gaps;
use generating::{Generating, Took};
use host::{HostMemory, InHost, Waiting};
use loads::ByLoad;
use memory::{GenerationMemory, Pages, Rooms};
use page::PageSize;
use prefixes::{Entered, Prefixes};
use scaling::Cards;
use sequence::{Place, Queue, Retrieval, Sequence, Sequences, Transferred};
use transfer::Sending;

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
}

/// A run that has been submitted and has not ended.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    batch: BatchId,
    /// Whether an interrupt would end it sooner, and none has been sent.
    interruptible: bool,
}

struct Instance {
    /// In the order in which they joined.
    running: Vec<RequestId>,
    /// Of these, whose prompts are not complete.
    prompts: Vec<RequestId>,
    /// The others.
    generating: Generating,
    /// Placed here; their prompts have not begun.
    joining: VecDeque<RequestId>,
    /// Their prompts are complete, and they wait for an instance that goes on from there.
    parked: Vec<RequestId>,
    /// What is kept of those that are being copied to such an instance.
    sending: Vec<Sending>,
    /// Requests that come here when the run is over, if there is room.
    asking: Vec<Asked>,
    pages: Pages,
    prefixes: Prefixes,
    /// Absent where tenants have nothing of their own.
    slots: Option<Slots>,
    /// By slot: copies into it that have not ended.
    copies: Vec<u32>,
    run: Option<InFlight>,
    /// Everyone here is to go elsewhere.
    emptying: bool,
    /// A static batch that has begun: nobody joins.
    closed: bool,
    /// When the first of those here came, since when it was never empty.
    turn_since: Time,
}

/// Pages of what the prompts of a tenant begin with alike.
struct PrefixPages {
    /// That are there.
    found: u32,
    /// That the one who came begins.
    begun: u32,
}

impl Instance {
    /// A request comes whose prompt may begin as others of its tenant do.
    fn enter_prefix(&mut self, sequence: &mut Sequence) -> PrefixPages {
        let (prefix, found, begun) = match self.prefixes.enter(sequence.tenant, sequence.prompt_tokens) {
            Entered::Alone => return PrefixPages { found: 0, begun: 0 },
            Entered::Begun(prefix) => (prefix, 0, prefix.pages),
            Entered::Found(prefix) => (prefix, prefix.pages, 0),
        };
        sequence.prefix = Some(prefix);
        PrefixPages { found, begun }
    }

    /// Requests that are here, in part, or perhaps soon.
    fn load(&self) -> u32 {
        self.placed() + self.sending.len() as u32 + self.asking.len() as u32
    }

    /// For those that have asked.
    fn asked_pages(&self) -> u32 {
        self.asking.iter().map(|asked| asked.pages).sum()
    }

    /// Requests of which it says where they are.
    fn placed(&self) -> u32 {
        (self.running.len() + self.joining.len() + self.parked.len()) as u32
    }

    /// All that are placed here, those aside that only wait to go elsewhere.
    fn here(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.running.iter().chain(&self.joining).copied()
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
    /// Copies that a tenant's own parameters take.
    chunks: u32,
    lookups: LookupsInSteps,
    /// Bytes of a token's representation.
    hidden_bytes: u64,
    tenants: u32,
    positions: u32,
    topology: Topology,
    memory: GenerationMemory,

    sequences: Sequences,
    queue: Queue,
    /// Those who wait for an instance that goes on after their prompts, in order of arrival, but those who have asked one.
    parked: BTreeSet<(Time, Ticket, RequestId)>,
    parked_asking: u32,
    instances: Vec<Instance>,
    /// Where it does not hold all tenants' adapters.
    host: Option<HostMemory>,
    /// All instances by load; where there is only one, it stays as it was.
    by_load: ByLoad,
    /// Where they come and go.
    cards: Option<Cards>,
    flights: Slab<BatchId, Flight>,
    tenancy: Tenancy,
    placed: u64,
    counts: GenerationCounts,
    gaps: Gaps,
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
            joining: VecDeque::new(),
            parked: Vec::new(),
            sending: Vec::new(),
            asking: Vec::new(),
            pages: Pages::new(page, memory.pages),
            prefixes: Prefixes::new(generation.shared_prefix_tokens, generation.page_tokens),
            slots: slots(),
            copies: vec![0; memory.slots().unwrap_or(0).min(tenants) as usize],
            run: None,
            emptying: false,
            closed: false,
            turn_since: Time::ZERO,
        };
        Ok(GenerationServer {
            admit: admit::build(&system.admit),
            place: pool.place,
            layers: Layers::from(pool.first_layer(), pool.model.layers),
            chunks: match pool.tenant_state {
                TenantState::Model => 1,
                TenantState::Adapters { .. } | TenantState::Head => pool.computed_layers(),
            },
            lookups: pool.lookups_in_steps(),
            hidden_bytes: u64::from(pool.model.hidden) * pool.dtype.bytes(),
            tenants,
            positions: pool.model.positions,
            instances: topology.instance_ids().map(instance).collect(),
            host: generation
                .lora
                .and_then(|lora| lora.host_slots)
                .map(|slots| HostMemory::new(tenants, slots)),
            by_load: ByLoad::new(topology.instance_ids()),
            cards: { generation.scale }
                .map(|scale| Cards::new(scale, generation.tensor_parallel, topology.instances.len())),
            topology,
            tenancy: Tenancy::new(pool, tenants, memory.tenant_bytes()),
            memory,
            sequences: Sequences::default(),
            queue: Queue::new(generation, tenants),
            parked: BTreeSet::new(),
            parked_asking: 0,
            flights: Slab::default(),
            placed: 0,
            counts: GenerationCounts::default(),
            gaps: Gaps::default(),
            occupied_instances: 0,
            occupied_since: Time::ZERO,
            now: Time::ZERO,
            consolidation_set: false,
            counted_in: vec![u64::MAX; tenants as usize],
            runs: 0,
            given_up: 0,
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

    /// See [`super::Server::slots_per_instance`].
    pub fn slots_per_instance(&self) -> Option<u32> {
        self.memory.slots().map(|slots| slots.min(self.tenants))
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
        let counts = self
            .instances
            .iter()
            .filter_map(|i| i.slots.as_ref())
            .map(|slots| slots.counts);
        counts.reduce(|a, b| a + b)
    }

    /// See [`super::Server::in_flight`].
    pub fn in_flight(&self) -> u64 {
        self.sequences.len() as u64
    }

    /// What was done beside generating, up to the last event.
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
    pub fn warmed_up(&mut self) {
        self.gaps = Gaps::default();
    }

    /// Takes an event and says what is to be done about it.
    pub fn handle(&mut self, now: Time, event: &Event<'_>, commands: &mut Commands) {
        self.now = now;
        // What a timer finds with nobody inside can wait until somebody comes: the run may be over.
        let cards_change = self.cards.is_some() && !(matches!(event, Event::Timer(_)) && self.sequences.is_empty());
        if cards_change {
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
        if cards_change {
            self.after_event(now, commands);
        }
        self.set_consolidation(now, commands);
    }

    /// Time for which cards had a request on them, since their number last changed.
    fn occupied_since_then(&self) -> Duration {
        let cards = u64::from(self.occupied_instances * self.spec.tensor_parallel);
        Duration(cards * self.now.since(self.occupied_since).0)
    }

    fn arrived(&mut self, now: Time, request: &Request, commands: &mut Commands) {
        let refused = self
            .check(request)
            .and_then(|()| self.admit.admit(request, self.queue.len()));
        if let Err(reason) = refused {
            commands.list.push(Command::Finish(Finish::rejected(request, reason)));
            return;
        }
        let mut sequence = Sequence::new(request, now);
        // As any server does, generation ends where the model's positions do.
        sequence.output_tokens = sequence.output_tokens.min(self.positions - request.input_tokens);
        let id = self.sequences.insert(sequence);
        self.queue.push(id, &self.sequences[id]);
        self.dispatch(now, commands);
    }

    fn check(&self, request: &Request) -> Result<(), RejectReason> {
        self.tenancy.check(request.tenant)?;
        let pages = &self.instances[0].pages;
        if request.input_tokens >= self.positions || pages.of(request.input_tokens) + 1 > pages.total() {
            Err(RejectReason::TooLong)
        } else {
            Ok(())
        }
    }

    /// Cancellation is rare, so it searches. A request that runs leaves at the next step, one whose keys and values are being copied when
    /// they have been.
    fn cancelled(&mut self, now: Time, ticket: Ticket, commands: &mut Commands) {
        let Some((id, sequence)) = self.sequences.iter().find(|(_, s)| s.ticket == ticket) else {
            return;
        };
        match sequence.place {
            Place::Queue => {
                self.forget_asking(id);
                self.queue.remove(id, &self.sequences[id]);
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
            if let Some(slots) = &mut state.slots {
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

    fn ran(&mut self, now: Time, done: &Done<'_>, instance: InstanceId, commands: &mut Commands) {
        let outcome = done.run.expect("a run tells what came of it");
        let took = Took {
            computed: done.timing.lane + done.timing.busy,
            told: now.since(done.timing.ended),
        };
        // Mostly somebody has only come to join.
        let nobody_leaves = outcome.ended.is_empty() && outcome.failed.is_empty() && self.given_up == 0;
        let leaving = match nobody_leaves {
            true => Vec::new(),
            false => self.leaving(instance, &outcome),
        };
        self.count_served(instance, &outcome);
        let state = &mut self.instances[instance.index()];
        state.run = None;
        state.pages.promise(0);
        self.answer(instance);
        let state = &mut self.instances[instance.index()];
        let going_on = state.generating.requests();
        let (pages, gaps) = state.generating.ran(&outcome, took, done.timing.ended);
        state.pages.take(pages);
        if outcome.steps > 0 {
            self.gaps.ran(gaps, going_on, outcome.steps - 1);
        }
        let mut prompts = std::mem::take(&mut state.prompts);
        prompts.retain(|&id| !self.took_in(id, instance, &outcome, took, gaps.later));
        self.instances[instance.index()].prompts = prompts;
        if self.spec.join == JoinSpec::HeadRunStatic {
            self.gaps
                .less(outcome.ended.iter().map(|ended| outcome.steps - ended.step).sum());
        }
        if !nobody_leaves {
            self.let_leave(now, leaving, instance, &outcome, commands);
        }
        if self.only_prefills(instance) {
            self.park(now, instance, commands);
        }
        if self.instances[instance.index()].emptying {
            self.empty(now, instance, commands);
        }
        self.dispatch(now, commands);
        self.advance(now, instance, commands);
    }

    fn let_leave(
        &mut self,
        now: Time,
        mut leaving: Vec<(RequestId, Verdict)>,
        instance: InstanceId,
        outcome: &RunOutcome<'_>,
        commands: &mut Commands,
    ) {
        for (id, verdict) in leaving.drain(..) {
            self.leave(now, id, instance, commands);
            self.sequences[id].generated_tokens -= surplus(id, outcome);
            self.finish(now, id, verdict, commands);
        }
        self.leaving = leaving;
    }

    /// Who leaves at the end of a run, in the order in which they joined. A client that has given up hears of nothing else.
    fn leaving(&mut self, instance: InstanceId, outcome: &RunOutcome<'_>) -> Vec<(RequestId, Verdict)> {
        let running = &self.instances[instance.index()].running;
        let mut leaving = std::mem::take(&mut self.leaving);
        if self.given_up > 0 {
            let took_part = |id: &RequestId| self.sequences[*id].cancelled && self.sequences[*id].takes_part();
            let given_up = running.iter().filter(|&id| took_part(id));
            leaving.extend(given_up.map(|&id| (id, Verdict::Cancelled)));
        }
        leaving.extend({ outcome.failed.iter() }.map(|failed| (failed.request, Verdict::Failed(failed.reason))));
        leaving.extend(outcome.ended.iter().map(|ended| (ended.request, Verdict::Served)));
        if leaving.len() > 1 {
            leaving.sort_by_key(|&(id, _)| running.iter().position(|&other| other == id));
            leaving.dedup_by_key(|&mut (id, _)| id);
        }
        leaving
    }

    /// Counts a run's tokens as served, where that says whose turn it is.
    fn count_served(&mut self, instance: InstanceId, outcome: &RunOutcome<'_>) {
        let Some(counters) = &mut self.queue.counters else {
            return;
        };
        for &id in &self.instances[instance.index()].running {
            let sequence = &self.sequences[id];
            if sequence.to_prefill == sequence.chunk_tokens {
                counters.serve(sequence.tenant, 0, outcome.steps - surplus(id, outcome));
            }
        }
    }

    /// Books a run on a request, if it was one of those whose prompts the run took in. Whether that completed it.
    fn took_in(
        &mut self,
        id: RequestId,
        instance: InstanceId,
        outcome: &RunOutcome<'_>,
        took: Took,
        later_gap: Duration,
    ) -> bool {
        let sequence = &mut self.sequences[id];
        let chunk = std::mem::take(&mut sequence.chunk_tokens);
        if chunk == 0 {
            return false;
        }
        sequence.computed += took.computed;
        sequence.told += took.told;
        sequence.batch_requests = sequence.batch_requests.max(outcome.requests);
        // Who has failed leaves, with what it computed.
        if outcome.steps == 0 || outcome.failed.iter().any(|failed| failed.request == id) {
            return false;
        }
        sequence.cached_tokens += chunk;
        sequence.to_prefill -= chunk;
        let is_complete = sequence.to_prefill == 0;
        if is_complete {
            // The token made last is not in the cache.
            sequence.cached_tokens += outcome.steps - 1;
            sequence.generated_tokens += outcome.steps;
            sequence.first_token.get_or_insert(outcome.first_step_ended);
            self.gaps.joined(outcome.steps - 1);
            sequence.longest_gap = sequence.longest_gap.max(later_gap);
            // It had made one elsewhere, or here before it was evicted.
            if let Some(last) = sequence.last_token {
                let gap = gaps::between(last, outcome.first_step_ended);
                sequence.longest_gap = sequence.longest_gap.max(gap);
                self.gaps.away(gap);
            }
        }
        let state = &mut self.instances[instance.index()];
        if let Some(prefix) = sequence.prefix {
            state.prefixes.cached(prefix, sequence.cached_tokens);
        }
        let held = sequence.cached_tokens + sequence.to_prefill;
        let own = held - state.pages.tokens(sequence.shared_pages());
        state.pages.resize(&mut sequence.pages, own);
        if is_complete {
            sequence.since = state.generating.join(sequence);
        }
        is_complete
    }

    /// Whether an instance only takes prompts in.
    fn only_prefills(&self, instance: InstanceId) -> bool {
        instance.0 < self.spec.prefill_instances()
    }

    /// Whether an instance only goes on from prompts that another has taken in.
    fn only_decodes(&self, instance: InstanceId) -> bool {
        self.spec.disaggregated.is_some() && !self.only_prefills(instance)
    }

    /// Takes a request off its instance.
    fn leave(&mut self, now: Time, id: RequestId, instance: InstanceId, commands: &mut Commands) {
        if self.sequences[id].transferred == Transferred::Parked {
            self.forget_asking(id);
        }
        let state = &mut self.instances[instance.index()];
        let load = state.load();
        let sequence = &mut self.sequences[id];
        if sequence.started {
            let at = state.running.iter().position(|&other| other == id);
            state.running.remove(at.expect("who has started runs"));
            match sequence.to_prefill {
                0 => state.generating.leave(sequence),
                _ => state.prompts.retain(|&other| other != id),
            }
        } else if sequence.transferred == Transferred::Parked {
            self.parked.remove(&sequence.waiting(id));
            sequence.queued += now.since(sequence.queued_since);
            state.parked.retain(|&other| other != id);
        } else {
            state.joining.retain(|&other| other != id);
        }
        let left = state.pages.leave(&mut sequence.pages);
        let unread = sequence.prefix.take().and_then(|prefix| state.prefixes.leave(prefix));
        sequence.left = Some((instance, left, sequence.cached_tokens));
        if let Some(slots) = &mut state.slots
            && sequence.slot != NO_SLOT
        {
            slots.release(sequence.slot);
            sequence.slot = NO_SLOT;
        }
        let is_known = sequence.started || sequence.retrieval == Retrieval::There;
        if is_known || sequence.transferred != Transferred::No {
            commands.list.push(Command::Release { instance, request: id });
        }
        sequence.retrieval = Retrieval::None;
        sequence.transferred = Transferred::No;
        sequence.started = false;
        sequence.chunk_tokens = 0;
        sequence.place = Place::Queue;
        sequence.queued_since = now;
        if state.load() == 0 {
            state.closed = false;
            state.emptying = false;
        }
        self.reload(instance, load);
        self.let_go(instance, unread, commands);
        self.answer(instance);
        let tenant = self.sequences[id].tenant;
        if let Some(request) = self.tenancy.leave(tenant) {
            self.submit_manage(request, discard(request), commands);
        }
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
        }
        if was == 0 || load == 0 {
            self.counts.occupied += self.occupied_since_then();
            self.occupied_since = self.now;
            match was {
                0 => self.occupied_instances += 1,
                _ => self.occupied_instances -= 1,
            }
        }
    }

    fn finish(&mut self, now: Time, id: RequestId, verdict: Verdict, commands: &mut Commands) {
        let sequence = &self.sequences[id];
        self.given_up -= u32::from(sequence.cancelled);
        // `leave` counts from here on as if it waited again.
        let queued = sequence.queued + now.since(sequence.queued_since);
        let known = queued + sequence.computed + sequence.told;
        let latency = now.since(sequence.arrival);
        commands.list.push(Command::Finish(Finish {
            request: Some(id),
            ticket: sequence.ticket,
            tenant: sequence.tenant,
            class: sequence.class,
            arrival: sequence.arrival,
            input_tokens: sequence.prompt_tokens,
            batch_requests: sequence.batch_requests,
            output_tokens: sequence.generated_tokens,
            first_token: sequence.first_token,
            longest_gap: sequence.longest_gap,
            verdict,
            waits: Waits {
                queue: queued,
                lane: Duration::ZERO,
                stall: Duration(latency.0 - known.0),
                compute: sequence.computed,
                tell: sequence.told,
            },
            returned: None,
        }));
        // It is large: nobody needs it moved.
        self.sequences.discard(id);
    }

    /// Likewise, if somebody is ready to join.
    fn interrupt_if_ready(&mut self, instance: InstanceId, commands: &mut Commands) {
        let state = &self.instances[instance.index()];
        let mut joining = state.joining.iter();
        if joining.any(|&id| self.sequences[id].is_ready(&state.copies)) {
            self.interrupt(instance, commands);
        }
    }

    /// Lets an instance's run end at its next step, for somebody who is ready to join, is to leave, or asks whether there is room.
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

/// Tokens that a request made after its last, while it waited for others.
fn surplus(id: RequestId, outcome: &RunOutcome<'_>) -> u32 {
    let ended = outcome.ended.iter().find(|ended| ended.request == id);
    ended.map_or(0, |ended| outcome.steps - ended.step)
}
