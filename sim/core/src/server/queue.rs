//! Requests that wait on an instance: in order of arrival, and, where the batch policy asks for it, by tenant too.
//!
//! The links live beside the requests, so that a request is taken from the middle in constant time and 10,000 tenants cost
//! eight bytes each.

use tenantry_traces::{Duration, Ticket, Time};

use super::by_ticket::{ByTicket, Ticketed};
use crate::command::{Finish, Verdict, Waits};
use crate::ids::RequestId;

/// Links of one list: slots of the request slab, in which all who wait are. A slot alone says who it is, and three numbers fewer keep a
/// request in one cache line.
#[derive(Clone, Copy, Debug)]
struct Links {
    previous: u32,
    next: u32,
}

/// No slot.
const NOBODY: u32 = u32::MAX;

const UNLINKED: Links = Links {
    previous: NOBODY,
    next: NOBODY,
};

/// A request inside the server.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    pub ticket: u64,
    pub tenant: u32,
    pub class: u16,
    pub arrival: Time,
    pub input_tokens: u32,
    pub instance: crate::ids::InstanceId,
    /// Its batch, once it runs.
    pub batch: Option<crate::ids::BatchId>,
    /// Its client gave up while it ran.
    pub cancelled: bool,
    in_queue: Links,
    in_tenant: Links,
}

impl InFlight {
    pub fn new(request: &tenantry_traces::Request, instance: crate::ids::InstanceId) -> InFlight {
        InFlight {
            ticket: request.ticket,
            tenant: request.tenant,
            class: request.class,
            arrival: request.arrival,
            input_tokens: request.input_tokens,
            instance,
            batch: None,
            cancelled: false,
            in_queue: UNLINKED,
            in_tenant: UNLINKED,
        }
    }

    /// What the request leaves by, `id` being what it was known by.
    pub fn finish(&self, id: RequestId, verdict: Verdict, waits: Waits, batch_requests: u32) -> Finish {
        Finish {
            request: Some(id),
            ticket: self.ticket,
            tenant: self.tenant,
            class: self.class,
            arrival: self.arrival,
            input_tokens: self.input_tokens,
            batch_requests,
            output_tokens: 0,
            first_token: None,
            longest_gap: Duration::ZERO,
            verdict,
            waits,
            returned: None,
        }
    }
}

impl Ticketed for InFlight {
    #[inline]
    fn ticket(&self) -> Ticket {
        self.ticket
    }
}

pub(crate) type Requests = ByTicket<RequestId, InFlight>;

/// The first and the last of a list, by slot.
#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u32,
    last: u32,
}

const EMPTY: Ends = Ends {
    first: NOBODY,
    last: NOBODY,
};

impl Ends {
    #[inline]
    fn push(&mut self, requests: &mut Requests, links: impl Fn(&mut InFlight) -> &mut Links, slot: u32) {
        *links(requests.in_slot_mut(slot)) = Links {
            previous: self.last,
            next: NOBODY,
        };
        match self.last {
            NOBODY => self.first = slot,
            last => links(requests.in_slot_mut(last)).next = slot,
        }
        self.last = slot;
    }

    /// Before those that came later, from the end on, where mostly none did.
    fn insert(&mut self, requests: &mut Requests, links: impl Fn(&mut InFlight) -> &mut Links, slot: u32) {
        let arrival = requests.in_slot_mut(slot).arrival;
        let (mut previous, mut next) = (self.last, NOBODY);
        while previous != NOBODY && requests.in_slot_mut(previous).arrival > arrival {
            next = previous;
            previous = links(requests.in_slot_mut(previous)).previous;
        }
        *links(requests.in_slot_mut(slot)) = Links { previous, next };
        match previous {
            NOBODY => self.first = slot,
            previous => links(requests.in_slot_mut(previous)).next = slot,
        }
        match next {
            NOBODY => self.last = slot,
            next => links(requests.in_slot_mut(next)).previous = slot,
        }
    }

