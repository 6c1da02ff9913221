//! Decoders: requests join and leave an instance between steps, and keep pages of its key-value cache while they are there (Punica,
//! section 5; continuous batching after Orca).
//!
//! A request waits in one queue for all instances, in order of arrival. [`GenerationServer::dispatch`] gives it to an instance that has room;
//! what its tenant has of its own comes in beside what runs, and its prompt may be looked up there. [`GenerationServer::advance`] submits an instance's next run of steps: at most until
//! someone ends, the pages are used up, or somebody new is ready to join, who interrupts it.

mod host;
mod laws;
mod managing;
mod memory;
mod placing;
mod prefixes;
mod retrieving;
mod sequence;
mod step;

use std::collections::{BTreeSet, VecDeque};

use tenantry_traces::{Duration, ManageRequest, Request, Ticket, Time};

use super::memory::{MemoryUse, ServerError};
use super::slots::{Acquired, Slots, SwapCounts};
use super::tenancy::{Begun, Tenancy, discard};
use crate::command::{Command, Commands, FailureReason, Finish, RejectReason, Verdict, Waits};
use crate::event::{Done, Event, RunOutcome};
use crate::ids::{BatchId, InstanceId, RequestId};
use crate::op::{After, BatchShape, CopyIn, Layers, Load, Member, NO_SLOT, Op, OpKind, Submission};
use crate::policy::admit::{self, Admit};
use crate::slab::Slab;
use crate::spec::{ClusterSpec, GenerationSpec, JoinSpec, LookupsInSteps, PlaceSpec, SystemSpec, TenantState};
use crate::topology::Topology;
use host::{HostMemory, InHost, Waiting};
use memory::{GenerationMemory, Pages};
use prefixes::{Entered, Prefixes};
use sequence::{Place, Queue, Retrieval, Sequence, Sequences};

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
    /// Placed here; their prompts have not begun.
    joining: VecDeque<RequestId>,
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
}

impl Instance {
    fn load(&self) -> u32 {
        (self.running.len() + self.joining.len()) as u32
    }
}

/// What a run took, for each of its members.
#[derive(Clone, Copy)]
struct Took {
    computed: Duration,
    /// Until the server heard of its end.
    told: Duration,
}

enum Flight {
    Run {
        instance: InstanceId,
        members: Vec<RequestId>,
    },
    Load {
        instance: InstanceId,
        tenant: u32,
        slot: u32,
        /// Of host memory, where that does not hold all; `NO_SLOT` elsewhere.
        host_slot: u32,
    },
    /// The look-up of a prompt.
    Retrieve {
        instance: InstanceId,
        request: RequestId,
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
    instances: Vec<Instance>,
    /// Where it does not hold all tenants' adapters.
    host: Option<HostMemory>,
    /// All instances by load.
    by_load: BTreeSet<(u32, InstanceId)>,
    flights: Slab<BatchId, Flight>,
    tenancy: Tenancy,
    placed: u64,
    counts: GenerationCounts,
    occupied_instances: u32,
    occupied_since: Time,
    consolidation_set: bool,
    /// Run that last counted each tenant, to count the different tenants of a run.
    counted_in: Vec<u64>,
    runs: u64,
    /// Reused.
    touched: Vec<InstanceId>,
    rooms: Vec<u32>,
    spare: Vec<Vec<RequestId>>,
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
        let memory = GenerationMemory::plan(cluster, pool, generation, topology.instances.len())?;
        let slots = || memory.slots().map(|slots| Slots::new(tenants, slots, pool.swap));
        let instance = |_| Instance {
            running: Vec::new(),
            joining: VecDeque::new(),
            pages: Pages::new(generation.page_tokens, memory.pages),
            prefixes: Prefixes::new(generation.shared_prefix_tokens, generation.page_tokens),
            slots: slots(),
            copies: vec![0; memory.slots().unwrap_or(0).min(tenants) as usize],
            run: None,
            emptying: false,
            closed: false,
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
            by_load: topology.instance_ids().map(|id| (0, id)).collect(),
            topology,
            tenancy: Tenancy::new(pool, tenants, memory.tenant_bytes()),
            memory,
            sequences: Sequences::default(),
            queue: Queue::new(generation, tenants),
            flights: Slab::default(),
            placed: 0,
            counts: GenerationCounts::default(),
            occupied_instances: 0,
            occupied_since: Time::ZERO,
            consolidation_set: false,
            counted_in: vec![u64::MAX; tenants as usize],
            runs: 0,
            touched: Vec::new(),
            rooms: Vec::new(),
            spare: Vec::new(),
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
        self.memory.used(slots.sum(), pages.sum())
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
            ..self.counts
        }
    }

