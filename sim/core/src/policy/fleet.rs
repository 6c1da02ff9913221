//! How many instances each runtime has: what the solver is asked, what it answers, and the allocations that need none.

use tenantry_traces::Duration;

use crate::spec::SolverSpec;

/// Instances that an allocation is solved for, at most.
pub const SOLVED_INSTANCES_MAX: u32 = 100_000;

/// What the allocation program is solved for: streams that share the instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// At least one.
    pub streams: Vec<StreamQuestion>,
    /// To be given out among all streams.
    pub instances: u32,
    /// Over how long requests were counted.
    pub span: Duration,
    /// Who solves it.
    pub solver: SolverSpec,
}

/// A stream's part of the question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamQuestion {
    /// The latency promised.
    pub slo: Duration,
    /// By ascending length.
    pub runtimes: Vec<RuntimeQuestion>,
}

/// A runtime, and what was asked of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimeQuestion {
    /// The longest request that it serves, in tokens.
    pub max_length: u32,
    /// M: requests that one instance finishes within the SLO.
    pub capacity: u32,
    /// Of one request on an instance that does nothing else.
    pub service: Duration,
    /// Requests observed that fit it and no shorter one.
    pub requests: u64,
    /// Instances that have it now.
    pub previous: u32,
}

/// An allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocated {
    /// Instances of each runtime, the streams one after the other.
    pub instances: Vec<u32>,
    /// Why it is what is defined in the place of a solution, if it is; of several streams' reasons the gravest.
    pub fallback: Option<Fallback>,
}

/// Why an allocation stands for a solution, the gravest reason last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fallback {
    /// The solver met its limit, and the allocation is the best that it knew.
    SolverLimit,
    /// However a stream's instances are given out, the longest runtime has more to do than it finishes within the SLO.
    LongestBeyondCapacity,
    /// More requests came than the instances finish within the SLO, one of which is of the longest runtime.
    DemandBeyondCards,
    /// The question was none that the solver takes, and the allocation stays as it was.
    QuestionRefused,
}

impl Fallback {
    /// As results call it.
    pub fn name(self) -> &'static str {
        match self {
            Fallback::SolverLimit => "solver_limit",
            Fallback::LongestBeyondCapacity => "longest_beyond_capacity",
            Fallback::DemandBeyondCards => "demand_beyond_cards",
            Fallback::QuestionRefused => "question_refused",
        }
    }
}

/// Instances given evenly to all runtimes; what is left over goes to the longer ones, so that the longest has at least
/// one (Arlo, section 5.2.3, Table 3).
pub fn even(runtimes: usize, instances: u32) -> Vec<u32> {
    let each = instances / runtimes as u32;
    let left_over = instances as usize % runtimes;
    (0..runtimes).map(|at| each + u32::from(at >= runtimes - left_over)).collect()
}

/// An answer made to fit another number of instances, since some came or went while it was found: more go to the last
/// runtime, as added cards do; fewer are taken one by one from the runtime that has most, of equals the shortest.
pub fn fitted(mut target: Vec<u32>, instances: u32) -> Vec<u32> {
    let mut total: u32 = target.iter().sum();
    if let Some(last) = target.last_mut() {
        *last += instances.saturating_sub(total);
        total = total.max(instances);
    }
    for _ in instances..total {
        let most = (0..target.len()).max_by_key(|&at| (target[at], std::cmp::Reverse(at)));
        target[most.expect("there is a runtime")] -= 1;
    }
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_runtimes_get_what_is_left_over() {
        assert_eq!(even(4, 10), [2, 2, 3, 3]);
        assert_eq!(even(4, 8), [2, 2, 2, 2]);
        assert_eq!(even(3, 1), [0, 0, 1]);
    }

    #[test]
    fn an_answer_fits_the_instances_that_there_are() {
        assert_eq!(fitted(vec![3, 1, 1], 7), [3, 1, 3]);
        assert_eq!(fitted(vec![3, 3, 1], 4), [1, 2, 1]);
        assert_eq!(fitted(vec![2, 2], 4), [2, 2]);
    }
}
