//! The laws of interpolation: exact at measured points and on planes, monotone everywhere, never below the smallest
//! measured cost, quantiles in order.

use proptest::prelude::*;
use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{
    AdapterImplementation, AdapterRow, Card, CopyResumeRow, CopyRow, Cost, DType, Decoder, DecoderPrefillRow,
    DecoderWholePromptRow, Direction, DispatchOperation, EncoderLayerRow, Family, HandOverRow, LeftOut, LoadSource,
    LookupOutcome, ModelShape, OtherCores, PlotLookupRow, Source, Spread, Stats, TableError, Tier, TokensOf, describe,
    leave_out_errors,
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
    card.tables.encoder_layer = BATCHES
        .into_iter()
        .flat_map(|batch| TOKENS.map(|tokens| row(batch, tokens)))
        .collect();
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
    let pairs = LENGTHS
        .into_iter()
        .flat_map(|tokens| LENGTHS.map(|context| (tokens, context)));
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

proptest! {
    /// Bilinear costs are met exactly, between points and beyond the largest batch.
    #[test]
    fn layers_affine_in_batch_and_tokens_are_exact(
        [fixed, per_batch, per_token, per_both] in prop::array::uniform4(0.1..100.0_f64),
        batch in 1..200_u32,
        tokens in 16..=128_u32,
    ) {
        let us = |batch: u32, tokens: u32| {
            let (batch, tokens) = (f64::from(batch), f64::from(tokens));
            fixed + per_batch * batch + per_token * tokens + per_both * batch * tokens
        };
        let surface = layers(us).encoder_layer(&tiny(), DType::F32).unwrap();
        let cost = surface.cost(batch, tokens);
        prop_assert!(near(cost, us(batch, tokens)), "{cost:?} instead of {} us", us(batch, tokens));
        prop_assert_eq!(cost.spread, Spread { mean_ppm: 1_100_000, p05_ppm: 900_000, p95_ppm: 1_200_000, p99_ppm: 2_000_000 });
    }

    /// Beyond the longest input costs go on by operations: those that are a start and a share of these are met within the 1.3 % by which
    /// straight lines overstate a square. And nothing jumps where the measured range ends.
    #[test]
    fn layers_go_on_by_their_operations(
        [fixed, per_operation] in prop::array::uniform2(0.1..100.0_f64),
        batch in 1..200_u32,
        tokens in 129..2048_u32,
    ) {
        let us = |batch: u32, tokens: u32| {
            let [batch, tokens, hidden] = [batch, tokens, tiny().hidden].map(f64::from);
            fixed + per_operation * batch * tokens * (2.0 * 12.0 * hidden * hidden + 4.0 * tokens * hidden) / 1e6
        };
        let surface = layers(us).encoder_layer(&tiny(), DType::F32).unwrap();
        let at = |tokens| surface.cost(batch, tokens).median_ns as f64 / 1e3;
        let over = at(tokens) / us(batch, tokens) - 1.0;
        prop_assert!((-1e-4..0.014).contains(&over), "{batch} × {tokens}: {} instead of {} us", at(tokens), us(batch, tokens));
        prop_assert!(!surface.covers(1, tokens) && surface.covers(1, 128));
        prop_assert!(at(129) - at(128) < 2.0 * (us(batch, 129) - us(batch, 128)) + 0.002);
    }

    /// So does attention of prompts, by the pairs of tokens, also where neither chunk nor context was measured.
    #[test]
    fn prompts_go_on_by_their_pairs(
        [fixed, per_pair] in prop::array::uniform2(0.1..10.0_f64),
        tokens in 1..6000_u32,
        cached in 0..2000_u32,
    ) {
        let us = |tokens: u32, context: u32| {
            let [tokens, context] = [tokens, context].map(f64::from);
            fixed + per_pair * tokens * (context - (tokens - 1.0) / 2.0) / 1e3
        };
        let prefill = decoder(us).prefill;
        let (tokens, context) = (tokens.max(513), tokens.max(513) + cached);
        let over = prefill.cost(tokens, context).median_ns as f64 / 1e3 / us(tokens, context) - 1.0;
        prop_assert!(over.abs() < 0.03, "{tokens} of {context}: {over}");
    }

    /// A prompt computed at once is priced as one where such were measured, within what was measured and by its pairs beyond, and as a
    /// chunk elsewhere; what has a past is a chunk in either case.
    #[test]
    fn whole_prompts_have_a_price_of_their_own(
        [chunk, whole] in prop::array::uniform2(0.1..10.0_f64),
        tokens in 2..2000_u32,
        cached in 1..2000_u32,
    ) {
        let pairs = |tokens: u32, context: u32| {
            let [tokens, context] = [tokens, context].map(f64::from);
            tokens * (context - (tokens - 1.0) / 2.0) / 1e3
        };
        let mut card = prompts(|tokens, context| 1.0 + chunk * pairs(tokens, context));
        let model = ModelShape::builtin("tiny-llama").unwrap();
        let without = card.decoder(&model, DType::F32, 1).unwrap();
        card.tables.decoder_whole_prompt = { LENGTHS.into_iter() }.map(|tokens| DecoderWholePromptRow {
            model: model.name.clone(),
            dtype: DType::F32,
            tensor_parallel: 1,
            tokens,
            stats: stats(1.0 + whole * pairs(tokens, tokens)),
        }).collect();
        let with = card.decoder(&model, DType::F32, 1).unwrap();
        for decoder in [&with, &without] {
            let chunks = [(tokens, tokens + cached)];
            prop_assert_eq!(decoder.attention_ns(&chunks, 0, 1), decoder.prefill.median_ns(tokens, tokens + cached));
        }
        let ns = |decoder: &Decoder| decoder.attention_ns(&[(tokens, tokens)], 0, 1);
        prop_assert_eq!(ns(&without), without.prefill.median_ns(tokens, tokens));
        prop_assert_eq!(ns(&with), with.attention(&[(tokens, tokens)], 0, 1).median_ns);
        if LENGTHS.contains(&tokens) || tokens > 512 {
            let over = ns(&with) as f64 / 1e3 / (1.0 + whole * pairs(tokens, tokens)) - 1.0;
            prop_assert!(over.abs() < 0.03, "{tokens}: {over}");
        }
        let mut told = Vec::new();
        with.beyond(&[(tokens, tokens)], 0, 1, |family, _| told.push(family));
        prop_assert_eq!(told.contains(&Family::DecoderWholePrompt), !(16..=512).contains(&tokens));
        prop_assert!(!told.contains(&Family::DecoderPrefill));
    }

    /// Whatever was measured, longer prompts and contexts never cost less, within what was measured and beyond.
    #[test]
    fn longer_prompts_never_cost_less(
        medians_us in prop::collection::vec(1.0..1000.0_f64, 10),
        [tokens, more_tokens] in prop::array::uniform2(1..3000_u32),
        [cached, more_context] in prop::array::uniform2(0..3000_u32),
    ) {
        let place = |length: u32| LENGTHS.iter().position(|knot| *knot == length).unwrap();
        let prefill = decoder(|tokens, context| medians_us[place(tokens) + place(context) * (place(context) + 1) / 2]).prefill;
        let context = tokens + cached;
        let cost = prefill.cost(tokens, context).median_ns;
        prop_assert!(prefill.cost(tokens, context + more_context).median_ns >= cost);
        prop_assert!(prefill.cost((tokens + more_tokens).min(context), context).median_ns >= cost);
        prop_assert!(prefill.cost(tokens + more_tokens, context + more_tokens).median_ns >= cost);
    }

    /// So are adapters', although batches with more tenants than requests cannot be measured.
    #[test]
    fn adapters_affine_in_tenants_and_batch_are_exact(
        [fixed, per_tenant, per_batch, per_both] in prop::array::uniform4(0.1..100.0_f64),
        batch in 1..64_u32,
        share in 0.0..1.0_f64,
        tokens in 16..300_u32,
    ) {
        let tenants = 1 + (share * f64::from(batch - 1)) as u32;
        let us = |tenants: u32, batch: u32, tokens: u32| {
            let (tenants, batch, tokens) = (f64::from(tenants), f64::from(batch), f64::from(tokens));
            fixed + per_tenant * tenants + per_batch * batch + per_both * batch * tokens
        };
        let card = adapters(us);
        let surface = card.adapter(&tiny(), DType::F32, AdapterImplementation::Loop, 16).unwrap();
        let cost = surface.cost(tenants, batch, tokens);
        prop_assert!(near(cost, us(tenants, batch, tokens)), "{cost:?}, not {} us", us(tenants, batch, tokens));
    }

    /// Whatever was measured, more work never costs less, and nothing costs less than the least.
    #[test]
    fn more_work_never_costs_less(
        medians_us in prop::collection::vec(1.0..1000.0_f64, BATCHES.len() * TOKENS.len()),
        [batch, more_batch] in prop::array::uniform2(1..100_u32),
        [tokens, more_tokens] in prop::array::uniform2(1..1000_u32),
    ) {
        let index = |batch: u32, tokens: u32| {
            let place = |axis: &[u32], value: u32| axis.iter().position(|knot| *knot == value).unwrap();
            place(&BATCHES, batch) * TOKENS.len() + place(&TOKENS, tokens)
        };
        let card = layers(|batch, tokens| medians_us[index(batch, tokens)]);
        let surface = card.encoder_layer(&tiny(), DType::F32).unwrap();
        let cost = surface.cost(batch, tokens);
        let more = surface.cost(batch + more_batch, tokens + more_tokens);
        let least_us = medians_us.iter().copied().fold(f64::INFINITY, f64::min);
        prop_assert!(more.median_ns >= cost.median_ns);
        prop_assert!(surface.cost(batch + more_batch, tokens).median_ns >= cost.median_ns);
        prop_assert!(surface.cost(batch, tokens + more_tokens).median_ns >= cost.median_ns);
        prop_assert!(cost.median_ns as f64 >= least_us * 1e3 - 1.0);
        prop_assert!(in_order(cost) && in_order(more));
    }

    /// The same for adapters, with the corner that cannot be measured.
    #[test]
    fn more_adapters_never_cost_less(
        medians_us in prop::collection::vec(1.0..1000.0_f64, 7),
        [tenants, more_tenants] in prop::array::uniform2(0..40_u32),
        [batch, more_batch] in prop::array::uniform2(1..40_u32),
        [tokens, more_tokens] in prop::array::uniform2(1..300_u32),
    ) {
        let card = adapters(|tenants, batch, tokens| medians_us[(tenants * 31 + batch * 7 + tokens) as usize % 7]);
        let surface = card.adapter(&tiny(), DType::F32, AdapterImplementation::Loop, 16).unwrap();
        let tenants = tenants.clamp(1, batch);
        let cost = surface.cost(tenants, batch, tokens);
        let larger = batch + more_batch + more_tenants;
        for more in [
            surface.cost(tenants, larger, tokens),
            surface.cost(tenants, batch, tokens + more_tokens),
            surface.cost((tenants + more_tenants).min(batch), batch, tokens),
            surface.cost(tenants + more_tenants, larger, tokens + more_tokens),
        ] {
            prop_assert!(more.median_ns >= cost.median_ns, "{more:?} after {cost:?}");
        }
        prop_assert!(in_order(cost));
    }

    /// Where measured costs already rise, the surface goes through them.
    #[test]
    fn measured_points_are_kept(steps_us in prop::collection::vec(0.0..100.0_f64, BATCHES.len() + TOKENS.len())) {
        let us = |batch: u32, tokens: u32| {
            let below = |axis: &[u32], value: u32| axis.iter().filter(|knot| **knot <= value).count();
            let by_batch: f64 = steps_us[..below(&BATCHES, batch)].iter().sum();
            let by_tokens: f64 = steps_us[BATCHES.len()..][..below(&TOKENS, tokens)].iter().sum();
            1.0 + by_batch + by_tokens
        };
        let surface = layers(us).encoder_layer(&tiny(), DType::F32).unwrap();
        for batch in BATCHES {
            for tokens in TOKENS {
                prop_assert!(near(surface.cost(batch, tokens), us(batch, tokens)));
                prop_assert!(surface.covers(batch, tokens));
            }
        }
    }

    /// Whatever the spreads, those between and beyond the measured points are spreads too, and none is wider.
    #[test]
    fn spreads_stay_in_order_and_within_the_measured(
        ratios in prop::collection::vec((0.0..=1.0_f64, 0.0..3.0_f64, 0.0..5.0_f64), 12),
        [batch, tokens] in prop::array::uniform2(1..=u32::MAX),
        within in 0..128_u32,
    ) {
        let mut card = layers(|batch, tokens| f64::from(batch * tokens));
        for (row, (below, above, beyond)) in card.tables.encoder_layer.iter_mut().zip(&ratios) {
            let median_us = row.stats.median_us;
            row.stats.p05_us = median_us * (1.0 - below).max(1e-3);
            row.stats.p95_us = median_us * (1.0 + above);
            row.stats.p99_us = row.stats.p95_us * (1.0 + beyond);
            row.stats.mean_us = median_us * (1.0 + above / 2.0);
        }
        let surface = card.encoder_layer(&tiny(), DType::F32).unwrap();
        let most = |ratio: fn(&(f64, f64, f64)) -> f64| ratios.iter().map(ratio).fold(0.0, f64::max) * 1e6 + 1.0;
        for (batch, tokens) in [(batch, tokens), (batch, within), (within, tokens), (within % 32, within)] {
            let cost = surface.cost(batch, tokens);
            prop_assert!(in_order(cost), "{cost:?}");
            prop_assert!(f64::from(cost.spread.mean_ppm) <= most(|(_, above, _)| 1.0 + above / 2.0));
            prop_assert!(f64::from(cost.spread.p99_ppm) <= most(|(_, above, beyond)| (1.0 + above) * (1.0 + beyond)));
        }
    }
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
    let mut straight = leave_out_errors(&card)
        .into_iter()
        .filter(|error| error.family != Family::PlotLookup);
    assert!(straight.all(|error| error.p95 < 1e-9));
}

/// A head for eight that took less than one for four: both are priced half-way between, and the table says so.
#[test]
fn prices_that_were_moved_to_rise_are_told() {
    let moved = |card: &Card| {
        let tables = describe(card);
        let head = { tables.iter() }.find(|table| table.family == Family::Head && table.table.contains("tiny"));
        head.unwrap().moved
    };
    let mut card = synthetic_card();
    assert_eq!((moved(&card).points, moved(&card).farthest), (0, 0.0));
    for row in &mut card.tables.head {
        if row.model == "tiny" && row.batch == 8 {
            row.stats = Stats::of(&mut [11.0]);
        }
    }
    assert_eq!(card.head(&tiny(), DType::F32, 2).unwrap().cost(4).median_ns, 11_500);
    // Of each number of classes.
    let classes: std::collections::BTreeSet<u32> = card.tables.head.iter().map(|row| row.classes).collect();
    assert_eq!(moved(&card).points, 2 * classes.len());
    assert!((moved(&card).farthest - 0.5 / 11.0).abs() < 1e-12);
}

/// Where points were held out, they and not the table's own tell how far its prices are off; and they price nothing.
#[test]
fn held_out_points_tell_the_error_and_price_nothing() {
    let whole = synthetic_card();
    let mut card = whole.clone();
    let of_card = card.encoder_layer(&tiny(), DType::F32).unwrap();
    // One as the table has it, and three that take a tenth longer.
    for (tokens, longer) in [(20, 1.0), (30, 1.1), (50, 1.1), (70, 1.1001)] {
        let us = of_card.cost(3, tokens).median_ns as f64 / 1e3 * longer;
        card.held_out.encoder_layer.push(EncoderLayerRow {
            model: "tiny".to_string(),
            dtype: DType::F32,
            batch: 3,
            tokens,
            stats: Stats::of(&mut [us]),
        });
    }
    let error = |card: &Card| {
        let of_table = |error: &TableError| error.family == Family::EncoderLayer && error.table.contains("model=tiny ");
        leave_out_errors(card).into_iter().find(of_table).unwrap()
    };
    let held_out = error(&card);
    assert_eq!((held_out.of, held_out.predictions), (LeftOut::HeldOut, 4));
    let tenth = 1.0 - 1.0 / 1.1;
    assert!(
        (held_out.median - tenth).abs() < 1e-4 && held_out.p95 == held_out.worst.error.abs(),
        "{held_out:?}"
    );
    // It is priced at less than it takes.
    let worst = &held_out.worst;
    assert!(
        worst.at == [3, 70] && (worst.error + 1.0 - 1.0 / 1.1001).abs() < 1e-4,
        "{worst:?}"
    );
    assert_eq!(error(&whole).of, LeftOut::Own);
    let cost = |card: &Card| card.encoder_layer(&tiny(), DType::F32).unwrap().cost(3, 50);
    assert_eq!(cost(&card), cost(&whole));
}

/// Next to nothing, twice over, is next to nothing still.
#[test]
fn what_adds_to_work_is_judged_with_that_work() {
    let mut card = synthetic_card();
    card.tables.copy_resume = [(100, 1.0), (200, 1.0), (300, 3.0)]
        .map(|(idle_us, extra_us)| CopyResumeRow {
            idle_us,
            work_us: 499,
            stats: stats(extra_us),
        })
        .to_vec();
    let errors = leave_out_errors(&card);
    let error = errors.iter().find(|error| error.family == Family::CopyResume).unwrap();
    // (1 + 3) / 2 was expected of the second, and it is 1 µs beside the 499 of the copy.
    assert!(
        error.predictions == 1 && (error.median - 1.0 / 500.0).abs() < 1e-12,
        "{error:?}"
    );
}

/// Published are bandwidths, of which copies of any size are made.
#[test]
fn imported_copies_were_not_measured() {
    let card = Card::embedded("rtx4090").unwrap().unwrap();
    let tables = describe(&card);
    let measured = |family| tables.iter().find(|table| table.family == family).unwrap().measurements;
    assert_eq!(measured(Family::Copy), None);
    assert!(measured(Family::DecoderDense) > Some(0));
}

/// Hand-overs are priced by the nearest rhythm: what lies between two costs what the one in the proportion nearest to it does.
#[test]
fn rhythms_are_judged_as_they_are_priced() {
    let mut card = synthetic_card();
    card.tables.hand_over = [(1, 4.0), (10, 40.0), (1000, 60.0)]
        .map(|(pause_us, us)| HandOverRow {
            operation: DispatchOperation::Wake,
            other_cores: OtherCores::Idle,
            pause_us,
            work_us: 60,
            stats: stats(us),
        })
        .to_vec();
    let errors = leave_out_errors(&card);
    let error = errors.iter().find(|error| error.family == Family::HandOver).unwrap();
    // As after a pause of 1 µs, which is nearer to 10 than 1000 is: 36 µs of 40 and the 60 of the work.
    assert!(
        error.predictions == 1 && (error.worst.error + 36.0 / 100.0).abs() < 1e-12,
        "{error:?}"
    );
}

#[test]
fn covered_is_what_was_measured() {
    let card = synthetic_card();
    let surface = card.encoder_layer(&tiny(), DType::F32).unwrap();
    assert!(surface.covers(1, 16) && surface.covers(32, 128) && surface.covers(5, 77));
    assert!(!surface.covers(33, 128) && !surface.covers(1, 15) && !surface.covers(1, 129));
    assert!(card.head(&tiny(), DType::F32, 2).unwrap().covers(1));
    let head = card.head(&tiny(), DType::F32, 17).unwrap();
    assert!(!head.covers(1), "no head of 17 classes was measured");
    // Whatever the batch, it is the classes that are beyond.
    for batch in [1, 4, 1 << 20] {
        let beyond = head.beyond(batch).unwrap();
        assert_eq!((beyond.axis, beyond.asked), ("classes", 17));
    }
}

#[test]
fn below_the_smallest_point_costs_do_not_fall_below_it() {
    let surface = layers(|batch, tokens| f64::from(batch * tokens))
        .encoder_layer(&tiny(), DType::F32)
        .unwrap();
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
    card.tables.plot_lookup = [1, 2, 4]
        .into_iter()
        .flat_map(|threads| [16, 64].map(|tokens| row(threads, tokens)))
        .collect();
    card.validate().unwrap();
    let lookup = card
        .plot_lookup(&tiny(), Tier::Memory, LookupOutcome::Any, TokensOf::Texts)
        .unwrap();
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
        let lookup = card
            .plot_lookup(&tiny(), Tier::Memory, outcome, TokensOf::Texts)
            .unwrap();
        lookup.cost(1, 64, fragment_tokens).median_ns as f64 / 64e3
    };
    assert_eq!(us(LookupOutcome::DomainHit, 3), 10.0, "any");
    assert_eq!(us(LookupOutcome::Fallback, 2), 15.0);
    assert_eq!(us(LookupOutcome::Fallback, 4), 25.0, "between");
    // Of a single length: in proportion to the vectors of a row.
    assert_eq!(us(LookupOutcome::RootHit, 6), 20.0);
    let surface = card
        .plot_lookup(&tiny(), Tier::Memory, LookupOutcome::RootHit, TokensOf::Texts)
        .unwrap();
    assert_eq!(surface.beyond(1, 64, 6).unwrap().axis, "fragment_tokens");
    let refused = card
        .plot_lookup(&tiny(), Tier::Disk, LookupOutcome::RootHit, TokensOf::Texts)
        .unwrap_err();
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
    card.tables.copy = [(1000, 100.0), (2000, 200.0), (3990, 399.0), (4000, 400.0 + 4.0)]
        .map(row)
        .to_vec();
    let curve = card.copy(Direction::HostToDevice, true).unwrap();
    assert!(
        near(curve.cost(8000), 404.0 + 4000.0 * 204.0 / 2000.0),
        "{:?}",
        curve.cost(8000)
    );
}

