//! Runtimes of several lengths (Arlo): a request goes to one instance, waits there in line, and runs alone.
//!
//! This file follows requests; [`instances`] says what becomes of an instance that loads another runtime, and [`fleet`]
//! decides how many there are of each. Who gets a request is [`crate::policy::levels`]' decision.

mod fleet;
mod instances;

use tenantry_traces::{Request, Ticket, Time};

use super::FLEET;
use super::memory::{MemoryUse, ServerError};
use super::queue::{InFlight, Queue, Requests};
use super::tenancy::refuse;
use crate::command::{Command, Commands, Finish, RejectReason, Verdict, Waits};
use crate::event::{Done, Event};
use crate::ids::{BatchId, InstanceId, RequestId};
use crate::op::{BatchShape, Infer, Member, NO_SLOT, Op, OpKind, Sequence};
use crate::policy::admit::{self, Admit};
use crate::policy::levels::{LevelSpec, Levels};
use crate::slab::Slab;
use crate::spec::{ClusterSpec, RuntimeRef, RuntimesSpec, ShapeKind, StreamSpec, SystemSpec, stream_of};
use crate::topology::Topology;
use fleet::Fleet;
pub use fleet::FleetUse;
use instances::{Instance, State};

/// Requests that an instance has in hand: one runs, and one is ready, so that the lane need not wait until the server
/// has heard of an end. They stay where they are when the instance's queue is dispatched anew.
const IN_HAND: u32 = 2;

/// Of a request that no instance serves at present.
const NOWHERE: InstanceId = InstanceId(u32::MAX);

enum Running {
    /// One request.
    Infer {
        instance: InstanceId,
        request: RequestId,
        submitted: Time,
    },
    /// An instance's next runtime.
    Load(InstanceId),
    /// The fleet's next allocation.
    Solve,
}

struct Stream {
    spec: StreamSpec,
    levels: Levels,
    /// Requests for which there is no instance long enough.
    held: Queue,
    /// By the shortest runtime that serves them: requests since the last decision.
    observed: Vec<u64>,
    /// Bytes of the model's weights.
    weight_bytes: u64,
}

/// A serving system of runtimes.
pub struct RuntimeServer {
    admit: Box<dyn Admit>,
    tenants: u32,
    topology: Topology,
    streams: Vec<Stream>,
    instances: Vec<Instance>,
    requests: Requests,
    running: Slab<BatchId, Running>,
    waiting: u32,
    fleet: Fleet,
    /// Reused: requests that are dispatched anew.
    moving: Vec<RequestId>,
}

impl RuntimeServer {
    /// A system on a cluster, for tenants `0..tenants`, with its first runtimes loaded.
    ///
    /// # Errors
    /// When the instances do not fit on a card, or it is not known what the card's runtimes take.
    pub fn new(
        cluster: &ClusterSpec,
        system: &SystemSpec,
        spec: &RuntimesSpec,
        tenants: u32,
    ) -> Result<RuntimeServer, ServerError> {
        let pool = &system.pool;
        let topology = Topology::new(cluster, pool);
        let heads = |stream: &StreamSpec| stream.model.head_parameters(stream.classes) * stream.dtype.bytes();
        // Any instance may come to serve any stream, so that all heads lie on each card.
        let heads_bytes = u64::from(tenants) * spec.streams.iter().map(heads).sum::<u64>();
        let mut streams = Vec::new();
        for stream in &spec.streams {
            let weight_bytes = stream.model.parameters() * stream.dtype.bytes();
            let needed_bytes = u64::from(pool.instances_per_gpu) * weight_bytes + heads_bytes;
            if needed_bytes > cluster.gpu_memory_bytes {
                return Err(ServerError::BackboneDoesNotFit {
                    model: stream.model.name.clone(),
                    needed_bytes,
                    available_bytes: cluster.gpu_memory_bytes,
                });
            }
            if stream.service.len() != stream.runtimes.len() {
                return Err(ServerError::CardUnknown);
            }
            let levels = stream.runtimes.iter().zip(stream.capacities());
            let levels: Vec<LevelSpec> = levels
                .map(|(runtime, capacity)| LevelSpec {
                    max_length: runtime.max_length,
                    capacity,
                })
                .collect();
            streams.push(Stream {
                levels: Levels::new(&levels, spec.dispatch),
                held: Queue::new(0),
                observed: vec![0; levels.len()],
                weight_bytes,
                spec: stream.clone(),
            });
        }
        let mut server = RuntimeServer {
            admit: admit::build(&system.admit),
            tenants,
            instances: topology.instances.iter().map(|_| Instance::off()).collect(),
            fleet: Fleet::new(cluster, spec, pool.instances_per_gpu, heads_bytes),
            topology,
            streams,
            requests: Requests::default(),
            running: Slab::default(),
            waiting: 0,
            moving: Vec::new(),
        };
        server.deploy(spec)?;
        Ok(server)
    }

    /// The lanes that this server's ops name.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The stream whose runtime each instance has or is to have.
    pub fn streams_of_instances(&self) -> Vec<Option<u16>> {
        let stream = |instance: &Instance| Some(instance.runtime()?.stream);
        self.instances.iter().map(stream).collect()
    }

