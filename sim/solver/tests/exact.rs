//! Both solvers against every allocation there is, on problems small enough to list them.

#[path = "../benches/common/mod.rs"]
mod common;

use proptest::prelude::*;
use tenantry_solver::{Allocation, MILLI, MeanLatency, Method, Problem, Runtime, Status, solve};

/// Any curves, and latencies so short that their rounding makes equals.
fn problems() -> impl Strategy<Value = Problem> {
    (1usize..5).prop_flat_map(|runtimes| {
        let latency = prop_oneof![
            3 => (1u64..40).prop_map(|service_ns| MeanLatency::Serial { service_ns }),
            1 => (1u64..30, 0u64..40, 0u64..40).prop_map(|(start, first, second)| {
                MeanLatency::Points(vec![(1, start), (2, start + first), (4, start + first + 2 * second)])
            }),
        ];
        // Whole requests, for ties; thousandths, for all else.
        let demand = prop_oneof![(0u64..16).prop_map(|requests| requests * MILLI), 0u64..16_000];
        (
            prop::collection::vec((1u32..7, latency), runtimes),
            prop::collection::vec(demand, runtimes),
            1u32..10,
            1u32..3,
            prop::option::of(prop::collection::vec(0u32..6, runtimes)),
            any::<bool>(),
        )
            .prop_map(
                |(runtimes, demand_milli, cards, instances_per_card, previous, longest_within_capacity)| Problem {
                    runtimes: (1..)
                        .zip(runtimes)
                        .map(|(at, (capacity, latency))| Runtime {
                            max_length: 64 * at,
                            capacity,
                            latency,
                        })
                        .collect(),
                    demand_milli,
                    cards,
                    instances_per_card,
                    previous: previous.unwrap_or_default(),
                    longest_within_capacity,
                },
            )
    })
}

/// Whether the longest runtime has no more to do than it finishes within the SLO.
fn is_within(problem: &Problem, counts: &[u32]) -> bool {
    let last = counts.len() - 1;
    let capacity_milli = u64::from(problem.runtimes[last].capacity) * MILLI;
    problem.flow(counts).load_milli[last] <= u64::from(counts[last]) * capacity_milli
}

/// All ways to give out `instances`, in order.
fn all(runtimes: usize, instances: u32) -> Vec<Vec<u32>> {
    if runtimes == 1 {
        return vec![vec![instances]];
    }
    let with_first =
        |first: u32| all(runtimes - 1, instances - first).into_iter().map(move |rest| [vec![first], rest].concat());
    (0..=instances).flat_map(with_first).collect()
}

/// Every allocation that Eqs. 2, 3 and 7 permit, and where it is asked for the longest runtime's capacity, the best
/// first, with its cost.
fn ranked(problem: &Problem) -> Vec<(u128, Vec<u32>)> {
    let permitted = |counts: &Vec<u32>| {
        counts.last().is_some_and(|&longest| longest >= 1)
            && counts.iter().enumerate().all(|(at, &count)| {
                let capacity_milli = u64::from(problem.runtimes[at].capacity) * MILLI;
                u64::from(count) >= problem.demand_milli[at] / capacity_milli
            })
            && (!problem.longest_within_capacity || is_within(problem, counts))
    };
    let changes = |counts: &[u32]| -> u32 {
        let loads = |(now, before): (&u32, &u32)| now.saturating_sub(*before);
        counts.iter().zip(&problem.previous).map(loads).sum()
    };
    let counts = all(problem.runtimes.len(), problem.instances()).into_iter().filter(permitted);
    let mut ranked: Vec<_> = counts.map(|counts| (problem.flow(&counts).cost, counts)).collect();
    ranked.sort_by(|(cost_a, a), (cost_b, b)| {
        let by_change = (cost_a, changes(a)).cmp(&(cost_b, changes(b)));
        by_change.then_with(|| b.iter().rev().cmp(a.iter().rev()))
    });
    ranked
}

