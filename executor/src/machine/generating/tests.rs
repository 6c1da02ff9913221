//! Whole runs on real threads: the tokens are those of each request alone, whatever ran beside it and wherever; and
//! logs replay.

use std::collections::BTreeMap;

use tch::Tensor;
use tenantry_core::command::{Command, Finish, RejectReason, Verdict};
use tenantry_core::log::{Log, replay};
use tenantry_core::spec::{
    ConsolidateSpec, JoinSpec, LightLoadSpec, LoraSpec, PipelineSpec, PlaceSpec, PrefillSpec, StopSpec, SystemSpec,
    TenantState,
};
use tenantry_core::testing;
use tenantry_core::{ClusterSpec, Ledger, RunRecord, Server, run};
use tenantry_profiles::{AdapterImplementation, DType, ModelShape};
use tenantry_traces::draw::{Draws, Purpose};
use tenantry_traces::{Action, Change, Duration, Entry, Listed, ManageRequest, Request, Time};

mod apart;
mod files;
mod hierarchical;
mod managed;

use super::*;
use crate::TenantParameters;
use crate::decoder::Chunk;
use crate::lora::{LoraCache, LoraStore, Loras};
use crate::machine::inputs::drawn_ids;
use crate::machine::{RealMachine, threads::Threads};
use crate::plot::Tables;
use crate::whole_models::WholeModel;

const TENANTS: u32 = 9;
const REQUESTS: u64 = 36;
const PAGE_TOKENS: u32 = 8;
const SEED: u64 = 3;

fn model() -> ModelShape {
    ModelShape {
        hidden: 48,
        heads: 6,
        kv_heads: 2,
        intermediate: 40,
        vocabulary: 97,
        positions: 128,
        ..ModelShape::builtin("tiny-llama").unwrap()
    }
}

fn generation() -> GenerationSpec {
    GenerationSpec {
        lora: Some(LoraSpec {
            rank: 4,
            implementation: AdapterImplementation::GatherBmm,
            slots: 4,
            host_slots: None,
        }),
        max_batch: 5,
        page_tokens: PAGE_TOKENS,
        ..GenerationSpec::default()
    }
}

fn system(generation: GenerationSpec) -> SystemSpec {
    testing::system(PoolSpec {
        model: model(),
        place: PlaceSpec::LargestWorkingSet,
        generation: Some(generation),
        ..testing::pool("pool")
    })
}

fn cluster(system: &SystemSpec, gpus: u32, pages: u32) -> ClusterSpec {
    let (pool, generation) = (&system.pool, system.pool.generation.as_ref().unwrap());
    let (model, layers) = (&pool.model, u64::from(pool.computed_layers()));
    let backbone = pool.computed_parameters();
    let tenants = match (pool.tenant_state, generation.lora) {
        (TenantState::Model, _) => backbone * u64::from(generation.slots),
        (TenantState::Adapters { bottleneck, .. }, _) => {
            backbone + layers * model.adapter_parameters_per_layer(bottleneck) * u64::from(generation.slots)
        }
        (TenantState::Head, lora) => lora.map_or(backbone, |lora| {
            backbone + layers * model.lora_parameters_per_layer(lora.rank) * u64::from(lora.slots)
        }),
    };
    let page = layers * model.cached_per_token_and_layer() * u64::from(generation.page_tokens);
    ClusterSpec {
        copy_lanes: 1,
        ..testing::cluster(gpus, 4 * (tenants + page * u64::from(pages)))
    }
}

fn request(ticket: u64) -> Request {
    Request {
        ticket,
        tenant: (ticket * 7 % u64::from(TENANTS)) as u32,
        arrival: Time(ticket * 100_000),
        input_tokens: 3 + (ticket * 5 % 23) as u32,
        output_tokens: 1 + (ticket * 11 % 29) as u32,
        class: 0,
    }
}

fn requests() -> Vec<Entry> {
    (0..REQUESTS).map(|ticket| Entry::Request(request(ticket))).collect()
}

