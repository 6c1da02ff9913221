//! Bad input gives the contract's message and exit code, and nothing is lost or half written.

use std::fs;
use std::process::Command;

use crate::common::{Case, check_bad, tenantry};
use tempfile::TempDir;
use tenantry_profiles::testing::synthetic_card;

/// A scenario that works on the synthetic card; each case breaks one thing.
const SCENARIO: &str = "\
name: test
seed: 1
card: ./card
cluster: { gpus: 1, gpu_memory: 64 MiB }
models: { backbone: tiny }
tenants: { count: 20, popularity: uniform }
workload:
  arrivals: { poisson: { rate: 100/s } }
  lengths: { input: { fixed: 32 } }
  stop: { requests: 100 }
systems:
  - preset: hbert-adapter
    tenant_state: { adapters: { bottleneck: 16 } }
";

/// A folder with a card, a scenario, and traces good and bad.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path();
    synthetic_card().save(&path.join("card")).expect("the card is saved");
    fs::write(path.join("s.yaml"), SCENARIO).unwrap();
    fs::write(path.join("small.yaml"), SCENARIO.replace("64 MiB", "600 KiB")).unwrap();
    fs::write(
        path.join("no-card.yaml"),
        SCENARIO.replace("card: ./card", "card: crad"),
    )
    .unwrap();
    fs::write(
        path.join("broken.csv"),
        "ticket,tenant,arrival_ns,input_tokens,output_tokens,class\n0,0,0,5,0,0\n1,0,x,5,0,0\n",
    )
    .unwrap();
    fs::write(path.join("unknown.csv"), "who,what,when\n1,2,3\n").unwrap();
    fs::write(path.join("file"), "not a folder").unwrap();
    fs::write(path.join("not.yaml"), "name: [1, 2\n").unwrap();
    fs::write(path.join("latin1.yaml"), b"name: caf\xe9\n").unwrap();
    folder
}

