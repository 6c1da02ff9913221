//! Which tenants' parameters are on the card: slots of one size, filled on demand, emptied by use.

use std::collections::BTreeSet;

use crate::op::NO_SLOT;
use crate::spec::SwapSpec;

/// Whose a slot is that nobody finds any more, though batches still use it.
const NOBODY: u32 = u32::MAX;

/// A slot that no batch uses is evictable; one in use is pinned by every batch that uses it.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    tenant: u32,
    pins: u32,
    /// Of [`Recency`]: towards the less recently used; meaningful only while unpinned.
    older: u32,
    /// Towards the more recently used.
    newer: u32,
    /// Of [`Frequency`]: when it was last let go.
    released: u64,
}

impl std::ops::Add for SwapCounts {
    type Output = SwapCounts;

    fn add(self, other: SwapCounts) -> SwapCounts {
        SwapCounts {
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
            evictions: self.evictions + other.evictions,
            bytes_in: self.bytes_in + other.bytes_in,
        }
    }
}

/// What asking for a tenant's slot brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// Already there.
    Hit(u32),
    /// To be loaded into this slot.
    Miss(u32),
    /// All slots are in use by batches that run.
    Full,
}

/// Counters of swapping, by a tenant's presence in a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwapCounts {
    /// Was on the card.
    pub hits: u64,
    /// Had to come in.
    pub misses: u64,
    /// Left for another.
    pub evictions: u64,
    /// Bytes that came in.
    pub bytes_in: u64,
}

/// Unpinned slots, in a list from the least to the most recently used.
#[derive(Debug)]
struct Recency {
    least: u32,
    most: u32,
}

/// Unpinned slots by their tenants' batches since the start, then by when they were let go.
#[derive(Debug)]
struct Frequency {
    /// By tenant.
    batches: Vec<u32>,
    releases: u64,
    unpinned: BTreeSet<(u32, u64, u32)>,
}

#[derive(Debug)]
enum Order {
    Recency(Recency),
    Frequency(Frequency),
}

/// The slots of one instance.
#[derive(Debug)]
pub(crate) struct Slots {
    /// By tenant: the slot's complement, so that [`NO_SLOT`] is 0. Memory that starts with zeros is taken when it is
    /// touched: a million tenants on hundreds of cards take no more of it than those that have come.
    complement_of: Vec<u32>,
    /// In order of first use; grows up to `capacity`.
    slots: Vec<Slot>,
    capacity: u32,
    /// Emptied by failed loads, new versions, deletions and cards that were given back.
    empty: Vec<u32>,
    order: Order,
    pub counts: SwapCounts,
}

impl Slots {
    pub fn new(tenants: u32, capacity: u32, swap: SwapSpec) -> Slots {
        let order = match swap {
            SwapSpec::LeastRecentlyUsed => Order::Recency(Recency {
                least: NO_SLOT,
                most: NO_SLOT,
            }),
            SwapSpec::LeastFrequentlyUsed => Order::Frequency(Frequency {
                batches: vec![0; tenants as usize],
                releases: 0,
                unpinned: BTreeSet::new(),
            }),
        };
        Slots {
            complement_of: vec![!NO_SLOT; tenants as usize],
            slots: Vec::new(),
            capacity: capacity.min(tenants),
            empty: Vec::new(),
            order,
            counts: SwapCounts::default(),
        }
    }

