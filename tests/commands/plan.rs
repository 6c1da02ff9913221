//! The command `plan`: its files, its exit codes.

use std::fs;

use crate::common::{check_bad, folder, good, good_json, names, tenantry};

const PLAN: &str = "plan={find: fewest-cards, gpus: {from: 1, to: 8}}";
const LOAD: [&str; 6] = [
    "--set",
    "workload={arrivals: {poisson: {rate: 20000/s}}, lengths: {input: {fixed: 30}}, stop: {requests: 4000}}",
    "--set",
    "slo={latency: 50ms, at: p98}",
    "--set",
    PLAN,
];

fn plan<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["plan", "s.yaml"], &LOAD[..], more].concat()
}

#[test]
fn a_plan_leaves_an_answer_that_can_be_simulated() {
    let place = folder();
    let at = place.path();
    let report = good_json(at, &plan(&["--out", "p"]));
    assert_eq!(report["feasible"], true, "{report}");
    assert_eq!(
        names(&at.join("p")),
        ["answer.yaml", "manifest.json", "plan.html", "plan.json"]
    );
    let file: serde_json::Value = serde_json::from_slice(&fs::read(at.join("p/plan.json")).unwrap()).unwrap();
    assert_eq!(file, report);
    let simulated = good_json(at, &["simulate", "p/answer.yaml"]);
    assert_eq!(simulated["runs"].as_array().unwrap().len(), 1);
    assert_eq!(simulated["runs"][0]["slo"]["met"], true);

    let page = fs::read_to_string(at.join("p/plan.html")).unwrap();
    let answer = report["answer"]
        .as_str()
        .unwrap()
        .replace('>', "&gt;")
        .replace('/', "&#x2f;");
    assert!(page.contains(&answer), "{answer}");
    assert!(!page.contains("http://") && !page.contains("src=\"http"));
    let text = good(at, &plan(&["--out", "p"]));
    assert!(text.starts_with(report["answer"].as_str().unwrap()), "{text}");
}

