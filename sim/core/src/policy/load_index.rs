//! The least loaded of many instances, without a search.

use crate::ids::InstanceId;

/// No set.
const NONE: u32 = u32::MAX;

/// Instances by load: who has the least is known at once, of equals the lowest, and a change takes as long among a thousand as among ten.
///
/// A set of instances for each load that some have, each with a bit an instance. Loads are counts of requests, so that there are few sets; one that is empty
/// is kept for another load, so that there are never more than loads at the same time.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoadIndex {
    /// Loads that some instance has.
    loads: Numbers,
    /// By load: its set; `NONE` where nobody has it.
    set_of: Vec<u32>,
    sets: Vec<Numbers>,
    /// Those of `sets` that are empty.
    empty: Vec<u32>,
    instances: usize,
}

impl LoadIndex {
    /// How many there are.
    pub fn instances(&self) -> usize {
        self.instances
    }

    /// The least load, and the lowest instance that has it.
    #[inline]
    pub fn least(&self) -> Option<(u32, InstanceId)> {
        self.loads.least().map(|load| self.first_of(load))
    }

    /// The greatest load below another one, and the lowest instance that has it.
    pub fn most_below(&self, load: u32) -> Option<(u32, InstanceId)> {
        self.loads.greatest_below(load as usize).map(|load| self.first_of(load))
    }

    #[inline]
    fn first_of(&self, load: usize) -> (u32, InstanceId) {
        let instance = self.sets[self.set_of[load] as usize].least();
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
        self.sets[set as usize].insert(instance.index());
    }

    #[inline]
    fn leave(&mut self, load: u32, instance: InstanceId) {
        let set = &mut self.sets[self.set_of[load as usize] as usize];
        if set.remove(instance.index()) {
            self.unlist(load as usize);
        }
    }

    /// Gives a load a set.
    #[inline(never)]
    fn list(&mut self, load: usize) -> u32 {
        self.loads.insert(load);
        if self.set_of.len() <= load {
            self.set_of.resize(load + 1, NONE);
        }
        let set = self.empty.pop().unwrap_or_else(|| {
            self.sets.push(Numbers::default());
            self.sets.len() as u32 - 1
        });
        self.set_of[load] = set;
        set
    }

    /// Takes it from a load that nobody has any more.
    #[inline(never)]
    fn unlist(&mut self, load: usize) {
        self.loads.remove(load);
        self.empty.push(std::mem::replace(&mut self.set_of[load], NONE));
    }
}

/// A set of whole numbers that are not large. Its least is found by counting zeros: of a word for each four thousand numbers, and then of one for 64.
#[derive(Clone, Debug, Default)]
struct Numbers {
    /// A bit for each number.
    words: Vec<u64>,
    /// A bit for each word that is not zero.
    occupied: Vec<u64>,
}

impl Numbers {
    #[inline]
    fn least(&self) -> Option<usize> {
        let first = |words: &[u64], at: usize| 64 * at + words[at].trailing_zeros() as usize;
        let occupied = self.occupied.iter().position(|&bits| bits != 0)?;
        Some(first(&self.words, first(&self.occupied, occupied)))
    }

    fn greatest_below(&self, number: usize) -> Option<usize> {
        let last = |at: usize, bits: u64| 64 * at + 63 - bits.leading_zeros() as usize;
        // Of a word, where it is there, the numbers below one that lies in it.
        let below =
            |words: &[u64], number: usize| words.get(number / 64).copied().unwrap_or(0) & !(u64::MAX << (number % 64));
        let (word, bits) = (number / 64, below(&self.words, number));
        if bits != 0 {
            return Some(last(word, bits));
        }
        let (block, blocks) = (word / 64, below(&self.occupied, word));
        let word = match blocks {
            0 => {
                let before = &self.occupied[..block.min(self.occupied.len())];
                let block = before.iter().rposition(|&bits| bits != 0)?;
                last(block, before[block])
            }
            _ => last(block, blocks),
        };
        Some(last(word, self.words[word]))
    }

    #[inline]
    fn insert(&mut self, number: usize) {
        let at = number / 64;
        if at >= self.words.len() {
            self.grow(at + 1);
        }
        self.words[at] |= 1 << (number % 64);
        self.occupied[at / 64] |= 1 << (at % 64);
    }

    /// Whether it was the last.
    #[inline]
    fn remove(&mut self, number: usize) -> bool {
        let at = number / 64;
        let word = &mut self.words[at];
        *word &= !(1 << (number % 64));
        if *word != 0 {
            return false;
        }
        self.occupied[at / 64] &= !(1 << (at % 64));
        self.occupied.iter().all(|&bits| bits == 0)
    }

    #[cold]
    fn grow(&mut self, words: usize) {
        self.words.resize(words, 0);
        self.occupied.resize(words.div_ceil(64), 0);
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
                for bound in [0, 1, 2, 63, 64, 66, 5_000, 5_001, 1_000_000] {
                    let most = tree.range(..(bound, InstanceId(0))).next_back().map(|&(load, _)| load);
                    let first = most.and_then(|most| tree.range((most, InstanceId(0))..).next().copied());
                    prop_assert_eq!(by_load.most_below(bound), first);
                }
                prop_assert_eq!(by_load.instances(), tree.len());
                let listed: BTreeSet<u32> = loads.values().copied().collect();
                prop_assert_eq!(by_load.sets.len() - by_load.empty.len(), listed.len());
            }
        }
    }
}
