//! What will happen in virtual time, in the order in which it will.
//!
//! A lane does one thing at a time, so that each has one entry that counts; one whose end moves leaves its old entry
//! behind. What the server and other lanes hear of comes nearly in order, and waits in a queue. An entry is one number,
//! so that a heap of two thousand lanes' takes some 200 instructions to be entered and left, half of what a tournament
//! of lanes took; a few lanes are looked at one by one.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use tenantry_core::board::OpRef;
use tenantry_core::ids::{BatchId, LaneId};
use tenantry_core::topology::LANES_MAX;
use tenantry_traces::Time;

use crate::leap::Leap;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The lane's running op ends.
    LaneEnds,
    /// A segment of the lane's run of steps ends. Nobody hears of it: it comes after all else at its instant, arrivals
    /// and commands included, so that it makes no difference how many there are.
    SegmentEnds,
    /// The end of an op is heard: [`PendingEvents::hear`] says which.
    Heard,
}

/// When something happens, its class, how many were made before it, and which lane's it is, all in one number: the
/// least is next, and no two are equal. Events at one instant come by class, then in the order of their making: a lane
/// that falls free is free before its batch's end is heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pending(u128);

const LANE_BITS: u32 = 22;
const _: () = assert!(LANES_MAX <= 1 << LANE_BITS);
/// So many lanes are looked at one by one: a heap takes longer.
const FEW_LANES: usize = 8;
/// What overtakes fewer than so many of those that are to be heard is put among them.
const NEAR: usize = 32;
/// A million million events are a day of simulating.
const MADE_BITS: u32 = 40;

const LANE_ENDS: u64 = 0;
const HEARD: u64 = 1;
const SEGMENT_ENDS: u64 = 2;

impl Pending {
    /// After all that happens.
    pub const NEVER: Pending = Pending(u128::MAX);

    fn new(at: Time, class: u64, made: u64, lane: u32) -> Pending {
        let order = (class << MADE_BITS | made) << LANE_BITS | u64::from(lane);
        Pending(u128::from(at.0) << 64 | u128::from(order))
    }

    pub fn at(self) -> Time {
        Time((self.0 >> 64) as u64)
    }

    /// Whose it is; nobody's, where something is heard.
    pub fn lane(self) -> LaneId {
        LaneId(self.0 as u32 & ((1 << LANE_BITS) - 1))
    }

    pub fn what(self) -> What {
        match self.0 as u64 >> (MADE_BITS + LANE_BITS) {
            LANE_ENDS => What::LaneEnds,
            HEARD => What::Heard,
            _ => What::SegmentEnds,
        }
    }

    /// Whether it comes before what is asked for at an instant: a mark between two segments of steps comes after all
    /// else.
    pub fn is_before(self, until: Time) -> bool {
        self.0 < Pending::new(until, SEGMENT_ENDS, 0, 0).0
    }
}

/// The end of an op that is to be heard.
#[derive(Clone, Copy, Debug)]
struct Heard {
    pending: Pending,
    op: OpRef,
}

impl Heard {
    const NEVER: Heard = Heard {
        pending: Pending::NEVER,
        op: OpRef {
            batch: BatchId {
                slot: u32::MAX,
                generation: 0,
            },
            index: 0,
        },
    };
}

impl Ord for Heard {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.pending.cmp(&other.pending)
    }
}

impl PartialOrd for Heard {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Eq for Heard {}

impl PartialEq for Heard {
    fn eq(&self, other: &Self) -> bool {
        self.pending == other.pending
    }
}

/// All that is pending.
#[derive(Debug)]
pub(crate) struct PendingEvents {
    /// Those of lanes that are many, also such as have been replaced: they are passed over when they would be next.
    ends: BinaryHeap<Reverse<Pending>>,
    /// By lane: the one that counts.
    of_lane: Vec<Pending>,
    /// The end that is heard next: mostly the only one. [`Pending::NEVER`] where there is none.
    next_heard: Heard,
    /// Others that are to be heard, in order: those that overtake few when they are made, which nearly all do.
    heard: VecDeque<Heard>,
    /// The rest.
    late: BinaryHeap<Reverse<Heard>>,
    /// Events that were made so far.
    made: u64,
}

impl PendingEvents {
    /// Of so many lanes; nothing will happen.
    pub fn new(lanes: usize) -> PendingEvents {
        assert!(lanes <= 1 << LANE_BITS, "fewer than {} lanes", 1 << LANE_BITS);
        PendingEvents {
            ends: BinaryHeap::new(),
            of_lane: vec![Pending::NEVER; lanes],
            next_heard: Heard::NEVER,
            heard: VecDeque::new(),
            late: BinaryHeap::new(),
            made: 0,
        }
    }

    fn make(&mut self, at: Time, class: u64, lane: u32) -> Pending {
        let made = self.made;
        assert!(made < 1 << MADE_BITS, "fewer than {} events", 1_u64 << MADE_BITS);
        self.made += 1;
        Pending::new(at, class, made, lane)
    }

    /// The lane's running op ends, and nothing else happens on the lane before.
    #[inline]
    pub fn lane_ends(&mut self, at: Time, lane: LaneId) {
        let pending = self.make(at, LANE_ENDS, lane.0);
        self.set(lane, pending);
    }

    /// A segment of its steps does, likewise.
    #[inline]
    pub fn segment_ends(&mut self, at: Time, lane: LaneId) {
        let pending = self.make(at, SEGMENT_ENDS, lane.0);
        self.set(lane, pending);
    }

