//! The program solved as an integer program by HiGHS: the general formulation, to which constraints can be added.
//!
//! One unit flows through a network (an arc-flow formulation). A node is what the runtimes so far leave to the others:
//! (runtime, instances used, requests carried over). An arc is one count of a runtime at a node, and leads to the node
//! that Eqs. 4 to 6 make of it, so that its cost is exact, whatever the curve. Nothing is relaxed but that the unit may
//! split, and since each column of the matrix has one −1 and one +1 (it is totally unimodular), at a vertex it does
//! not: the first relaxation has the answer.
//!
//! An arc is charged what it raises the lower bound by ([`Bound::excess_of`]). Those that raise it above the cost of
//! the allocation known beforehand are left out, as the dynamic program does; nothing else is, so that constraints may
//! make any allocation that costs no more the best.

use std::collections::{BTreeMap, BTreeSet};

use highs::{ColProblem, HighsModelStatus, Sense};

use crate::allocation::{Allocation, Status, rank};
use crate::bound::{Bound, gap, keeps};
use crate::problem::Problem;

/// Arcs above which the best allocation known is returned instead: some seconds of HiGHS's.
pub(crate) const ARCS_MAX: usize = 200_000;
/// What the bound leaves to be found, in the solver's units, so that its tolerances mean the same for every problem.
const SCALE: f64 = 100.0;

/// One count of a runtime at one node.
struct Arc {
    /// Nodes are numbered through all runtimes, the first being the start; the end has none.
    from: usize,
    to: usize,
    count: u32,
    /// By how much it raises the lower bound.
    excess: f64,
}

/// Solves a problem that is sound and whose floors fit; nothing where no allocation is permitted.
pub(crate) fn solve(problem: &Problem, floors: &[u64]) -> Option<Allocation> {
    let bound = Bound::new(problem, floors)?;
    Some(solve_within(problem, floors, &bound, ARCS_MAX))
}

pub(crate) fn solve_within(problem: &Problem, floors: &[u64], bound: &Bound, arcs_max: usize) -> Allocation {
    let instances = problem.instances();
    let found = network(problem, floors, bound, arcs_max).and_then(|arcs| shortest(&arcs, bound.room(instances)));
    let Some((mut counts, above)) = found else {
        return Allocation::new(problem, bound.incumbent.clone(), bound.gave_up(instances));
    };
    let gap = gap(problem.total_cost(&counts), bound.lower(instances) + above);
    settle(problem, floors, &mut counts);
    Allocation::new(problem, counts, Status::Within(gap))
}

/// All arcs that the bound admits on some way from the start, by runtime; none if there are more than `arcs_max`.
fn network(problem: &Problem, floors: &[u64], bound: &Bound, arcs_max: usize) -> Option<Vec<Vec<Arc>>> {
    let counts = bound.counts(problem, floors);
    let (instances, last) = (problem.instances(), floors.len() - 1);
    // By (used, carry): its number, and the least that the bound is raised by on a way to it.
    let mut nodes = BTreeMap::from([((0, 0), (0, 0.0))]);
    let (mut numbered, mut held) = (1, 0);
    let mut layers = Vec::with_capacity(floors.len());
    for at in 0..=last {
        let floors_after = floors[at + 1..].iter().sum::<u64>() as u32;
        let mut next: BTreeMap<(u32, u64), (usize, f64)> = BTreeMap::new();
        let mut arcs = Vec::new();
        for (&(used, carry), &(from, raised)) in &nodes {
            let left = instances - used - floors_after;
            if at == last && !problem.permits(left, carry + problem.demand_milli[at]) {
                continue;
            }
            // The longest runtime takes all that is left (Eq. 2).
            let choices = if at == last {
                std::slice::from_ref(&left)
            } else {
                &counts[at][..]
            };
            for &count in choices.iter().take_while(|&&count| count <= left) {
                let (excess, carried) = bound.excess_of(problem, at, count, carry);
                let after = raised + excess;
                if after > bound.room(instances) {
                    continue;
                }
                let node = next.entry((used + count, carried)).or_insert((numbered, after));
                numbered = numbered.max(node.0 + 1);
                node.1 = node.1.min(after);
                arcs.push(Arc {
                    from,
                    to: node.0,
                    count,
                    excess,
                });
            }
            if held + arcs.len() > arcs_max {
                return None;
            }
        }
        held += arcs.len();
        layers.push(arcs);
        nodes = next;
    }
    // What leads nowhere.
    for at in (0..last).rev() {
        let open: BTreeSet<usize> = layers[at + 1].iter().map(|arc| arc.from).collect();
        layers[at].retain(|arc| open.contains(&arc.to));
    }
    Some(layers)
}

