//! HMI's systems, executed.

#![cfg(all(unix, feature = "libtorch"))]

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::folder;

/// A system whose table takes a while to build.
const SLOW_TO_BUILD: &str = "\
name: test
seed: 1
card: ./card
cluster: { gpus: 1, gpu_memory: 1 GiB }
models:
  backbone: { kind: encoder, layers: 4, hidden: 512, heads: 8, intermediate: 2048, vocabulary: 1024 }
tenants: { count: 20 }
workload:
  arrivals: { poisson: { rate: 100/s } }
  lengths: { input: { fixed: 8 } }
  stop: { requests: 10 }
systems:
  - { preset: hmi, plot: { lower_layers: 3 } }
";

/// Whether a table of trigrams is being filled somewhere below.
fn is_filling(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else {
        return false;
    };
    entries.flatten().any(|entry| {
        let path = entry.path();
        let journal = path.ends_with("3.plot.building/journal");
        journal && fs::metadata(&path).is_ok_and(|file| file.len() > 0) || path.is_dir() && is_filling(&path)
    })
}

/// Ctrl-C stops the building of a table, which says nothing where nobody watches.
#[test]
fn an_interrupt_stops_the_building_of_a_table() {
    let folder = folder();
    fs::write(folder.path().join("s.yaml"), SLOW_TO_BUILD).unwrap();
    let cache = folder.path().join("cache");
    let child = Command::new(env!("CARGO_BIN_EXE_tenantry"))
        .current_dir(folder.path())
        .env("XDG_CACHE_HOME", &cache)
        .args(["execute", "s.yaml", "--device", "cpu", "--out", "out"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !is_filling(&cache) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(interrupt.unwrap().success());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(
        said.starts_with("interrupted: ") && said.trim_end().ends_with("; the same command goes on"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(!folder.path().join("out").exists());
}
