//! `tenantry trace info`, `convert` and `generate`: what they say and what they write.

use std::fs;
use std::process::Command;

use crate::common::{good, good_json, names, traces};

#[test]
fn info_says_what_there_is_and_no_more() {
    let folder = traces();
    let text = good(folder.path(), &["trace", "info", "own.csv", "counts.csv"]);
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect();
    let row = |name: &str| {
        lines.iter().find(|cells| cells[0] == name).unwrap_or_else(|| panic!("{name}: {text}"))[1..].to_vec()
    };
    assert_eq!(row("format"), ["tenantry", "counts"]);
    assert_eq!(row("requests"), ["3", "9"]);
    assert_eq!(row("span, s"), ["2.00", "4.00"]);
    assert_eq!(row("input tokens, p50"), ["7", "–"]);
    assert_eq!(row("tenants"), ["2", "–"]);
    assert!(!text.contains("dispersion at 60 s"), "too short: {text}");

    let figures = good_json(
        folder.path(),
        &["trace", "info", "own.csv", "activity.csv", "chat.json"],
    );
    assert_eq!(
        figures[0]["requests_per_s"],
        serde_json::json!({ "mean": 1.5, "max": 2.0, "window_s": 1 })
    );
    assert_eq!(figures[0]["output_tokens"]["p50"], 3, "encoders' zeros are left out");
    assert_eq!(figures[1]["tenants"]["count"], 2);
    assert_eq!(figures[1]["requests_per_s"]["window_s"], 60);
    assert_eq!(figures[2]["unanswered"], 1);
    assert_eq!(
        figures[2]["input_tokens"]["max"], 4,
        "`never answered` has 14 characters"
    );
}

#[test]
fn quiet_says_nothing_and_a_broken_line_can_be_counted() {
    let folder = traces();
    assert_eq!(good(folder.path(), &["trace", "info", "own.csv", "--quiet"]), "");
    let figures = good_json(folder.path(), &["trace", "info", "broken.csv", "--skip-bad-lines"]);
    assert_eq!(
        (&figures[0]["requests"], &figures[0]["skipped_lines"]),
        (&2.into(), &1.into())
    );
    let converted = good_json(
        folder.path(),
        &["trace", "convert", "broken.csv", "out.csv", "--skip-bad-lines"],
    );
    assert_eq!(
        (&converted["requests"], &converted["skipped_lines"]),
        (&2.into(), &1.into())
    );
}

/// What our own formats have no place for, or `convert` does not carry over, is counted.
#[test]
fn prefix_hashes_and_management_requests_are_told_of() {
    let folder = traces();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let line = |ids: &str| {
        format!("{{\"timestamp\": 0, \"input_length\": 900, \"output_length\": 3, \"hash_ids\": [{ids}]}}\n")
    };
    write(
        "mooncake.jsonl",
        &[line("1, 2"), line("1, 3"), line("1, 2, 4, 5")].concat(),
    );
    write(
        "managed.csv",
        "ticket,tenant,arrival_ns,input_tokens,output_tokens,class,change\n0,8,0,0,0,0,absent\n0,7,0,0,0,0,create\n0,7,9,5,0,0,\n",
    );
    let figures = good_json(folder.path(), &["trace", "info", "mooncake.jsonl", "managed.csv"]);
    assert_eq!(
        figures[0]["prefixes"],
        serde_json::json!({ "blocks_per_request": 2.66667, "seen_before_share": 0.375 })
    );
    assert_eq!(
        (&figures[1]["requests"], &figures[1]["management_requests"]),
        (&1.into(), &1.into())
    );
    assert_eq!(figures[1]["absent_at_first"], 1, "a mark is no request");
    // Of one request nobody knows how many come in a second.
    assert_eq!(figures[1]["requests_per_s"], serde_json::Value::Null);
    for (file, requests, managed, prefix_hashes) in [("mooncake.jsonl", 3, 0, 8), ("managed.csv", 1, 1, 0)] {
        let converted = good_json(folder.path(), &["trace", "convert", file, "out.csv"]);
        assert_eq!(converted["requests"], requests);
        assert_eq!(
            converted["left_out"],
            serde_json::json!({
                "management_requests": managed,
                "absent_at_first": managed,
                "prefix_hashes": prefix_hashes
            })
        );
    }
}

#[test]
fn one_is_one_and_not_several() {
    let folder = traces();
    let one = [
        "trace",
        "generate",
        "s.yaml",
        "one.csv",
        "--tenants",
        "1",
        "--requests",
        "1",
    ];
    let said = good(folder.path(), &one);
    assert!(said.contains("one.csv: 1 request of 1 tenant, seed 1"), "{said}");
    let said = good(folder.path(), &["trace", "convert", "one.csv", "copy.csv"]);
    assert!(said.contains("copy.csv: 1 request from one.csv"), "{said}");
}

#[test]
fn a_page_has_the_curves() {
    let folder = traces();
    let flags = [
        "--arrivals",
        "{poisson: {rate: 20/s}}",
        "--lengths",
        "{joint: sharegpt}",
        "--tenants",
        "50",
        "--requests",
        "5000",
    ];
    good(
        folder.path(),
        &[&["trace", "generate", "long.csv.gz"], &flags[..]].concat(),
    );
    good(
        folder.path(),
        &["trace", "info", "long.csv.gz", "own.csv", "--report", "page.html"],
    );
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    for chart in ["rate", "dispersion", "input", "output", "tenants"] {
        assert!(page.contains(&format!("chart-{chart}")), "{chart}");
    }
    assert!(page.contains("long.csv.gz") && !page.contains("href=\"http"));
}