/// What came of a run.
struct Served {
    record: RunRecord,
    finished: BTreeMap<u64, Finish>,
    generated: BTreeMap<u64, Vec<i64>>,
    serving: GenerationServing,
}

/// Serves `entries`; `change` may spoil the parameters before it starts.
fn serve(
    generation: GenerationSpec,
    gpus: u32,
    pages: u32,
    entries: Vec<Entry>,
    change: impl FnOnce(GenerationServing) -> GenerationServing,
) -> Served {
    serve_system(&system(generation), None, [gpus, pages], entries, change)
}

fn provision(server: &GenerationServer, tables: Option<Tables>) -> Provision {
    Provision {
        tenants: TENANTS,
        slots: server.slots_per_instance(),
        seed: SEED,
        device: Device::Cpu,
        max_host_bytes: 1 << 30,
        interrupt: Arc::default(),
        tables,
        files: crate::Files::NONE,
    }
}

fn loras(serving: &GenerationServing) -> Option<&LoraStore> {
    match &serving.store {
        Store::Loras(store) => Some(store),
        _ => None,
    }
}

fn serve_system(
    system: &SystemSpec,
    tables: Option<Tables>,
    [gpus, pages]: [u32; 2],
    entries: Vec<Entry>,
    change: impl FnOnce(GenerationServing) -> GenerationServing,
) -> Served {
    let cluster = cluster(system, gpus, pages);
    let server = Server::new(&cluster, system, TENANTS).unwrap().with_management();
    let Server::Generation(generating) = &server else {
        unreachable!()
    };
    assert_eq!(generating.pages_per_instance(), pages);
    let generation = system.pool.generation.as_ref().unwrap();
    let lora = generation.lora.map(|lora| LoraSpec {
        host_slots: None,
        ..lora
    });
    let in_memory = GenerationSpec {
        lora,
        ..generation.clone()
    };
    let serving = GenerationServing::new(&system.pool, &in_memory, generating, provision(generating, tables));
    let mut serving = serving.unwrap();
    // Large enough that every part shows in the output: a tenant's adapters too.
    if let Some(decoder) = &serving.decoder {
        decoder.load(&(decoder.parameters() * 5.0)).unwrap();
    }
    // On a processor that is what cards load their models from.
    if let Some(cards) = &serving.cards {
        cards.load(InstanceId(0)).unwrap();
    }
    let by = match &serving.store {
        Store::Models(..) => 5.0,
        _ => 10.0,
    };
    for tenant in serving.store.sets().into_iter().flat_map(|_| 0..TENANTS) {
        let sets = serving.store.sets().unwrap();
        sets.replace(tenant, sets.of(tenant) * by).unwrap();
    }
    let source = Source {
        tenants: TENANTS,
        seed: SEED,
        device: Device::Cpu,
        max_host_bytes: 1 << 30,
        interrupt: &AtomicBool::default(),
    };
    serving.disk = serving.store.disk(generation, source).unwrap();
    executed(system, &cluster, server, change(serving), entries)
}

/// Runs it, and replays its log.
fn executed(
    system: &SystemSpec,
    cluster: &ClusterSpec,
    mut server: Server,
    serving: GenerationServing,
    entries: Vec<Entry>,
) -> Served {
    let topology = server.topology().clone();
    let threads = Threads::start(serving.lanes(&topology, &Arc::default()), Arc::default()).unwrap();
    let threads = threads.counting(serving.lookups());
    let mut machine = RealMachine::new(&topology, threads);
    let (mut ledger, mut log) = (Ledger::new(Time::ZERO), Log::default());
    let mut workload = Listed::new(entries);
    let end = run(&mut server, &mut workload, &mut machine, &mut ledger, &mut log).unwrap();
    server.check_laws(end.at).unwrap();
    // What a real machine said, told to a fresh server, leads to the same commands: the policies depend on nothing
    // else.
    let mut fresh = Server::new(cluster, system, TENANTS).unwrap().with_management();
    assert_eq!(replay(&mut fresh, &log.events), log.commands);
    let record = ledger.close(end, &server, &machine).unwrap();
    machine.into_workers().stop();
    let finished = log.commands.iter().filter_map(|logged| match &logged.command {
        Command::Finish(finish) => Some((finish.ticket, *finish)),
        _ => None,
    });
    Served {
        record,
        finished: finished.collect(),
        generated: serving.generated().into_iter().map(|g| (g.ticket, g.tokens)).collect(),
        serving,
    }
}

