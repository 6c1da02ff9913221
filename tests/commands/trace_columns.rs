//! Traces of one's own: any columns, any names of tenants, recordings with holes.

use std::fs;

use crate::common::{Case, check_bad, folder, good, good_json, names, said};

const MAPPING: &str = "arrival=time_ms:ms,tenant=customer,input_tokens=prompt_len,output_tokens=completion_len";
const THEIRS: &str = "\
id,time_ms,customer,prompt_len,completion_len,tier
a,1700000001000,\"Acme, Inc.\",12,3,gold
b,1700000000000,beta,5,,free
c,1700000002500,beta,7,1,free
d,1700000004000,\"Acme, Inc.\",9,0,gold
";

#[test]
fn any_table_becomes_a_trace_that_is_replayed() {
    let folder = folder();
    let at = folder.path();
    let write = |name: &str, text: &str| fs::write(at.join(name), text).unwrap();
    let read = |name: &str| fs::read_to_string(at.join(name)).unwrap();
    write("theirs.csv", THEIRS);
    let convert = ["trace", "convert", "theirs.csv", "sub/ours.csv", "--columns"];
    let converted = good_json(at, &[&convert[..], &[MAPPING, "--sort"]].concat());
    assert_eq!(
        (&converted["format"], &converted["requests"], &converted["unanswered"]),
        (&"columns".into(), &3.into(), &1.into())
    );
    assert_eq!(
        converted["names"]["tenant"],
        serde_json::json!({ "file": "sub/ours.csv.tenants.csv", "count": 2 })
    );
    // The earliest request has no answer, and its instant is the start all the same.
    let header = "ticket,tenant,arrival_ns,input_tokens,output_tokens,class\n";
    assert_eq!(
        read("sub/ours.csv"),
        format!("{header}0,0,1000000000,12,3,0\n1,1,2500000000,7,1,0\n2,0,4000000000,9,0,0\n")
    );
    assert_eq!(
        read("sub/ours.csv.tenants.csv"),
        "tenant,name\n0,\"Acme, Inc.\"\n1,beta\n"
    );
    let flags = [
        "--model",
        "tiny",
        "--card",
        "cpu",
        "--systems",
        "bert-shared",
        "--defaults",
    ];
    good(
        at,
        &[&["new", "ours.yaml", "--trace", "sub/ours.csv"], &flags[..]].concat(),
    );
    assert_eq!(
        good_json(at, &["simulate", "ours.yaml"])["runs"][0]["requests"]["finished"],
        3
    );

    // Numbers have no gap where a cut leaves the first ones out, and classes have names too.
    let with_class = format!("{MAPPING},class=tier");
    let cut = ["--cut", "2s..", "--sort"];
    let converted = good_json(at, &[&convert[..], &[with_class.as_str()], &cut[..]].concat());
    assert_eq!(converted["names"]["class"]["count"], 2);
    assert_eq!(
        read("sub/ours.csv"),
        format!("{header}0,0,500000000,7,1,0\n1,1,2000000000,9,0,1\n")
    );
    assert_eq!(
        read("sub/ours.csv.tenants.csv"),
        "tenant,name\n0,beta\n1,\"Acme, Inc.\"\n"
    );
    assert_eq!(read("sub/ours.csv.classes.csv"), "class,name\n0,free\n1,gold\n");

    // What is not mapped is filled in, and said.
    write(
        "bare.csv",
        "when,n\n2026-11-26T12:00:00+01:00,4\n2026-11-26 11:00:01.5,6\n",
    );
    let bare = [
        "trace",
        "convert",
        "bare.csv",
        "bare.parquet",
        "--columns",
        "arrival=when:iso,input_tokens=n",
    ];
    let converted = good_json(at, &bare);
    assert_eq!(
        converted["filled_in"],
        serde_json::json!(["all requests are of tenant 0", "all requests are of service class 0"])
    );
    assert!(converted.get("names").is_none(), "{converted:#}");
    assert_eq!(good_json(at, &["trace", "info", "bare.parquet"])[0]["span_s"], 1.5);
}

