//! Arlo's Fig. 9 on our code: a burst of 2,400 requests dispatched to 1,200 instances of 12 runtimes, which took the
//! paper's request scheduler 0.737 ms. Each decision includes the update of its instance's load. Prints a digest of who
//! got what.

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tenantry_core::ids::InstanceId;
use tenantry_core::policy::levels::{LevelSpec, Levels, Rule};

const RUNTIMES: u32 = 12;
const REQUESTS: u64 = 2_400;

/// SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Instances spread over the runtimes, each at four fifths of its capacity or more, so that several levels are looked
/// at; capacities of BERT-base within 150 ms.
fn cluster(instances: u32, rule: Rule) -> Levels {
    let specs: Vec<LevelSpec> = (1..=RUNTIMES)
        .map(|at| LevelSpec {
            max_length: 512 * at / RUNTIMES,
            capacity: 150_000 / (1_152 + 3_708 * at / RUNTIMES),
        })
        .collect();
    let mut levels = Levels::new(&specs, rule);
    let mut state = 9;
    for instance in 0..instances {
        let level = (instance % RUNTIMES) as usize;
        let capacity = u64::from(specs[level].capacity);
        let load = capacity * 4 / 5 + random(&mut state) % (capacity / 5);
        levels.add(InstanceId(instance), level, load as u32);
    }
    levels
}

/// Short requests are many: the lower of three uniform draws.
fn lengths() -> Vec<u32> {
    let mut state = 4;
    let mut draw = || 1 + (random(&mut state) % 512) as u32;
    (0..REQUESTS).map(|_| draw().min(draw()).min(draw())).collect()
}

fn burst(levels: &mut Levels, lengths: &[u32]) -> u64 {
    let mut digest = 0u64;
    for &length in lengths {
        let instance = levels.dispatch(length).expect("a runtime serves 512 tokens");
        levels.load_changed(instance, 1);
        digest = digest.rotate_left(5) ^ u64::from(instance.0);
    }
    digest
}

fn dispatch(criterion: &mut Criterion) {
    let demote = |peek| Rule::Demote {
        threshold: 0.85,
        decay: 0.9,
        peek,
    };
    let lengths = lengths();
    let mut group = criterion.benchmark_group("dispatch-2400-requests");
    group.throughput(Throughput::Elements(REQUESTS));
    let cases = [
        ("demote-peek-6", 200, demote(6)),
        ("demote-peek-6", 1_200, demote(6)),
        ("demote-peek-12", 1_200, demote(12)),
        ("least-padding", 1_200, Rule::LeastPadding),
        ("least-loaded", 1_200, Rule::LeastLoaded),
    ];
    for (name, instances, rule) in cases {
        let cluster = cluster(instances, rule);
        println!(
            "{name} over {instances}: digest {:016x}",
            burst(&mut cluster.clone(), &lengths)
        );
        group.bench_function(BenchmarkId::new(name, instances), |bencher| {
            bencher.iter_batched_ref(
                || cluster.clone(),
                |levels| burst(levels, black_box(&lengths)),
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, dispatch);
criterion_main!(benches);
