//! What cannot be had, and what is asked wrongly.

use super::plan;
use crate::common::{check_bad, folder, good_json, names, tenantry};

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
                &["check", "plan/least-cost", "--set", "plan.cards.l44=0.8"],
                2,
                &[
                    "--set: plan.cards.l44: must be a folder with a card.yaml or one of ",
                    "did you mean l4?",
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
    let of = |card: &str| options.iter().filter(|option| option["card"] == card).collect::<Vec<_>>();
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
