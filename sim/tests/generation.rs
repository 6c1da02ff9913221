//! Decoders on the virtual machine: known answers, the server's laws, and leaping against stepping.

mod common;

use common::cluster;
use proptest::prelude::*;
use tenantry_core::log::{Log, replay};
use tenantry_core::run::Observer;
use tenantry_core::spec::{
    ConsolidateSpec, GenerationSpec, JoinSpec, LoraSpec, PlaceSpec, PrefillSpec, SystemSpec, TenantState,
};
use tenantry_core::{Commands, Event, Ledger, Machine, Next, RunRecord, Server, run};
use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{AdapterImplementation, ModelShape};
use tenantry_sim::{Jitter, Prices, VirtualMachine};
use tenantry_traces::{Duration, Entry, Listed, Request, Time, Workload};

const TENANTS: u32 = 12;
const PAGE_TOKENS: u32 = 16;
/// No run of the property tests needs as many.
const EVENTS_MAX: u32 = 200_000;

fn generation() -> GenerationSpec {
    GenerationSpec {
        lora: Some(LoraSpec {
            rank: 8,
            implementation: AdapterImplementation::Grouped,
            slots: 4,
        }),
        join: JoinSpec::AnyTenant,
        max_batch: 4,
        prefill: PrefillSpec::OnePerStep,
        page_tokens: PAGE_TOKENS,
        prefix_caching: false,
        tensor_parallel: 1,
        consolidate: None,
    }
}

fn system(generation: GenerationSpec) -> SystemSpec {
    let mut system = common::system();
    system.pool.model = ModelShape::builtin("tiny-llama").expect("it is built in");
    system.pool.tenant_state = TenantState::Head;
    system.pool.place = PlaceSpec::LargestWorkingSet;
    system.pool.generation = Some(generation);
    system
}

/// A card's memory for weights, adapters and so many pages.
fn memory(system: &SystemSpec, pages: u32) -> u64 {
    let (pool, generation) = (&system.pool, system.pool.generation.as_ref().expect("it generates"));
    let model = &pool.model;
    let adapters = generation.lora.map_or(0, |lora| {
        u64::from(model.layers) * model.lora_parameters_per_layer(lora.rank) * u64::from(lora.slots)
    });
    let page = model.cached_per_token() * u64::from(generation.page_tokens);
    pool.dtype.bytes() * (model.parameters() + adapters + page * u64::from(pages))
}

fn request(ticket: u64, at_us: u64, tenant: u32, input_tokens: u32, output_tokens: u32) -> Entry {
    Entry::Request(Request {
        ticket,
        tenant,
        arrival: Time(at_us * 1_000),
        input_tokens,
        output_tokens,
        class: 0,
    })
}

/// Breaks a run that does not end.
struct Bounded(u32);

impl Observer for Bounded {
    fn event(&mut self, _: Time, _: &Event<'_>) {
        self.0 += 1;
        assert!(self.0 < EVENTS_MAX, "requests are moved about and never end");
    }
}

fn simulate(
    system: &SystemSpec,
    gpus: u32,
    pages: u32,
    jitter: Jitter,
    entries: Vec<Entry>,
    stepping: bool,
) -> (RunRecord, Log) {
    let card = synthetic_card();
    let mut server = Server::new(&cluster(gpus, memory(system, pages)), system, TENANTS).unwrap();
    let prices = Prices::new(&card, &system.pool, jitter)
        .and_then(|prices| prices.with_management(&card))
        .unwrap();
    let mut machine = VirtualMachine::new(server.topology(), prices, &card.contention, Default::default());
    if stepping {
        machine = machine.step_by_step();
    }
    let (mut ledger, mut log) = (Ledger::new(Time::ZERO), Log::default());
    let end = run(
        &mut server,
        &mut Listed::new(entries),
        &mut machine,
        &mut ledger,
        (&mut log, Bounded(0)),
    )
    .unwrap();
    (ledger.close(end, &server, &machine).unwrap(), log)
}

