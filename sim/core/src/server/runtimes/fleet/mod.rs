//! How many instances of each runtime, on how many cards, and when either is decided.

mod allocating;
mod cards;

use std::collections::BTreeMap;

use tenantry_traces::{Duration, Time};

use super::RuntimeServer;
use super::instances::{Instance, State};
use crate::command::{Command, Commands};
use crate::ids::InstanceId;
use crate::policy::fleet::{Allocated, Fallback, even, fitted};
use crate::policy::replace::Change;
use crate::policy::scale::{Asked, Scaler};
use crate::server::FLEET;
use crate::server::memory::{MemoryUse, ServerError};
use crate::server::scaling::{MOST_REMEMBERED, in_order};
use crate::spec::{AllocateSpec, ClusterSpec, PeriodicSpec, RuntimeRef, RuntimesSpec};

/// How a fleet of runtimes was used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetUse {
    /// Card time from the decision to add a card until it had nothing in hand any more.
    pub card_time: Duration,
    /// Instances that each runtime has, or is to have, from each decision that changed them on, the streams one after
    /// the other.
    pub allocations: Vec<(Time, Vec<u32>)>,
    /// Changes after those that are remembered.
    pub allocations_left_out: u64,
    /// By runtime: its stream's name and the longest request that it serves.
    pub runtimes: Vec<(String, u32)>,
    /// Allocations that were solved for, one before the start included.
    pub decisions: u64,
    /// Of those, allocations that stand for a solution, by why they do.
    pub fallbacks: BTreeMap<Fallback, u64>,
    /// Periods in which the solver was still at the last question.
    pub late: u64,
    /// Instances that changed their runtime.
    pub replaced: u64,
    /// Requests that were dispatched anew because their instance left.
    pub redispatched: u64,
    /// Cards added.
    pub added: u64,
    /// Cards released.
    pub released: u64,
}

impl FleetUse {
    /// An allocation was solved for.
    fn decided(&mut self, answer: &Allocated) {
        self.decisions += 1;
        if let Some(why) = answer.fallback {
            *self.fallbacks.entry(why).or_default() += 1;
        }
    }
}

pub(super) struct Fleet {
    periodic: Option<PeriodicSpec>,
    /// What was remembered last, or would have been.
    last_allocation: Vec<u32>,
    /// Whether all runtimes are to have as many instances, however many cards there are.
    pub even: bool,
    pub instances_per_gpu: u32,
    pub start_up: Duration,
    /// Nothing where the cards are always the same.
    scaler: Option<Scaler>,
    /// When the next allocation is due.
    next_allocation: Time,
    /// A timer is set and has not come.
    armed: bool,
    /// Since when requests have been counted: since the first came, and then since each decision.
    observed_since: Option<Time>,
    /// When somebody left last and nobody stayed; time zero before the first comes.
    pub idle_since: Time,
    solving: bool,
    /// The last answer,
    answer: Vec<u32>,
    /// and whether it waits to be planned until the changes under way are over.
    is_to_be_planned: bool,
    /// Changes to come, the next batch last.
    plan: Vec<Vec<Change>>,
    /// Instances of the batch under way that do not serve yet.
    changing: u32,
    cards: u32,
    /// When `card_time` was last brought up to date.
    counted_until: Time,
    pub counts: FleetUse,
    capacity_bytes: u64,
    heads_bytes: u64,
    card_bytes: u64,
    cards_most: u32,
}

