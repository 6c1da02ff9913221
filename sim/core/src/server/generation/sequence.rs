//! A request on its way through generation, and the queue in which it waits for an instance.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tenantry_traces::{Duration, Request, Ticket, Time};

use super::asking::ASKS_IN_TURN;
use super::generating::Progress;
use super::memory::Left;
use crate::command::FailureReason;
use crate::ids::{BatchId, InstanceId, RequestId};
use crate::op::{NO_SLOT, SharedPrefix};
use crate::policy::fairness::Counters;
use crate::server::by_ticket::{ByTicket, Ticketed};
use crate::spec::{GenerationSpec, JoinSpec, QueueSpec};

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the queue of all instances.
    Queue,
    /// On an instance.
    Instance(InstanceId),
}

/// How far the look-up of a prompt has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retrieval {
    /// None was asked for.
    None,
    /// It is under way.
    Coming(BatchId),
    /// What it found lies on the instance.
    There,
}

/// Where a prompt's keys and values are on their way from the card that took it in to the one that goes on from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transferred {
    /// They are where they were made.
    No,
    /// They wait there for a card that has room.
    Parked,
    /// They are being copied.
    Coming,
    /// They have been.
    There,
}

/// A request inside the server. What changes with each step is known here up to the one that completed its prompt: see
/// [`super::generating`].
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    pub ticket: Ticket,
    pub tenant: u32,
    pub class: u16,
    pub arrival: Time,
    pub prompt_tokens: u32,
    /// Hidden from policies: only machines are told.
    pub output_tokens: u32,
    pub generated_tokens: u32,
    pub cached_tokens: u32,
    /// Tokens that must still come into the cache before it generates again: of its prompt and, after an eviction, of
    /// what it had generated.
    pub to_prefill: u32,
    /// Whether its tenant has paid for its prompt, where tenants have turns.
    pub charged: bool,
    /// What of that the step under way takes.
    pub chunk_tokens: u32,
    /// Of its instance's cache: its own.
    pub pages: u32,
    /// What it reads, and perhaps computes, of its tenant's.
    pub prefix: Option<SharedPrefix>,
    /// What it left on the instance where it last was, and how many tokens were cached there.
    pub left: Option<(InstanceId, Left, u32)>,
    /// How often its tenant's parameters had been renewed when it was last placed: keys and values are of those.
    pub version: u32,
    pub slot: u32,
    /// The look-up of its prompt for the instance where it is, where that is not part of its first step.
    pub retrieval: Retrieval,
    pub transferred: Transferred,
    /// What went wrong while its keys and values were being copied: it leaves when they are there.
    pub failed: Option<FailureReason>,
    pub place: Place,
    /// Whether its first step on this instance is over or under way.
    pub started: bool,
    /// Whether it waits since its instance was emptied.
    pub is_moved: bool,
    /// The last that it has asked whether it has room.
    pub asked: Option<InstanceId>,
    /// Its tenant's turn, which it has taken by asking: before later ones and all that have none, until it is placed.
    pub turn: Option<Turn>,
    /// How far its instance was when its prompt was complete; until then, of no meaning.
    pub since: Progress,
    /// Where it has its last token and waits for others of its batch: what it makes meanwhile is nobody's.
    pub ended: Option<Made>,
    pub cancelled: bool,
    pub first_token: Option<Time>,
    /// When it made its last token before it left the instance where it then was.
    pub last_token: Option<Time>,
    /// The longest time from one of its tokens to the next.
    pub longest_gap: Duration,
    /// Since when it is in the queue.
    pub queued_since: Time,
    pub queued: Duration,
    pub computed: Duration,
    pub told: Duration,
    /// Requests that ran beside it at most, itself included.
    pub batch_requests: u32,
}

impl Sequence {
    pub fn new(request: &Request, now: Time) -> Sequence {
        Sequence {
            ticket: request.ticket,
            tenant: request.tenant,
            class: request.class,
            arrival: request.arrival,
            prompt_tokens: request.input_tokens,
            output_tokens: request.output_tokens.max(1),
            generated_tokens: 0,
            cached_tokens: 0,
            to_prefill: request.input_tokens,
            charged: false,
            chunk_tokens: 0,
            pages: 0,
            prefix: None,
            left: None,
            version: 0,
            slot: NO_SLOT,
            retrieval: Retrieval::None,
            transferred: Transferred::No,
            failed: None,
            place: Place::Queue,
            started: false,
            is_moved: false,
            asked: None,
            turn: None,
            since: Progress::default(),
            ended: None,
            cancelled: false,
            first_token: None,
            last_token: None,
            longest_gap: Duration::ZERO,
            queued_since: now,
            queued: now.since(request.arrival),
            computed: Duration::ZERO,
            told: Duration::ZERO,
            batch_requests: 0,
        }
    }

