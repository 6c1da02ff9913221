//! The real machine's coordinator under a script with the virtual machine's durations gives the virtual machine's log: the same
//! events at the same times, and so the same commands.

mod common;

use common::{Script, card, log_of};
use proptest::prelude::*;
use tenantry_core::spec::{
    AdmitSpec, BatchSpec, HeadTask, Met, Padding, PipelineSpec, PlaceSpec, PlotSpec, PoolSpec, SwapSpec, SystemSpec,
    TenantState,
};
use tenantry_core::{ClusterSpec, Server};
use tenantry_executor::machine::RealMachine;
use tenantry_profiles::{AdapterImplementation, DType, ModelShape, Tier};
use tenantry_sim::{Jitter, Prices, VirtualMachine};
use tenantry_traces::{Action, Change, Duration, Entry, ManageRequest, Request, Time};

const TENANTS: u32 = 10;

fn systems() -> impl Strategy<Value = SystemSpec> {
    let batch = prop_oneof![
        (1u32..5).prop_map(|max_size| BatchSpec::PerTenant { max_size }),
        (1u32..7, 0u64..5).prop_map(|(max_size, ms)| BatchSpec::SizeOrTimeout {
            max_size,
            max_wait: Duration::from_millis(ms)
        }),
    ];
    let adapters = TenantState::Adapters {
        bottleneck: 16,
        implementation: AdapterImplementation::Loop,
    };
    let state_and_pipeline = prop_oneof![
        Just((TenantState::Model, PipelineSpec::PREFETCH)),
        Just((TenantState::Model, PipelineSpec::SYNCHRONOUS)),
        Just((adapters, PipelineSpec::SYNCHRONOUS)),
        Just((adapters, PipelineSpec::PREFETCH)),
        Just((adapters, PipelineSpec::LAYERWISE)),
        Just((adapters, PipelineSpec::PREFETCH_RETRIEVAL)),
        Just((TenantState::Model, PipelineSpec::PREFETCH_RETRIEVAL)),
        Just((TenantState::Head, PipelineSpec::PREFETCH)),
        Just((TenantState::Head, PipelineSpec::SYNCHRONOUS)),
    ];
    let tier = prop_oneof![Just(Tier::Memory), Just(Tier::Disk)];
    let plot = proptest::option::of(tier.prop_map(|tier| PlotSpec {
        lower_layers: 1,
        fragment_tokens: 3,
        threads: 1,
        tier,
        domain_hits_ppm: 500_000,
        fallbacks_ppm: 20_000,
        met: Met::AsBuilt,
        domains: 8,
        domain_bytes: Some(1 << 20),
    }));
    let systems = (batch, state_and_pipeline, plot, 1u32..3);
    systems.prop_map(
        |(batch, (tenant_state, pipeline), plot, instances_per_gpu)| SystemSpec {
            name: "same".into(),
            admit: AdmitSpec::Open,
            route: None,
            pool: PoolSpec {
                name: "pool".into(),
                model: ModelShape::builtin("tiny").expect("tiny is built in"),
                dtype: DType::F32,
                classes: 2,
                heads: HeadTask::Classification,
                plot,
                tenant_state,
                padding: Padding::Longest,
                instances_per_gpu,
                place: PlaceSpec::LeastLoaded,
                batch,
                swap: SwapSpec::LeastRecentlyUsed,
                pipeline,
                generation: None,
                tasks: None,
                runtimes: None,
            },
        },
    )
}

/// Tenants that come, change and go within so many nanoseconds.
fn changes(within_ns: u64) -> impl Strategy<Value = Vec<Entry>> {
    let action = prop_oneof![Just(Action::Create), Just(Action::Update), Just(Action::Delete)];
    let change = (0..within_ns, 0..TENANTS, action).prop_map(|(at_ns, tenant, action)| {
        Entry::Manage(ManageRequest {
            at: Time(at_ns),
            change: Change::tenant(tenant, action),
        })
    });
    prop_oneof![Just(Vec::new()), proptest::collection::vec(change, 1..20)]
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let requests = proptest::collection::vec((0u64..900_000, 0..TENANTS, 1u32..128), 1..100);
    (requests, changes(40_000_000)).prop_map(|(requests, changes)| {
        let mut at = 0;
        let request = |(ticket, (gap_ns, tenant, input_tokens))| {
            at += gap_ns;
            let arrival = Time(at);
            Entry::Request(Request {
                ticket: ticket as u64,
                tenant,
                arrival,
                input_tokens,
                output_tokens: 0,
                class: 0,
            })
        };
        let requests = requests.into_iter().enumerate().map(request);
        changes.into_iter().chain(requests).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_real_machine_on_a_script_equals_the_virtual_one(
        system in systems(), entries in entries(), seed in 0u64..1000, memory_mib in 24u64..40,
        lookup_lanes in 0u32..2
    ) {
        let card = card();
        let cluster = ClusterSpec { gpus: 1, gpu_memory_bytes: memory_mib << 20, shares_host_memory: false, copy_lanes: 1, lookup_lanes };
        let jitter = Jitter::Measured { seed };
        let server = || Server::new(&cluster, &system, TENANTS).expect("it fits");
        let prices = || Prices::new(&card, &system.pool, jitter)
            .and_then(|prices| prices.with_management(&card))
            .expect("the card has all tables");

        let mut simulated = server();
        let mut machine =
            VirtualMachine::new(simulated.topology(), prices(), &card.contention, Default::default());
        let virtual_log = log_of(&mut simulated, &mut machine, entries.clone());

        let mut executed = server();
        let script = Script::new(executed.topology(), prices());
        let mut machine = RealMachine::new(executed.topology(), script);
        let real_log = log_of(&mut executed, &mut machine, entries);

        prop_assert_eq!(virtual_log, real_log);
    }
}
