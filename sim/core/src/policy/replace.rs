//! From one allocation to another by the fewest changes, a few at a time (Arlo, section 4, "Instance replacement").

/// An instance as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deployed {
    /// Whatever the caller calls it.
    pub instance: u32,
    /// Index of its runtime.
    pub runtime: usize,
    /// Outstanding requests.
    pub load: u32,
}

/// One instance that loads another runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which.
    pub instance: u32,
    /// The runtime that it leaves.
    pub from: usize,
    /// The runtime that it loads.
    pub to: usize,
}

/// Batches of at most `at_once` changes that turn what is deployed into `target`, an instance count a runtime.
///
/// No instance changes twice and none that could stay changes, so the number of changes is the least. The least loaded
/// leave first (among equals the lower number). Longer runtimes are filled first, since they can serve what shorter
/// ones cannot yet. Within a batch the leaving instances are taken from the runtimes in turn, the one with most to give
/// first, so that no runtime loses many at once. While a batch is under way every runtime keeps at least the smaller of
/// its old and new count.
///
/// # Panics
/// When the target is not for as many instances as there are, an instance has no such runtime, or `at_once` is 0.
pub fn replacement(deployed: &[Deployed], target: &[u32], at_once: usize) -> Vec<Vec<Change>> {
    assert!(at_once > 0, "a batch has a change");
    let wanted = target.iter().map(|&count| count as usize).sum::<usize>();
    assert_eq!(wanted, deployed.len(), "a target is for the instances that there are");
    let mut by_runtime = vec![Vec::new(); target.len()];
    for instance in deployed {
        by_runtime[instance.runtime].push(*instance);
    }
    let mut missing = Vec::new();
    for (runtime, instances) in by_runtime.iter_mut().enumerate() {
        let keep = target[runtime] as usize;
        missing.extend(std::iter::repeat_n(runtime, keep.saturating_sub(instances.len())));
        // What may leave, the next to leave last.
        instances.sort_unstable_by_key(|instance| (instance.load, instance.instance));
        instances.truncate(instances.len().saturating_sub(keep));
        instances.reverse();
    }
    let mut changes = Vec::with_capacity(missing.len());
    while changes.len() < missing.len() {
        // One round: each runtime with something to give gives one, the one with most first.
        let mut givers: Vec<usize> = (0..target.len()).filter(|&runtime| !by_runtime[runtime].is_empty()).collect();
        givers.sort_by_key(|&runtime| std::cmp::Reverse(by_runtime[runtime].len()));
        for from in givers {
            let leaving = by_runtime[from].pop().expect("it has something to give");
            changes.push(Change {
                instance: leaving.instance,
                from,
                to: missing[missing.len() - 1 - changes.len()],
            });
        }
    }
    changes.chunks(at_once).map(<[Change]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn deployed(runtimes: &[usize], loads: &[u32]) -> Vec<Deployed> {
        let of = |(at, (&runtime, &load)): (usize, (&usize, &u32))| Deployed {
            instance: at as u32,
            runtime,
            load,
        };
        runtimes.iter().zip(loads).enumerate().map(of).collect()
    }

    #[test]
    fn the_least_loaded_leave_and_the_longest_is_filled_first() {
        let now = deployed(&[0, 0, 0, 0, 1], &[9, 2, 7, 2, 0]);
        let plan = replacement(&now, &[1, 2, 2], 2);
        let change = |instance, to| Change { instance, from: 0, to };
        assert_eq!(plan, [vec![change(1, 2), change(3, 2)], vec![change(2, 1)]]);
    }

    #[test]
    fn an_allocation_in_force_needs_no_change() {
        let now = deployed(&[0, 1], &[0, 0]);
        assert_eq!(replacement(&now, &[1, 1], 3), Vec::<Vec<Change>>::new());
    }

    proptest! {
        #[test]
        fn plans_are_least_and_never_starve_a_runtime(
            runtimes in prop::collection::vec(0usize..4, 1..30),
            wishes in prop::collection::vec(0usize..4, 30),
            at_once in 1usize..5,
        ) {
            let now = deployed(&runtimes, &vec![0; runtimes.len()]);
            let mut old = [0u32; 4];
            let mut target = [0u32; 4];
            for (at, &runtime) in runtimes.iter().enumerate() {
                old[runtime] += 1;
                target[wishes[at]] += 1;
            }
            let plan = replacement(&now, &target, at_once);
            let mut counts = old;
            let mut changed = std::collections::BTreeSet::new();
            for batch in &plan {
                prop_assert!(batch.len() <= at_once);
                for change in batch {
                    prop_assert!(changed.insert(change.instance));
                    prop_assert_eq!(runtimes[change.instance as usize], change.from);
                    counts[change.from] -= 1;
                }
                for runtime in 0..4 {
                    prop_assert!(counts[runtime] >= old[runtime].min(target[runtime]));
                }
                for change in batch {
                    counts[change.to] += 1;
                }
            }
            prop_assert_eq!(counts, target);
            let least: u32 = (0..4).map(|runtime| target[runtime].saturating_sub(old[runtime])).sum();
            prop_assert_eq!(changed.len() as u32, least);
        }
    }
}