    #[inline]
    fn unlink(&mut self, requests: &mut Requests, links: impl Fn(&mut InFlight) -> &mut Links, slot: u32) {
        let Links { previous, next } = *links(requests.in_slot_mut(slot));
        match previous {
            NOBODY => self.first = next,
            previous => links(requests.in_slot_mut(previous)).next = next,
        }
        match next {
            NOBODY => self.last = previous,
            next => links(requests.in_slot_mut(next)).previous = previous,
        }
    }
}

/// The queue of one instance.
#[derive(Debug)]
pub(crate) struct Queue {
    all: Ends,
    /// By tenant; empty where the batch policy does not look at tenants.
    by_tenant: Vec<Ends>,
    len: u32,
}

impl Queue {
    /// `tenants` is 0 where the batch policy does not look at tenants.
    pub fn new(tenants: u32) -> Queue {
        Queue {
            all: EMPTY,
            by_tenant: vec![EMPTY; tenants as usize],
            len: 0,
        }
    }

    /// What policies see of it.
    #[inline]
    pub fn view<'a>(&'a self, requests: &'a Requests) -> QueueView<'a> {
        QueueView { requests, queue: self }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline(always)]
    pub fn push(&mut self, requests: &mut Requests, id: RequestId) {
        let tenant = requests[id].tenant as usize;
        self.all.push(requests, |r| &mut r.in_queue, id.slot);
        if let Some(ends) = self.by_tenant.get_mut(tenant) {
            ends.push(requests, |r| &mut r.in_tenant, id.slot);
        }
        self.len += 1;
    }

    /// A request that has waited elsewhere takes its place among those that came before and after it.
    pub fn insert(&mut self, requests: &mut Requests, id: RequestId) {
        let tenant = requests[id].tenant as usize;
        self.all.insert(requests, |r| &mut r.in_queue, id.slot);
        if let Some(ends) = self.by_tenant.get_mut(tenant) {
            ends.insert(requests, |r| &mut r.in_tenant, id.slot);
        }
        self.len += 1;
    }

    #[inline(always)]
    pub fn remove(&mut self, requests: &mut Requests, id: RequestId) {
        let tenant = requests[id].tenant as usize;
        self.all.unlink(requests, |r| &mut r.in_queue, id.slot);
        if let Some(ends) = self.by_tenant.get_mut(tenant) {
            ends.unlink(requests, |r| &mut r.in_tenant, id.slot);
        }
        self.len -= 1;
    }
}

/// A request that waits, as batch policies see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The handle to put into a batch.
    pub id: RequestId,
    /// Whose it is.
    pub tenant: u32,
    /// When it came.
    pub arrival: Time,
    /// Its length.
    pub input_tokens: u32,
}

/// What a batch policy sees of an instance's queue. Read-only.
#[derive(Clone, Copy, Debug)]
pub struct QueueView<'a> {
    pub(crate) requests: &'a Requests,
    pub(crate) queue: &'a Queue,
}

impl<'a> QueueView<'a> {
    /// How many wait.
    pub fn len(&self) -> u32 {
        self.queue.len
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.queue.len == 0
    }

    /// The one that has waited longest.
    pub fn oldest(&self) -> Option<Waiting> {
        self.iter().next()
    }

    /// All, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = Waiting> + use<'a> {
        self.list(self.queue.all.first, |r| r.in_queue.next)
    }

    /// A tenant's, oldest first. Empty unless the policy has said that it looks at tenants.
    pub fn of_tenant(&self, tenant: u32) -> impl Iterator<Item = Waiting> + use<'a> {
        let first = self
            .queue
            .by_tenant
            .get(tenant as usize)
            .map_or(NOBODY, |ends| ends.first);
        self.list(first, |r| r.in_tenant.next)
    }

    #[inline]
    fn list<N: Fn(&InFlight) -> u32>(&self, first: u32, next: N) -> impl Iterator<Item = Waiting> + use<'a, N> {
        let requests = self.requests;
        let mut slot = first;
        std::iter::from_fn(move || {
            if slot == NOBODY {
                return None;
            }
            let (id, request) = requests.in_slot(slot);
            debug_assert_eq!(request.batch, None, "requests in the queue do not run (slot {slot})");
            slot = next(request);
            Some(Waiting {
                id,
                tenant: request.tenant,
                arrival: request.arrival,
                input_tokens: request.input_tokens,
            })
        })
    }
}
