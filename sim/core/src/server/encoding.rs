//! Encoders: a batch is formed, runs once, and every request in it is answered.
//!
//! Policies decide ([`crate::policy`]); this module keeps the mechanism: who waits where, which batches run, what is on
//! the card.

use tenantry_traces::{ManageRequest, Request, Ticket, Time};

use super::memory::{Memory, MemoryUse, ServerError};
use super::queue::{InFlight, Queue, Requests};
use super::slots::{Acquired, Slots, SwapCounts};
use super::tenancy::{Begun, Tenancy, discard};
use crate::command::{Command, Commands, FailureReason, Finish, RejectReason, Verdict, Waits};
use crate::event::{Done, Event};
use crate::ids::{BatchId, InstanceId, RequestId};
use crate::op::{BatchShape, Layers, Load, Manage, Member, NO_SLOT, Sequence};
use crate::policy::admit::{self, Admit};
use crate::policy::batch::{self, Batch, Decision};
use crate::policy::pipeline::{CopyWork, Pipeline, Retrieval, Work};
use crate::policy::place::{self, Loads, Place};
use crate::slab::Slab;
use crate::spec::{ClusterSpec, Padding, PlotSpec, SystemSpec, TenantState};
use crate::topology::Topology;

struct Instance {
    queue: Queue,
    /// Absent where nothing is swapped.
    slots: Option<Slots>,
    /// Batches submitted and not ended.
    running: u32,
    /// The earliest instant for which a timer is set and has not come.
    timer: Option<Time>,
}

struct Running {
    instance: InstanceId,
    submitted: Time,
    members: Vec<Kept>,
}

/// What is kept of a batch's member until the batch has ended.
#[derive(Clone, Copy)]
struct Kept {
    request: RequestId,
    tenant: u32,
    slot: u32,
}

/// What has been submitted and has not ended.
enum Flight {
    Batch(Running),
    Manage(ManageRequest),
}

/// A serving system of encoders.
pub struct EncoderServer {
    admit: Box<dyn Admit>,
    place: Box<dyn Place>,
    batch: Box<dyn Batch>,
    pipeline: Box<dyn Pipeline>,
    /// The pipeline's: batches that an instance may have at once.
    depth: u32,
    padding: Padding,
    max_tokens: u32,
    tenants: u32,
    layers: Layers,
    /// Where representations are looked up, and the bytes of a token's.
    plot: Option<(PlotSpec, u64)>,
    /// Of one tenant's swapped parameters; `loads` is filled in for each batch.
    copy: Option<CopyWork>,
    topology: Topology,
    memory: Memory,

    requests: Requests,
    instances: Vec<Instance>,
    flights: Slab<BatchId, Flight>,
    tenancy: Tenancy,
    loads: Loads,
    waiting: u32,
    placed: u64,
    /// Batch that last counted each tenant, to count the different tenants of a batch.
    counted_in: Vec<u64>,
    batches: u64,
    /// Reused for each decision.
    chosen: Vec<RequestId>,
    /// Member lists of ended batches, reused.
    spare: Vec<Vec<Kept>>,
}

