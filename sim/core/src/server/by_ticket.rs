//! Who is inside, also found by the workload's tickets: clients that give up know no other name.

use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};

use tenantry_traces::Ticket;

use crate::slab::{Handle, Slab};

/// What a request's client calls it.
pub(crate) trait Ticketed {
    fn ticket(&self) -> Ticket;
}

/// A slab whose values are found by their tickets. Nothing is kept for that until somebody is looked for: in most
/// workloads nobody gives up.
#[derive(Debug)]
pub(crate) struct ByTicket<H, T> {
    slab: Slab<H, T>,
    /// Tickets with their slots.
    slots: Option<BTreeSet<(Ticket, u32)>>,
}

impl<H, T> Default for ByTicket<H, T> {
    fn default() -> Self {
        ByTicket {
            slab: Slab::default(),
            slots: None,
        }
    }
}

impl<H: Handle, T: Ticketed> ByTicket<H, T> {
    /// As [`Slab::insert`].
    #[inline]
    pub fn insert(&mut self, value: T) -> H {
        let ticket = value.ticket();
        let handle = self.slab.insert(value);
        if let Some(slots) = &mut self.slots {
            slots.insert((ticket, handle.slot() as u32));
        }
        handle
    }

    /// As [`Slab::remove`].
    #[inline]
    pub fn remove(&mut self, handle: H) -> Option<T> {
        self.forget(handle);
        self.slab.remove(handle)
    }

    /// As [`Slab::discard`].
    #[inline]
    #[track_caller]
    pub fn discard(&mut self, handle: H) {
        self.forget(handle);
        self.slab.discard(handle);
    }

    #[inline]
    fn forget(&mut self, handle: H) {
        if let Some(slots) = &mut self.slots
            && let Some(value) = self.slab.get(handle)
        {
            slots.remove(&(value.ticket(), handle.slot() as u32));
        }
    }

    /// All that have a ticket, by slot.
    pub fn with_ticket(&mut self, ticket: Ticket) -> impl Iterator<Item = H> {
        let slab = &self.slab;
        let index = || slab.iter().map(|(handle, value)| (value.ticket(), handle.slot() as u32));
        let slots = self.slots.get_or_insert_with(|| index().collect());
        let of_ticket = slots.range((ticket, 0)..=(ticket, u32::MAX));
        of_ticket.map(|&(_, slot)| slab.in_slot(slot).0)
    }
}

impl<H, T> Deref for ByTicket<H, T> {
    type Target = Slab<H, T>;
    #[inline]
    fn deref(&self) -> &Slab<H, T> {
        &self.slab
    }
}

impl<H, T> DerefMut for ByTicket<H, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Slab<H, T> {
        &mut self.slab
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::RequestId;

    impl Ticketed for (Ticket, char) {
        fn ticket(&self) -> Ticket {
            self.0
        }
    }

    proptest::proptest! {
        /// Whatever came and went before and after somebody was first looked for.
        #[test]
        fn whoever_is_there_is_found(
            steps in proptest::collection::vec((0u64..6, proptest::bool::ANY), 1..60), looks_from in 0usize..60,
        ) {
            let mut slab: ByTicket<RequestId, (Ticket, char)> = ByTicket::default();
            let mut there: Vec<RequestId> = Vec::new();
            for (step, (ticket, leaves)) in steps.into_iter().enumerate() {
                match there.iter().position(|&id| slab[id].0 == ticket).filter(|_| leaves) {
                    Some(at) if step % 2 == 0 => slab.discard(there.remove(at)),
                    Some(at) => drop(slab.remove(there.remove(at))),
                    None => there.push(slab.insert((ticket, 'a'))),
                }
                if step >= looks_from {
                    let mut expected: Vec<RequestId> =
                        there.iter().copied().filter(|&id| slab[id].0 == ticket).collect();
                    expected.sort_unstable_by_key(|id| id.slot);
                    let found: Vec<RequestId> = slab.with_ticket(ticket).collect();
                    proptest::prop_assert_eq!(found, expected);
                }
            }
        }
    }
}
