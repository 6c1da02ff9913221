//! What a run writes down beside its figures: `requests.parquet`, and its requests as a trace; `timelines.rs` has
//! `timeline.json`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::common::requests::{Cells, rows, text, whole};
use crate::common::{Case, check_bad, folder, good, names, tenantry};
use parquet::record::Field;
use serde_json::Value;

pub fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

const LENGTHS: &str = "workload.lengths={joint: of-arrivals}";

/// Management requests are recorded beside the requests, and replayed from the same file.
#[test]
fn recorded_management_replayed_gives_the_same_summary() {
    let folder = folder();
    let rates = "workload.management={rates: {present_at_start: 50%, create: 20/s, update: 20/s, delete: 20/s}}";
    for file in ["m.csv", "m.parquet"] {
        let args = ["simulate", "s.yaml", "--set", rates, "--record", file, "--out", "first"];
        good(folder.path(), &args);
        let first = fs::read(folder.path().join("first/summary.json")).unwrap();
        let summary = json(&folder.path().join("first/summary.json"));
        let management = &summary["runs"][0]["management"];
        assert!(management["made"]["create"].as_u64() > Some(0), "{management}");
        assert!(summary["runs"][0]["rejected_by"]["not_created"].as_u64() > Some(0));
        let arrivals = format!("workload.arrivals={{trace: {{path: {file}}}}}");
        let changes = format!("workload.management={{trace: {{path: {file}}}}}");
        let args = [
            "simulate", "s.yaml", "--out", "replay", "--set", &arrivals, "--set", &changes, "--set", LENGTHS,
        ];
        let args = [&args[..], &["--set", "tenants.popularity=of-arrivals"]].concat();
        good(folder.path(), &args);
        let replayed = fs::read(folder.path().join("replay/summary.json")).unwrap();
        assert!(first == replayed, "{file}");
    }
}

#[test]
fn a_recorded_run_replayed_gives_the_same_summary() {
    let folder = folder();
    good(
        folder.path(),
        &["simulate", "s.yaml", "--record", "r.csv", "--out", "first"],
    );
    let first = fs::read(folder.path().join("first/summary.json")).unwrap();
    for file in ["r.csv", "r.csv.gz", "r.parquet"] {
        if file != "r.csv" {
            good(
                folder.path(),
                &["simulate", "s.yaml", "--record", file, "--out", "again"],
            );
        }
        let arrivals = format!("workload.arrivals={{trace: {{path: {file}}}}}");
        let args = [
            "simulate", "s.yaml", "--out", "replay", "--set", &arrivals, "--set", LENGTHS,
        ];
        let rest = ["--set", "tenants.popularity=of-arrivals", "--set", "workload.stop={}"];
        good(folder.path(), &[&args[..], &rest[..]].concat());
        let replayed = fs::read(folder.path().join("replay/summary.json")).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&first),
            String::from_utf8_lossy(&replayed),
            "{file}"
        );
    }
}

#[test]
fn a_closed_loop_is_recorded_as_it_was_asked() {
    let folder = folder();
    let closed = [
        "--set",
        "workload.arrivals={closed-loop: {clients: 5, think_time: 3ms}}",
        "--set",
        "systems=[{preset: bert-shared}]",
    ];
    good(
        folder.path(),
        &[
            &["simulate", "s.yaml", "--record", "r.parquet", "--out", "a"],
            &closed[..],
        ]
        .concat(),
    );
    let trace = crate::common::good_json(folder.path(), &["trace", "info", "r.parquet"]);
    assert_eq!(trace[0]["requests"], 300);
    // Replayed, the same requests come at the same instants, whoever waits for them.
    let replay = [
        "simulate",
        "s.yaml",
        "--out",
        "b",
        "--set",
        "workload.arrivals={trace: {path: r.parquet}}",
        "--set",
        LENGTHS,
        "--set",
        "tenants.popularity=of-arrivals",
        "--set",
        "workload.stop={}",
        "--set",
        "systems=[{preset: bert-shared}]",
    ];
    good(folder.path(), &replay);
    let [a, b] = ["a", "b"].map(|out| json(&folder.path().join(out).join("summary.json"))["runs"][0].clone());
    assert_eq!(a["requests"], b["requests"]);
    assert_eq!(a["latency_ms"], b["latency_ms"]);
}

