//! What is chosen among: which numbers of cards, at what cost.

use std::collections::BTreeMap;

use tenantry_scenarios::Scenario;
use tenantry_sim::plan::Cell;

use super::{BASE, evaluator};

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
            "systems=[{preset: vllm-backbone, name: one}, {preset: vllm-backbone, name: two, generation: {tensor_parallel: 2}}]",
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
