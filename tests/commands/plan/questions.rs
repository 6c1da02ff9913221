//! What can be asked: of closed loops, cascades, recordings, few requests, the tightest latency.

use super::{LOAD, plan};
use crate::common::{folder, good, good_json, names, said, tenantry};

/// Clients that wait for their answers: more load is more of them.
#[test]
fn a_closed_loop_is_planned() {
    let place = folder();
    let at = place.path();
    let load = "workload={arrivals: {closed-loop: {clients: 200, think_time: 5ms}}, lengths: {input: {fixed: 30}}, stop: {requests: 6000}}";
    let asked = |plan: &str| {
        let set = [load, "slo={latency: 20ms, at: p98}", plan];
        let set = set.iter().flat_map(|set| ["--set", *set]);
        let arguments: Vec<&str> = ["plan", "s.yaml", "--out", "p"].into_iter().chain(set).collect();
        good_json(at, &arguments)
    };
    let cards = asked("plan={find: fewest-cards, gpus: {from: 1, to: 16}}");
    let moves = cards["moves"].as_array().unwrap();
    assert_eq!(moves[0]["if"], "With 20 % more load (240 clients)", "{cards}");
    let tenants = asked("plan={find: most-tenants, tenants: {from: 1, to: 200}, precision: 20%}");
    let answer = tenants["answer"].as_str().unwrap();
    assert!(answer.contains(" tenants on 1 card"), "{answer}");
    // A fifth of two clients is none.
    let two = load.replace("clients: 200", "clients: 2");
    let set = [
        &two,
        "slo={latency: 1s, at: p98}",
        "plan={find: fewest-cards, gpus: [1]}",
    ];
    let set = set.iter().flat_map(|set| ["--set", *set]);
    let of_two = good_json(
        at,
        &["plan", "s.yaml", "--out", "p"].into_iter().chain(set).collect::<Vec<_>>(),
    );
    let moves = of_two["moves"].as_array().unwrap();
    assert_eq!(moves.len(), 2, "{of_two}");
    for moved in moves {
        assert_eq!(
            moved["then"], "cannot be asked: of so few clients that is none",
            "{of_two}"
        );
    }
}

/// Shipped plans for systems of other kinds, at small scale: a few numbers of cards, and as many requests as a second
/// decision needs.
#[test]
fn cascades_tasks_and_runtimes_are_planned() {
    let place = folder();
    let plan = |scenario: &str, set: &[&str]| {
        let set = set.iter().flat_map(|set| ["--set", *set]);
        let arguments: Vec<&str> = ["plan", scenario, "--out", "p"].into_iter().chain(set).collect();
        let report = good_json(place.path(), &arguments);
        let chosen = report["options"].as_array().unwrap().iter().find(|option| option["chosen"] == true);
        let chosen = chosen.unwrap_or_else(|| panic!("{report}")).clone();
        // What is found can be run, and keeps the target: over all its repeats, of which this is the first.
        let answer = good_json(place.path(), &["simulate", "p/answer.yaml"]);
        let in_time = answer["runs"][0]["slo_attainment"].as_f64().unwrap();
        assert!(in_time > 0.9, "{scenario}: {answer}");
        (report, chosen)
    };

    // Fewer cards would do for the small model alone, which is not right often enough.
    let small = [
        "workload.stop.requests=4000",
        "workload.arrivals.poisson.rate=300/s",
        "plan.gpus={from: 1, to: 12}",
        "plan.repeats=2",
    ];
    let (report, cascade) = plan("plan/cascade-or-large-model", &small);
    assert_eq!(cascade["system"], "tabi", "{report}");
    assert!(cascade["accuracy"].as_f64().unwrap() >= 0.94, "{report}");
    let alone = report["options"]
        .as_array()
        .unwrap()
        .iter()
        .find(|option| option["system"] == "small-alone")
        .unwrap();
    assert!(
        alone["verdict"].as_str().unwrap().contains("of its answers are right, and"),
        "{alone}"
    );
    assert!(
        report["answer"].as_str().unwrap().contains("of the answers are right"),
        "{report}"
    );
    let (_, any) = plan(
        "plan/cascade-or-large-model",
        &[&small[..], &["plan.min_accuracy=null"]].concat(),
    );
    assert_eq!(any["system"], "small-alone", "{any}");

    // Runtimes of the longest length alone pad every tweet to it.
    let small = [
        "workload.stop.requests=6000",
        "workload.arrivals.poisson.rate=2000/s",
        "plan.gpus={from: 1, to: 12}",
        "plan.repeats=2",
    ];
    let (report, runtimes) = plan("plan/runtimes-for-tweets", &small);
    assert_eq!(runtimes["system"], "arlo", "{report}");
    assert!(
        report["options"]
            .as_array()
            .unwrap()
            .iter()
            .all(|option| option["runs"].as_u64().unwrap() > 0 || option["gpus"] == 1)
    );

    let small = [
        "workload.stop.requests=1500",
        "plan.tenants={from: 20, to: 1000}",
        "plan.precision=20%",
        "plan.repeats=2",
    ];
    let (report, tasks) = plan("plan/tasks-on-old-cards", &small);
    assert_eq!(tasks["system"], "pets", "{report}");
}

