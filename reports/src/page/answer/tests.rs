use tenantry_traces::Duration;

use super::*;
use crate::curves::Run;
use crate::testing::{labels, record};

fn run(system: &str, slowest_ms: u64) -> Run {
    Run::new(
        labels(system, "virtual"),
        &record(100, Duration::from_millis(slowest_ms)),
    )
}

fn at(system: &str, tenants: u64, slowest_ms: u64) -> Run {
    let mut run = run(system, slowest_ms);
    run.summary.parameters.insert("tenants.count".into(), tenants.into());
    run
}

fn said(runs: &[Run]) -> (String, Vec<String>) {
    let groups = Group::all(runs);
    let compared = Compared::new(&groups);
    let each = answers(&compared).into_iter().map(|answer| format!("{} {}", answer.title, answer.text));
    (
        overall(&compared).unwrap_or_default().replace('\u{a0}', " "),
        each.map(|text| text.replace('\u{a0}', " ")).collect(),
    )
}

#[test]
fn the_answer_names_who_meets_the_target() {
    // Two of each hundred and two were rejected, so that the share in time is just above 98 % at best.
    let (all, each) = said(&[run("slow", 900), run("fast", 100)]);
    assert_eq!(all, "Only fast meets the target of 150 ms at p98.", "{each:?}");
    let (all, _) = said(&[run("a", 140), run("b", 100)]);
    assert!(
        all.starts_with("All 2 systems meet the target of 150 ms at p98: b answers fastest"),
        "{all}"
    );
    let (all, _) = said(&[run("a", 900), run("b", 800)]);
    assert!(
        all.contains("None of the 2 systems") && all.contains("b comes closest"),
        "{all}"
    );
    assert_eq!(said(&[run("alone", 900)]).0, "");
}

#[test]
fn a_sweep_says_how_far_the_target_is_met() {
    let runs = [
        at("a", 10, 100),
        at("a", 100, 120),
        at("a", 1000, 900),
        at("b", 10, 900),
        at("b", 100, 900),
        at("b", 1000, 900),
    ];
    let (all, each) = said(&runs);
    assert_eq!(
        all,
        "a meets its target at 2 of 3 sweep points, more than any other system."
    );
    assert!(
        each[0].contains("at 2 of 3 sweep points, up to tenants.count 100; p98 lies between"),
        "{each:?}"
    );
    assert!(
        each[1].contains("misses its target of 150 ms at p98 at all 3 sweep points"),
        "{each:?}"
    );
}

fn repeats(system: &str, slowest_ms: &[u64]) -> Vec<Run> {
    let repeats = slowest_ms.iter().zip(0..).map(|(&slowest_ms, repeat)| {
        let mut run = run(system, slowest_ms);
        run.summary.repeat = repeat;
        run
    });
    repeats.collect()
}

fn swept(tenants: u64, runs: Vec<Run>) -> Vec<Run> {
    let at = |mut run: Run| {
        run.summary.parameters.insert("tenants.count".into(), tenants.into());
        run
    };
    runs.into_iter().map(at).collect()
}

/// A run of which nothing counts.
fn unjudged(mut run: Run) -> Run {
    run.summary.slo.as_mut().unwrap().met = None;
    run.summary.slo_attainment = None;
    run.summary.latency_ms = None;
    run
}

#[test]
fn repeats_that_disagree_are_neither_met_nor_missed() {
    let (all, each) = said(&[repeats("a", &[100, 110, 900]), repeats("b", &[900, 900, 900])].concat());
    assert!(
        all.starts_with(
            "None of the 2 systems meets the target of 150 ms at p98 in every repeat; a comes closest, in 2 of 3 \
             repeats"
        ),
        "{all}"
    );
    assert!(
        each[0].starts_with("a meets its target of 150 ms at p98 in only 2 of 3 repeats: p98 is"),
        "{each:?}"
    );
    assert!(each[0].contains("; 6 rejected in all repeats."), "{each:?}");
    let sweep = |second: &[u64]| {
        let a = [swept(10, repeats("a", &[100, 900])), swept(100, repeats("a", second))].concat();
        said(&a).1.remove(0)
    };
    let never = sweep(&[100, 900]);
    assert!(
        never.starts_with("a meets its target of 150 ms at p98 only in some repeats, at 2 of 2 sweep points; p98"),
        "{never}"
    );
    let partly = sweep(&[100, 120]);
    assert!(
        partly.contains("at 1 of 2 sweep points, from tenants.count 100, and in some repeats at 1 more; p98"),
        "{partly}"
    );
}

