//! Sweeps whose processes are killed and whose files are damaged.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::common::{check_bad, folder, good, names, tenantry};
use crate::sweep::{SAME, file, sweep};

#[test]
fn kills_lose_no_finished_run() {
    let place = folder();
    let at = place.path();
    let longer = ["--set", "workload.stop.requests=20000"];
    let arguments = |out: &'static str| [&sweep(&["--out", out])[..], &longer].concat();
    good(at, &arguments("whole"));
    let runs = at.join("killed/runs");
    let finished = || {
        let names = if runs.exists() { names(&runs) } else { Vec::new() };
        let finished = names.into_iter().filter(|name| name.ends_with(".json"));
        finished.map(|name| (name.clone(), file(&runs, &name))).collect::<Vec<_>>()
    };
    let mut saved = finished();
    for kill in 0..5 {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tenantry"))
            .current_dir(at)
            .args(arguments("killed"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while finished().len() < saved.len() + kill % 3 && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        // Not asked to stop: killed.
        child.kill().unwrap();
        child.wait().unwrap();
        for (name, bytes) in &saved {
            assert_eq!(&file(&runs, name), bytes, "{name} after kill {kill}");
        }
        saved = finished();
    }
    assert!(
        (1..20).contains(&saved.len()),
        "killed in the middle, not after the end"
    );
    good(at, &arguments("killed"));
    for name in SAME {
        assert_eq!(file(&at.join("whole"), name), file(&at.join("killed"), name), "{name}");
    }
    let left = names(&at.join("killed/runs"));
    assert!(left.iter().all(|name| name.ends_with(".json")), "{left:?}");
}

/// Only a sweep that simulated all runs knows how fast.
#[test]
fn a_damaged_run_is_said_and_run_again() {
    let place = folder();
    let at = place.path();
    let pace = |folder: &str| {
        let manifest: Value = serde_json::from_slice(&file(&at.join(folder), "manifest.json")).unwrap();
        manifest["events_per_s"].as_f64()
    };
    good(at, &sweep(&["--out", "whole"]));
    assert!(pace("whole").is_some_and(|pace| pace > 1000.0));
    let before = SAME.map(|name| file(&at.join("whole"), name));
    let run = at.join("whole/runs/000007.json");
    let bytes = fs::read(&run).unwrap();
    const SAID: [&str; 2] = ["000007.json: must be as", "the same `tenantry sweep` runs it again"];
    // Wherever the damage is.
    let text = String::from_utf8(bytes.clone()).unwrap();
    let elsewhere = text.replacen("\"events\":", "\"events\":\"x\",\"was\":", 1);
    assert_ne!(text, elsewhere);
    for damaged in [&bytes[..bytes.len() / 2], elsewhere.as_bytes()] {
        fs::write(&run, damaged).unwrap();
        check_bad(at, &[(&["merge", "whole", "--out", "merged"], 2, &SAID)]);
        let output = tenantry(at, &sweep(&["--out", "whole"]));
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && message.contains("19 of 20 runs were saved before"),
            "{message}"
        );
        assert_eq!(before, SAME.map(|name| file(&at.join("whole"), name)));
        assert_eq!(pace("whole"), None);
    }
}

/// What reads as well as any other run may be another one, or not what was simulated.
#[test]
fn another_runs_file_and_another_digit_are_said_and_run_again() {
    let place = folder();
    let at = place.path();
    good(at, &sweep(&["--out", "whole"]));
    let before = SAME.map(|name| file(&at.join("whole"), name));
    let run = |number: u32| at.join(format!("whole/runs/{number:06}.json"));
    fs::copy(run(0), run(9)).unwrap();
    const SAID: [&str; 2] = [
        "000009.json: must be run 9, got run 0",
        "the same `tenantry sweep` runs it again",
    ];
    check_bad(at, &[(&["merge", "whole", "--out", "merged"], 2, &SAID)]);
    let text = fs::read_to_string(run(4)).unwrap();
    let (head, figure) = text.split_once("\"p98\":").unwrap();
    let digit = if figure.starts_with('1') { "2" } else { "1" };
    fs::write(run(4), format!("{head}\"p98\":{digit}{}", &figure[1..])).unwrap();
    const CHANGED: [&str; 2] = [
        "000004.json: must be as",
        "contents that its digest, `blake3`, is not of",
    ];
    check_bad(at, &[(&["merge", "whole", "--out", "merged"], 2, &CHANGED)]);
    let output = tenantry(at, &sweep(&["--out", "whole"]));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
    for said in [
        "18 of 20 runs were saved before",
        "note: 2 saved runs are not as this sweep saves them, and made again: 4, 9",
    ] {
        assert!(message.contains(said), "{said}: {message}");
    }
    assert_eq!(before, SAME.map(|name| file(&at.join("whole"), name)));
}

/// Of two copies one is enough, whichever it is.
#[test]
fn a_good_copy_stands_for_a_damaged_one() {
    let place = folder();
    let at = place.path();
    for out in ["one", "two"] {
        good(at, &sweep(&["--out", out]));
    }
    let damage = |out: &str, name: &str| fs::write(at.join(out).join("runs").join(name), "{").unwrap();
    damage("one", "000003.json");
    damage("two", "000005.json");
    for order in [["one", "two"], ["two", "one"]] {
        good(at, &[&["merge"], &order[..], &["--out", "merged"]].concat());
        for name in &SAME[..4] {
            assert_eq!(file(&at.join("one"), name), file(&at.join("merged"), name), "{name}");
        }
    }
    damage("two", "000003.json");
    const SAID: [&str; 2] = [
        "one/runs/000003.json: must be as",
        "the same `tenantry sweep` runs it again",
    ];
    check_bad(at, &[(&["merge", "one", "two", "--out", "again"], 2, &SAID)]);
}
