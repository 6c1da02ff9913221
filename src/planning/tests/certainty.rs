//! How sure an answer says to be, and what it says where it cannot be.

use tenantry_scenarios::Scenario;

use super::{BASE, evaluator, planned};

const ONE_SYSTEM: &str =
    "systems=[{preset: hbert-adapter, dtype: f16, batch: {size-or-timeout: {max_size: 16, max_wait: 10ms}}}]";

fn asked(set: &[&str]) -> Scenario {
    let set: Vec<String> = set.iter().chain(&[ONE_SYSTEM]).map(|set| set.to_string()).collect();
    Scenario::from_yaml("certainty", BASE, &set).unwrap()
}

/// Runs that are too short for a queue to show are all alike, and no proof.
#[test]
fn an_answer_that_falls_behind_is_at_most_half_sure() {
    let report = planned(&asked(&[
        "workload.arrivals.poisson.rate=1920/s",
        "workload.stop.requests=3000",
        "plan={find: fewest-cards, gpus: [1, 2]}",
    ]))
    .report;
    assert!(report.answer.contains("But a queue grows"), "{}", report.answer);
    assert!(report.confidence <= 0.5, "{}", report.answer);
}

/// One run of eight may be hopeless by chance: far too many are late only where that is sure.
#[test]
fn what_is_not_sure_is_not_said_to_be_far_off() {
    let report = planned(&asked(&[
        "workload.arrivals.poisson.rate=1955/s",
        "workload.stop.requests=3000",
        "plan={find: fewest-cards, gpus: [1]}",
        "seed=2",
    ]))
    .report;
    let option = &report.options[0];
    assert!(option.confidence < Some(0.95), "{option:?}");
    assert_eq!(option.verdict, "given up: misses it");
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

/// What a seed draws besides the requests is what other seeds are run for.
#[test]
fn the_same_requests_are_one_workload_only_where_nothing_else_is_drawn() {
    const CONSTANT: [&str; 4] = [
        "workload.arrivals={constant: {rate: 600/s}}",
        "tenants={count: 1, popularity: identical}",
        "plan={find: fewest-cards, gpus: {from: 1, to: 2}}",
        "jitter=none",
    ];
    let is_one = |more: &str| evaluator(&asked(&[&CONSTANT[..], &[more]].concat())).one_workload;
    assert!(is_one("seed=1"));
    assert!(!is_one("jitter=measured"));
    assert!(!is_one("workload.cancellations={share: 10%, mean_after: 20ms}"));
    let cascade = [
        "workload.arrivals={constant: {rate: 600/s}}".to_owned(),
        "tenants={count: 1, popularity: identical}".to_owned(),
        "jitter=none".to_owned(),
    ];
    let cascade = Scenario::load("plan/cascade-or-large-model", &cascade).unwrap();
    assert!(!evaluator(&cascade).one_workload);
}
