//! Whole simulations on one core, with ledger and laws on; cards made from papers have neither contention nor spread,
//! so that their systems are simulated on disturbed cards too. Each prints a digest of its result, so that a faster
//! simulator is seen to compute the same.

mod common;

use std::hint::black_box;
use std::time::Duration as Wall;

use common::{ALIKE, ALL, ARLO, Case, PUNICA, TABI, digest};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use tenantry_core::RunRecord;

fn bench(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, case: &Case, run: impl Fn(&Case) -> RunRecord) {
    let record = run(case);
    println!("{name}: digest {}", digest(&record));
    group
        .throughput(Throughput::Elements(record.counts.offered))
        .bench_function(name, |bencher| bencher.iter(|| run(black_box(case))));
}

fn systems(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("systems");
    group.sample_size(10).measurement_time(Wall::from_secs(5));
    for (name, yaml) in ALL {
        bench(&mut group, name, &Case::new(name, yaml, &[]), |case| {
            case.simulate().record
        });
    }
    let sixteen = ["cluster.gpus=16", "workload.arrivals.poisson.rate=16/s"].map(String::from);
    let case = Case::new("punica-16-cards", PUNICA, &sixteen);
    bench(&mut group, case.name, &case, |case| case.simulate().record);
    for (name, yaml) in [
        ("arlo-disturbed", ARLO),
        ("punica-disturbed", PUNICA),
        ("tabi-disturbed", TABI),
    ] {
        let case = Case::new(name, yaml, &[]).disturbed();
        bench(&mut group, name, &case, |case| case.simulate().record);
    }
    let alike = [ALIKE, "workload.arrivals.poisson.rate=1.5/s"].map(String::from);
    let case = Case::new("punica-1147-and-211", PUNICA, &alike);
    bench(&mut group, case.name, &case, |case| case.simulate().record);
    let case = Case::new("punica-1147-and-211-disturbed", PUNICA, &alike).disturbed();
    bench(&mut group, case.name, &case, |case| case.simulate().record);
    let fewer = ["workload.stop.requests=10000".to_owned()];
    let case = Case::new("punica-step-by-step", PUNICA, &fewer);
    bench(&mut group, case.name, &case, |case| case.simulate_step_by_step().0);
    group.finish();
}

fn servers(criterion: &mut Criterion) {
    let case = Case::new("hmi", common::HMI, &[]);
    criterion.bench_function("server-of-10k-tenants", |bencher| {
        bencher.iter(|| black_box(&case).server())
    });
}

criterion_group!(benches, systems, servers);
criterion_main!(benches);
