//! hGPT and its baselines: whole decoders of tenants' own, and upper layers above a table.

use std::ops::ControlFlow;
use std::sync::LazyLock;

use tempfile::TempDir;
use tenantry_core::spec::PlotSpec;
use tenantry_core::testing;
use tenantry_plot::{Engine, Language, Texts};
use tenantry_profiles::Tier;

use super::*;
use crate::adapters::{AdapterCache, Adapters};
use crate::plot::LowerLayers;
use crate::whole_models::WholeModel;

const PLOT: PlotSpec = PlotSpec {
    domain_hits_ppm: 400_000,
    ..testing::PLOT
};

/// Tables that all tests find built once.
static TABLES: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());

/// Three layers, the lowest of them looked up: a wrong first layer would be noticed.
fn model() -> ModelShape {
    ModelShape {
        layers: 3,
        ..super::model()
    }
}

/// The whole model, with the weights that `serve_system` gives to its upper layers.
fn whole() -> Decoder {
    let decoder = Decoder::random(&model(), SEED, DType::F32, Device::Cpu).unwrap();
    decoder.load(&(decoder.parameters() * 5.0)).unwrap();
    decoder
}

fn tables(folder: &TempDir, plot: &PlotSpec) -> Tables {
    let layers = LowerLayers::Decoder(whole());
    let mut encode = |_, fragment_tokens: usize, fragments: &[u32], rows: &mut [f32]| {
        Ok(layers.encode(plot.lower_layers, fragment_tokens, fragments, rows)?)
    };
    let texts = Texts::Made(Language::new(SEED, model().vocabulary).with_corpus(4));
    Tables::with_encoder(folder.path(), "lower1", &model(), plot, texts, &mut encode, &mut |_| {
        ControlFlow::Continue(())
    })
    .unwrap()
}

fn hierarchical(generation: GenerationSpec, pipeline: PipelineSpec) -> SystemSpec {
    let mut system = system(GenerationSpec {
        lora: None,
        slots: 4,
        ..generation
    });
    system.pool.model = model();
    system.pool.plot = Some(PLOT);
    system.pool.tenant_state = TenantState::Adapters {
        bottleneck: 6,
        implementation: AdapterImplementation::GatherBmm,
    };
    system.pool.pipeline = pipeline;
    system
}

/// How far a request's tokens are from the most likely ones, in logits, at worst: each is computed in full and alone,
/// from what the tables say of every token, by the upper layers of the whole model with `tenant`'s adapters.
fn regret(served: &Served, tables: &Tables, ticket: u64, tenant: u32) -> f64 {
    let (whole, own) = (whole(), request(ticket));
    let Store::Adapters(store) = &served.serving.store else {
        unreachable!()
    };
    let cache = AdapterCache::new(store.shape(), 1, DType::F32, Device::Cpu).unwrap();
    cache.load(store, tenant, 0, 1..3).unwrap();
    let kv = KvCache::new(&model(), 1..3, 16, PAGE_TOKENS, DType::F32, Device::Cpu).unwrap();
    let pages = Vec::from_iter(0..16);
    let mut tokens: Vec<u32> = tables.prompt(ticket, own.tenant, own.input_tokens);
    let mut worst = 0.0_f64;
    for &token in &served.generated[&ticket] {
        let ids: Vec<i64> = tokens.iter().map(|&token| token.into()).collect();
        let chunk = Chunk {
            ids: &ids,
            cached: 0,
            pages: &pages,
            slot: Some(0),
            wants_token: true,
        };
        let mut states = vec![0.0; tokens.len() * 48];
        let engine = Engine::new(1).unwrap();
        tables.retrieve_ends(&engine, &[(own.tenant, &tokens, 0)], &mut states).unwrap();
        let step = whole.step(&[chunk], &kv).unwrap();
        let plan = step.plan_adapters(&cache, AdapterImplementation::Loop).unwrap();
        let adapters = Some(TenantParameters::Adapters(Adapters::new(&cache, &plan)));
        let states = step.arrange(Tensor::from_slice(&states).view([-1, 48])).unwrap();
        let hidden = whole.layers(states, 1..3, &step, &kv, adapters).unwrap();
        let logits = whole.logits(&hidden, &step).unwrap();
        worst = worst.max(logits.max().double_value(&[]) - logits.double_value(&[0, token]));
        tokens.push(token as u32);
    }
    worst
}

fn assert_greedy(served: &Served, tables: &Tables, what: &str) {
    assert_eq!(served.record.counts.served, REQUESTS, "{what}");
    for ticket in 0..REQUESTS {
        let regret = regret(served, tables, ticket, request(ticket).tenant);
        assert!(regret < 1e-3, "{what}: ticket {ticket} is off by {regret}");
        let made = served.generated[&ticket].len() as u32;
        assert_eq!(made, request(ticket).output_tokens, "{what}: ticket {ticket}");
    }
    let retrieval = served.serving.retrieval.as_ref().unwrap();
    assert_eq!(retrieval.staged(), 0, "{what}: what was staged is let go of");
}

/// Tokens that are looked up where nothing is computed twice: every one but each request's last.
fn looked_up() -> u64 {
    let tokens = |ticket| {
        let Request {
            input_tokens,
            output_tokens,
            ..
        } = request(ticket);
        u64::from(input_tokens + output_tokens - 1)
    };
    (0..REQUESTS).map(tokens).sum()
}

