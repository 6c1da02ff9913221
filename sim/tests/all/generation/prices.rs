//! What steps and look-ups take, by hand.

use super::*;

#[test]
fn one_request_takes_what_its_steps_take() {
    let mut generation = generation();
    generation.lora = None;
    let system = system(generation);
    let (record, _) = simulate(&system, 1, 64, Jitter::None, vec![request(0, 0, 0, 256, 3)], false);
    // Two layers. The prompt's 256 tokens: dense 30 + 128, attention 2 + 0.001 × 256 × 256; then the ends of one
    // sequence.
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

/// What the synthetic card says of looking so many tokens of 512 bytes up, and of bringing what was found to the card.
fn retrieval_us(tokens: f64) -> f64 {
    (2.0 + 0.5 * tokens) + (20.0 + tokens * 512.0 / 10e3)
}

#[test]
fn above_a_table_a_step_looks_up_what_it_computes() {
    let mut system = hierarchical(generation(), PipelineSpec::SYNCHRONOUS);
    system.pool.tenant_state = TenantState::Head;
    let (record, _) = simulate(&system, 1, 64, Jitter::None, vec![request(0, 0, 0, 256, 3)], false);
    // One layer where `one_request_takes_what_its_steps_take` has two; and before it the look-up and the copy of the
    // tokens that a step has.
    let prompt_us = retrieval_us(256.0) + (158.0 + 2.0 + 65.536) + (10.0 + 1.0 + 2.56);
    let token_us = |context: f64| retrieval_us(1.0) + (30.5 + 2.0 + 0.01 * context) + (10.0 + 1.0 + 0.01);
    let (wake_us, tell_us) = (5.0, 20.0);
    let all_us = wake_us + prompt_us + token_us(257.0) + token_us(258.0) + tell_us;
    let measured_us = record.latency.mean_ns() / 1e3;
    assert!((measured_us - all_us).abs() < 1.0, "{measured_us}, not {all_us}");
    // Each token of the prompt, and the two that were made before the last.
    let lookups = record.lookups.expect("it looks up");
    assert_eq!((lookups.tokens, lookups.domain_hits, lookups.fallbacks), (258, 129, 25));
}

#[test]
fn prompts_are_looked_up_beside_what_runs() {
    // The second comes while the first generates, and has a long prompt.
    let entries = || vec![request(0, 0, 0, 16, 400), request(1, 2_000, 1, 1_024, 2)];
    let busy_us = |pipeline| {
        let system = hierarchical(generation(), pipeline);
        let (record, _) = simulate(&system, 1, 200, Jitter::None, entries(), false);
        let lookups = record.lookups.expect("it looks up");
        assert_eq!((record.counts.served, lookups.tokens), (2, 16 + 399 + 1_024 + 1));
        ["lookup", "compute"].map(|kind| {
            let mut lanes = record.lanes.iter();
            lanes.find(|lane| lane.name.contains(kind)).expect("it is there").busy.0 as f64 / 1e3
        })
    };
    let ([none, all], [hidden, left]) = (
        busy_us(PipelineSpec::SYNCHRONOUS),
        busy_us(PipelineSpec::PREFETCH_RETRIEVAL),
    );
    let looked_up_us = 2.0 * 2.0 + 0.5 * f64::from(16 + 1_024);
    assert_eq!(none, 0.0, "the compute lane looks up itself");
    assert!(
        (hidden - looked_up_us).abs() < 0.05 * looked_up_us,
        "{hidden}, not {looked_up_us}"
    );
    assert!(
        all - left > 0.5 * hidden,
        "the compute lane is spared them: {all} less {left}"
    );
}

#[test]
fn a_measured_step_costs_what_was_measured() {
    let generation = GenerationSpec {
        lora: None,
        ..generation()
    };
    let system = system(generation);
    let latency_us = |entries: Vec<Entry>, gpus| {
        let (record, _) = simulate_on(&card_of_whole_steps(), &system, gpus, 64, Jitter::None, entries, false);
        record.latency.mean_ns() / 1e3
    };
    // A prompt of 128 tokens alone, and then new tokens at contexts of 129 to 131: chunk and context are measured, one
    // sequence is.
    let prompt_us = 100.0 + 0.8 * 128.0 + (9.0 + 0.05 * 128.0);
    let token_us = |context: f64| 100.0 + 0.8 + (9.0 + 0.05 * context);
    let alone_us = 25.0 + prompt_us + token_us(129.0) + token_us(130.0) + token_us(131.0);
    let alone = latency_us(vec![request(0, 0, 0, 128, 4)], 1);
    // The scale is kept in millionths.
    assert!((alone - alone_us).abs() < 0.2, "{alone} instead of {alone_us}");

    // Two instances on one processor slow each other by half, but for the hand-overs.
    let mut spread = system.clone();
    spread.pool.place = PlaceSpec::LeastLoaded;
    let both = vec![request(0, 0, 0, 128, 400), request(1, 0, 1, 128, 400)];
    let latency_us = |system: &SystemSpec, card: &Card| {
        let (record, _) = simulate_on(card, system, 2, 64, Jitter::None, both.clone(), false);
        record.latency.mean_ns() / 1e3
    };
    let beside = latency_us(&spread, &card_of_whole_steps());
    let mut apart = card_of_whole_steps();
    apart.tables.concurrent_step.clear();
    let ratio = beside / latency_us(&spread, &apart);
    assert!((1.49..1.501).contains(&ratio), "{ratio}");
    // With a single core they take turns, and nobody computes beside another.
    let mut one_core = card_of_whole_steps();
    one_core.device.host.cores = 1;
    let ratio = latency_us(&spread, &one_core) / latency_us(&spread, &apart);
    assert!((1.98..2.001).contains(&ratio), "{ratio}");
}