    /// Pages that are not its own.
    pub fn shared_pages(&self) -> u32 {
        self.prefix.map_or(0, |prefix| prefix.pages)
    }

    /// Whether all that its first step needs has come; `copies` are those under way into each slot.
    pub fn is_ready(&self, copies: &[u32]) -> bool {
        let retrieved = !matches!(self.retrieval, Retrieval::Coming(_));
        let transferred = self.transferred != Transferred::Coming;
        retrieved && transferred && (self.slot == NO_SLOT || copies[self.slot as usize] == 0)
    }

    /// Tokens that it needs room for on an instance that takes it, if it begins with nothing there.
    pub fn tokens(&self) -> u32 {
        self.prompt_tokens + self.generated_tokens
    }

    /// Whether it is in the next run of its instance, or the one under way: not while others' prompts come first.
    pub fn takes_part(&self) -> bool {
        self.to_prefill == 0 || self.chunk_tokens > 0
    }

    /// Its place in the order of arrival.
    pub fn order(&self) -> (Time, Ticket) {
        (self.arrival, self.ticket)
    }

    /// Whether all others wait with it for an instance's answer.
    pub fn holds_others_up(&self) -> bool {
        self.turn.is_some_and(|turn| turn.asks >= ASKS_IN_TURN)
    }

    /// What it is known by among those that wait in that order.
    pub fn waiting(&self, id: RequestId) -> (Time, Ticket, RequestId) {
        (self.arrival, self.ticket, id)
    }

    /// What it is known by among those that are parked, in the order in which they came to be. Prompts were taken in in
    /// the order that the queue has, which need not be that of arrival.
    pub fn parked(&self, id: RequestId) -> (Time, Ticket, RequestId) {
        (self.queued_since, self.ticket, id)
    }
}

/// What a request had made when it had its last token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    pub tokens: u32,
    /// The longest time from one of them to the next.
    pub longest_gap: Duration,
}

/// A tenant's turn that a request has taken by asking an instance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    number: u64,
    /// Runs whose ends it has waited for.
    pub asks: u8,
}

impl Ticketed for Sequence {
    #[inline]
    fn ticket(&self) -> Ticket {
        self.ticket
    }
}

pub(super) type Sequences = ByTicket<RequestId, Sequence>;

/// Requests that wait for an instance, in order of arrival, also those that were evicted from one.
#[derive(Debug)]
pub(super) struct Queue {
    /// But those that have asked one, or were given their turn.
    all: VecDeque<(Time, Ticket, RequestId)>,
    /// The same, kept where a policy looks at tenants.
    by_tenant: Option<BTreeSet<(u32, Time, Ticket, RequestId)>>,
    asking: u32,
    /// They have asked one in their tenant's turn, and wait again, before all others: by the turn's number, with the
    /// tenant.
    turns: BTreeMap<u64, (u32, RequestId)>,
    /// Turns that were taken by asking.
    turns_taken: u64,
    /// Whose turn it is, where that is not by arrival.
    pub counters: Option<Counters>,
}

impl Queue {
    pub fn new(spec: &GenerationSpec, tenants: u32) -> Queue {
        let counters = match spec.queue {
            QueueSpec::Arrival => None,
            QueueSpec::VirtualTokenCounter(weights) => Some(Counters::new(weights, tenants)),
        };
        let looks_at_tenants = counters.is_some() || spec.join == JoinSpec::QueuePerTenant;
        Queue {
            all: VecDeque::new(),
            by_tenant: looks_at_tenants.then(BTreeSet::new),
            asking: 0,
            turns: BTreeMap::new(),
            turns_taken: 0,
            counters,
        }
    }

    pub fn len(&self) -> u32 {
        (self.all.len() + self.turns.len()) as u32 + self.asking
    }

    /// How many have asked an instance.
    pub fn asking(&self) -> u32 {
        self.asking
    }

    pub fn push(&mut self, id: RequestId, sequence: &Sequence) {
        if self.counters.is_some() && self.first_of(sequence.tenant).is_none() {
            self.count(|counters| counters.begins_to_wait(sequence.tenant));
        }
        self.enter(id, sequence);
    }

