//! The longest runtime within its capacity: a constraint of ours beside the paper's.
//!
//! Eq. 5 lets the longest runtime take whatever the others leave, and Eq. 1 charges it for a queue that is gone after a
//! window. But what is beyond its capacity comes again in every window: its queue would grow without end. So servers
//! ask for the cheapest allocation of those in which it has no more to do than it finishes within the SLO, as Eq. 4 has
//! it of all others.

use std::collections::BTreeMap;

use crate::problem::Problem;

/// An allocation that keeps the longest runtime within its capacity, if there is one. The floors fit.
///
/// Of partial allocations with as many instances the one that leaves least is the best for all runtimes after it,
/// whatever it costs; and one that leaves no less than another with fewer is superfluous.
pub(crate) fn within(problem: &Problem, floors: &[u64]) -> Option<Vec<u32>> {
    let last = floors.len() - 1;
    let spare = problem.instances() - floors.iter().sum::<u64>() as u32;
    // By how many instances above the floors are used: what is left to longer runtimes, and the counts.
    let mut partial = BTreeMap::from([(0, (0, Vec::new()))]);
    for (at, &floor) in floors[..last].iter().enumerate() {
        let mut next: BTreeMap<u32, (u64, Vec<u32>)> = BTreeMap::new();
        for (used, (carry, counts)) in &partial {
            for more in 0..=spare - used {
                let count = floor as u32 + more;
                let (_, left) = problem.serve(at, count, *carry);
                if next.get(&(used + more)).is_none_or(|best| left < best.0) {
                    next.insert(used + more, (left, [&counts[..], &[count]].concat()));
                }
                if left == 0 {
                    break;
                }
            }
        }
        let mut least = u64::MAX;
        next.retain(|_, (left, _)| {
            let is_less = *left < least;
            least = least.min(*left);
            is_less
        });
        partial = next;
    }
    partial.into_iter().find_map(|(used, (carry, mut counts))| {
        let of_longest = floors[last] as u32 + spare - used;
        counts.push(of_longest);
        let excess = problem.excess_milli(of_longest, carry + problem.demand_milli[last]);
        (excess == 0).then_some(counts)
    })
}

/// An allocation with instances moved to the longest runtime, the cheapest first, for as long as that lessens what is
/// beyond its capacity; Eq. 3 holds as before. For where nothing keeps it within.
pub(crate) fn relieved(problem: &Problem, mut counts: Vec<u32>) -> Vec<u32> {
    let last = counts.len() - 1;
    let floors = problem.floors();
    loop {
        let excess = problem.excess_milli(counts[last], problem.flow(&counts).load_milli[last]);
        let moved = |from: usize| {
            let mut moved = counts.clone();
            moved[from] -= 1;
            moved[last] += 1;
            moved
        };
        let givers = (0..last).filter(|&at| u64::from(counts[at]) > floors[at]);
        let better = givers.map(moved).filter_map(|moved| {
            let flow = problem.flow(&moved);
            (problem.excess_milli(moved[last], flow.load_milli[last]) < excess).then_some((flow.cost, moved))
        });
        match better.min() {
            Some((_, moved)) => counts = moved,
            None => return counts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::MeanLatency;
    use crate::problem::Runtime;
    use crate::solve::{Method, solve};
    use crate::{Allocation, Status};

    /// Runtimes of 64, 192, 256 and 512 tokens, and what comes for each in a window of 150 ms.
    fn problem(demand_milli: [u64; 4]) -> Problem {
        let services_ns = [1_152_000, 2_211_000, 2_741_000, 4_860_000];
        let runtime = |(max_length, service_ns): (u32, u64)| Runtime {
            max_length,
            capacity: (150_000_000 / service_ns) as u32,
            latency: MeanLatency::Serial { service_ns },
        };
        Problem {
            runtimes: [64, 192, 256, 512].into_iter().zip(services_ns).map(runtime).collect(),
            demand_milli: demand_milli.into(),
            cards: 6,
            instances_per_card: 1,
            previous: Vec::new(),
            longest_within_capacity: true,
        }
    }

    fn solved(problem: &Problem) -> Allocation {
        let dynamic = solve(problem, Method::Dynamic).unwrap();
        #[cfg(feature = "highs")]
        assert_eq!(
            solve(problem, Method::Integer).unwrap().instances,
            dynamic.instances,
            "both agree"
        );
        dynamic
    }

    /// 2,200 requests a second: moved from the program's solution one at a time to wherever they cost least, instances
    /// end at [0, 4, 1, 1], from which no move lessens what is too much for the longest.
    #[test]
    fn what_single_moves_do_not_find_is_found() {
        let problem = problem([2_885, 230_850, 82_500, 13_765]);
        let found = solved(&problem);
        assert_eq!((found.status, found.instances), (Status::Optimal, vec![0, 3, 2, 1]));
        let published = Problem {
            longest_within_capacity: false,
            ..problem.clone()
        };
        let moved = relieved(&problem, solved(&published).instances);
        let load = problem.flow(&moved).load_milli[3];
        assert!(problem.excess_milli(moved[3], load) > 0, "{moved:?}");
    }

    #[test]
    fn nothing_keeps_the_longest_within_its_capacity_where_too_much_is_its_own() {
        // Six of the longest serve 180; the floors ask for three, two, none and one.
        let problem = problem([400_000, 140_000, 50_000, 59_000]);
        assert_eq!(within(&problem, &problem.floors()), None);
        assert_eq!(solved(&problem).status, Status::LongestBeyond);
    }
}
