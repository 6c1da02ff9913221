//! How sure an answer says to be, and what it says where it cannot be.

use std::collections::BTreeMap;

use rayon::prelude::*;
use tenantry_scenarios::Scenario;
use tenantry_sim::plan::{Cell, Sample, Search};

use super::super::found::{find, rules};
use super::{BASE, evaluator, planned};

const ONE_SYSTEM: &str =
    "systems=[{preset: hbert-adapter, dtype: f16, batch: {size-or-timeout: {max_size: 16, max_wait: 10ms}}}]";

fn asked(set: &[&str]) -> Scenario {
    let set: Vec<String> = set.iter().chain(&[ONE_SYSTEM]).map(|set| set.to_string()).collect();
    Scenario::from_yaml("certainty", BASE, &set).unwrap()
}

/// Runs that are too short for a queue to show are all alike, and no proof.
#[test]
fn a_level_that_falls_behind_is_no_answer() {
    let report = planned(&asked(&[
        "workload.arrivals.poisson.rate=1920/s",
        "workload.stop.requests=3000",
        "plan={find: fewest-cards, gpus: [1, 2]}",
    ]))
    .report;
    assert!(report.answer.starts_with("2 cards of "), "{}", report.answer);
    let report = planned(&asked(&[
        "workload.arrivals.poisson.rate=1920/s",
        "workload.stop.requests=3000",
        "plan={find: fewest-cards, gpus: [1]}",
    ]))
    .report;
    let why = "given up: of 16 times as many requests at most ";
    assert!(
        !report.feasible && report.options[0].verdict.starts_with(why),
        "{report:?}"
    );
}

/// Where half may be late, so that twice as many are all, a longer run is hopeless before all are late.
#[test]
fn a_target_at_the_median_is_not_kept_by_whom_falls_behind() {
    let report = planned(&asked(&[
        "slo.at=p50",
        "workload.arrivals.poisson.rate=2000/s",
        "workload.stop.requests=3000",
        "plan={find: fewest-cards, gpus: [1, 2]}",
    ]))
    .report;
    assert!(report.answer.starts_with("2 cards of "), "{}", report.answer);
}

/// One run of eight may be hopeless by chance: far too many are late only where that is sure.
#[test]
fn what_is_not_sure_is_not_said_to_be_far_off() {
    let report = planned(&asked(&[
        "workload.arrivals.poisson.rate=1955/s",
        "workload.stop.requests=3000",
        "plan={find: fewest-cards, gpus: [1]}",
        "seed=1",
    ]))
    .report;
    let option = &report.options[0];
    assert!(option.confidence < Some(0.95), "{option:?}");
    assert_eq!(option.verdict, "given up: misses it");
}

/// Latencies are of the runs that were made: where other seeds' arrivals decide, they need not be those of what was
/// decided.
#[test]
fn a_verdict_against_its_own_runs_says_so() {
    let told = |(rate, seed): (u32, u32)| {
        let mut report = planned(&asked(&[
            &format!("workload.arrivals.poisson.rate={rate}/s"),
            "workload.stop.requests=12000",
            "slo={latency: 60ms, at: p98}",
            "plan={find: fewest-cards, gpus: [1]}",
            &format!("seed={seed}"),
        ]))
        .report;
        let option = report.options.remove(0);
        let differ = (option.within >= Some(0.98)) != (option.latency_ms <= Some(60.0));
        let says_so = option.verdict.contains(", by the arrivals of many seeds; in its own ");
        assert_eq!(differ, says_so, "{option:?}");
        says_so
    };
    assert_eq!(
        [(1700, 1000), (1885, 2000), (1885, 3000)].map(told),
        [false, true, true]
    );
}

/// Instants and rates together cannot be scaled: the answer stands without what more load would change.
#[test]
fn a_load_that_cannot_be_scaled_costs_no_answer() {
    let report = planned(&asked(&[
        "workload.arrivals={cut: {length: 1s, repeat: true, arrivals: {superpose: [{poisson: {rate: 500/s}}, {burst: \
         {threads: 20, stagger: 5ms, period: 200ms, repeats: 5}}]}}}",
        "workload.stop={after: 2s}",
        "plan={find: fewest-cards, gpus: {from: 1, to: 4}}",
    ]))
    .report;
    assert!(report.feasible && report.moves.len() == 2, "{report:?}");
    for one in &report.moves {
        assert!(one.then.starts_with("cannot be asked: "), "{one:?}");
    }
}

