//! What is chosen among: which numbers of cards, at what cost.

use std::collections::BTreeMap;

use tenantry_reports::plan::CANNOT_RUN;
use tenantry_scenarios::Scenario;
use tenantry_sim::plan::Cell;

use super::{BASE, evaluator, planned};

fn numbers_of_cards(scenario: &Scenario) -> Vec<Vec<u32>> {
    let levels = evaluator(scenario).levels;
    let numbers = levels.iter().map(|of| of.iter().map(|point| point.gpus).collect());
    numbers.collect()
}

/// A model on two cards at a time takes even numbers of them: odd ones are not too few, and no answer.
#[test]
fn numbers_of_cards_that_are_not_valid_are_left_out() {
    let asked = |plan: &str| {
        let set = [
            "sweep={}",
            "cluster.gpus=8",
            "systems=[{preset: vllm-backbone, name: one}, {preset: vllm-backbone, name: two, generation: \
             {tensor_parallel: 2}}]",
            plan,
        ];
        let set = set.map(str::to_owned);
        let scenario = Scenario::load("gallery/how-many-cards-for-the-chat", &set).unwrap();
        numbers_of_cards(&scenario)
    };
    assert_eq!(
        asked("plan={find: fewest-cards, gpus: {from: 2, to: 7}}"),
        [vec![2, 3, 4, 5, 6, 7], vec![2, 4, 6]]
    );
    let most = asked("plan={find: highest-rate, gpus: {from: 2, to: 7}, load: {from: 1, to: 2}, precision: 99%}");
    assert_eq!(most, [vec![7, 7, 7], vec![6, 6, 6]]);
}

/// What a choice needs and the card was not measured with is derived for it as for a scenario that says so, and its
/// numbers of cards are the plan's.
#[test]
fn a_choice_is_priced_and_placed_as_if_the_scenario_had_it() {
    let set = [
        "card=a100-sxm",
        "models.backbone=llama-7b",
        "tenants.count=20",
        "workload={arrivals: {poisson: {rate: 2/s}}, lengths: {input: {fixed: 128}, output: {fixed: 32}}, stop: \
         {requests: 40}}",
        "systems=[{preset: punica}]",
        "slo={ttft: 1s, tpot: 100ms, at: p90}",
        "plan={find: fewest-cards, gpus: [3, 4], choices: {punica: {generation.lora.rank: [16, 37], \
         generation.tensor_parallel: [1, 2]}}}",
    ];
    let scenario = Scenario::from_yaml("choices", BASE, &set.map(str::to_owned)).unwrap();
    assert_eq!(numbers_of_cards(&scenario), [vec![3, 4], vec![4], vec![3, 4], vec![4]]);
    for option in planned(&scenario).report.options {
        assert!(!option.verdict.starts_with(CANNOT_RUN) && option.runs > 0, "{option:?}");
    }
    // Each system has numbers of its own: one of them takes three cards and not eight, the other eight and not three.
    let apart = [
        "models={backbone: tiny, chat: llama-7b}",
        "cluster.gpus=2",
        "systems=[{preset: bert-shared, name: shared, batch: {fixed-size: {size: 4}}, admit: {bounded-queue: \
         {max_waiting: 13}}}, {preset: punica, model: chat, generation: {tensor_parallel: 2}}]",
        "slo={latency: 10s, at: p90}",
        "plan={find: fewest-cards, gpus: [3, 8], choices: {shared: {padding: [longest]}}}",
    ];
    let apart: Vec<String> = set.into_iter().chain(apart).map(str::to_owned).collect();
    assert_eq!(
        Scenario::from_yaml("choices", BASE, &apart).err().map(|errors| errors.to_string()),
        None
    );
    // No number of cards that is tried is one for it.
    let never = ["plan={find: fewest-cards, gpus: [3, 5], choices: {punica: {generation.tensor_parallel: [2]}}}"];
    let set: Vec<String> = set.into_iter().chain(never).map(str::to_owned).collect();
    let refused = Scenario::from_yaml("choices", BASE, &set).unwrap_err().to_string();
    assert!(
        refused.contains(
            "plan.choices.punica.generation.tensor_parallel[0]: must be a divisor of cluster.gpus (5), got 2"
        ),
        "{refused}"
    );
}

/// 3 cards at 1.1 cost 3.3, and as much as 2 at 1.65, however binary fractions add up.
#[test]
fn costs_are_decimal() {
    let asked = |plan: &str| Scenario::from_yaml("costs", BASE, &[format!("plan={plan}")]).unwrap();
    let limited = asked("{find: fewest-cards, gpus: {from: 1, to: 8}, cards: {l4: 1.1}, max_cost_per_hour: 3.3}");
    assert_eq!(numbers_of_cards(&limited)[0], [1, 2, 3]);
    let tie = asked("{find: least-cost, gpus: {from: 1, to: 4}, cards: {l4: 1.1, a100-sxm: 1.65}}");
    let tie = evaluator(&tie);
    let values = tie.candidates(&BTreeMap::new());
    for (offer, candidate) in tie.offers.iter().zip(values) {
        let gpus = if offer.card == "l4" { 3 } else { 2 };
        assert_eq!(candidate.values[gpus - 1], 3.3, "{}", offer.card);
    }
}

/// Where requests come sooner, the warm-up is as much shorter: else it would be all of the run.
#[test]
fn the_warm_up_leaves_out_the_same_requests_at_every_level() {
    let warm_up_s = |set: [&str; 3], level: usize| {
        let set = set.map(str::to_owned);
        let scenario = Scenario::from_yaml("warm-up", BASE, &set).unwrap();
        let cell = Cell { candidate: 0, level };
        let run = evaluator(&scenario).scenario_of(cell, 1).unwrap().runs().remove(0);
        run.warm_up.as_secs_f64()
    };
    // Instants come closer together.
    let compressed = [
        "workload={arrivals: {burst: {threads: 20, stagger: 1ms, period: 1s, repeats: 600}}, lengths: {input: {fixed: \
         128}}, stop: {after: 600s}, warm_up: 100s}",
        "seed=7",
        "plan={find: highest-rate, load: {from: 1, to: 200}}",
    ];
    assert_eq!(warm_up_s(compressed, 0), 0.5);
    // Two hundred times as many tenants send the first so many requests two hundred times as early.
    let more_ask = [
        "workload={arrivals: {periodic-per-tenant: {period: 10s}}, lengths: {input: {fixed: 128}}, stop: {requests: \
         20000}, warm_up: 5s}",
        "tenants={count: 1000, popularity: of-arrivals}",
        "plan={find: most-tenants, tenants: {from: 1000, to: 200000}}",
    ];
    assert_eq!(warm_up_s(more_ask, 0), 0.025);
}
