//! What plans answer and say; how good and how sure that is, and what is chosen among, have files of their own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use indicatif::ProgressBar;
use rayon::prelude::*;
use tenantry_reports::plan::FrontPoint;
use tenantry_reports::summary::rounded;
use tenantry_scenarios::Scenario;
use tenantry_sim::plan::{Cell, Search};

use self::brute_force::QUESTIONS;
use super::answer::{Planned, answer};
use super::evaluate::{Evaluator, Known};
use super::found::{find, rules};
use super::front::{around, at, beats, front};
use super::kept::PlanRuns;
use super::moves::Moving;

mod brute_force;
mod certainty;
mod offers;
mod unanswered;

/// A question: what differs from the others, and its plan.
struct Question {
    name: &'static str,
    set: &'static [&'static str],
    plan: &'static str,
}

const BASE: &str = "
name: question
seed: 7
card: l4
models: { backbone: bert-base }
tenants: { count: 3000, popularity: { zipf: 0.9 } }
workload:
  arrivals: { poisson: { rate: 8000/s } }
  lengths: { input: { fixed: 128 } }
  stop: { requests: 6000 }
systems:
  - { preset: hbert-adapter, dtype: f16, batch: { size-or-timeout: { max_size: 16, max_wait: 10ms } } }
  - { preset: bert-shared, dtype: f16, batch: { size-or-timeout: { max_size: 16, max_wait: 10ms } } }
slo: { latency: 100ms, at: p98 }
";

const SIZES: &str = "{batch.size-or-timeout.max_size: [8, 16, 32]}";

fn scenario(question: &Question) -> Scenario {
    let mut set: Vec<String> = question.set.iter().map(|set| set.to_string()).collect();
    set.push(format!("plan={}", question.plan.replace("SIZES", SIZES)));
    Scenario::from_yaml("question", BASE, &set).unwrap_or_else(|errors| panic!("{}: {errors}", question.name))
}

fn evaluator(scenario: &Scenario) -> Evaluator<'_> {
    let plan = scenario.plan.as_ref().unwrap();
    Evaluator::new(
        scenario,
        plan,
        1.0,
        Arc::default(),
        Arc::new(AtomicBool::new(false)),
        ProgressBar::hidden(),
    )
    .unwrap()
}

fn planned(scenario: &Scenario) -> Planned {
    let (plan, interrupt) = (scenario.plan.as_ref().unwrap(), Arc::default());
    answer(scenario, plan, &Arc::default(), &interrupt, &ProgressBar::hidden()).unwrap()
}

#[test]
fn an_answer_says_how_sure_it_is_and_can_be_run() {
    let scenario = scenario(&QUESTIONS[0]);
    let plan = scenario.plan.as_ref().unwrap();
    let interrupt = Arc::new(AtomicBool::new(false));
    let planned = answer(&scenario, plan, &Arc::default(), &interrupt, &ProgressBar::hidden()).unwrap();
    let report = planned.report;
    assert!(report.feasible && report.confidence > 0.9, "{}", report.answer);
    let chosen: Vec<_> = report.options.iter().filter(|option| option.chosen).collect();
    assert_eq!((chosen.len(), report.options.len()), (1, 6));
    assert_eq!(report.binds.as_ref().unwrap().what, "compute");
    assert_eq!(report.moves.len(), 2, "more load, and less");
    assert!(report.front.iter().any(|point| point.on_front));
    let best = planned.best.unwrap();
    assert_eq!((best.plan.clone(), best.runs().len()), (None, 1));
    assert_eq!(
        (best.runs()[0].gpus, &best.runs()[0].system.name),
        (chosen[0].gpus, &chosen[0].system)
    );
    // Again the same, on any number of threads.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let again = pool.install(|| answer(&scenario, plan, &Arc::default(), &interrupt, &ProgressBar::hidden()).unwrap());
    assert_eq!(again.report, report);
}

