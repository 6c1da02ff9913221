//! What is compared, and what counts as outside.

use proptest::prelude::*;
use tenantry_core::RunRecord;
use tenantry_traces::Duration;

use super::*;
use crate::classes::ClassSummary;
use crate::summary::{ManagementSummary, RunLabels, RunSummary, VIRTUAL};
use crate::testing::{labels, record, runs};

const LIMITS: Limits = Limits {
    mean: Some(0.05),
    p98: Some(0.08),
    throughput: Some(0.03),
};

fn one(simulated_us: u64, executed_us: &[u64]) -> Vec<Run> {
    let run = |labels, us| Run::new(labels, &record(1_000, Duration::from_micros(us)));
    let executed = executed_us.iter().zip(0..);
    let executed = executed.map(|(us, repeat)| {
        run(
            RunLabels {
                repeat,
                ..labels("hmi", "cpu")
            },
            *us,
        )
    });
    std::iter::once(run(labels("hmi", VIRTUAL), simulated_us)).chain(executed).collect()
}

#[test]
fn equal_runs_have_no_error() {
    let validation = Validation::new("same", LIMITS, &one(100_000, &[100_000]));
    assert_eq!(validation.verdict, Some(Verdict::Within));
    let comparison = &validation.comparisons[0];
    assert!(
        comparison.figures.iter().all(|figure| figure.error_percent == Some(0.0)),
        "{comparison:?}"
    );
    assert!(
        comparison.stages.iter().all(|stage| stage.share_of_difference.is_none()),
        "nothing to share"
    );
}

#[test]
fn errors_are_relative_to_the_mean_of_what_was_executed() {
    let validation = Validation::new("apart", LIMITS, &one(110_000, &[99_000, 100_000, 101_000]));
    let mean = &validation.comparisons[0].figures[1];
    assert_eq!(mean.figure, "latency_ms.mean");
    assert!((mean.error_percent.unwrap() - 10.0).abs() < 0.01, "{mean:?}");
    let executed = mean.executed.unwrap();
    assert!(executed.min < executed.mean && executed.mean < executed.max);
    assert_eq!((mean.limit_percent, mean.verdict), (Some(5.0), Some(Verdict::Outside)));
    assert_eq!(validation.verdict, Some(Verdict::Outside));
}

/// One seed a tenth too slow and one a tenth too fast are right in the mean: that is told.
#[test]
fn errors_of_seeds_that_cancel_out_are_told() {
    let run = |machine: &str, seed: u64, us: u64| {
        let labels = RunLabels {
            seed,
            repeat: seed as u32,
            ..labels("hmi", machine)
        };
        Run::new(labels, &record(1_000, Duration::from_micros(us)))
    };
    let both = [
        run(VIRTUAL, 7, 100_000),
        run(VIRTUAL, 8, 100_000),
        run("cpu", 7, 90_000),
        run("cpu", 8, 110_000),
        run("cpu", 8, 110_000),
        run("cpu", 7, 90_000),
    ];
    let validation = Validation::new("apart", LIMITS, &both);
    let mean = &validation.comparisons[0].figures[1];
    assert_eq!(mean.verdict, Some(Verdict::Within), "{mean:?}");
    let worst = mean.worst_seed.unwrap();
    assert_eq!(worst.seed, 7);
    assert!((worst.error_percent - 11.1).abs() < 0.1, "{worst:?}");
    let told = validation.cancelling();
    assert!(
        told[0].starts_with("hmi: latency_ms.mean is ") && told[0].ends_with("for seed 7: errors of seeds cancel out."),
        "{told:?}"
    );
    // Of one seed there is nothing to tell.
    let one = Validation::new("one", LIMITS, &one(110_000, &[99_000, 100_000]));
    assert!(one.cancelling().is_empty() && one.comparisons[0].figures.iter().all(|of| of.worst_seed.is_none()));
}

#[test]
fn without_limits_there_is_no_verdict() {
    let validation = Validation::new("free", Limits::default(), &runs());
    assert_eq!(validation.verdict, None);
    assert_eq!(validation.comparisons.len(), 2);
}