impl Fleet {
    pub fn new(cluster: &ClusterSpec, spec: &RuntimesSpec, instances_per_gpu: u32, heads_bytes: u64) -> Fleet {
        let periodic = match &spec.allocate {
            AllocateSpec::Periodic(periodic) => Some(*periodic),
            AllocateSpec::Even | AllocateSpec::Fixed(_) | AllocateSpec::Global(_) | AllocateSpec::Solved(_) => None,
        };
        let largest = spec.streams.iter().map(|stream| stream.model.parameters() * stream.dtype.bytes());
        let runtimes = spec.streams.iter().flat_map(|stream| {
            let of = stream.runtimes.iter();
            of.map(|runtime| (stream.name.clone(), runtime.max_length))
        });
        let cards = spec.scale.map_or(cluster.gpus, |scale| scale.cards_at_start.min(cluster.gpus));
        let solved = match &spec.allocate {
            AllocateSpec::Solved(answer) => Some(answer),
            _ => None,
        };
        let mut counts = FleetUse {
            runtimes: runtimes.collect(),
            ..FleetUse::default()
        };
        if let Some(answer) = solved {
            counts.decided(answer);
        }
        Fleet {
            periodic,
            last_allocation: Vec::new(),
            even: matches!(spec.allocate, AllocateSpec::Even),
            instances_per_gpu,
            start_up: spec.scale.map_or(Duration::ZERO, |scale| scale.start_up),
            scaler: spec.scale.map(|scale| Scaler::new(scale.rule)),
            next_allocation: Time::ZERO + periodic.map_or(Duration::ZERO, |periodic| periodic.first),
            armed: false,
            observed_since: None,
            idle_since: Time::ZERO,
            solving: false,
            answer: Vec::new(),
            is_to_be_planned: false,
            plan: Vec::new(),
            changing: 0,
            cards,
            counted_until: Time::ZERO,
            counts,
            capacity_bytes: u64::from(cluster.gpus) * cluster.gpu_memory_bytes,
            heads_bytes,
            card_bytes: u64::from(instances_per_gpu) * largest.max().unwrap_or(0),
            cards_most: cards,
        }
    }

    /// A request was counted.
    #[inline]
    pub fn observed(&mut self, now: Time) {
        self.observed_since.get_or_insert(now);
    }

    /// A request was turned away since too many wait.
    pub fn turned_away(&mut self, now: Time) {
        if let Some(scaler) = &mut self.scaler {
            scaler.turned_away(now);
        }
    }

    /// A request has left the line that it waited in.
    pub fn gave_up(&mut self, now: Time) {
        if let Some(scaler) = &mut self.scaler {
            scaler.gave_up(now);
        }
    }

    /// A request has ended.
    pub fn served(&mut self, now: Time, latency: Duration, busy: Duration) {
        if let Some(scaler) = &mut self.scaler {
            scaler.served(now, latency, busy);
        }
    }

    /// An instance goes that what is still to be changed counted on: that is planned anew without it.
    pub fn plan_anew(&mut self) {
        self.is_to_be_planned |= !self.plan.is_empty();
        self.plan.clear();
    }

    pub fn card_came(&mut self, now: Time) {
        self.count_until(now);
        self.cards += 1;
        self.cards_most = self.cards_most.max(self.cards);
    }

    pub fn card_left(&mut self, now: Time) {
        self.count_until(now);
        self.cards -= 1;
    }

    fn count_until(&mut self, now: Time) {
        self.counts.card_time += self.since_counted(now);
        self.counted_until = self.counted_until.max(now);
    }

    fn since_counted(&self, now: Time) -> Duration {
        Duration(now.0.saturating_sub(self.counted_until.0) * u64::from(self.cards))
    }

    pub fn memory(&self) -> MemoryUse {
        MemoryUse {
            capacity_bytes: self.capacity_bytes,
            shared_bytes: u64::from(self.cards_most) * (self.card_bytes + self.heads_bytes),
            ..MemoryUse::default()
        }
    }

    /// Whether nobody has been inside for more than half of the time that the next allocation would be made of, as far
    /// as is known by now.
    fn was_mostly_silent(&self, now: Time) -> bool {
        let silence = now.since(self.idle_since).0;
        let until = self.next_allocation.max(now);
        self.observed_since.is_none_or(|since| 2 * silence > until.since(since).0)
    }

    /// When something is due next; nothing where nothing ever is.
    fn due(&self) -> Option<Time> {
        let allocation = self.periodic.map(|_| self.next_allocation);
        let scaling = self.scaler.as_ref().map(Scaler::due);
        allocation.into_iter().chain(scaling).min()
    }
}

