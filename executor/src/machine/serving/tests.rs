//! Whole runs on real threads: what comes of them, and that their logs replay.

use tenantry_core::log::{Log, replay};
use tenantry_core::spec::{AdmitSpec, BatchSpec, Padding, PipelineSpec, PlaceSpec, SwapSpec, SystemSpec};
use tenantry_core::{ClusterSpec, Ledger, Machine, RunRecord, Server, run};
use tenantry_profiles::{DType, ModelShape};
use tenantry_traces::{Duration, Entry, Listed, Request, Time};

use super::*;
use crate::machine::{RealMachine, threads::Threads};

const TENANTS: u32 = 12;
const REQUESTS: u64 = 60;

fn system(tenant_state: TenantState, batch: BatchSpec, pipeline: PipelineSpec) -> SystemSpec {
    SystemSpec {
        name: "test".into(),
        admit: AdmitSpec::Open,
        pool: PoolSpec {
            name: "pool".into(),
            model: ModelShape::builtin("tiny").unwrap(),
            dtype: DType::F32,
            classes: 5,
            tenant_state,
            padding: Padding::Longest,
            instances_per_gpu: 1,
            place: PlaceSpec::LeastLoaded,
            batch,
            swap: SwapSpec::LeastRecentlyUsed,
            pipeline,
        },
    }
}

/// Runs a burst of requests; `change` may spoil the parameters before it starts.
fn serve(system: &SystemSpec, slots: u64, change: impl FnOnce(&mut Serving)) -> (RunRecord, Vec<Answer>) {
    let pool = &system.pool;
    let heads = u64::from(TENANTS) * pool.model.head_parameters(pool.classes) * 4;
    let model = pool.model.parameters() * 4;
    let memory = heads
        + match pool.tenant_state {
            TenantState::Model => slots * model,
            TenantState::Adapters { bottleneck, .. } => {
                model + slots * 2 * pool.model.adapter_parameters_per_layer(bottleneck) * 4
            }
            TenantState::Head => model,
        };
    let cluster = ClusterSpec {
        gpus: 1,
        gpu_memory_bytes: memory,
        copy_lanes: 1,
    };
    let mut server = Server::new(&cluster, system, TENANTS).unwrap();
    let topology = server.topology().clone();
    let mut serving = Serving::new(
        pool,
        &topology,
        TENANTS,
        server.slots_per_instance(),
        3,
        Device::Cpu,
        1 << 30,
    )
    .unwrap();
    change(&mut serving);
    let answers = Arc::default();
    let threads = Threads::start(serving.lanes(&topology, &answers), Arc::default()).unwrap();
    let mut machine = RealMachine::new(&topology, threads);
    let entries = (0..REQUESTS).map(|ticket| {
        Entry::Request(Request {
            ticket,
            tenant: (ticket * 7 % u64::from(TENANTS)) as u32,
            arrival: Time(ticket * 100_000),
            input_tokens: 3 + (ticket % 20) as u32,
            output_tokens: 0,
            class: 0,
        })
    });
    let (mut ledger, mut log) = (Ledger::new(Time::ZERO), Log::default());
    let mut workload = Listed::new(entries.collect());
    let end = run(&mut server, &mut workload, &mut machine, &mut ledger, &mut log).unwrap();
    // What a real machine said, told to a fresh server, leads to the same commands: the policies depend on nothing else.
    let mut fresh = Server::new(&cluster, system, TENANTS).unwrap();
    assert_eq!(replay(&mut fresh, &log.events), log.commands);
    let record = ledger.close(end, &server, machine.lanes(end.at)).unwrap();
    machine.into_workers().stop();
    let mut answers = std::mem::take(&mut *answers.lock().unwrap());
    answers.sort_unstable();
    (record, answers)
}

const BATCHED: BatchSpec = BatchSpec::SizeOrTimeout {
    max_size: 8,
    max_wait: Duration::from_millis(1),
};
const ONE_BY_ONE: BatchSpec = BatchSpec::SizeOrTimeout {
    max_size: 1,
    max_wait: Duration::ZERO,
};

fn adapters(implementation: AdapterImplementation) -> TenantState {
    TenantState::Adapters {
        bottleneck: 16,
        implementation,
    }
}

/// The answer depends on the tenant and the input, never on the batch, the pipeline, the swapping or the implementation.
#[test]
fn batching_and_swapping_do_not_change_an_answer() {
    let alone = system(
        adapters(AdapterImplementation::Loop),
        ONE_BY_ONE,
        PipelineSpec::Synchronous,
    );
    let (record, expected) = serve(&alone, u64::from(TENANTS), |_| {});
    assert_eq!((record.counts.served, expected.len() as u64), (REQUESTS, REQUESTS));
    let classes: BTreeSet<u32> = expected.iter().map(|answer| answer.class).collect();
    assert!(classes.len() > 1, "the heads tell inputs apart");
    for implementation in [AdapterImplementation::Loop, AdapterImplementation::GatherBmm] {
        for pipeline in [
            PipelineSpec::Synchronous,
            PipelineSpec::Prefetch,
            PipelineSpec::Layerwise,
        ] {
            let batched = system(adapters(implementation), BATCHED, pipeline);
            let (record, answers) = serve(&batched, 9, |_| {});
            assert_eq!(record.counts.served, REQUESTS);
            assert!(record.batches < REQUESTS, "requests are batched");
            assert!(
                record.swaps.unwrap().evictions > 0,
                "9 slots are too few for 12 tenants"
            );
            assert_eq!(answers, expected, "{implementation} {pipeline:?}");
        }
    }
}

#[test]
fn whole_models_are_swapped_and_answer_for_their_own_tenant() {
    let synchronous = system(
        TenantState::Model,
        BatchSpec::PerTenant { max_size: 4 },
        PipelineSpec::Synchronous,
    );
    let (record, expected) = serve(&synchronous, u64::from(TENANTS), |_| {});
    assert_eq!(record.counts.served, REQUESTS);
    let prefetch = system(
        TenantState::Model,
        BatchSpec::PerTenant { max_size: 2 },
        PipelineSpec::Prefetch,
    );
    let (record, answers) = serve(&prefetch, 3, |_| {});
    assert!(record.swaps.unwrap().evictions > 0);
    assert_eq!(answers, expected);
}

/// One tenant's parameters are missing: its requests fail with the reason, in every batch, and all others are served.
#[test]
fn only_the_requests_of_a_tenant_that_cannot_be_loaded_fail() {
    for pipeline in [
        PipelineSpec::Synchronous,
        PipelineSpec::Prefetch,
        PipelineSpec::Layerwise,
    ] {
        let system = system(adapters(AdapterImplementation::GatherBmm), BATCHED, pipeline);
        let (record, _) = serve(&system, 9, |serving| {
            let shape = AdapterShape::new(&system.pool.model, 16).unwrap();
            let store = AdapterStore::random(shape, TENANTS - 1, 3, DType::F32, Device::Cpu, 1 << 30);
            serving.store = Store::Adapters(store.unwrap());
        });
        let of_last = (0..REQUESTS)
            .filter(|ticket| ticket * 7 % u64::from(TENANTS) == 11)
            .count() as u64;
        assert_eq!(record.counts.failed, of_last, "{pipeline:?}");
        assert_eq!(record.failed.get(&FailureReason::LoadFailed), Some(&of_last));
        assert_eq!(record.counts.served, REQUESTS - of_last);
    }
}
