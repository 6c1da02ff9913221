//! Recordings as they are found: clocks that count from elsewhere, requests that failed, names of one file.

use std::fs;

use crate::common::{folder, good, good_json, said, tenantry};

/// BurstGPT's clock counts from the first day of two months, of which a part may be taken; many others' count from
/// 1970.
#[test]
fn a_clock_may_count_from_another_moment() {
    for from_s in [5_270_400, 1_700_000_000] {
        silence_before_the_first_request(from_s);
    }
}

fn silence_before_the_first_request(from_s: u64) {
    let folder = folder();
    let at = folder.path();
    let rows = |from_s: u64| {
        let rows = (0..600).map(|i| format!("{}.5,1{},20\n", from_s + i, i % 10));
        format!(
            "arrived_at,num_prefill_tokens,num_decode_tokens\n{}",
            rows.collect::<String>()
        )
    };
    fs::write(at.join("early.csv"), rows(0)).unwrap();
    fs::write(at.join("late.csv"), rows(from_s)).unwrap();
    let info = ["trace", "info", "early.csv", "late.csv"];
    let figures = good_json(at, &info);
    assert_eq!(figures[1]["requests_per_s"]["mean"], 1.00083, "{figures:#}");
    assert_eq!(figures[0]["requests_per_s"], figures[1]["requests_per_s"]);
    assert_eq!(
        (&figures[0]["silent_s"], &figures[1]["silent_s"]),
        (&serde_json::Value::Null, &(from_s as f64).into())
    );
    let note = said(at, &info);
    assert!(
        note.contains(&format!(
            "note: late.csv: the first request comes after {from_s} s of silence"
        )),
        "{note}"
    );
    assert!(!note.contains("early.csv"), "{note}");

    // What the note says leaves it out.
    good(
        at,
        &[
            "trace",
            "convert",
            "late.csv",
            "cut.csv",
            "--cut",
            &format!("{from_s}s.."),
        ],
    );
    assert_eq!(
        good_json(at, &["trace", "info", "cut.csv"])[0]["span_s"],
        figures[1]["span_s"]
    );
    let run = |more: &[&str]| {
        let args = [
            "simulate",
            "s.yaml",
            "--set",
            "workload.arrivals={trace: {path: late.csv}}",
            "--set",
            "workload.stop={requests: 600}",
        ];
        let args = [&args[..], more].concat();
        (good_json(at, &args)["runs"][0].clone(), said(at, &args))
    };
    let (late, note) = run(&[]);
    assert_eq!(late["workload"]["silent_s"], from_s as f64, "{late:#}");
    let from = format!("workload.arrivals.trace.from={from_s}s");
    assert!(note.contains(&from), "{note}");
    let (cut, note) = run(&["--set", &from]);
    assert!(!note.contains("silence"), "{note}");
    assert_eq!(late["workload"]["rate_rps"], cut["workload"]["rate_rps"]);

    // A new scenario has it from the start.
    let flags = [
        "--trace",
        "late.csv",
        "--model",
        "tiny",
        "--card",
        "cpu",
        "--systems",
        "bert-shared",
        "--defaults",
    ];
    good(at, &[&["new", "ours.yaml"], &flags[..]].concat());
    let text = fs::read_to_string(at.join("ours.yaml")).unwrap();
    let arrivals = format!("{{ path: \"late.csv\", from: {from_s}s }}");
    assert!(text.contains(&arrivals), "{text}");
    let run = &good_json(at, &["simulate", "ours.yaml"])["runs"][0];
    assert!(run["duration_s"].as_f64().unwrap() < 601.0, "{run:#}");
}

/// What is said of when is by the clock by which a part is cut out, whatever it counts from.
#[test]
fn counts_are_told_of_and_cut_by_their_own_clock() {
    let folder = folder();
    let at = folder.path();
    let rows = |from_s: u64| {
        let count = |i: u64| if (1000..1500).contains(&i) { 0 } else { 4 };
        let rows = (0..2000).map(|i| format!("{},{}\n", from_s + i, count(i)));
        format!("second,requests\n{}", rows.collect::<String>())
    };
    let figures_from = |from_s: u64| {
        fs::write(at.join("counts.csv"), rows(from_s)).unwrap();
        let info = ["trace", "info", "counts.csv"];
        let note = said(at, &info);
        let from = format!("500 s in all, the longest from {} s on", from_s + 1000);
        assert!(note.contains(&from), "{note}");
        let figures = good_json(at, &info)[0].clone();
        assert_eq!(figures["gaps"]["longest_from_s"], (from_s + 1000) as f64);
        (figures["requests_per_s"].clone(), figures["span_s"].clone())
    };
    assert_eq!(figures_from(0), figures_from(100_000));

    let convert = |cut: &str| {
        let args = [
            "trace",
            "convert",
            "counts.csv",
            "cut.csv",
            "--input",
            "1",
            "--cut",
            cut,
        ];
        let output = tenantry(at, &args);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), message)
    };
    let (code, message) = convert("1500s..1600s");
    assert_eq!(code, Some(2), "{message}");
    assert!(
        message.contains(
            "counts.csv: must have requests from second 1500 to second 1600, got its first line at second 100000"
        ),
        "{message}"
    );
    // Of a part that begins before the first line, what there is.
    for (cut, requests) in [
        ("101500s..101600s", 400),
        ("99950s..100050s", 200),
        ("0s..100050s", 200),
        ("101900s..", 400),
    ] {
        let (code, message) = convert(cut);
        assert_eq!(code, Some(0), "{message}");
        assert_eq!(
            good_json(at, &["trace", "info", "cut.csv"])[0]["requests"],
            requests,
            "{cut}"
        );
    }
}