impl EncoderServer {
    /// A system on a cluster, for tenants `0..tenants`.
    ///
    /// # Errors
    /// When the backbone, or one tenant's parameters beside it, do not fit on a card.
    pub fn new(cluster: &ClusterSpec, system: &SystemSpec, tenants: u32) -> Result<EncoderServer, ServerError> {
        let pool = &system.pool;
        let topology = Topology::new(cluster, pool);
        let memory = Memory::plan(cluster, pool, tenants)?;
        let batch = batch::build(&pool.batch);
        let listed_tenants = if batch.looks_at_tenants() { tenants } else { 0 };
        let instances = topology.instance_ids().map(|_| Instance {
            queue: Queue::new(listed_tenants),
            slots: memory.slots_per_instance().map(|capacity| Slots::new(tenants, capacity, pool.swap)),
            running: 0,
            timer: None,
        });
        let copy = match pool.tenant_state {
            TenantState::Head => None,
            TenantState::Model => Some(CopyWork {
                loads: 0,
                parts: 1,
                part_bytes: memory.tenant_bytes(),
            }),
            TenantState::Adapters { .. } => Some(CopyWork {
                loads: 0,
                parts: pool.computed_layers(),
                part_bytes: memory.tenant_bytes() / u64::from(pool.computed_layers()),
            }),
        };
        Ok(EncoderServer {
            admit: admit::build(&system.admit),
            place: place::build(&pool.place),
            batch,
            depth: pool.pipeline.depth(),
            pipeline: Box::new(pool.pipeline),
            padding: pool.padding,
            max_tokens: match pool.padding {
                Padding::Longest => pool.model.positions,
                Padding::To(tokens) => tokens,
            },
            tenants,
            layers: Layers::from(pool.first_layer(), pool.model.layers),
            plot: pool.plot.map(|plot| (plot, PlotSpec::row_bytes(pool.model.hidden))),
            copy,
            instances: instances.collect(),
            loads: Loads::new(topology.instances.len() as u32),
            topology,
            requests: Requests::default(),
            flights: Slab::default(),
            tenancy: Tenancy::new(pool, tenants, memory.tenant_bytes()),
            memory,
            waiting: 0,
            placed: 0,
            counted_in: vec![u64::MAX; tenants as usize],
            batches: 0,
            chosen: Vec::new(),
            spare: Vec::new(),
        })
    }

    /// The lanes that this server's ops name.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// See [`super::Server::with_management`].
    pub(super) fn add_disk(&mut self) {
        self.topology.add_disk();
    }

    /// Slots for tenants' parameters on each instance; nothing where nothing is swapped.
    pub fn slots_per_instance(&self) -> Option<u32> {
        self.memory.slots_per_instance().map(|slots| slots.min(self.tenants))
    }

    /// What lies in the cards' memory, and what lay there at most.
    pub fn memory(&self) -> MemoryUse {
        self.memory.used(self.instances.iter().filter_map(|i| i.slots.as_ref()).map(Slots::used).sum())
    }

    /// Swapping so far; nothing where nothing is swapped.
    pub fn swaps(&self) -> Option<SwapCounts> {
        self.instances.iter().filter_map(|i| i.slots.as_ref()).map(|s| s.counts).reduce(|a, b| a + b)
    }

    /// Requests that were let in and have not left.
    pub fn in_flight(&self) -> u64 {
        self.requests.len() as u64
    }

    /// Takes an event and says what is to be done about it.
    pub fn handle(&mut self, now: Time, event: &Event<'_>, commands: &mut Commands) {
        match *event {
            Event::Arrived(ref request) => self.arrived(now, request, commands),
            Event::Cancelled(ticket) => self.cancelled(now, ticket, commands),
            Event::Manage(request) => self.manage(now, request, commands),
            Event::Timer(instance) => {
                self.instances[instance.index()].timer = None;
                self.advance(now, instance, commands);
            }
            Event::Done(ref done) => self.done(now, done, commands),
        }
    }

    fn arrived(&mut self, now: Time, request: &Request, commands: &mut Commands) {
        if let Err(reason) = self.check(request).and_then(|()| self.admit.admit(now, request, self.waiting)) {
            commands.list.push(Command::Finish(Finish::rejected(request, reason)));
            return;
        }
        let instance = self.place.place(self.placed, &self.loads);
        self.placed += 1;
        let id = self.requests.insert(InFlight::new(request, instance));
        self.instances[instance.index()].queue.push(&mut self.requests, id);
        self.waiting += 1;
        self.loads.change(instance, 1);
        self.advance(now, instance, commands);
    }

    fn check(&self, request: &Request) -> Result<(), RejectReason> {
        self.tenancy.check(request.tenant)?;
        match request.input_tokens > self.max_tokens {
            true => Err(RejectReason::TooLong),
            false => Ok(()),
        }
    }