#[test]
fn repeats_that_nobody_judged_are_not_missed() {
    let mut runs = repeats("a", &[100, 100, 100, 100, 100]);
    for repeat in [1, 4] {
        runs[repeat] = unjudged(runs[repeat].clone());
    }
    let (_, each) = said(&runs);
    assert!(
        each[0].starts_with("a meets its target of 150 ms at p98: p98"),
        "{each:?}"
    );
    assert!(each[0].contains("; 2 repeats more are not judged"), "{each:?}");
}

#[test]
fn any_quantile_is_told_over_a_sweep() {
    let mut runs = [at("a", 10, 100), at("a", 100, 120)];
    for run in &mut runs {
        run.summary.slo.as_mut().unwrap().at = "p75".into();
    }
    let each = said(&runs).1;
    assert!(
        each[0].contains("; p75 lies between 75.") && each[0].contains("and 90."),
        "{each:?}"
    );
    for run in &mut runs {
        run.curves.latency_ms.clear();
    }
    let each = said(&runs).1;
    assert!(
        each[0].contains("; p98 lies between"),
        "without what is drawn: {each:?}"
    );
}

/// Whole answers, about which there is no target, are not what a verdict is beside.
#[test]
fn over_a_sweep_what_is_limited_is_told() {
    let mut runs = [at("a", 10, 2000), at("a", 100, 2500)];
    for (run, ttft_ms) in runs.iter_mut().zip([40, 50]) {
        let part = |slowest_ms| self::run("a", slowest_ms).summary.latency_ms;
        (run.summary.ttft_ms, run.summary.tpot_ms) = (part(ttft_ms), part(20));
        let slo = run.summary.slo.as_mut().unwrap();
        (slo.at, slo.latency_ms, slo.ttft_ms) = ("p90".into(), None, Some(1000.0));
    }
    let tail = |runs: &[Run]| said(runs).1[0].split_once("points; ").unwrap().1.to_owned();
    assert_eq!(
        tail(&runs),
        "p90 of the first token lies between 36.0 ms and 45.0 ms; 4 rejected."
    );
    for run in &mut runs {
        run.summary.slo.as_mut().unwrap().tpot_ms = Some(18.002);
    }
    let both = tail(&runs);
    assert!(
        both.starts_with("p90 of the first token lies between 36.0 ms and 45.0 ms, of each further one is 18.0"),
        "{both}"
    );
    runs[0].summary.tpot_ms = runs[0].summary.ttft_ms;
    let both = tail(&runs);
    assert!(
        both.contains(" and 45.0 ms, of each further one between 18.0"),
        "{both}"
    );
    for run in &mut runs {
        (run.summary.ttft_ms, run.summary.tpot_ms) = (None, None);
    }
    assert!(tail(&runs).starts_with("no answer has what the target limits"));
}