impl RuntimeServer {
    /// How the fleet was used until now.
    pub fn fleet(&self, now: Time) -> FleetUse {
        let fleet = &self.fleet;
        let mut counts = fleet.counts.clone();
        counts.card_time += fleet.since_counted(now);
        counts
    }

    /// See [`crate::server::Server::count_cards_from`].
    pub fn count_cards_from(&mut self, start: Time) {
        self.fleet.counted_until = start;
    }

    /// The runtimes at the start, which are there when the first request comes.
    pub(super) fn deploy(&mut self, spec: &RuntimesSpec) -> Result<(), ServerError> {
        let instances = self.fleet.cards * self.fleet.instances_per_gpu;
        let target = match &spec.allocate {
            AllocateSpec::Even | AllocateSpec::Periodic(_) => self.even_shares(instances),
            AllocateSpec::Fixed(counts) => fitted(counts.clone(), instances),
            AllocateSpec::Solved(answer) => fitted(answer.instances.clone(), instances),
            AllocateSpec::Global(_) => return Err(ServerError::CardUnknown),
        };
        // Without it some requests would wait for ever (Eq. 7).
        for (stream, longest) in self.streams.iter().zip(self.longest()) {
            if target.get(longest).is_none_or(|&longest| longest == 0) {
                return Err(ServerError::NoLongestRuntime {
                    stream: stream.spec.name.clone(),
                    instances,
                });
            }
        }
        let mut next = 0;
        for (runtime, &count) in target.iter().enumerate() {
            let runtime = self.runtime(runtime);
            for _ in 0..count {
                // Nobody waits yet, so that no command follows from it.
                self.serve(Time::ZERO, InstanceId(next), runtime, &mut Commands::default());
                next += 1;
            }
        }
        self.remember(Time::ZERO, target);
        Ok(())
    }

    /// Instances of each runtime, the streams one after the other, where all streams and all runtimes of a stream have
    /// as many.
    pub(super) fn even_shares(&self, instances: u32) -> Vec<u32> {
        let shares = even(self.streams.len(), instances).into_iter().zip(&self.streams);
        let shares = shares.flat_map(|(share, stream)| even(stream.spec.runtimes.len(), share));
        shares.collect()
    }

    /// Instances that each runtime has or is to have.
    pub(super) fn deployed(&self) -> Vec<u32> {
        self.by_runtime(|instance| instance.runtime())
    }

    /// Instances by the runtime that is said of them.
    fn by_runtime(&self, of: impl Fn(&Instance) -> Option<RuntimeRef>) -> Vec<u32> {
        let mut counts = vec![0; self.fleet.counts.runtimes.len()];
        for runtime in self.instances.iter().filter_map(of) {
            counts[self.number(runtime)] += 1;
        }
        counts
    }

    pub(super) fn remember(&mut self, now: Time, allocation: Vec<u32>) {
        if self.fleet.last_allocation == allocation {
            return;
        }
        self.fleet.last_allocation.clone_from(&allocation);
        let remembered = &mut self.fleet.counts.allocations;
        match remembered.len() < MOST_REMEMBERED {
            true => remembered.push((now, allocation)),
            false => self.fleet.counts.allocations_left_out += 1,
        }
    }

    /// By its number, the streams one after the other.
    pub(super) fn runtime(&self, mut number: usize) -> RuntimeRef {
        let mut stream = 0;
        while number >= self.streams[stream].spec.runtimes.len() {
            number -= self.streams[stream].spec.runtimes.len();
            stream += 1;
        }
        RuntimeRef {
            stream: stream as u16,
            runtime: number as u16,
        }
    }

    fn number(&self, runtime: RuntimeRef) -> usize {
        let before = &self.streams[..usize::from(runtime.stream)];
        before.iter().map(|stream| stream.spec.runtimes.len()).sum::<usize>() + usize::from(runtime.runtime)
    }

