//! The servers' timers, which both machines keep alike: the earliest goes off first, and of one time the one that was
//! set first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tenantry_traces::Time;

use crate::ids::InstanceId;

/// Timers that have not gone off.
#[derive(Debug, Default)]
pub struct Timers {
    pending: BinaryHeap<Reverse<(Time, u64, InstanceId)>>,
    set: u64,
}

impl Timers {
    /// Sets one for an instance.
    pub fn set(&mut self, at: Time, instance: InstanceId) {
        self.pending.push(Reverse((at, self.set, instance)));
        self.set += 1;
    }

    /// When the next one goes off.
    #[inline]
    pub fn first(&self) -> Option<Time> {
        self.pending.peek().map(|&Reverse((at, ..))| at)
    }

    /// Whichever comes first, the next timer or what the loop waits for.
    #[inline]
    pub fn or_before(&self, deadline: Option<Time>) -> Option<Time> {
        match (self.first(), deadline) {
            (Some(at), Some(due)) => Some(at.min(due)),
            (at, due) => at.or(due),
        }
    }

    /// Whose timer goes off, where one has come due.
    #[inline]
    pub fn go_off(&mut self, now: Time) -> Option<InstanceId> {
        self.first().filter(|&at| at <= now)?;
        self.pending.pop().map(|Reverse((_, _, instance))| instance)
    }

    /// How many were set since the start.
    pub fn count(&self) -> u64 {
        self.set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_go_off_by_time_and_then_as_they_were_set() {
        let mut timers = Timers::default();
        assert_eq!((timers.first(), timers.or_before(None)), (None, None));
        for (at, instance) in [(5, 2), (3, 7), (5, 1), (3, 0)] {
            timers.set(Time(at), InstanceId(instance));
        }
        assert_eq!(timers.or_before(Some(Time(2))), Some(Time(2)));
        assert_eq!(timers.or_before(Some(Time(9))), Some(Time(3)));
        assert_eq!(timers.go_off(Time(2)), None);
        let gone: Vec<u32> = std::iter::from_fn(|| timers.go_off(Time(5))).map(|id| id.0).collect();
        assert_eq!(gone, [7, 0, 2, 1]);
        assert_eq!((timers.count(), timers.first()), (4, None));
    }
}
