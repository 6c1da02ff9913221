//! Several encoders behind one door: each request goes from model to model as the route says, and waits, is batched and
//! runs at each as it would alone.
//!
//! A *job* is a request from its arrival to its answer; at each model that it is sent to it is an entry of an
//! instance's queue. All tenants share the models, so that nothing is swapped.

mod scaling;
mod stage;

use tenantry_traces::{Duration, Request, Ticket, Time};

pub use stage::StageCounts;

use super::FLEET;
use super::by_ticket::{ByTicket, Ticketed};
use super::memory::{MemoryUse, ServerError};
use super::queue::{InFlight, Queue, Requests};
use super::tenancy::refuse;
use crate::answers::TextLengths;
use crate::command::{Command, Commands, FailureReason, Finish, RejectReason, Returned, Verdict, Waits};
use crate::event::{Answer, BatchTiming, Done, Event};
use crate::ids::{BatchId, InstanceId, JobId, PoolId, RequestId};
use crate::op::{BatchShape, Member, NO_SLOT, Sequence};
use crate::policy::admit::{self, Admit};
use crate::policy::batch::Decision;
use crate::policy::route::{self, Answered, NextStage, Route};
use crate::slab::{Handle, Slab};
use crate::spec::{ClusterSpec, RouteSpec, SystemSpec};
use crate::topology::Topology;
use scaling::Cards;
use stage::{Instance, Stage};

/// A request between its arrival and its answer.
struct Job {
    request: Request,
    /// Models that it was sent to, a bit for each.
    asked: u32,
    /// Of those: that have not answered.
    outstanding: u32,
    /// And of those: in whose queues it is.
    queued: u32,
    /// Its way so far; of models asked at once, that of the last to answer.
    waits: Waits,
    /// Requests in its last batch.
    batch_requests: u32,
    failure: Option<FailureReason>,
    cancelled: bool,
}

impl Ticketed for Job {
    fn ticket(&self) -> Ticket {
        self.request.ticket
    }
}

enum Running {
    /// A batch through a stage's model.
    Pass {
        instance: InstanceId,
        submitted: Time,
        members: Vec<Member>,
    },
    /// A stage's model onto the card whose first instance this is.
    Load(InstanceId),
}

/// A serving system of several encoders.
pub struct CascadeServer {
    admit: Box<dyn Admit>,
    route: Box<dyn Route>,
    stages: Vec<Stage>,
    tenants: u32,
    max_tokens: u32,
    /// Of requests that are about texts: each stage's tokenizer makes its own number of tokens of a text.
    lengths: Option<TextLengths>,
    topology: Topology,
    capacity_bytes: u64,
    cards: Cards,

    jobs: ByTicket<JobId, Job>,
    /// Jobs where they wait or run.
    entries: Requests,
    /// By slot of an entry.
    job_of: Vec<JobId>,
    instances: Vec<Instance>,
    running: Slab<BatchId, Running>,
    /// Entries of queues.
    waiting: u32,
    /// Jobs that are in a queue.
    jobs_waiting: u32,
    /// Batch that last counted each tenant, to count the different tenants of a batch.
    counted_in: Vec<u64>,
    batches: u64,
    /// Reused for each decision.
    chosen: Vec<RequestId>,
    /// Reused: instances that got something to do.
    touched: Vec<InstanceId>,
    /// Member lists of ended batches, reused.
    spare: Vec<Vec<Member>>,
}

