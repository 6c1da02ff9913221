//! The program solved by an exact dynamic program over (runtime, instances used, carry).
//!
//! A partial allocation of the first runtimes matters to the rest only by the instances that it used and the requests
//! that it carries over. Of two that used the same, the one with no more carry and no worse rank wins; one that used
//! fewer with no more carry and costs less wins as well, since the longest runtime can take the difference. What no
//! bound excludes is kept and extended by one runtime at a time.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::allocation::{Allocation, Status};
use crate::bound::Bound;
use crate::problem::Problem;

/// Partial allocations held at once before the search gives up with the best allocation that it knows.
pub(crate) const STATES_MAX: usize = 4_000_000;

/// A partial allocation, ending with the runtime of its layer.
#[derive(Clone, Copy, Debug)]
struct State {
    used: u32,
    carry_milli: u64,
    cost: u128,
    changes: u32,
    /// Instances of the layer's runtime.
    count: u32,
    /// Index in the layer before.
    parent: u32,
}

/// Solves a problem that is sound and whose floors fit; nothing where no allocation is permitted.
pub(crate) fn solve(problem: &Problem, floors: &[u64]) -> Option<Allocation> {
    let bound = Bound::new(problem, floors)?;
    Some(solve_within(problem, floors, &bound, STATES_MAX))
}

pub(crate) fn solve_within(problem: &Problem, floors: &[u64], bound: &Bound, states_max: usize) -> Allocation {
    let counts = bound.counts(problem, floors);
    let instances = problem.instances();
    let last = problem.runtimes.len() - 1;
    let root = State {
        used: 0,
        carry_milli: 0,
        cost: 0,
        changes: 0,
        count: 0,
        parent: 0,
    };
    let mut layers = vec![vec![root]];
    let mut held = 0;
    for at in 0..=last {
        let floors_after = floors[at + 1..].iter().sum::<u64>() as u32;
        let mut found = Vec::new();
        for (parent, state) in layers[at].iter().enumerate() {
            let left = instances - state.used - floors_after;
            if at == last && !problem.permits(left, state.carry_milli + problem.demand_milli[at]) {
                continue;
            }
            // The longest runtime takes all that is left (Eq. 2).
            let choices = if at == last {
                std::slice::from_ref(&left)
            } else {
                &counts[at][..]
            };
            for &count in choices.iter().take_while(|&&count| count <= left) {
                let next = extend(problem, at, state, parent as u32, count);
                if bound.admits(at + 1, instances - next.used, next.carry_milli, next.cost) {
                    found.push(next);
                }
            }
            if held + found.len() > states_max {
                return Allocation::new(problem, bound.incumbent.clone(), bound.gave_up(instances));
            }
        }
        let kept = undominated(&layers, found);
        held += kept.len();
        layers.push(kept);
    }
    let best = layers[last + 1].iter().enumerate().min_by(|a, b| compare(&layers, last + 1, a.1, b.1));
    let (best, _) = best.expect("the incumbent's own states are admitted");
    Allocation::new(problem, counts_of(&layers, best), Status::Optimal)
}

fn extend(problem: &Problem, at: usize, state: &State, parent: u32, count: u32) -> State {
    let (load, carry_milli) = if at + 1 == problem.runtimes.len() {
        (state.carry_milli + problem.demand_milli[at], 0)
    } else {
        problem.serve(at, count, state.carry_milli)
    };
    let previous = problem.previous.get(at).map_or(count, |&previous| previous);
    State {
        used: state.used + count,
        carry_milli,
        cost: state.cost + problem.cost(at, count, load),
        changes: state.changes + count.saturating_sub(previous),
        count,
        parent,
    }
}

/// Those of a layer that no other makes superfluous. `layers` are the layers before.
fn undominated(layers: &[Vec<State>], mut states: Vec<State>) -> Vec<State> {
    let depth = layers.len();
    states.sort_unstable_by(|a, b| {
        let place = (a.used, a.carry_milli).cmp(&(b.used, b.carry_milli));
        place.then_with(|| compare(layers, depth, a, b))
    });
    let mut kept: Vec<State> = Vec::new();
    // The least cost with at most a carry, over those that used fewer: costs fall as carries rise.
    let mut fewer: BTreeMap<u64, u128> = BTreeMap::new();
    for group in states.chunk_by(|a, b| a.used == b.used) {
        let start = kept.len();
        for state in group {
            let same = kept[start..].last().is_some_and(|best| compare(layers, depth, best, state).is_le());
            let cheaper = fewer.range(..=state.carry_milli).next_back();
            if !same && cheaper.is_none_or(|(_, &cost)| cost >= state.cost) {
                kept.push(*state);
            }
        }
        for state in &kept[start..] {
            let least = fewer.range(..=state.carry_milli).next_back();
            if least.is_none_or(|(_, &cost)| state.cost < cost) {
                fewer.insert(state.carry_milli, state.cost);
                let beaten = fewer.range(state.carry_milli + 1..).take_while(|(_, cost)| **cost >= state.cost);
                for carry in beaten.map(|(&carry, _)| carry).collect::<Vec<_>>() {
                    fewer.remove(&carry);
                }
            }
        }
    }
    kept
}

/// The better of two partial allocations of the first `depth` runtimes: cost, then changes, then more of the longer
/// runtimes.
fn compare(layers: &[Vec<State>], depth: usize, a: &State, b: &State) -> Ordering {
    (a.cost, a.changes).cmp(&(b.cost, b.changes)).then_with(|| {
        let (mut a, mut b) = (a, b);
        for layer in layers[..depth].iter().rev() {
            if a.count != b.count {
                return b.count.cmp(&a.count);
            }
            (a, b) = (&layer[a.parent as usize], &layer[b.parent as usize]);
        }
        Ordering::Equal
    })
}

fn counts_of(layers: &[Vec<State>], mut index: usize) -> Vec<u32> {
    let mut counts = Vec::with_capacity(layers.len() - 1);
    for layer in layers[1..].iter().rev() {
        counts.push(layer[index].count);
        index = layer[index].parent as usize;
    }
    counts.reverse();
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_stopped, problem};

    #[test]
    fn beyond_its_limit_the_best_known_is_returned_with_its_gap() {
        let problem = problem();
        let floors = problem.floors();
        let solved = solve(&problem, &floors).unwrap();
        assert_eq!(solved.status, Status::Optimal);
        let bound = Bound::new(&problem, &floors).unwrap();
        assert_stopped(&solve_within(&problem, &floors, &bound, 0), &solved);
    }
}
