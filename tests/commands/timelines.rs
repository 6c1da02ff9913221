//! The `timeline.json` of a run.

use std::collections::BTreeMap;

use crate::common::{folder, good};
use crate::recording::json;
use serde_json::Value;

/// The complete events of a process in a `timeline.json`: lane, start and duration in microseconds.
pub fn ops(timeline: &Value, process: u64) -> Vec<(String, f64, f64)> {
    let events = timeline["traceEvents"].as_array().unwrap();
    let of_process = || events.iter().filter(|event| event["pid"] == process);
    let names: BTreeMap<u64, String> = of_process()
        .filter(|event| event["name"] == "thread_name")
        .map(|event| {
            (
                event["tid"].as_u64().unwrap(),
                event["args"]["name"].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    of_process()
        .filter(|event| event["ph"] == "X")
        .map(|event| {
            let number = |key: &str| event[key].as_f64().unwrap();
            assert!(event["args"]["requests"].as_u64().unwrap() > 0 && !event["name"].as_str().unwrap().is_empty());
            (
                names[&event["tid"].as_u64().unwrap()].clone(),
                number("ts"),
                number("dur"),
            )
        })
        .collect()
}

#[test]
fn a_timeline_of_a_whole_run_adds_up_to_how_busy_its_lanes_were() {
    let folder = folder();
    good(
        folder.path(),
        &["simulate", "s.yaml", "--timeline=0s..1h", "--out", "out"],
    );
    let timeline = json(&folder.path().join("out/timeline.json"));
    let summary = json(&folder.path().join("out/summary.json"));
    for (process, run) in (1..).zip(summary["runs"].as_array().unwrap()) {
        let ops = ops(&timeline, process);
        let duration_us = run["duration_s"].as_f64().unwrap() * 1e6;
        for (lane, said) in run["lanes"].as_object().unwrap() {
            let on_lane: Vec<_> = ops.iter().filter(|op| op.0 == *lane).collect();
            let busy_us: f64 = on_lane.iter().map(|op| op.2).sum();
            let said = said["busy_share"].as_f64().unwrap();
            assert!(
                (busy_us / duration_us - said).abs() < 1e-4,
                "{lane}: {busy_us} µs against {said}"
            );
            let mut sorted: Vec<_> = on_lane.iter().map(|op| (op.1, op.2)).collect();
            sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
            for pair in sorted.windows(2) {
                assert!(
                    pair[0].0 + pair[0].1 <= pair[1].0 + 2e-3,
                    "ops of a lane follow each other: {pair:?}"
                );
            }
        }
        assert!(ops.iter().any(|op| op.0.contains("compute")));
    }
}

#[test]
fn a_timeline_holds_its_window_and_begins_after_the_warm_up() {
    let folder = folder();
    let run = |flag: &str, out: &str| {
        good(
            folder.path(),
            &[
                "simulate",
                "s.yaml",
                flag,
                "--out",
                out,
                "--set",
                "workload.warm_up=500ms",
            ],
        );
        ops(&json(&folder.path().join(out).join("timeline.json")), 1)
    };
    for (flag, out, window) in [
        ("--timeline", "a", 500e3..2_500e3),
        ("--timeline=1s..1500ms", "b", 1_000e3..1_500e3),
    ] {
        let ops = run(flag, out);
        assert!(!ops.is_empty(), "{flag}");
        assert!(
            ops.iter().all(|op| op.1 + op.2 > window.start && op.1 < window.end),
            "{flag}"
        );
    }
}

#[test]
fn a_timeline_of_a_window_in_which_nothing_ran_is_said() {
    let folder = folder();
    let at = folder.path();
    let told = |window: &str| {
        good(at, &["simulate", "s.yaml", window, "--out", "out"]);
        let caveats = json(&at.join("out/manifest.json"))["caveats"].clone();
        let caveats: Vec<String> = serde_json::from_value(caveats).unwrap();
        let of_timeline = caveats.into_iter().filter(|caveat| caveat.contains("timeline.json"));
        of_timeline.collect::<Vec<_>>()
    };
    assert_eq!(
        told("--timeline=1000s..2000s"),
        ["timeline.json has no ops: none of any run ran in its window, from 1000 to 2000 s."]
    );
    assert!(told("--timeline=0s..2000s").is_empty());
}