/// What is said of a problem that has no solution: its floors do not fit, or it has one as the paper has it, and that
/// is too much for the longest runtime.
fn none_there_is(problem: &Problem, found: &Allocation) -> Result<(), TestCaseError> {
    let published = Problem {
        longest_within_capacity: false,
        ..problem.clone()
    };
    let fits = !ranked(&published).is_empty();
    let is_told = match found.status {
        Status::Infeasible { .. } => !fits,
        Status::LongestBeyond => fits && problem.longest_within_capacity,
        _ => false,
    };
    prop_assert!(is_told, "{:?}", found.status);
    prop_assert_eq!(found.instances.iter().sum::<u32>(), problem.instances());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn the_dynamic_program_finds_the_best_of_all(problem in problems()) {
        let ranked = ranked(&problem);
        let found = solve(&problem, Method::Dynamic).expect("the problem is sound");
        match ranked.first() {
            Some((cost, counts)) => {
                prop_assert_eq!(&found.status, &Status::Optimal);
                prop_assert_eq!(&found.instances, counts);
                prop_assert_eq!(found.flow.cost, *cost);
            }
            None => none_there_is(&problem, &found)?,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_integer_program_agrees(problem in problems()) {
        let ranked = ranked(&problem);
        let found = solve(&problem, Method::Integer).expect("the problem is sound");
        let Some((cost, _)) = ranked.first() else {
            return none_there_is(&problem, &found);
        };
        prop_assert!(matches!(found.status, Status::Within(gap) if gap <= 1e-6), "{:?}", found.status);
        prop_assert_eq!(found.flow.cost, *cost);
        prop_assert!(ranked.iter().any(|(_, counts)| *counts == found.instances), "it keeps to the constraints");
        prop_assert_eq!(found.flow.cost, problem.flow(&found.instances).cost);
    }

    #[test]
    fn what_cannot_be_met_is_still_allocated(mut problem in problems()) {
        for demand in &mut problem.demand_milli {
            *demand += 200_000;
        }
        for method in [Method::Dynamic, Method::Integer] {
            let found = solve(&problem, method).expect("the problem is sound");
            let is_infeasible = matches!(
                found.status,
                Status::Infeasible { needed, served_ppm } if needed > u64::from(problem.instances()) && served_ppm < 1_000_000
            );
            prop_assert!(is_infeasible, "{:?}", found.status);
            prop_assert_eq!(found.instances.iter().sum::<u32>(), problem.instances());
            prop_assert!(found.instances.last().is_some_and(|&longest| longest >= 1));
            prop_assert_eq!(found.flow.load_milli.iter().sum::<u64>(), problem.demand_milli.iter().sum::<u64>());
        }
    }
}

fn serial(capacities: &[u32], services_ns: &[u64], demand_milli: &[u64], cards: u32, previous: &[u32]) -> Problem {
    Problem {
        runtimes: (1..)
            .zip(capacities.iter().zip(services_ns))
            .map(|(at, (&capacity, &service_ns))| Runtime {
                max_length: 64 * at,
                capacity,
                latency: MeanLatency::Serial { service_ns },
            })
            .collect(),
        demand_milli: demand_milli.to_vec(),
        cards,
        instances_per_card: 1,
        previous: previous.to_vec(),
        longest_within_capacity: false,
    }
}

#[test]
fn equals_keep_what_is_there_then_favour_the_longer() {
    // Two runtimes alike in all but length and asked for alike: two of each cost as much as four of the longer.
    let alike = |previous: &[u32]| serial(&[100, 100], &[10, 10], &[6_000, 6_000], 4, previous);
    // Nothing asked for: everything costs nothing.
    let idle = |previous: &[u32]| serial(&[10, 5, 2], &[10, 20, 50], &[0, 0, 0], 9, previous);
    for method in [Method::Dynamic, Method::Integer] {
        let counts = |problem: &Problem| solve(problem, method).expect("sound").instances;
        assert_eq!(counts(&alike(&[2, 2])), [2, 2]);
        assert_eq!(counts(&idle(&[])), [0, 0, 9]);
        assert_eq!(counts(&idle(&[4, 3, 2])), [4, 3, 2]);
    }
    // Two moves away, and nothing as cheap between: only the dynamic program finds these for sure.
    for (previous, expected) in [(&[][..], [0, 4]), (&[3, 1], [2, 2])] {
        let found = solve(&alike(previous), Method::Dynamic).expect("sound");
        assert_eq!(found.instances, expected);
    }
}

#[test]
fn more_cards_than_the_floors_need_go_where_they_help_most() {
    // 10 cards and the paper's BERT-base: 1.152 ms at 64 tokens, 4.86 ms at 512, an SLO of 150 ms.
    let services_ns: Vec<u64> = (0..8).map(|step| 1_152_000 + 529_714 * step).collect();
    let capacities: Vec<u32> = services_ns.iter().map(|&service_ns| (150_000_000 / service_ns) as u32).collect();
    let demand = [60_000, 45_000, 20_000, 10_000, 6_000, 4_000, 3_000, 2_000];
    let problem = serial(&capacities, &services_ns, &demand, 10, &[]);
    let dynamic = solve(&problem, Method::Dynamic).expect("sound");
    let integer = solve(&problem, Method::Integer).expect("sound");
    assert_eq!(dynamic.instances, integer.instances);
    assert_eq!(dynamic.flow.cost, ranked(&problem)[0].0);
    assert!(
        dynamic.instances[0] >= 2 && dynamic.instances[7] >= 1,
        "{:?}",
        dynamic.instances
    );
}

/// Far too many allocations to list: the two solvers check each other, with the longest runtime within its capacity and
/// without.
#[test]
fn both_find_the_same_cost_at_the_papers_sizes() {
    for (cards, runtimes, _) in common::TABLE_2 {
        for draw in 0..12 {
            let problem = Problem {
                longest_within_capacity: draw % 2 == 0,
                ..common::problem(cards, runtimes, draw / 2)
            };
            let [dynamic, integer] =
                [Method::Dynamic, Method::Integer].map(|method| solve(&problem, method).expect("sound"));
            assert_eq!(dynamic.status, Status::Optimal, "{cards} cards, draw {draw}");
            assert!(
                matches!(integer.status, Status::Within(gap) if gap < 1e-6),
                "{cards} cards, draw {draw}: {:?}",
                integer.status
            );
            let above = integer.flow.cost as f64 / dynamic.flow.cost as f64 - 1.0;
            assert!(
                (0.0..1e-9).contains(&above),
                "{cards} cards, draw {draw}: {above} above"
            );
        }
    }
}