    /// What lay in the cards' memory at most: each instance has weights of its own.
    pub fn memory(&self) -> MemoryUse {
        self.fleet.memory()
    }

    /// Requests that were let in and have not left.
    pub fn in_flight(&self) -> u64 {
        self.requests.len() as u64
    }

    /// Takes an event and says what is to be done about it.
    pub fn handle(&mut self, now: Time, event: &Event<'_>, commands: &mut Commands) {
        // A timer of the fleet's that finds nobody is no part of a run.
        if self.requests.is_empty() && !matches!(event, Event::Timer(FLEET)) {
            // The others bring cards.
            let somebody_comes = !matches!(event, Event::Done(_) | Event::Timer(_));
            self.fleet_idled(now, somebody_comes, commands);
        }
        match *event {
            Event::Arrived(ref request) => self.arrived(now, request, commands),
            Event::Cancelled(ticket) => self.cancelled(now, ticket, commands),
            // Its model is that of all tenants.
            Event::Manage(request) => refuse(request, commands),
            Event::Timer(FLEET) => self.fleet_timer(now, commands),
            Event::Timer(instance) => self.started(now, instance, commands),
            Event::Done(ref done) => self.done(now, done, commands),
        }
    }

    fn arrived(&mut self, now: Time, request: &Request, commands: &mut Commands) {
        let (stream, fitting) = match self.check(request) {
            Ok(of) => of,
            Err(reason) => {
                commands.list.push(Command::Finish(Finish::rejected(request, reason)));
                return;
            }
        };
        if self.requests.is_empty() {
            self.fleet_wakes(now);
        }
        let refused = self.admit.admit(now, request, self.waiting).err();
        if refused.is_none_or(RejectReason::asks_for_cards) {
            self.streams[stream].observed[fitting] += 1;
            self.fleet.observed(now);
        }
        if let Some(reason) = refused {
            commands.list.push(Command::Finish(Finish::rejected(request, reason)));
            if reason.asks_for_cards() {
                self.fleet.turned_away(now);
            }
            return;
        }
        let id = self.requests.insert(InFlight::new(request, NOWHERE));
        self.waiting += 1;
        self.dispatch(now, id, commands);
        self.fleet_arrived(now, commands);
    }

    /// The stream of a request and the shortest of its runtimes that is long enough, if it is let in.
    fn check(&self, request: &Request) -> Result<(usize, usize), RejectReason> {
        if request.tenant >= self.tenants {
            return Err(RejectReason::UnknownTenant);
        }
        let stream = self.stream_of(request.class);
        match self.streams[stream].spec.fitting(request.input_tokens) {
            Some(fitting) => Ok((stream, fitting)),
            None => Err(RejectReason::TooLong),
        }
    }

    fn stream_of(&self, class: u16) -> usize {
        stream_of(class, self.streams.len())
    }

    /// Puts a waiting request into the line of the instance that the policy chooses.
    fn dispatch(&mut self, now: Time, id: RequestId, commands: &mut Commands) {
        let request = &mut self.requests[id];
        let stream = stream_of(request.class, self.streams.len());
        let state = &mut self.streams[stream];
        let Some(instance) = state.levels.dispatch(request.input_tokens) else {
            request.instance = NOWHERE;
            state.held.push(&mut self.requests, id);
            return;
        };
        request.instance = instance;
        state.levels.load_changed(instance, 1);
        let chosen = &mut self.instances[instance.index()];
        match chosen.state {
            State::Serving(runtime) if chosen.in_hand < IN_HAND && chosen.queue.is_empty() => {
                self.start(now, instance, runtime, id, commands);
            }
            _ => {
                // It may come from another line, or from none.
                chosen.queue.insert(&mut self.requests, id);
                self.advance(now, instance, commands);
            }
        }
    }

    /// A request that an instance has in hand is dropped when it ends.
    fn cancelled(&mut self, now: Time, ticket: Ticket, commands: &mut Commands) {
        let Some(id) = self.requests.with_ticket(ticket).next() else {
            return;
        };
        let request = &self.requests[id];
        if request.batch.is_some() {
            self.requests[id].cancelled = true;
            return;
        }
        let (instance, stream) = (request.instance, self.stream_of(request.class));
        if instance == NOWHERE {
            self.streams[stream].held.remove(&mut self.requests, id);
        } else {
            self.instances[instance.index()].queue.remove(&mut self.requests, id);
            self.streams[stream].levels.load_changed(instance, -1);
        }
        self.waiting -= 1;
        self.fleet.gave_up(now);
        let waits = Waits::in_queue(now.since(self.requests[id].arrival));
        self.finish(now, id, Verdict::Cancelled, waits, 0, commands);
    }