#[test]
fn sparse_tenants_are_told_of_and_numbered_anew() {
    let folder = folder();
    let at = folder.path();
    let rows = (0..200u64).map(|i| format!("{},{},{i}000000000,8,2\n", i, 60_000 + i % 49 * 7));
    let text = format!(
        "ticket,tenant,arrival_ns,input_tokens,output_tokens\n{}",
        rows.collect::<String>()
    );
    fs::write(at.join("sparse.csv"), text).unwrap();
    let flags = [
        "--trace",
        "sparse.csv",
        "--model",
        "tiny",
        "--card",
        "cpu",
        "--systems",
        "bert-shared",
        "--defaults",
    ];
    for args in [
        &["trace", "info", "sparse.csv"][..],
        &[&["new", "sparse.yaml"], &flags[..]].concat(),
    ] {
        let note = said(at, args);
        assert!(
            note.contains("49 tenants ask, with numbers up to 60336")
                && note.contains("sparse.csv dense.csv --dense-tenants"),
            "{note}"
        );
    }
    good(at, &["trace", "convert", "sparse.csv", "dense.csv", "--dense-tenants"]);
    let dense = &good_json(at, &["trace", "info", "dense.csv"])[0];
    assert_eq!(
        (&dense["tenants"]["count"], &dense["tenants"]["highest"]),
        (&49.into(), &48.into())
    );
    assert!(!said(at, &["trace", "info", "dense.csv"]).contains("--dense-tenants"));
    let who = fs::read_to_string(at.join("dense.csv.tenants.csv")).unwrap();
    assert!(who.starts_with("tenant,name\n0,60000\n1,60007\n"), "{who}");
    // Without the flag numbers stay as they are, and there is nothing to tell: what an earlier conversion told is not
    // of this one.
    good(at, &["trace", "convert", "sparse.csv", "same.csv", "--dense-tenants"]);
    assert!(names(at).contains(&"same.csv.tenants.csv".to_owned()));
    good(at, &["trace", "convert", "sparse.csv", "same.csv"]);
    assert!(fs::read_to_string(at.join("same.csv")).unwrap().contains("0,60000,0,8,2,0\n"));
    assert!(!names(at).contains(&"same.csv.tenants.csv".to_owned()));
}

/// A part of a larger recording keeps that one's numbers, and what is converted has a tenant for each who asks: who
/// that is must not be lost.
#[test]
fn tenants_of_sparse_activity_can_be_told_back() {
    let folder = folder();
    let at = folder.path();
    fs::write(
        at.join("part.csv"),
        "tenant,minute,invocations\n90,0,2\n7,1,3\n90,2,1\n8,2,0\n",
    )
    .unwrap();
    let convert = |file: &'static str| ["trace", "convert", file, "own.csv", "--input", "5"];
    let converted = good_json(at, &convert("part.csv"));
    let file_of = serde_json::json!({ "file": "own.csv.tenants.csv", "count": 2 });
    assert_eq!(converted["names"]["tenant"], file_of);
    let who = fs::read_to_string(at.join("own.csv.tenants.csv")).unwrap();
    assert_eq!(who, "tenant,name\n0,7\n1,90\n");
    let own = fs::read_to_string(at.join("own.csv")).unwrap();
    let tenants: Vec<&str> = own.lines().skip(1).filter_map(|row| row.split(',').nth(1)).collect();
    assert_eq!(tenants, ["1", "1", "0", "0", "0", "1"]);
    let note = said(at, &convert("part.csv"));
    assert!(
        note.contains("note: 2 tenants are numbered from 0 in the order of the file's numbers; own.csv.tenants.csv says who is who"),
        "{note}"
    );

    // Lines of the wide form are numbered from 0 as they are, and so are all where the numbers have no gap.
    fs::write(
        at.join("wide.csv"),
        "HashOwner,HashApp,HashFunction,Trigger,1,2\na,b,c,http,0,0\na,b,d,http,2,1\na,b,e,http,0,0\n",
    )
    .unwrap();
    fs::write(at.join("whole.csv"), "tenant,minute,invocations\n1,0,2\n0,1,3\n").unwrap();
    for file in ["wide.csv", "whole.csv"] {
        let converted = good_json(at, &convert(file));
        assert!(converted.get("names").is_none(), "{converted:#}");
        assert!(!names(at).contains(&"own.csv.tenants.csv".to_owned()), "{file}");
        assert!(!said(at, &convert(file)).contains("who is who"), "{file}");
    }
}