    pub fn remove(&mut self, id: RequestId, sequence: &Sequence) {
        if let Some(turn) = sequence.turn {
            self.turns.remove(&turn.number);
            return;
        }
        self.take_out(id, sequence);
        if self.counters.is_some() && self.first_of(sequence.tenant).is_none() {
            self.count(|counters| counters.waits_no_more(sequence.tenant));
        }
    }

    /// A request is given its turn: its tenant pays for the prompt, once.
    pub fn charge(&mut self, sequence: &mut Sequence) {
        if !std::mem::replace(&mut sequence.charged, true) {
            let (tenant, prompt_tokens) = (sequence.tenant, sequence.prompt_tokens);
            self.count(|counters| counters.serve(tenant, prompt_tokens, 0));
        }
    }

    /// A request waits for an instance's answer, and for nobody before it. That was its tenant's turn, which is paid
    /// for whatever comes of it; the tenant counts as waiting while it has others in the queue.
    pub fn ask(&mut self, id: RequestId, sequence: &mut Sequence) {
        self.remove(id, sequence);
        self.asking += 1;
        if self.counters.is_some() && sequence.turn.is_none() {
            self.charge(sequence);
            sequence.turn = Some(Turn {
                number: self.turns_taken,
                asks: 0,
            });
            self.turns_taken += 1;
        }
    }

    /// A request that has asked waits again.
    pub fn ask_no_more(&mut self, id: RequestId, sequence: &Sequence) {
        self.asking -= 1;
        match sequence.turn {
            Some(turn) => _ = self.turns.insert(turn.number, (sequence.tenant, id)),
            None => self.enter(id, sequence),
        }
    }

    fn enter(&mut self, id: RequestId, sequence: &Sequence) {
        let entry = sequence.waiting(id);
        // Nearly all come in order. Who was evicted goes back to among the first.
        match self.all.back().is_none_or(|last| *last < entry) {
            true => self.all.push_back(entry),
            false => {
                let at = self.all.partition_point(|other| *other < entry);
                self.all.insert(at, entry);
            }
        }
        if let Some(by_tenant) = &mut self.by_tenant {
            by_tenant.insert((sequence.tenant, sequence.arrival, sequence.ticket, id));
        }
    }

    fn take_out(&mut self, id: RequestId, sequence: &Sequence) {
        match self.all.front() {
            Some(&(.., first)) if first == id => drop(self.all.pop_front()),
            _ => {
                let at = self.all.binary_search(&sequence.waiting(id));
                self.all.remove(at.expect("a request that waits is in the queue"));
            }
        }
        if let Some(by_tenant) = &mut self.by_tenant {
            by_tenant.remove(&(sequence.tenant, sequence.arrival, sequence.ticket, id));
        }
    }

    /// In weighted tokens, what a tenant was served; where turns go by arrival that counts for nothing.
    pub fn served(&self, tenant: u32) -> u64 {
        self.counters.as_ref().map_or(0, |counters| counters.of(tenant))
    }

    /// Tells the counters, where there are any.
    pub fn count(&mut self, tell: impl FnOnce(&mut Counters)) {
        if let Some(counters) = &mut self.counters {
            tell(counters);
        }
    }

    /// Whether a request waits here, and has not asked an instance; for tests.
    pub fn holds(&self, id: RequestId, sequence: &Sequence) -> bool {
        let has_turn = sequence.turn.is_some_and(|turn| self.turns.contains_key(&turn.number));
        has_turn || self.all.binary_search(&sequence.waiting(id)).is_ok()
    }

    /// Whether nobody waits who has not asked an instance.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty() && self.turns.is_empty()
    }

    /// Who is next.
    #[inline]
    pub fn first(&self) -> Option<RequestId> {
        match &self.counters {
            None => self.all.front().map(|&(_, _, id)| id),
            Some(counters) => match self.turns.first_key_value() {
                Some((_, &(_, id))) => Some(id),
                None => self.first_of(counters.next()?),
            },
        }
    }

    /// Who is next of a tenant.
    pub fn next_of(&self, tenant: u32) -> Option<RequestId> {
        let mut turns = self.turns.values();
        let has_turn = turns.find(|&&(of, _)| of == tenant).map(|&(_, id)| id);
        has_turn.or_else(|| self.first_of(tenant))
    }

    /// The oldest of a tenant, of those that wait for their turn.
    fn first_of(&self, tenant: u32) -> Option<RequestId> {
        let by_tenant = self.by_tenant.as_ref()?;
        let from = (tenant, Time::ZERO, 0, RequestId { slot: 0, generation: 0 });
        by_tenant.range(from..).next().filter(|(of, ..)| *of == tenant).map(|&(_, _, _, id)| id)
    }
}
