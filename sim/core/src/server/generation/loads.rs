//! Instances by how many requests they have.

use crate::ids::InstanceId;

/// All instances in order of their loads, then of their numbers.
///
/// A request more or less moves an instance past those with as many as it, which lie side by side: a move of memory, 8
/// KiB for a thousand instances at the most, where a tree takes some 150 instructions out and as many in.
#[derive(Debug)]
pub(super) struct ByLoad(Vec<(u32, InstanceId)>);

impl ByLoad {
    /// All idle.
    pub fn new(instances: impl Iterator<Item = InstanceId>) -> ByLoad {
        ByLoad(instances.map(|id| (0, id)).collect())
    }

    /// Those with fewer requests than so many.
    fn below(&self, load: u32) -> &[(u32, InstanceId)] {
        &self.0[..self.0.partition_point(|&(of, _)| of < load)]
    }

    /// What the one with fewest requests has.
    #[inline]
    pub fn least(&self) -> u32 {
        self.0[0].0
    }

    /// Of those with fewer requests than so many, the one with fewest that fits.
    pub fn least_loaded(&self, below: u32, fits: impl Fn(InstanceId) -> bool) -> Option<InstanceId> {
        self.below(below).iter().map(|&(_, id)| id).find(|&id| fits(id))
    }

    /// Likewise, the one with most.
    pub fn most_loaded(&self, below: u32, fits: impl Fn(InstanceId) -> bool) -> Option<InstanceId> {
        self.below(below).iter().rev().map(|&(_, id)| id).find(|&id| fits(id))
    }

    /// Whether an instance stands where it belongs with so many.
    pub fn holds(&self, instance: InstanceId, load: u32) -> bool {
        self.0.binary_search(&(load, instance)).is_ok()
    }

    /// Those that have any.
    pub fn busy(&self) -> &[(u32, InstanceId)] {
        &self.0[self.below(1).len()..]
    }

    /// Those after one that has so many.
    pub fn after(&self, load: u32, instance: InstanceId) -> &[(u32, InstanceId)] {
        &self.0[self.0.partition_point(|&other| other <= (load, instance))..]
    }

    /// An instance has another load than it had.
    #[inline(never)]
    pub fn change(&mut self, instance: InstanceId, was: u32, load: u32) {
        let from = self.0.binary_search(&(was, instance));
        let from = from.expect("every instance has its place");
        let to = self.0.partition_point(|&other| other < (load, instance));
        let place = match from < to {
            true => {
                self.0.copy_within(from + 1..to, from);
                to - 1
            }
            false => {
                self.0.copy_within(to..from, to + 1);
                to
            }
        };
        self.0[place] = (load, instance);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Beside a set.
        #[test]
        fn it_is_in_order(changes in proptest::collection::vec((0u32..9, 0u32..5), 0..100), asked in 0u32..6, of in 0u32..9) {
            let ids = || (0..9).map(InstanceId);
            let (mut by_load, mut set) = (ByLoad::new(ids()), ids().map(|id| (0, id)).collect::<BTreeSet<_>>());
            let mut loads = [0; 9];
            for (instance, load) in changes {
                let was = std::mem::replace(&mut loads[instance as usize], load);
                by_load.change(InstanceId(instance), was, load);
                set.remove(&(was, InstanceId(instance)));
                set.insert((load, InstanceId(instance)));
            }
            prop_assert!(by_load.below(u32::MAX).iter().eq(&set));
            prop_assert!(by_load.below(asked).iter().eq(set.range(..(asked, InstanceId(0)))));
            prop_assert!(by_load.busy().iter().eq(set.range((1, InstanceId(0))..)));
            prop_assert!(by_load.after(asked, InstanceId(of)).iter().eq(set.range((asked, InstanceId(of + 1))..)));
        }
    }
}
