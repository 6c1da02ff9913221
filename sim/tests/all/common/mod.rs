//! Small systems and workloads for tests, and a loop that asks the server for its laws after every event.

pub mod cascades;
pub mod decoders;
pub mod runtimes;
pub mod tasks;

use std::sync::Arc;

use proptest::prelude::*;
use tenantry_core::answers::Answers;
use tenantry_core::log::Log;
use tenantry_core::spec::{PipelineSpec, PoolSpec, SystemSpec, TenantState};
use tenantry_core::testing;
pub use tenantry_core::testing::cluster;
use tenantry_core::{ClusterSpec, Commands, Event, Machine, Next, Observer, Server};
use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{AdapterImplementation, Card};
use tenantry_sim::{Jitter, Prices, Run, Simulated, VirtualMachine, simulate};
use tenantry_traces::fit::cascade::SST_2;
use tenantry_traces::outcome::{AnswersSpec, DrawnSpec, GeneratedSpec, KnownAverage, OutcomesSpec, PrunedPoint};
use tenantry_traces::{Action, Change, Entry, Listed, ManageRequest, Time, Workload};

pub const ADAPTERS: TenantState = TenantState::Adapters {
    bottleneck: 16,
    implementation: AdapterImplementation::GatherBmm,
};

/// A system of adapters on the tiny model, to be changed by each test.
pub fn system() -> SystemSpec {
    testing::system(PoolSpec {
        tenant_state: ADAPTERS,
        pipeline: PipelineSpec::PREFETCH,
        ..testing::pool("pool")
    })
}

/// A card's memory for the shared part and this many tenants' swapped parameters.
pub fn memory_for(system: &SystemSpec, tenants: u32, slots: u32) -> u64 {
    let pool = &system.pool;
    let dtype_bytes = pool.dtype.bytes();
    let heads = u64::from(tenants) * pool.model.head_parameters(pool.classes) * dtype_bytes;
    let backbone = pool.model.parameters() * dtype_bytes;
    let slot = match pool.tenant_state {
        TenantState::Model => backbone,
        TenantState::Adapters { bottleneck, .. } => {
            u64::from(pool.model.layers) * pool.model.adapter_parameters_per_layer(bottleneck) * dtype_bytes
        }
        TenantState::Head => 0,
    };
    let shared = if pool.tenant_state == TenantState::Model {
        heads
    } else {
        heads + backbone
    };
    shared + u64::from(pool.instances_per_gpu) * u64::from(slots) * slot
}

pub fn request(ticket: u64, at_us: u64, tenant: u32, input_tokens: u32) -> Entry {
    decoders::request(ticket, at_us, tenant, input_tokens, 0)
}

/// What the synthetic card's two encoders make of requests: SST-2's, with words pruned as section 7.4 of Tabi has it.
pub fn answers() -> AnswersSpec {
    AnswersSpec::Drawn(DrawnSpec {
        outcomes: OutcomesSpec::Generated(GeneratedSpec {
            small: "tiny".into(),
            large: "bert-base".into(),
            levels: SST_2,
            correlation: 0.0,
            others: Vec::new(),
        }),
        pruned: [(0.5, 0.038), (0.7, 0.142), (0.9, 0.625)]
            .map(|(degree, words)| PrunedPoint {
                degree,
                words,
                loss: Some(0.0),
            })
            .to_vec(),
        // Of models that are all weighted alike, as many as a test's route has.
        averages: (2..8)
            .map(|models| KnownAverage {
                weights: vec![1.0; models],
                gain: 0.0,
            })
            .collect(),
    })
}

/// A management request of a tenant.
pub fn manage(at_us: u64, tenant: u32, action: Action) -> Entry {
    Entry::Manage(ManageRequest {
        at: Time(at_us * 1_000),
        change: Change::tenant(tenant, action),
    })
}