/// A day's trough is no day: the answer is for what came.
#[test]
fn a_load_that_came_at_another_rate_is_told() {
    let report = |trough: &str| {
        let tenants =
            format!("tenants={{count: 300, popularity: uniform, presence: {{diurnal: {{trough: {trough}}}}}}}");
        let plan = "plan={find: fewest-cards, gpus: {from: 1, to: 2}}";
        planned(&asked(&["workload.arrivals.poisson.rate=1000/s", &tenants, plan])).report
    };
    let is_told = |trough| report(trough).notes.iter().any(|note| note.contains("came at another rate"));
    assert!(is_told("0.2"));
    assert!(!is_told("1"));
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
    let is_one = |more: &str| evaluator(&asked(&[&CONSTANT[..], &[more]].concat())).has_one_workload();
    assert!(is_one("seed=1"));
    assert!(!is_one("jitter=measured"));
    assert!(!is_one("workload.cancellations={share: 10%, mean_after: 20ms}"));
    assert!(is_one("tenants={count: 1, popularity: identical, classes: 1}"));
    assert!(!is_one("tenants={count: 1, popularity: identical, classes: 2}"));
    assert!(!is_one(
        "tenants={count: 1, popularity: identical, domains: {law: 1, biology: 1}}"
    ));
    assert!(!is_one("workload.management={rates: {update: 1/s}}"));
    // Who asks is drawn of many tenants, if not of one.
    let of_tenants = |tenants: &str| {
        let plan = format!("plan={{find: most-tenants, tenants: {tenants}}}");
        let set = [
            &CONSTANT[..1],
            &CONSTANT[3..],
            &["tenants={count: 9, popularity: uniform}", &plan],
        ]
        .concat();
        evaluator(&asked(&set)).has_one_workload()
    };
    assert!(of_tenants("{from: 1, to: 1}"));
    assert!(!of_tenants("{from: 1, to: 9}"));
    // Counts are a recording where as many come, and rates where others do.
    let folder = tempfile::tempdir().unwrap();
    let counts = folder.path().join("counts.csv");
    std::fs::write(&counts, "requests\n200\n300\n").unwrap();
    let of_counts = |placement: &str| {
        let arrivals = format!(
            "workload.arrivals={{counts: {{path: {}, placement: {placement}}}}}",
            counts.display()
        );
        evaluator(&asked(&[&[arrivals.as_str()], &CONSTANT[1..]].concat())).has_one_workload()
    };
    assert!(of_counts("even") && !of_counts("poisson"));
    let cascade = [
        "workload.arrivals={constant: {rate: 600/s}}".to_owned(),
        "tenants={count: 1, popularity: identical}".to_owned(),
        "jitter=none".to_owned(),
    ];
    let cascade = Scenario::load("plan/cascade-or-large-model", &cascade).unwrap();
    assert!(!evaluator(&cascade).has_one_workload());
}

