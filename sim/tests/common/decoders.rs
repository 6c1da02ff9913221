//! Small systems of decoders, requests to them, and runs on the virtual machine.

use tenantry_core::log::Log;
use tenantry_core::run::Observer;
use tenantry_core::spec::{GenerationSpec, LoraSpec, Met, PipelineSpec, PlaceSpec, PlotSpec, SystemSpec, TenantState};
use tenantry_core::{Event, Ledger, RunRecord, Server, run};
use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{
    AdapterImplementation, Added, Card, ConcurrentStepRow, DType, DecoderStepRow, ModelShape, Stats, Tier,
};
use tenantry_sim::{Jitter, Prices, VirtualMachine};
use tenantry_traces::{Entry, Listed, Request, Time};

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
    lower_layers: 1,
    fragment_tokens: 3,
    threads: 1,
    tier: Tier::Memory,
    domain_hits_ppm: 500_000,
    fallbacks_ppm: 100_000,
    met: Met::AsBuilt,
    domains: 8,
    domain_bytes: 1 << 20,
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
    let backbone = pool.decoder_parameters();
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

/// The synthetic card with whole steps: 100 + 0.8 × chunk tokens + 9 × sequences + 0.05 × sequences × context microseconds, and half as
/// much again beside another instance on its four cores.
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
            for (chunk_tokens, context) in [1, 32, 128]
                .into_iter()
                .flat_map(|chunk| [32, 128, 512].map(|at| (chunk, at)))
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
    let mut server = Server::new(&super::cluster(gpus, memory(system, pages)), system, TENANTS).unwrap();
    let prices = Prices::new(card, &system.pool, jitter)
        .and_then(|prices| prices.with_management(card))
        .unwrap();
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