impl Served {
    /// How far a request's tokens are from being the most likely ones, in logits, at worst: each position is computed
    /// in full, alone and without what was cached, with `tenant`'s adapters.
    fn regret(&self, ticket: u64, tenant: u32) -> f64 {
        let Request {
            input_tokens,
            tenant: of,
            ..
        } = request(ticket);
        let draws = Draws::new(SEED, Purpose::Tokens);
        let shared = self.serving.shared_prefix_tokens;
        let mut ids = drawn_ids(draws, model().vocabulary.into(), (ticket, of), (input_tokens, shared));
        let pages = Vec::from_iter(0..16);
        let kv = KvCache::new(&model(), 0..2, 16, PAGE_TOKENS, DType::F32, Device::Cpu).unwrap();
        let adapters = loras(&self.serving).map(|store| {
            let cache = LoraCache::new(store.shape(), 1, DType::F32, Device::Cpu).unwrap();
            if let Some(disk) = &self.serving.disk {
                disk.fetch(tenant, 0).unwrap();
            }
            cache.load(store, tenant, 0, 0..2).unwrap();
            cache
        });
        let mut worst = 0.0_f64;
        for &token in &self.generated[&ticket] {
            let chunk = Chunk {
                ids: &ids,
                cached: 0,
                pages: &pages,
                slot: adapters.as_ref().map(|_| 0),
                wants_token: true,
            };
            let decoder = self.serving.decoder.as_ref().unwrap();
            let step = decoder.step(&[chunk], &kv).unwrap();
            let plan = adapters.as_ref().map(|cache| cache.plan(step.segments(), AdapterImplementation::Loop).unwrap());
            let loras = adapters.as_ref().zip(plan.as_ref());
            let loras = loras.map(|(cache, plan)| TenantParameters::Lora(Loras::new(cache, plan)));
            let logits: Tensor = decoder.forward(&step, &kv, loras).unwrap();
            worst = worst.max(logits.max().double_value(&[]) - logits.double_value(&[0, token]));
            ids.push(token);
        }
        worst
    }

    /// That each request got the tokens that it would have got alone, as many as were asked for.
    fn assert_greedy(&self, what: &str) {
        assert_eq!(self.record.counts.served, REQUESTS, "{what}");
        for ticket in 0..REQUESTS {
            let request = request(ticket);
            let regret = self.regret(ticket, request.tenant);
            assert!(regret < 1e-3, "{what}: ticket {ticket} is off by {regret}");
            let (asked, got) = (request.output_tokens, self.generated[&ticket].len() as u32);
            assert_eq!(
                (got, self.finished[&ticket].output_tokens),
                (asked, asked),
                "{what}: ticket {ticket}"
            );
        }
    }
}

#[test]
fn tokens_are_those_of_each_request_alone() {
    let alone = serve(generation(), 1, 100, requests(), |serving| serving);
    alone.assert_greedy("one prompt in a step");
    let all: Vec<&Vec<i64>> = alone.generated.values().collect();
    let different = all.iter().flat_map(|tokens| tokens.iter()).collect::<std::collections::BTreeSet<_>>();
    assert!(
        different.len() > 10,
        "the model does not say one thing only: {different:?}"
    );
    // The measure itself can fail: with another's adapters the tokens would have been others.
    let strange = (0..REQUESTS).filter(|&ticket| alone.regret(ticket, (request(ticket).tenant + 1) % TENANTS) > 1e-2);
    assert!(strange.count() > REQUESTS as usize / 2);

    for (what, prefill) in [("pieces", 3), ("larger pieces", 11)] {
        let prefill = PrefillSpec::Chunked {
            max_tokens: prefill + 5,
        };
        let chunked = GenerationSpec {
            prefill,
            ..generation()
        };
        serve(chunked, 1, 100, requests(), |serving| serving).assert_greedy(what);
    }
    for implementation in [AdapterImplementation::Loop, AdapterImplementation::Grouped] {
        let lora = generation().lora.map(|lora| LoraSpec { implementation, ..lora });
        let other = GenerationSpec { lora, ..generation() };
        serve(other, 1, 100, requests(), |serving| serving).assert_greedy(implementation.name());
    }
    let backbone = GenerationSpec {
        lora: None,
        ..generation()
    };
    serve(backbone, 1, 100, requests(), |serving| serving).assert_greedy("the backbone alone");
}