#[test]
fn requests_add_up_to_the_summary() {
    let folder = folder();
    let bounded = [
        "--set",
        "workload.arrivals.poisson.rate=4000/s",
        "--set",
        "workload.stop={requests: 3000}",
    ];
    good(
        folder.path(),
        &[&["simulate", "s.yaml", "--requests", "--out", "out"], &bounded[..]].concat(),
    );
    let summary = json(&folder.path().join("out/summary.json"));
    let rows = rows(&folder.path().join("out/requests.parquet"));
    for run in summary["runs"].as_array().unwrap() {
        let rows: Vec<&Cells> = rows.iter().filter(|row| text(row, "system") == run["system"].as_str()).collect();
        assert_eq!(rows.len() as u64, run["requests"]["offered"].as_u64().unwrap());
        let tickets: BTreeSet<u64> = rows.iter().map(|row| whole(row, "ticket").unwrap()).collect();
        assert_eq!(tickets.len(), rows.len(), "each once");
        for outcome in ["finished", "rejected", "failed", "cancelled", "unfinished"] {
            let count = rows.iter().filter(|row| text(row, "outcome") == Some(outcome)).count() as u64;
            assert_eq!(count, run["requests"][outcome].as_u64().unwrap(), "{outcome}");
        }
        let mut latency_ns = 0;
        let mut batches: BTreeMap<u64, u64> = BTreeMap::new();
        let finished: Vec<&&Cells> = rows.iter().filter(|row| text(row, "outcome") == Some("finished")).collect();
        for row in &finished {
            let at = |column| whole(row, column).unwrap_or_else(|| panic!("{column} of {row:?}"));
            let waits: u64 = ["queue_ns", "lane_ns", "stall_ns", "compute_ns", "tell_ns"].into_iter().map(at).sum();
            assert_eq!(at("end_ns") - at("arrival_ns"), waits, "{row:?}");
            assert_eq!(at("start_ns"), at("arrival_ns") + at("queue_ns"));
            assert!(at("input_tokens") <= 60 && at("tenant") < 20);
            assert_eq!(whole(row, "output_tokens"), None, "encoders generate nothing");
            latency_ns += waits;
            *batches.entry(at("batch")).or_default() += 1;
        }
        for row in &finished {
            assert_eq!(
                whole(row, "batch_requests"),
                Some(batches[&whole(row, "batch").unwrap()]),
                "{row:?}"
            );
        }
        let mean_ms = latency_ns as f64 / finished.len() as f64 / 1e6;
        let said = run["latency_ms"]["mean"].as_f64().unwrap();
        assert!((mean_ms / said - 1.0).abs() < 1e-5, "{mean_ms} against {said}");
    }
}

/// Where prompts are taken in apart, requests wait for a card twice: they start once, before their first token.
#[test]
fn a_request_starts_when_its_first_batch_is_handed_over() {
    let folder = folder();
    let sweep = "sweep={workload.arrivals.poisson.rate: [240/s]}";
    let args = [
        "simulate",
        "punica/tiny-apart",
        "--set",
        sweep,
        "--requests",
        "--out",
        "out",
    ];
    good(folder.path(), &args);
    let mut waited_twice = 0;
    for row in rows(&folder.path().join("out/requests.parquet")) {
        let at = |column| whole(&row, column).unwrap_or_else(|| panic!("{column} of {row:?}"));
        assert!(
            (at("arrival_ns")..at("first_token_ns")).contains(&at("start_ns")),
            "{row:?}"
        );
        waited_twice += usize::from(at("queue_ns") > at("start_ns") - at("arrival_ns"));
    }
    assert!(waited_twice > 0);
}

/// Who answered, and whether it was right, gives the summary's accuracies, the warm-up aside.
#[test]
fn rows_of_a_cascade_add_up_to_its_accuracies() {
    let folder = tempfile::tempdir().unwrap();
    let args = [
        "simulate",
        "tabi/table-2-mnli",
        "--requests",
        "--out",
        "out",
        "--set",
        "workload.stop={requests: 3000}",
    ];
    let summary = crate::common::good_json(folder.path(), &args);
    let rows = rows(&folder.path().join("out/requests.parquet"));
    let mut cascades = 0;
    for run in summary["runs"].as_array().unwrap() {
        let of_run = || rows.iter().filter(|row| text(row, "system") == run["system"].as_str());
        let cascade = &run["cascade"];
        if cascade.is_null() {
            assert!(of_run().all(|row| row["stage"] == Field::Null && row["right"] == Field::Null));
            continue;
        }
        cascades += 1;
        let right = |row: &&Cells| row["right"] == Field::Bool(true);
        let share = of_run().filter(right).count() as f64 / of_run().count() as f64;
        assert!(
            (share - cascade["accuracy"].as_f64().unwrap()).abs() < 1e-6,
            "{cascade}"
        );
        for (stage, returned) in cascade["returned_share_by_stage"].as_array().unwrap().iter().enumerate() {
            let by_stage = of_run().filter(|row| whole(row, "stage") == Some(stage as u64));
            let share = by_stage.count() as f64 / of_run().count() as f64;
            assert!((share - returned.as_f64().unwrap()).abs() < 1e-6, "{cascade}");
        }
    }
    assert!(cascades > 0);
}