/// The scenario that a plan writes is what the real machine runs.
#[cfg(feature = "libtorch")]
#[test]
fn an_answer_is_executed() {
    let place = folder();
    let at = place.path();
    let load = "workload={arrivals: {poisson: {rate: 100/s}}, lengths: {input: {fixed: 30}}, stop: {requests: 60}}";
    good(
        at,
        &[
            "plan", "s.yaml", "--set", load, "--set", LOAD[3], "--set", LOAD[5], "--out", "p",
        ],
    );
    let executed = good_json(at, &["execute", "p/answer.yaml", "--device", "cpu"]);
    let runs = executed["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 1);
    assert_eq!(
        (&runs[0]["requests"]["finished"], &runs[0]["machine"]),
        (&60.into(), &"cpu".into())
    );
    assert_eq!(runs[0]["slo"]["latency_ms"], 50.0);
}

/// A plan says of its card's tables at least what a simulation of its answer says.
#[test]
fn what_prices_rest_on_is_said_beside_the_answer() {
    let place = folder();
    let at = place.path();
    good(at, &["plan", "plan/fewest-cards", "--out", "p"]);
    good(at, &["simulate", "p/answer.yaml", "--out", "a"]);
    let caveats = |run: &str| -> Vec<String> {
        let manifest = fs::read(at.join(run).join("manifest.json")).unwrap();
        let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
        serde_json::from_value(manifest["caveats"].clone()).unwrap()
    };
    let (planned, simulated) = (caveats("p"), caveats("a"));
    let mut tables = 0;
    for caveat in &simulated {
        let Some((origin, list)) = caveat.rsplit_once("): ").filter(|_| caveat.starts_with("Card ")) else {
            continue;
        };
        for table in list.trim_end_matches('.').split("; ") {
            let is_said = |caveat: &String| caveat.starts_with(origin) && caveat.contains(table);
            assert!(planned.iter().any(is_said), "{origin}: {table} is not in {planned:#?}");
            tables += 1;
        }
    }
    let is_beyond = |caveats: &[String]| caveats.iter().any(|caveat| caveat.starts_with("Costs beyond"));
    assert!(
        tables > 0 && is_beyond(&planned) >= is_beyond(&simulated),
        "{simulated:#?}"
    );
    assert!(
        planned
            .iter()
            .any(|caveat| caveat.starts_with("How sure an answer is takes"))
    );
    let page = fs::read_to_string(at.join("p/plan.html")).unwrap();
    assert!(page.contains("How sure an answer is takes"));
}

/// Whoever runs the answer may be in another folder than who planned: its recording and its card are found all the same.
#[test]
fn an_answer_is_run_from_any_folder() {
    let place = folder();
    let at = place.path();
    let data = at.join("data");
    let deep = at.join("deep/er");
    fs::create_dir_all(&data).unwrap();
    fs::create_dir_all(&deep).unwrap();
    good(at, &["trace", "generate", "s.yaml", "data/log.csv", "--set", LOAD[1]]);
    let load = "workload={arrivals: {trace: {path: ../data/./log.csv}}, lengths: {joint: of-arrivals}}";
    let set = [load, LOAD[3], LOAD[5], "card=../card", "prices={../card: 0.5}"];
    let set = set.iter().flat_map(|set| ["--set", *set]);
    let arguments: Vec<&str> = ["plan", "../s.yaml", "--out", "../p"].into_iter().chain(set).collect();
    let report = good_json(&data, &arguments);
    let from_there = good_json(&data, &["simulate", "../p/answer.yaml", "--out", "a"]);
    let from_elsewhere = good_json(&deep, &["simulate", "../../p/answer.yaml", "--out", "b"]);
    assert_eq!(from_there, from_elsewhere);
    let cost = &from_elsewhere["runs"][0]["cost_per_million_requests"];
    assert!(
        cost.as_f64().unwrap() > 0.0 && report["feasible"] == true,
        "{from_elsewhere}"
    );

    // A card that comes with the program is called by its name; one of one's own under profiles/cards is not everywhere.
    let card_of = |card: &str, dtype: &str| {
        good(
            at,
            &[
                "plan",
                "plan/highest-rate",
                "--out",
                "q",
                "--set",
                &format!("card={card}"),
                "--set",
                "workload.stop.requests=200",
                "--set",
                &format!("systems=[{{preset: bert-shared, dtype: {dtype}}}]"),
                "--set",
                "plan.precision=90%",
                "--set",
                "slo.latency=10s",
            ],
        );
        let answer: serde_yaml::Value = serde_yaml::from_slice(&fs::read(at.join("q/answer.yaml")).unwrap()).unwrap();
        answer["card"].as_str().unwrap().to_owned()
    };
    fs::create_dir_all(at.join("profiles/cards")).unwrap();
    fs::rename(at.join("card"), at.join("profiles/cards/own")).unwrap();
    assert_eq!(card_of("a100-sxm", "f16"), "a100-sxm");
    let own = card_of("own", "f32");
    assert!(own.starts_with('/') && own.ends_with("/profiles/cards/own"), "{own}");
}

/// A budget buys fewer cards when they cost more: that moves the answer though prices rank nothing.
#[test]
fn prices_move_what_a_budget_buys() {
    let place = folder();
    let find = "plan={find: highest-rate, load: {from: 0.1, to: 20}, precision: 10%, gpus: [1, 2, 4], cards: {./card: 1}, \
                max_cost_per_hour: 4}";
    let report = good_json(place.path(), &plan(&["--set", find, "--out", "p"]));
    let answer = report["answer"].as_str().unwrap();
    assert!(answer.contains(" on 4 cards of ./card "), "{answer}");
    let moves: Vec<(&str, &str)> = report["moves"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["if"].as_str().unwrap(), one["then"].as_str().unwrap()))
        .collect();
    assert_eq!(moves.len(), 2, "{report}");
    assert_eq!(moves[0].0, "If ./card costs 20 % more");
    assert!(moves[0].1.contains(" on 2 cards of ./card "), "{moves:?}");
    assert_eq!(moves[1], ("If ./card costs 20 % less", "the same"));
}

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
    assert_eq!(moves[0]["if"], "With 20 % more load", "{cards}");
    let tenants = asked("plan={find: most-tenants, tenants: {from: 1, to: 200}, precision: 20%}");
    let answer = tenants["answer"].as_str().unwrap();
    assert!(answer.contains(" tenants on 1 card"), "{answer}");
}

