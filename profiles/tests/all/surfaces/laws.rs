//! Whatever was measured: exact on points and planes, never less for more, quantiles in order.

use super::*;

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

    /// Beyond the longest input costs go on by operations: those that are a start and a share of these are met within
    /// the 1.3 % by which straight lines overstate a square. And nothing jumps where the measured range ends.
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

    /// A prompt computed at once is priced as one where such were measured, within what was measured and by its pairs
    /// beyond, and as a chunk elsewhere; what has a past is a chunk in either case.
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
        card.tables.decoder_whole_prompt = LENGTHS.into_iter().map(|tokens| DecoderWholePromptRow {
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
        medians_us in prop::collection::vec(1.0..1000.0_f64, 97),
        [tenants, more_tenants] in prop::array::uniform2(0..40_u32),
        [batch, more_batch] in prop::array::uniform2(1..40_u32),
        [tokens, more_tokens] in prop::array::uniform2(1..300_u32),
    ) {
        let card = adapters(|tenants, batch, tokens| medians_us[(tenants * 31 + batch * 7 + tokens) as usize % 97]);
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
