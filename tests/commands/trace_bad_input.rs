//! `tenantry trace`: what it refuses.

use crate::common::{Case, check_bad, names, traces};

const BAD: &[Case] = &[
    // Generating.
    (
        &["trace", "generate", "quickstart"],
        2,
        &["OUT: must be given after the scenario, got quickstart alone"],
    ),
    (
        &[
            "trace",
            "generate",
            "quickstart",
            "x.csv",
            "--tenants",
            "5",
            "--set",
            "tenants.count=7",
        ],
        2,
        &["--tenants: must be left out where --set gives tenants.count, got 5 beside --set tenants.count=7"],
    ),
    (
        &[
            "trace",
            "generate",
            "quickstart",
            "x.csv",
            "--arrivals",
            "{poisson: {rate: 5/s}}",
            "--set",
            "workload.arrivals.poisson.rate=7/s",
        ],
        2,
        &["--arrivals: must be left out where --set gives workload.arrivals, got {poisson"],
    ),
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
        &["trace", "info", "all-broken.csv", "--skip-bad-lines"],
        2,
        &["all-broken.csv: must have requests, got none but 2 broken lines, which were left out"],
    ),
    (
        &["trace", "convert", "all-broken.csv", "out.csv", "--skip-bad-lines"],
        2,
        &["must have requests in the part that is converted, got none but 2 broken lines"],
    ),
    (
        &[
            "simulate",
            "s.yaml",
            "--set",
            "workload={arrivals: {trace: {path: all-broken.csv, skip_bad_lines: true}}, lengths: {input: {fixed: 3}}}",
        ],
        2,
        &["all-broken.csv: must have requests in the part that is replayed, got none but 2 broken lines"],
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
        &["trace", "info", "shape.csv"],
        2,
        &["shape.csv: must hold requests, counts or activity"],
    ),
    (
        &["trace", "info", "own.csv", "--report", "own.csv/page.html"],
        2,
        &["--report: must be a file, or one that can be made, got own.csv/page.html, where own.csv is a file"],
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
        &["trace", "convert", "own.csv", "out.csv", "--rate", "5/s"],
        2,
        &["--rate: must be left out where the trace has arrivals, as own.csv has, got 5"],
    ),
    (
        &["trace", "convert", "own.csv", "out.csv", "--input", "7"],
        2,
        &["--input: must be left out where the trace has input lengths, as own.csv has, got 7"],
    ),
    (
        &["trace", "convert", "own.csv", "out.csv", "--scale", "1e-8"],
        2,
        &["out.csv: must end within two years of its start to be read again, got request 2 at 2.000e8 s"],
    ),
    (
        &["trace", "convert", "own.csv", "out.txt"],
        2,
        &["out.txt: must end in .parquet, .csv or .csv.gz"],
    ),
    (
        &["trace", "convert", "own.csv", "none.csv/out.csv"],
        2,
        &["OUT: must be a file, or one that can be made, got none.csv/out.csv, where none.csv is a file"],
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
        &["unsorted.csv:3: must be in order of time, got 3 ns after 9 ns; --sort"],
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
        &[
            "--rate",
            "must be a rate above 0 with its unit (/s, /min, /h), such as 5/s, got NaN",
        ],
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
        &["--popularity: must be a value in YAML (did not find expected ',' or '}'), got {zipf: 1"],
    ),
    (
        // Of several that set it, the last one counts: flags are applied after --set.
        &[
            "trace",
            "generate",
            "s.yaml",
            "out.csv",
            "--set",
            "tenants={count: 5}",
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
        &["own.csv: must have at least 100 requests with lengths to be fitted and checked, got 1"],
    ),
    (
        &["trace", "fit", "twitter", "counts.csv"],
        2,
        &["counts.csv: must have at least 1200 seconds with counts"],
    ),
    (
        &[
            "trace",
            "generate",
            "s.yaml",
            "out.csv",
            "--set",
            "workload.arrivals={trace: {path: own.csv}}",
            "--set",
            "tenants={count: 1, popularity: of-arrivals}",
        ],
        2,
        &["error: s.yaml: tenants.count: must be more than the largest tenant of the arrivals, 1, got 1"],
    ),
    (
        &["trace", "fit", "twitter", "counts.csv", "--drop-zeros-from", "0s"],
        2,
        &[
            "--drop-zeros-from: must be a time above 0 with its unit (us, ms, s, min, h), at most ten years, such as 20ms, got 0s",
        ],
    ),
    (
        &["trace", "fit", "twitter", "own.csv", "--drop-zeros-from", "5s"],
        2,
        &["--drop-zeros-from: must be left out but for requests, and twitter of per-second counts, got 5s"],
    ),
    (
        &[
            "trace",
            "fit",
            "azure-functions",
            "activity.csv",
            "--drop-zeros-from",
            "5s",
        ],
        2,
        &["--drop-zeros-from: must be left out but for requests, and twitter of per-second counts, got 5s"],
    ),
    (
        &["trace", "fit", "sharegpt", "own.csv", "--tenants", "5"],
        2,
        &["--tenants: must be left out but for requests and azure-functions, got 5"],
    ),
    (
        &["trace", "fit", "twitter", "counts.csv", "--tokenizer", "none.json"],
        2,
        &["--tokenizer: must be left out where the trace has no texts, as counts.csv has, got none.json"],
    ),
    (
        &["trace", "info", "own.csv", "counts.csv", "--tokenizer", "none.json"],
        2,
        &["--tokenizer: must be left out where the trace has no texts, as own.csv has, got none.json"],
    ),
    (
        // One with texts is enough.
        &["trace", "info", "own.csv", "chat.json", "--tokenizer", "missing.json"],
        2,
        &["missing.json: "],
    ),
    (
        // Before an output is begun, whose name is wrong too.
        &["trace", "convert", "own.csv", "out.txt", "--tokenizer", "none.json"],
        2,
        &["--tokenizer: must be left out where the trace has no texts, as own.csv has, got none.json"],
    ),
    (
        &[
            "trace",
            "fit",
            "azure-functions",
            "activity.csv",
            "--tenants",
            "4294967295",
        ],
        2,
        &["--tenants: must be 1 to 1000000, since each has a weight in the text that is printed, got 4294967295"],
    ),
    (
        &[
            "trace",
            "convert",
            "counts.csv",
            "out.csv",
            "--input",
            "5",
            "--rate",
            "3",
        ],
        2,
        &["--rate: must be left out where the trace has a count a second, as counts.csv has, got 3"],
    ),
    (
        &[
            "trace",
            "convert",
            "activity.csv",
            "out.csv",
            "--input",
            "5",
            "--rate",
            "3",
        ],
        2,
        &["--rate: must be left out where the trace has a count a minute, as activity.csv has, got 3"],
    ),
    (
        &[
            "trace",
            "convert",
            "counts.csv",
            "out.csv",
            "--input",
            "5",
            "--tokenizer",
            "none.json",
        ],
        2,
        &["--tokenizer: must be left out where the trace has no texts, as counts.csv has, got none.json"],
    ),
    (
        &[
            "trace",
            "convert",
            "counts.csv",
            "out.csv",
            "--input",
            "5",
            "--dense-tenants",
        ],
        2,
        &["--dense-tenants: must be left out where the trace has no tenants, as counts.csv has, got it"],
    ),
    (
        &[
            "trace",
            "convert",
            "activity.csv",
            "out.csv",
            "--input",
            "5",
            "--dense-tenants",
        ],
        2,
        &[
            "--dense-tenants: must be left out where the trace has activity, whose tenants are numbered without gaps in any case, as activity.csv has, got it",
        ],
    ),
    (
        &["trace", "convert", "epoch.csv", "out.csv"],
        2,
        &[
            "must end within two years of its start to be read again, got request 0 at 1.700e9 s; --cut 1700000000s.. leaves out the silence before it",
        ],
    ),
    (
        &["trace", "convert", "epoch.csv", "out.csv", "--cut", "1h..1800000000s"],
        2,
        &["--cut 1700000000s..1800000000s leaves out the silence before it"],
    ),
    (
        &[
            "simulate",
            "s.yaml",
            "--set",
            "workload.arrivals={trace: {path: own.csv}}",
            "--set",
            "workload.stop={requests: 3}",
            "--set",
            "tenants={count: 1, popularity: of-arrivals}",
        ],
        2,
        &["error: s.yaml: tenants.count: must be more than the largest tenant of the arrivals, 1, got 1"],
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
