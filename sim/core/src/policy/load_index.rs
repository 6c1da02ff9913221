//! The least loaded of many instances, without a search.

use crate::ids::InstanceId;

/// No set.
const NONE: u32 = u32::MAX;

/// The least load of nobody.
pub(super) const NOBODY: u32 = u32::MAX;

/// Instances by load: who has the least is known at once, of equals the lowest, and a change takes as long among a
/// thousand as among ten.
///
/// A set of instances for each load that some have, each with a bit an instance. Loads are counts of requests, so that
/// there are few sets; one that is empty is kept for another load, so that there are never more than loads at the same
/// time.
#[derive(Clone, Debug)]
pub(crate) struct LoadIndex {
    /// The least of `loads`; [`NOBODY`] where there is none.
    least: u32,
    /// One set: loads that some instance has.
    loads: Sets,
    /// By load: its set; `NONE` where nobody has it.
    set_of: Vec<u32>,
    sets: Sets,
    /// Those of `sets` that are empty.
    empty: Vec<u32>,
    instances: usize,
}

impl Default for LoadIndex {
    fn default() -> LoadIndex {
        let mut loads = Sets::default();
        loads.add();
        LoadIndex {
            least: NOBODY,
            loads,
            set_of: Vec::new(),
            sets: Sets::default(),
            empty: Vec::new(),
            instances: 0,
        }
    }
}

impl LoadIndex {
    /// How many there are.
    pub fn instances(&self) -> usize {
        self.instances
    }

    /// The least load, and the lowest instance that has it.
    #[inline]
    pub fn least(&self) -> Option<(u32, InstanceId)> {
        (self.least != NOBODY).then(|| self.first_of(self.least as usize))
    }

    /// The least load; [`NOBODY`] where there is none.
    #[inline]
    pub fn least_load(&self) -> u32 {
        self.least
    }

    /// The greatest load below another one, and the lowest instance that has it.
    pub fn most_below(&self, load: u32) -> Option<(u32, InstanceId)> {
        self.loads.greatest_below(0, load as usize).map(|load| self.first_of(load))
    }

    #[inline]
    fn first_of(&self, load: usize) -> (u32, InstanceId) {
        let instance = self.sets.least(self.set_of[load] as usize);
        let instance = instance.expect("a load that nobody has is not listed");
        (load as u32, InstanceId(instance as u32))
    }

    /// One that is not there.
    pub fn insert(&mut self, load: u32, instance: InstanceId) {
        self.instances += 1;
        self.enter(load, instance);
    }

    /// One that is there, with this load.
    pub fn remove(&mut self, load: u32, instance: InstanceId) {
        self.instances -= 1;
        self.leave(load, instance);
    }

    /// One that has another load than it had.
    #[inline]
    pub fn change(&mut self, instance: InstanceId, was: u32, load: u32) {
        self.leave(was, instance);
        self.enter(load, instance);
    }

    #[inline]
    fn enter(&mut self, load: u32, instance: InstanceId) {
        let set = match self.set_of.get(load as usize) {
            Some(&set) if set != NONE => set,
            _ => self.list(load as usize),
        };
        self.sets.insert(set as usize, instance.index());
        self.least = self.least.min(load);
    }

    #[inline]
    fn leave(&mut self, load: u32, instance: InstanceId) {
        if self.sets.remove(self.set_of[load as usize] as usize, instance.index()) {
            self.unlist(load as usize);
        }
    }

    /// Gives a load a set.
    #[inline(never)]
    fn list(&mut self, load: usize) -> u32 {
        self.loads.insert(0, load);
        if self.set_of.len() <= load {
            self.set_of.resize(load + 1, NONE);
        }
        let set = self.empty.pop().unwrap_or_else(|| self.sets.add() as u32);
        self.set_of[load] = set;
        set
    }

    /// Takes it from a load that nobody has any more.
    #[inline(never)]
    fn unlist(&mut self, load: usize) {
        self.loads.remove(0, load);
        if self.least == load as u32 {
            self.least = self.loads.least(0).map_or(NOBODY, |least| least as u32);
        }
        self.empty.push(std::mem::replace(&mut self.set_of[load], NONE));
    }
}

/// Sets of whole numbers that are not large, side by side. The least of a set is found by counting zeros: of a word for
/// each four thousand numbers, and then of one for 64.
#[derive(Clone, Debug, Default)]
struct Sets {
    /// Of each set first a bit for each of its words that is not zero, then a bit for each number.
    bits: Vec<u64>,
    sets: usize,
    /// Words of a set for numbers, and those for 64 of these each: one, but where there are thousands of numbers.
    words: usize,
    summaries: usize,
}

impl Sets {
    /// Another set, which is empty; tells its number.
    fn add(&mut self) -> usize {
        self.sets += 1;
        self.bits.resize(self.start_of(self.sets), 0);
        self.sets - 1
    }

    /// Where a set's words begin.
    #[inline]
    fn start_of(&self, set: usize) -> usize {
        set * (self.summaries + self.words)
    }