#[test]
fn one_request_takes_what_its_steps_take() {
    let mut generation = generation();
    generation.lora = None;
    let system = system(generation);
    let (record, _) = simulate(&system, 1, 64, Jitter::None, vec![request(0, 0, 0, 256, 3)], false);
    // Two layers. The prompt's 256 tokens: dense 30 + 128, attention 2 + 0.001 × 256 × 256; then the ends of one sequence.
    let prompt_us = 2.0 * (158.0 + 2.0 + 65.536) + (10.0 + 1.0 + 2.56);
    // A new token: dense 30.5; attention of 257 and 258 tokens; ends.
    let token_us = |context: f64| 2.0 * (30.5 + 2.0 + 0.01 * context) + (10.0 + 1.0 + 0.01);
    let (wake_us, tell_us) = (5.0, 20.0);
    let first_us = wake_us + prompt_us;
    let all_us = first_us + token_us(257.0) + token_us(258.0) + tell_us;
    assert!(
        (record.first_token.mean_ns() / 1e3 - first_us).abs() < 0.1,
        "{first_us}"
    );
    assert!((record.latency.mean_ns() / 1e3 - all_us).abs() < 0.1, "{all_us}");
    assert_eq!((record.output_tokens, record.batches), (3, 3));
}

#[test]
fn who_runs_out_of_pages_is_computed_again() {
    let mut generation = generation();
    generation.lora = None;
    let system = system(generation);
    // Two requests of 30 tokens that grow to 90 each: 12 pages, and there are 9.
    let entries = vec![request(0, 0, 0, 30, 60), request(1, 10, 1, 30, 60)];
    let (record, _) = simulate(&system, 1, 9, Jitter::None, entries, false);
    let counts = record.generation.expect("it generates");
    assert_eq!((record.counts.served, record.output_tokens), (2, 120));
    assert_eq!(counts.evictions, 1);
    assert!(
        counts.recomputed_tokens > 30,
        "the prompt and what was generated: {counts:?}"
    );
}

#[test]
fn what_was_not_overwritten_is_not_computed_again() {
    let entries = || vec![request(0, 0, 0, 30, 60), request(1, 10, 1, 30, 60)];
    let recomputed = |prefix_caching| {
        let generation = GenerationSpec {
            lora: None,
            prefix_caching,
            ..generation()
        };
        let (record, _) = simulate(&system(generation), 1, 9, Jitter::None, entries(), false);
        assert_eq!((record.counts.served, record.output_tokens), (2, 120));
        record.generation.expect("it generates").recomputed_tokens
    };
    // The one that stays takes a page or two of those that the other left, the last first; the rest is there when it returns.
    let (with, without) = (recomputed(true), recomputed(false));
    assert!(with > 0 && with < without, "{with} of {without}");
}

#[test]
fn a_request_larger_than_the_cache_fails_alone() {
    let mut generation = generation();
    generation.lora = None;
    let system = system(generation);
    let entries = vec![
        request(0, 0, 0, 30, 600),
        request(1, 10, 1, 30, 6),
        request(2, 20, 2, 600, 6),
    ];
    let (record, _) = simulate(&system, 1, 9, Jitter::None, entries, false);
    assert_eq!(
        (record.counts.served, record.counts.failed, record.counts.rejected),
        (1, 1, 1)
    );
}

#[test]
fn baselines_run_one_tenant_at_a_time() {
    // Tenants alternate in the queue: a run of the same one is never longer than one request.
    let entries: Vec<Entry> = (0..16).map(|n| request(n, n, (n % 2) as u32, 20, 40)).collect();
    let batch = |join: JoinSpec| {
        let generation = GenerationSpec { join, ..generation() };
        let (record, _) = simulate(&system(generation), 1, 200, Jitter::None, entries.clone(), false);
        assert_eq!(record.counts.served, 16);
        record.batch_requests as f64 / record.batches as f64
    };
    assert_eq!(batch(JoinSpec::HeadRun), 1.0);
    assert_eq!(batch(JoinSpec::HeadRunStatic), 1.0);
    assert!(batch(JoinSpec::QueuePerTenant) > 2.5);
    assert!(batch(JoinSpec::AnyTenant) > 2.5);
}