/// BurstGPT writes down requests that failed, with an output of 0 tokens: nobody knows how long their answers would
/// have been.
#[test]
fn who_failed_is_no_answered_request() {
    let folder = folder();
    let at = folder.path();
    let rows = (0..400).map(|i| {
        format!(
            "{i},ChatGPT,{},{},0,API log\n",
            5 + i % 9,
            if i % 4 == 0 { 0 } else { 7 + i % 5 }
        )
    });
    let text = format!(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n{}",
        rows.collect::<String>()
    );
    fs::write(at.join("burst.csv"), text).unwrap();
    let info = ["trace", "info", "burst.csv"];
    assert_eq!(good_json(at, &info)[0]["unanswered"], 100);
    let note = said(at, &info);
    assert!(
        note.contains("note: burst.csv: 100 of 400 requests got no answer"),
        "{note}"
    );
    let converted = good_json(at, &["trace", "convert", "burst.csv", "own.csv"]);
    assert_eq!(
        (&converted["requests"], &converted["unanswered"]),
        (&300.into(), &100.into())
    );
    let fit = good_json(at, &["trace", "fit", "sharegpt", "burst.csv"]);
    let notes = fit["notes"].to_string();
    assert!(notes.contains("100 requests of 400 have no output"), "{notes}");
    assert_eq!(fit["real"]["requests"], 150);

    // Lengths that are drawn from it are those of the answered, together or each on its own.
    let text = (0..40).map(|i| match i % 2 {
        0 => format!("{i},ChatGPT,11,0,11,API log\n"),
        _ => format!("{i},ChatGPT,6,7,13,API log\n"),
    });
    let header = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n";
    fs::write(at.join("half.csv"), header.to_owned() + &text.collect::<String>()).unwrap();
    for lengths in [
        "{input: {trace: {path: half.csv}}, output: {trace: {path: half.csv}}}",
        "{joint: {trace: {path: half.csv}}}",
    ] {
        let flags = ["--arrivals", "{constant: {rate: 1/s}}", "--requests", "200"];
        good(
            at,
            &[&["trace", "generate", "drawn.csv", "--lengths", lengths], &flags[..]].concat(),
        );
        let figures = &good_json(at, &["trace", "info", "drawn.csv"])[0];
        for (figure, tokens) in [("input_tokens", 6.0), ("output_tokens", 7.0)] {
            assert_eq!(figures[figure]["mean"], tokens, "{lengths}: {figure}");
        }
    }

    let run = [
        "simulate",
        "s.yaml",
        "--set",
        "workload.arrivals={trace: {path: burst.csv}}",
        "--set",
        "workload.lengths={joint: of-arrivals}",
        "--set",
        "workload.stop={}",
    ];
    let offered = &good_json(at, &run)["runs"][0]["requests"]["offered"];
    assert_eq!(*offered, 300);
    let note = said(at, &run);
    assert!(
        note.contains("note: burst.csv: 100 of 400 requests got no answer when they were recorded, and are left out"),
        "{note}"
    );
}

/// In one's own CSV an output of 0 asks for no token, which of a decoder nobody does; its class may be left out.
#[test]
fn who_asks_a_decoder_for_nothing_is_told() {
    let folder = folder();
    let at = folder.path();
    let rows = "0,0,100,0\n1000000000,1,100,8\n2000000000,0,100,0\n";
    fs::write(
        at.join("own.csv"),
        format!("arrival_ns,tenant,input_tokens,output_tokens\n{rows}"),
    )
    .unwrap();
    let scenario = "name: d\ncard: a100-sxm\nmodels: { backbone: llama-7b }\ntenants: { count: 2 }\nworkload: { arrivals: { trace: { path: own.csv } }, \
                    lengths: { joint: of-arrivals } }\nsystems: [{ preset: punica }]\n";
    fs::write(at.join("d.yaml"), scenario).unwrap();
    let note = said(at, &["simulate", "d.yaml"]);
    assert!(
        note.contains("note: own.csv: 2 of 3 requests ask for no token"),
        "{note}"
    );
}

