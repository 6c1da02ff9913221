//! `tenantry trace`: what it says, what it writes, and what it refuses.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Case, check_bad, folder, good, good_json, names, recording};
use tempfile::TempDir;

/// A folder with traces good and bad.
fn traces() -> TempDir {
    let folder = folder();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let header = "ticket,tenant,arrival_ns,input_tokens,output_tokens,class\n";
    write(
        "own.csv",
        &format!("{header}0,0,0,5,0,0\n1,1,500000000,7,3,0\n2,0,2000000000,9,0,1\n"),
    );
    write(
        "broken.csv",
        &format!("{header}0,0,0,5,0,0\n1,0,x,5,0,0\n2,0,9,6,0,0\n"),
    );
    write("unsorted.csv", &format!("{header}0,0,9,5,0,0\n1,0,3,6,0,0\n"));
    write("none.csv", header);
    write("unknown.csv", "who,what,when\n1,2,3\n");
    write("empty.csv", "");
    write("lengths.csv", "num_prefill_tokens,num_decode_tokens\n10,20\n30,40\n");
    write("counts.csv", "requests\n3\n0\n2\n4\n");
    write("activity.csv", "tenant,minute,invocations\n0,0,2\n1,1,3\n");
    write("shape.csv", "hour,requests_per_hour\n0,3\n1,4\n");
    write(
        "chat.json",
        r#"[{"conversations": [{"from": "human", "value": "12345678"}, {"from": "gpt", "value": "1234"}]},
            {"conversations": [{"from": "human", "value": "never answered"}]}]"#,
    );
    write("not-a-tokenizer.json", "{}");
    folder
}