#[test]
fn a_static_batch_waits_for_its_longest() {
    let generation = GenerationSpec {
        join: JoinSpec::HeadRunStatic,
        prefill: PrefillSpec::Chunked { max_tokens: 4096 },
        lora: None,
        ..generation()
    };
    let system = system(generation);
    // The first arrives alone and is served alone; the next two form a batch.
    let entries = vec![
        request(0, 0, 0, 20, 2),
        request(1, 1, 0, 20, 5),
        request(2, 2, 0, 20, 50),
    ];
    let (_, log) = simulate(&system, 1, 200, Jitter::None, entries, false);
    let finished: Vec<(u64, u64)> = log
        .commands
        .iter()
        .filter_map(|logged| match &logged.command {
            tenantry_core::Command::Finish(finish) => Some((finish.ticket, logged.at.0)),
            _ => None,
        })
        .collect();
    assert_eq!(finished[1].1, finished[2].1, "both leave when the longer has ended");
    assert!(finished[0].1 < finished[1].1);
}

#[test]
fn lightly_loaded_cards_are_emptied() {
    let generation = GenerationSpec {
        max_batch: 8,
        consolidate: Some(ConsolidateSpec {
            every: Duration::from_millis(5),
            light: 2,
        }),
        ..generation()
    };
    let mut system = system(generation);
    // The first four fill a card and the next four another; one of each is left when the others have ended.
    system.pool.generation.as_mut().expect("it generates").max_batch = 4;
    let output = |n: u64| if n.is_multiple_of(4) { 400 } else { 5 };
    let entries: Vec<Entry> = (0..8).map(|n| request(n, n, n as u32 % 4, 20, output(n))).collect();
    let counts = |system: &SystemSpec| {
        let (record, _) = simulate(system, 4, 400, Jitter::None, entries.clone(), false);
        assert_eq!(record.counts.served, 8);
        record.generation.expect("it generates")
    };
    let consolidated = counts(&system);
    system.pool.generation.as_mut().expect("it generates").consolidate = None;
    let spread = counts(&system);
    assert_eq!((consolidated.migrations, spread.migrations), (1, 0));
    assert!(
        consolidated.occupied.0 * 4 < spread.occupied.0 * 3,
        "{consolidated:?} {spread:?}"
    );
}

