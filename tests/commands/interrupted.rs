//! What Ctrl-C leaves of runs: results that are finished keep their place.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::common::{folder, good, names};

/// What a folder's files hold, by their names.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let of = |name: String| {
        let bytes = fs::read(folder.join(&name)).unwrap();
        (name, bytes)
    };
    names(folder).into_iter().map(of).collect()
}

fn json(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

/// Runs a command with `--requests` that is told to stop once as many of its runs have begun, each of which begins a
/// part of that file; what it says last.
fn stopped_in_run(number: usize, at: &Path, args: &[&str]) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tenantry"))
        .current_dir(at)
        .args([args, &["--requests", "--out", "out"]].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let is_part = |name: &&String| name.starts_with(".tenantry");
    let begun = || names(&at.join("out")).iter().filter(is_part).count();
    while begun() < number && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(killed.unwrap().success());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    said.lines().last().unwrap().to_owned()
}

const ENDLESS: &str = "workload.stop={requests: 1000000000}";

#[test]
fn a_finished_simulation_keeps_its_place() {
    let folder = folder();
    let at = folder.path();
    let (out, partial, record) = (at.join("out"), at.join("out.partial"), at.join("log.csv"));
    let simulate = ["simulate", "s.yaml", "--jobs", "1", "--record", "log.csv"];
    good(at, &[&simulate[..], &["--requests", "--out", "out"]].concat());
    let (finished, recorded) = (contents(&out), fs::read(&record).unwrap());

    // Not one run is whole.
    let endless = [&simulate[..], &["--set", ENDLESS]].concat();
    let said = stopped_in_run(1, at, &endless);
    let nothing = "interrupted: no run was simulated to its end, and nothing is written: out keeps the results of an \
                   earlier command";
    assert_eq!(said, nothing);
    assert!(!partial.exists());
    assert_eq!(
        (contents(&out), fs::read(&record).unwrap()),
        (finished.clone(), recorded)
    );

    // Two are.
    let sweep = "sweep={workload.stop.requests: [200, 1000000000]}";
    let two_whole = ["simulate", "s.yaml", "--jobs", "1", "--set", sweep];
    let said = stopped_in_run(3, at, &two_whole);
    let beside = "interrupted: what was simulated until then is in out.partial; out keeps the results of an earlier \
                  command";
    assert_eq!(said, beside);
    assert_eq!(contents(&out), finished);
    let runs = json(&partial.join("summary.json"))["runs"].clone();
    let whole = |run: &&Value| run["requests"]["finished"] == 200 && run.get("interrupted").is_none();
    assert_eq!(runs.as_array().unwrap().iter().filter(whole).count(), 2, "{runs}");
    assert!(partial.join("requests.parquet").exists());

    // What was stopped gives way to what is stopped next, and to what is finished.
    let partial_out = contents(&partial);
    fs::remove_dir_all(&out).unwrap();
    fs::rename(&partial, &out).unwrap();
    let said = stopped_in_run(1, at, &["simulate", "s.yaml", "--jobs", "1", "--set", ENDLESS]);
    assert_eq!(said, "interrupted: what was simulated until then is in out");
    assert!(!partial.exists());
    let stopped = json(&out.join("summary.json"))["runs"][0].clone();
    assert_eq!(stopped["interrupted"], true, "{stopped}");
    assert_ne!(contents(&out), partial_out);
    good(at, &["simulate", "s.yaml", "--out", "out"]);
    assert_eq!(contents(&out)["summary.csv"], finished["summary.csv"]);
}

/// Whatever a real machine was doing when it was stopped.
#[cfg(feature = "libtorch")]
#[test]
fn what_was_finished_on_a_real_machine_keeps_its_place() {
    let folder = folder();
    let at = folder.path();
    let with_stop = |command, stop| {
        let systems = "systems=[{preset: bert-shared}]";
        let set = [
            "--set",
            systems,
            "--set",
            "workload.arrivals.poisson.rate=20/s",
            "--set",
            stop,
        ];
        [&[command, "s.yaml", "--device", "cpu"], &set[..]].concat()
    };
    let (few, hours) = ("workload.stop={requests: 20}", "workload.stop={after: 30min}");
    // An execution is stopped in its only run, a validation in that of the real machine, after the simulated one.
    for (command, in_run, result) in [("execute", 1, "summary.json"), ("validate", 2, "validation.json")] {
        good(at, &[&with_stop(command, few)[..], &["--out", "out"]].concat());
        let finished = contents(&at.join("out"));
        assert!(finished.contains_key(result));
        stopped_in_run(in_run, at, &with_stop(command, hours));
        assert_eq!(contents(&at.join("out")), finished, "{command}");
        assert_eq!(at.join("out.partial").exists(), command == "validate");
    }
    assert_eq!(json(&at.join("out.partial/validation.json"))["stopped"], true);
}