const BAD: &[Case] = &[
    // Describing.
    (&["trace"], 2, &["info", "convert", "generate", "fit"]),
    (&["trace", "info"], 2, &["<FILE>"]),
    (&["trace", "info", "missing.csv"], 2, &["missing.csv"]),
    (&["trace", "info", "."], 2, &["."]),
    (
        &["trace", "info", "empty.csv"],
        2,
        &["empty.csv: must have a first line"],
    ),
    (
        &["trace", "info", "none.csv"],
        2,
        &["none.csv: must have requests, got none"],
    ),
    (
        &["trace", "info", "unknown.csv"],
        2,
        &["unknown.csv: must begin as one of the known formats", "who,what,when"],
    ),
    (
        &["trace", "info", "broken.csv"],
        2,
        &["broken.csv:3: arrival_ns: must be", "x"],
    ),
    (
        &["trace", "info", "own.csv", "--format", "vidur"],
        2,
        &["--format: own.csv: must begin as vidur does"],
    ),
    (
        &["trace", "info", "own.csv", "--format", "tenantri"],
        2,
        &["--format: must be one of", "did you mean tenantry?"],
    ),
    (
        &["trace", "info", "shape.csv"],
        2,
        &["shape.csv: must hold requests, counts or activity"],
    ),
    (
        &["trace", "info", "own.csv", "--report", "missing/page.html"],
        1,
        &["missing/page.html: cannot write in the folder missing"],
    ),
    (
        &["trace", "info", "chat.json", "--tokenizer", "not-a-tokenizer.json"],
        2,
        &["not-a-tokenizer.json: must be a tokenizer.json"],
    ),
    (
        &["trace", "info", "chat.json", "--tokenizer", "missing.json"],
        2,
        &["missing.json"],
    ),
    // Converting.
    (&["trace", "convert", "own.csv"], 2, &["<OUT>"]),
    (
        &["trace", "convert", "own.csv", "out.txt"],
        2,
        &["out.txt: must end in .parquet, .csv or .csv.gz"],
    ),
    (
        &["trace", "convert", "own.csv", "missing/out.csv"],
        1,
        &["missing/out.csv: cannot write in the folder missing"],
    ),
    (&["trace", "convert", "broken.csv", "out.csv"], 2, &["broken.csv:3"]),
    (
        &["trace", "convert", "lengths.csv", "out.csv"],
        2,
        &["lengths.csv: must say the arrival", "--rate"],
    ),
    (
        &["trace", "convert", "counts.csv", "out.csv"],
        2,
        &["counts.csv: must say the input length", "--input"],
    ),
    (
        &["trace", "convert", "unsorted.csv", "out.csv"],
        2,
        &["unsorted.csv: must be in order of time", "--sort"],
    ),
    (
        &["trace", "convert", "own.csv", "out.csv", "--cut", "1..2"],
        2,
        &["--cut: must be START..END with units", "got 1..2"],
    ),
    (
        &["trace", "convert", "own.csv", "out.csv", "--cut", "2s..1s"],
        2,
        &["--cut: must be"],
    ),
    (
        &["trace", "convert", "own.csv", "out.csv", "--cut", "1h.."],
        2,
        &["must have requests in the part that is converted, got none"],
    ),
    (
        &["trace", "convert", "own.csv", "out.csv", "--scale", "0"],
        2,
        &["--scale", "above 0, got 0"],
    ),
    (
        &["trace", "convert", "own.csv", "out.csv", "--rate", "NaN"],
        2,
        &["--rate", "above 0, got NaN"],
    ),
    (
        &[
            "trace",
            "convert",
            "activity.csv",
            "out.csv",
            "--input",
            "5",
            "--cut",
            "1s..2s",
        ],
        2,
        &["--cut: must not be given"],
    ),
    (
        &["trace", "convert", "counts.csv", "out.csv", "--input", "0"],
        2,
        &["--input"],
    ),
    // Generating.
    (&["trace", "generate", "out.csv"], 2, &["--arrivals: must be given"]),
    (
        &["trace", "generate", "out.csv", "--arrivals", "{poisson: {rate: 5/s}}"],
        2,
        &["--lengths: must be given"],
    ),
    (&["trace", "generate", "missing.yaml", "out.csv"], 2, &["missing.yaml"]),
    (
        &["trace", "generate", "s.yaml", "out.xlsx"],
        2,
        &["out.xlsx: must end in"],
    ),
    (
        &["trace", "generate", "s.yaml", "out.csv", "--requests", "0"],
        2,
        &["--requests: workload.stop.requests: must be", "got 0"],
    ),
    (
        &["trace", "generate", "s.yaml", "out.csv", "--after", "5"],
        2,
        &["--after: workload.stop.after: must be", "got 5"],
    ),
    (
        &[
            "trace",
            "generate",
            "s.yaml",
            "out.csv",
            "--arrivals",
            "{poison: {rate: 5/s}}",
        ],
        2,
        &[
            "--arrivals: workload.arrivals: must be one of ",
            "got poison; did you mean poisson?",
        ],
    ),
    (
        &[
            "trace",
            "generate",
            "s.yaml",
            "out.csv",
            "--arrivals",
            "{closed-loop: {clients: 2, think_time: 1s}}",
        ],
        2,
        &["workload.arrivals: must not wait for answers", "--record"],
    ),
    (
        &[
            "trace",
            "generate",
            "s.yaml",
            "out.csv",
            "--set",
            "sweep={tenants.count: [1, 2]}",
        ],
        2,
        &["sweep: must leave one workload", "choose one with --set"],
    ),
    (
        &[
            "trace",
            "generate",
            "--arrivals",
            "{poisson: {rate: 5/s}}",
            "--lengths",
            "{input: {fixed: 5}}",
            "out.csv",
        ],
        2,
        &["the flags: workload.stop: must be given, since these arrivals never end, got nothing"],
    ),
    (
        &[
            "trace",
            "generate",
            "s.yaml",
            "--lengths",
            "{input: {fixed: 0}}",
            "out.csv",
        ],
        2,
        &["--lengths: workload.lengths.input.fixed: must be", "got 0"],
    ),
    (
        &["trace", "generate", "s.yaml", "--popularity", "{zipf: 1", "out.csv"],
        2,
        &["--popularity: must be a value in YAML, got {zipf: 1"],
    ),
    (
        // Of several that set it, the last one counts: flags are applied after --set.
        &[
            "trace",
            "generate",
            "s.yaml",
            "out.csv",
            "--set",
            "tenants.count=5",
            "--tenants",
            "many",
        ],
        2,
        &["--tenants: tenants.count: must be", "got many"],
    ),
    (
        &["trace", "generate", "s.yaml", "out.csv", "--set", "tenants.count=many"],
        2,
        &["--set: tenants.count: must be", "got many"],
    ),
    // Fitting.
    (&["trace", "fit", "tweets", "own.csv"], 2, &["tweets", "twitter"]),
    (
        &["trace", "fit", "twitter", "own.csv"],
        2,
        &["own.csv: must have at least 100 requests with lengths to be fitted and checked, got 3"],
    ),
    (
        &["trace", "fit", "twitter", "counts.csv"],
        2,
        &["counts.csv: must have at least 1200 seconds with counts"],
    ),
    (
        &["trace", "fit", "twitter", "counts.csv", "--drop-zeros-from", "5"],
        2,
        &["--drop-zeros-from: must be"],
    ),
    (
        &["trace", "fit", "sharegpt", "counts.csv"],
        2,
        &["counts.csv: must hold requests one by one, got counts"],
    ),
    (
        &["trace", "fit", "azure-functions", "lengths.csv"],
        2,
        &["lengths.csv: must say whose a request is, got sarathi"],
    ),
    (
        &["trace", "fit", "azure-functions", "activity.csv"],
        2,
        &["activity.csv: must have at least 20 tenants"],
    ),
    (&["trace", "fit", "sharegpt", "broken.csv"], 2, &["broken.csv:3"]),
];