#[test]
fn what_cannot_be_had_ends_with_3_and_the_nearest() {
    let place = folder();
    let at = place.path();
    let output = tenantry(at, &plan(&["--set", "slo.latency=50us", "--out", "p"]));
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{message}");
    assert!(
        message.contains("limit not met: Nothing that was tried keeps 98 % of the requests within"),
        "{message}"
    );
    assert!(message.contains("Nearest: "), "{message}");
    assert_eq!(names(&at.join("p")), ["manifest.json", "plan.html", "plan.json"]);
}

#[test]
fn mistakes_are_said() {
    let place = folder();
    check_bad(
        place.path(),
        &[
            (
                &["plan", "s.yaml"],
                2,
                &["s.yaml: must have a section plan, or at least an slo, got neither"],
            ),
            (
                &["plan", "s.yaml", "--set", "plan={find: fewest-cards, gpus: [1]}"],
                2,
                &["slo: must be given"],
            ),
            (
                &[
                    "plan",
                    "s.yaml",
                    "--set",
                    "slo={latency: 50ms, at: p98}",
                    "--set",
                    "plan={find: fewest-cards, gpus: [1], choices: {bert-shared: {bacth: [1]}}}",
                ],
                2,
                &[
                    "--set: plan.choices.bert-shared.bacth: must be one of preset,",
                    "did you mean batch?",
                ],
            ),
            (
                &[
                    "plan",
                    "s.yaml",
                    "--set",
                    "plan={find: tightest-latency, cards: [l4, h100-sxn]}",
                ],
                2,
                &[
                    "--set: plan.cards[1]: must be a folder with a card.yaml or one of ",
                    "got h100-sxn; did you mean h100-sxm?",
                ],
            ),
            (
                &[
                    "plan",
                    "s.yaml",
                    "--set",
                    "prices.l4=2",
                    "--set",
                    "plan={find: tightest-latency, cards: [l4], gpus: [4], max_cost_per_hour: 3}",
                ],
                2,
                &[
                    "--set: plan.max_cost_per_hour: must be enough for the fewest of plan.gpus of one of plan.cards, got 3",
                ],
            ),
        ],
    );
}