    /// A set's words for words, and those for numbers.
    #[inline]
    fn of(&self, set: usize) -> (&[u64], &[u64]) {
        self.bits[self.start_of(set)..self.start_of(set + 1)].split_at(self.summaries)
    }

    #[inline]
    fn least(&self, set: usize) -> Option<usize> {
        let start = self.start_of(set);
        let first = |at: usize, bits: u64| 64 * at + bits.trailing_zeros() as usize;
        let (block, occupied) = match self.summaries {
            1 => (0, self.bits[start]),
            _ => {
                let blocks = self.bits[start..][..self.summaries].iter().copied();
                blocks.enumerate().find(|&(_, bits)| bits != 0)?
            }
        };
        let word = (occupied != 0).then(|| first(block, occupied))?;
        Some(first(word, self.bits[start + self.summaries + word]))
    }

    fn greatest_below(&self, set: usize, number: usize) -> Option<usize> {
        let last = |at: usize, bits: u64| 64 * at + 63 - bits.leading_zeros() as usize;
        // Of a word, where it is there, the numbers below one that lies in it.
        let below =
            |words: &[u64], number: usize| words.get(number / 64).copied().unwrap_or(0) & !(u64::MAX << (number % 64));
        let (occupied, words) = self.of(set);
        let (word, bits) = (number / 64, below(words, number));
        if bits != 0 {
            return Some(last(word, bits));
        }
        let (block, blocks) = (word / 64, below(occupied, word));
        let word = match blocks {
            0 => {
                let before = &occupied[..block.min(occupied.len())];
                let block = before.iter().rposition(|&bits| bits != 0)?;
                last(block, before[block])
            }
            _ => last(block, blocks),
        };
        Some(last(word, words[word]))
    }

    #[inline]
    fn insert(&mut self, set: usize, number: usize) {
        let at = number / 64;
        if at >= self.words {
            self.widen(at + 1);
        }
        let start = self.start_of(set);
        self.bits[start + self.summaries + at] |= 1 << (number % 64);
        self.bits[start + at / 64] |= 1 << (at % 64);
    }

    /// Whether it was the last.
    #[inline]
    fn remove(&mut self, set: usize, number: usize) -> bool {
        let (start, at) = (self.start_of(set), number / 64);
        assert!(at < self.words, "it is in no set");
        let word = &mut self.bits[start + self.summaries + at];
        *word &= !(1 << (number % 64));
        // Without a branch, which nobody could foresee.
        let emptied = u64::from(*word == 0);
        let occupied = &mut self.bits[start + at / 64];
        *occupied &= !(emptied << (at % 64));
        match self.summaries {
            1 => *occupied == 0,
            blocks => self.bits[start..][..blocks].iter().all(|&bits| bits == 0),
        }
    }

    /// Gives each set so many words, at least twice as many as before.
    #[cold]
    fn widen(&mut self, words: usize) {
        let words = words.max(2 * self.words);
        let mut wider = Sets {
            words,
            summaries: words.div_ceil(64),
            ..Sets::default()
        };
        for set in 0..self.sets {
            wider.add();
            let (start, was) = (wider.start_of(set), self.of(set));
            wider.bits[start..][..was.0.len()].copy_from_slice(was.0);
            wider.bits[start + wider.summaries..][..was.1.len()].copy_from_slice(was.1);
        }
        *self = wider;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Beside a tree, with instances and loads in a word, in several, and in more than a word tells of.
        #[test]
        fn the_least_is_the_first_of_a_tree(
            changes in prop::collection::vec(
                (prop_oneof![0u32..4, 60u32..70, 4_090u32..4_100], prop_oneof![0u32..3, 63u32..66, Just(5_000)], any::<bool>()),
                0..200,
            ),
        ) {
            let (mut by_load, mut tree, mut loads) = (LoadIndex::default(), BTreeSet::new(), BTreeMap::new());
            for (id, load, stays) in changes {
                let instance = InstanceId(id);
                if let Some(was) = loads.remove(&id) {
                    by_load.remove(was, instance);
                    tree.remove(&(was, instance));
                }
                if stays {
                    by_load.insert(load, instance);
                    tree.insert((load, instance));
                    loads.insert(id, load);
                }
                prop_assert_eq!(by_load.least(), tree.first().copied());
                prop_assert_eq!(by_load.least_load(), tree.first().map_or(u32::MAX, |&(load, _)| load));
                for bound in [0, 1, 2, 63, 64, 66, 5_000, 5_001, 1_000_000] {
                    let most = tree.range(..(bound, InstanceId(0))).next_back().map(|&(load, _)| load);
                    let first = most.and_then(|most| tree.range((most, InstanceId(0))..).next().copied());
                    prop_assert_eq!(by_load.most_below(bound), first);
                }
                prop_assert_eq!(by_load.instances(), tree.len());
                let listed: BTreeSet<u32> = loads.values().copied().collect();
                prop_assert_eq!(by_load.sets.sets - by_load.empty.len(), listed.len());
            }
        }
    }
}
