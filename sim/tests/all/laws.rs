//! Laws that hold in every run, whatever the policies, the workload and the memory.

use crate::common;
use crate::common::{cluster, decoders, log_of, memory_for, request, run_checked, run_listed, run_watched, system};
use proptest::prelude::*;
use tenantry_core::log::replay;
use tenantry_core::server::ServerError;
use tenantry_core::spec::{
    AdmitSpec, BatchSpec, Met, Padding, ParameterPipeline, PipelineSpec, PlaceSpec, PlotSpec, SystemSpec, TenantState,
};
use tenantry_core::testing;
use tenantry_core::{ClusterSpec, Server};
use tenantry_profiles::Tier;
use tenantry_profiles::testing::synthetic_card;
use tenantry_sim::{Jitter, Run, simulate};
use tenantry_traces::{Duration, Entry, Listed, Time};

const TENANTS: u32 = 12;

fn systems() -> impl Strategy<Value = SystemSpec> {
    let batch = prop_oneof![
        (1u32..6).prop_map(|max_size| BatchSpec::PerTenant { max_size }),
        (1u32..6).prop_map(|size| BatchSpec::FixedSize { size }),
        (1u32..9, 0u64..20).prop_map(|(max_size, ms)| BatchSpec::SizeOrTimeout {
            max_size,
            max_wait: Duration::from_millis(ms)
        }),
    ];
    let state = prop_oneof![
        Just(TenantState::Model),
        Just(common::ADAPTERS),
        Just(TenantState::Head)
    ];
    let pipeline = prop_oneof![
        Just(PipelineSpec::SYNCHRONOUS),
        Just(PipelineSpec::PREFETCH_RETRIEVAL),
        Just(PipelineSpec::PREFETCH),
        Just(PipelineSpec::LAYERWISE),
        // Without look-ups ahead.
        Just(PipelineSpec {
            prefetch_retrieval: false,
            parameters: ParameterPipeline::NextLayer,
        })
    ];
    let tier = prop_oneof![Just(Tier::Memory), Just(Tier::Disk)];
    // With half of the rest, or nothing, left for the root.
    let plot = (1u32..5, 1u32..4, tier, 0u32..=1_000_000, 1u32..=2).prop_map(
        |(fragment_tokens, threads, tier, domain_hits_ppm, part)| PlotSpec {
            fragment_tokens,
            threads,
            tier,
            domain_hits_ppm,
            met: Met::Shares {
                domain_hits_ppm,
                fallbacks_ppm: (1_000_000 - domain_hits_ppm) / part,
            },
            domain_bytes: Some(1 << 20),
            ..testing::PLOT
        },
    );
    let plot = proptest::option::of(plot);
    let place = prop_oneof![Just(PlaceSpec::LeastLoaded), Just(PlaceSpec::RoundRobin)];
    let admit = prop_oneof![
        3 => Just(AdmitSpec::Open),
        1 => (1u32..20).prop_map(|max_waiting| AdmitSpec::BoundedQueue { max_waiting }),
        1 => (1u64..500, 1u32..5).prop_map(|(ms, burst)| AdmitSpec::RateLimit { period: Duration::from_millis(ms), burst }),
    ];
    let padding = prop_oneof![Just(Padding::Longest), Just(Padding::To(48))];
    (batch, state, pipeline, plot, place, admit, padding, 1u32..3).prop_map(
        |(batch, tenant_state, pipeline, plot, place, admit, padding, instances_per_gpu)| {
            let mut system = system();
            system.admit = admit;
            system.pool.plot = plot;
            system.pool.batch = batch;
            system.pool.tenant_state = tenant_state;
            // A whole model comes in one piece.
            system.pool.pipeline = match (tenant_state, pipeline) {
                (
                    TenantState::Model,
                    PipelineSpec {
                        parameters: ParameterPipeline::NextLayer,
                        ..
                    },
                ) => PipelineSpec::PREFETCH,
                _ => pipeline,
            };
            system.pool.place = place;
            system.pool.padding = padding;
            system.pool.instances_per_gpu = instances_per_gpu;
            system
        },
    )
}

