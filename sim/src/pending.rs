//! What will happen in virtual time, in the order in which it will.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use tenantry_core::board::OpRef;
use tenantry_traces::Time;

/// What happens. Events at one instant come in the order of the variants, then of their making: a lane that falls free is
/// free before its batch's end is heard.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// The lane's running op ends, if its end has not been moved since: `version` tells.
    LaneEnds { lane: u32, version: u32 },
    /// A segment of the lane's run of steps ends, likewise. Nobody hears of it: it comes after all else at its instant, arrivals and
    /// commands included, so that it makes no difference how many there are.
    SegmentEnds { lane: u32, version: u32 },
    /// The end of an op is heard.
    Heard { op: OpRef },
}

/// The class of [`What::Heard`].
const HEARD: u8 = 1;

/// What will happen, in the order in which it will: no two have the same `sequence`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub at: Time,
    class: u8,
    sequence: u64,
    pub what: What,
}

impl Ord for Pending {
    #[inline]
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.class, self.sequence).cmp(&(other.at, other.class, other.sequence))
    }
}

impl PartialOrd for Pending {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Eq for Pending {}

impl PartialEq for Pending {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}

impl Pending {
    /// Whether it is any more than a mark between two segments of steps.
    pub fn is_heard(&self) -> bool {
        !matches!(self.what, What::SegmentEnds { .. })
    }
}

/// All that is pending.
#[derive(Debug, Default)]
pub(crate) struct PendingEvents {
    heap: BinaryHeap<Reverse<Pending>>,
    /// Ends that are to be heard, in order: those that are made in that order, which nearly all are. The others are on the heap.
    heard: VecDeque<Pending>,
    /// That were made so far.
    made: u64,
}

impl PendingEvents {
    /// Something will happen.
    pub fn push(&mut self, at: Time, what: What) {
        let class = match what {
            What::LaneEnds { .. } => 0,
            What::Heard { .. } => HEARD,
            What::SegmentEnds { .. } => 2,
        };
        let pending = Pending {
            at,
            class,
            sequence: self.made,
            what,
        };
        self.made += 1;
        let in_order = class == HEARD && self.heard.back().is_none_or(|last| last.at <= at);
        match in_order {
            true => self.heard.push_back(pending),
            false => self.heap.push(Reverse(pending)),
        }
    }

    /// What is pending next.
    pub fn first(&self) -> Option<Pending> {
        match (self.heap.peek(), self.heard.front()) {
            (Some(Reverse(one)), Some(other)) => Some(*one.min(other)),
            (Some(Reverse(only)), None) | (None, Some(only)) => Some(*only),
            (None, None) => None,
        }
    }

    /// Takes what is pending next.
    pub fn pop(&mut self, first: Pending) {
        match self.heard.front() == Some(&first) {
            true => self.heard.pop_front().map(drop),
            false => self.heap.pop().map(drop),
        };
    }

    /// Events that were made so far.
    pub fn made(&self) -> u64 {
        self.made
    }
}
