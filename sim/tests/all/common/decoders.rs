//! Small systems of decoders, requests to them, and runs on the virtual machine.

use proptest::prelude::*;
use tenantry_core::log::Log;
use tenantry_core::run::Observer;
use tenantry_core::spec::{
    ConsolidateSpec, DisaggregatedSpec, GenerationSpec, JoinSpec, LightLoadSpec, LinkSpec, LoraSpec, PipelineSpec,
    PlaceSpec, PlotSpec, PrefillSpec, QueueSpec, StopSpec, SwapSpec, SystemSpec, TenantState, Weights,
};
use tenantry_core::testing;
use tenantry_core::{Event, Ledger, RunRecord, Server, run};
use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{
    AdapterImplementation, Added, Card, ConcurrentStepRow, DType, DecoderStepRow, ModelShape, Stats,
};
use tenantry_sim::{Jitter, Prices, VirtualMachine};
use tenantry_traces::{Duration, Entry, Listed, Request, Time};

pub const TENANTS: u32 = 12;
pub const PAGE_TOKENS: u32 = 16;
/// No run of the property tests needs as many.
pub const EVENTS_MAX: u32 = 200_000;

pub fn generation() -> GenerationSpec {
    GenerationSpec {
        lora: Some(LoraSpec {
            rank: 8,
            implementation: AdapterImplementation::Grouped,
            slots: 4,
            host_slots: None,
        }),
        max_batch: 4,
        page_tokens: PAGE_TOKENS,
        ..GenerationSpec::default()
    }
}

pub fn system(generation: GenerationSpec) -> SystemSpec {
    let mut system = super::system();
    system.pool.model = ModelShape::builtin("tiny-llama").expect("it is built in");
    system.pool.tenant_state = TenantState::Head;
    system.pool.place = PlaceSpec::LargestWorkingSet;
    system.pool.generation = Some(generation);
    system
}

pub const PLOT: PlotSpec = PlotSpec {
    fallbacks_ppm: 100_000,
    domain_bytes: Some(1 << 20),
    ..testing::PLOT
};

/// The upper layer of two, above a table; tenants have adapters in it.
pub fn hierarchical(generation: GenerationSpec, pipeline: PipelineSpec) -> SystemSpec {
    let mut system = system(GenerationSpec {
        lora: None,
        slots: 4,
        ..generation
    });
    system.pool.tenant_state = super::ADAPTERS;
    system.pool.plot = Some(PLOT);
    system.pool.pipeline = pipeline;
    system
}

/// A card's memory for weights, what tenants have of their own, and so many pages.
pub fn memory(system: &SystemSpec, pages: u32) -> u64 {
    let (pool, generation) = (&system.pool, system.pool.generation.as_ref().expect("it generates"));
    let (model, layers) = (&pool.model, u64::from(pool.computed_layers()));
    let backbone = pool.computed_parameters();
    let tenants = match (pool.tenant_state, generation.lora) {
        (TenantState::Model, _) => backbone * u64::from(generation.slots),
        (TenantState::Adapters { bottleneck, .. }, _) => {
            backbone + layers * model.adapter_parameters_per_layer(bottleneck) * u64::from(generation.slots)
        }
        (TenantState::Head, Some(lora)) => {
            backbone + layers * model.lora_parameters_per_layer(lora.rank) * u64::from(lora.slots)
        }
        (TenantState::Head, None) => backbone,
    };
    let page = model.cached_per_token() / u64::from(model.layers) * layers * u64::from(generation.page_tokens);
    pool.dtype.bytes() * (tenants + page * u64::from(pages))
}