    fn manage(&mut self, now: Time, request: ManageRequest, commands: &mut Commands) {
        match self.tenancy.begin(request, commands) {
            Begun::Nothing => {}
            Begun::Submit(manage) => self.submit_manage(request, manage, commands),
            Begun::Delete(tenant) => self.delete(now, tenant, commands),
        }
    }

    fn submit_manage(&mut self, request: ManageRequest, manage: Manage, commands: &mut Commands) {
        let batch = self.flights.insert(Flight::Manage(request));
        self.tenancy.submit(batch, manage, &self.topology, commands);
    }

    /// Nobody finds the tenant's slots, and who waits has waited in vain; batches that run go on. Deletion is rare, so
    /// it searches.
    fn delete(&mut self, now: Time, tenant: u32, commands: &mut Commands) {
        self.invalidate(tenant);
        let waits = |(_, request): &(RequestId, &InFlight)| request.tenant == tenant && request.batch.is_none();
        let waiting: Vec<RequestId> = self.requests.iter().filter(waits).map(|(id, _)| id).collect();
        for &id in &waiting {
            self.leave_queue(now, id, Verdict::Failed(FailureReason::Deleted), commands);
        }
        if let Some(request) = self.tenancy.unused(tenant) {
            self.submit_manage(request, discard(request), commands);
        }
        if !waiting.is_empty() {
            // Who is oldest in a queue may be another now.
            (0..self.instances.len() as u32).for_each(|id| self.advance(now, InstanceId(id), commands));
        }
    }

    fn invalidate(&mut self, tenant: u32) {
        let slots = self.instances.iter_mut().filter_map(|instance| instance.slots.as_mut());
        slots.for_each(|slots| slots.invalidate(tenant));
    }

    fn managed(&mut self, request: ManageRequest, failed: Option<FailureReason>, commands: &mut Commands) {
        let (renewed, unused) = self.tenancy.ended(request, failed, commands);
        if renewed {
            self.invalidate(request.change.of());
        }
        if let Some(request) = unused {
            self.submit_manage(request, discard(request), commands);
        }
    }

    /// A request that runs is dropped when its batch ends.
    fn cancelled(&mut self, now: Time, ticket: Ticket, commands: &mut Commands) {
        let Some(id) = self.requests.with_ticket(ticket).next() else {
            return;
        };
        let request = &self.requests[id];
        if request.batch.is_some() {
            self.requests[id].cancelled = true;
            return;
        }
        let instance = request.instance;
        self.leave_queue(now, id, Verdict::Cancelled, commands);
        self.advance(now, instance, commands);
    }

    /// A request that waits leaves.
    fn leave_queue(&mut self, now: Time, id: RequestId, verdict: Verdict, commands: &mut Commands) {
        let instance = self.requests[id].instance;
        self.instances[instance.index()].queue.remove(&mut self.requests, id);
        self.waiting -= 1;
        let waits = Waits::in_queue(now.since(self.requests[id].arrival));
        self.finish(id, verdict, waits, 0, commands);
    }

