//! What a simulator pays for each op: to look its cost up, and to draw from its spread. Each benchmark prints a digest
//! of what it computes, so that a faster lookup is seen to compute the same.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{AdapterImplementation, Cost, DType, Direction, DispatchOperation, ModelShape};

/// Enough that branches cannot be learnt, few enough to stay in the first-level cache.
const LOOKUPS: u64 = 1024;

/// The `index`-th of numbers from 1 to `most` that follow no pattern.
fn mixed(index: u64, most: u64) -> u64 {
    1 + (index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % most
}

/// Every part of a cost, as one number.
fn sum(cost: Cost) -> u64 {
    let spread = cost.spread;
    let parts = [spread.mean_ppm, spread.p05_ppm, spread.p95_ppm, spread.p99_ppm];
    cost.median_ns + parts.into_iter().map(u64::from).sum::<u64>()
}

/// Measures `look_up` at all `points`.
fn bench<P: Copy>(criterion: &mut Criterion, name: &str, points: &[P], look_up: impl Fn(P) -> u64) {
    let digest = || points.iter().map(|point| look_up(black_box(*point))).sum::<u64>();
    println!("{name}: digest {}", digest());
    criterion
        .benchmark_group("lookup")
        .throughput(Throughput::Elements(points.len() as u64))
        .bench_function(name, |bencher| bencher.iter(digest));
}

fn lookups(criterion: &mut Criterion) {
    let card = synthetic_card();
    let tiny = ModelShape::builtin("tiny").expect("it is built-in");
    // Half as far again as was measured in each dimension, so that some lookups extrapolate.
    let batch = |index: u64| mixed(index, 48) as u32;
    let tokens = |index: u64| mixed(index + LOOKUPS, 192) as u32;
    let shapes: Vec<(u32, u32)> = (0..LOOKUPS).map(|index| (batch(index), tokens(index))).collect();
    let tenants = |index: u64| mixed(index + 2 * LOOKUPS, batch(index).into()) as u32;
    let batches: Vec<(u32, u32, u32)> =
        (0..LOOKUPS).map(|index| (tenants(index), batch(index), tokens(index))).collect();
    let bytes: Vec<u64> = (0..LOOKUPS).map(|index| mixed(index, 3 << 29)).collect();
    let shares: Vec<f64> = (0..LOOKUPS).map(|index| mixed(index, 1 << 20) as f64 / (1 << 20) as f64).collect();

    let layer = card.encoder_layer(&tiny, DType::F32).expect("it has the table");
    bench(criterion, "surface", &shapes, |(batch, tokens)| {
        sum(layer.cost(batch, tokens))
    });
    let adapter = card.adapter(&tiny, DType::F32, AdapterImplementation::GatherBmm, 16).expect("it has the table");
    bench(criterion, "adapter-surface", &batches, |(tenants, batch, tokens)| {
        sum(adapter.cost(tenants, batch, tokens))
    });
    let copy = card.copy(Direction::HostToDevice, true).expect("it has the table");
    bench(criterion, "curve", &bytes, |bytes| sum(copy.cost(bytes)));
    let tell = card.dispatch(DispatchOperation::Tell).expect("it has the row");
    bench(criterion, "at-quantile", &shares, |u| black_box(tell).at_quantile(u));
}

criterion_group!(benches, lookups);
criterion_main!(benches);
