//! What cards, runtimes and generation cannot be together.

use super::*;

/// Streams are classes by their place, and nobody knows beforehand how often a client that waits asks.
#[test]
fn streams_and_allocations_that_cannot_be() {
    let of = |classes: &str, more: &str, arrivals: &str| {
        let system = "{ preset: arlo, runtimes: { slo: 1s, max_length: 64 MORE } }".replace(" MORE", more);
        let text = GOOD.replacen("popularity: uniform", &format!("popularity: uniform{classes}"), 1);
        let text = text.replacen("poisson: { rate: 50/s }", arrivals, 1);
        errors(&text.replacen("{ preset: bert-shared, name: shared }", &system, 1), &[])
    };
    let poisson = "poisson: { rate: 50/s }";
    let streams = |name: &str| format!(", streams: [{{ name: {name}, model: tiny, slo: 1s, max_length: 64 }}]");
    let two = ", classes: { base: 3, large: 1 }";
    assert_eq!(of(two, &streams("large"), poisson), "nothing wrong");
    assert_eq!(of(two, &streams("other"), poisson), "nothing wrong");
    assert_eq!(
        of(two, &streams("base"), poisson),
        "s.yaml:14: systems[1].runtimes.streams[0].name: must be no other class's name: this stream serves class large of tenants.classes, whose order \
         is the streams', got base"
    );
    for (classes, count) in [("", 0), (", classes: 3", 3)] {
        let said = of(classes, &streams("large"), poisson);
        let must = "must be 2 service classes: one for the system itself and one for each of its runtimes.streams (1)";
        assert_eq!(said, format!("s.yaml:7: tenants.classes: {must}, got {count}"));
    }
    let clients = "closed-loop: { clients: 4, think_time: 1s }";
    assert_eq!(of("", ", allocate: even", clients), "nothing wrong");
    assert_eq!(
        of("", ", allocate: { global: {} }", clients),
        "s.yaml:14: systems[1].runtimes.allocate: must be even, fixed or periodic where clients wait for their answers, since nobody knows beforehand how \
         often they ask, got global"
    );
}

/// Cards come and go where somebody says anew what they serve.
#[test]
fn an_allocation_that_is_never_made_anew_keeps_its_cards() {
    let of = |allocate: &str| {
        let rule =
            "{ target-tracking: { percentile: 98, add: 95%, release: 50%, recent: 60s, period: 60s, settle: 2s } }";
        let scale = format!("scale: {{ start: 1, start_up: 1s, rule: {rule} }}");
        let system =
            format!("{{ preset: arlo, runtimes: {{ slo: 1s, max_length: 64, allocate: {allocate}, {scale} }} }}");
        errors(&GOOD.replacen("{ preset: bert-shared, name: shared }", &system, 1), &[])
    };
    assert_eq!(
        of("{ periodic: { period: 10s, first: 5s, at_once: 2 } }"),
        "nothing wrong"
    );
    for (allocate, why) in [
        ("{ global: {} }", "one allocation is for the whole workload"),
        ("{ fixed: [1, 0] }", "the number of instances is fixed"),
    ] {
        let said = of(allocate);
        assert!(
            said.contains(&format!("runtimes.scale: must be left out where {why}")),
            "{said}"
        );
    }
}

/// An allocation that is solved for, once or each period, is of no more instances than the program takes.
#[test]
fn more_instances_than_the_program_takes_are_refused() {
    let of = |gpus: u32, allocate: &str| {
        let system = format!(
            "{{ preset: arlo, instances_per_gpu: 100, runtimes: {{ slo: 1s, max_length: 64, allocate: {allocate} }} }}"
        );
        let text = GOOD.replacen("gpus: 1", &format!("gpus: {gpus}"), 1);
        errors(&text.replacen("{ preset: bert-shared, name: shared }", &system, 1), &[])
    };
    for (allocate, got) in [
        ("{ global: {} }", "global"),
        ("{ periodic: { period: 10s, first: 5s, at_once: 2 } }", "periodic"),
    ] {
        assert_eq!(of(1_000, allocate), "nothing wrong");
        assert_eq!(
            of(1_001, allocate),
            format!(
                "s.yaml:14: systems[1].runtimes.allocate: must be even or fixed for 100100 instances (cluster.gpus times instances_per_gpu), since the \
                 program takes 100000 at most, got {got}"
            )
        );
    }
    assert_eq!(of(1_001, "even"), "nothing wrong");
}