/// Of the shipped cards, one of which knows two labels alone: they need not cost more up to the most that were measured, and do beyond.
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

#[test]
fn missing_tables_name_the_command_that_measures_them() {
    let card = synthetic_card();
    let large = ModelShape::builtin("bert-large").unwrap();
    assert_eq!(
        card.encoder_layer(&large, DType::F32).unwrap_err().to_string(),
        "card synthetic: encoder_layer: must hold model=bert-large dtype=f32, got model=tiny dtype=f32, \
         model=bert-base dtype=f32; measure it with `tenantry profile --device cpu --models bert-large`"
    );
    assert_eq!(
        card.head(&ModelShape { hidden: 256, ..tiny() }, DType::F32, 2)
            .unwrap_err()
            .to_string(),
        "card synthetic: head: must hold model=tiny dtype=f32, got those of another model of that name \
         (hidden 128, not 256); measure it with `tenantry profile --device cpu --models tiny`"
    );
    assert!(
        card.encoder_layer(&ModelShape { layers: 24, ..tiny() }, DType::F32)
            .is_ok(),
        "costs are per layer"
    );

    let mut derived = card.clone();
    derived.provenance.command = "tenantry profile derive --datasheet mine.yaml --models tiny".into();
    let message = derived.encoder_layer(&large, DType::F32).unwrap_err();
    let message = message.asked_by("s.yaml").to_string();
    assert!(
        message.ends_with("model=bert-base dtype=f32; its datasheet gives no more"),
        "{message}"
    );

    let mut without = card.clone();
    without.tables.copy.clear();
    assert_eq!(
        without.copy(Direction::HostToDevice, true).unwrap_err().to_string(),
        "card synthetic: copy: must hold direction=host-to-device pinned=true, got no table; \
         measure it with `tenantry profile --device cpu`"
    );
    let mut with_a_hole = card.clone();
    with_a_hole
        .tables
        .encoder_layer
        .retain(|row| (row.batch, row.tokens) != (4, 64));
    let message = with_a_hole.encoder_layer(&tiny(), DType::F32).unwrap_err().to_string();
    assert!(
        message.contains("got no row for batch=4 tokens=64 (1 missing in all)"),
        "{message}"
    );
}

#[test]
fn a_left_out_point_is_predicted_from_its_neighbours() {
    // Along tokens, 64 lies 48/112 of the way from 16 to 128; 80 is 10 % less than what is measured there.
    let mut card = layers(|_, tokens| match tokens {
        16 => 50.0,
        64 => 72.0,
        _ => 120.0,
    });
    let summary = |card: &Card| describe(card).into_iter().next().unwrap();
    assert_eq!(summary(&card).measurements, None, "it is derived");
    card.provenance.source = Source::Measured;
    let summary = summary(&card);
    assert_eq!((summary.points, summary.measurements), (12, Some(120)));
    assert_eq!(summary.axes[0].values, [1, 4, 8, 32]);
    let error = summary.error.unwrap();
    // Four along tokens (each batch), six along batch (each inner batch and length), the latter without error.
    assert_eq!(error.predictions, 10);
    assert_eq!(error.median, 0.0);
    assert!((error.p95 - 8.0 / 72.0).abs() < 1e-12);
}
