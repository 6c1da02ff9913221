//! Tenants' adapters in host memory, where it does not hold all: the others' lie on the disk.
//!
//! What is on its way to a card, or being read from the disk, stays in host memory until it is there. A card that wants
//! what is being read for another waits for it.

use std::collections::BTreeSet;

use crate::ids::InstanceId;
use crate::op::Member;
use crate::server::slots::{Acquired, Slots};
use crate::spec::SwapSpec;

/// A load that waits for a tenant's adapters to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub instance: InstanceId,
    pub slot: u32,
    pub member: Member,
}

/// What a load finds in host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InHost {
    /// It is there, in this slot.
    There(u32),
    /// It is to be read into this slot.
    Read(u32),
    /// It is being read.
    Waits,
}

/// Host memory with room for some tenants' adapters.
#[derive(Debug)]
pub(super) struct HostMemory {
    slots: Slots,
    /// Tenants whose adapters are being read.
    read: BTreeSet<u32>,
    waiting: Vec<Waiting>,
}

impl HostMemory {
    pub fn new(tenants: u32, slots: u32) -> HostMemory {
        HostMemory {
            slots: Slots::new(tenants, slots, SwapSpec::LeastRecentlyUsed),
            read: BTreeSet::new(),
            waiting: Vec::new(),
        }
    }

    /// Whether [`load`](Self::load) would find or make room for a tenant.
    pub fn has_room_for(&self, tenant: u32) -> bool {
        self.slots.has_room_for(tenant)
    }

    /// A load begins, which keeps what it finds until it has ended.
    pub fn load(&mut self, waiting: Waiting) -> InHost {
        let tenant = waiting.member.tenant;
        if self.read.contains(&tenant) {
            self.waiting.push(waiting);
            return InHost::Waits;
        }
        match self.slots.acquire(tenant, false, |_| false) {
            Acquired::Hit(slot) => InHost::There(slot),
            Acquired::Miss(slot) => {
                self.read.insert(tenant);
                InHost::Read(slot)
            }
            Acquired::Full => unreachable!("a load begins where there is room"),
        }
    }

    /// A load from this slot has ended, for which it may have been read from the disk. Those that waited for that are
    /// to begin anew.
    pub fn loaded(&mut self, tenant: u32, slot: u32, is_read: bool, failed: bool) -> Vec<Waiting> {
        self.slots.release(slot);
        // What found an earlier version may end while a later one is being read.
        if !is_read {
            return Vec::new();
        }
        // What was found in host memory is whole still where its copy to a card failed.
        if failed {
            self.slots.invalidate(tenant);
        }
        self.read.remove(&tenant);
        self.waiting.extract_if(.., |waiting| waiting.member.tenant == tenant).collect()
    }

    /// A tenant's adapters are others now.
    pub fn invalidate(&mut self, tenant: u32) {
        self.slots.invalidate(tenant);
    }

    /// Times that adapters were read from the disk.
    pub fn reads(&self) -> u64 {
        self.slots.counts.misses
    }
}