/// Whatever part of its runs an interrupted plan had kept, it says what it would have said, of bursts too.
#[test]
fn a_plan_goes_on_with_the_runs_that_were_kept() {
    const BURSTS: &str =
        "workload.arrivals={mmpp: {states: [{rate: 6000/s, mean_dwell: 50ms}, {rate: 12000/s, mean_dwell: 20ms}]}}";
    // Of the last, some seeds' requests all come within the warm-up, the first one's too.
    const SETS: [&[&str]; 3] = [
        &["slo.latency=60ms"],
        &[BURSTS, "workload.stop.requests=3000"],
        &["workload.warm_up=1s", "workload.stop.requests=8050"],
    ];
    for set in SETS {
        let scenario = scenario(&Question {
            name: "kept",
            set,
            plan: "{find: fewest-cards, gpus: {from: 1, to: 8}}",
        });
        let plan = scenario.plan.as_ref().unwrap();
        let interrupt = Arc::new(AtomicBool::new(false));
        let answered = |known: &Arc<Known>| answer(&scenario, plan, known, &interrupt, &ProgressBar::hidden()).unwrap();
        let all = Arc::<Known>::default();
        let planned = answered(&all);
        let options = &planned.report.options;
        assert!(options.iter().all(|option| option.runs > 0), "{options:?}");
        let all = Arc::into_inner(all).unwrap().into_runs();
        for part in [1, 2] {
            let some = all.iter().enumerate().filter(|(at, _)| at % part == 0);
            let written: Vec<_> = some.map(|(_, (key, run))| (key.clone(), run.clone())).collect();
            let written = serde_json::to_string(&written).unwrap();
            let kept: Vec<_> = serde_json::from_str(&written).unwrap();
            let kept: PlanRuns = kept.into_iter().collect();
            let known = Arc::new(Known::with(kept));
            let again = answered(&known);
            assert_eq!(again.report, planned.report);
            assert_eq!(again.caveats, planned.caveats);
            let runs = Arc::into_inner(known).unwrap().into_runs();
            assert!(runs.keys().eq(all.keys()));
        }
    }
}

/// What is compared for the front is the same whatever comes first, and nothing on it costs more than what is as fast.
#[test]
fn the_front_does_not_depend_on_the_order_of_systems() {
    let systems = [
        "{preset: hbert-adapter, dtype: f16, batch: {size-or-timeout: {max_size: 16, max_wait: 10ms}}}",
        "{preset: bert-shared, dtype: f16, batch: {size-or-timeout: {max_size: 16, max_wait: 10ms}}}",
        "{preset: bert-dedicated, dtype: f16}",
    ];
    let front_of = |order: [usize; 3]| {
        let systems = order.map(|system| systems[system]).join(", ");
        let set = [
            format!("systems=[{systems}]"),
            "tenants.count=300".to_owned(),
            "workload.arrivals.poisson.rate=3000/s".to_owned(),
            "plan={find: fewest-cards, gpus: {from: 1, to: 32}}".to_owned(),
        ];
        let scenario = Scenario::from_yaml("front", BASE, &set).unwrap();
        let interrupt = Arc::new(AtomicBool::new(false));
        let plan = scenario.plan.as_ref().unwrap();
        answer(&scenario, plan, &Arc::default(), &interrupt, &ProgressBar::hidden())
            .unwrap()
            .report
            .front
    };
    let of = front_of([0, 1, 2]);
    let on_front: Vec<_> = of.iter().filter(|point| point.on_front).collect();
    assert!(on_front.len() >= 2, "{of:?}");
    for point in &on_front {
        let worse_than = |other: &&FrontPoint| beats((other.cost, other.latency_ms), (point.cost, point.latency_ms));
        assert_eq!(of.iter().find(worse_than), None, "{point:?}");
    }
    // What a search runs on its way depends on which option comes first. All else is compared whatever comes first.
    let compared = [2.0, 3.0, 4.0, 8.0, 32.0];
    let is_beaten = |point: &FrontPoint, by: &[FrontPoint]| {
        by.iter().any(|other| beats((other.cost, other.latency_ms), (point.cost, point.latency_ms)))
    };
    for order in [[1, 0, 2], [2, 1, 0], [2, 0, 1]] {
        let other = front_of(order);
        for (ours, theirs) in [(&of, &other), (&other, &of)] {
            for point in ours.iter().filter(|point| point.on_front && !theirs.contains(point)) {
                assert!(
                    is_beaten(point, theirs) || !compared.contains(&point.cost),
                    "{order:?}: {point:?} is not in {theirs:?}"
                );
            }
        }
    }
}