#[test]
fn bad_input_gives_the_contracts_message_and_exit_code_and_writes_nothing() {
    let folder = traces();
    let before = names(folder.path());
    check_bad(folder.path(), BAD);
    assert_eq!(names(folder.path()), before);
}

#[test]
fn info_says_what_there_is_and_no_more() {
    let folder = traces();
    let text = good(folder.path(), &["trace", "info", "own.csv", "counts.csv"]);
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| {
            line.split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .collect()
        })
        .collect();
    let row = |name: &str| {
        lines
            .iter()
            .find(|cells| cells[0] == name)
            .unwrap_or_else(|| panic!("{name}: {text}"))[1..]
            .to_vec()
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
        serde_json::json!({ "mean": 1.0, "max": 2.0, "window_s": 1 })
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
        "ticket,tenant,arrival_ns,input_tokens,output_tokens,class,change\n0,7,0,0,0,0,create\n0,7,9,5,0,0,\n",
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
    for (file, requests, management_requests, prefix_hashes) in [("mooncake.jsonl", 3, 0, 8), ("managed.csv", 1, 1, 0)]
    {
        let converted = good_json(folder.path(), &["trace", "convert", file, "out.csv"]);
        assert_eq!(converted["requests"], requests);
        assert_eq!(
            converted["left_out"],
            serde_json::json!({ "management_requests": management_requests, "prefix_hashes": prefix_hashes })
        );
    }
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
        &["trace", "convert", "lengths.csv", "filled.csv", "--rate", "4"],
    );
    assert_eq!(lines("filled.csv"), ["0,0,0,10,20,0", "1,0,250000000,30,40,0"]);
    assert_eq!(
        filled["filled_in"],
        serde_json::json!([
            "arrivals are evenly spaced at 4 requests/s",
            "all requests are of tenant 0"
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
    let output = Command::new("bash")
        .current_dir(folder.path())
        .args(["-c", &script])
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("old.csv"), "{message}");
    assert_eq!(fs::read_to_string(folder.path().join("old.csv")).unwrap(), "old");
    assert_eq!(names(folder.path()), before, "nothing temporary is left");
}

/// What a fit prints is a scenario's own keys: with them, a scenario makes the same figures.
fn pasted(folder: &Path, yaml: &str, stop: &str) -> serde_json::Value {
    let scenario: serde_json::Value = serde_yaml::from_str(yaml).unwrap();
    let mut set = Vec::new();
    for (path, pointer) in [
        ("workload.arrivals", "/workload/arrivals"),
        ("workload.lengths", "/workload/lengths"),
        ("tenants.count", "/tenants/count"),
        ("tenants.popularity", "/tenants/popularity"),
    ] {
        if let Some(value) = scenario.pointer(pointer) {
            set.push(format!("{path}={value}"));
        }
    }
    // No length is too long for the model.
    set.push(
        "models.backbone={layers: 1, hidden: 2, heads: 1, intermediate: 2, vocabulary: 2, positions: 100000}".into(),
    );
    set.push(format!("workload.stop={stop}"));
    let mut args = vec!["trace", "generate", "s.yaml", "pasted.csv"];
    for set in &set {
        args.extend(["--set", set]);
    }
    good(folder, &args);
    good_json(folder, &["trace", "info", "pasted.csv"])[0].clone()
}

#[test]
fn lengths_are_fitted_and_checked_on_what_the_fit_did_not_see() {
    let folder = traces();
    let lengths = "{input: {lognormal: {median: 40, sigma: 0.6, min: 2, max: 500}}, output: {lognormal: {median: 90, sigma: 0.8, min: 1, max: 900}}}";
    let flags = [
        "--arrivals",
        "{poisson: {rate: 100/s}}",
        "--lengths",
        lengths,
        "--requests",
        "40000",
    ];
    good(
        folder.path(),
        &[&["trace", "generate", "real.csv"], &flags[..]].concat(),
    );
    let fit = good_json(
        folder.path(),
        &["trace", "fit", "sharegpt", "real.csv", "--report", "fit.html"],
    );
    assert_eq!(fit["within_aims"], true, "{fit:#}");
    let rows = fit["comparison"].as_array().unwrap();
    assert_eq!(rows.len(), 10, "five figures of inputs and of outputs: {fit:#}");
    let page = fs::read_to_string(folder.path().join("fit.html")).unwrap();
    assert!(page.contains("Real against generated") && page.contains("joint"));
    let pasted = pasted(folder.path(), fit["yaml"].as_str().unwrap(), "{requests: 40000}");
    for what in ["input_tokens", "output_tokens"] {
        let mean = |value: &serde_json::Value| value[what]["mean"].as_f64().unwrap();
        assert!((mean(&pasted) / mean(&fit["real"]) - 1.0).abs() < 0.03, "{what}");
    }
}

#[test]
fn rates_are_fitted_by_the_nearest_generator() {
    let folder = traces();
    // Two levels with sharp edges: an MMPP, and neither Poisson nor the sample stream.
    let flags = [
        "--arrivals",
        "{mmpp: {states: [{rate: 5/s, mean_dwell: 200s}, {rate: 60/s, mean_dwell: 100s}]}}",
        "--after",
        "20000s",
    ];
    good(
        folder.path(),
        &[
            &["trace", "generate", "real.csv", "--lengths", "{input: {fixed: 5}}"],
            &flags[..],
        ]
        .concat(),
    );
    let trace = fs::read_to_string(folder.path().join("real.csv")).unwrap();
    let mut counts = vec![0u32; 20_000];
    for line in trace.lines().skip(1) {
        counts[line.split(',').nth(2).unwrap().parse::<u64>().unwrap() as usize / 1_000_000_000] += 1;
    }
    let text: Vec<String> = counts.iter().map(u32::to_string).collect();
    fs::write(
        folder.path().join("stream.csv"),
        format!("requests\n{}\n", text.join("\n")),
    )
    .unwrap();
    let fit = good_json(folder.path(), &["trace", "fit", "twitter", "stream.csv"]);
    // Two states are regimes too: which of the two forms is nearer is up to the draws.
    let yaml = fit["yaml"].as_str().unwrap();
    assert!(yaml.contains("mmpp") || yaml.contains("regimes"), "{fit:#}");
    let pasted = pasted(folder.path(), fit["yaml"].as_str().unwrap(), "{after: 20000s}");
    let mean = pasted["requests_per_s"]["mean"].as_f64().unwrap();
    let real = counts.iter().sum::<u32>() as f64 / counts.len() as f64;
    assert!((mean / real - 1.0).abs() < 0.25, "{mean} against {real}");
}

#[test]
fn popularity_is_fitted_for_any_number_of_tenants() {
    let folder = traces();
    let flags = [
        "--arrivals",
        "{poisson: {rate: 100/s}}",
        "--lengths",
        "{input: {fixed: 5}}",
        "--requests",
        "200000",
    ];
    let who = ["--tenants", "2000", "--popularity", "{zipf: 1.0}"];
    good(
        folder.path(),
        &[&["trace", "generate", "real.parquet"], &flags[..], &who[..]].concat(),
    );
    let fit = good_json(
        folder.path(),
        &["trace", "fit", "azure-functions", "real.parquet", "--tenants", "300"],
    );
    assert_eq!(fit["within_aims"], true, "{fit:#}");
    let rows = fit["comparison"].as_array().unwrap();
    let figures: Vec<&str> = rows.iter().filter_map(|row| row["figure"].as_str()).collect();
    assert_eq!(figures, ["share of the top 1 %", "share of the top 10 %"], "{fit:#}");
    for row in rows {
        assert!(row["error"].as_f64().unwrap().abs() < 0.1, "{row}");
    }
    let pasted = pasted(folder.path(), fit["yaml"].as_str().unwrap(), "{requests: 20000}");
    let tenants = pasted["tenants"]["count"].as_u64().unwrap();
    assert!((250..=300).contains(&tenants), "{tenants}");
}

/// The public recordings, where they are: what a fit prints is within its aims on the part that it did not see.
#[test]
fn public_recordings_are_fitted_within_the_aims() {
    let folder = folder();
    for (kind, name) in [
        ("twitter", "twitter/twitter_2018_04_25_lengths.csv"),
        ("sharegpt", "sharegpt/sharegpt_8k_filtered_stats_llama2_tokenizer.csv"),
        (
            "azure-functions",
            "azure_functions/azure_functions_2019_day_1350_sparse.csv.gz",
        ),
    ] {
        let Some(file) = recording(name) else { continue };
        let fit = good_json(folder.path(), &["trace", "fit", kind, file.to_str().unwrap()]);
        assert_eq!(fit["within_aims"], true, "{fit:#}");
        let rows = fit["comparison"].as_array().unwrap();
        let figures = if kind == "azure-functions" { 2 } else { 5 };
        assert!(rows.len() >= figures, "{name}: {fit:#}");
        for row in rows {
            assert!(row["aim"].is_f64() && row["within"] == true, "{name}: {row}");
            // Half of the functions are apart from the other half by 8 %, and no fit can be nearer.
            let most = if kind == "azure-functions" { 0.12 } else { 0.05 };
            assert!(row["aim"].as_f64().unwrap() < most, "{name}: {row}");
        }
    }
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