    fn done(&mut self, now: Time, done: &Done<'_>, commands: &mut Commands) {
        match self.running.remove(done.batch).expect("a batch ends once") {
            Running::Infer {
                instance,
                request,
                submitted,
            } => {
                let InFlight { arrival, cancelled, .. } = self.requests[request];
                let waits = Waits::of_batch(arrival, submitted, done.timing, now);
                let failure = done.failures.first().map(|failure| failure.reason);
                let verdict = Verdict::of_run(cancelled, failure);
                self.fleet.served(now, now.since(arrival), done.timing.busy);
                self.finish(now, request, verdict, waits, 1, commands);
                self.instances[instance.index()].in_hand -= 1;
                match self.instances[instance.index()].state {
                    State::Serving(runtime) => {
                        self.streams[usize::from(runtime.stream)].levels.load_changed(instance, -1);
                        self.advance(now, instance, commands);
                    }
                    _ => self.vacated(now, instance, commands),
                }
            }
            Running::Load(instance) => self.loaded(now, instance, !done.failures.is_empty(), commands),
            Running::Solve => {
                let answer = done.allocation.expect("a solver answers");
                self.solved(now, answer, commands);
            }
        }
    }

    fn finish(
        &mut self,
        now: Time,
        id: RequestId,
        verdict: Verdict,
        waits: Waits,
        batch_requests: u32,
        commands: &mut Commands,
    ) {
        let request = &self.requests[id];
        commands.list.push(Command::Finish(request.finish(id, verdict, waits, batch_requests)));
        self.requests.discard(id);
        if self.requests.is_empty() {
            self.fleet.idle_since = now;
        }
    }

    /// Hands an instance the next of its line for as long as it may have more in hand.
    fn advance(&mut self, now: Time, instance: InstanceId, commands: &mut Commands) {
        let State::Serving(runtime) = self.instances[instance.index()].state else {
            return;
        };
        while self.instances[instance.index()].in_hand < IN_HAND {
            let view = self.instances[instance.index()].queue.view(&self.requests);
            let Some(next) = view.oldest().map(|next| next.id) else {
                return;
            };
            self.instances[instance.index()].queue.remove(&mut self.requests, next);
            self.start(now, instance, runtime, next, commands);
        }
    }

    /// Hands an instance a request that waits in no line.
    fn start(&mut self, now: Time, instance: InstanceId, runtime: RuntimeRef, id: RequestId, commands: &mut Commands) {
        self.instances[instance.index()].in_hand += 1;
        self.waiting -= 1;
        let batch = self.running.insert(Running::Infer {
            instance,
            request: id,
            submitted: now,
        });
        let request = &mut self.requests[id];
        request.batch = Some(batch);
        let spec = self.streams[usize::from(runtime.stream)].spec.runtimes[usize::from(runtime.runtime)];
        let shape = BatchShape {
            requests: 1,
            tokens: match spec.shape {
                ShapeKind::Static => spec.max_length,
                ShapeKind::Dynamic => request.input_tokens,
            },
            input_tokens: request.input_tokens,
            tenants: 1,
        };
        let member = Member {
            request: id,
            ticket: request.ticket,
            tenant: request.tenant,
            input_tokens: request.input_tokens,
            slot: NO_SLOT,
            sequence: Sequence::default(),
        };
        let mark = commands.mark();
        commands.members.push(member);
        let lane = self.topology.instances[instance.index()].compute;
        let op = OpKind::Infer(Infer { runtime });
        commands.ops.push(Op::alone(op, lane));
        commands.submit(batch, instance, shape, mark);
    }

    /// The laws that hold between events, for tests: nobody is lost or counted twice, no instance idles while its line
    /// is not empty, and nobody waits in the line of an instance that does not serve.
    ///
    /// # Errors
    /// The law that is broken.
    pub fn check_laws(&mut self, _: Time) -> Result<(), String> {
        let mut queued = 0;
        let mut in_hand = 0;
        for (index, state) in (0..).zip(&self.instances) {
            let instance = InstanceId(index);
            let line = state.queue.view(&self.requests).len();
            queued += line;
            in_hand += state.in_hand;
            let listed: Vec<(usize, u32)> = self.streams.iter().filter_map(|s| s.levels.find(instance)).collect();
            let expected = match state.state {
                State::Serving(runtime) => vec![(usize::from(runtime.runtime), line + state.in_hand)],
                _ if line > 0 => return Err(format!("{line} wait in the line of {instance}, which does not serve")),
                _ => Vec::new(),
            };
            if listed != expected {
                return Err(format!("{instance} is listed as {listed:?}, and is {expected:?}"));
            }
            if line > 0 && state.in_hand < IN_HAND {
                return Err(format!("{instance} has room, and {line} wait in its line"));
            }
        }
        for stream in &self.streams {
            let held = stream.held.view(&self.requests);
            queued += held.len();
            if let Some(served) = held.iter().find(|held| stream.levels.dispatch(held.input_tokens).is_some()) {
                return Err(format!(
                    "a request of {} tokens is held, and could be served",
                    served.input_tokens
                ));
            }
        }
        if queued != self.waiting || (queued + in_hand) as usize != self.requests.len() {
            return Err(format!(
                "{queued} wait ({} by count) and {in_hand} run, but {} are in flight",
                self.waiting,
                self.requests.len()
            ));
        }
        self.check_fleet()
    }
}