/// Bursts, or queues near capacity, that a run sees some of: cards that are too few by little keep the target in most
/// runs, and miss it in the long run.
#[test]
fn of_answers_that_are_sure_nine_in_ten_are_right() {
    /// A load, for how long, the target, and how many of twenty plans must be sure of their answer.
    struct Load {
        name: &'static str,
        set: [&'static str; 4],
        sure: usize,
    }
    let loads = [
        Load {
            name: "three states",
            set: [
                "workload.arrivals={mmpp: {states: [{rate: 300/s, mean_dwell: 4s}, {rate: 800/s, mean_dwell: 1s}, \
                 {rate: 1500/s, mean_dwell: 400ms}]}}",
                "workload.stop={after: 20s}",
                "workload.lengths.input.fixed=500",
                "slo={latency: 200ms, at: p98}",
            ],
            sure: 15,
        },
        Load {
            name: "three states, a closer decision",
            set: [
                "workload.arrivals={mmpp: {states: [{rate: 300/s, mean_dwell: 4s}, {rate: 800/s, mean_dwell: 1s}, \
                 {rate: 1500/s, mean_dwell: 400ms}]}}",
                "workload.stop={after: 20s}",
                "workload.lengths.input.fixed=500",
                "slo={latency: 200ms, at: p99}",
            ],
            sure: 0,
        },
        Load {
            name: "short bursts",
            set: [
                "workload.arrivals={mmpp: {states: [{rate: 4000/s, mean_dwell: 200ms}, {rate: 16000/s, mean_dwell: \
                 50ms}]}}",
                "workload.stop={after: 2s}",
                "workload.lengths.input.fixed=128",
                "slo={latency: 60ms, at: p98}",
            ],
            sure: 5,
        },
        Load {
            name: "Poisson",
            set: [
                "workload.arrivals={poisson: {rate: 800/s}}",
                "workload.stop={requests: 6000}",
                "workload.lengths.input.fixed=500",
                "slo={latency: 200ms, at: p98}",
            ],
            sure: 20,
        },
        Load {
            name: "Poisson, all but as much as a card serves",
            set: [
                "workload.arrivals={poisson: {rate: 1885/s}}",
                "workload.stop={requests: 12000}",
                "workload.lengths.input.fixed=128",
                "slo={latency: 60ms, at: p98}",
            ],
            sure: 5,
        },
    ];
    let (mut sure, mut sure_and_right) = (0, 0);
    for load in &loads {
        // Seeds of which no plan sees another's.
        let scenario = |seed: u32| {
            let mut set: Vec<String> = load.set.iter().map(|set| set.to_string()).collect();
            set.extend([
                "systems=[{preset: hbert-adapter, dtype: f16, batch: {size-or-timeout: {max_size: 16, max_wait: \
                 10ms}}}]"
                    .to_owned(),
                "plan={find: fewest-cards, gpus: {from: 1, to: 12}}".to_owned(),
                format!("seed={}", 1000 * seed),
            ]);
            Scenario::from_yaml("bursts", BASE, &set).unwrap()
        };
        let plans: Vec<(usize, f64, usize)> = (1..=20)
            .into_par_iter()
            .map(|seed| {
                let scenario = scenario(seed);
                let evaluator = super::evaluator(&scenario);
                let mut search = Search::new(rules(&evaluator), |cells: &[(Cell, u32)]| evaluator.run(cells));
                let found = find(&mut search, &evaluator, &BTreeMap::new()).unwrap();
                (found.best.unwrap().level, found.confidence, evaluator.made())
            })
            .collect();
        // What is right, by 100 other seeds; without what the plans make of the arrivals.
        let truth = scenario(1000);
        let evaluator = super::evaluator(&truth);
        let share = |level: usize| {
            let cells: Vec<(Cell, u32)> = (0..100).map(|repeat| (Cell { candidate: 0, level }, repeat)).collect();
            let samples: Vec<Sample> =
                cells.par_iter().map(|cell| evaluator.in_full(cell.0, cell.1).unwrap()).collect();
            let sum = |of: fn(&Sample) -> u64| samples.iter().map(of).sum::<u64>() as f64;
            sum(|sample| sample.kept) / sum(|sample| sample.judged)
        };
        let answered = plans.iter().map(|(level, ..)| *level);
        let (low, high) = (answered.clone().min().unwrap(), answered.max().unwrap());
        let shares: Vec<(usize, f64)> = (low.saturating_sub(1)..=high).map(|level| (level + 1, share(level))).collect();
        let target = truth.slo.unwrap().quantile;
        let right = shares.iter().find(|(_, share)| *share >= target).expect("one of the answers is enough").0 - 1;
        let is_sure = |plan: &&(usize, f64, usize)| plan.1 >= 0.95;
        let of_load = plans.iter().filter(is_sure).count();
        let of_load_right = plans.iter().filter(is_sure).filter(|plan| plan.0 == right).count();
        println!(
            "{}: {} cards, by shares {shares:?}; right {} of 20; sure {of_load}, of which right {of_load_right}; how \
             sure on average {:.3}; runs {}",
            load.name,
            right + 1,
            plans.iter().filter(|plan| plan.0 == right).count(),
            plans.iter().map(|plan| plan.1).sum::<f64>() / 20.0,
            plans.iter().map(|plan| plan.2).sum::<usize>(),
        );
        assert!(of_load >= load.sure, "{}: {plans:?}", load.name);
        sure += of_load;
        sure_and_right += of_load_right;
    }
    assert!(10 * sure_and_right >= 9 * sure, "{sure_and_right} of {sure}");
}