/// Shipped plans for systems of other kinds, at small scale: a few numbers of cards, and as many requests as a second decision needs.
#[test]
fn cascades_tasks_and_runtimes_are_planned() {
    let place = folder();
    let plan = |scenario: &str, set: &[&str]| {
        let set = set.iter().flat_map(|set| ["--set", *set]);
        let arguments: Vec<&str> = ["plan", scenario, "--out", "p"].into_iter().chain(set).collect();
        let report = good_json(place.path(), &arguments);
        let chosen = report["options"]
            .as_array()
            .unwrap()
            .iter()
            .find(|option| option["chosen"] == true);
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
        alone["verdict"]
            .as_str()
            .unwrap()
            .contains("of its answers are right, and"),
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

#[test]
fn what_a_card_lacks_and_what_a_system_lacks_is_said() {
    let place = folder();
    let at = place.path();
    // An imported card without compiled runtimes is no option, and the other one is.
    let cards = "plan.cards={paper-rtx3090: 0.3, l4: 0.8}";
    let find = "plan.find=least-cost";
    let small = [
        "--set",
        "workload.stop.requests=2000",
        "--set",
        "workload.arrivals.poisson.rate=1000/s",
        "--set",
        "plan.gpus={from: 1, to: 8}",
    ];
    let arguments = [
        &[
            "plan",
            "plan/runtimes-for-tweets",
            "--set",
            cards,
            "--set",
            find,
            "--out",
            "p",
        ][..],
        &small,
    ]
    .concat();
    let report = good_json(at, &arguments);
    let options = report["options"].as_array().unwrap();
    let of = |card: &str| {
        options
            .iter()
            .filter(|option| option["card"] == card)
            .collect::<Vec<_>>()
    };
    for option in of("l4") {
        let verdict = option["verdict"].as_str().unwrap();
        assert!(
            verdict.starts_with("cannot run: system ") && verdict.contains("measure it with"),
            "{option}"
        );
    }
    assert!(
        of("paper-rtx3090").iter().any(|option| option["chosen"] == true),
        "{report}"
    );
    let chosen = options.iter().find(|option| option["chosen"] == true).unwrap();
    let per_hour = chosen["cost_per_hour"].as_f64().unwrap();
    let per_million = chosen["cost_per_million_requests"].as_f64().unwrap();
    let rate = chosen["offered_rps"].as_f64().unwrap();
    assert!(
        (per_million - per_hour / 3600.0 / rate * 1e6).abs() < 1e-4 * per_million,
        "{chosen}"
    );
    // The answer's own run reckons alike, by what was answered.
    let answer = good_json(at, &["simulate", "p/answer.yaml"]);
    let simulated = answer["runs"][0]["cost_per_million_requests"].as_f64().unwrap();
    let answered = answer["runs"][0]["throughput_rps"].as_f64().unwrap();
    assert!(
        (simulated - per_hour / 3600.0 / answered * 1e6).abs() < 1e-4 * simulated,
        "{answer}"
    );

    // Runtimes have no batches to choose among.
    let choices = "plan.choices={arlo: {batch: [{size-or-timeout: {max_size: 8, max_wait: 5ms}}]}}";
    let output = tenantry(at, &["plan", "plan/runtimes-for-tweets", "--set", choices]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(
        message.contains(
            "--set: plan.choices.arlo.batch[0]: must be left out where there are runtimes, each of which serves one request at a time"
        ),
        "{message}"
    );
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

#[test]
fn kinds_of_cards_need_prices_only_where_costs_are_compared() {
    let place = folder();
    let at = place.path();
    let small = ["--set", "workload.stop.requests=6000", "--set", "workload.warm_up=0s"];
    let asked = |set: &[&str]| {
        let set = set.iter().flat_map(|set| ["--set", *set]);
        let start = ["plan", "plan/least-cost", "--out", "p"].into_iter();
        let arguments: Vec<&str> = start.chain(set).chain(small).collect();
        good_json(at, &arguments)
    };
    let by_map = asked(&["plan.cards={l4: 0.8, t4: 0.55}"]);
    let by_list = asked(&["plan.cards=[l4, t4]", "prices={l4: 0.8, t4: 0.55, v100: 0.1}"]);
    let by_prices = asked(&["plan.cards=null", "prices={l4: 0.8, t4: 0.55}"]);
    assert_eq!((&by_list, &by_prices), (&by_map, &by_map));
    let any = asked(&["plan.cards=[l4, t4]", "plan.find=fewest-cards"]);
    let options = any["options"].as_array().unwrap();
    assert!(
        options.len() == 2 && options.iter().all(|option| option["cost_per_hour"].is_null()),
        "{any}"
    );
    check_bad(
        at,
        &[(
            &["plan", "plan/least-cost", "--set", "plan.cards=[l4, t4]"],
            2,
            &[
                "plan.cards: must be given with what each card costs an hour, as in cards: {l4: 0.8}",
                "got no price of l4, t4",
            ],
        )],
    );
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
        report["answer"]
            .as_str()
            .unwrap()
            .contains("; more cards are less than 1 % faster; "),
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
        let arguments: Vec<&str> = ["plan", "plan/tightest-latency", "--out", "p", "--json"]
            .into_iter()
            .chain(set)
            .collect();
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

/// Each scarcity made by hand is the one that is named; and more of it makes a better answer.
#[test]
fn what_is_made_scarce_is_what_binds() {
    let place = folder();
    let at = place.path();
    let asked = |scenario: &str, set: &[&str]| {
        let set = set.iter().flat_map(|set| ["--set", *set]);
        let arguments: Vec<&str> = ["plan", scenario, "--out", "p"].into_iter().chain(set).collect();
        let report = good_json(at, &arguments);
        let chosen = report["options"].as_array().unwrap().iter();
        let chosen = chosen.into_iter().find(|option| option["chosen"] == true).unwrap();
        let (binds, rate) = (&report["binds"], chosen["offered_rps"].as_f64().unwrap());
        let (what, sentence) = (binds["what"].as_str().unwrap(), binds["sentence"].as_str().unwrap());
        (what.to_owned(), sentence.to_owned(), rate)
    };
    let find = "plan={find: highest-rate, load: {from: 0.01, to: 40}, precision: 5%, repeats: 2}";

    // A language model on a card with little room for key-value caches, and on one with much.
    let chats = |memory: &str| {
        let set = [
            "sweep={}",
            find,
            "systems=[{preset: punica, dtype: f16}]",
            &format!("cluster.gpu_memory={memory}"),
        ];
        asked("gallery/assistants-one-card-many-loras", &set)
    };
    let [little, much] = ["20GiB", "70GiB"].map(chats);
    assert_eq!(
        (little.0.as_str(), much.0.as_str()),
        ("memory", "compute"),
        "{little:?} {much:?}"
    );
    assert!(much.2 > 2.0 * little.2, "{little:?} {much:?}");

    // Whole models for ten thousand tenants have to be copied all the time; were they all there, the card would compute.
    let models = |tenants: &str| {
        let set = [
            find,
            "systems=[{preset: bert-dedicated, dtype: f16}]",
            "tenants.popularity=uniform",
            "workload.stop.requests=8000",
            tenants,
        ];
        asked("plan/highest-rate", &set)
    };
    let [many, few] = ["tenants.count=10000", "tenants.count=20"].map(models);
    assert_eq!(
        (many.0.as_str(), few.0.as_str()),
        ("link", "compute"),
        "{many:?} {few:?}"
    );
    assert!(
        many.1.contains("more memory would relieve it too") && few.2 > 2.0 * many.2,
        "{many:?} {few:?}"
    );

    // One layer above a table on the disk hardly computes.
    let table = |tier: &str, lower: u32| {
        let plot = format!(
            "{{lower_layers: {lower}, fragment_tokens: 3, threads: 1, tier: {tier}, domain_hits: 0%, fallbacks: 0%}}"
        );
        let set = [
            "sweep={}",
            find,
            &format!("systems=[{{preset: hmi, plot: {plot}}}]"),
            "workload.stop.after=20s",
        ];
        asked("gallery/table-in-memory-or-on-disk", &set)
    };
    let [disk, half] = [table("disk", 11), table("memory", 6)];
    assert_eq!(
        (disk.0.as_str(), half.0.as_str()),
        ("host-lookup", "compute"),
        "{disk:?} {half:?}"
    );
}

/// What an interrupted plan has run it does not run again, and says the same in the end.
#[cfg(unix)]
#[test]
fn an_interrupted_plan_keeps_its_runs_and_goes_on() {
    let place = folder();
    let at = place.path();
    let load =
        "workload={arrivals: {poisson: {rate: 20000/s}}, lengths: {input: {fixed: 30}}, stop: {requests: 300000}}";
    let command = |out| {
        let set = ["--set", load, "--set", LOAD[3], "--set", LOAD[5]];
        [&["plan", "s.yaml"], &set[..], &["--out", out]].concat()
    };
    let child = std::process::Command::new(env!("CARGO_BIN_EXE_tenantry"))
        .current_dir(at)
        .args(command("p"))
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let killed = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(killed.unwrap().success());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    let kept = "of the plan are kept in p/plan.partial.json; the same command goes on with them";
    assert!(said.starts_with("interrupted: ") && said.contains(kept), "{said}");
    assert!(!said.contains("interrupted: 0 runs"), "{said}");
    assert_eq!(names(&at.join("p")), ["plan.partial.json"]);

    let output = tenantry(at, &command("p"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("were kept of this plan"),
        "{said}"
    );
    assert_eq!(
        names(&at.join("p")),
        ["answer.yaml", "manifest.json", "plan.html", "plan.json"]
    );
    good(at, &command("whole"));
    let of = |out: &str| fs::read_to_string(at.join(out).join("plan.json")).unwrap();
    assert_eq!(of("p"), of("whole"));
}