#[test]
fn service_classes_have_figures_of_their_own() {
    let mut runs = one(110_000, &[100_000]);
    assert!(
        Validation::new("none", LIMITS, &runs).comparisons[0]
            .figures
            .iter()
            .all(|of| !of.figure.starts_with("classes"))
    );
    for (run, attainment) in runs.iter_mut().zip([0.9, 1.0]) {
        let class = ClassSummary {
            finished: 10,
            refused: 0,
            latency_ms: run.summary.latency_ms,
            target_ms: Some(105.0),
            attainment: Some(attainment),
        };
        run.summary.classes.insert("urgent".into(), class);
    }
    let validation = Validation::new("classes", LIMITS, &runs);
    let figures = validation.comparisons[0].figures.iter();
    let of_class = figures.filter(|of| of.figure.starts_with("classes"));
    let of_class: Vec<(&str, Option<f64>)> = of_class.map(|of| (of.figure.as_str(), of.error_percent)).collect();
    let p98 = validation.comparisons[0].figures.iter().find(|of| of.figure == "latency_ms.p98");
    let expected = [
        ("classes.urgent.latency_ms.p98", p98.unwrap().error_percent),
        ("classes.urgent.attainment", Some(-10.0)),
    ];
    assert_eq!(of_class, expected);
}

#[test]
fn what_happened_on_either_side_is_counted() {
    let mut runs = one(110_000, &[100_000]);
    let counted = |runs: &[Run]| -> Vec<(String, Option<f64>, Option<f64>)> {
        let figures = Validation::new("counts", LIMITS, runs).comparisons.remove(0).figures;
        let counts = figures
            .into_iter()
            .filter(|of| of.figure.starts_with("requests") || of.figure.starts_with("generation"));
        let mean = |spread: Option<Spread>| spread.map(|spread| spread.mean);
        counts.map(|of| (of.figure, mean(of.simulated), mean(of.executed))).collect()
    };
    for run in &mut runs {
        run.summary.requests.rejected = 0;
    }
    assert_eq!(counted(&runs), []);
    runs[1].summary.requests.cancelled = 7;
    assert_eq!(
        counted(&runs),
        [("requests.cancelled".to_owned(), Some(0.0), Some(7.0))]
    );
}

/// The figures of what was answered may all be right.
#[test]
fn requests_that_only_one_machine_answers_are_outside() {
    let with = |limits, change: fn(&mut RunSummary)| {
        let mut runs = one(100_000, &[100_000, 100_000]);
        runs[1..].iter_mut().for_each(|run| change(&mut run.summary));
        Validation::new("unanswered", limits, &runs)
    };
    let mean = Limits {
        mean: Some(0.05),
        ..Limits::default()
    };
    // Of 1,002 requests.
    let few = with(mean, |run| run.requests.failed = 10);
    assert_eq!((few.verdict, few.failures()), (Some(Verdict::Within), None));
    let many = with(mean, |run| run.requests.failed = 501);
    let row = many.comparisons[0].figures.iter().find(|of| of.figure == FAILED);
    let row = row.expect("what happened is counted");
    assert_eq!((row.error_percent, row.limit_percent), (Some(-50.0), Some(1.0)));
    assert_eq!(
        (many.verdict, row.verdict),
        (Some(Verdict::Outside), Some(Verdict::Outside))
    );
    assert!(many.is_measured());
    let words = "hmi: 501 requests failed when executed, 0 when simulated";
    assert_eq!(many.failures().as_deref(), Some(words));

    // Refusals are decisions of a policy, and nothing that broke.
    let refused = with(mean, |run| run.requests.rejected = 100);
    assert_eq!((refused.verdict, refused.failures()), (Some(Verdict::Outside), None));
    let free = with(Limits::default(), |run| run.requests.failed = 501);
    assert_eq!((free.verdict, free.failures().is_some()), (None, true));
    // So are changes of tenants and domains, of which there may be few.
    let mut changed = one(100_000, &[100_000]);
    for (run, failed) in changed.iter_mut().zip([0, 3]) {
        run.summary.management = Some(ManagementSummary {
            offered: 10,
            made: [("update-domain".to_owned(), 10 - failed)].into(),
            refused_by: Default::default(),
            failed_by: [("load_failed".to_owned(), failed)].into(),
            unfinished: 0,
            made_ms: None,
        });
    }
    let changes = Validation::new("changes", mean, &changed);
    let words = "hmi: 3 changes of tenants or domains failed when executed, 0 when simulated";
    assert_eq!(changes.failures().as_deref(), Some(words));
    assert_eq!(changes.verdict, Some(Verdict::Outside));

    // Nobody hears of what is left inside, either; who gives up does so by the clock.
    let left = with(mean, |run| run.requests.unfinished = 600);
    assert_eq!((left.verdict, left.failures()), (Some(Verdict::Outside), None));
    let few = with(mean, |run| run.requests.cancelled = 30).verdict;
    let many = with(mean, |run| run.requests.cancelled = 100).verdict;
    assert_eq!((few, many), (Some(Verdict::Within), Some(Verdict::Outside)));

    // Fewer than the simulation says: that is wrong, but nothing failed.
    let mut runs = one(100_000, &[100_000]);
    runs[0].summary.requests.failed = 100;
    let fewer = Validation::new("fewer", mean, &runs);
    assert_eq!((fewer.verdict, fewer.failures()), (Some(Verdict::Outside), None));
}