/// Management requests of `tenants`, some of them unknown, and of domains, within so many microseconds.
pub fn changes(tenants: u32, within_us: u64) -> impl Strategy<Value = Vec<Entry>> {
    let action = prop_oneof![
        1 => Just(Action::Absent),
        2 => Just(Action::Create),
        2 => Just(Action::Update),
        2 => Just(Action::Delete),
    ];
    let one = (0..within_us, 0..tenants + 1, action, any::<bool>());
    proptest::collection::vec(one, 0..30).prop_map(|changes| {
        let change = |(at_us, of, action, domain)| {
            let domain = domain && action != Action::Delete;
            let change = if domain {
                Change::domain(of, action)
            } else {
                Change::tenant(of, action)
            };
            // Who is absent is so from the start.
            let at_us = if action == Action::Absent { 0 } else { at_us };
            Entry::Manage(ManageRequest {
                at: Time(at_us * 1_000),
                change,
            })
        };
        changes.into_iter().map(change).collect()
    })
}

pub fn run_listed(
    card: &Card,
    cluster: ClusterSpec,
    system: &SystemSpec,
    tenants: u32,
    jitter: Jitter,
    entries: Vec<Entry>,
) -> Simulated {
    run_watched(card, cluster, system, tenants, jitter, entries, ())
}

pub fn run_watched(
    card: &Card,
    cluster: ClusterSpec,
    system: &SystemSpec,
    tenants: u32,
    jitter: Jitter,
    entries: Vec<Entry>,
    mut watch: impl Observer,
) -> Simulated {
    let spec = Run {
        jitter,
        ..Run::new(card, cluster, system, tenants)
    };
    simulate(&spec, &mut Listed::new(entries), Arc::default(), Some(&mut watch)).expect("the run is sound")
}

/// All that a server hears and wants.
pub fn log_of(
    card: &Card,
    cluster: ClusterSpec,
    system: &SystemSpec,
    tenants: u32,
    jitter: Jitter,
    entries: Vec<Entry>,
) -> Log {
    let mut log = Log::default();
    run_watched(card, cluster, system, tenants, jitter, entries, &mut log);
    log
}

/// Runs with [`Server::check_laws`] after every event. Returns the number of events.
pub fn run_checked(cluster: &ClusterSpec, system: &SystemSpec, tenants: u32, entries: Vec<Entry>) -> u64 {
    run_checked_on(&synthetic_card(), cluster, system, tenants, entries)
}

/// Likewise, on a card.
pub fn run_checked_on(
    card: &Card,
    cluster: &ClusterSpec,
    system: &SystemSpec,
    tenants: u32,
    entries: Vec<Entry>,
) -> u64 {
    let mut server = Server::on_card(card, cluster, system, tenants).expect("it fits").with_management();
    let prices = Prices::of_system(card, system, Jitter::Measured { seed: 3 })
        .and_then(|prices| prices.with_management(card))
        .expect("the card has all tables");
    let answers = system
        .route
        .as_ref()
        .map(|route| Answers::new(&answers(), route, 9).expect("the models are known"));
    let mut machine =
        VirtualMachine::new(server.topology(), prices, &card.contention, Arc::default()).with_answers(answers);
    let mut workload = Listed::new(entries);
    let mut commands = Commands::default();
    let mut events = 0;
    loop {
        let due = workload.peek().expect("a list is readable");
        let (now, event) = match machine.next(due).expect("the machine goes on") {
            Next::Event(now, event) => (now, event),
            Next::Due(now) => match workload.next().expect("readable").expect("announced") {
                Entry::Request(request) => (now, Event::Arrived(request)),
                Entry::Cancel { ticket, .. } => (now, Event::Cancelled(ticket)),
                Entry::Manage(request) => (now, Event::Manage(request)),
            },
            Next::Idle => return events,
        };
        events += 1;
        server.handle(now, &event, &mut commands);
        for command in &commands.list {
            machine.perform(now, command, &commands).expect("performed");
        }
        commands.clear();
        server.check_laws(now).expect("the laws hold");
    }
}
