//! Both solvers share a bound that leaves out what cannot be best. Without it they must say the same, of more
//! allocations than can be listed.

use proptest::prelude::*;

use crate::bound::Bound;
use crate::curve::MeanLatency;
use crate::dynamic;
#[cfg(feature = "highs")]
use crate::integer;
use crate::problem::{Problem, Runtime};

/// Six runtimes on twenty instances: 42,504 ways to give these out, less what the floors exclude.
fn problems() -> impl Strategy<Value = Problem> {
    let demand = |most: u64| 0..most;
    let demands = [60_000, 40_000, 15_000, 8_000, 4_000, 2_000].map(demand);
    (Vec::from(demands), 1_000_000u64..3_000_000, any::<bool>()).prop_map(|(demand_milli, of_shortest_ns, within)| {
        let runtime = |at: u32| Runtime {
            max_length: 64 * at,
            capacity: 24 / at,
            latency: MeanLatency::Serial {
                service_ns: u64::from(at) * of_shortest_ns,
            },
        };
        Problem {
            runtimes: (1..7).map(runtime).collect(),
            demand_milli,
            cards: 20,
            instances_per_card: 1,
            previous: Vec::new(),
            longest_within_capacity: within,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_the_bound_leaves_out_is_not_the_best(problem in problems()) {
        let floors = problem.floors();
        prop_assume!(floors.iter().sum::<u64>() <= 20);
        let Some(pruned) = dynamic::solve(&problem, &floors) else {
            return Ok(());
        };
        let bound = || Bound::new(&problem, &floors).unwrap();
        let all = dynamic::solve_within(&problem, &floors, &bound().opened(f64::INFINITY), dynamic::STATES_MAX);
        prop_assert_eq!(&all, &pruned);
        // HiGHS looks at all that cost up to half as much again; its tolerances are shares of what it looks at.
        #[cfg(feature = "highs")]
        {
            let more = integer::solve_within(&problem, &floors, &bound().opened(1.5), integer::ARCS_MAX);
            prop_assert!(!more.status.is_fallback(), "{:?}", more.status);
            prop_assert_eq!(more.flow.cost, pruned.flow.cost);
        }
    }
}