/// A recording is not written over, by whichever of its names.
#[test]
fn nothing_is_converted_into_itself() {
    let folder = folder();
    let at = folder.path();
    let text = "ticket,tenant,arrival_ns,input_tokens,output_tokens,class\n5,0,1,9,0,0\n";
    fs::write(at.join("own.csv"), text).unwrap();
    std::os::unix::fs::symlink(at.join("own.csv"), at.join("link.csv")).unwrap();
    for names in [
        ["own.csv", "own.csv"],
        ["own.csv", "./own.csv"],
        ["own.csv", "link.csv"],
        ["link.csv", "own.csv"],
    ] {
        let output = tenantry(at, &["trace", "convert", names[0], names[1]]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(
            message.contains("OUT: must be another file than those that are read, got "),
            "{message}"
        );
        assert_eq!(fs::read_to_string(at.join("own.csv")).unwrap(), text);
    }
    good(at, &["trace", "convert", "link.csv", "other.csv"]);
}

/// What is written must not be a surprise when it is read again.
#[test]
fn a_trace_beyond_what_is_read_says_so() {
    let folder = folder();
    let at = folder.path();
    let generate = |rate: &str| {
        let arrivals = format!("{{constant: {{rate: {rate}}}}}");
        let flags = ["--lengths", "{input: {fixed: 3}}", "--requests", "5"];
        said(
            at,
            &[&["trace", "generate", "out.csv", "--arrivals", &arrivals], &flags[..]].concat(),
        )
    };
    let note = "note: the last request comes after 4.500e9 s, and `tenantry trace info` and `convert` read two years of a trace";
    assert!(generate("1e-9/s").contains(note));
    assert!(!generate("1/s").contains("two years"));
}

/// A rate so low that minutes go by without a request has no holes where it is low.
#[test]
fn silence_of_a_low_rate_is_no_hole() {
    let folder = folder();
    let at = folder.path();
    // As seldom as once in a hundred seconds, by a generator of full period.
    let mut state = 1u64;
    let rows = (0..40_000).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{}\n", u8::from((state >> 33).is_multiple_of(100)))
    });
    let seldom = format!("requests\n{}", rows.collect::<String>());
    fs::write(at.join("seldom.csv"), &seldom).unwrap();
    let notes = |args: &[&str]| {
        good_json(at, &[&["trace", "fit", "twitter", "seldom.csv"], args].concat())["notes"].to_string()
    };
    assert!(notes(&[]).contains("count as silence, since so low a rate has some"));
    assert!(notes(&["--drop-zeros-from", "1min"]).contains("are taken for holes of the recording"));

    let often = "3\n5\n".repeat(900);
    let hole = format!("requests\n{often}{}{often}", "0\n".repeat(1000));
    fs::write(at.join("seldom.csv"), hole).unwrap();
    assert!(notes(&[]).contains("1000 s in stretches of 1min and more without a request are taken for holes"));
}

/// What is left out by the first request's clock would be a guess where others may be earlier.
#[test]
fn no_cut_is_proposed_by_a_request_that_may_not_be_the_first() {
    let folder = folder();
    let rows = "arrived_at,num_prefill_tokens,num_decode_tokens\n1700000001.5,10,3\n1700000000.5,10,3\n";
    fs::write(folder.path().join("epoch.csv"), rows).unwrap();
    let output = tenantry(folder.path(), &["trace", "convert", "epoch.csv", "out.csv", "--sort"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("must end within two years of its start to be read again") && !said.contains("--cut"),
        "{said}"
    );
}

/// Tweets swing over hours: a minute of them is none of the rate that is asked for, and whoever planned by it should
/// know.
#[test]
fn a_run_shorter_than_its_arrivals_swing_says_at_which_rate_they_came() {
    let folder = folder();
    let at = folder.path();
    let run = |arrivals: &str| {
        let args = [
            "simulate",
            "s.yaml",
            "--set",
            arrivals,
            "--set",
            "workload.stop={requests: 5000}",
            "--set",
            "repeats=4",
        ];
        let runs = good_json(at, &args)["runs"].as_array().unwrap().clone();
        let off = |run: &&serde_json::Value| {
            let rate = run["workload"]["rate_rps"].as_f64().unwrap();
            (rate / 100.0 - 1.0).abs() > 0.1
        };
        (runs.iter().filter(off).count(), runs.len(), said(at, &args))
    };
    let (off, all, note) = run("workload.arrivals={twitter: {rate: 100/s}}");
    assert!(0 < off && off < all, "{off} of {all}");
    let sentence = format!("note: in {off} of {all} runs requests came at another rate than the scenario asks for (");
    assert!(note.contains(&sentence), "{note}");
    let (off, _, note) = run("workload.arrivals={poisson: {rate: 100/s}}");
    assert!(off == 0 && !note.contains("another rate"), "{note}");
}
