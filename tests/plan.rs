//! The command `plan`: its files, its exit codes.

mod common;

use std::fs;

use common::{check_bad, folder, good, good_json, names, tenantry};

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
            (&["plan", "s.yaml"], 2, &["s.yaml: must have a section plan, got none"]),
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
                &["systems[0].bacth", "did you mean batch?"],
            ),
        ],
    );
}