/// A plan keeps one target: whose own are others, its notes say.
#[test]
fn classes_that_are_judged_by_anothers_target_are_told_of() {
    let place = folder();
    let told = |slo: &str| {
        let set = [
            "systems=[{preset: pets, tasks: {planning: {online: {targets: [150ms, 600ms]}}}}]",
            "workload.stop={requests: 500}",
            "plan={find: fewest-cards, gpus: [1]}",
            "sweep={}",
            slo,
        ];
        let set = set.iter().flat_map(|set| ["--set", *set]);
        let arguments: Vec<&str> = ["plan", "pets/online", "--out", "p"].into_iter().chain(set).collect();
        let said = said(place.path(), &arguments);
        let mut notes = said.lines().filter(|line| line.contains("targets of their own"));
        notes.next().map(str::to_owned).unwrap_or_default()
    };
    let note = told("slo={latency: 150ms, at: p98}");
    assert!(
        note.contains("(bulk 600\u{a0}ms)") && !note.contains("interactive"),
        "{note}"
    );
    let note = told("slo={latency: 2s, at: p98}");
    assert!(note.contains("(interactive 150\u{a0}ms, bulk 600\u{a0}ms)"), "{note}");
}

#[test]
fn without_a_section_plan_the_fewest_cards_are_found() {
    let place = folder();
    let at = place.path();
    let load = [&LOAD[..4], &["--out", "p"]].concat();
    let output = tenantry(at, &[&["plan", "s.yaml"], &load[..]].concat());
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
    assert!(
        message.contains("no section plan: looking for the fewest cards that keep the slo"),
        "{message}"
    );
    assert!(message.contains("next: tenantry simulate p/answer.yaml"), "{message}");
    // What is tried is the plan's to say.
    let swept = [
        &["plan", "s.yaml", "--set", "sweep={tenants.count: [10, 20]}"],
        &load[..],
    ]
    .concat();
    let output = tenantry(at, &swept);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && message.contains("and without its sweep, as --set 'plan="),
        "{message}"
    );
    let simulated = tenantry(at, &[&["simulate", "s.yaml"], &LOAD[..4]].concat());
    let message = String::from_utf8_lossy(&simulated.stderr);
    assert!(
        message.contains("next: tenantry plan s.yaml --set 'workload={"),
        "{message}"
    );
}

/// Other seeds bring a recording's own requests again: that is no further evidence.
#[test]
fn a_recording_is_judged_once() {
    let place = folder();
    let at = place.path();
    // So few that one run is not as sure as it should be.
    let few = ["--set", "workload.stop.requests=100"];
    good(
        at,
        &[&["trace", "generate", "s.yaml", "log.csv", "--set", LOAD[1]], &few[..]].concat(),
    );
    let load = "workload={arrivals: {trace: {path: log.csv}}, lengths: {joint: of-arrivals}}";
    let set = [load, "tenants.popularity=of-arrivals", LOAD[3], LOAD[5]];
    let set = set.iter().flat_map(|set| ["--set", *set]);
    let arguments: Vec<&str> = ["plan", "s.yaml", "--out", "p"].into_iter().chain(set).collect();
    let recorded = good_json(at, &arguments);
    let drawn = good_json(at, &plan(&[&few[..], &["--out", "q"]].concat()));
    let most_runs = |report: &serde_json::Value| {
        let runs = report["options"].as_array().unwrap().iter();
        runs.map(|option| option["runs"].as_u64().unwrap()).max().unwrap()
    };
    assert!(most_runs(&recorded) == 1 && most_runs(&drawn) > 1, "{recorded} {drawn}");
    assert!(
        recorded["notes"][0]
            .as_str()
            .unwrap()
            .contains("A decision takes one run, since other seeds bring the same requests"),
        "{recorded}"
    );
}

/// Nor is it where only how many came in each second was recorded: bursts are those of one day. What would tell more is
/// said. Of counts that are rates other seeds bring other numbers.
#[test]
fn recorded_counts_are_judged_once() {
    let place = folder();
    let at = place.path();
    std::fs::write(at.join("counts.csv"), "requests\n20\n60\n").unwrap();
    let planned = |placement: &str, out: &str| {
        let counts = format!("{{path: counts.csv, placement: {placement}}}");
        let load = format!("workload={{arrivals: {{counts: {counts}}}, lengths: {{input: {{fixed: 30}}}}}}");
        let set = [&load, LOAD[3], LOAD[5]];
        let set = set.iter().flat_map(|set| ["--set", *set]);
        let arguments: Vec<&str> = ["plan", "s.yaml", "--out", out].into_iter().chain(set).collect();
        good_json(at, &arguments)
    };
    let of_rates = planned("poisson", "q");
    assert!(
        !of_rates["notes"][0].as_str().unwrap().contains("not how another day would"),
        "{of_rates}"
    );
    let report = planned("even", "p");
    let runs = report["options"].as_array().unwrap().iter();
    assert!(
        runs.clone().count() > 0 && runs.clone().all(|option| option["runs"] == 1),
        "{report}"
    );
    let note = report["notes"][0].as_str().unwrap();
    assert!(note.contains("not how another day would"), "{report}");
    let answer = report["answer"].as_str().unwrap();
    assert!(
        answer.contains("The decision is close: a longer run (workload.stop), over more of the recording, would tell."),
        "{answer}"
    );
}

