//! Requests that wait on an instance: in order of arrival, and, where the batch policy asks for it, by tenant too.
//!
//! The links live beside the requests, so that a request is taken from the middle in constant time and 10,000 tenants
//! cost eight bytes each.

use tenantry_traces::{Duration, Ticket, Time};

use super::by_ticket::{ByTicket, Ticketed};
use crate::command::{Finish, Verdict, Waits};
use crate::ids::RequestId;

/// Links of one list: slots of the request slab, in which all who wait are. A slot alone says who it is, and three
/// numbers fewer keep a request in one cache line.
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

    /// Between who came before it or with it and who came later: mostly nobody did. Else its place is looked for from
    /// `near` on, one of the list, or from the end.
    fn insert(
        &mut self,
        requests: &mut Requests,
        links: impl Fn(&mut InFlight) -> &mut Links,
        slot: u32,
        near: Option<u32>,
    ) {
        let arrival = requests.in_slot_mut(slot).arrival;
        let came_later = |requests: &mut Requests, other: u32| requests.in_slot_mut(other).arrival > arrival;
        if self.last == NOBODY || !came_later(requests, self.last) {
            return self.push(requests, links, slot);
        }
        let mut next = near.unwrap_or(self.last);
        // Somebody came later: the last at the latest.
        while !came_later(requests, next) {
            next = links(requests.in_slot_mut(next)).next;
        }
        let mut previous = links(requests.in_slot_mut(next)).previous;
        while previous != NOBODY && came_later(requests, previous) {
            (previous, next) = (links(requests.in_slot_mut(previous)).previous, previous);
        }
        *links(requests.in_slot_mut(slot)) = Links { previous, next };
        links(requests.in_slot_mut(next)).previous = slot;
        match previous {
            NOBODY => self.first = slot,
            previous => links(requests.in_slot_mut(previous)).next = slot,
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
    /// Who took a place last, or who came next to it: lines are dispatched anew in order, so that the next place is
    /// near.
    near: u32,
    len: u32,
}

impl Queue {
    /// `tenants` is 0 where the batch policy does not look at tenants.
    pub fn new(tenants: u32) -> Queue {
        Queue {
            all: EMPTY,
            by_tenant: vec![EMPTY; tenants as usize],
            near: NOBODY,
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
        let tenant = requests[id].tenant;
        let near = (self.near != NOBODY).then_some(self.near);
        self.all.insert(requests, |r| &mut r.in_queue, id.slot, near);
        if let Some(ends) = self.by_tenant.get_mut(tenant as usize) {
            let near = near.filter(|&near| requests.in_slot_mut(near).tenant == tenant);
            ends.insert(requests, |r| &mut r.in_tenant, id.slot, near);
        }
        self.near = id.slot;
        self.len += 1;
    }

    #[inline(always)]
    pub fn remove(&mut self, requests: &mut Requests, id: RequestId) {
        let tenant = requests[id].tenant as usize;
        if self.near == id.slot {
            let Links { previous, next } = requests.in_slot_mut(id.slot).in_queue;
            self.near = if next == NOBODY { previous } else { next };
        }
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
        let first = self.queue.by_tenant.get(tenant as usize).map_or(NOBODY, |ends| ends.first);
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
            assert_eq!(request.batch, None, "requests in the queue do not run (slot {slot})");
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::InstanceId;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        /// A request comes.
        Push { tenant: u32 },
        /// One that came so many before the last takes its place.
        Insert { tenant: u32, before: u64 },
        /// The one at this place, counted round, leaves.
        Remove { place: usize },
    }

    const TENANTS: u32 = 3;

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let one = prop_oneof![
            2 => (0..TENANTS).prop_map(|tenant| Step::Push { tenant }),
            3 => (0..TENANTS, 0u64..12).prop_map(|(tenant, before)| Step::Insert { tenant, before }),
            2 => any::<usize>().prop_map(|place| Step::Remove { place }),
        ];
        proptest::collection::vec(one, 0..120)
    }

    fn tickets(line: impl Iterator<Item = Waiting>, requests: &Requests) -> Vec<u64> {
        line.map(|waiting| requests[waiting.id].ticket).collect()
    }

    proptest! {
        /// Beside a list that is sorted by arrival, of those that came together by when they took their place.
        #[test]
        fn who_takes_a_place_stands_between_who_came_before_and_after(steps in steps()) {
            let mut requests = Requests::default();
            let mut queue = Queue::new(TENANTS);
            let mut list: Vec<(u64, u64, u32, RequestId)> = Vec::new();
            let mut last = 20;
            for (ticket, step) in steps.into_iter().enumerate() {
                let ticket = ticket as u64;
                let mut enter = |at: u64, tenant: u32| {
                    let request = tenantry_traces::Request {
                        ticket,
                        tenant,
                        arrival: Time(at),
                        input_tokens: 1,
                        output_tokens: 0,
                        class: 0,
                    };
                    let id = requests.insert(InFlight::new(&request, InstanceId(0)));
                    let place = list.partition_point(|&(other, ..)| other <= at);
                    list.insert(place, (at, ticket, tenant, id));
                    id
                };
                match step {
                    Step::Push { tenant } => {
                        last += 1;
                        let id = enter(last, tenant);
                        queue.push(&mut requests, id);
                    }
                    Step::Insert { tenant, before } => {
                        let id = enter(last - before.min(last), tenant);
                        queue.insert(&mut requests, id);
                    }
                    Step::Remove { .. } if list.is_empty() => continue,
                    Step::Remove { place } => {
                        let (.., id) = list.remove(place % list.len());
                        queue.remove(&mut requests, id);
                        requests.remove(id);
                    }
                }
                let view = queue.view(&requests);
                prop_assert_eq!(view.len() as usize, list.len());
                let all: Vec<u64> = list.iter().map(|&(_, ticket, ..)| ticket).collect();
                prop_assert_eq!(tickets(view.iter(), &requests), all);
                for tenant in 0..TENANTS {
                    let of_tenant = list.iter().filter(|&&(_, _, of, _)| of == tenant);
                    let of_tenant: Vec<u64> = of_tenant.map(|&(_, ticket, ..)| ticket).collect();
                    prop_assert_eq!(tickets(view.of_tenant(tenant), &requests), of_tenant);
                }
            }
        }
    }
}
