//! A folder to work in, and the program.

#![allow(dead_code, reason = "each test uses some of it")]

pub mod requests;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;
use tenantry_profiles::testing::synthetic_card;

/// A small scenario on the synthetic card, with two systems.
pub const SCENARIO: &str = "\
name: test
seed: 1
card: ./card
cluster: { gpus: 1, gpu_memory: 64 MiB }
models: { backbone: tiny }
tenants: { count: 20, popularity: uniform }
workload:
  arrivals: { poisson: { rate: 100/s } }
  lengths: { input: { normal: { mean: 30, sd: 8, min: 4, max: 60 } } }
  stop: { requests: 300 }
systems:
  - preset: hbert-adapter
    tenant_state: { adapters: { bottleneck: 16 } }
  - preset: bert-shared
";

/// The public recording `name`: in `TENANTRY_DATA`, or in `shared/data` beside the checkout. Where it is absent the
/// test is skipped, and says so.
pub fn recording(name: &str) -> Option<PathBuf> {
    let data = std::env::var_os("TENANTRY_DATA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/data"),
        PathBuf::from,
    );
    let file = data.join(name);
    if !file.exists() {
        eprintln!(
            "SKIPPED: {} is not here; set TENANTRY_DATA to the folder of public traces",
            file.display()
        );
        return None;
    }
    Some(file)
}

/// With a card and `s.yaml`.
pub fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    synthetic_card().save(&folder.path().join("card")).expect("the card is saved");
    fs::write(folder.path().join("s.yaml"), SCENARIO).unwrap();
    folder
}

/// Runs the program.
pub fn tenantry(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenantry"));
    command.current_dir(folder).args(args).output().expect("the program starts")
}

/// Runs the program, which must succeed; its standard output.
pub fn good(folder: &Path, args: &[&str]) -> String {
    let output = tenantry(folder, args);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {message}");
    String::from_utf8(output.stdout).expect("what is printed is text")
}

/// What a command says beside its answer.
pub fn said(folder: &Path, args: &[&str]) -> String {
    let output = tenantry(folder, args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {said}");
    said
}

/// As [`good`], as JSON.
pub fn good_json(folder: &Path, args: &[&str]) -> serde_json::Value {
    let mut all = args.to_vec();
    all.push("--json");
    serde_json::from_str(&good(folder, &all)).expect("--json prints JSON and nothing else")
}

/// Arguments, the exit code, and what the message must contain.
pub type Case<'a> = (&'a [&'a str], i32, &'a [&'a str]);

/// Each case must fail as it says.
pub fn check_bad(folder: &Path, cases: &[Case<'_>]) {
    let mut wrong = Vec::new();
    for (args, code, fragments) in cases {
        let output = tenantry(folder, args);
        let message = String::from_utf8_lossy(&output.stderr);
        let missing: Vec<_> = fragments.iter().filter(|fragment| !message.contains(**fragment)).collect();
        if output.status.code() != Some(*code) || !missing.is_empty() || message.contains("panicked") {
            wrong.push(format!(
                "{args:?}: exit {:?}, not in the message: {missing:?}\n  {message}",
                output.status.code()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Runs a command in `folder` that is told to stop (Ctrl-C) by the first line of standard error which says that it is
/// time, and ends as one that was: what it said.
#[cfg(unix)]
pub fn interrupted_when(folder: &Path, args: &[&str], is_time: impl Fn(&str) -> bool) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tenantry"))
        .current_dir(folder)
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said: Vec<String> = Vec::new();
    let mut is_told = false;
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        if !is_told && is_time(&line) {
            let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
            is_told = killed.unwrap().success();
            assert!(is_told);
        }
        said.push(line);
    }
    assert_eq!(child.wait().unwrap().code(), Some(130), "{args:?}: {said:#?}");
    said.join("\n")
}

/// Names in a folder, sorted.
pub fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A folder with traces good and bad.
pub fn traces() -> TempDir {
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
    write("all-broken.csv", &format!("{header}0,0,x,5,0,0\n1,0,y,5,0,0\n"));
    write("unknown.csv", "who,what,when\n1,2,3\n");
    write("empty.csv", "");
    write("lengths.csv", "num_prefill_tokens,num_decode_tokens\n10,20\n30,40\n");
    write(
        "epoch.csv",
        "arrived_at,num_prefill_tokens,num_decode_tokens\n1700000000.5,10,3\n1700000001.5,10,3\n",
    );
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