const CASES: &[Case] = &[
    // The command line.
    (&["simulate"], 2, &["<SCENARIO>"]),
    (&["simulat", "s.yaml"], 2, &["simulat", "simulate"]),
    (
        &["simulate", "s.yaml", "--jobs", "0"],
        2,
        &["'--jobs <N>': must be a whole number, at least 1, got 0"],
    ),
    (
        &["simulate", "s.yaml", "--set", "seed=7", "--seed", "5"],
        2,
        &["--seed: must be left out where --set gives seed, got 5 beside --set seed=7"],
    ),
    (
        &["sweep", "s.yaml", "--set", "card=cpu", "--profile", "./card"],
        2,
        &["--profile: must be left out where --set gives card, got ./card beside --set card=cpu"],
    ),
    (
        &["sweep", "s.yaml", "--job-file", "slurm", "--shards", "none"],
        2,
        &["'--shards <N>': must be a whole number, at least 1, got none"],
    ),
    (&["profile", "show", "h200"], 2, &["CARD: must be", "got h200"]),
    (
        &["profile", "compare", "cpu", "h200"],
        2,
        &["SECOND: must be", "got h200"],
    ),
    (
        &["profile", "--device", "cpu", "show", "cpu"],
        2,
        &["--device: must be left out beside show, compare, derive and import, which measure nothing, got one"],
    ),
    (
        &["simulate", "s.yaml", "--set", "cluster.gpu_memory=600 KiB"],
        2,
        &["error: --set: cluster.gpu_memory: must "],
    ),
    (
        &["presets", "hbert-adaptor"],
        2,
        &[
            "preset: must be one of",
            "got hbert-adaptor; did you mean hbert-adapter?",
        ],
    ),
    // Files.
    (&["simulate", "missing.yaml"], 2, &["missing.yaml"]),
    (&["simulate", "."], 2, &["."]),
    (&["simulate", "not.yaml"], 2, &["not.yaml"]),
    (&["simulate", "latin1.yaml"], 2, &["latin1.yaml", "UTF-8"]),
    (&["simulate", "quickstrat"], 2, &["did you mean quickstart?"]),
    (
        &["check", "quickstart", "--set", "slo.at=98"],
        2,
        &["slo.at: must be", "got 98; did you mean p98?"],
    ),
    (
        &["check", "quickstart", "--set", "cluster.gpu_memory=256 mib"],
        2,
        &["got 256 mib; did you mean 256 MiB?"],
    ),
    // Keys and values.
    (
        &["simulate", "s.yaml", "--set", "tenants.cuont=5"],
        2,
        &["tenants.cuont: must be one of", "did you mean count?"],
    ),
    (
        &["simulate", "s.yaml", "--set", "workload.arrivals.poisson.rate=100"],
        2,
        &["workload.arrivals.poisson.rate: must be"],
    ),
    (
        &["simulate", "s.yaml", "--set", "workload.arrivals.poisson.rate=-5/s"],
        2,
        &["workload.arrivals.poisson.rate: must be", "-5/s"],
    ),
    (
        &["simulate", "s.yaml", "--set", "workload.arrivals.poison={rate: 5/s}"],
        2,
        &["workload.arrivals"],
    ),
    (
        &["simulate", "s.yaml", "--set", "cluster.gpu_memory=64 MB/s"],
        2,
        &["cluster.gpu_memory: must be", "64 MB/s"],
    ),
    (
        &["simulate", "s.yaml", "--set", "cluster.gpus=0"],
        2,
        &["cluster.gpus: must be", "got 0"],
    ),
    (
        &["simulate", "s.yaml", "--set", "tenants.count=many"],
        2,
        &["tenants.count: must be", "got"],
    ),
    (
        &["simulate", "s.yaml", "--set", "models.backbone=bert-bse"],
        2,
        &["models.backbone: must be", "did you mean bert-base?"],
    ),
    (
        &["simulate", "s.yaml", "--set", "systems=[{preset: hbert}]"],
        2,
        &["systems[0].preset: must be one of", "got hbert"],
    ),
    (
        &["simulate", "s.yaml", "--set", "workload.lengths.input={fixed: 4096}"],
        2,
        &["workload.lengths.input", "at most 128"],
    ),
    (
        &["simulate", "s.yaml", "--set", "workload.stop={}"],
        2,
        &["workload.stop: must be"],
    ),
    (
        &["simulate", "s.yaml", "--set", "slo={latency: 100 parsecs, at: p98}"],
        2,
        &["slo.latency: must be", "parsecs"],
    ),
    (
        &["simulate", "s.yaml", "--set", "sweep={tenants.cuont: [1, 2]}"],
        2,
        &["tenants.cuont", "did you mean"],
    ),
    (
        &["simulate", "s.yaml", "--set", "nonsense"],
        2,
        &["--set: must be path=value, got nonsense"],
    ),
    (
        &[
            "simulate",
            "s.yaml",
            "--set",
            "systems=[{preset: bert-dedicated, pipeline: layerwise}]",
        ],
        2,
        &["systems[0].pipeline: must be", "layerwise"],
    ),
    // Cards.
    (
        &["simulate", "s.yaml", "--profile", "card/missing"],
        2,
        &["card/missing"],
    ),
    (
        &["simulate", "s.yaml", "--set", "card=h2o0"],
        2,
        &["--set: card: must be", "got h2o0", "tenantry profile"],
    ),
    (
        &["simulate", "s.yaml", "--set", "sweep={card: [cpu, h2o0]}"],
        2,
        &[
            "--set: sweep.card[1]: must be a folder with a card.yaml or one of ",
            "got h2o0",
        ],
    ),
    (
        &["simulate", "no-card.yaml"],
        2,
        &["no-card.yaml:3: card: must be", "got crad"],
    ),
    (
        &[
            "simulate",
            "s.yaml",
            "--set",
            "models.backbone=bert-large",
            "--set",
            "cluster.gpu_memory=4 GiB",
        ],
        2,
        &[
            "error: s.yaml:12: systems[0]: system hbert-adapter: card ",
            "bert-large",
            "measure it with `tenantry profile --device cpu --for s.yaml`",
        ],
    ),
    // Tasks are computed in single precision alone: what the card has in another format is no hint.
    (
        &["simulate", "pets/fig-7", "--set", "card=l4"],
        2,
        &[
            "got model=bert-base dtype=f16, model=bert-large dtype=f16; measure it with `tenantry profile --device cuda:0 --for ",
        ],
    ),
    (
        &["simulate", "s.yaml", "--set", "cluster.gpu_memory=1 MiB"],
        2,
        &[
            "error: --set: cluster.gpu_memory: must be of at least 2.13 MiB of memory for system hbert-adapter with tiny and one tenant's parameters for each instance, got 1.00 MiB",
        ],
    ),
    // More than can be counted is too much, and no card is that large.
    (
        &[
            "check",
            "s.yaml",
            "--set",
            "models.backbone={layers: 48, hidden: 65536, heads: 64, intermediate: 262144, vocabulary: 100000, \
             positions: 128}",
            "--set",
            "tenants.count=100000000",
            "--set",
            "systems=[{preset: bert-dedicated, classes: 1048576, instances_per_gpu: 1024}]",
        ],
        2,
        &[
            "error: s.yaml:4: cluster.gpu_memory: must be of at least 17179869184 GiB of memory for system bert-dedicated with backbone, got 64.0 MiB",
        ],
    ),
    (
        &["check", "small.yaml"],
        2,
        &["error: small.yaml:4: cluster.gpu_memory: must be of at least "],
    ),
    // Traces.
    (
        &[
            "simulate",
            "s.yaml",
            "--set",
            "workload.arrivals={trace: {path: missing.csv}}",
        ],
        2,
        &["missing.csv"],
    ),
    (
        &[
            "simulate",
            "s.yaml",
            "--set",
            "workload.arrivals={trace: {path: unknown.csv}}",
        ],
        2,
        &["unknown.csv"],
    ),
    // Results that cannot be written.
    (
        &["simulate", "s.yaml", "--out", "file"],
        2,
        &["--out: must be a folder, or one that can be made, got file, where file is a file"],
    ),
    (
        &["sweep", "s.yaml", "--out", "file"],
        2,
        &["--out: must be a folder, or one that can be made, got file, where file is a file"],
    ),
    (
        &["reproduce", "tabi", "--out", "file"],
        2,
        &["--out: must be a folder, or one that can be made, got file, where file is a file"],
    ),
    (
        &["reproduce", "tabi", "--sensitivity", "--out", "file/there"],
        2,
        &["--out: must be a folder, or one that can be made, got file/there, where file is a file"],
    ),
    // Before anything is simulated.
    (
        &["simulate", "s.yaml", "--out", "/proc/nothing"],
        2,
        &["--out: must be a folder that can be written to, got /proc/nothing, where /proc cannot be: "],
    ),
];