    fn done(&mut self, now: Time, done: &Done<'_>, commands: &mut Commands) {
        let Running {
            instance,
            submitted,
            mut members,
        } = match self.flights.remove(done.batch).expect("a batch ends once") {
            Flight::Batch(running) => running,
            Flight::Manage(request) => {
                let failed = done.failures.first().map(|failure| failure.reason);
                return self.managed(request, failed, commands);
            }
        };
        let state = &mut self.instances[instance.index()];
        state.running -= 1;
        let size = members.len() as u32;
        let mut failures = done.failures();
        for (index, member) in members.iter().enumerate() {
            let failure = failures.of(index);
            if let Some(slots) = &mut self.instances[instance.index()].slots {
                // What went wrong elsewhere leaves what was brought in as good as it is, and so what another slot has
                // of the tenant.
                let is_bad = matches!(failure, Some(FailureReason::LoadFailed | FailureReason::OutOfMemory));
                if is_bad && slots.holds_in(member.tenant, member.slot) {
                    slots.invalidate(member.tenant);
                }
                slots.release(member.slot);
            }
            let request = &self.requests[member.request];
            let waits = Waits::of_batch(request.arrival, submitted, done.timing, now);
            let verdict = Verdict::of_run(request.cancelled, failure);
            self.finish(member.request, verdict, waits, size, commands);
            if let Some(request) = self.tenancy.leave(member.tenant) {
                self.submit_manage(request, discard(request), commands);
            }
        }
        members.clear();
        self.spare.push(members);
        self.advance(now, instance, commands);
    }

    #[inline(always)]
    fn finish(&mut self, id: RequestId, verdict: Verdict, waits: Waits, batch_requests: u32, commands: &mut Commands) {
        let request = &self.requests[id];
        self.loads.change(request.instance, -1);
        commands.list.push(Command::Finish(request.finish(id, verdict, waits, batch_requests)));
        self.requests.discard(id);
    }

    /// Starts batches on an instance for as long as it has room and its policy has work.
    #[inline]
    fn advance(&mut self, now: Time, instance: InstanceId, commands: &mut Commands) {
        // Mostly it is at work.
        if self.instances[instance.index()].running < self.depth {
            self.start_batches(now, instance, commands);
        }
    }

    #[inline(never)]
    fn start_batches(&mut self, now: Time, instance: InstanceId, commands: &mut Commands) {
        while self.instances[instance.index()].running < self.depth {
            match self.decide(now, instance) {
                Decision::Start => {
                    if !self.start(now, instance, commands) {
                        return;
                    }
                }
                Decision::AskAt(at) => {
                    commands.wake(instance, at, &mut self.instances[instance.index()].timer);
                    return;
                }
                Decision::Wait => return,
            }
        }
    }

    fn decide(&mut self, now: Time, instance: InstanceId) -> Decision {
        let view = self.instances[instance.index()].queue.view(&self.requests);
        self.chosen.clear();
        self.batch.decide(now, view, &mut self.chosen)
    }

    /// Whether batches in flight hold slots that the chosen need, where these go together or not at all.
    fn must_wait(&self, instance: InstanceId) -> bool {
        let state = &self.instances[instance.index()];
        let (true, true, Some(slots)) = (self.batch.waits_for_all(), state.running > 0, &state.slots) else {
            return false;
        };
        !slots.have_room_for_all(self.chosen.iter().map(|&id| self.requests[id].tenant))
    }

