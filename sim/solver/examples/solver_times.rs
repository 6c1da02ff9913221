//! The paper's Table 2 on this machine: seconds to solve the allocation program, over 20 problems of each size.
//!
//! `cargo run --release -p tenantry-solver --example solver_times [-- CARDS [PROBLEMS]]`: all sizes, or one, over fewer
//! problems.

#[path = "../benches/common/mod.rs"]
mod common;

use std::time::Instant;

use tenantry_solver::{Allocation, Method, Problem, Status, solve};

const DRAWS: u64 = 20;

fn main() {
    let asked: Vec<u64> = std::env::args()
        .skip(1)
        .map(|number| number.parse().expect("a number of cards, then of problems"))
        .collect();
    let draws = asked.get(1).copied().unwrap_or(DRAWS);
    println!(
        "cards  runtimes  paper s   method   mean s      max s       worst gap  fallbacks  cost above the other's"
    );
    for (cards, runtimes, paper_s) in common::TABLE_2 {
        if asked.first().is_some_and(|only| *only != u64::from(cards)) {
            continue;
        }
        let problems: Vec<Problem> = (0..draws).map(|draw| common::problem(cards, runtimes, draw)).collect();
        let dynamic = timed(&problems, Method::Dynamic);
        let integer = timed(&problems, Method::Integer);
        for (name, runs, others) in [("dynamic", &dynamic, &integer), ("highs", &integer, &dynamic)] {
            let mean_s = runs.iter().map(|run| run.1).sum::<f64>() / runs.len() as f64;
            let max_s = runs.iter().map(|run| run.1).fold(0.0, f64::max);
            let fallbacks = runs.iter().filter(|run| run.0.status.is_fallback()).count();
            let gap = runs.iter().map(|run| gap(&run.0.status)).fold(0.0, f64::max);
            let above = runs
                .iter()
                .zip(others.iter())
                .map(|(run, other)| run.0.flow.cost as f64 / other.0.flow.cost as f64 - 1.0);
            let above = above.fold(f64::NEG_INFINITY, f64::max);
            println!(
                "{cards:>5}  {runtimes:>8}  {paper_s:>7.3}   {name:<7}  {mean_s:<10.6}  {max_s:<10.6}  {gap:<9.1e}  \
                 {fallbacks:<9}  {above:.1e}"
            );
        }
    }
}

fn timed(problems: &[Problem], method: Method) -> Vec<(Allocation, f64)> {
    let one = |problem: &Problem| {
        let start = Instant::now();
        let found = solve(problem, method).expect("the problem is sound");
        (found, start.elapsed().as_secs_f64())
    };
    problems.iter().map(one).collect()
}

fn gap(status: &Status) -> f64 {
    match status {
        Status::Within(gap) | Status::Limit(gap) => *gap,
        Status::Optimal | Status::Infeasible { .. } | Status::LongestBeyond => 0.0,
    }
}