#[test]
fn rows_of_rejected_requests_say_why_and_the_rest_is_null() {
    let folder = folder();
    let full = [
        "--set",
        "workload.arrivals.poisson.rate=100000/s",
        "--set",
        "workload.stop={requests: 500}",
        "--set",
        "systems=[{preset: bert-shared, admit: {bounded-queue: {max_waiting: 4}}}]",
    ];
    good(
        folder.path(),
        &[&["simulate", "s.yaml", "--requests", "--out", "out"], &full[..]].concat(),
    );
    let rows = rows(&folder.path().join("out/requests.parquet"));
    let rejected: Vec<&Cells> = rows.iter().filter(|row| text(row, "outcome") == Some("rejected")).collect();
    assert!(!rejected.is_empty());
    for row in rejected {
        assert_eq!(text(row, "reason"), Some("queue_full"));
        for column in [
            "start_ns",
            "queue_ns",
            "compute_ns",
            "batch",
            "batch_requests",
            "output_tokens",
        ] {
            assert_eq!(whole(row, column), None, "{column}");
        }
        assert!(
            whole(row, "end_ns") >= whole(row, "arrival_ns"),
            "turned away at the door, once it was looked at"
        );
    }
}

/// A model's positions end what asks for more, and both files say how much came of it.
#[test]
fn tokens_that_a_model_has_no_positions_for_are_not_counted() {
    let folder = folder();
    let set = [
        "workload.arrivals={ constant: { rate: 100/s } }",
        "workload.lengths={ input: { fixed: 40 }, output: { fixed: 5000 } }",
        "workload.stop={ requests: 3 }",
        "sweep={}",
        "systems=[{ preset: vllm-backbone, dtype: f32 }]",
    ];
    let set = set.iter().flat_map(|set| ["--set", set]);
    let first = ["simulate", "punica/tiny-two-workers", "--requests", "--out", "out"];
    let output = tenantry(folder.path(), &first.into_iter().chain(set).collect::<Vec<_>>());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("3 of 3 requests ask for more tokens than the model has positions for"),
        "{said}"
    );
    for row in rows(&folder.path().join("out/requests.parquet")) {
        assert_eq!(
            (whole(&row, "output_tokens"), whole(&row, "generated_tokens")),
            (Some(5000), Some(2048 - 40))
        );
    }
    let summary = json(&folder.path().join("out/summary.json"));
    assert_eq!(summary["runs"][0]["generation"]["shortened"], 3);
    // A later run that is not asked for them says whose they are not.
    let again = tenantry(folder.path(), &["simulate", "s.yaml", "--out", "out"]);
    assert!(again.status.success());
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(
        said.contains("requests.parquet was there before, and is not of these runs"),
        "{said}"
    );
}

