//! The least loaded of many instances, without a search.

use crate::ids::InstanceId;

/// Instances by load: who has the least is known at once, of equals the lowest, and a change takes as long among a thousand as among ten.
///
/// A set of instances for each load that some have, each with a bit an instance. Loads are counts of requests, so that there are few sets; one that is empty
/// is kept for another load, so that there are never more than loads at the same time.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoadIndex {
    /// Loads that some instance has.
    loads: Numbers,
    /// By load: its set, where some have it.
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
    #[inline]
    pub fn insert(&mut self, load: u32, instance: InstanceId) {
        self.instances += 1;
        let load = load as usize;
        if !self.loads.contains(load) {
            self.list(load);
        }
        self.sets[self.set_of[load] as usize].insert(instance.index());
    }

    /// One that is there, with this load.
    #[inline]
    pub fn remove(&mut self, load: u32, instance: InstanceId) {
        self.instances -= 1;
        let load = load as usize;
        let at = self.set_of[load];
        let set = &mut self.sets[at as usize];
        set.remove(instance.index());
        if set.is_empty() {
            self.empty.push(at);
            self.loads.remove(load);
        }
    }

    /// One that has another load than it had.
    #[inline]
    pub fn change(&mut self, instance: InstanceId, was: u32, load: u32) {
        self.remove(was, instance);
        self.insert(load, instance);
    }

    /// Gives a load a set.
    fn list(&mut self, load: usize) {
        self.loads.insert(load);
        if self.set_of.len() <= load {
            self.set_of.resize(load + 1, u32::MAX);
        }
        self.set_of[load] = self.empty.pop().unwrap_or_else(|| {
            self.sets.push(Numbers::default());
            self.sets.len() as u32 - 1
        });
    }
}

/// A set of whole numbers that are not large. Its least is found by counting zeros, once on each layer.
#[derive(Clone, Debug)]
struct Numbers {
    /// The lowest has a bit for each number, each other one a bit for each word below that is not zero; the highest is a single word.
    layers: Vec<Vec<u64>>,
}

impl Default for Numbers {
    fn default() -> Self {
        Numbers { layers: vec![vec![0]] }
    }
}

impl Numbers {
    #[inline]
    fn is_empty(&self) -> bool {
        self.layers[self.layers.len() - 1][0] == 0
    }

    #[inline]
    fn contains(&self, number: usize) -> bool {
        let word = self.layers[0].get(number / 64);
        word.is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    #[inline]
    fn least(&self) -> Option<usize> {
        let first = |word: usize, layer: &Vec<u64>| 64 * word + layer[word].trailing_zeros() as usize;
        (!self.is_empty()).then(|| self.layers.iter().rev().fold(0, first))
    }

    fn greatest_below(&self, number: usize) -> Option<usize> {
        let last = |word: usize, bits: u64| 64 * word + 63 - bits.leading_zeros() as usize;
        let mut bound = number;
        for (height, layer) in self.layers.iter().enumerate() {
            let (word, below) = match layer.get(bound / 64) {
                Some(bits) => (bound / 64, bits & ((1 << (bound % 64)) - 1)),
                None => (layer.len() - 1, layer[layer.len() - 1]),
            };
            if below != 0 {
                let lower = self.layers[..height].iter().rev();
                return Some(lower.fold(last(word, below), |word, layer| last(word, layer[word])));
            }
            bound = word;
        }
        None
    }

    #[inline]
    fn insert(&mut self, number: usize) {
        if number / 64 >= self.layers[0].len() {
            self.grow(number);
        }
        let mut at = number;
        for layer in &mut self.layers {
            let word = &mut layer[at / 64];
            let was = *word;
            *word |= 1 << (at % 64);
            // A word that was not zero is told of above.
            if was != 0 {
                return;
            }
            at /= 64;
        }
    }

    #[inline]
    fn remove(&mut self, number: usize) {
        let mut at = number;
        for layer in &mut self.layers {
            let word = &mut layer[at / 64];
            *word &= !(1 << (at % 64));
            if *word != 0 {
                return;
            }
            at /= 64;
        }
    }

    /// Makes room for a number.
    #[cold]
    fn grow(&mut self, number: usize) {
        let mut lowest = std::mem::take(&mut self.layers[0]);
        lowest.resize((number / 64 + 1).next_power_of_two(), 0);
        self.layers = vec![lowest];
        while let Some(below) = self.layers.last().filter(|below| below.len() > 1) {
            let bits = |words: &[u64]| {
                let occupied = (0..).zip(words).filter(|(_, word)| **word != 0);
                occupied.fold(0, |bits, (at, _)| bits | 1 << at)
            };
            let above = below.chunks(64).map(bits).collect();
            self.layers.push(above);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Beside a tree, with instances and loads on one, two and three layers.
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