impl CascadeServer {
    /// A system on a cluster, for tenants `0..tenants`.
    ///
    /// # Errors
    /// When the models of a card do not fit on it.
    pub fn new(
        cluster: &ClusterSpec,
        system: &SystemSpec,
        route: &RouteSpec,
        tenants: u32,
    ) -> Result<CascadeServer, ServerError> {
        let topology = Topology::of_stages(cluster, &route.stages);
        let memory_bytes = stage::memory(cluster, route, tenants)?;
        let mut stages: Vec<Stage> = Vec::new();
        for (index, spec) in route.stages.iter().enumerate() {
            let mine = |instance: &InstanceId| topology.instances[instance.index()].pool == PoolId(index as u32);
            let first = topology.instance_ids().find(mine).expect("a stage has an instance");
            let count = topology.instance_ids().filter(mine).count() as u32;
            stages.push(Stage::new(spec, first.0..first.0 + count, memory_bytes[index]));
        }
        let instances = topology.instances.iter().map(|instance| {
            let by_tenant = stages[instance.pool.index()].batch.looks_at_tenants();
            Instance {
                queue: Queue::new(if by_tenant { tenants } else { 0 }),
                busy: false,
                timer: None,
            }
        });
        let mut server = CascadeServer {
            admit: admit::build(&system.admit),
            route: route::build(route),
            tenants,
            max_tokens: stages.iter().map(Stage::max_tokens).min().unwrap_or(0),
            lengths: None,
            capacity_bytes: u64::from(cluster.gpus) * cluster.gpu_memory_bytes,
            cards: Cards::new(cluster.gpus),
            instances: instances.collect(),
            stages,
            topology,
            jobs: ByTicket::default(),
            entries: Requests::default(),
            job_of: Vec::new(),
            running: Slab::default(),
            waiting: 0,
            jobs_waiting: 0,
            counted_in: vec![u64::MAX; tenants as usize],
            batches: 0,
            chosen: Vec::new(),
            touched: Vec::new(),
            spare: Vec::new(),
        };
        server.deploy();
        Ok(server)
    }

    /// The same for requests that are about texts, whatever lengths the workload gave them.
    pub fn with_lengths(self, lengths: Option<TextLengths>) -> CascadeServer {
        CascadeServer { lengths, ..self }
    }

    /// The lanes that this server's ops name.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// What lay in the cards' memory at most: the models of the cards that were used.
    pub fn memory(&self) -> MemoryUse {
        MemoryUse {
            capacity_bytes: self.capacity_bytes,
            shared_bytes: self.cards.bytes_most(),
            ..MemoryUse::default()
        }
    }

    /// Requests that were let in and have not left.
    pub fn in_flight(&self) -> u64 {
        self.jobs.len() as u64
    }

    /// What each stage did so far.
    pub fn stages(&self) -> Vec<StageCounts> {
        self.stages.iter().map(|stage| stage.counts.clone()).collect()
    }

    /// Takes an event and says what is to be done about it.
    pub fn handle(&mut self, now: Time, event: &Event<'_>, commands: &mut Commands) {
        if self.is_at_rest() {
            self.rested(now, event, commands);
        }
        match *event {
            Event::Arrived(request) => self.arrived(now, request, commands),
            Event::Cancelled(ticket) => self.cancelled(now, ticket, commands),
            // A route's models belong to all tenants.
            Event::Manage(request) => refuse(request, commands),
            Event::Timer(FLEET) => {
                self.scaling_timer(now, commands);
                self.advance_touched(now, commands);
            }
            Event::Timer(instance) => {
                self.started(now, instance, commands);
                self.instances[instance.index()].timer = None;
                self.advance(now, instance, commands);
            }
            Event::Done(ref done) => self.done(now, done, commands),
        }
    }

    pub(super) fn as_read(&self, request: Request) -> Request {
        let input_tokens = self.tokens_at(0, &request);
        Request {
            input_tokens,
            ..request
        }
    }

    /// Tokens that a stage's model has to read of a request, as they come in at the door.
    fn tokens_at(&self, stage: usize, request: &Request) -> u32 {
        match &self.lengths {
            Some(lengths) => lengths.of(request.ticket, stage),
            None => request.input_tokens,
        }
    }

    fn arrived(&mut self, now: Time, request: Request, commands: &mut Commands) {
        if let Err(reason) = self.check(&request) {
            commands.list.push(Command::Finish(Finish::rejected(&request, reason)));
            return;
        }
        let asked_first = self.route.asked_first();
        if let Err(reason) = self.admit.admit(now, &request, self.jobs_waiting) {
            commands.list.push(Command::Finish(Finish::rejected(&request, reason)));
            let asked = self.stages[..asked_first].iter_mut();
            for scaler in asked.filter_map(|stage| stage.scaler.as_mut()) {
                if reason.asks_for_cards() {
                    scaler.turned_away(now);
                }
            }
            return;
        }
        let job = self.jobs.insert(Job {
            request,
            asked: 0,
            outstanding: 0,
            queued: 0,
            waits: Waits::default(),
            batch_requests: 0,
            failure: None,
            cancelled: false,
        });
        for stage in 0..asked_first {
            let tokens = self.tokens_at(stage, &request);
            self.ask(request.arrival, job, stage, tokens, None);
        }
        self.ask_stages(now, commands);
        self.advance_touched(now, commands);
    }