#[test]
fn what_is_converted_is_the_same_in_every_form() {
    let folder = traces();
    for out in ["a.csv", "a.csv.gz", "a.parquet"] {
        good(folder.path(), &["trace", "convert", "own.csv", out]);
    }
    good(folder.path(), &["trace", "convert", "a.parquet", "b.csv"]);
    good(folder.path(), &["trace", "convert", "a.csv.gz", "c.csv"]);
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    for name in ["a.csv", "b.csv", "c.csv"] {
        assert_eq!(read(name), read("own.csv"), "{name}");
    }
}

#[test]
fn conversion_cuts_scales_sorts_and_fills_in_as_it_says() {
    let folder = traces();
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let lines = |name: &str| read(name).lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    good(
        folder.path(),
        &[
            "trace",
            "convert",
            "own.csv",
            "cut.csv",
            "--cut",
            "250ms..2s",
            "--scale",
            "2",
        ],
    );
    assert_eq!(lines("cut.csv"), ["0,1,125000000,7,3,0"]);
    good(
        folder.path(),
        &["trace", "convert", "unsorted.csv", "sorted.csv", "--sort"],
    );
    assert_eq!(lines("sorted.csv"), ["0,0,3,6,0,0", "1,0,9,5,0,0"]);

    let filled = good_json(
        folder.path(),
        &["trace", "convert", "lengths.csv", "filled.csv", "--rate", "240/min"],
    );
    assert_eq!(lines("filled.csv"), ["0,0,0,10,20,0", "1,0,250000000,30,40,0"]);
    assert_eq!(
        filled["filled_in"],
        serde_json::json!([
            "arrivals are evenly spaced at 4 requests/s",
            "all requests are of tenant 0",
            "all requests are of service class 0"
        ])
    );

    good(
        folder.path(),
        &[
            "trace",
            "convert",
            "counts.csv",
            "counted.csv",
            "--input",
            "8",
            "--cut",
            "..3s",
        ],
    );
    let counted = good_json(folder.path(), &["trace", "info", "counted.csv"]);
    assert_eq!(counted[0]["requests"], 5, "3, 0 and 2");
    good(
        folder.path(),
        &["trace", "convert", "activity.csv", "active.parquet", "--input", "8"],
    );
    let active = good_json(folder.path(), &["trace", "info", "active.parquet"]);
    assert_eq!(
        (&active[0]["requests"], &active[0]["tenants"]["count"]),
        (&5.into(), &2.into())
    );

    let chat = good_json(
        folder.path(),
        &["trace", "convert", "chat.json", "chat.csv", "--rate", "1"],
    );
    assert_eq!((&chat["requests"], &chat["unanswered"]), (&1.into(), &1.into()));
    assert_eq!(lines("chat.csv"), ["0,0,0,2,1,0"]);
}

#[test]
fn a_generated_workload_is_the_scenarios_own() {
    let folder = traces();
    good(folder.path(), &["trace", "generate", "s.yaml", "a.csv"]);
    good(folder.path(), &["trace", "generate", "s.yaml", "b.parquet"]);
    good(folder.path(), &["trace", "generate", "s.yaml", "c.csv", "--seed", "2"]);
    let flags = [
        "--arrivals",
        "{poisson: {rate: 100/s}}",
        "--requests",
        "300",
        "--tenants",
        "20",
        "--seed",
        "1",
    ];
    let lengths = ["--lengths", "{input: {normal: {mean: 30, sd: 8, min: 4, max: 60}}}"];
    good(
        folder.path(),
        &[&["trace", "generate", "d.csv"], &flags[..], &lengths[..]].concat(),
    );
    good(folder.path(), &["trace", "convert", "b.parquet", "e.csv"]);
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(read("a.csv").lines().count(), 301);
    assert_ne!(read("a.csv"), read("c.csv"), "another seed");
    assert_eq!(read("a.csv"), read("d.csv"), "flags say the same");
    assert_eq!(read("a.csv"), read("e.csv"), "in both forms");
    // What `simulate` is asked is what was written.
    good(
        folder.path(),
        &["simulate", "s.yaml", "--record", "f.csv", "--out", "out"],
    );
    assert_eq!(read("a.csv"), read("f.csv"));
}

#[test]
fn a_full_disk_leaves_no_half_trace() {
    let folder = traces();
    fs::write(folder.path().join("old.csv"), "old").unwrap();
    let before = names(folder.path());
    let script = format!(
        "trap '' XFSZ; ulimit -f 1; exec '{}' trace generate s.yaml old.csv --requests 100000",
        env!("CARGO_BIN_EXE_tenantry")
    );
    let output = Command::new("bash").current_dir(folder.path()).args(["-c", &script]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("old.csv"), "{message}");
    assert_eq!(fs::read_to_string(folder.path().join("old.csv")).unwrap(), "old");
    assert_eq!(names(folder.path()), before, "nothing temporary is left");
}

#[test]
fn every_command_has_help_with_an_example() {
    let folder = traces();
    for command in [
        &["trace", "info"][..],
        &["trace", "convert"],
        &["trace", "generate"],
        &["trace", "fit"],
        &["trace"],
        &["report"],
    ] {
        let help = good(folder.path(), &[command, &["--help"]].concat());
        assert!(help.contains("Example"), "{command:?}: {help}");
    }
}
