//! Which tenants' parameters are on the card: slots of one size, filled on demand, emptied by least recent use.

use crate::op::NO_SLOT;

/// A slot that no batch uses is evictable; one in use is pinned by every batch that uses it.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    tenant: u32,
    pins: u32,
    /// Towards the less recently used; meaningful only while unpinned.
    older: u32,
    /// Towards the more recently used.
    newer: u32,
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

/// The slots of one instance.
#[derive(Debug)]
pub(crate) struct Slots {
    /// By tenant.
    slot_of: Vec<u32>,
    /// In order of first use; grows up to `capacity`.
    slots: Vec<Slot>,
    capacity: u32,
    /// Emptied by failed loads.
    empty: Vec<u32>,
    least_recent: u32,
    most_recent: u32,
    pub counts: SwapCounts,
}

impl Slots {
    pub fn new(tenants: u32, capacity: u32) -> Slots {
        Slots {
            slot_of: vec![NO_SLOT; tenants as usize],
            slots: Vec::new(),
            capacity: capacity.min(tenants),
            empty: Vec::new(),
            least_recent: NO_SLOT,
            most_recent: NO_SLOT,
            counts: SwapCounts::default(),
        }
    }

    /// Slots that hold something, or did.
    pub fn used(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Finds or makes room for a tenant and pins it. Counts it unless the same batch has counted it before.
    pub fn acquire(&mut self, tenant: u32, counted: bool) -> Acquired {
        let slot = self.slot_of[tenant as usize];
        if slot != NO_SLOT {
            if self.slots[slot as usize].pins == 0 {
                self.unlink(slot);
            }
            self.slots[slot as usize].pins += 1;
            self.counts.hits += u64::from(!counted);
            return Acquired::Hit(slot);
        }
        let slot = if let Some(slot) = self.empty.pop() {
            slot
        } else if self.used() < self.capacity {
            self.slots.push(Slot::default());
            self.used() - 1
        } else if self.least_recent != NO_SLOT {
            let slot = self.least_recent;
            self.unlink(slot);
            self.slot_of[self.slots[slot as usize].tenant as usize] = NO_SLOT;
            self.counts.evictions += 1;
            slot
        } else {
            return Acquired::Full;
        };
        self.slots[slot as usize].tenant = tenant;
        self.slots[slot as usize].pins = 1;
        self.slot_of[tenant as usize] = slot;
        self.counts.misses += 1;
        Acquired::Miss(slot)
    }

    /// A batch that used the slot has ended.
    pub fn release(&mut self, slot: u32) {
        let state = &mut self.slots[slot as usize];
        state.pins -= 1;
        if state.pins > 0 {
            return;
        }
        if self.slot_of[state.tenant as usize] == slot {
            self.link_most_recent(slot);
        } else {
            self.empty.push(slot);
        }
    }

    /// What the slot holds is not what it should be: nobody finds it from now on.
    pub fn invalidate(&mut self, tenant: u32) {
        let slot = std::mem::replace(&mut self.slot_of[tenant as usize], NO_SLOT);
        if slot != NO_SLOT && self.slots[slot as usize].pins == 0 {
            self.unlink(slot);
            self.empty.push(slot);
        }
    }

    fn link_most_recent(&mut self, slot: u32) {
        let older = self.most_recent;
        self.slots[slot as usize].older = older;
        self.slots[slot as usize].newer = NO_SLOT;
        match older {
            NO_SLOT => self.least_recent = slot,
            older => self.slots[older as usize].newer = slot,
        }
        self.most_recent = slot;
    }

    fn unlink(&mut self, slot: u32) {
        let Slot { older, newer, .. } = self.slots[slot as usize];
        match older {
            NO_SLOT => self.least_recent = newer,
            older => self.slots[older as usize].newer = newer,
        }
        match newer {
            NO_SLOT => self.most_recent = older,
            newer => self.slots[newer as usize].older = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_least_recently_used_leaves() {
        let mut slots = Slots::new(10, 2);
        for tenant in [0, 1] {
            assert!(matches!(slots.acquire(tenant, false), Acquired::Miss(_)));
            slots.release(tenant);
        }
        assert_eq!(slots.acquire(0, false), Acquired::Hit(0));
        slots.release(0);
        assert_eq!(
            slots.acquire(2, false),
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

    #[test]
    fn cyclic_use_of_one_more_than_fits_hits_nothing() {
        // HMI, Fig. 12: periodic tenants beyond the capacity defeat LRU.
        let mut slots = Slots::new(5, 4);
        for round in 0..50 {
            match slots.acquire(round % 5, false) {
                Acquired::Miss(slot) => slots.release(slot),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(slots.counts.hits, 0);
    }

    proptest! {
        /// Against a model that keeps a plain list: the same hits, no tenant in two slots, no slot with two tenants.
        #[test]
        fn agrees_with_a_plain_list(capacity in 1u32..6, uses in proptest::collection::vec((0u32..8, any::<bool>()), 1..200)) {
            let mut slots = Slots::new(8, capacity);
            let mut recency: Vec<u32> = Vec::new();
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
                let unpinned_victim = recency.iter().copied().find(|t| !pinned.iter().any(|&(p, _)| p == *t));
                match slots.acquire(tenant, false) {
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