    /// Slots that hold something, or did.
    pub fn used(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Whether a tenant's parameters are found here, for tests.
    pub fn holds(&self, tenant: u32) -> bool {
        self.slot_of(tenant) != NO_SLOT
    }

    /// Where a tenant's parameters are found, or [`NO_SLOT`].
    #[inline(always)]
    fn slot_of(&self, tenant: u32) -> u32 {
        !self.complement_of[tenant as usize]
    }

    /// Whether a tenant's parameters are found in this slot.
    pub fn holds_in(&self, tenant: u32, slot: u32) -> bool {
        self.slot_of(tenant) == slot
    }

    /// Finds or makes room for a tenant and pins it. Counts it unless the same batch has counted it before. Who leaves for
    /// it is nobody that `is_wanted` next, if there is another: of a batch's tenants none goes for the batch's own sake.
    #[inline(always)]
    pub fn acquire(&mut self, tenant: u32, counted: bool, is_wanted: impl Fn(u32) -> bool) -> Acquired {
        let slot = self.slot_of(tenant);
        if slot != NO_SLOT {
            if self.slots[slot as usize].pins == 0 {
                self.take_out(slot);
            }
            self.slots[slot as usize].pins += 1;
            self.counts.hits += u64::from(!counted);
            self.count_batch(tenant, counted);
            return Acquired::Hit(slot);
        }
        let slot = if let Some(slot) = self.empty.pop() {
            slot
        } else if self.used() < self.capacity {
            self.slots.push(Slot::default());
            self.used() - 1
        } else if let Some(slot) = self.victim_but(is_wanted) {
            self.take_out(slot);
            self.complement_of[self.slots[slot as usize].tenant as usize] = !NO_SLOT;
            self.counts.evictions += 1;
            slot
        } else {
            return Acquired::Full;
        };
        self.slots[slot as usize].tenant = tenant;
        self.slots[slot as usize].pins = 1;
        self.complement_of[tenant as usize] = !slot;
        self.counts.misses += 1;
        self.count_batch(tenant, counted);
        Acquired::Miss(slot)
    }

    /// Whether [`acquire`](Self::acquire) would find or make room for a tenant.
    pub fn has_room_for(&self, tenant: u32) -> bool {
        self.slot_of(tenant) != NO_SLOT
            || !self.empty.is_empty()
            || self.used() < self.capacity
            || self.victim().is_some()
    }

    /// Whether all these tenants would find or be made room for at once.
    pub fn have_room_for_all(&self, tenants: impl Iterator<Item = u32>) -> bool {
        let is_pinned = |tenant: &u32| match self.slot_of(*tenant) {
            NO_SLOT => false,
            slot => self.slots[slot as usize].pins > 0,
        };
        let wanted: BTreeSet<u32> = tenants.filter(|tenant| !is_pinned(tenant)).collect();
        let pinned = self.slots.iter().filter(|slot| slot.pins > 0).count();
        wanted.len() + pinned <= self.capacity as usize
    }

    /// A batch that used the slot has ended.
    #[inline(always)]
    pub fn release(&mut self, slot: u32) {
        let state = &mut self.slots[slot as usize];
        state.pins -= 1;
        if state.pins > 0 {
            return;
        }
        match state.tenant {
            NOBODY => self.empty.push(slot),
            _ => self.put_in(slot),
        }
    }

    /// What the slot holds is not what it should be: nobody finds it from now on.
    pub fn invalidate(&mut self, tenant: u32) {
        let slot = !std::mem::replace(&mut self.complement_of[tenant as usize], !NO_SLOT);
        if slot == NO_SLOT {
            return;
        }
        if self.slots[slot as usize].pins == 0 {
            self.take_out(slot);
            self.empty.push(slot);
        } else {
            self.slots[slot as usize].tenant = NOBODY;
        }
    }

    fn count_batch(&mut self, tenant: u32, counted: bool) {
        if let Order::Frequency(frequency) = &mut self.order
            && !counted
        {
            let batches = &mut frequency.batches[tenant as usize];
            *batches = batches.saturating_add(1);
        }
    }

    /// Who leaves next, of those that no batch uses.
    fn victim(&self) -> Option<u32> {
        match &self.order {
            Order::Recency(recency) => Some(recency.least).filter(|&slot| slot != NO_SLOT),
            Order::Frequency(frequency) => frequency.unpinned.first().map(|&(_, _, slot)| slot),
        }
    }

    /// Likewise, of those whose tenant is not wanted, if there are any.
    fn victim_but(&self, is_wanted: impl Fn(u32) -> bool) -> Option<u32> {
        let first = self.victim()?;
        let is_free = |slot: &u32| !is_wanted(self.slots[*slot as usize].tenant);
        let other = match &self.order {
            Order::Recency(_) => {
                let newer = |slot: &u32| Some(self.slots[*slot as usize].newer).filter(|&newer| newer != NO_SLOT);
                std::iter::successors(Some(first), newer).find(is_free)
            }
            Order::Frequency(frequency) => frequency.unpinned.iter().map(|&(_, _, slot)| slot).find(is_free),
        };
        Some(other.unwrap_or(first))
    }

    /// A slot has become evictable.
    #[inline(always)]
    fn put_in(&mut self, slot: u32) {
        match &mut self.order {
            Order::Recency(recency) => {
                let older = recency.most;
                self.slots[slot as usize].older = older;
                self.slots[slot as usize].newer = NO_SLOT;
                match older {
                    NO_SLOT => recency.least = slot,
                    older => self.slots[older as usize].newer = slot,
                }
                recency.most = slot;
            }
            Order::Frequency(frequency) => {
                let state = &mut self.slots[slot as usize];
                state.released = frequency.releases;
                frequency.releases += 1;
                let batches = frequency.batches[state.tenant as usize];
                frequency.unpinned.insert((batches, state.released, slot));
            }
        }
    }

    /// An evictable slot is so no longer.
    #[inline(always)]
    fn take_out(&mut self, slot: u32) {
        let state = self.slots[slot as usize];
        match &mut self.order {
            Order::Recency(recency) => {
                match state.older {
                    NO_SLOT => recency.least = state.newer,
                    older => self.slots[older as usize].newer = state.newer,
                }
                match state.newer {
                    NO_SLOT => recency.most = state.older,
                    newer => self.slots[newer as usize].older = state.older,
                }
            }
            Order::Frequency(frequency) => {
                let batches = frequency.batches[state.tenant as usize];
                let there = frequency.unpinned.remove(&(batches, state.released, slot));
                assert!(there, "an evictable slot is listed");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LRU: SwapSpec = SwapSpec::LeastRecentlyUsed;

    #[test]
    fn the_least_recently_used_leaves() {
        let mut slots = Slots::new(10, 2, LRU);
        for tenant in [0, 1] {
            assert!(matches!(slots.acquire(tenant, false, |_| false), Acquired::Miss(_)));
            slots.release(tenant);
        }
        assert_eq!(slots.acquire(0, false, |_| false), Acquired::Hit(0));
        slots.release(0);
        assert_eq!(
            slots.acquire(2, false, |_| false),
            Acquired::Miss(1),
            "tenant 1 was used before tenant 0"
        );
        assert_eq!(
            slots.counts,
            SwapCounts {
                hits: 1,
                misses: 3,
                evictions: 1,
                bytes_in: 0
            }
        );
    }

    /// Whoever the batch needs stays for it, unless there is nobody else.
    #[test]
    fn none_leaves_for_a_batch_that_it_is_of() {
        for swap in [LRU, SwapSpec::LeastFrequentlyUsed] {
            let mut slots = Slots::new(10, 2, swap);
            for tenant in [0, 1] {
                let Acquired::Miss(slot) = slots.acquire(tenant, false, |_| false) else {
                    panic!("nobody was there");
                };
                slots.release(slot);
            }
            assert_eq!(slots.acquire(2, false, |tenant| tenant == 0), Acquired::Miss(1));
            assert!(slots.holds(0) && !slots.holds(1));
            assert_eq!(
                slots.acquire(3, false, |tenant| tenant == 0),
                Acquired::Miss(0),
                "nobody else is left"
            );
        }
    }

    #[test]
    fn there_is_room_for_all_that_are_not_pinned() {
        let mut slots = Slots::new(10, 3, LRU);
        let room = |slots: &Slots, tenants: &[u32]| slots.have_room_for_all(tenants.iter().copied());
        assert!(room(&slots, &[0, 1, 2, 0]) && !room(&slots, &[0, 1, 2, 3]));
        slots.acquire(0, false, |_| false);
        slots.acquire(1, false, |_| false);
        assert!(room(&slots, &[1, 0, 2]) && !room(&slots, &[2, 3]));
        slots.release(1);
        assert!(room(&slots, &[2, 3]) && room(&slots, &[1, 2]) && !room(&slots, &[1, 2, 3]));
    }

    #[test]
    fn cyclic_use_of_one_more_than_fits_hits_nothing() {
        // HMI, Fig. 12: periodic tenants beyond the capacity defeat LRU.
        let mut slots = Slots::new(5, 4, LRU);
        for round in 0..50 {
            match slots.acquire(round % 5, false, |_| false) {
                Acquired::Miss(slot) => slots.release(slot),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(slots.counts.hits, 0);
    }

    #[test]
    fn the_least_frequently_used_leaves() {
        let mut slots = Slots::new(10, 2, SwapSpec::LeastFrequentlyUsed);
        let mut used = |tenant| match slots.acquire(tenant, false, |_| false) {
            Acquired::Hit(slot) => {
                slots.release(slot);
                true
            }
            Acquired::Miss(slot) => {
                slots.release(slot);
                false
            }
            Acquired::Full => panic!("nothing is pinned"),
        };
        assert_eq!([0, 0, 1].map(&mut used), [false, true, false]);
        // Tenant 1 was used later, but less often.
        assert_eq!([2, 0, 1].map(&mut used), [false, true, false]);
        // What a tenant was used counts while it is away: 1 has now had two batches, as 2 has not.
        assert_eq!([2, 1].map(&mut used), [false, false]);
    }

    proptest! {
        /// Against a model that keeps a plain list: the same hits, no tenant in two slots, no slot with two tenants.
        #[test]
        fn agrees_with_a_plain_list(
            capacity in 1u32..6,
            frequency in any::<bool>(),
            uses in proptest::collection::vec((0u32..8, any::<bool>()), 1..200),
        ) {
            let mut slots = Slots::new(8, capacity, if frequency { SwapSpec::LeastFrequentlyUsed } else { LRU });
            let mut recency: Vec<u32> = Vec::new();
            let mut batches = [0; 8];
            let mut pinned: Vec<(u32, u32)> = Vec::new();
            for (tenant, release_first) in uses {
                if release_first && !pinned.is_empty() {
                    let (tenant, slot) = pinned.remove(0);
                    slots.release(slot);
                    if !pinned.iter().any(|&(t, _)| t == tenant) {
                        recency.retain(|&t| t != tenant);
                        recency.push(tenant);
                    }
                }
                let unpinned = recency.iter().copied().filter(|t| !pinned.iter().any(|&(p, _)| p == *t));
                // The first of the least: the least recent among equals.
                let unpinned_victim = unpinned.min_by_key(|t| if frequency { batches[*t as usize] } else { 0 });
                let acquired = slots.acquire(tenant, false, |_| false);
                batches[tenant as usize] += u32::from(acquired != Acquired::Full);
                match acquired {
                    Acquired::Hit(slot) => {
                        prop_assert!(recency.contains(&tenant));
                        pinned.push((tenant, slot));
                    }
                    Acquired::Miss(slot) => {
                        prop_assert!(!recency.contains(&tenant));
                        if recency.len() == capacity as usize {
                            let victim = unpinned_victim.expect("a victim");
                            recency.retain(|&t| t != victim);
                        }
                        prop_assert!(!pinned.iter().any(|&(_, s)| s == slot), "a pinned slot is not given away");
                        recency.push(tenant);
                        pinned.push((tenant, slot));
                    }
                    Acquired::Full => {
                        prop_assert_eq!(recency.len(), capacity as usize);
                        prop_assert_eq!(unpinned_victim, None);
                    }
                }
                prop_assert!(slots.used() <= capacity);
            }
        }
    }
}