#[test]
fn baselines_generate_the_same() {
    for join in [JoinSpec::HeadRun, JoinSpec::HeadRunStatic, JoinSpec::QueuePerTenant] {
        let prefill = match join {
            JoinSpec::HeadRunStatic => PrefillSpec::Chunked { max_tokens: 1000 },
            _ => PrefillSpec::OnePerStep,
        };
        let generation = GenerationSpec {
            join,
            prefill,
            ..generation()
        };
        // In the order of tenants, so that the queue's head is of one tenant for a while.
        let mut entries = requests();
        let tenant = |entry: &Entry| match entry {
            Entry::Request(request) => request.tenant,
            Entry::Cancel { .. } | Entry::Manage(_) => unreachable!(),
        };
        entries.sort_by_key(tenant);
        for entry in &mut entries {
            let Entry::Request(request) = entry else { unreachable!() };
            request.arrival = Time::ZERO;
        }
        let served = serve(generation, 1, 100, entries, |serving| serving);
        served.assert_greedy(&format!("{join:?}"));
        // A static batch is of those that have come when it begins, which is up to the machine's threads.
        assert!(
            join == JoinSpec::HeadRunStatic || served.finished.values().any(|finish| finish.batch_requests > 1),
            "{join:?}"
        );
    }
}

#[test]
fn who_is_evicted_or_moved_goes_on_as_if_nothing_had_happened() {
    // Five requests of up to 54 tokens want 35 pages.
    let evicted = serve(generation(), 1, 11, requests(), |serving| serving);
    let counts = evicted.record.generation.unwrap();
    assert!(counts.evictions > 0 && counts.recomputed_tokens > 0, "{counts:?}");
    evicted.assert_greedy("evictions");
    assert!(
        evicted.record.swaps.unwrap().evictions > 0,
        "tenants take turns in the slots"
    );

    let consolidate = ConsolidateSpec {
        every: Duration(200_000),
        light: 3,
    };
    let moving = GenerationSpec {
        consolidate: Some(consolidate),
        ..generation()
    };
    // Two workers that fill and empty again: bursts, and few in between. How far apart they must be for that is up to
    // the machine and its load.
    let moved = [12, 25, 50, 6, 100, 200].into_iter().find_map(|gap_ms| {
        let mut entries = requests();
        for entry in &mut entries {
            let Entry::Request(request) = entry else { unreachable!() };
            request.arrival = Time(request.ticket / 9 * gap_ms * 1_000_000);
        }
        let served = serve(moving.clone(), 2, 60, entries, |serving| serving);
        (served.record.generation.unwrap().migrations > 0).then_some(served)
    });
    moved.expect("somebody is moved").assert_greedy("migrations");
}