/// Who is not judged neither meets nor misses, and does not go without saying.
#[test]
fn a_verdict_on_some_says_of_how_many() {
    let idle = ["c", "d"].map(|system| unjudged(run(system, 100)));
    let all = |judged: &[Run]| said(&[judged, &idle].concat()).0;
    assert!(
        all(&[run("a", 140), run("b", 100)])
            .starts_with("All 2 systems that are judged (of 4) meet the target of 150 ms at p98: b answers fastest"),
    );
    assert!(
        all(&[run("a", 140), run("b", 100), run("e", 900)])
            .starts_with("2 of 3 systems that are judged (of 5) meet the target of 150 ms at p98: ")
    );
    assert_eq!(
        all(&[run("a", 140), run("b", 900)]),
        "Of the 2 systems that are judged (of 4), only a meets the target of 150 ms at p98."
    );
    assert!(
        all(&[run("a", 800), run("b", 900)])
            .starts_with("None of the 2 systems that are judged (of 4) meets the target of 150 ms at p98; a comes")
    );
    assert_eq!(
        all(&[run("a", 100)]),
        "Only a is judged, of 3 systems: it meets the target of 150 ms at p98."
    );
    assert_eq!(
        all(&repeats("a", &[100, 900])),
        "Only a is judged, of 3 systems: it does not meet the target of 150 ms at p98 in every repeat."
    );
    let swept = |a_ms, b_ms| {
        let points = [10, 100].map(|tenants| {
            [
                at("a", tenants, a_ms),
                at("b", tenants, b_ms),
                unjudged(at("c", tenants, 1)),
            ]
        });
        said(&points.concat()).0
    };
    assert_eq!(
        swept(100, 100),
        "All 2 systems that are judged (of 3) meet their targets at all 2 sweep points."
    );
    assert_eq!(
        swept(900, 900),
        "None of the 2 systems that are judged (of 3) meets its target at any sweep point."
    );
    assert_eq!(
        swept(100, 900),
        "Of the 2 systems that are judged (of 3), only a meets its target at all 2 sweep points."
    );
    let alone = [10, 100].map(|tenants| [at("a", tenants, 10 * tenants), unjudged(at("c", tenants, 1))]);
    assert_eq!(
        said(&alone.concat()).0,
        "Only a is judged, of 2 systems: it meets its target at 1 of 2 sweep points."
    );
}

#[test]
fn systems_are_compared_where_each_of_them_is_judged() {
    let few = [at("a", 10, 100), at("a", 100, 100)];
    let many = [10, 100, 1000, 2000].map(|tenants| at("b", tenants, if tenants < 1000 { 100 } else { 900 }));
    let (all, each) = said(&[&few[..], &many].concat());
    assert_eq!(
        all,
        "All 2 systems meet their targets at all 2 sweep points at which every system is judged."
    );
    assert!(each[1].contains("at 2 of 4 sweep points"), "{each:?}");
    let apart = [&many[..], &[run("a", 100), run("c", 900)]].concat();
    assert_eq!(said(&apart).0, "", "no point is everybody's");
}

#[test]
fn all_that_come_closest_alike_are_named() {
    let (all, _) = said(&[run("a", 900), run("b", 900), run("c", 2000)]);
    assert!(all.contains("a and b come closest, each with"), "{all}");
    let late = |system: &str| {
        let mut run = run(system, 900);
        run.summary.slo_attainment = Some(0.0);
        run
    };
    assert_eq!(
        said(&[late("a"), late("b")]).0,
        "None of the 2 systems meets the target of 150 ms at p98; none has any request in time."
    );
}

#[test]
fn who_turns_requests_away_does_not_answer_fastest() {
    let without_target = |mut run: Run| {
        run.summary.slo = None;
        run.summary.slo_attainment = None;
        run
    };
    let mut refuses = without_target(run("turns-away", 10));
    refuses.summary.requests.offered *= 10;
    let (all, _) = said(&[refuses.clone(), without_target(run("answers", 900))]);
    assert!(
        all.starts_with("answers answers fastest of those that answer 98 % of their requests (p98 8"),
        "{all}"
    );
    let other = RunSummary {
        system: "too".into(),
        ..refuses.summary.clone()
    };
    let (all, _) = said(&[
        refuses.clone(),
        Run {
            summary: other,
            ..refuses
        },
    ]);
    assert_eq!(all, "no system answers 98 % of its requests.");
}

#[test]
fn what_misses_by_little_does_not_look_met() {
    let mut near = run("near", 150);
    near.summary.slo.as_mut().unwrap().latency_ms = Some(22.5368);
    near.summary.slo.as_mut().unwrap().met = Some(false);
    near.summary.slo_attainment = Some(0.979824);
    near.summary.latency_ms.as_mut().unwrap().p98 = 22.5444;
    let (_, each) = said(&[near]);
    assert!(
        each[0].starts_with("near misses its target of 22.5368 ms at p98: p98 is 22.544 ms, 97.98 % of requests"),
        "{each:?}"
    );
}