/// The counts on the path of least excess as HiGHS finds it, and HiGHS's bound on that excess. Without its presolve,
/// which has ended in errors of its own and in answers that are not the best on another formulation of this program
/// (`docs/arlo-solver.md`).
fn shortest(layers: &[Vec<Arc>], room: f64) -> Option<(Vec<u32>, f64)> {
    let scale = SCALE / room.max(1.0);
    let mut program = ColProblem::new();
    let mut rows = BTreeMap::new();
    for arc in layers.iter().flatten() {
        // One unit starts at node 0; as much leaves any other as comes.
        let bound = if arc.from == 0 { -1 } else { 0 };
        rows.entry(arc.from).or_insert_with(|| program.add_row(bound..=bound));
    }
    for arc in layers.iter().flatten() {
        let ends = [(arc.from, -1.0), (arc.to, 1.0)];
        let terms = ends.into_iter().filter_map(|(node, sign)| Some((*rows.get(&node)?, sign)));
        program.add_integer_column(scale * arc.excess, 0..=1, terms.collect::<Vec<_>>());
    }
    let mut model = program.optimise(Sense::Minimise);
    model.make_quiet();
    model.set_option("presolve", "off");
    model.set_option("threads", 1);
    model.set_option("parallel", "off");
    model.set_option("mip_rel_gap", 0.0);
    let solved = model.try_solve().ok()?;
    if solved.status() != HighsModelStatus::Optimal {
        return None;
    }
    let lower = solved.double_info_value(c"mip_dual_bound").ok()?;
    let solution = solved.get_solution();
    let mut taken = solution.columns().iter().map(|flow| *flow > 0.5);
    let chosen = |arcs: &Vec<Arc>| {
        let taken = arcs.iter().zip(taken.by_ref()).filter(|(_, taken)| *taken).last();
        taken.map(|(arc, _)| arc.count)
    };
    let counts = layers.iter().map(chosen).collect::<Option<_>>()?;
    Some((counts, lower / scale))
}

/// Keeps what is there if that costs as little, and moves single instances while that costs nothing and keeps more of
/// it, or gives more to longer runtimes: HiGHS does not tell equals apart.
fn settle(problem: &Problem, floors: &[u64], counts: &mut Vec<u32>) {
    if keeps(problem, floors, &problem.previous) && rank(problem, &problem.previous) < rank(problem, counts) {
        counts.clone_from(&problem.previous);
    }
    let mut best = rank(problem, counts);
    let mut moved = true;
    while moved {
        moved = false;
        for from in 0..counts.len() {
            for to in 0..counts.len() {
                if from == to || u64::from(counts[from]) <= floors[from] {
                    continue;
                }
                counts[from] -= 1;
                counts[to] += 1;
                let other = rank(problem, counts);
                if other < best {
                    (best, moved) = (other, true);
                } else {
                    counts[from] += 1;
                    counts[to] -= 1;
                }
            }
        }
    }
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
        assert!(
            matches!(solved.status, Status::Within(gap) if gap < 1e-6),
            "{:?}",
            solved.status
        );
        let bound = Bound::new(&problem, &floors).unwrap();
        assert_stopped(&solve_within(&problem, &floors, &bound, 1), &solved);
    }
}