    fn check(&self, request: &Request) -> Result<(), RejectReason> {
        let too_long = match &self.lengths {
            None => request.input_tokens > self.max_tokens,
            Some(lengths) => {
                let too_long = |(index, stage): (usize, &Stage)| lengths.of(request.ticket, index) > stage.max_tokens();
                self.stages.iter().enumerate().any(too_long)
            }
        };
        if request.tenant >= self.tenants {
            Err(RejectReason::UnknownTenant)
        } else if too_long {
            Err(RejectReason::TooLong)
        } else {
            Ok(())
        }
    }

    /// Sends a job to a stage's model; `before` answered it last.
    fn ask(&mut self, at: Time, id: JobId, stage: usize, tokens: u32, before: Option<InstanceId>) {
        let job = &mut self.jobs[id];
        job.asked |= 1 << stage;
        job.outstanding += 1;
        job.queued += 1;
        self.jobs_waiting += u32::from(job.queued == 1);
        let (earlier, from) = self.stages.split_at_mut(stage);
        if let Some(scaler) = &mut from[0].scaler {
            scaler.arrived();
        }
        let instance = from[0].place(earlier.last().zip(before));
        let request = Request {
            arrival: at,
            input_tokens: tokens,
            ..job.request
        };
        let entry = self.entries.insert(InFlight::new(&request, instance));
        if entry.slot() >= self.job_of.len() {
            self.job_of.resize(entry.slot() + 1, id);
        }
        self.job_of[entry.slot()] = id;
        self.instances[instance.index()].queue.push(&mut self.entries, entry);
        self.waiting += 1;
        self.touched.push(instance);
    }

    /// What runs is dropped when its batch ends.
    fn cancelled(&mut self, now: Time, ticket: Ticket, commands: &mut Commands) {
        let Some(id) = self.jobs.with_ticket(ticket).next() else {
            return;
        };
        self.jobs[id].cancelled = true;
        let mut queued: Vec<RequestId> = self.entries.with_ticket(ticket).collect();
        queued.retain(|&entry| self.entries[entry].batch.is_none());
        for entry in queued {
            let instance = self.entries[entry].instance;
            self.instances[instance.index()].queue.remove(&mut self.entries, entry);
            self.queues_no_more(entry);
            if let Some(scaler) = &mut self.stage_of(instance).scaler {
                scaler.gave_up(now);
            }
            self.leave(entry);
            self.touched.push(instance);
        }
        let job = &mut self.jobs[id];
        if job.outstanding == 0 {
            // What its way so far does not account for it has spent in queues.
            job.waits.queue += Duration(now.since(job.request.arrival).0 - job.waits.total().0);
            self.finish(id, None, commands);
        }
        // Who is left may wait for what was not asked while all were at rest.
        self.ask_stages(now, commands);
        self.advance_touched(now, commands);
    }

    /// An entry is taken out of its queue.
    fn queues_no_more(&mut self, entry: RequestId) {
        self.waiting -= 1;
        let job = &mut self.jobs[self.job_of[entry.slot()]];
        job.queued -= 1;
        self.jobs_waiting -= u32::from(job.queued == 0);
    }

    /// An entry leaves its instance, answered or not.
    fn leave(&mut self, entry: RequestId) {
        let instance = self.entries.remove(entry).expect("an entry leaves once").instance;
        self.stage_of(instance).left(instance);
        self.jobs[self.job_of[entry.slot()]].outstanding -= 1;
    }

    fn stage_of(&mut self, instance: InstanceId) -> &mut Stage {
        &mut self.stages[self.topology.instances[instance.index()].pool.index()]
    }