    /// Submits the chosen requests, or as many from the first as there are slots for. False where there is none for the
    /// first, or not for all where none goes alone: batches in flight hold them, and the end of one will ask again.
    fn start(&mut self, now: Time, instance: InstanceId, commands: &mut Commands) -> bool {
        if self.must_wait(instance) {
            return false;
        }
        let batch_number = self.batches;
        let state = &mut self.instances[instance.index()];
        let mark = commands.mark();
        let mut kept = self.spare.pop().unwrap_or_default();
        let mut tokens = 0;
        let mut all_tokens = 0;
        let mut tenants = 0;
        for (at, &id) in self.chosen.iter().enumerate() {
            let request = &self.requests[id];
            let tenant = request.tenant;
            let comes_yet = |tenant| self.chosen[at + 1..].iter().any(|&id| self.requests[id].tenant == tenant);
            let counted = &mut self.counted_in[tenant as usize];
            let slot = match &mut state.slots {
                None => NO_SLOT,
                Some(slots) => match slots.acquire(tenant, *counted == batch_number, comes_yet) {
                    Acquired::Hit(slot) => slot,
                    Acquired::Miss(slot) => {
                        commands.loads.push(Load { tenant, slot });
                        slot
                    }
                    Acquired::Full => break,
                },
            };
            tenants += u32::from(*counted != batch_number);
            *counted = batch_number;
            tokens = tokens.max(request.input_tokens);
            all_tokens += request.input_tokens;
            let input_tokens = request.input_tokens;
            self.tenancy.enter(tenant);
            kept.push(Kept {
                request: id,
                tenant,
                slot,
            });
            commands.members.push(Member {
                request: id,
                ticket: request.ticket,
                tenant,
                input_tokens,
                slot,
                sequence: Sequence::default(),
            });
        }
        let members = mark.members..commands.members.len();
        if members.is_empty() {
            self.spare.push(kept);
            return false;
        }
        self.batches += 1;
        if let Padding::To(fixed) = self.padding {
            tokens = fixed;
        }
        let loads = commands.loads.len() - mark.loads;
        let copy = self.copy.filter(|_| loads > 0).map(|copy| CopyWork {
            loads: loads as u32,
            ..copy
        });
        if let (Some(copy), Some(slots)) = (copy, &mut state.slots) {
            slots.counts.bytes_in += u64::from(copy.loads * copy.parts) * copy.part_bytes;
        }
        let shape = BatchShape {
            requests: members.len() as u32,
            tokens,
            input_tokens: all_tokens,
            tenants,
        };
        let follows = state.running > 0;
        state.running += 1;
        let batch = self.flights.insert(Flight::Batch(Running {
            instance,
            submitted: now,
            members: kept,
        }));
        for &id in &self.chosen[..members.len()] {
            self.instances[instance.index()].queue.remove(&mut self.requests, id);
            self.requests[id].batch = Some(batch);
        }
        self.waiting -= members.len() as u32;
        let lanes = self.topology.instances[instance.index()];
        let looked_up = commands.members[members.clone()].iter();
        self.pipeline.lay_out(
            Work {
                layers: self.layers,
                retrieval: self.plot.map(|(plot, bytes)| Retrieval {
                    tokens: all_tokens,
                    fragments: looked_up.map(|member| plot.fragments(member.input_tokens)).sum(),
                    bytes: bytes * u64::from(shape.requests) * u64::from(tokens),
                }),
                copy,
                follows,
            },
            lanes,
            &mut commands.ops,
        );
        commands.submit(batch, instance, shape, mark);
        true
    }

    /// The laws that hold between events, for tests: no instance has room while its batch policy would start something
    /// that fits, and nothing is counted twice.
    ///
    /// # Errors
    /// The law that is broken.
    pub fn check_laws(&mut self, now: Time) -> Result<(), String> {
        let members = |(_, flight): (BatchId, &Flight)| match flight {
            Flight::Batch(running) => running.members.len(),
            Flight::Manage(_) => 0,
        };
        let running: usize = self.flights.iter().map(members).sum();
        if running + self.waiting as usize != self.requests.len() {
            return Err(format!(
                "{running} run and {} wait, but {} are in flight",
                self.waiting,
                self.requests.len()
            ));
        }
        for instance in self.topology.instance_ids() {
            let state = &self.instances[instance.index()];
            let has_room = state.running < self.depth;
            let nothing_pinned = state.running == 0;
            // A timer of this very instant is still to come.
            let asked_now = state.timer.is_some_and(|at| at <= now);
            if has_room && nothing_pinned && !asked_now && self.decide(now, instance) == Decision::Start {
                return Err(format!(
                    "{instance} is idle at {now} while its policy would start a batch"
                ));
            }
        }
        let slots = || self.instances.iter().filter_map(|instance| instance.slots.as_ref());
        let held = |tenant: &u32| !self.tenancy.may_be_resident(*tenant) && slots().any(|slots| slots.holds(*tenant));
        if let Some(tenant) = (0..self.tenants).find(held) {
            return Err(format!("tenant {tenant} is not there at {now}, and its slot is found"));
        }
        self.memory().check()
    }
}