#[test]
fn what_is_written_down_does_not_depend_on_the_number_of_threads() {
    let folder = folder();
    let run = |jobs: &str, out: &str| {
        let sweep = ["--set", "sweep={tenants.count: [5, 20]}", "--set", "repeats=2"];
        let args = [
            "simulate",
            "s.yaml",
            "--jobs",
            jobs,
            "--requests",
            "--timeline",
            "--out",
            out,
        ];
        good(folder.path(), &[&args[..], &sweep[..]].concat());
        ["requests.parquet", "timeline.json"].map(|name| fs::read(folder.path().join(out).join(name)).unwrap())
    };
    assert!(run("1", "a") == run("2", "b"));
    let rows = rows(&folder.path().join("a/requests.parquet"));
    assert_eq!(rows.len(), 2 * 2 * 2 * 300);
    let runs: BTreeSet<(&str, &str, Option<u64>)> = rows
        .iter()
        .map(|row| {
            (
                text(row, "system").unwrap(),
                text(row, "parameters").unwrap(),
                whole(row, "repeat"),
            )
        })
        .collect();
    assert_eq!(runs.len(), 8);
    assert!(runs.iter().any(|run| run.1 == r#"{"tenants.count":5}"#), "{runs:?}");
}

#[test]
fn nothing_is_written_down_unasked_and_nothing_temporary_is_left() {
    let folder = folder();
    good(folder.path(), &["simulate", "s.yaml", "--out", "plain"]);
    let plain = names(&folder.path().join("plain"));
    assert!(
        !plain.iter().any(|name| name.ends_with(".parquet") || name.starts_with("timeline")),
        "{plain:?}"
    );
    good(
        folder.path(),
        &[
            "simulate",
            "s.yaml",
            "--out",
            "all",
            "--requests",
            "--timeline",
            "--record",
            "all/r.csv",
        ],
    );
    let mut expected = plain.clone();
    expected.extend(["r.csv", "requests.parquet", "timeline.json"].map(String::from));
    expected.sort();
    assert_eq!(names(&folder.path().join("all")), expected);
    let summary = |out: &str| fs::read(folder.path().join(out).join("summary.json")).unwrap();
    assert_eq!(summary("plain"), summary("all"), "watching changes nothing");
}

const BAD: &[Case] = &[
    (
        &["simulate", "s.yaml", "--timeline=soon"],
        2,
        &["--timeline: must be START..END with units", "got soon"],
    ),
    (
        &["simulate", "s.yaml", "--timeline=1s.."],
        2,
        &["--timeline: must be START..END"],
    ),
    (
        &["simulate", "s.yaml", "--timeline=2s..1s"],
        2,
        &["the end after the start"],
    ),
    (
        &["simulate", "s.yaml", "--record", "r.json"],
        2,
        &["r.json: must end in .parquet, .csv or .csv.gz"],
    ),
    (
        &["simulate", "s.yaml", "--record", "s.yaml/r.csv"],
        2,
        &["--record: must be a file, or one that can be made, got s.yaml/r.csv, where s.yaml is a file"],
    ),
    (
        &["simulate", "s.yaml", "--record", "r.csv", "--set", "repeats=2"],
        2,
        &["--record: must have one workload to record", "choose one with --set"],
    ),
    (
        &[
            "simulate",
            "s.yaml",
            "--record",
            "r.csv",
            "--set",
            "workload.arrivals={closed-loop: {clients: 5, think_time: 3ms}}",
        ],
        2,
        &["--record: must have one system where clients wait"],
    ),
    (
        &["simulate", "s.yaml", "--requests", "--out", "s.yaml"],
        2,
        &["--out: must be a folder, or one that can be made, got s.yaml"],
    ),
];

#[test]
fn bad_input_gives_the_contracts_message_and_exit_code() {
    let folder = folder();
    let before = names(folder.path());
    check_bad(folder.path(), BAD);
    let mut after = names(folder.path());
    after.retain(|name| name != "out");
    assert_eq!(after, before, "nothing was written");
}

/// The real machine reports its ops and requests to the same observers.
#[cfg(feature = "libtorch")]
#[test]
fn a_real_run_writes_down_the_same_things() {
    let folder = folder();
    let args = [
        "execute",
        "s.yaml",
        "--device",
        "cpu",
        "--out",
        "real",
        "--requests",
        "--timeline=0s..1h",
        "--record",
        "r.csv",
        "--set",
        "models.backbone={layers: 1, hidden: 16, heads: 2, intermediate: 32, vocabulary: 50, positions: 64}",
    ];
    good(folder.path(), &args);
    let summary = json(&folder.path().join("real/summary.json"));
    let rows = rows(&folder.path().join("real/requests.parquet"));
    assert_eq!(rows.len(), 600);
    assert!(rows.iter().all(|row| text(row, "machine") == Some("cpu")));
    let timeline = json(&folder.path().join("real/timeline.json"));
    for (process, run) in (1..).zip(summary["runs"].as_array().unwrap()) {
        let busy_us: f64 = crate::timelines::ops(&timeline, process)
            .iter()
            .filter(|op| op.0.contains("compute"))
            .map(|op| op.2)
            .sum();
        let lanes = run["lanes"].as_object().unwrap();
        let said: f64 = lanes
            .iter()
            .filter(|(name, _)| name.contains("compute"))
            .map(|(_, lane)| lane["busy_share"].as_f64().unwrap())
            .sum();
        let share = busy_us / 1e6 / run["duration_s"].as_f64().unwrap();
        assert!((share - said).abs() < 0.01, "{share} against {said}");
    }
    let recorded = crate::common::good_json(folder.path(), &["trace", "info", "r.csv"]);
    assert_eq!(recorded[0]["requests"], 300);
}
