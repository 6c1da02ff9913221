//! The laws of interpolation: exact at measured points and on planes, monotone everywhere, never below the smallest
//! measured cost, quantiles in order.

mod errors;
mod laws;

use proptest::prelude::*;
use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{
    AdapterImplementation, AdapterRow, Card, CopyResumeRow, CopyRow, Cost, DType, Decoder, DecoderPrefillRow,
    DecoderWholePromptRow, Direction, DispatchOperation, EncoderLayerRow, Family, HandOverRow, LeftOut, LoadSource,
    LookupOutcome, ModelShape, OtherCores, PlotLookupRow, Source, Spread, Stats, TableError, TextPassRow, Tier,
    TokensOf, describe, leave_out_errors,
};

const BATCHES: [u32; 4] = [1, 4, 8, 32];
const TOKENS: [u32; 3] = [16, 64, 128];

fn tiny() -> ModelShape {
    ModelShape::builtin("tiny").unwrap()
}

fn stats(median_us: f64) -> Stats {
    Stats {
        count: 10,
        mean_us: 1.1 * median_us,
        median_us,
        p05_us: 0.9 * median_us,
        p95_us: 1.2 * median_us,
        p99_us: 2.0 * median_us,
    }
}

/// A card whose layers cost what `median_us` says.
fn layers(median_us: impl Fn(u32, u32) -> f64) -> Card {
    let mut card = synthetic_card();
    let row = |batch: u32, tokens: u32| {
        let stats = stats(median_us(batch, tokens));
        EncoderLayerRow {
            model: "tiny".into(),
            dtype: DType::F32,
            batch,
            tokens,
            stats,
        }
    };
    card.tables.encoder_layer = BATCHES.into_iter().flat_map(|batch| TOKENS.map(|tokens| row(batch, tokens))).collect();
    card
}

/// A card whose adapters cost what `median_us` says.
fn adapters(median_us: impl Fn(u32, u32, u32) -> f64) -> Card {
    let mut card = synthetic_card();
    card.tables.adapter.clear();
    for batch in BATCHES {
        for tenants in BATCHES.into_iter().filter(|tenants| *tenants <= batch) {
            for tokens in TOKENS {
                card.tables.adapter.push(AdapterRow {
                    model: "tiny".into(),
                    dtype: DType::F32,
                    implementation: AdapterImplementation::Loop,
                    bottleneck: 16,
                    tenants,
                    batch,
                    tokens,
                    stats: stats(median_us(tenants, batch, tokens)),
                });
            }
        }
    }
    card
}

/// Chunks and contexts of a decoder's prompts.
const LENGTHS: [u32; 4] = [16, 64, 256, 512];

/// A decoder whose attention of prompts costs what `median_us` says, of a chunk and its context.
fn decoder(median_us: impl Fn(u32, u32) -> f64) -> Decoder {
    let model = ModelShape::builtin("tiny-llama").unwrap();
    prompts(median_us).decoder(&model, DType::F32, 1).unwrap()
}

fn prompts(median_us: impl Fn(u32, u32) -> f64) -> Card {
    let mut card = synthetic_card();
    let pairs = LENGTHS.into_iter().flat_map(|tokens| LENGTHS.map(|context| (tokens, context)));
    let row = |(tokens, context): (u32, u32)| DecoderPrefillRow {
        model: "tiny-llama".into(),
        dtype: DType::F32,
        tensor_parallel: 1,
        tokens,
        context,
        stats: stats(median_us(tokens, context)),
    };
    card.tables.decoder_prefill = pairs.filter(|(tokens, context)| tokens <= context).map(row).collect();
    card
}

