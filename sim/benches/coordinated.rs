//! What planning a pool of 1,024 queries over 128 tasks takes (PetS, Algorithm 1), in memory that is used again. A
//! digest of each plan is printed, so that a faster planner is seen to plan the same.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tenantry_core::policy::coordinated::{Batching, Planner, Query, Tables};
use tenantry_core::policy::streams::{StreamOperator, StreamScheduler};
use tenantry_traces::draw::{Draws, Purpose};

const QUERIES: u32 = 1024;
const TASKS: u32 = 128;
const KINDS: u32 = 5;
const MAX_TOKENS: u32 = 128;

/// Costs like those of BERT-base on a card of 10 TFLOP/s, in nanoseconds: launches, then tiles of 128 tokens.
fn tables(max_batch: u32) -> Tables {
    let tiles = |batch: u32, tokens: u32| u64::from((batch * tokens).div_ceil(128));
    let shared = |batch, tokens| 900_000 + 2_200_000 * tiles(batch, tokens);
    let task = |kind: u32, batch, tokens| 120_000 + (60_000 + 40_000 * u64::from(kind)) * tiles(batch, tokens);
    Tables::new(max_batch, MAX_TOKENS, KINDS, shared, task).expect("the limits are sound")
}

/// Lengths that are normal about 32 (PetS, section 6.4).
fn pool(std: f64) -> Vec<Query> {
    let mut stream = Draws::new(7, Purpose::InputLength).about(0);
    let query = |id| {
        let task = stream.below(TASKS.into()) as u32;
        let tokens = 32.0 + std * stream.normal();
        Query {
            id,
            task,
            kind: task % KINDS,
            tokens: (tokens.round() as u32).clamp(1, MAX_TOKENS),
        }
    };
    (0..QUERIES).map(query).collect()
}

fn planning(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan-1024-queries-of-128-tasks");
    group.throughput(Throughput::Elements(QUERIES.into())).sample_size(20);
    // The cap that activation memory would set, and none at all: the most look-ups that there can be.
    for max_batch in [128, QUERIES] {
        let tables = tables(max_batch);
        for (name, batching) in [
            ("fixed", Batching::Fixed { size: max_batch }),
            ("alpha-only", Batching::AlphaOnly),
            ("beta-only", Batching::BetaOnly),
            ("coordinated", Batching::Coordinated),
            ("by-variance", Batching::ByVariance { std_tokens_max: 4.0 }),
            ("cheaper", Batching::Cheaper),
        ] {
            let pool = pool(4.0);
            let mut planner = Planner::default();
            let plan = planner.plan(&tables, batching, &pool).expect("the tables price the pool");
            println!(
                "{name}, batches of at most {max_batch}: {} batches, {} mini-batches, {} ns, order {:016x}",
                plan.batches.len(),
                plan.mini_batches.len(),
                plan.latency_ns(),
                digest(&plan.order),
            );
            group.bench_function(format!("{name}-{max_batch}"), |bencher| {
                bencher.iter(|| {
                    let plan = planner.plan(black_box(&tables), batching, &pool);
                    plan.expect("the tables price the pool").latency_ns()
                });
            });
        }
    }
    group.finish();

    let operators: Vec<StreamOperator> = (0..TASKS)
        .map(|task| StreamOperator {
            flops: u64::from(task * 7919 % 1000 + 1) * 1_000_000,
            latency_ns: 100_000,
            bytes_per_s: 100_000_000_000,
        })
        .collect();
    let mut scheduler = StreamScheduler::default();
    println!("streams {:016x}", digest(scheduler.by_intensity(&operators, 32)));
    criterion.bench_function("streams-of-128-operators", |bencher| {
        bencher.iter(|| scheduler.by_intensity(black_box(&operators), 32).len());
    });
}

/// FNV-1a over the numbers.
fn digest(numbers: &[u32]) -> u64 {
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

criterion_group!(benches, planning);
criterion_main!(benches);
