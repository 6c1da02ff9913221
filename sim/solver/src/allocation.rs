//! The program's output, and which of two allocations is the better.

#[cfg(feature = "highs")]
use std::cmp::Reverse;

use crate::problem::{Flow, Problem};

/// How many instances of each runtime, and how sure that is.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocation {
    /// N: instances of each runtime, by ascending length.
    pub instances: Vec<u32>,
    /// What becomes of the demand, its cost being the objective (Eq. 1).
    pub flow: Flow,
    /// Instances that must load a runtime which they do not have now.
    pub changes: u32,
    /// How it was found.
    pub status: Status,
}

/// How an allocation came about.
#[derive(Clone, Debug, PartialEq)]
pub enum Status {
    /// Nothing costs less.
    Optimal,
    /// HiGHS: no allocation costs less by more than this share of the cost.
    Within(f64),
    /// Eqs. 3 and 7 ask for more instances than there are. Solved instead, to optimality or the limit, for the largest
    /// share of the demand, the same of every length, that fits; `flow` is that of the whole demand.
    Infeasible {
        /// Instances that Eqs. 3 and 7 ask for.
        needed: u64,
        /// The share solved for, in parts per million, rounded down.
        served_ppm: u32,
    },
    /// The longest runtime was to be within its capacity, and no allocation keeps it there. Solved instead without
    /// that, with instances moved to the longest runtime for as long as that lessens what is too much.
    LongestBeyond,
    /// The solver gave up at its fixed limit: the best allocation found, and the share of its cost that is above the
    /// bound.
    Limit(f64),
}

impl Status {
    /// Whether the allocation is a fallback, to be counted in a report.
    pub fn is_fallback(&self) -> bool {
        matches!(
            self,
            Status::Infeasible { .. } | Status::LongestBeyond | Status::Limit(_)
        )
    }

    /// Whether more requests come than the instances finish within the SLO, however they are given out.
    pub(crate) fn is_beyond(&self) -> bool {
        matches!(self, Status::Infeasible { .. } | Status::LongestBeyond)
    }
}

impl Allocation {
    pub(crate) fn new(problem: &Problem, instances: Vec<u32>, status: Status) -> Allocation {
        Allocation {
            flow: problem.flow(&instances),
            changes: problem.changes(&instances),
            instances,
            status,
        }
    }
}

/// The lower the better: cost, then changes, then more instances of the longer runtimes.
#[cfg(feature = "highs")]
pub(crate) fn rank(problem: &Problem, counts: &[u32]) -> (u128, u32, Reverse<Vec<u32>>) {
    let longest_first = counts.iter().rev().copied().collect();
    (
        problem.total_cost(counts),
        problem.changes(counts),
        Reverse(longest_first),
    )
}
