//! What the ledger's distributions cost: one duration recorded, and a quantile asked for. Prints a digest of what was
//! recorded.

mod common;

use std::hint::black_box;

use common::digest_of;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tenantry_core::durations::{Durations, Tally};
use tenantry_traces::Duration;
use tenantry_traces::draw::{Draws, Purpose};

const DURATIONS: usize = 1 << 16;

fn recorded(durations: &[Duration]) -> Durations {
    let mut tally = Tally::default();
    durations.iter().for_each(|duration| tally.record(*duration));
    tally.into_durations()
}

fn recording(criterion: &mut Criterion) {
    // Latencies of milliseconds, exponential.
    let mut stream = Draws::new(7, Purpose::Outcome).about(0);
    let durations: Vec<Duration> = (0..DURATIONS).map(|_| Duration((20e6 * stream.exponential()) as u64)).collect();
    let all = recorded(&durations);
    let quantiles = (0..=100).map(|percent| all.quantile_ns(f64::from(percent) / 100.0));
    println!(
        "digest {}",
        digest_of(quantiles.chain([all.mean_ns().to_bits(), all.max_ns()]))
    );
    let mut group = criterion.benchmark_group("durations");
    group.throughput(Throughput::Elements(DURATIONS as u64));
    group.bench_function("record", |bencher| bencher.iter(|| recorded(black_box(&durations))));
    group.throughput(Throughput::Elements(1));
    group.bench_function("quantile", |bencher| bencher.iter(|| black_box(&all).quantile_ns(0.98)));
    group.finish();
}

criterion_group!(benches, recording);
criterion_main!(benches);