#[test]
fn a_prefix_that_fills_no_page_is_refused() {
    let of = |tokens: u32| {
        let keys = format!("shared_prefix: {{ tokens: {tokens} }}");
        let system = format!("{{ preset: punica, model: tiny-llama, generation: {{ {keys} }} }}\n");
        errors(&GOOD.replacen("preset: hbert-adapter\n", &system, 1), &[])
    };
    assert_eq!(of(16), "nothing wrong");
    assert_eq!(
        of(15),
        "s.yaml:13: systems[0].generation.shared_prefix.tokens: must be at least page_tokens (16), since whole pages of it are shared, got 15"
    );
}

#[test]
fn cards_for_prompts_that_cannot_be() {
    let of = |preset: &str, more: &str| {
        let system = format!("{{ preset: {preset}, model: tiny-llama, generation: {{ prefill_gpus: 3{more} }} }}\n");
        errors(
            &GOOD.replacen("gpus: 1", "gpus: 4", 1).replacen("preset: hbert-adapter\n", &system, 1),
            &[],
        )
    };
    assert_eq!(of("punica", ""), "nothing wrong");
    let key = "s.yaml:13: systems[0].generation.prefill_gpus: must be";
    for (preset, more, said) in [
        (
            "punica",
            ", tensor_parallel: 2",
            "a multiple of tensor_parallel (2), got 3",
        ),
        (
            "punica",
            ", prefix_caching: true",
            "left out where prefix_caching is true: who is evicted returns to another card, got 3",
        ),
        (
            "queue-per-lora",
            "",
            "left out where join is not any-tenant: one tenant at a time would run on each side, got 3",
        ),
        ("hgpt", "", "left out where lower layers are looked up, got 3"),
    ] {
        let errors = of(preset, more);
        assert!(errors.contains(&format!("{key} {said}")), "{preset}{more}: {errors}");
    }
}

#[test]
fn cards_share_a_layer_by_whole_heads_of_keys_and_values() {
    let of = |cards: u32| {
        let system = format!("{{ preset: punica, model: tiny-llama, generation: {{ tensor_parallel: {cards} }} }}\n");
        errors(
            &GOOD.replacen("gpus: 1", "gpus: 4", 1).replacen("preset: hbert-adapter\n", &system, 1),
            &[],
        )
    };
    assert_eq!(of(2), "nothing wrong");
    let said = "s.yaml:13: systems[0].generation.tensor_parallel: must be a divisor of the 2 heads of tiny-llama that keys and values have, got 4";
    assert!(of(4).contains(said), "{}", of(4));
}

#[test]
fn cards_that_come_and_go_and_cannot_be() {
    let of = |keys: &str| {
        let system = format!("{{ preset: punica, model: tiny-llama, generation: {{ {keys} }} }}\n");
        errors(
            &GOOD.replacen("gpus: 1", "gpus: 4", 1).replacen("preset: hbert-adapter\n", &system, 1),
            &[],
        )
    };
    let scale = |start: u32, min: u32| format!("scale: {{ start: {start}, min: {min}, start_up: 1s, patience: 10s }}");
    assert_eq!(of(&scale(4, 2)), "nothing wrong");
    let at = "s.yaml:13: systems[0].generation.scale";
    for (keys, said) in [
        (scale(5, 1), ".start: must be at most cluster.gpus (4), got 5"),
        (scale(2, 3), ".min: must be at most start (2), got 3"),
        (scale(0, 1), ".start: must be"),
        (
            format!("{}, tensor_parallel: 2", scale(3, 2)),
            ".start: must be a multiple of tensor_parallel (2), got 3",
        ),
        (
            format!("{}, consolidate: null", scale(1, 1)),
            ": must be left out without consolidate, whose `light` says which cards are lightly loaded, got given",
        ),
        (
            format!("{}, prefill_gpus: 1", scale(1, 1)),
            ": must be left out where some cards only take prompts in, which are not emptied, got given",
        ),
    ] {
        let errors = of(&keys);
        assert!(errors.contains(&format!("{at}{said}")), "{keys}: {errors}");
    }
}