    /// Takes an event and says what is to be done about it.
    pub fn handle(&mut self, now: Time, event: Event<'_>, commands: &mut Commands) {
        self.count_occupied(now);
        match event {
            Event::Arrived(request) => self.arrived(now, &request, commands),
            Event::Cancelled(ticket) => self.cancelled(now, ticket, commands),
            Event::Manage(request) => self.manage(now, request, commands),
            Event::Timer(_) => self.consolidate(now, commands),
            Event::Done(done) => self.done(now, &done, commands),
        }
        self.set_consolidation(now, commands);
    }

    fn count_occupied(&mut self, now: Time) {
        let cards = u64::from(self.occupied_instances * self.spec.tensor_parallel);
        self.counts.occupied += Duration(cards * now.since(self.occupied_since).0);
        self.occupied_since = now;
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

    /// Cancellation is rare, so it searches. A request that runs leaves at the next step.
    fn cancelled(&mut self, now: Time, ticket: Ticket, commands: &mut Commands) {
        let Some((id, sequence)) = self.sequences.iter().find(|(_, s)| s.ticket == ticket) else {
            return;
        };
        match sequence.place {
            Place::Queue => {
                self.queue.remove(id, &self.sequences[id]);
                self.finish(now, id, Verdict::Cancelled, commands);
                self.dispatch(now, commands);
            }
            Place::Instance(instance) if self.runs_now(id, instance) => {
                self.sequences[id].cancelled = true;
                self.interrupt(instance, commands);
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
            } => {
                if let Some(host) = &mut self.host {
                    let failed = !done.failures.is_empty();
                    for waiting in host.loaded(tenant, host_slot, failed) {
                        self.load(waiting, commands);
                    }
                }
                self.loaded(now, done, instance, tenant, slot, commands);
            }
            Flight::Retrieve { instance, request } => self.retrieved(now, done, instance, request, commands),
            Flight::Run { instance, members } => self.ran(now, done, instance, members, commands),
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

    fn ran(
        &mut self,
        now: Time,
        done: &Done<'_>,
        instance: InstanceId,
        mut members: Vec<RequestId>,
        commands: &mut Commands,
    ) {
        let state = &mut self.instances[instance.index()];
        state.run = None;
        state.pages.promise(0);
        let outcome = done.run.expect("a run tells what came of it");
        let took = Took {
            computed: done.timing.lane + done.timing.busy,
            told: now.since(done.timing.ended),
        };
        // Both in the order of members.
        let (mut failures, mut ended) = (done.failures, outcome.ended);
        for (index, &id) in (0..).zip(&members) {
            let (mut failure, mut end) = (None, None);
            if let [first, others @ ..] = failures
                && first.member == index
            {
                (failure, failures) = (Some(first.reason), others);
            }
            if let [first, others @ ..] = ended
                && first.member == index
            {
                (end, ended) = (Some(first.step), others);
            }
            self.grow(id, instance, &outcome, end, took);
            let verdict = match (self.sequences[id].cancelled, failure, end) {
                (true, ..) => Verdict::Cancelled,
                (false, Some(reason), _) => Verdict::Failed(reason),
                (false, None, Some(_)) => Verdict::Served,
                (false, None, None) => continue,
            };
            self.leave(now, id, instance, commands);
            self.finish(now, id, verdict, commands);
        }
        members.clear();
        self.spare.push(members);
        if self.instances[instance.index()].emptying {
            self.empty(now, instance, commands);
        }
        self.dispatch(now, commands);
        self.advance(now, instance, commands);
    }

    /// Books a run's steps on one of its members.
    #[inline]
    fn grow(
        &mut self,
        id: RequestId,
        instance: InstanceId,
        outcome: &RunOutcome<'_>,
        ended_at: Option<u32>,
        took: Took,
    ) {
        let steps = outcome.steps;
        let sequence = &mut self.sequences[id];
        sequence.computed += took.computed;
        sequence.told += took.told;
        sequence.batch_requests = sequence.batch_requests.max(outcome.requests);
        if steps == 0 {
            return;
        }
        let chunk = sequence.chunk_tokens;
        let made = if chunk == 0 {
            sequence.cached_tokens += steps;
            steps
        } else {
            sequence.cached_tokens += chunk;
            sequence.to_prefill -= chunk;
            sequence.chunk_tokens = 0;
            if sequence.to_prefill == 0 {
                sequence.cached_tokens += steps - 1;
                steps
            } else {
                0
            }
        };
        if made > 0 && sequence.first_token.is_none() {
            sequence.first_token = Some(outcome.first_step_ended);
        }
        let generated = ended_at.unwrap_or(made).min(made);
        sequence.generated_tokens += generated;
        let tenant = sequence.tenant;
        self.queue.count(|counters| counters.serve(tenant, 0, generated));
        let held = sequence.cached_tokens + sequence.to_prefill;
        let state = &mut self.instances[instance.index()];
        if let Some(prefix) = sequence.prefix {
            state.prefixes.cached(prefix, sequence.cached_tokens);
        }
        let own = held - state.pages.tokens(sequence.shared_pages());
        state.pages.resize(&mut sequence.pages, own);
    }

    /// Takes a request off its instance.
    fn leave(&mut self, now: Time, id: RequestId, instance: InstanceId, commands: &mut Commands) {
        let state = &mut self.instances[instance.index()];
        let load = state.load();
        let sequence = &mut self.sequences[id];
        if sequence.started {
            state.running.retain(|&other| other != id);
        } else {
            state.joining.retain(|&other| other != id);
        }
        let left = state.pages.leave(&mut sequence.pages);
        let unread = sequence.prefix.take().and_then(|prefix| state.prefixes.leave(prefix));
        sequence.left = Some((instance, left, sequence.cached_tokens));
        if let Some(slots) = &mut state.slots {
            slots.release(sequence.slot);
            sequence.slot = NO_SLOT;
        }
        if sequence.started || sequence.retrieval == Retrieval::There {
            commands.list.push(Command::Release { instance, request: id });
        }
        sequence.retrieval = Retrieval::None;
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
        // In this order the set of a single instance is never empty, which would free its memory.
        self.by_load.insert((load, instance));
        self.by_load.remove(&(was, instance));
        match (was, load) {
            (0, 1..) => self.occupied_instances += 1,
            (1.., 0) => self.occupied_instances -= 1,
            _ => {}
        }
    }

    fn finish(&mut self, now: Time, id: RequestId, verdict: Verdict, commands: &mut Commands) {
        let sequence = self.sequences.remove(id).expect("a request leaves once");
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
    }

    /// Likewise, if somebody is ready to join.
    fn interrupt_if_ready(&mut self, instance: InstanceId, commands: &mut Commands) {
        let state = &self.instances[instance.index()];
        let mut joining = state.joining.iter();
        if joining.any(|&id| self.sequences[id].is_ready(&state.copies)) {
            self.interrupt(instance, commands);
        }
    }

    /// Lets an instance's run end at its next step, if somebody is ready to join or is to leave.
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
