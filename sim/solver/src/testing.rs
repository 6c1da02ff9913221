//! What both solvers are tested by.

use crate::allocation::{Allocation, Status};
use crate::curve::MeanLatency;
use crate::problem::{Problem, Runtime};

/// Four runtimes whose shares cannot be told apart at once.
pub fn problem() -> Problem {
    let runtime = |at: u32| Runtime {
        max_length: at,
        capacity: 12 / at,
        latency: MeanLatency::Serial {
            service_ns: u64::from(at) * 1_000_000,
        },
    };
    Problem {
        runtimes: (1..5).map(runtime).collect(),
        demand_milli: vec![31_000, 11_500, 5_200, 1_700],
        cards: 12,
        instances_per_card: 1,
        previous: Vec::new(),
        longest_within_capacity: false,
    }
}

/// A solver that was not let work gives all 12 instances out, and is no further above the optimum than it says.
pub fn assert_stopped(stopped: &Allocation, solved: &Allocation) {
    let Status::Limit(gap) = stopped.status else {
        panic!("it was not let work: {:?}", stopped.status);
    };
    assert!(stopped.status.is_fallback());
    assert_eq!(stopped.instances.iter().sum::<u32>(), 12);
    let above = (stopped.flow.cost - solved.flow.cost) as f64 / stopped.flow.cost as f64;
    assert!(
        above <= gap && gap < 0.5,
        "the optimum is {above} below, the bound {gap}"
    );
}
