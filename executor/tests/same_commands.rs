//! The real machine's coordinator under a script with the virtual machine's durations gives the virtual machine's log:
//! the same events at the same times, and so the same commands.

mod common;

use common::{Script, card, changes, log_of};
use proptest::prelude::*;
use tenantry_core::spec::{BatchSpec, PipelineSpec, PlotSpec, PoolSpec, SystemSpec, TenantState};
use tenantry_core::testing;
use tenantry_core::{ClusterSpec, Server};
use tenantry_executor::machine::RealMachine;
use tenantry_profiles::{AdapterImplementation, Tier};
use tenantry_sim::{Jitter, Prices, VirtualMachine};
use tenantry_traces::{Duration, Entry, Request, Time};

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
        tier,
        fallbacks_ppm: 20_000,
        domain_bytes: Some(1 << 20),
        ..testing::PLOT
    }));
    let systems = (batch, state_and_pipeline, plot, 1u32..3);
    systems.prop_map(|(batch, (tenant_state, pipeline), plot, instances_per_gpu)| {
        testing::system(PoolSpec {
            plot,
            tenant_state,
            instances_per_gpu,
            batch,
            pipeline,
            ..testing::pool("pool")
        })
    })
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let requests = proptest::collection::vec((0u64..900_000, 0..TENANTS, 1u32..128), 1..100);
    (requests, changes(TENANTS, 40_000_000)).prop_map(|(requests, changes)| {
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
        let cluster = ClusterSpec { lookup_lanes, ..testing::cluster(1, memory_mib << 20) };
        let jitter = Jitter::Measured { seed };
        let server = || Server::new(&cluster, &system, TENANTS).expect("it fits").with_management();
        let prices = || Prices::of_system(&card, &system, jitter)
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