pub fn request(ticket: u64, at_us: u64, tenant: u32, input_tokens: u32, output_tokens: u32) -> Entry {
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

/// The synthetic card with whole steps: 100 + 0.8 × chunk tokens + 9 × sequences + 0.05 × sequences × context
/// microseconds, and half as much again beside another instance on its four cores.
pub fn card_of_whole_steps() -> Card {
    let mut card = synthetic_card();
    let stats = |us: f64| Stats {
        count: 100,
        mean_us: us,
        median_us: us,
        p05_us: us * 0.9,
        p95_us: us * 1.1,
        p99_us: us * 1.2,
    };
    let grouped = Added::Lora {
        implementation: AdapterImplementation::Grouped,
        rank: 8,
    };
    let (model, dtype) = (|| "tiny-llama".to_string(), DType::F32);
    for added in [Added::Nothing, grouped] {
        for sequences in [1, 4, 16] {
            for (chunk_tokens, context) in
                [1, 32, 128].into_iter().flat_map(|chunk| [32, 128, 512].map(|at| (chunk, at)))
            {
                let us =
                    100.0 + 0.8 * f64::from(chunk_tokens) + (9.0 + 0.05 * f64::from(context)) * f64::from(sequences);
                card.tables.decoder_step.push(DecoderStepRow {
                    model: model(),
                    dtype,
                    layers: 2,
                    added,
                    chunk_tokens,
                    sequences,
                    context,
                    stats: stats(us),
                });
            }
            for streams in [1, 2, 4] {
                card.tables.concurrent_step.push(ConcurrentStepRow {
                    model: model(),
                    dtype,
                    added,
                    streams,
                    sequences,
                    stats: stats(100.0 + 50.0 * f64::from(streams - 1)),
                });
            }
        }
    }
    card
}

pub fn simulate(
    system: &SystemSpec,
    gpus: u32,
    pages: u32,
    jitter: Jitter,
    entries: Vec<Entry>,
    stepping: bool,
) -> (RunRecord, Log) {
    simulate_on(&synthetic_card(), system, gpus, pages, jitter, entries, stepping)
}

pub fn simulate_on(
    card: &Card,
    system: &SystemSpec,
    gpus: u32,
    pages: u32,
    jitter: Jitter,
    entries: Vec<Entry>,
    stepping: bool,
) -> (RunRecord, Log) {
    let mut server = Server::new(&super::cluster(gpus, memory(system, pages)), system, TENANTS)
        .unwrap()
        .with_management();
    let prices = Prices::of_system(card, system, jitter).and_then(|prices| prices.with_management(card)).unwrap();
    let stop = system.pool.generation.as_ref().expect("it generates").stop;
    let mut machine =
        VirtualMachine::new(server.topology(), prices, &card.contention, Default::default()).with_ends(stop, 5);
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

/// Systems of every kind, and few pages.
pub fn systems() -> impl Strategy<Value = (SystemSpec, u32, u32)> {
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
    // What tenants have of their own, for how many of them there is room, on the cards and in host memory, and whether
    // a table stands for the lower layer.
    let owned = (0u8..4, 1u32..6, proptest::option::of(1u32..8), 0u8..3);
    // How often, and how cards come and go.
    let scale = (1u32..4, 0u64..20, 0u64..40);
    let consolidate = proptest::option::of((1u64..30, proptest::option::of(scale)));
    let stop = prop_oneof![
        2 => Just(StopSpec::Length),
        1 => (1u32..400_000).prop_map(|chance_ppm| StopSpec::EndOfSequence { token: 2, chance_ppm }),
    ];
    let weights = (0u32..3, 1u32..4).prop_map(|(input, output)| Weights { input, output });
    let queue = prop_oneof![
        2 => Just(QueueSpec::Arrival),
        1 => weights.prop_map(QueueSpec::VirtualTokenCounter),
    ];
    // What an evicted request left, or what tenants share.
    let caching = prop_oneof![
        1 => Just((false, 0)),
        1 => Just((true, 0)),
        1 => (16u32..100).prop_map(|tokens| (false, tokens)),
    ];
    // Cards that only take prompts in, over what.
    let link = (1_000_000u64..10_000_000_000, 0u64..3_000).prop_map(|(bytes_per_s, us)| LinkSpec {
        bytes_per_s,
        latency: Duration::from_micros(us),
    });
    let apart = proptest::option::of((1u32..4, proptest::option::of(link)));
    let spec = (join, prefill, place, owned, consolidate, caching, stop, queue);
    (spec, 1u32..6, 1u32..5, 8u32..60, apart).prop_map(
        |(
            (join, prefill, place, owned, consolidate, (prefix_caching, shared_prefix_tokens), stop, queue),
            max_batch,
            gpus,
            pages,
            apart,
        )| {
            let (own, slots, host_slots, table) = owned;
            let disaggregated = apart.filter(|_| gpus > 1).map(|(prefill_gpus, link)| DisaggregatedSpec {
                prefill_gpus: prefill_gpus.min(gpus - 1),
                link,
            });
            // What goes with that.
            let (own, join, table, prefix_caching) = match disaggregated {
                Some(_) => (own.max(1), JoinSpec::AnyTenant, 0, false),
                None => (own, join, table, prefix_caching),
            };
            let lora = LoraSpec {
                rank: 8,
                implementation: AdapterImplementation::Grouped,
                slots,
                host_slots,
            };
            let tenant_state = match own {
                0 => TenantState::Model,
                1 => super::ADAPTERS,
                _ => TenantState::Head,
            };
            let light = 1 + pages % 3;
            let generation = GenerationSpec {
                lora: (own == 2).then_some(lora),
                slots,
                join: match (tenant_state, join) {
                    // A tenant's model serves nobody else.
                    (TenantState::Model, JoinSpec::AnyTenant) => JoinSpec::QueuePerTenant,
                    _ => join,
                },
                max_batch,
                prefill,
                page_tokens: PAGE_TOKENS,
                prefix_caching,
                shared_prefix_tokens,
                disaggregated,
                stop,
                queue,
                consolidate: consolidate.map(|(ms, _)| ConsolidateSpec {
                    every: Duration::from_millis(ms),
                    light,
                }),
                scale: consolidate.filter(|_| disaggregated.is_none()).and_then(|(_, scale)| {
                    let (start, start_up_ms, patience_ms) = scale?;
                    Some(LightLoadSpec {
                        light,
                        cards_at_start: start.min(gpus),
                        cards_min: 1,
                        start_up: Duration::from_millis(start_up_ms),
                        patience: Duration::from_millis(patience_ms),
                    })
                }),
                ..GenerationSpec::default()
            };
            let mut system = system(generation);
            system.pool.place = place;
            system.pool.tenant_state = tenant_state;
            system.pool.swap = match slots % 2 {
                0 => SwapSpec::LeastRecentlyUsed,
                _ => SwapSpec::LeastFrequentlyUsed,
            };
            system.pool.plot = (table > 0).then_some(PLOT);
            system.pool.pipeline = match table {
                1 => PipelineSpec::PREFETCH_RETRIEVAL,
                _ => PipelineSpec::SYNCHRONOUS,
            };
            (system, gpus, pages)
        },
    )
}

/// Requests, fewer than so many, of which some are given up, and changes of tenants.
pub fn entries(requests: usize) -> impl Strategy<Value = Vec<Entry>> {
    let one = (
        0u64..3_000,
        0..TENANTS,
        1u32..120,
        1u32..200,
        proptest::option::weighted(0.15, 0u64..60_000),
    );
    let changes = prop_oneof![Just(Vec::new()), super::changes(TENANTS, 100_000)];
    (proptest::collection::vec(one, 1..requests), changes).prop_map(|(requests, changes)| {
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
