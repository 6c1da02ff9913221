//! Requests a second of one core, with everything on: contention, jitter, ledger, laws. Each benchmark prints a digest of its
//! result, so that a faster simulator is seen to compute the same.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration as Wall;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tenantry_core::ledger::RunRecord;
use tenantry_core::spec::{
    AdmitSpec, BatchSpec, Padding, PipelineSpec, PlaceSpec, PoolSpec, SwapSpec, SystemSpec, TenantState,
};
use tenantry_core::{ClusterSpec, Server};
use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{AdapterImplementation, DType, ModelShape};
use tenantry_sim::{Jitter, Run, simulate};
use tenantry_traces::spec::{ArrivalsSpec, LengthSpec, LengthsSpec, PopularitySpec, Stop, WorkloadSpec};
use tenantry_traces::{Duration, Time};

const TENANTS: u32 = 10_000;

fn workload(requests: u64, rate_per_s: f64) -> WorkloadSpec {
    WorkloadSpec {
        seed: 7,
        tenants: TENANTS,
        popularity: PopularitySpec::Uniform,
        arrivals: ArrivalsSpec::Poisson { rate_per_s },
        lengths: LengthsSpec::Independent {
            input: LengthSpec::Fixed(128),
            output: LengthSpec::Fixed(0),
        },
        class_shares: vec![1.0],
        management: Default::default(),
        groups: Default::default(),
        presence: Default::default(),
        stop: Stop {
            requests: Some(requests),
            after: None,
        },
    }
}

fn system(name: &str, tenant_state: TenantState, batch: BatchSpec, pipeline: PipelineSpec) -> SystemSpec {
    SystemSpec {
        name: name.into(),
        admit: AdmitSpec::Open,
        route: None,
        pool: PoolSpec {
            name: "pool".into(),
            model: ModelShape::builtin("tiny").expect("tiny is built in"),
            dtype: DType::F32,
            classes: 2,
            plot: None,
            tenant_state,
            padding: Padding::Longest,
            instances_per_gpu: 1,
            place: PlaceSpec::LeastLoaded,
            batch,
            swap: SwapSpec::LeastRecentlyUsed,
            pipeline,
            generation: None,
            tasks: None,
            runtimes: None,
        },
    }
}

fn run(system: &SystemSpec, gpu_memory_bytes: u64, workload: &WorkloadSpec) -> RunRecord {
    let card = synthetic_card();
    let spec = Run {
        card: &card,
        cluster: ClusterSpec {
            gpus: 1,
            gpu_memory_bytes,
            copy_lanes: 1,
            lookup_lanes: 1,
        },
        system,
        tenants: TENANTS,
        warm_up: Time::ZERO,
        jitter: Jitter::Measured { seed: 7 },
        answers: None,
    };
    let mut requests = tenantry_traces::build(workload).expect("the workload is sound");
    simulate(&spec, &mut *requests, Arc::default(), ())
        .expect("the run is sound")
        .record
}

/// Enough to see that two results are the same.
fn digest(record: &RunRecord) -> String {
    format!(
        "served {} mean {:.3} ms p99 {:.3} ms batches {} misses {}",
        record.counts.served,
        record.latency.mean_ns() / 1e6,
        record.latency.quantile_ns(0.99) as f64 / 1e6,
        record.batches,
        record.swaps.map_or(0, |swaps| swaps.misses),
    )
}

fn serving(criterion: &mut Criterion) {
    let adapters = TenantState::Adapters {
        bottleneck: 16,
        implementation: AdapterImplementation::GatherBmm,
    };
    let up_to_32 = BatchSpec::SizeOrTimeout {
        max_size: 32,
        max_wait: Duration::ZERO,
    };
    // (system, the card's memory, requests a second: enough for batches of some 32, or for a stable queue)
    let cases = [
        (
            system("adapters-prefetch", adapters, up_to_32, PipelineSpec::PREFETCH),
            64 << 20,
            25_000.0,
        ),
        (
            system("adapters-layerwise", adapters, up_to_32, PipelineSpec::LAYERWISE),
            64 << 20,
            25_000.0,
        ),
        (
            system(
                "whole-models",
                TenantState::Model,
                BatchSpec::PerTenant { max_size: 8 },
                PipelineSpec::SYNCHRONOUS,
            ),
            256 << 20,
            1_500.0,
        ),
    ];
    let requests = 100_000;
    let mut group = criterion.benchmark_group("serving-10k-tenants");
    group
        .throughput(Throughput::Elements(requests))
        .sample_size(10)
        .measurement_time(Wall::from_secs(4));
    for (system, memory, rate_per_s) in cases {
        let workload = workload(requests, rate_per_s);
        let record = run(&system, memory, &workload);
        println!(
            "{}: {}, mean batch {:.1}",
            system.name,
            digest(&record),
            record.batch_requests as f64 / record.batches as f64
        );
        group.bench_function(system.name.as_str(), |bencher| {
            bencher.iter(|| run(black_box(&system), memory, &workload));
        });
    }
    group.finish();
    let system = system("server", adapters, up_to_32, PipelineSpec::PREFETCH);
    let cluster = ClusterSpec {
        gpus: 1,
        gpu_memory_bytes: 64 << 20,
        copy_lanes: 1,
        lookup_lanes: 1,
    };
    criterion.bench_function("server-of-10k-tenants", |bencher| {
        bencher.iter(|| Server::new(black_box(&cluster), &system, TENANTS).expect("it fits"));
    });
}

criterion_group!(benches, serving);
criterion_main!(benches);