#[test]
fn what_cannot_be_judged_is_outside() {
    let idle = Run::new(labels("hmi", "cpu"), &RunRecord::default());
    let simulated = one(100_000, &[]);
    let runs = [simulated[0].clone(), idle];
    assert_eq!(
        Validation::new("idle", LIMITS, &runs).verdict,
        Some(Verdict::Outside),
        "nothing finished"
    );
    let alone = Validation::new("alone", LIMITS, &simulated);
    assert_eq!(alone.verdict, Some(Verdict::Outside), "nothing was executed");
    assert!(!alone.is_measured() && Validation::new("both", LIMITS, &one(100_000, &[100_000])).is_measured());
    assert_eq!(alone.comparisons[0].device, None);
}

proptest! {
    #[test]
    fn stages_add_up_to_the_difference(simulated in 1_000_u64..1_000_000, executed in 1_000_u64..1_000_000) {
        let validation = Validation::new("law", LIMITS, &one(simulated, &[executed]));
        let comparison = &validation.comparisons[0];
        let mean = &comparison.figures[1];
        let (simulated, executed) = (mean.simulated.unwrap().mean, mean.executed.unwrap().mean);
        let differences: f64 = comparison.stages.iter().map(|stage| stage.difference_ms).sum();
        prop_assert!((differences - (simulated - executed)).abs() <= 2e-5 * (simulated + executed));
        let points: f64 = comparison.stages.iter().map(|stage| stage.points_of_mean_error).sum();
        prop_assert!((points - mean.error_percent.unwrap()).abs() <= 4e-3 * (1.0 + simulated / executed));
    }
}

/// Of several seeds, of which one machine has run one: only that one is compared, and drawn.
#[test]
fn seeds_that_one_machine_alone_has_run_are_left_out() {
    let both = one(100_000, &[101_000]);
    let simulated = |seed, slowest_us| {
        let labels = RunLabels {
            seed,
            ..labels("hmi", VIRTUAL)
        };
        Run::new(labels, &record(1_000, Duration::from_micros(slowest_us)))
    };
    let all = [&both[..], &[simulated(8, 300_000), simulated(9, 50_000)]].concat();
    let of_all = Validation::of_stopped("seeds", LIMITS, &all);
    assert_eq!(of_all, Validation::of_stopped("seeds", LIMITS, &both));
    assert_eq!(of_all.comparisons.len(), 1);
    let seeds: Vec<u64> = of_all.compared(&all).iter().map(|run| run.summary.seed).collect();
    assert_eq!(seeds, [7, 7]);

    // Nor does a seed that was run once more weigh more than the others.
    let executed = |seed| Run {
        summary: RunSummary {
            seed,
            ..both[1].summary.clone()
        },
        ..both[1].clone()
    };
    let rounds = [&both[..], &[simulated(8, 300_000), executed(8), executed(7)]].concat();
    let seeds: Vec<u64> = of_all.compared(&rounds).iter().map(|run| run.summary.seed).collect();
    assert_eq!(seeds, [7, 7, 8, 8]);
}