/// Systems of every kind, and few pages.
fn systems() -> impl Strategy<Value = (SystemSpec, u32, u32)> {
    let join = prop_oneof![
        2 => Just(JoinSpec::AnyTenant),
        1 => Just(JoinSpec::HeadRun),
        1 => Just(JoinSpec::HeadRunStatic),
        1 => Just(JoinSpec::QueuePerTenant),
    ];
    let prefill = prop_oneof![
        Just(PrefillSpec::OnePerStep),
        (8u32..200).prop_map(|max_tokens| PrefillSpec::Chunked { max_tokens }),
    ];
    let place = prop_oneof![
        2 => Just(PlaceSpec::LargestWorkingSet),
        1 => Just(PlaceSpec::LeastLoaded),
        1 => Just(PlaceSpec::RoundRobin),
    ];
    let lora = proptest::option::of(1u32..6);
    let consolidate = proptest::option::of(1u64..30);
    let spec = (join, prefill, place, lora, consolidate, any::<bool>());
    (spec, 1u32..6, 1u32..4, 8u32..60).prop_map(
        |((join, prefill, place, slots, consolidate, prefix_caching), max_batch, gpus, pages)| {
            let generation = GenerationSpec {
                lora: slots.map(|slots| LoraSpec {
                    rank: 8,
                    implementation: AdapterImplementation::Grouped,
                    slots,
                }),
                join,
                max_batch,
                prefill,
                page_tokens: PAGE_TOKENS,
                prefix_caching,
                tensor_parallel: 1,
                consolidate: consolidate.map(|ms| ConsolidateSpec {
                    every: Duration::from_millis(ms),
                    light: 2,
                }),
            };
            let mut system = system(generation);
            system.pool.place = place;
            (system, gpus, pages)
        },
    )
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let one = (
        0u64..3_000,
        0..TENANTS,
        1u32..120,
        1u32..200,
        proptest::option::weighted(0.15, 0u64..60_000),
    );
    let changes = prop_oneof![Just(Vec::new()), common::changes(TENANTS, 100_000)];
    (proptest::collection::vec(one, 1..40), changes).prop_map(|(requests, changes)| {
        let mut at_us = 0;
        let mut entries = changes;
        for (ticket, (gap_us, tenant, input, output, cancel_after_us)) in requests.into_iter().enumerate() {
            at_us += gap_us;
            entries.push(request(ticket as u64, at_us, tenant, input, output));
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

fn jitters() -> impl Strategy<Value = Jitter> {
    prop_oneof![
        Just(Jitter::None),
        any::<u64>().prop_map(|seed| Jitter::Measured { seed })
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Leaping over steps and visiting each give the same events at the same instants, and so the same of everything.
    #[test]
    fn leaping_is_stepping((system, gpus, pages) in systems(), entries in entries(), jitter in jitters()) {
        let (leapt, leaps) = simulate(&system, gpus, pages, jitter, entries.clone(), false);
        let (stepped, steps) = simulate(&system, gpus, pages, jitter, entries, true);
        prop_assert_eq!(leaps, steps);
        prop_assert_eq!(format!("{leapt:?}"), format!("{stepped:?}"));
    }

    /// The server's laws after every event: no page is lost or held twice, nobody waits for room that is there.
    #[test]
    fn the_servers_laws_hold_after_every_event((system, gpus, pages) in systems(), entries in entries()) {
        let card = synthetic_card();
        let mut server = Server::new(&cluster(gpus, memory(&system, pages)), &system, TENANTS).unwrap();
        let prices = Prices::new(&card, &system.pool, Jitter::None)
            .and_then(|prices| prices.with_management(&card))
            .unwrap();
        let mut machine = VirtualMachine::new(server.topology(), prices, &card.contention, Default::default());
        let mut workload = Listed::new(entries);
        let mut commands = Commands::default();
        for events in 0.. {
            prop_assert!(events < EVENTS_MAX, "requests are moved about and never end");
            let due = workload.peek().unwrap();
            let (now, event) = match machine.next(due).unwrap() {
                Next::Event(now, event) => (now, event),
                Next::Due(now) => match workload.next().unwrap().unwrap() {
                    Entry::Request(request) => (now, Event::Arrived(request)),
                    Entry::Cancel { ticket, .. } => (now, Event::Cancelled(ticket)),
                    Entry::Manage(request) => (now, Event::Manage(request)),
                },
                Next::Idle => break,
            };
            server.handle(now, event, &mut commands);
            for command in &commands.list {
                machine.perform(now, command, &commands).unwrap();
            }
            commands.clear();
            if let Err(law) = server.check_laws(now) {
                return Err(TestCaseError::fail(law));
            }
        }
        prop_assert_eq!(server.in_flight(), 0);
    }

    /// A server told the same events gives the same commands.
    #[test]
    fn runs_replay((system, gpus, pages) in systems(), entries in entries()) {
        let (_, log) = simulate(&system, gpus, pages, Jitter::None, entries, false);
        let mut fresh = Server::new(&cluster(gpus, memory(&system, pages)), &system, TENANTS).unwrap();
        prop_assert_eq!(replay(&mut fresh, &log.events), log.commands);
    }
}
