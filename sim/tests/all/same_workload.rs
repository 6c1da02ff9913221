//! A ticket is the same request whatever serves it: its tenant, lengths and arrival are draws about the ticket alone.

use crate::common;
use std::collections::BTreeMap;

use proptest::prelude::*;
use rayon::prelude::*;
use tenantry_core::spec::{AdmitSpec, BatchSpec, PipelineSpec, PlaceSpec, SystemSpec, TenantState};
use tenantry_core::{Event, Observer};
use tenantry_profiles::testing::synthetic_card;
use tenantry_sim::{Jitter, Run, simulate};
use tenantry_traces::spec::{ArrivalsSpec, LengthSpec, LengthsSpec, PopularitySpec, QuantilePoint, Stop, WorkloadSpec};
use tenantry_traces::{Duration, Request, Time};

const TENANTS: u32 = 20;

/// Evenly from 1 to 60 tokens.
const QUANTILES: [QuantilePoint; 2] = [
    QuantilePoint {
        probability: 0.0,
        tokens: 1.0,
    },
    QuantilePoint {
        probability: 1.0,
        tokens: 60.0,
    },
];

/// Requests as the server hears of them, by ticket.
#[derive(Default)]
struct Heard(BTreeMap<u64, Request>);

impl Observer for Heard {
    fn event(&mut self, _: Time, event: &Event<'_>) {
        if let Event::Arrived(request) = event {
            self.0.insert(request.ticket, *request);
        }
    }
}

fn heard(system: &SystemSpec, workload: &WorkloadSpec, jitter: u64) -> BTreeMap<u64, Request> {
    let card = synthetic_card();
    let cluster = common::cluster(2, common::memory_for(system, TENANTS, 6));
    let spec = Run {
        jitter: Jitter::Measured { seed: jitter },
        ..Run::new(&card, cluster, system, TENANTS)
    };
    let mut heard = Heard::default();
    let mut requests = tenantry_traces::build(workload).expect("the workload is sound");
    simulate(&spec, &mut *requests, Default::default(), Some(&mut heard)).expect("the run is sound");
    heard.0
}

fn systems() -> Vec<SystemSpec> {
    let mut per_tenant = common::system();
    per_tenant.pool.tenant_state = TenantState::Model;
    per_tenant.pool.batch = BatchSpec::PerTenant { max_size: 2 };
    per_tenant.pool.pipeline = PipelineSpec::SYNCHRONOUS;
    let mut turned_away = common::system();
    turned_away.admit = AdmitSpec::BoundedQueue { max_waiting: 2 };
    turned_away.pool.place = PlaceSpec::RoundRobin;
    let mut shared = common::system();
    shared.pool.tenant_state = TenantState::Head;
    shared.pool.batch = BatchSpec::SizeOrTimeout {
        max_size: 8,
        max_wait: Duration::from_millis(3),
    };
    vec![common::system(), per_tenant, turned_away, shared]
}

fn workloads() -> impl Strategy<Value = WorkloadSpec> {
    let arrivals = prop_oneof![
        (10.0..20_000.0).prop_map(|rate_per_s| ArrivalsSpec::Poisson { rate_per_s }),
        (10.0..20_000.0, 0.2..5.0).prop_map(|(rate_per_s, cv)| ArrivalsSpec::Gamma { rate_per_s, cv }),
        (10.0..2_000.0).prop_map(|rate_per_s| ArrivalsSpec::Twitter { rate_per_s }),
    ];
    let popularity = prop_oneof![
        Just(PopularitySpec::Uniform),
        (0.2..2.0).prop_map(|exponent| PopularitySpec::Zipf { exponent }),
    ];
    let lengths = LengthsSpec::Independent {
        input: LengthSpec::Quantiles(QUANTILES.to_vec()),
        output: LengthSpec::Fixed(0),
    };
    (any::<u64>(), arrivals, popularity).prop_map(move |(seed, arrivals, popularity)| WorkloadSpec {
        popularity,
        class_shares: vec![3.0, 1.0],
        stop: Stop {
            requests: Some(100),
            after: None,
        },
        ..WorkloadSpec::new(seed, TENANTS, arrivals, lengths.clone())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whatever the policy, the machine's own draws, the order in which systems are run, and the threads that run them.
    #[test]
    fn a_ticket_is_the_same_request_for_every_system(workload in workloads(), jitter in any::<u64>()) {
        let systems = systems();
        let one_by_one: Vec<_> = systems.iter().map(|system| heard(system, &workload, jitter)).collect();
        prop_assert_eq!(one_by_one[0].len(), 100);
        for other in &one_by_one[1..] {
            prop_assert_eq!(other, &one_by_one[0]);
        }
        let mut at_once: Vec<_> = systems
            .par_iter()
            .rev()
            .map(|system| heard(system, &workload, jitter ^ 1))
            .collect();
        at_once.reverse();
        prop_assert_eq!(at_once, one_by_one);
    }
}