    /// A segment of its run of steps does, perhaps the last.
    #[inline(always)]
    pub fn segment_of(&mut self, lane: LaneId, leap: &Leap) {
        match leap.is_last() {
            true => self.lane_ends(leap.segment_ends(), lane),
            false => self.segment_ends(leap.segment_ends(), lane),
        }
    }

    fn set(&mut self, lane: LaneId, pending: Pending) {
        self.of_lane[lane.index()] = pending;
        if !self.are_few() {
            self.ends.push(Reverse(pending));
        }
    }

    #[inline]
    fn are_few(&self) -> bool {
        self.of_lane.len() <= FEW_LANES
    }

    /// The end of an op will be heard.
    pub fn will_be_heard(&mut self, at: Time, op: OpRef) {
        let heard = Heard {
            pending: self.make(at, HEARD, 0),
            op,
        };
        if self.next_heard.pending == Pending::NEVER {
            self.next_heard = heard;
            return;
        }
        let later = heard.max(self.next_heard);
        self.next_heard = heard.min(self.next_heard);
        // Spreads let some overtake a few others: there they are put in order, for less than a heap takes.
        let last = self.heard.iter().rev().take(NEAR);
        match last.take_while(|&last| *last > later).count() {
            NEAR => self.late.push(Reverse(later)),
            0 => self.heard.push_back(later),
            overtaken => self.heard.insert(self.heard.len() - overtaken, later),
        }
    }

    /// What is pending next; [`Pending::NEVER`] where nothing is.
    #[inline]
    pub fn first(&mut self) -> Pending {
        if self.are_few() {
            return self.of_lane.iter().copied().fold(self.next_heard.pending, Pending::min);
        }
        while let Some(&Reverse(next)) = self.ends.peek() {
            if self.of_lane[next.lane().index()] == next {
                return next.min(self.next_heard.pending);
            }
            self.ends.pop();
        }
        self.next_heard.pending
    }

    /// Takes what is next: this lane's.
    #[inline]
    pub fn take_end(&mut self, lane: LaneId) {
        match self.are_few() {
            true => self.of_lane[lane.index()] = Pending::NEVER,
            false => drop(self.ends.pop()),
        }
    }

    /// Takes what is next: the end of an op that is heard.
    pub fn hear(&mut self) -> Option<OpRef> {
        let heard = std::mem::replace(&mut self.next_heard, Heard::NEVER);
        if !self.heard.is_empty() || !self.late.is_empty() {
            self.next_heard = self.hear_after();
        }
        (heard.pending != Pending::NEVER).then_some(heard.op)
    }

    fn hear_after(&mut self) -> Heard {
        let in_order = self.heard.front().copied().unwrap_or(Heard::NEVER);
        match self.late.peek() {
            Some(Reverse(late)) if *late < in_order => self.late.pop().map_or(Heard::NEVER, |Reverse(late)| late),
            _ => self.heard.pop_front().unwrap_or(Heard::NEVER),
        }
    }

    /// Events that were made so far.
    pub fn made(&self) -> u64 {
        self.made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Ends { lane: u32, after: u64, is_last: bool },
        Heard { after: u64 },
        Next,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let one = prop_oneof![
            3 => (0u32..20, 0u64..6, any::<bool>()).prop_map(|(lane, after, is_last)| Step::Ends { lane, after, is_last }),
            2 => (0u64..6).prop_map(|after| Step::Heard { after }),
            3 => Just(Step::Next),
        ];
        proptest::collection::vec(one, 0..200)
    }

    proptest! {
        /// Beside a list that is searched: by instant, class and order of making, one entry a lane.
        #[test]
        fn what_is_next_is_what_a_list_says(lanes in prop_oneof![1usize..10, 20usize..70], steps in steps()) {
            let mut events = PendingEvents::new(lanes);
            let mut list: Vec<(u64, u64, u64, What, LaneId)> = Vec::new();
            let (mut now, mut made) = (0, 0);
            for step in steps {
                match step {
                    Step::Ends { lane, after, is_last } => {
                        let (at, lane) = (now + after, LaneId(lane % lanes as u32));
                        list.retain(|&(.., what, of)| what == What::Heard || of != lane);
                        match is_last {
                            true => {
                                events.lane_ends(Time(at), lane);
                                list.push((at, 0, made, What::LaneEnds, lane));
                            }
                            false => {
                                events.segment_ends(Time(at), lane);
                                list.push((at, 2, made, What::SegmentEnds, lane));
                            }
                        }
                        made += 1;
                    }
                    Step::Heard { after } => {
                        let batch = BatchId { slot: 0, generation: made as u32 };
                        events.will_be_heard(Time(now + after), OpRef { batch, index: 0 });
                        list.push((now + after, 1, made, What::Heard, LaneId(0)));
                        made += 1;
                    }
                    Step::Next => {
                        let least = list.iter().copied().enumerate().min_by_key(|&(_, (at, class, made, ..))| (at, class, made));
                        let first = events.first();
                        let Some((index, (at, class, made, what, lane))) = least else {
                            prop_assert_eq!(first, Pending::NEVER);
                            continue;
                        };
                        prop_assert_eq!((first.what(), first.at(), first.lane()), (what, Time(at), lane));
                        prop_assert!(first.is_before(Time(at + 1)) && (at == 0 || !first.is_before(Time(at - 1))));
                        prop_assert_eq!(first.is_before(Time(at)), class < 2);
                        match what {
                            What::LaneEnds | What::SegmentEnds => events.take_end(lane),
                            What::Heard => {
                                let op = events.hear().expect("one is heard");
                                prop_assert_eq!(op.batch.generation, made as u32);
                            }
                        }
                        list.remove(index);
                        now = at;
                    }
                }
                prop_assert_eq!(events.made(), made);
            }
        }
    }
}