/// Requests of known and unknown tenants, too long ones, cancellations before, during and after service, and tenants
/// that come, change and go meanwhile.
fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let one = (
        0u64..4_000,
        0..TENANTS + 1,
        1u32..64,
        proptest::option::weighted(0.2, 0u64..30_000),
    );
    let changes = prop_oneof![Just(Vec::new()), common::changes(TENANTS, 200_000)];
    (proptest::collection::vec(one, 1..120), changes).prop_map(|(requests, changes)| {
        let mut at_us = 0;
        // At one instant, changes come before requests.
        let mut entries = changes;
        for (ticket, (gap_us, tenant, tokens, cancel_after_us)) in requests.into_iter().enumerate() {
            at_us += gap_us;
            entries.push(request(ticket as u64, at_us, tenant, tokens));
            if let Some(after_us) = cancel_after_us {
                entries.push(Entry::Cancel {
                    at: Time((at_us + after_us) * 1_000),
                    ticket: ticket as u64,
                });
            }
        }
        entries
    })
}

/// Where host and card share their memory, every tenant's parameters lie there whether they are in a slot or not.
#[test]
fn what_the_host_keeps_takes_slots_and_pages_from_a_card_that_shares_its_memory() {
    let card = synthetic_card();
    let server = |system: &SystemSpec, tenants, shares_host_memory, memory| {
        let cluster = ClusterSpec {
            shares_host_memory,
            ..cluster(1, memory)
        };
        Server::on_card(&card, &cluster, system, tenants)
    };
    let encoders = system();
    let [three, fifteen] = [3, 15].map(|slots| memory_for(&encoders, 12, slots));
    assert!(server(&encoders, 12, false, three).is_ok());
    assert!(server(&encoders, 12, true, fifteen).is_ok());
    let refused = server(&encoders, 12, true, fifteen - 3 * (fifteen - three) / 12);
    assert!(matches!(refused.err(), Some(ServerError::TenantDoesNotFit { .. })));

    let mut spec = decoders::generation();
    for host_slots in [None, Some(2)] {
        spec.lora.as_mut().expect("it has some").host_slots = host_slots;
        let system = decoders::system(spec.clone());
        let alone = decoders::memory(&system, 1);
        let per_tenant = server(&system, 12, false, alone).unwrap().memory().per_tenant_bytes;
        let kept = u64::from(host_slots.unwrap_or(12)) * per_tenant;
        assert!(server(&system, 12, true, alone + kept).is_ok());
        let refused = server(&system, 12, true, alone + kept - 1);
        assert!(matches!(refused.err(), Some(ServerError::BackboneDoesNotFit { .. })));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// The server's own laws after every event: nobody is lost, nobody idles while the policy has work, memory
    /// suffices.
    #[test]
    fn the_servers_laws_hold_after_every_event(
        system in systems(), entries in entries(), gpus in 1u32..3, slots in 1u32..14
    ) {
        let memory = memory_for(&system, TENANTS, slots);
        prop_assert!(run_checked(&cluster(gpus, memory), &system, TENANTS, entries) > 0);
    }

    /// The ledger's laws (each latency is the sum of its parts, arrivals are accounted for, lanes are busy at most all
    /// the time) are errors of the run; here also Little's law, exactly: the integral of the number inside is the sum
    /// of the times inside.
    #[test]
    fn littles_law_is_exact(system in systems(), entries in entries(), slots in 1u32..14) {
        let memory = memory_for(&system, TENANTS, slots);
        let mut watch = TimesInside::default();
        let (card, jitter) = (synthetic_card(), Jitter::Measured { seed: 1 });
        let record = run_watched(&card, cluster(1, memory), &system, TENANTS, jitter, entries, &mut watch).record;
        let inside_ns: u64 = watch.inside(record.end);
        let integral_ns = record.in_flight_mean * record.end.0.max(1) as f64;
        prop_assert!((integral_ns - inside_ns as f64).abs() <= 1e-9 * integral_ns.max(1.0) + 1.0);
    }

    /// The same seed gives the same log of events and commands; another machine told the same events gives the same
    /// commands.
    #[test]
    fn runs_repeat_and_replay(system in systems(), entries in entries(), slots in 1u32..14) {
        let memory = memory_for(&system, TENANTS, slots);
        let card = synthetic_card();
        let log = |seed| {
            log_of(&card, cluster(1, memory), &system, TENANTS, Jitter::Measured { seed }, entries.clone())
        };
        let first = log(5);
        prop_assert_eq!(&first, &log(5));
        let fresh = Server::new(&cluster(1, memory), &system, TENANTS);
        let mut fresh = fresh.unwrap().with_management();
        prop_assert_eq!(replay(&mut fresh, &first.events), first.commands);
    }

    /// A warm-up, even one longer than the run, leaves the laws as they are, and no lane is busier than there is time.
    #[test]
    fn warm_ups_break_nothing(system in systems(), entries in entries(), slots in 1u32..14, warm_up_us in 0u64..300_000) {
        let card = synthetic_card();
        let memory = memory_for(&system, TENANTS, slots);
        let run = Run {
            warm_up: Time(warm_up_us * 1_000),
            jitter: Jitter::Measured { seed: 2 },
            ..Run::new(&card, cluster(1, memory), &system, TENANTS)
        };
        let record = simulate(&run, &mut Listed::new(entries), Default::default(), None).unwrap().record;
        prop_assert!(record.lanes.iter().all(|lane| lane.busy <= record.duration));
        prop_assert!(record.latency.count() <= record.counts.served);
    }

    /// A policy never changes the workload: every system is offered the same requests and all of them are accounted
    /// for.
    #[test]
    fn nothing_is_lost(system in systems(), entries in entries(), slots in 1u32..14) {
        let offered = entries.iter().filter(|e| matches!(e, Entry::Request(_))).count() as u64;
        let memory = memory_for(&system, TENANTS, slots);
        let record = run_listed(&synthetic_card(), cluster(1, memory), &system, TENANTS, Jitter::None, entries).record;
        prop_assert_eq!(record.counts.offered, offered);
        if !matches!(system.pool.batch, BatchSpec::FixedSize { .. }) {
            prop_assert_eq!(record.counts.unfinished, 0, "only a fixed size leaves a remainder waiting");
        }
        if let BatchSpec::FixedSize { size } = system.pool.batch
            && size * system.pool.instances_per_gpu <= slots
        {
            prop_assert_eq!(record.batch_requests, record.batches * u64::from(size), "no batch is cut");
        }
    }
}

/// Times between arrival and departure, those of requests still inside cut at the end.
#[derive(Default)]
struct TimesInside {
    arrivals: std::collections::BTreeMap<u64, Time>,
    left_ns: u64,
}

impl TimesInside {
    fn inside(&self, end: Time) -> u64 {
        self.left_ns + self.arrivals.values().map(|&arrival| end.since(arrival).0).sum::<u64>()
    }
}

impl tenantry_core::Observer for TimesInside {
    fn event(&mut self, _: Time, event: &tenantry_core::Event<'_>) {
        if let tenantry_core::Event::Arrived(request) = event {
            self.arrivals.insert(request.ticket, request.arrival);
        }
    }

    fn command(&mut self, now: Time, command: &tenantry_core::Command, _: &tenantry_core::Commands) {
        if let tenantry_core::Command::Finish(finish) = command {
            self.left_ns += now.since(self.arrivals.remove(&finish.ticket).expect("it had come")).0;
        }
    }
}
