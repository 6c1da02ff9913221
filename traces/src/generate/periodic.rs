//! Arrivals at set times: periodic tenants and bursts of threads.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::arrival::Arrival;
use super::popularity::PART_PHASE;
use crate::draw::{Draws, Purpose};
use crate::error::TraceError;
use crate::time::{Duration, Time};

/// Every tenant once a period, from its own phase on.
pub struct PeriodicTenants {
    period_ns: u64,
    /// In order of phase.
    phases_ns: Vec<(u64, u32)>,
    cycle_start_ns: u64,
    next: usize,
}

impl PeriodicTenants {
    /// `part` tells superposed ones apart.
    pub fn new(seed: u64, part: u64, tenants: u32, period: Duration) -> PeriodicTenants {
        let draws = Draws::new(seed, Purpose::TenantProperty).part(PART_PHASE).part(part);
        let phase = |tenant: u32| (draws.about(u64::from(tenant)).below(period.0), tenant);
        let mut phases_ns: Vec<_> = (0..tenants).map(phase).collect();
        phases_ns.sort_unstable();
        PeriodicTenants {
            period_ns: period.0,
            phases_ns,
            cycle_start_ns: 0,
            next: 0,
        }
    }
}

impl Iterator for PeriodicTenants {
    type Item = Result<Arrival, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.phases_ns.len() {
            self.next = 0;
            self.cycle_start_ns = self.cycle_start_ns.checked_add(self.period_ns)?;
        }
        let (phase_ns, tenant) = self.phases_ns[self.next];
        self.next += 1;
        Some(Ok(Arrival {
            tenant: Some(tenant),
            ..Arrival::at(Time(self.cycle_start_ns.checked_add(phase_ns)?))
        }))
    }
}

/// Threads that start one after another and ask at a steady pace.
pub struct ThreadBursts {
    stagger_ns: u64,
    period_ns: u64,
    repeats: u32,
    threads: u32,
    started: u32,
    /// When each running thread asks next: (time, thread, how often it still does after that).
    running: BinaryHeap<Reverse<(u64, u32, u32)>>,
}

impl ThreadBursts {
    pub fn new(threads: u32, stagger: Duration, period: Duration, repeats: u32) -> ThreadBursts {
        ThreadBursts {
            stagger_ns: stagger.0,
            period_ns: period.0,
            repeats,
            threads,
            started: 0,
            running: BinaryHeap::new(),
        }
    }
}

impl Iterator for ThreadBursts {
    type Item = Result<Arrival, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        // A thread enters the heap once its start is due, so that the heap holds only running ones.
        while self.started < self.threads && self.repeats > 0 {
            let start_ns = u64::from(self.started).checked_mul(self.stagger_ns)?;
            if self.running.peek().is_some_and(|Reverse(first)| first.0 < start_ns) {
                break;
            }
            self.running.push(Reverse((start_ns, self.started, self.repeats - 1)));
            self.started += 1;
        }
        let Reverse((at_ns, thread, left)) = self.running.pop()?;
        if left > 0 {
            self.running.push(Reverse((at_ns.checked_add(self.period_ns)?, thread, left - 1)));
        }
        Some(Ok(Arrival::at(Time(at_ns))))
    }
}