    fn done(&mut self, now: Time, done: &Done<'_>, commands: &mut Commands) {
        let (instance, submitted, mut members) = match self.running.remove(done.batch).expect("a batch ends once") {
            Running::Pass {
                instance,
                submitted,
                members,
            } => (instance, submitted, members),
            Running::Load(instance) => return self.loaded(now, instance, !done.failures.is_empty()),
        };
        self.instances[instance.index()].busy = false;
        let pool = self.topology.instances[instance.index()].pool.index();
        let counts = &mut self.stages[pool].counts;
        counts.answered += members.len() as u64;
        counts.computed += done.timing.busy;
        let share = Duration(done.timing.busy.0 / members.len() as u64);
        let mut failures = done.failures();
        for (index, member) in members.iter().enumerate() {
            let failure = failures.of(index);
            let answer = done.answers.get(index).copied();
            let asked_at = self.entries[member.request].arrival;
            if let Some(scaler) = &mut self.stages[pool].scaler {
                scaler.served(now, now.since(asked_at), share);
            }
            self.leave(member.request);
            let id = self.job_of[member.request.slot()];
            let job = &mut self.jobs[id];
            job.batch_requests = members.len() as u32;
            job.failure = job.failure.or(failure);
            job.waits = way(job, asked_at, submitted, done.timing, now);
            self.answered(now, id, pool, answer, instance, commands);
        }
        members.clear();
        self.spare.push(members);
        self.ended_on(now, instance);
        self.touched.push(instance);
        self.advance_touched(now, commands);
    }

    /// A model has answered a job, or failed to.
    fn answered(
        &mut self,
        now: Time,
        id: JobId,
        stage: usize,
        answer: Option<Answer>,
        instance: InstanceId,
        commands: &mut Commands,
    ) {
        let job = &self.jobs[id];
        if job.cancelled || job.failure.is_some() {
            if job.outstanding == 0 {
                self.finish(id, None, commands);
            }
            return;
        }
        let next = self.route.next(Answered {
            ticket: job.request.ticket,
            stage,
            confidence_ppm: answer.map_or(0, |answer| answer.confidence_ppm),
            outstanding: job.outstanding,
        });
        match next {
            NextStage::Wait => {}
            NextStage::Return(stage) => self.finish(id, Some(stage), commands),
            NextStage::Ask(stage) => {
                let tokens = answer.map_or(job.request.input_tokens, |answer| answer.next_tokens);
                self.ask(now, id, stage, tokens, Some(instance));
            }
        }
    }

    /// A job leaves, by the answer of the model at `stage` or without one.
    fn finish(&mut self, id: JobId, stage: Option<usize>, commands: &mut Commands) {
        let job = self.jobs.remove(id).expect("a job leaves once");
        commands.list.push(Command::Finish(Finish {
            batch_requests: job.batch_requests,
            waits: job.waits,
            returned: stage.map(|stage| Returned {
                stage: stage as u8,
                asked: job.asked,
            }),
            ..Finish::unrun(&job.request, Verdict::of_run(job.cancelled, job.failure))
        }));
    }

    fn advance_touched(&mut self, now: Time, commands: &mut Commands) {
        while let Some(instance) = self.touched.pop() {
            self.advance(now, instance, commands);
        }
    }

    /// Starts a batch on an idle instance, if its policy has one.
    fn advance(&mut self, now: Time, instance: InstanceId, commands: &mut Commands) {
        if self.instances[instance.index()].busy {
            return;
        }
        match self.decide(now, instance) {
            Decision::Start => self.start(now, instance, commands),
            Decision::AskAt(at) => {
                commands.wake(instance, at, &mut self.instances[instance.index()].timer);
            }
            Decision::Wait => {}
        }
    }

    fn decide(&mut self, now: Time, instance: InstanceId) -> Decision {
        let view = self.instances[instance.index()].queue.view(&self.entries);
        self.chosen.clear();
        let pool = self.topology.instances[instance.index()].pool;
        self.stages[pool.index()].batch.decide(now, view, &mut self.chosen)
    }

