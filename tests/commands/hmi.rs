//! HMI's systems, executed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::common::{SCENARIO, folder, tenantry};
use tenantry_executor::machine::execute::{self, execute};
use tenantry_executor::{Device, Files};
use tenantry_profiles::testing::synthetic_card;
use tenantry_scenarios::Scenario;
use tenantry_traces::Time;
use tenantry_traces::generate::TenantGroups;

/// A system whose table takes a while to build.
const SLOW_TO_BUILD: &str = "\
name: test
seed: 1
card: ./card
cluster: { gpus: 1, gpu_memory: 1 GiB }
models:
  backbone: { kind: encoder, layers: 4, hidden: 512, heads: 8, intermediate: 2048, vocabulary: 1024, positions: 64 }
tenants: { count: 20 }
workload:
  arrivals: { poisson: { rate: 100/s } }
  lengths: { input: { fixed: 8 } }
  stop: { requests: 10 }
systems:
  - { preset: hmi, plot: { lower_layers: 3 } }
";

/// Weights that are not the model's, or not there, are a mistake in what was handed in, and named with the file.
#[test]
fn a_checkpoint_that_does_not_fit_is_bad_input() {
    let folder = folder();
    // A safetensors file without a tensor.
    let header = b"{}      ";
    let empty = [&(header.len() as u64).to_le_bytes()[..], header].concat();
    fs::write(folder.path().join("empty.safetensors"), empty).unwrap();
    fs::write(folder.path().join("text.safetensors"), "no weights").unwrap();
    for (file, fault) in [
        (
            "empty.safetensors",
            "empty.safetensors: embeddings.word_embeddings.weight: must be a tensor [",
        ),
        (
            "text.safetensors",
            "text.safetensors: header: must be that of a safetensors file, got ",
        ),
        (
            "absent.safetensors",
            "systems[0].files.model: must be a path that can be read, relative to the folder you are in, got absent.safetensors",
        ),
    ] {
        let set = format!("systems[0].files={{model: {file}}}");
        let output = tenantry(
            folder.path(),
            &["execute", "s.yaml", "--device", "cpu", "--set", &set, "--out", "out"],
        );
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{file}: {said}");
        assert!(said.contains(fault), "{file}: {said}");
        assert!(!folder.path().join("out").exists());
    }
}

/// Texts that no table can be built of are told where the scenario names them, before anything is run, whichever system
/// they are of.
#[test]
fn texts_that_cannot_be_read_are_bad_input() {
    let folder = folder();
    let good: String = (0..20).map(|text| format!("{text} 7 8 9\n")).collect();
    let files: [(&str, &[u8]); 5] = [
        ("good.txt", good.as_bytes()),
        ("negative.txt", b"-1 2 3\n"),
        ("few.txt", b"1 2 3\n"),
        ("empty.txt", b""),
        ("latin-1.txt", b"\xfcber\n"),
    ];
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    fs::create_dir(folder.path().join("folder")).unwrap();
    for (file, fault) in [
        (
            "negative.txt",
            "must be token ids separated by spaces where there is no tokenizer.json beside the model's weights, got \
             negative.txt: other text (text 1)",
        ),
        (
            "few.txt",
            "must be at least 10 texts, one a line, of which each tenth is kept for requests, got few.txt: 1",
        ),
        (
            "empty.txt",
            "must be at least 10 texts, one a line, of which each tenth is kept for requests, got empty.txt: 0",
        ),
        (
            "latin-1.txt",
            "must be UTF-8, got latin-1.txt: another byte after the first 0",
        ),
        ("folder", "must be a file that can be read, got folder: Is a directory"),
    ] {
        for met in ["as-built", "counted"] {
            let text = SCENARIO.replace(
                "  - preset: bert-shared\n",
                &format!(
                    "  - preset: hbert-plot\n    plot: {{ lower_layers: 1, met: {met} }}\n    files:\n      corpus:\n        \
                     - good.txt\n        - {file}\n"
                ),
            );
            fs::write(folder.path().join("s.yaml"), text).unwrap();
            let commands: &[&[&str]] = &[
                &["check", "s.yaml"],
                &["execute", "s.yaml", "--device", "cpu", "--out", "out"],
                &["validate", "s.yaml", "--device", "cpu", "--out", "out"],
            ];
            for args in commands {
                let output = tenantry(folder.path(), args);
                let said = String::from_utf8_lossy(&output.stderr);
                assert_eq!(output.status.code(), Some(2), "{args:?}, {file}: {said}");
                let expected = format!("error: s.yaml:19: systems[1].files.corpus[1]: {fault}");
                assert!(said.starts_with(&expected), "{args:?}, {file}: {said}");
                assert!(!folder.path().join("out").exists());
            }
        }
    }
}

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
    let mut child = Command::new(env!("CARGO_BIN_EXE_tenantry"))
        .current_dir(folder.path())
        .env("XDG_CACHE_HOME", &cache)
        .args(["execute", "s.yaml", "--device", "cpu", "--out", "out"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while child.try_wait().unwrap().is_none() && !is_filling(&cache) {
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

/// HMI's four pipelines with 10,000 tenants of whom the card holds some: all are served, with the same look-ups and the
/// same answers.
#[test]
fn ten_thousand_tenants_are_executed_in_every_pipeline() {
    let overrides = ["workload.stop={requests: 400}", "workload.warm_up=0s"].map(String::from);
    let scenario = Scenario::load("hmi/ten-thousand", &overrides).unwrap();
    let folder = folder();
    let card = synthetic_card();
    let pipelines = ["synchronous", "prefetch-retrieval", "prefetch", "layerwise"];
    let executed = pipelines.map(|pipeline| {
        let runs = scenario.runs();
        let name = format!("hbert-{pipeline}");
        let run = runs.iter().find(|run| run.system.name == name).unwrap();
        assert_eq!(run.tenants, 10_000);
        let spec = execute::Run {
            device: Device::Cpu,
            card: &card,
            cluster: run.cluster(1 << 30, 1, 1),
            system: &run.system,
            tenants: run.tenants,
            warm_up: Time::ZERO,
            target: None,
            seed: run.seed,
            outcomes: None,
            // Tenants share sets in turns: what differs between pipelines would differ all the same.
            max_host_bytes: 256 << 20,
            files: Files::NONE,
            tables: folder.path().join("tables"),
            tokens: true,
            domains: TenantGroups::new(&run.workload).unwrap().domains().clone(),
            building: &|_| {},
        };
        let mut workload = tenantry_traces::build(&run.workload).unwrap();
        execute(&spec, &mut *workload, Arc::default(), ()).unwrap()
    });
    let first = &executed[0];
    let classes: BTreeSet<u32> = first.answers.iter().map(|answer| answer.class).collect();
    assert!(classes.len() > 1, "heads tell texts apart");
    for (done, pipeline) in executed.iter().zip(pipelines) {
        assert_eq!(done.record.counts.served, 400, "{pipeline}");
        let misses = done.record.swaps.as_ref().unwrap().misses;
        // Of 400 requests of 10,000 tenants nearly all are of a tenant of their own, whose adapters must come in.
        assert!(misses > 350, "{pipeline}: {misses}");
        assert_eq!(done.record.lookups, first.record.lookups, "{pipeline}");
        assert_eq!(done.answers, first.answers, "{pipeline}");
    }
    let lookups = first.record.lookups.unwrap();
    assert!(lookups.domain_hits > 0 && lookups.fallbacks > 0, "{lookups:?}");
}