#[test]
fn a_worker_that_is_asked_for_loads_its_model_and_serves() {
    let scaled = GenerationSpec {
        scale: Some(LightLoadSpec {
            light: 3,
            cards_at_start: 1,
            cards_min: 1,
            start_up: Duration::ZERO,
            patience: Duration::ZERO,
        }),
        ..generation()
    };
    // All but a few at once; when these come, long after, there is nothing left to do for two.
    let mut entries = requests();
    for entry in &mut entries {
        let Entry::Request(request) = entry else { unreachable!() };
        request.arrival = match request.ticket < REQUESTS - 3 {
            true => Time::ZERO,
            false => Time::ZERO + Duration::from_secs(1),
        };
    }
    let served = serve(scaled, 2, 60, entries, |serving| serving);
    // The second worker's weights are zeros until its model is loaded, and every token is right.
    served.assert_greedy("a worker that came");
    let scaling = served.record.scaling.as_ref().unwrap();
    assert!(scaling.added > 0 && scaling.released > 0, "{scaling:?}");
    let mut workers = served.record.lanes.iter().filter(|lane| lane.name.contains("compute"));
    assert!(workers.clone().count() == 2 && workers.all(|lane| lane.busy > Duration::ZERO));
}

#[test]
fn tokens_are_the_same_where_tenants_share_the_beginning_of_their_prompts() {
    // Which of a tenant's requests meet is a matter of real time, the fewer the pages the more.
    let mut shared_tokens = 0;
    // Prompts have 3 to 25 tokens, tenants four requests each.
    let max_batch = generation().max_batch;
    // At last with a cache that one request cannot fill: prefixes that nobody reads stay in the rest.
    for (pages, max_tokens, max_batch) in [
        (60, None, max_batch),
        (18, None, max_batch),
        (24, Some(6), max_batch),
        (200, None, 1),
    ] {
        let shared = GenerationSpec {
            shared_prefix_tokens: 19,
            max_batch,
            prefill: max_tokens.map_or(PrefillSpec::OnePerStep, |max_tokens| PrefillSpec::Chunked {
                max_tokens,
            }),
            ..generation()
        };
        let served = serve(shared, 1, pages, requests(), |serving| serving);
        served.assert_greedy("shared prefixes");
        shared_tokens += served.record.generation.expect("it generates").shared_tokens;
    }
    assert!(shared_tokens > 0);
}

#[test]
fn tokens_are_the_same_where_adapters_come_from_the_disk() {
    for (gpus, slots, host_slots) in [(1, 3, 1), (2, 3, 4), (2, 4, 200)] {
        let mut from_disk = generation();
        let lora = from_disk.lora.as_mut().expect("it has some");
        (lora.slots, lora.host_slots) = (slots, Some(host_slots));
        let served = serve(from_disk, gpus, 100, requests(), |serving| serving);
        let reads = served.record.generation.expect("it generates").reads;
        assert!(reads >= u64::from(TENANTS), "{reads} reads");
        let held = (0..TENANTS).filter(|&tenant| served.serving.store.sets().unwrap().of(tenant).numel() > 0);
        assert!(held.count() as u32 <= host_slots);
        served.assert_greedy("adapters from the disk");
    }
}

#[test]
fn the_end_of_sequence_token_ends_a_request() {
    let whole = serve(generation(), 1, 100, requests(), |serving| serving);
    // The token that comes before their last in most requests.
    let mut counted: BTreeMap<i64, usize> = BTreeMap::new();
    for tokens in whole.generated.values() {
        for token in tokens[..tokens.len() - 1].iter().collect::<std::collections::BTreeSet<_>>() {
            *counted.entry(*token).or_default() += 1;
        }
    }
    let (&end, &requests_cut) = counted.iter().max_by_key(|(_, count)| **count).unwrap();
    assert!(requests_cut > 1 && requests_cut < REQUESTS as usize);
    let stop = StopSpec::EndOfSequence {
        token: end as u32,
        chance_ppm: 0,
    };
    let generation = GenerationSpec { stop, ..generation() };
    let cut = serve(generation, 1, 100, requests(), |serving| serving);
    assert_eq!(cut.record.counts.served, REQUESTS);
    let mut shorter = 0;
    for (ticket, tokens) in &cut.generated {
        let first_end = tokens.iter().position(|&token| token == end);
        let asked = request(*ticket).output_tokens as usize;
        assert!(
            first_end.map_or(tokens.len() == asked, |at| at + 1 == tokens.len()),
            "ticket {ticket}"
        );
        assert!(cut.regret(*ticket, request(*ticket).tenant) < 1e-3, "ticket {ticket}");
        shorter += usize::from(tokens.len() < asked);
    }
    assert!(shorter > 0 && cut.record.output_tokens < whole.record.output_tokens);
}

