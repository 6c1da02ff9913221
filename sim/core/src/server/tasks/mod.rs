//! Parameter-efficient tasks over shared models (PetS): waiting queries are a pool that is split into batches of many
//! tasks.
//!
//! A tenant is a task. [`repository`] says which tasks there are, [`planning`] which queries run together, [`places`]
//! how pools are filled where some do not come, [`latencies`] what both know of the card; this module keeps the
//! mechanism. Planning is an op on a lane of the host, so that it takes the time that it takes. The baselines are here
//! too: a full model of each task, one after another or side by side.

mod composing;
mod latencies;
mod places;
mod planning;
mod repository;

use std::collections::VecDeque;

use tenantry_profiles::Card;
use tenantry_traces::{Request, Ticket, Time};

use self::latencies::Latencies;
use self::planning::{Candidate, Planned, alone, by_task, deadline, planned, question};
use self::repository::{Entry, Repository};
pub use self::repository::{TaskCounts, refusals};
use super::memory::{MemoryUse, ServerError};
use super::queue::{InFlight, Queue, Requests, Waiting};
use super::tenancy::refuse;
use crate::command::{Command, Commands, Finish, RejectReason, Verdict, Waits};
use crate::event::{Done, Event};
use crate::ids::{BatchId, InstanceId, RequestId};
use crate::op::{BatchShape, Member, NO_SLOT, Op, OpKind, Pet, PetGroup, Sequence};
use crate::policy::admit::{self, Admit};
use crate::policy::coordinated::{Batching, PoolPlan};
use crate::policy::place::{self, Loads, Place};
use crate::policy::streams::{StreamOperator, StreamScheduler};
use crate::policy::urgency::{first_due, is_lost};
use crate::slab::Slab;
use crate::spec::{ClusterSpec, EngineSpec, PlanningSpec, Registration, StreamsSpec, SystemSpec, TasksSpec};
use crate::topology::Topology;

struct Instance {
    /// Queries that are in no plan.
    queue: Queue,
    /// Queries that came for the next pools and are not there: turned away, or cancelled. Fewer than two pools of them.
    gone: u32,
    /// The pool whose plan is being made. Queries that are planned online wait in the queue meanwhile, those of a pool
    /// do not.
    asked: Option<Vec<Candidate>>,
    /// The rest of a pool's plan, with those who have left since.
    planned: VecDeque<Planned>,
    /// Batches submitted and not ended.
    running: u32,
    /// The earliest instant for which a timer is set and has not come.
    timer: Option<Time>,
}

enum Running {
    /// A batch.
    Pass {
        instance: InstanceId,
        submitted: Time,
        members: Vec<Member>,
    },
    /// The plan of an instance's pool.
    Planning(InstanceId),
}

/// A serving system of tasks.
pub struct TaskServer {
    admit: Box<dyn Admit>,
    place: Box<dyn Place>,
    engine: EngineSpec,
    planning: PlanningSpec,
    max_tokens: Vec<u32>,
    repository: Repository,
    latencies: Latencies,
    max_batch: u32,
    streams: StreamScheduler,
    topology: Topology,
    gpus: u64,

    requests: Requests,
    /// By a request's slot: whether it has left its queue, for a pool's plan or a batch.
    taken: Vec<bool>,
    instances: Vec<Instance>,
    running: Slab<BatchId, Running>,
    /// By stream, of a full model's the cards' instances; one where shared models compute anywhere.
    loads: Vec<Loads>,
    /// Queries so far, by stream.
    placed: Vec<u64>,
    waiting: u32,
    /// Reused for each decision.
    operators: Vec<StreamOperator>,
    alone_ns: Vec<u64>,
    /// Member lists of ended batches, reused.
    spare: Vec<Vec<Member>>,
}