/// What another price buys was run already.
#[test]
fn prices_cost_few_runs() {
    let set = [
        "workload.arrivals.poisson.rate=4000/s",
        "plan={find: least-cost, gpus: {from: 1, to: 12}, cards: {l4: 0.8, t4: 0.55}, max_cost_per_hour: 8}",
    ];
    let scenario = Scenario::from_yaml("prices", BASE, &set.map(str::to_owned)).unwrap();
    let interrupt = Arc::new(AtomicBool::new(false));
    let plan = scenario.plan.as_ref().unwrap();
    let known = Arc::<Known>::default();
    let evaluator = Evaluator::new(
        &scenario,
        plan,
        1.0,
        Arc::clone(&known),
        Arc::clone(&interrupt),
        ProgressBar::hidden(),
    )
    .unwrap();
    let mut search = Search::new(rules(&evaluator), |cells: &[(Cell, u32)]| evaluator.run(cells));
    let best = find(&mut search, &evaluator, &BTreeMap::new()).unwrap().best.unwrap();
    let before = evaluator.made();
    let moving = Moving {
        scenario: &scenario,
        plan,
        interrupt: &interrupt,
        bar: &ProgressBar::hidden(),
        known: &known,
    };
    let moves = moving.with_prices(&mut search, &evaluator, best).unwrap();
    assert_eq!(moves.len(), 4, "{moves:?}");
    println!("{} runs for prices after {before}", evaluator.made() - before);
    assert!(
        evaluator.made() - before <= before,
        "{} after {before}",
        evaluator.made() - before
    );
}

#[test]
fn where_nothing_keeps_the_target_the_nearest_is_named() {
    let question = Question {
        name: "too much to ask",
        set: &["slo.latency=1ms", "workload.stop.requests=2000"],
        plan: "{find: fewest-cards, gpus: {from: 1, to: 8}}",
    };
    let scenario = scenario(&question);
    let plan = scenario.plan.as_ref().unwrap();
    let planned = answer(
        &scenario,
        plan,
        &Arc::default(),
        &Arc::new(AtomicBool::new(false)),
        &ProgressBar::hidden(),
    )
    .unwrap();
    assert!(!planned.report.feasible && planned.best.is_none());
    // Nothing is in time: what is fastest comes nearest, and a batch fills sooner on four cards than on eight.
    assert!(
        planned.report.answer.contains("Nearest: 4 cards of l4 with"),
        "{}",
        planned.report.answer
    );
    // Of a share of nothing nobody could tell how near that is.
    let reached = planned.report.answer.split_once(" are in time (p98 is ");
    assert!(reached.is_some_and(|(_, reached)| reached.ends_with("ms).")));
    let binds = planned.report.binds.expect("it was run").sentence;
    assert!(binds.starts_with("compute: at the nearest, it is busy "), "{binds}");
}

/// Batches of a fixed size fill best on few cards: of all numbers that were run, the one that comes nearest is named.
#[test]
fn the_nearest_is_named_wherever_it_lies() {
    let question = Question {
        name: "batches that do not fill",
        set: &[
            "systems=[{preset: bert-shared, dtype: f16, batch: {fixed-size: {size: 32}}}]",
            "slo.latency=22ms",
        ],
        plan: "{find: fewest-cards, gpus: {from: 1, to: 64}}",
    };
    let scenario = scenario(&question);
    let planned = planned(&scenario).report;
    let evaluator = evaluator(&scenario);
    let shares: Vec<(u32, f64)> = (0..64)
        .into_par_iter()
        .map(|level| {
            let run = evaluator.in_full(Cell { candidate: 0, level }, 0).unwrap();
            (level as u32 + 1, run.kept as f64 / run.judged as f64)
        })
        .collect();
    println!("{} of {shares:?}", planned.answer);
    let best = shares.iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    assert!(
        !planned.feasible && best.0 < 64 && best.1 > shares[63].1 + 0.1,
        "{shares:?}"
    );
    let named = format!("Nearest: {} cards of l4 with", best.0);
    assert!(planned.answer.contains(&named), "{}", planned.answer);
}

