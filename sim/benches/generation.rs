//! Decoders: requests and tokens a second of one core, leaping over steps and visiting each, with pages of the cache, copies of LoRAs,
//! contention, jitter and ledger on. Each benchmark prints a digest of its result.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration as Wall;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tenantry_core::ledger::RunRecord;
use tenantry_core::spec::{
    AdmitSpec, BatchSpec, GenerationSpec, JoinSpec, LoraSpec, Padding, PipelineSpec, PlaceSpec, PoolSpec, PrefillSpec,
    SwapSpec, SystemSpec, TenantState,
};
use tenantry_core::{ClusterSpec, Ledger, Server, run};
use tenantry_profiles::{AdapterImplementation, Card, DType, ModelShape};
use tenantry_sim::{Jitter, Prices, VirtualMachine};
use tenantry_traces::Time;
use tenantry_traces::spec::{ArrivalsSpec, LengthsSpec, PopularitySpec, Stop, WorkloadSpec};

const TENANTS: u32 = 1_000;

fn workload(requests: u64, rate_per_s: f64) -> WorkloadSpec {
    WorkloadSpec {
        seed: 7,
        tenants: TENANTS,
        popularity: PopularitySpec::Uniform,
        arrivals: ArrivalsSpec::Poisson { rate_per_s },
        lengths: LengthsSpec::ShareGpt,
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

/// Llama 7B with LoRAs of rank 16, as in Punica's section 7.
fn system() -> SystemSpec {
    SystemSpec {
        name: "punica".into(),
        admit: AdmitSpec::Open,
        route: None,
        pool: PoolSpec {
            name: "pool".into(),
            model: ModelShape {
                // ShareGPT's longest conversations go beyond Llama 2's positions.
                positions: 16_384,
                ..ModelShape::builtin("llama-7b").expect("it is built in")
            },
            dtype: DType::F16,
            classes: 2,
            plot: None,
            tenant_state: TenantState::Head,
            padding: Padding::Longest,
            instances_per_gpu: 1,
            place: PlaceSpec::LargestWorkingSet,
            batch: BatchSpec::PerTenant { max_size: 1 },
            swap: SwapSpec::LeastRecentlyUsed,
            pipeline: PipelineSpec::SYNCHRONOUS,
            generation: Some(GenerationSpec {
                lora: Some(LoraSpec {
                    rank: 16,
                    implementation: AdapterImplementation::Grouped,
                    slots: 64,
                }),
                join: JoinSpec::AnyTenant,
                max_batch: 32,
                prefill: PrefillSpec::OnePerStep,
                page_tokens: 16,
                prefix_caching: false,
                tensor_parallel: 1,
                consolidate: None,
            }),
            tasks: None,
            runtimes: None,
        },
    }
}

fn simulate(card: &Card, gpus: u32, requests: u64, stepping: bool) -> RunRecord {
    // The table's shape is Llama's own; only its positions differ here.
    let mut card = card.clone();
    let system = system();
    card.models.push(system.pool.model.clone());
    let cluster = ClusterSpec {
        gpus,
        gpu_memory_bytes: 78 << 30,
        copy_lanes: gpus,
        lookup_lanes: gpus,
    };
    // Some nine tenths of what a card can do.
    let workload = workload(requests, 1.2 * f64::from(gpus));
    let mut requests = tenantry_traces::build(&workload).expect("the workload is sound");
    let mut server = Server::new(&cluster, &system, TENANTS).expect("it fits");
    let prices = Prices::new(&card, &system.pool, Jitter::Measured { seed: 7 }).expect("the card has its tables");
    let mut machine = VirtualMachine::new(server.topology(), prices, &card.contention, Arc::default());
    if stepping {
        machine = machine.step_by_step();
    }
    let mut ledger = Ledger::new(Time::ZERO);
    let end = run(&mut server, &mut *requests, &mut machine, &mut ledger, ()).expect("the run is sound");
    ledger.close(end, &server, &machine).expect("its laws hold")
}

fn digest(record: &RunRecord) -> String {
    format!(
        "served {} tokens {} mean {:.3} s ttft {:.3} s mean batch {:.1} evictions {}",
        record.counts.served,
        record.output_tokens,
        record.latency.mean_ns() / 1e9,
        record.first_token.mean_ns() / 1e9,
        record.batch_requests as f64 / record.batches as f64,
        record.generation.map_or(0, |counts| counts.evictions),
    )
}

fn generation(criterion: &mut Criterion) {
    let card = Card::find("paper-a100-80g", &[]).expect("it is embedded");
    let requests = 10_000;
    let mut group = criterion.benchmark_group("sharegpt-lora-7b");
    group
        .throughput(Throughput::Elements(requests))
        .sample_size(10)
        .measurement_time(Wall::from_secs(4));
    for gpus in [1, 16] {
        for (name, stepping) in [("leaping", false), ("stepping", true)] {
            let record = simulate(&card, gpus, requests, stepping);
            println!("{gpus} cards, {name}: {}", digest(&record));
            group.bench_function(format!("{gpus}-cards-{name}"), |bencher| {
                bencher.iter(|| simulate(black_box(&card), gpus, requests, stepping));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, generation);
criterion_main!(benches);
