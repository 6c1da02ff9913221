//! Ten questions, each answered by the search and by trying everything.

use std::collections::BTreeMap;

use rayon::prelude::*;
use tenantry_scenarios::{Objective, Scenario};
use tenantry_sim::plan::{Cell, Search};

use super::super::found::{by_runs, rules};
use super::{Question, evaluator, scenario};

pub const QUESTIONS: [Question; 10] = [
    Question {
        name: "how many cards, which system, which batches",
        set: &[],
        plan: "{find: fewest-cards, gpus: {from: 1, to: 32}, choices: {hbert-adapter: SIZES, bert-shared: SIZES}}",
    },
    Question {
        name: "how many cards under bursts",
        set: &[
            "workload.arrivals={mmpp: {states: [{rate: 4000/s, mean_dwell: 200ms}, {rate: 16000/s, mean_dwell: \
             50ms}]}}",
            "slo.latency=60ms",
        ],
        plan: "{find: fewest-cards, gpus: {from: 1, to: 40}, choices: {hbert-adapter: {pipeline: [synchronous, \
               prefetch, layerwise]}}}",
    },
    Question {
        name: "how many cards with a tight target",
        set: &["slo={latency: 12ms, at: p99}", "jitter=none"],
        plan: "{find: fewest-cards, gpus: {from: 1, to: 48}, choices: {bert-shared: {batch.size-or-timeout.max_wait: \
               [0s, 5ms, 20ms]}}}",
    },
    Question {
        name: "which cards are cheapest",
        set: &["systems=[{preset: hbert-adapter, dtype: f16}]"],
        plan: "{find: least-cost, gpus: {from: 1, to: 40}, cards: {l4: 0.8, t4: 0.55, v100: 2.2, a100-sxm: 2.1}}",
    },
    Question {
        name: "which cards and which system are cheapest",
        set: &["workload.arrivals.poisson.rate=10000/s"],
        plan: "{find: least-cost, gpus: {from: 1, to: 32}, cards: {l4: 0.8, a100-sxm: 2.1, h100-sxm: 4}}",
    },
    Question {
        name: "how many tenants",
        set: &["workload.arrivals.poisson.rate=300/s"],
        plan: "{find: most-tenants, tenants: {from: 100, to: 40000}, precision: 4%}",
    },
    Question {
        name: "how many tenants when each has a model",
        set: &[
            "systems=[{preset: bert-dedicated, dtype: f16}, {preset: hbert-adapter, dtype: f16}]",
            "workload.arrivals.poisson.rate=30/s",
            "workload.stop.requests=2000",
            "slo.latency=250ms",
        ],
        plan: "{find: most-tenants, tenants: {from: 100, to: 60000}, precision: 8%}",
    },
    Question {
        name: "how much load",
        set: &[
            "systems=[{preset: hmi, dtype: f16}, {preset: hbert-adapter, dtype: f16}]",
            "workload.arrivals.poisson.rate=500/s",
        ],
        plan: "{find: highest-rate, load: {from: 0.1, to: 20}, precision: 3%}",
    },
    Question {
        name: "how many cards, when batches of a fixed size do not fill with too many",
        set: &[
            "systems=[{preset: bert-shared, dtype: f16, batch: {fixed-size: {size: 32}}}]",
            "slo.latency=40ms",
        ],
        plan: "{find: fewest-cards, gpus: {from: 1, to: 192}}",
    },
    Question {
        name: "what is fastest",
        set: &["workload.arrivals.poisson.rate=300/s", "workload.stop.requests=3000"],
        plan: "{find: tightest-latency, gpus: {from: 1, to: 40}, choices: {hbert-adapter: \
               {batch.size-or-timeout.max_wait: [0s, 2ms, 5ms]}}}",
    },
];

/// Answers a question by the search and by trying every level of every option, by the same rules: as many repeats as
/// each decision needs. The answers must be the same; how many runs each took.
fn both_ways(name: &str, scenario: &Scenario) -> (usize, usize) {
    let evaluator = evaluator(scenario);
    let mut search = Search::new(rules(&evaluator), |cells: &[(Cell, u32)]| evaluator.run(cells));
    let found = by_runs(&mut search, &evaluator, &BTreeMap::new()).unwrap();
    let best = found.best.unwrap_or_else(|| panic!("{name}: nothing found"));
    let searched = evaluator.made();

    // Nothing that the search learnt is known here.
    let evaluator = super::evaluator(scenario);
    let candidates = evaluator.candidates(&BTreeMap::new());
    let mut everything = Search::new(rules(&evaluator), |cells: &[(Cell, u32)]| evaluator.run(cells));
    let mut known: Option<(f64, Cell)> = None;
    for (candidate, levels) in candidates.iter().enumerate() {
        for (level, value) in levels.values.iter().enumerate() {
            let cell = Cell { candidate, level };
            let judged = everything.judge(cell).unwrap();
            let value = if evaluator.plan.find == Objective::TightestLatency {
                0.0
            } else {
                *value
            };
            let better =
                known.is_none_or(|(best, known)| value < best || value == best && everything.is_faster(cell, known));
            if judged.meets && better {
                known = Some((value, cell));
            }
        }
    }
    let (_, expected) = known.unwrap_or_else(|| panic!("{name}: nothing to be found"));
    let runs = (searched, evaluator.made());
    println!(
        "{name}: {best:?} in {} runs, brute force {expected:?} in {}",
        runs.0, runs.1
    );
    if evaluator.plan.find == Objective::TightestLatency {
        // Far more cards than the load needs differ by less than is of interest.
        let [ours, score] = [best, expected].map(|cell| everything.judged(cell).unwrap().score);
        assert_eq!(best.candidate, expected.candidate, "{name}");
        assert!(ours <= score * 1.02, "{name}: {ours} ms against {score} ms");
    } else {
        assert_eq!(best, expected, "{name}: {:?}", found.standings);
    }
    runs
}

#[test]
fn the_search_answers_as_brute_force_does_at_a_tenth_of_the_runs() {
    let outcomes: Vec<(usize, usize)> =
        QUESTIONS.par_iter().map(|question| both_ways(question.name, &scenario(question))).collect();
    for (question, (runs, everything)) in QUESTIONS.iter().zip(&outcomes) {
        assert!(
            runs * 10 <= *everything,
            "{}: {runs} runs against {everything}: {outcomes:?}",
            question.name
        );
    }
}

/// Shipped questions about systems of other kinds: a cascade that must be right often enough, runtimes, tasks.
#[test]
fn cascades_runtimes_and_tasks_are_searched_as_brute_force_does() {
    let questions: [(&str, &[&str]); 3] = [
        (
            "plan/cascade-or-large-model",
            &[
                "workload.stop.requests=4000",
                "plan.gpus={from: 1, to: 16}",
                "plan.repeats=2",
            ],
        ),
        (
            "plan/runtimes-for-tweets",
            &[
                "workload.stop.requests=6000",
                "workload.arrivals.poisson.rate=3000/s",
                "plan.gpus={from: 1, to: 16}",
                "plan.repeats=2",
            ],
        ),
        (
            "plan/tasks-on-old-cards",
            &[
                "workload.stop.requests=1500",
                "plan.tenants={from: 20, to: 1000}",
                "plan.precision=15%",
                "plan.repeats=2",
            ],
        ),
    ];
    questions.par_iter().for_each(|(name, set)| {
        let set: Vec<String> = set.iter().map(|set| set.to_string()).collect();
        let scenario = Scenario::load(name, &set).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        let (runs, everything) = both_ways(name, &scenario);
        assert!(runs * 3 <= everything, "{name}: {runs} runs against {everything}");
    });
}