#[test]
fn the_synthetic_card_costs_what_its_table_says() {
    let card = synthetic_card();
    card.validate().unwrap();
    let (tiny, base) = (tiny(), ModelShape::builtin("bert-base").unwrap());
    let f32 = DType::F32;
    assert!(near(card.encoder_layer(&tiny, f32).unwrap().cost(3, 100), 20.0 + 30.0));
    assert!(near(
        card.encoder_layer(&base, f32).unwrap().cost(32, 128),
        200.0 + 4096.0
    ));
    assert!(near(card.embedding(&tiny, f32).unwrap().cost(64, 256), 5.0 + 163.84));
    assert!(near(card.head(&tiny, f32, 3).unwrap().cost(10), 15.0));
    let adapter = |implementation| card.adapter(&base, f32, implementation, 64).unwrap().cost(3, 3, 100);
    assert!(near(adapter(AdapterImplementation::Loop), 30.0 + 3.84));
    assert!(near(adapter(AdapterImplementation::GatherBmm), 18.0 + 3.84));
    assert!(near(adapter(AdapterImplementation::Grouped), 23.0 + 3.84));
    assert!(near(
        card.copy(Direction::HostToDevice, true).unwrap().cost(100_000_000),
        10_010.0
    ));
    assert!(near(
        card.copy(Direction::HostToDevice, false).unwrap().cost(1 << 10),
        20.1024
    ));
    assert!(near(
        card.model_load(LoadSource::Disk).unwrap().cost(1 << 32),
        1e3 + 4_294_967.296
    ));
    let wake = card.dispatch(DispatchOperation::Wake).unwrap();
    assert!(near(wake, 5.0));
    assert_eq!(wake.mean_ns(), 5_100);
    // Look-ups go by one over their threads, which no straight line does.
    let mut straight = leave_out_errors(&card).into_iter().filter(|error| error.family != Family::PlotLookup);
    assert!(straight.all(|error| error.p95 < 1e-9));
}

#[test]
fn below_the_smallest_point_costs_do_not_fall_below_it() {
    let surface = layers(|batch, tokens| f64::from(batch * tokens)).encoder_layer(&tiny(), DType::F32).unwrap();
    assert_eq!(surface.cost(1, 1).median_ns, 16_000);
    // Elsewhere the slope goes on: 8 × 4 tokens cost less than the 8 × 16 that were measured, and more than 1 × 16.
    let cost = surface.cost(8, 4).median_ns;
    assert!((16_000..128_000).contains(&cost), "{cost}");
}

#[test]
fn more_threads_may_cost_less() {
    let mut card = synthetic_card();
    let row = |threads: u32, tokens: u32| PlotLookupRow {
        model: "tiny".into(),
        tier: Tier::Memory,
        outcome: LookupOutcome::Any,
        tokens_of: TokensOf::Texts,
        threads,
        tokens,
        fragment_tokens: 3,
        stats: stats(f64::from(10 * tokens / threads)),
    };
    card.tables.plot_lookup =
        [1, 2, 4].into_iter().flat_map(|threads| [16, 64].map(|tokens| row(threads, tokens))).collect();
    card.validate().unwrap();
    let lookup = card.plot_lookup(&tiny(), Tier::Memory, LookupOutcome::Any, TokensOf::Texts).unwrap();
    for (threads, tokens, us) in [
        (1, 64, 640.0),
        (2, 64, 320.0),
        (4, 16, 40.0),
        (3, 64, 240.0),
        (9, 64, 160.0),
    ] {
        assert!(
            near(lookup.cost(threads, tokens, 3), us),
            "{threads} × {tokens}: {:?}",
            lookup.cost(threads, tokens, 3)
        );
    }
}