/// Cards that idle between bursts are at their limit in them, which is when requests are late.
#[test]
fn under_bursts_what_binds_is_read_while_late_requests_are_inside() {
    let report = planned(&scenario(&Question {
        name: "bursts",
        set: &[
            "workload.arrivals={mmpp: {states: [{rate: 3000/s, mean_dwell: 1s}, {rate: 12000/s, mean_dwell: 100ms}]}}",
            "workload.stop={after: 10s}",
            "systems=[{preset: bert-shared, dtype: f16}]",
            "slo={latency: 60ms, at: p98}",
        ],
        plan: "{find: fewest-cards, gpus: {from: 1, to: 8}, repeats: 4}",
    }))
    .report;
    let binds = report.binds.unwrap();
    assert_eq!(binds.what, "compute", "{}: {binds:?}", report.answer);
    let told = "of the time in which late requests are inside";
    assert!(binds.sentence.contains(told), "{binds:?}");
}

/// A dearer card that keeps the target with one is worse, and not given up.
#[test]
fn what_costs_more_at_its_best_is_not_said_to_miss_the_target() {
    let question = Question {
        name: "dear cards",
        set: &["workload.arrivals.poisson.rate=300/s", "workload.stop.requests=3000"],
        plan: "{find: least-cost, gpus: {from: 1, to: 8}, cards: {l4: 0.5, v100: 2.2}}",
    };
    let report = planned(&scenario(&question)).report;
    let dear: Vec<_> = report.options.iter().filter(|option| option.card == "v100").collect();
    assert_eq!(dear.len(), 2);
    for option in dear {
        assert_eq!(option.verdict, "keeps the target, and is worse", "{option:?}");
        assert!(
            option.within > Some(0.98) && option.cost_per_million_requests.is_some(),
            "{option:?}"
        );
    }
}

/// Nothing that a plan ran, and that keeps the target, beats what is on its front, and what nothing beats is on it.
#[test]
fn the_front_is_complete() {
    let plans = [
        "{find: fewest-cards, gpus: {from: 1, to: 32}}",
        "{find: fewest-cards, gpus: {from: 1, to: 32}, choices: {hbert-adapter: SIZES}}",
        "{find: least-cost, gpus: {from: 1, to: 16}, cards: {l4: 0.8, t4: 0.55}}",
        "{find: tightest-latency, gpus: [1, 2, 3, 4, 6, 8, 12, 16]}",
        "{find: highest-rate, gpus: [4], load: {from: 0.1, to: 10}, precision: 5%}",
        "{find: most-tenants, gpus: [4], tenants: {from: 100, to: 20000}, precision: 5%}",
    ];
    plans.par_iter().for_each(|plan| {
        for seed in 1..=3 {
            let set = [
                "workload.stop.requests=3000".to_owned(),
                "workload.arrivals.poisson.rate=3000/s".to_owned(),
                format!("seed={seed}"),
                format!("plan={}", plan.replace("SIZES", SIZES)),
            ];
            let scenario = Scenario::from_yaml("front", BASE, &set).unwrap();
            let evaluator = evaluator(&scenario);
            let mut search = Search::new(rules(&evaluator), |cells: &[(Cell, u32)]| evaluator.run(cells));
            let found = find(&mut search, &evaluator, &BTreeMap::new()).unwrap();
            search.begin(&around(&evaluator, &found, found.best.unwrap())).unwrap();
            let (unit, points) = front(&evaluator, &search, &found);
            let listed: Vec<(f64, f64)> = points.iter().map(|point| (point.cost, point.latency_ms)).collect();
            let all: Vec<(f64, f64)> = search
                .cells()
                .filter_map(|cell| at(&evaluator, &search, unit, cell))
                .map(|(cost, latency_ms)| (rounded(cost), rounded(latency_ms)))
                .collect();
            assert!(points.iter().any(|point| point.on_front), "{plan}: {points:?}");
            for run in &all {
                let beaten = all.iter().any(|other| beats(*other, *run));
                assert!(
                    beaten || listed.contains(run),
                    "{plan}, seed {seed}: {run:?} is not in {listed:?}"
                );
                for point in points.iter().filter(|point| point.on_front) {
                    let of = (point.cost, point.latency_ms);
                    assert!(
                        !(run.0 < of.0 && run.1 < of.1),
                        "{plan}, seed {seed}: {run:?} beats {of:?}"
                    );
                }
            }
        }
    });
}