#[test]
fn columns_that_are_left_out_are_named() {
    let folder = folder();
    let at = folder.path();
    let text = "TIMESTAMP,ContextTokens,GeneratedTokens,tenant,region\n\
                2024-05-10 00:00:00.009930+00:00,2162,5,shop,eu\n\
                2024-05-10 00:00:01.017335+00:00,2399,6,bank,us\n";
    fs::write(at.join("azure.csv"), text).unwrap();
    let unread = serde_json::json!(["tenant", "region"]);
    assert_eq!(
        good_json(at, &["trace", "info", "azure.csv"])[0]["unread_columns"],
        unread
    );
    assert_eq!(
        good_json(at, &["trace", "convert", "azure.csv", "a.csv"])["unread_columns"],
        unread
    );
    for args in [
        &["trace", "info", "azure.csv"][..],
        &["trace", "convert", "azure.csv", "a.csv"],
    ] {
        let note = said(at, args);
        assert!(
            note.contains("are left out: `tenant`, `region`; tenantry trace convert azure.csv OUT"),
            "{note}"
        );
        // What it tells to do brings the tenants in.
        let mapping = note.split('\'').nth(1).unwrap();
        good(
            at,
            &["trace", "convert", "azure.csv", "mapped.csv", "--columns", mapping],
        );
        let mapped = good_json(at, &["trace", "info", "mapped.csv"]);
        assert_eq!(mapped[0]["tenants"]["count"], 2);
        assert_eq!(mapped[0]["span_s"], 1.00741, "{mapped:#}");
    }
}

#[test]
fn holes_are_told_of() {
    let folder = folder();
    let at = folder.path();
    let rows = |hole_s: u64| {
        let second = |i: u64| i + if i >= 300 { hole_s } else { 0 };
        let rows = (0..600).map(|i| format!("{}.25,10,20\n", second(i)));
        format!(
            "arrived_at,num_prefill_tokens,num_decode_tokens\n{}",
            rows.collect::<String>()
        )
    };
    fs::write(at.join("steady.csv"), rows(0)).unwrap();
    fs::write(at.join("hole.csv"), rows(3600)).unwrap();
    let figures = good_json(at, &["trace", "info", "steady.csv", "hole.csv"]);
    assert_eq!(
        figures[0]["gaps"],
        serde_json::json!({ "longest_s": 1.0, "longest_from_s": 0.25, "cv": 0.0 })
    );
    assert_eq!(
        (&figures[0]["empty_seconds_share"], figures[0].get("holes")),
        (&0.0.into(), None)
    );
    assert_eq!(figures[1]["gaps"]["longest_s"], 3601.0);
    assert_eq!(figures[1]["holes"]["total_s"], 3600.0);
    assert_eq!(figures[1]["empty_seconds_share"], 0.857143);
    let note = said(at, &["trace", "info", "steady.csv", "hole.csv"]);
    assert!(
        note.contains(
            "note: hole.csv: the mean rate of 0.143/s has in it a stretch without a request of at least 60 s"
        ),
        "{note}"
    );
    assert!(!note.contains("steady.csv"), "{note}");
    // Whoever is to replay it is told, too.
    let new = |trace: &str| said(at, &["new", &format!("{trace}.yaml"), "--trace", trace, "--defaults"]);
    assert!(new("hole.csv").contains("note: hole.csv: the mean rate of 0.143/s has in it a stretch"));
    assert!(!new("steady.csv").contains("stretch"));
    let table = good(at, &["trace", "info", "hole.csv"]);
    for row in [
        "gaps, cv",
        "longest gap, s",
        "empty seconds",
        "input tokens, p95",
        "output tokens, p99",
    ] {
        assert!(table.contains(row), "{row}: {table}");
    }
}