    /// Submits the chosen entries.
    fn start(&mut self, now: Time, instance: InstanceId, commands: &mut Commands) {
        let mark = commands.mark();
        let mut shape = BatchShape {
            requests: self.chosen.len() as u32,
            tokens: 0,
            input_tokens: 0,
            tenants: 0,
        };
        for &id in &self.chosen {
            let entry = &self.entries[id];
            let counted = &mut self.counted_in[entry.tenant as usize];
            shape.tenants += u32::from(*counted != self.batches);
            *counted = self.batches;
            shape.tokens = shape.tokens.max(entry.input_tokens);
            shape.input_tokens += entry.input_tokens;
            commands.members.push(Member {
                request: id,
                ticket: entry.ticket,
                tenant: entry.tenant,
                input_tokens: entry.input_tokens,
                slot: NO_SLOT,
                sequence: Sequence::default(),
            });
        }
        self.batches += 1;
        let mut kept = self.spare.pop().unwrap_or_default();
        kept.extend_from_slice(&commands.members[mark.members..]);
        let batch = self.running.insert(Running::Pass {
            instance,
            submitted: now,
            members: kept,
        });
        let state = &mut self.instances[instance.index()];
        state.busy = true;
        for &id in &self.chosen {
            state.queue.remove(&mut self.entries, id);
            self.entries[id].batch = Some(batch);
        }
        for at in 0..self.chosen.len() {
            self.queues_no_more(self.chosen[at]);
        }
        let lane = self.topology.instances[instance.index()].compute;
        let stage = self.stage_of(instance);
        shape.tokens = stage.padded(shape.tokens);
        stage.lay_out(lane, &mut commands.ops);
        commands.submit(batch, instance, shape, mark);
    }

    /// The laws that hold between events, for tests: no instance is idle while its batch policy would start something,
    /// and nothing is counted twice.
    ///
    /// # Errors
    /// The law that is broken.
    pub fn check_laws(&mut self, now: Time) -> Result<(), String> {
        let members = |running: &Running| match running {
            Running::Pass { members, .. } => members.len(),
            Running::Load(_) => 0,
        };
        let running: usize = self.running.iter().map(|(_, running)| members(running)).sum();
        let outstanding: u32 = self.jobs.iter().map(|(_, job)| job.outstanding).sum();
        let queued: u32 = self.jobs.iter().map(|(_, job)| job.queued).sum();
        let jobs_waiting = self.jobs.iter().filter(|(_, job)| job.queued > 0).count();
        if queued != self.waiting || jobs_waiting != self.jobs_waiting as usize {
            return Err(format!(
                "{queued} entries of {jobs_waiting} requests wait, and {} of {} are counted",
                self.waiting, self.jobs_waiting
            ));
        }
        let entries = self.entries.len();
        if running + self.waiting as usize != entries || outstanding as usize != entries {
            return Err(format!(
                "{running} run, {} wait and {outstanding} answers are awaited, but there are {entries}",
                self.waiting
            ));
        }
        if let Some((_, job)) = self.jobs.iter().find(|(_, job)| job.outstanding == 0) {
            return Err(format!("ticket {} is inside and nowhere", job.request.ticket));
        }
        for instance in self.topology.instance_ids() {
            let state = &self.instances[instance.index()];
            let line = state.queue.view(&self.entries);
            if !line.iter().is_sorted_by_key(|waiting| waiting.arrival) {
                return Err(format!("the queue of {instance} is not in order of arrival at {now}"));
            }
            // A timer of this very instant is still to come.
            let asked_now = state.timer.is_some_and(|at| at <= now);
            if !state.busy && !asked_now && self.decide(now, instance) == Decision::Start {
                return Err(format!(
                    "{instance} is idle at {now} while its policy would start a batch"
                ));
            }
        }
        self.check_cards()
    }
}

/// A job's waits with those at a model: after earlier ones, or, of models asked at once, its alone.
fn way(job: &Job, asked_at: Time, submitted: Time, timing: BatchTiming, now: Time) -> Waits {
    let before = match asked_at == job.request.arrival {
        true => Waits::default(),
        false => job.waits,
    };
    let here = Waits::of_batch(asked_at, submitted, timing, now);
    Waits {
        queue: before.queue + here.queue,
        lane: before.lane + here.lane,
        stall: before.stall + here.stall,
        compute: before.compute + here.compute,
        tell: before.tell + here.tell,
    }
}