impl TaskServer {
    /// A system on a cluster of such cards, for tenants `0..tenants`. A task that is refused is not the system's error:
    /// see [`counts`](Self::counts).
    ///
    /// # Errors
    /// When the shared models do not fit on a card, or the card lacks a table that batches are planned by.
    pub fn new(
        card: &Card,
        cluster: &ClusterSpec,
        system: &SystemSpec,
        tasks: &TasksSpec,
        tenants: u32,
    ) -> Result<TaskServer, ServerError> {
        let mut pool = system.pool.clone();
        let repository = Repository::new(cluster, &pool, tasks, tenants)?;
        let batching = match tasks.engine {
            EngineSpec::Shared { batching, .. } => Some(batching),
            EngineSpec::Sequential { .. } | EngineSpec::Parallel { .. } => None,
        };
        let kinds = match batching {
            Some(_) => repository.kinds().collect(),
            None => Vec::new(),
        };
        let max_batch = repository.counts.max_batch;
        let latencies = Latencies::new(card, &pool, tasks, max_batch, kinds)?;
        pool.instances_per_gpu = instances_per_gpu(&tasks.engine, repository.counts.loaded);
        let topology = Topology::new(cluster, &pool);
        let instances = topology.instance_ids().map(|_| Instance {
            queue: Queue::new(0),
            asked: None,
            planned: VecDeque::new(),
            gone: 0,
            running: 0,
            timer: None,
        });
        let models = tasks.models(&pool.model);
        Ok(TaskServer {
            admit: admit::build(&system.admit),
            place: place::build(&pool.place),
            engine: tasks.engine,
            planning: tasks.planning.clone(),
            max_tokens: models.map(|model| model.positions.min(tasks.max_tokens)).collect(),
            max_batch,
            repository,
            latencies,
            streams: StreamScheduler::default(),
            gpus: u64::from(cluster.gpus),
            instances: instances.collect(),
            loads: (0..pool.instances_per_gpu).map(|_| Loads::new(cluster.gpus)).collect(),
            topology,
            requests: Requests::default(),
            taken: Vec::new(),
            running: Slab::default(),
            placed: vec![0; pool.instances_per_gpu as usize],
            waiting: 0,
            operators: Vec::new(),
            alone_ns: Vec::new(),
            spare: Vec::new(),
        })
    }

    /// The lanes that this server's ops name.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// What lies in the cards' memory.
    pub fn memory(&self) -> MemoryUse {
        let Repository {
            counts,
            shared_bytes,
            tasks_bytes,
            card_bytes,
            ..
        } = &self.repository;
        MemoryUse {
            capacity_bytes: self.gpus * card_bytes,
            shared_bytes: self.gpus * shared_bytes,
            per_tenant_bytes: tasks_bytes / u64::from(counts.loaded.max(1)),
            tenant_bytes: self.gpus * tasks_bytes,
            cache_bytes: 0,
        }
    }

    /// Why registrations were refused, each alone: place, key, what it must be and what it is. Of those for which
    /// memory is exhausted the first.
    pub fn refusals(&self) -> &[String] {
        &self.repository.refusals
    }

    /// What there is of tasks, and what was planned so far.
    pub fn counts(&self) -> &TaskCounts {
        &self.repository.counts
    }

    /// The machine that is to hold a loaded task has no memory for it, and said so before anything was served: it is
    /// refused alone.
    pub fn unload(&mut self, registration: &Registration, got: &str) {
        self.repository.unload(registration, got);
    }

