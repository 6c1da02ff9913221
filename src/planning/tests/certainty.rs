//! How sure an answer says to be, and what it says where it cannot be.

use tenantry_scenarios::Scenario;

use super::{BASE, evaluator, planned};

const ONE_SYSTEM: &str =
    "systems=[{preset: hbert-adapter, dtype: f16, batch: {size-or-timeout: {max_size: 16, max_wait: 10ms}}}]";

fn asked(set: &[&str]) -> Scenario {
    let set: Vec<String> = set.iter().chain(&[ONE_SYSTEM]).map(|set| set.to_string()).collect();
    Scenario::from_yaml("certainty", BASE, &set).unwrap()
}

/// Instants and rates together cannot be scaled: the answer stands without what more load would change.
#[test]
fn a_load_that_cannot_be_scaled_costs_no_answer() {
    let report = planned(&asked(&[
        "workload.arrivals={cut: {length: 1s, repeat: true, arrivals: {superpose: [{poisson: {rate: 500/s}}, {burst: {threads: 20, stagger: 5ms, period: 200ms, repeats: 5}}]}}}",
        "workload.stop={after: 2s}",
        "plan={find: fewest-cards, gpus: {from: 1, to: 4}}",
    ]))
    .report;
    assert!(report.feasible && report.moves.len() == 2, "{report:?}");
    for one in &report.moves {
        assert!(one.then.starts_with("cannot be asked: "), "{one:?}");
    }
}