/// Fifty requests say little of a share of 98 %, and less of a queue.
#[test]
fn few_requests_are_no_certainty() {
    let place = folder();
    let few = [
        "--set",
        "workload.stop.requests=50",
        "--set",
        "plan.repeats=1",
        "--set",
        "workload.arrivals={poisson: {rate: 2000/s}}",
    ];
    let report = good_json(place.path(), &plan(&[&few[..], &["--out", "p"]].concat()));
    let sure = report["confidence"].as_f64().unwrap();
    // 1 − 0.98^50, where all are in time.
    assert!(sure < 0.64, "{report}");
    let answer = report["answer"].as_str().unwrap();
    assert!(
        answer.contains("The decision is close") && answer.contains("The run is short: requests come for"),
        "{answer}"
    );
    let long = good_json(place.path(), &plan(&["--set", "slo.latency=5ms", "--out", "p"]));
    assert!(!long["answer"].as_str().unwrap().contains("The run is short"), "{long}");
}

/// Cards that add nothing are not asked for.
#[test]
fn the_tightest_latency_takes_no_more_cards_than_it_needs() {
    let place = folder();
    let find = ["--set", "plan={find: tightest-latency, gpus: {from: 1, to: 32}}"];
    let one = [
        "--set",
        "workload.arrivals={poisson: {rate: 20/s}}",
        "--set",
        "workload.stop.requests=500",
    ];
    let report = good_json(place.path(), &plan(&[&find[..], &one, &["--out", "p"]].concat()));
    let options = report["options"].as_array().unwrap();
    let chosen = options.iter().find(|option| option["chosen"] == true).unwrap();
    // At twenty requests a second hardly any waits for another.
    assert!(chosen["gpus"].as_u64().unwrap() <= 2, "{report}");
    assert!(
        report["answer"].as_str().unwrap().contains("; more cards are less than 1 % faster; "),
        "{report}"
    );
}

/// What misses the target is no answer, however fast.
#[test]
fn the_tightest_latency_keeps_the_target_that_there_is() {
    let place = folder();
    let at = place.path();
    let asked = |gpus: &str| {
        let set = [
            "slo={latency: 24.1ms, at: p98}",
            gpus,
            "plan.cards={l4: 0.8}",
            "plan.max_cost_per_hour=null",
            "plan.choices={hbert-adapter: {batch.size-or-timeout.max_wait: [20ms]}}",
        ];
        let set = set.iter().flat_map(|set| ["--set", *set]);
        let arguments: Vec<&str> =
            ["plan", "plan/tightest-latency", "--out", "p", "--json"].into_iter().chain(set).collect();
        let output = tenantry(at, &arguments);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), report)
    };
    let (code, report) = asked("plan.gpus=[1]");
    assert_eq!((code, &report["feasible"]), (Some(3), &false.into()), "{report}");
    let (code, report) = asked("plan.gpus=[1, 2, 4, 8]");
    assert_eq!(code, Some(0), "{report}");
    let chosen = &report["options"][0];
    assert!(
        chosen["gpus"].as_u64().unwrap() > 1 && chosen["within"].as_f64().unwrap() >= 0.98,
        "{report}"
    );
    let answer = report["answer"].as_str().unwrap();
    assert!(
        answer.contains(" and keeps 98 % of the requests within 24.1\u{a0}ms ("),
        "{answer}"
    );
    let has_answer = || names(&at.join("p")).contains(&"answer.yaml".to_owned());
    assert!(has_answer());
    asked("plan.gpus=[1]");
    assert!(!has_answer(), "another plan's would be taken for this one's");
}

/// The latency in the table is what a simulation of the answer reads off all its requests.
#[test]
fn the_latency_is_that_of_all_requests() {
    let place = folder();
    let at = place.path();
    let report = good_json(at, &plan(&["--set", "plan.repeats=1", "--out", "p"]));
    let options = report["options"].as_array().unwrap();
    let chosen = options.iter().find(|option| option["chosen"] == true).unwrap();
    let simulated = good_json(at, &["simulate", "p/answer.yaml"]);
    assert_eq!(
        chosen["latency_ms"], simulated["runs"][0]["latency_ms"]["p98"],
        "{report}"
    );
}