#[test]
fn bad_input_gives_the_contracts_message_and_exit_code() {
    let folder = folder();
    let good = tenantry(folder.path(), &["simulate", "s.yaml", "--out", "good"]);
    assert!(
        good.status.success(),
        "the unbroken scenario works: {}",
        String::from_utf8_lossy(&good.stderr)
    );
    check_bad(folder.path(), CASES);
    assert!(!folder.path().join("out").exists(), "nothing was written for bad input");
}

#[test]
fn a_broken_line_of_a_trace_is_named() {
    let folder = folder();
    let set = "workload.arrivals={trace: {path: broken.csv}}";
    let output = tenantry(
        folder.path(),
        &[
            "simulate",
            "s.yaml",
            "--set",
            set,
            "--set",
            "workload.lengths={input: of-arrivals}",
        ],
    );
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("broken.csv:3"), "{message}");
}

/// A file that cannot be written to its end is not there at all, and an older one is as it was.
#[test]
fn a_full_disk_leaves_no_half_files() {
    let folder = folder();
    assert!(tenantry(folder.path(), &["simulate", "s.yaml", "--out", "out"]).status.success());
    let before = fs::read(folder.path().join("out/summary.json")).unwrap();
    // A limit on file sizes is the full disk that needs no privileges.
    let script = format!(
        "trap '' XFSZ; ulimit -f 1; exec '{}' simulate s.yaml --seed 2 --out out",
        env!("CARGO_BIN_EXE_tenantry")
    );
    let output = Command::new("bash").current_dir(folder.path()).args(["-c", &script]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("out/"), "the file is named: {message}");
    assert_eq!(fs::read(folder.path().join("out/summary.json")).unwrap(), before);
    let names = fs::read_dir(folder.path().join("out")).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with(".tenantry")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Paths are told in JSON, which is UTF-8: what is not is said before anything is done.
#[cfg(unix)]
#[test]
fn arguments_that_are_no_text_are_refused() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let folder = folder();
    let broken = OsStr::from_bytes(b"out/caf\xe9");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenantry"));
    let output = command
        .current_dir(folder.path())
        .args(["simulate", "s.yaml", "--out"])
        .arg(broken)
        .output()
        .expect("the program starts");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("must be UTF-8, got other bytes"), "{message}");
    assert!(!folder.path().join("out").exists());
}