    /// By which of the registrations, in their order, a tenant's task was loaded; nothing where it has none. One that
    /// was refused may have come again.
    pub fn loaded_by(&self, tenant: u32) -> Option<u32> {
        match self.repository.entry(tenant) {
            Entry::Loaded(task) => Some(task.registration),
            Entry::Unknown | Entry::Refused(_) => None,
        }
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
            // Tasks are registered before the run.
            Event::Manage(request) => refuse(request, commands),
            Event::Timer(instance) => {
                self.instances[instance.index()].timer = None;
                self.advance(now, instance, commands);
            }
            Event::Done(ref done) => self.done(now, done, commands),
        }
    }

    fn arrived(&mut self, now: Time, request: &Request, commands: &mut Commands) {
        let position = match self.check(now, request) {
            Ok(position) => position,
            Err(reason) => {
                commands.list.push(Command::Finish(Finish::rejected(request, reason)));
                self.turned_away(now, request.tenant, reason, commands);
                return;
            }
        };
        let instance = self.instance_for(position);
        let stream = self.stream_of(position);
        self.placed[stream] += 1;
        let id = self.requests.insert(InFlight::new(request, instance));
        self.set_taken(id, false);
        self.instances[instance.index()].queue.push(&mut self.requests, id);
        self.waiting += 1;
        self.load_changed(instance, 1);
        self.advance(now, instance, commands);
    }

    /// The position of the request's task among those loaded, if it is let in.
    fn check(&mut self, now: Time, request: &Request) -> Result<u32, RejectReason> {
        let task = match self.repository.entry(request.tenant) {
            Entry::Unknown => return Err(RejectReason::UnknownTenant),
            Entry::Refused(fault) => return Err(RejectReason::TaskRefused(fault)),
            Entry::Loaded(task) => task,
        };
        if request.input_tokens > self.max_tokens[usize::from(task.model)] {
            return Err(RejectReason::TooLong);
        }
        let position = task.position;
        self.admit.admit(now, request, self.waiting)?;
        Ok(position)
    }

    /// A task's full model computes on its own stream, of any card; shared models, which have one, compute anywhere.
    fn instance_for(&self, position: u32) -> InstanceId {
        let stream = self.stream_of(position);
        let card = self.place.place(self.placed[stream], &self.loads[stream]);
        InstanceId(card.0 * self.loads.len() as u32 + stream as u32)
    }

    fn stream_of(&self, position: u32) -> usize {
        position as usize % self.loads.len()
    }

    fn load_changed(&mut self, instance: InstanceId, by: i32) {
        let streams = self.loads.len() as u32;
        self.loads[(instance.0 % streams) as usize].change(InstanceId(instance.0 / streams), by);
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
        // Who has left it already is passed over when the plan comes, or when its batch starts.
        if !self.taken[id.slot as usize] {
            self.instances[instance.index()].queue.remove(&mut self.requests, id);
            self.leave_place(instance);
        }
        self.waiting -= 1;
        let waits = Waits::in_queue(now.since(self.requests[id].arrival));
        self.finish(id, Verdict::Cancelled, waits, 0, commands);
        self.advance(now, instance, commands);
    }

    /// A query leaves its queue, for a plan or a batch.
    fn take(&mut self, instance: InstanceId, id: RequestId) {
        self.instances[instance.index()].queue.remove(&mut self.requests, id);
        self.set_taken(id, true);
    }

    fn set_taken(&mut self, id: RequestId, taken: bool) {
        let slot = id.slot as usize;
        if slot >= self.taken.len() {
            self.taken.resize(slot + 1, false);
        }
        self.taken[slot] = taken;
    }

    fn done(&mut self, now: Time, done: &Done<'_>, commands: &mut Commands) {
        let (instance, submitted, mut members) = match self.running.remove(done.batch).expect("a batch ends once") {
            Running::Pass {
                instance,
                submitted,
                members,
            } => (instance, submitted, members),
            Running::Planning(instance) => {
                self.planned(now, instance, done.plan.expect("a planner answers"));
                return self.advance(now, instance, commands);
            }
        };
        self.instances[instance.index()].running -= 1;
        let size = members.len() as u32;
        let mut failures = done.failures();
        for (index, member) in members.iter().enumerate() {
            let failure = failures.of(index);
            let request = &self.requests[member.request];
            let waits = Waits::of_batch(request.arrival, submitted, done.timing, now);
            let verdict = Verdict::of_run(request.cancelled, failure);
            self.finish(member.request, verdict, waits, size, commands);
        }
        members.clear();
        self.spare.push(members);
        self.advance(now, instance, commands);
    }

    fn finish(&mut self, id: RequestId, verdict: Verdict, waits: Waits, batch_requests: u32, commands: &mut Commands) {
        let request = self.requests.remove(id).expect("a request leaves once");
        self.load_changed(request.instance, -1);
        commands.list.push(Command::Finish(request.finish(id, verdict, waits, batch_requests)));
    }

    /// Batches that an instance may have submitted and not ended: the next of a pool's plan is at hand, and one that is
    /// planned afresh should know as much as possible.
    fn depth(&self) -> u32 {
        match self.planning {
            PlanningSpec::Pool { .. } => 2,
            PlanningSpec::Online { .. } => 1,
        }
    }

    /// Starts batches on an instance for as long as it has room and there is something to start.
    fn advance(&mut self, now: Time, instance: InstanceId, commands: &mut Commands) {
        while self.instances[instance.index()].running < self.depth() {
            match self.ready(now, instance) {
                Ready::Now => match self.instances[instance.index()].planned.pop_front() {
                    Some(mut batch) => {
                        let requests = &self.requests;
                        batch.members.retain(|(id, _)| requests.get(*id).is_some());
                        // Of some batches all have left since they were planned.
                        if !batch.members.is_empty() {
                            self.start(now, instance, &batch, commands);
                        }
                    }
                    None => self.plan(now, instance, commands),
                },
                Ready::At(at) => {
                    commands.wake(instance, at, &mut self.instances[instance.index()].timer);
                    return;
                }
                Ready::Later => return,
            }
        }
    }

    /// Whether there is something to start.
    fn ready(&self, now: Time, instance: InstanceId) -> Ready {
        let state = &self.instances[instance.index()];
        let queue = state.queue.view(&self.requests);
        if !state.planned.is_empty() {
            return Ready::Now;
        }
        let Some(oldest) = queue.oldest().filter(|_| state.asked.is_none()) else {
            return Ready::Later;
        };
        match &self.planning {
            PlanningSpec::Online { .. } => Ready::Now,
            PlanningSpec::Pool { size, .. } if queue.len() + state.gone >= *size => Ready::Now,
            PlanningSpec::Pool { max_wait, .. } => match max_wait.map(|wait| oldest.arrival + wait) {
                Some(latest) if latest <= now => Ready::Now,
                Some(latest) => Ready::At(latest),
                None => Ready::Later,
            },
        }
    }

    /// Whether queries are put together by what they cost. A fixed size takes them as they came, and a full model has
    /// one task's.
    fn looks_at_costs(&self) -> bool {
        match self.engine {
            EngineSpec::Shared { batching, .. } => !matches!(batching, Batching::Fixed { .. }),
            EngineSpec::Sequential { .. } | EngineSpec::Parallel { .. } => false,
        }
    }

    /// Whether deadlines decide which queries are planned together. With one target for all nobody is more urgent than
    /// who came before.
    fn urgent_first(&self) -> bool {
        let PlanningSpec::Online { targets, .. } = &self.planning else {
            return false;
        };
        self.looks_at_costs() && targets.iter().any(|target| *target != targets[0])
    }

    /// Has those that wait planned: on the host's lane where there is anything to plan, and at once where there is not.
    fn plan(&mut self, now: Time, instance: InstanceId, commands: &mut Commands) {
        let urgent_first = self.urgent_first();
        let state = &mut self.instances[instance.index()];
        let (window, targets) = match &self.planning {
            PlanningSpec::Pool { size, .. } => (*size, &[][..]),
            PlanningSpec::Online { window, targets } => (*window, &targets[..]),
        };
        let queue = state.queue.view(&self.requests);
        let candidate = |waiting: Waiting| {
            let Entry::Loaded(task) = self.repository.entry(waiting.tenant) else {
                unreachable!("only loaded tasks' queries are let in")
            };
            Candidate {
                id: waiting.id,
                tenant: waiting.tenant,
                task,
                tokens: waiting.input_tokens,
                deadline: deadline(waiting.arrival, self.requests[waiting.id].class, targets),
            }
        };
        let pool: Vec<Candidate> = match urgent_first {
            true => first_due(
                now,
                queue.iter().map(candidate).collect(),
                window as usize,
                |query| query.deadline,
                |query| self.latencies.alone_ns(query),
                |queries| self.latencies.predicted_ns(queries),
            ),
            false => queue.iter().take(window as usize).map(candidate).collect(),
        };
        self.repository.counts.plans += 1;
        if let PlanningSpec::Pool { size, .. } = &self.planning {
            let missing = size - pool.len() as u32;
            let gone = state.gone.saturating_sub(missing);
            for query in &pool {
                self.take(instance, query.id);
            }
            self.leave_places(instance, gone);
        }
        let state = &mut self.instances[instance.index()];
        let batching = match self.engine {
            EngineSpec::Shared { batching, .. } if pool.len() > 1 => batching,
            EngineSpec::Shared { .. } => {
                let plan = alone(&pool[0]);
                state.asked = Some(pool);
                return self.planned(now, instance, &plan);
            }
            EngineSpec::Sequential { .. } | EngineSpec::Parallel { .. } => {
                let plan = by_task(&pool, self.max_batch as usize);
                state.asked = Some(pool);
                return self.planned(now, instance, &plan);
            }
        };
        let mark = commands.mark();
        let lane = self.topology.solver.expect("a system that plans has a planner");
        let (question, plans) = question(batching, &pool, &self.latencies, commands.pools.len() as u32);
        commands.pools.push(question);
        let last = plans.len() - 1;
        commands.ops.extend(plans.into_iter().enumerate().map(|(index, plan)| Op {
            told: index == last,
            ..Op::alone(OpKind::PlanPool(plan), lane)
        }));
        state.asked = Some(pool);
        let batch = self.running.insert(Running::Planning(instance));
        commands.submit(batch, instance, BatchShape::NOTHING, mark);
    }

    /// A pool's plan is there: all of it, or, where the next is made afresh, the batch with the earliest deadline that
    /// can be kept; of batches as they came, the one with the first that came.
    fn planned(&mut self, now: Time, instance: InstanceId, plan: &PoolPlan) {
        let (looks_at_costs, urgent_first) = (self.looks_at_costs(), self.urgent_first());
        let state = &mut self.instances[instance.index()];
        let pool = state.asked.take().expect("a plan was asked for");
        let requests = &self.requests;
        // With one target for all, who is late is no less urgent than who came after it.
        let lost = |query: &Candidate| urgent_first && is_lost(now, query.deadline, self.latencies.alone_ns(query));
        let mut batches = planned(plan, &pool, |id| requests.get(id).is_some(), lost);
        if let PlanningSpec::Online { .. } = self.planning {
            let urgency = |batch: &Planned| match looks_at_costs {
                true => batch.due,
                false => (false, Time(batch.first.into())),
            };
            let next = (0..batches.len()).min_by_key(|&index| urgency(&batches[index]));
            let Some(next) = next else { return };
            batches = vec![batches.swap_remove(next)];
            for &(id, _) in &batches[0].members {
                self.take(instance, id);
            }
        }
        self.instances[instance.index()].planned.extend(batches);
    }

    /// The laws that hold between events, for tests: nobody is lost between queue, plan and batches, and no instance is
    /// idle while there is something to start.
    ///
    /// # Errors
    /// The law that is broken.
    pub fn check_laws(&mut self, now: Time) -> Result<(), String> {
        let members = |running: &Running| match running {
            Running::Pass { members, .. } => members.len(),
            Running::Planning(_) => 0,
        };
        let running: usize = self.running.iter().map(|(_, running)| members(running)).sum();
        let pooled = matches!(self.planning, PlanningSpec::Pool { .. });
        let mut waiting = 0;
        for instance in self.topology.instance_ids() {
            let state = &self.instances[instance.index()];
            let queue = state.queue.view(&self.requests);
            let is_there = |id: RequestId| self.requests.get(id).is_some();
            let planned = state.planned.iter().flat_map(|batch| &batch.members);
            let planned = planned.filter(|(id, _)| is_there(*id)).count();
            // Queries that are planned online are in the queue still.
            let asked = state.asked.iter().flatten();
            let asked = asked.filter(|query| pooled && is_there(query.id)).count();
            waiting += queue.len() as usize + planned + asked;
            // A timer of this very instant is still to come.
            let asked_now = state.timer.is_some_and(|at| at <= now);
            if state.running == 0 && !asked_now && self.ready(now, instance) == Ready::Now {
                return Err(format!("{instance} is idle at {now} while there is a batch to start"));
            }
        }
        if waiting != self.waiting as usize || running + waiting != self.requests.len() {
            return Err(format!(
                "{running} run and {waiting} wait ({} counted), but {} are in flight",
                self.waiting,
                self.requests.len()
            ));
        }
        self.memory().check()
    }
}

/// Whether an instance has something to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ready {
    Now,
    At(Time),
    Later,
}

/// A full model of each task computes on a stream of its own, as far as there are such.
fn instances_per_gpu(engine: &EngineSpec, loaded: u32) -> u32 {
    match engine {
        EngineSpec::Parallel { streams, .. } => loaded.min(*streams).max(1),
        EngineSpec::Shared { .. } | EngineSpec::Sequential { .. } => 1,
    }
}
