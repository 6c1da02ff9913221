//! Requests that wait on an instance: in order of arrival, and, where the batch policy asks for it, by tenant too.
//!
//! The links live beside the requests, so that a request is taken from the middle in constant time and 10,000 tenants cost
//! eight bytes each.

use tenantry_traces::Time;

use crate::command::{Finish, Verdict, Waits};
use crate::ids::RequestId;
use crate::slab::{Handle, Slab};

/// Links of one list; slots of the request slab.
#[derive(Clone, Copy, Debug, Default)]
struct Links {
    previous: Option<RequestId>,
    next: Option<RequestId>,
}

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
            in_queue: Links::default(),
            in_tenant: Links::default(),
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
            verdict,
            waits,
            returned: None,
        }
    }
}

pub(crate) type Requests = Slab<RequestId, InFlight>;

#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    first: Option<RequestId>,
    last: Option<RequestId>,
}

impl Ends {
    fn push(&mut self, requests: &mut Requests, links: fn(&mut InFlight) -> &mut Links, id: RequestId) {
        *links(&mut requests[id]) = Links {
            previous: self.last,
            next: None,
        };
        match self.last {
            Some(last) => links(&mut requests[last]).next = Some(id),
            None => self.first = Some(id),
        }
        self.last = Some(id);
    }

    fn unlink(&mut self, requests: &mut Requests, links: fn(&mut InFlight) -> &mut Links, id: RequestId) {
        let Links { previous, next } = *links(&mut requests[id]);
        match previous {
            Some(previous) => links(&mut requests[previous]).next = next,
            None => self.first = next,
        }
        match next {
            Some(next) => links(&mut requests[next]).previous = previous,
            None => self.last = previous,
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
            all: Ends::default(),
            by_tenant: vec![Ends::default(); tenants as usize],
            len: 0,
        }
    }

    pub fn push(&mut self, requests: &mut Requests, id: RequestId) {
        self.all.push(requests, |r| &mut r.in_queue, id);
        let tenant = requests[id].tenant as usize;
        if let Some(ends) = self.by_tenant.get_mut(tenant) {
            ends.push(requests, |r| &mut r.in_tenant, id);
        }
        self.len += 1;
    }

    pub fn remove(&mut self, requests: &mut Requests, id: RequestId) {
        self.all.unlink(requests, |r| &mut r.in_queue, id);
        let tenant = requests[id].tenant as usize;
        if let Some(ends) = self.by_tenant.get_mut(tenant) {
            ends.unlink(requests, |r| &mut r.in_tenant, id);
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
        self.queue.all.first.map(|id| self.waiting(id))
    }

    /// All, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = Waiting> + use<'a> {
        self.list(self.queue.all.first, |r| r.in_queue.next)
    }

    /// A tenant's, oldest first. Empty unless the policy has said that it looks at tenants.
    pub fn of_tenant(&self, tenant: u32) -> impl Iterator<Item = Waiting> + use<'a> {
        let first = self.queue.by_tenant.get(tenant as usize).and_then(|ends| ends.first);
        self.list(first, |r| r.in_tenant.next)
    }

    fn list(
        &self,
        first: Option<RequestId>,
        next: fn(&InFlight) -> Option<RequestId>,
    ) -> impl Iterator<Item = Waiting> + use<'a> {
        let view = *self;
        std::iter::successors(first, move |&id| next(&view.requests[id])).map(move |id| view.waiting(id))
    }

    fn waiting(&self, id: RequestId) -> Waiting {
        let request = &self.requests[id];
        debug_assert_eq!(
            request.batch,
            None,
            "requests in the queue do not run (slot {})",
            id.slot()
        );
        Waiting {
            id,
            tenant: request.tenant,
            arrival: request.arrival,
            input_tokens: request.input_tokens,
        }
    }
}