/// Where nobody asks for tokens, they are kept as long as somebody may go on with them, also on another instance.
#[test]
fn tokens_that_nobody_asks_for_are_kept_until_their_request_leaves() {
    let system = system(generation());
    let mut server = Server::new(&cluster(&system, 2, 60), &system, TENANTS).unwrap();
    let Server::Generation(generating) = &server else {
        unreachable!()
    };
    let provision = provision(generating, None);
    let serving = GenerationServing::new(&system.pool, &generation(), generating, provision).unwrap();
    let topology = server.topology().clone();
    let threads = Threads::start(serving.lanes(&topology, &Arc::default()), Arc::default()).unwrap();
    let mut machine = RealMachine::new(&topology, threads).forgetting(serving.generated_tokens());
    let (mut ledger, mut workload) = (Ledger::new(Time::ZERO), Listed::new(requests()));
    let end = run(
        &mut server,
        &mut workload,
        &mut machine,
        &mut ledger,
        &mut Log::default(),
    )
    .unwrap();
    let record = ledger.close(end, &server, &machine).unwrap();
    machine.into_workers().stop();
    assert_eq!(record.counts.served, REQUESTS);
    assert_eq!(serving.generated(), []);
}

#[test]
fn only_the_requests_of_a_tenant_that_cannot_be_loaded_fail() {
    let served = serve(generation(), 2, 60, requests(), |mut serving| {
        let shape = loras(&serving).unwrap().shape();
        // The last tenants' adapters are lost.
        let fewer = LoraStore::random(shape, TENANTS - 2, SEED, DType::F32, Device::Cpu, 1 << 30).unwrap();
        serving.store = Store::Loras(fewer);
        serving
    });
    for finish in served.finished.values() {
        let expected = match finish.tenant < TENANTS - 2 {
            true => Verdict::Served,
            false => Verdict::Failed(FailureReason::LoadFailed),
        };
        assert_eq!(finish.verdict, expected, "ticket {}", finish.ticket);
    }
    assert!(served.record.counts.failed > 0);
}

/// A tenant's adapters make logits that are no numbers: its requests fail, and who is in steps with them is answered as
/// without.
#[test]
fn who_has_no_finite_logits_fails_alone() {
    let whole = serve(generation(), 2, 60, requests(), |serving| serving);
    let served = serve(generation(), 2, 60, requests(), |serving| {
        let store = loras(&serving).unwrap();
        let broken = Tensor::full(
            [store.shape().parameters() as i64],
            f64::NAN,
            (tch::Kind::Float, Device::Cpu),
        );
        store.set(TENANTS - 1, &broken).unwrap();
        serving
    });
    for finish in served.finished.values() {
        let ticket = finish.ticket;
        match finish.tenant < TENANTS - 1 {
            true => {
                assert_eq!(finish.verdict, Verdict::Served, "ticket {ticket}");
                assert_eq!(served.generated[&ticket], whole.generated[&ticket], "ticket {ticket}");
            }
            false => assert_eq!(finish.verdict, Verdict::Failed(FailureReason::ComputeFailed)),
        }
    }
    assert!(served.record.counts.failed > 0);
}

#[test]
fn what_is_only_simulated_is_refused() {
    let refused = |generation| check(&system(generation).pool).unwrap_err().to_string();
    assert!(check(&system(generation()).pool).is_ok());
    let spread = GenerationSpec {
        tensor_parallel: 2,
        ..generation()
    };
    assert_eq!(refused(spread), "tensor_parallel: must be 1 to be executed, got 2");
    let found_again = GenerationSpec {
        prefix_caching: true,
        ..generation()
    };
    assert_eq!(
        refused(found_again),
        "prefix_caching: must be false to be executed, got true"
    );
}
