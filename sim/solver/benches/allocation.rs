//! The paper's three sizes (Arlo, Table 2) by both solvers. Prints each first answer, so that a faster solver is seen
//! to find the same.

mod common;

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use tenantry_solver::{Method, solve};

fn allocation(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("allocation");
    group.sample_size(10).measurement_time(Duration::from_secs(3));
    for (cards, runtimes, _) in common::TABLE_2 {
        let problem = common::problem(cards, runtimes, 0);
        for (name, method) in [("dynamic", Method::Dynamic), ("highs", Method::Integer)] {
            let found = solve(&problem, method).expect("the problem is sound");
            println!(
                "{name} {cards}/{runtimes}: costs {}, {:?}",
                found.flow.cost, found.instances
            );
            group.bench_function(
                BenchmarkId::new(name, format!("{cards}-cards-{runtimes}-runtimes")),
                |bencher| {
                    bencher.iter(|| solve(black_box(&problem), method));
                },
            );
        }
    }
    group.finish();
}

criterion_group!(benches, allocation);
criterion_main!(benches);