/// Two states that hardly change: a short run sees one of them.
#[test]
fn a_rate_that_is_far_from_what_was_asked_is_told_of() {
    let folder = folder();
    let states = "[{rate: 1/s, mean_dwell: 10h}, {rate: 199/s, mean_dwell: 10h}]";
    let arrivals = format!("{{mmpp: {{states: {states}}}}}");
    let generate = |arrivals: &str| {
        let flags = [
            "--arrivals",
            arrivals,
            "--lengths",
            "{input: {fixed: 8}}",
            "--requests",
            "5000",
        ];
        said(
            folder.path(),
            &[&["trace", "generate", "new/a.csv"], &flags[..]].concat(),
        )
    };
    let note = generate(&arrivals);
    assert!(
        note.contains("note: requests come at another rate than is asked for"),
        "{note}"
    );
    assert!(!generate("{poisson: {rate: 100/s}}").contains("another rate"));
}

const BAD: &[Case] = &[
    (
        &["trace", "info", "theirs.csv"],
        2,
        &[
            "must begin as one of the known formats",
            "`tenantry trace convert --columns` reads any other CSV",
        ],
    ),
    (
        &[
            "trace",
            "convert",
            "theirs.csv",
            "out.csv",
            "--columns",
            "arrival=time_msec:ms",
        ],
        2,
        &[
            "--columns: theirs.csv: must have a column `time_msec`, got `id`, `time_ms`, `customer`, `prompt_len`, `completion_len`, `tier`",
            "did you mean time_ms?",
        ],
    ),
    (
        &[
            "trace",
            "convert",
            "theirs.csv",
            "out.csv",
            "--columns",
            "arrival=time_ms",
        ],
        2,
        &["--columns: arrival: must have its unit (ns, us, ms, s"],
    ),
    (
        &[
            "trace",
            "convert",
            "theirs.csv",
            "out.csv",
            "--columns",
            "tenants=customer",
        ],
        2,
        &["--columns: must be of arrival, tenant", "did you mean tenant?"],
    ),
    (
        &[
            "trace",
            "convert",
            "theirs.csv",
            "out.csv",
            "--columns",
            "arrival=customer:ms",
        ],
        2,
        &["theirs.csv:2: customer: must be a number (of ms), got `Acme, Inc.`"],
    ),
    (
        &["trace", "convert", "semicolons.csv", "out.csv", "--columns", "tenant=t"],
        2,
        &["semicolons.csv: must have a column `t`, got `t;n`; a CSV's columns must be separated by commas"],
    ),
    (
        &[
            "trace",
            "convert",
            "unsorted.csv",
            "out.csv",
            "--columns",
            "arrival=t:s,input_tokens=n",
        ],
        2,
        &["unsorted.csv:3: must be in order of time, got 0.000000 s after 1.000000 s; --sort"],
    ),
    (
        &[
            "trace",
            "convert",
            "theirs.csv",
            "out.csv",
            "--columns",
            "tenant=customer,input_tokens=prompt_len",
        ],
        2,
        &["theirs.csv: must say the arrival", "--rate"],
    ),
    (
        &[
            "trace",
            "convert",
            "theirs.csv",
            "out.csv",
            "--columns",
            MAPPING,
            "--dense-tenants",
        ],
        2,
        &["--dense-tenants"],
    ),
    (
        &["trace", "convert", "vidur.csv", "out.csv", "--dense-tenants"],
        2,
        &["--dense-tenants: must be left out where the trace has no tenants"],
    ),
    (
        &["trace", "convert", "named.csv", "out.csv"],
        2,
        &["named.csv:2: tenant: must be a whole number, got `shop`; `tenantry trace convert --columns`"],
    ),
    (
        &["trace", "convert", "vidur.csv", "out.csv", "--cut", "1h30min..2h"],
        2,
        &[
            "--cut: must be START..END",
            "did you mean 90min..2h? Units are not joined",
        ],
    ),
    (
        &["simulate", "s.yaml", "--set", "workload.stop={after: 2m}"],
        2,
        &["workload.stop.after: must be a time", "got 2m; did you mean 2min?"],
    ),
];

#[test]
fn what_is_wrong_with_a_table_is_said() {
    let folder = folder();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("theirs.csv", THEIRS);
    write("semicolons.csv", "t;n\n1;1\n");
    write("unsorted.csv", "t,n\n1,1\n0,1\n");
    write("vidur.csv", "arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,1\n");
    write(
        "named.csv",
        "tenant,arrival_ns,input_tokens,output_tokens\nshop,0,1,1\n",
    );
    let before = names(folder.path());
    check_bad(folder.path(), BAD);
    assert_eq!(names(folder.path()), before);
}