/// Whenever prompts are looked up, in whatever pieces they come, and whoever leaves in between: the tokens are those of
/// each request alone.
#[test]
fn tokens_above_a_table_are_those_of_each_request_alone() {
    let tables = tables(&TABLES, &PLOT);
    for pipeline in [PipelineSpec::SYNCHRONOUS, PipelineSpec::PREFETCH_RETRIEVAL] {
        let serve = |generation, pages| {
            let system = hierarchical(generation, pipeline);
            serve_system(&system, Some(tables.clone()), [1, pages], requests(), |serving| serving)
        };
        let served = serve(generation(), 100);
        let what = format!("{pipeline:?}");
        assert_greedy(&served, &tables, &what);
        let lookups = served.record.lookups.unwrap();
        assert_eq!(lookups.tokens, looked_up(), "{what}");
        assert!(
            lookups.domain_hits > 0 && lookups.root_hits > 0 && lookups.fallbacks > 0,
            "{lookups:?}"
        );
        // The measure itself can fail: with another's adapters the tokens would have been others.
        let other = |ticket: &u64| regret(&served, &tables, *ticket, (request(*ticket).tenant + 1) % TENANTS) > 1e-2;
        assert!((0..REQUESTS).filter(other).count() > REQUESTS as usize / 2, "{what}");

        let pieces = PrefillSpec::Chunked { max_tokens: 9 };
        let chunked = GenerationSpec {
            prefill: pieces,
            ..generation()
        };
        assert_greedy(&serve(chunked, 100), &tables, &format!("{what}, pieces"));
        let evicted = serve(generation(), 11);
        assert!(evicted.record.generation.unwrap().evictions > 0);
        assert_greedy(&evicted, &tables, &format!("{what}, evictions"));
        assert!(
            evicted.record.lookups.unwrap().tokens > looked_up(),
            "what left is looked up again"
        );
    }
}

/// The root table is cut under its reader: whose rows are gone fails with the reason, in mid-stream too, and nothing
/// else stops.
#[test]
fn a_table_cut_under_its_reader_fails_who_needs_what_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let plot = PlotSpec {
        tier: Tier::Disk,
        ..PLOT
    };
    for pipeline in [PipelineSpec::SYNCHRONOUS, PipelineSpec::PREFETCH_RETRIEVAL] {
        let tables = tables(&folder, &plot);
        let path = tables.snapshot().root().tables()[0].path().to_path_buf();
        let whole = std::fs::read(&path).unwrap();
        let mut system = hierarchical(generation(), pipeline);
        system.pool.plot = Some(plot);
        let served = serve_system(&system, Some(tables.clone()), [1, 100], requests(), |serving| {
            // The most frequent fragments' rows lie at the beginning.
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(whole.len() as u64 / 2).unwrap();
            serving
        });
        std::fs::write(&path, &whole).unwrap();
        let counts = served.record.counts;
        let failed = served.record.failed.get(&FailureReason::LookupFailed).copied();
        assert_eq!(failed, Some(counts.failed), "{:?}", served.record.failed);
        assert!(counts.failed > 0, "{pipeline:?}");
        assert_eq!(counts.failed + counts.served, REQUESTS, "{pipeline:?}");
        let retrieval = served.serving.retrieval.as_ref().unwrap();
        assert_eq!(retrieval.staged(), 0, "{pipeline:?}");
    }
}

/// Whole decoders, swapped: the tokens are those of each tenant's own.
#[test]
fn tenants_decoders_are_swapped() {
    let mut system = system(GenerationSpec {
        lora: None,
        slots: 2,
        join: JoinSpec::QueuePerTenant,
        ..generation()
    });
    system.pool.tenant_state = TenantState::Model;
    let served = serve_system(&system, None, [1, 100], requests(), |serving| serving);
    assert_eq!(served.record.counts.served, REQUESTS);
    let swaps = served.record.swaps.unwrap();
    assert!(swaps.evictions > 0 && swaps.hits > 0, "{swaps:?}");
    let Store::Models(store, _) = &served.serving.store else {
        unreachable!()
    };
    let regret = |ticket: u64, tenant: u32| {
        let config = crate::DecoderConfig::new(&super::model()).unwrap();
        let own = Decoder::from_parameters(&config, store.sets.of(tenant)).unwrap();
        let mut draws = Draws::new(SEED, Purpose::Tokens).about(ticket);
        let prompt = (0..request(ticket).input_tokens).map(|_| draws.below(97) as i64);
        let mut ids: Vec<i64> = prompt.collect();
        let mut worst = 0.0_f64;
        for &token in &served.generated[&ticket] {
            let hidden = own.lower_layers(&[&ids], 2).unwrap();
            let logits = own.logits_of(&hidden.select(1, ids.len() as i64 - 1)).unwrap();
            worst = worst.max(logits.max().double_value(&[]) - logits.double_value(&[0, token]));
            ids.push(token);
        }
        worst
    };
    for ticket in 0..REQUESTS {
        let regret = regret(ticket, request(ticket).tenant);
        assert!(regret < 1e-3, "ticket {ticket} is off by {regret}");
    }
    let other = |ticket: &u64| regret(*ticket, (request(*ticket).tenant + 1) % TENANTS) > 1e-2;
    assert!((0..REQUESTS).filter(other).count() > REQUESTS as usize / 2);
}