/// What was measured by outcome counts; what was not costs what the card has of any; and longer fragments cost more.
#[test]
fn look_ups_are_priced_by_what_they_met_and_by_the_length_of_a_fragment() {
    let mut card = synthetic_card();
    let row = |outcome, fragment_tokens: u32, token_us: u32| {
        [16, 64].map(|tokens| PlotLookupRow {
            model: "tiny".into(),
            tier: Tier::Memory,
            outcome,
            tokens_of: TokensOf::Texts,
            threads: 1,
            tokens,
            fragment_tokens,
            stats: stats(f64::from(token_us * tokens)),
        })
    };
    card.tables.plot_lookup = [
        row(LookupOutcome::Any, 3, 10),
        row(LookupOutcome::Fallback, 2, 15),
        row(LookupOutcome::Fallback, 5, 30),
    ]
    .concat();
    card.validate().unwrap();
    let us = |outcome, fragment_tokens| {
        let lookup = card.plot_lookup(&tiny(), Tier::Memory, outcome, TokensOf::Texts).unwrap();
        lookup.cost(1, 64, fragment_tokens).median_ns as f64 / 64e3
    };
    assert_eq!(us(LookupOutcome::DomainHit, 3), 10.0, "any");
    assert_eq!(us(LookupOutcome::Fallback, 2), 15.0);
    assert_eq!(us(LookupOutcome::Fallback, 4), 25.0, "between");
    // Of a single length: in proportion to the vectors of a row.
    assert_eq!(us(LookupOutcome::RootHit, 6), 20.0);
    let surface = card.plot_lookup(&tiny(), Tier::Memory, LookupOutcome::RootHit, TokensOf::Texts).unwrap();
    assert_eq!(surface.beyond(1, 64, 6).unwrap().axis, "fragment_tokens");
    let refused = card.plot_lookup(&tiny(), Tier::Disk, LookupOutcome::RootHit, TokensOf::Texts).unwrap_err();
    assert_eq!(refused.asked, "model=tiny tier=disk outcome=root-hit");
}

/// Neighbours that lie close together tell more of noise than of slope.
#[test]
fn beyond_the_measured_the_last_doubling_goes_on() {
    let mut card = synthetic_card();
    let row = |(bytes, us): (u64, f64)| CopyRow {
        direction: Direction::HostToDevice,
        pinned: true,
        bytes,
        stats: stats(us),
    };
    card.tables.copy = [(1000, 100.0), (2000, 200.0), (3990, 399.0), (4000, 400.0 + 4.0)].map(row).to_vec();
    let curve = card.copy(Direction::HostToDevice, true).unwrap();
    assert!(
        near(curve.cost(8000), 404.0 + 4000.0 * 204.0 / 2000.0),
        "{:?}",
        curve.cost(8000)
    );
}

/// Of the shipped cards, one of which knows two labels alone: they need not cost more up to the most that were
/// measured, and do beyond.
#[test]
fn more_labels_cost_more_beyond_those_that_were_measured() {
    for (name, most) in [("cpu", 2), ("cpu-epyc-zen5", 16)] {
        let card = tenantry_profiles::Card::embedded(name).unwrap().unwrap();
        let surface = card.tagging_head(&tiny(), DType::F32).unwrap();
        let at = |classes: u32| surface.cost(32, 32, classes).median_ns as f64;
        // In proportion, less what the smallest batch takes as well.
        assert!(at(1000) > 20.0 * at(most) && at(1000) < 500.0 * at(most), "{name}");
        assert!(at(2 * most) > at(most) && at(2 * most) <= 2.0 * at(most), "{name}");
        let small = |classes: u32| surface.cost(1, 1, classes).median_ns;
        assert!(
            small(1000) < 30 * small(most),
            "{name}: a head of one token is mostly not its product"
        );
    }
}

#[test]
fn a_single_point_grows_in_proportion() {
    let mut card = synthetic_card();
    let row = CopyRow {
        direction: Direction::HostToDevice,
        pinned: true,
        bytes: 1_000_000,
        stats: stats(100.0),
    };
    card.tables.copy = vec![row];
    let curve = card.copy(Direction::HostToDevice, true).unwrap();
    for (bytes, us) in [(1, 100.0), (1_000_000, 100.0), (5_000_000, 500.0)] {
        assert!(near(curve.cost(bytes), us), "{bytes}: {:?}", curve.cost(bytes));
    }
}

/// Within a nanosecond, the rounding of a cost.
fn near(cost: Cost, us: f64) -> bool {
    (cost.median_ns as f64 - us * 1e3).abs() <= 1.0
}

fn in_order(cost: Cost) -> bool {
    let Spread {
        p05_ppm,
        p95_ppm,
        p99_ppm,
        ..
    } = cost.spread;
    p05_ppm <= 1_000_000 && 1_000_000 <= p95_ppm && p95_ppm <= p99_ppm
}