    /// A request that is counted comes to nobody. Where an allocation was due meanwhile, or is before there is much
    /// more to be seen, and hardly anybody came in the time that it would be made of, it begins anew: of a single
    /// request nothing follows for those who come after it.
    pub(super) fn fleet_wakes(&mut self, now: Time) {
        if let Some(periodic) = self.fleet.periodic
            && self.fleet.next_allocation < now + Duration(periodic.first.0 / 2)
            && self.fleet.was_mostly_silent(now)
        {
            self.streams.iter_mut().for_each(|stream| stream.observed.fill(0));
            self.fleet.observed_since = None;
            self.fleet.next_allocation = now + periodic.first;
        }
    }

    /// A request was let in: whoever decides once in a while may be due, and must be woken while anybody is inside.
    pub(super) fn fleet_arrived(&mut self, now: Time, commands: &mut Commands) {
        if let Some(scaler) = &mut self.fleet.scaler {
            scaler.arrived();
        }
        if !self.fleet.armed && self.fleet.due().is_some() {
            self.fleet_decisions(now, commands);
        }
    }

    pub(super) fn fleet_timer(&mut self, now: Time, commands: &mut Commands) {
        self.fleet.armed = false;
        self.fleet_decisions(now, commands);
    }

    /// What was due while nobody was inside, at the times when it was: no timer is set then, so that a run ends with
    /// its last request. Cards are given back as ever, and none is added, since nobody is kept waiting. What was due
    /// last is decided with whoever has come.
    pub(super) fn fleet_idled(&mut self, now: Time, somebody_comes: bool, commands: &mut Commands) {
        while let Some(at) = self.fleet.scaler.as_ref().and_then(|scaler| scaler.missed(now, somebody_comes)) {
            let asked = Asked {
                cards: self.fleet.cards,
                inside: false,
                waiting: 0,
            };
            let may_go = self.least_busy_card().is_some();
            let scaler = self.fleet.scaler.as_mut().expect("it has missed something");
            if !may_go || !scaler.may_release(asked) {
                scaler.pass_silence(now, asked, somebody_comes);
            } else if scaler.releases_in_silence(asked) {
                self.release_card(at, commands);
            } else {
                scaler.pass_until_release(now, asked, somebody_comes);
            }
        }
    }

    /// Decides what is due, and sets the next timer, while anybody is inside.
    fn fleet_decisions(&mut self, now: Time, commands: &mut Commands) {
        if self.requests.is_empty() {
            return;
        }
        if let Some(periodic) = self.fleet.periodic
            && now >= self.fleet.next_allocation
        {
            while self.fleet.next_allocation <= now {
                self.fleet.next_allocation += periodic.period;
            }
            self.ask(now, periodic, commands);
        }
        self.scale(now, commands);
        if let Some(at) = self.fleet.due() {
            self.fleet.armed = true;
            commands.list.push(Command::SetTimer { instance: FLEET, at });
        }
    }

    /// Whether what is counted of the fleet is so, and somebody serves each stream's longest runtime (Eq. 7).
    pub(super) fn check_fleet(&self) -> Result<(), String> {
        for number in self.longest() {
            let serving = State::Serving(self.runtime(number));
            if self.instances.iter().all(|instance| instance.state != serving) {
                return Err(format!("nobody serves runtime {number}, the longest of its stream"));
            }
        }
        let replaced = self.instances.iter().filter(|instance| instance.replaced).count();
        if replaced != self.fleet.changing as usize {
            return Err(format!(
                "{replaced} instances are being replaced, not {}",
                self.fleet.changing
            ));
        }
        let cards = self.gpus().filter(|&gpu| self.on_gpu(gpu).any(|on| self.instances[on].state != State::Off));
        let cards = cards.count();
        if cards != self.fleet.cards as usize {
            return Err(format!("{cards} cards are used, not {}", self.fleet.cards));
        }
        in_order(&self.fleet.counts.allocations)
    }
}
