//! Sweeps in parts: shards, job files, what is another sweep and what is left out; `sweep_damaged.rs` has kills and
//! damage.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tenantry_profiles::Source;
use tenantry_profiles::testing::synthetic_card;

use crate::common::{Case, check_bad, folder, good, names, tenantry};

pub const SWEEP: [&str; 4] = [
    "--set",
    "sweep={tenants.count: [5, 20], workload.arrivals.poisson.rate: {from: 20/s, to: 200/s, scale: log}}",
    "--set",
    "samples={latin-hypercube: 5}",
];

pub fn sweep<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["sweep", "s.yaml"], &SWEEP[..], more].concat()
}

pub fn file(folder: &Path, name: &str) -> Vec<u8> {
    fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The files that do not say when, where and how long.
pub const SAME: [&str; 5] = [
    "summary.json",
    "summary.csv",
    "curves.json",
    "scenario.resolved.yaml",
    "sweep.json",
];

/// More repeats and points than an earlier sweep had: what both have in common is not simulated again, and all is as if
/// it were.
#[test]
fn a_larger_sweep_takes_over_what_a_smaller_one_has_made() {
    let place = folder();
    let at = place.path();
    let sweep = |tenants: &str, repeats: &str, more: &[&str]| {
        let (tenants, repeats) = (
            format!("sweep={{tenants.count: {tenants}}}"),
            format!("repeats={repeats}"),
        );
        let args = [&["sweep", "s.yaml", "--set", &tenants, "--set", &repeats], more].concat();
        let output = tenantry(at, &args);
        assert!(output.status.success(), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    sweep("[5, 20]", "2", &["--out", "small"]);
    let said = sweep("[5, 10, 20]", "3", &["--out", "large", "--reuse", "small"]);
    assert!(said.contains("8 of 18 runs are taken over from small"), "{said}");
    sweep("[5, 10, 20]", "3", &["--out", "anew"]);
    for name in SAME {
        assert_eq!(file(&at.join("large"), name), file(&at.join("anew"), name), "{name}");
    }
    // Another seed's runs are others.
    let said = sweep("[5, 20]", "2", &["--out", "other", "--reuse", "small", "--seed", "9"]);
    assert!(
        said.contains("0 of 8 runs are taken over from small, which is of another scenario"),
        "{said}"
    );
    // The third repeat of seed 1 is the first of seed 3, and called otherwise.
    let said = sweep("[5, 20]", "1", &["--out", "called", "--reuse", "anew", "--seed", "3"]);
    assert!(said.contains("0 of 4 runs are taken over"), "{said}");
    // What one point reads is no part of another's.
    for name in ["a.csv", "b.csv"] {
        good(at, &["trace", "generate", "s.yaml", name, "--set", "seed=7"]);
    }
    let traces = |names: &[&str], more: &[&str]| {
        let traces = names.iter().map(|name| format!("{{trace: {{path: {name}}}}}"));
        let swept = format!(
            "sweep={{workload.arrivals: [{}]}}",
            traces.collect::<Vec<_>>().join(", ")
        );
        let output = tenantry(at, &[&["sweep", "s.yaml", "--set", &swept], more].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        said
    };
    traces(&["a.csv"], &["--out", "a"]);
    let said = traces(&["a.csv", "b.csv"], &["--out", "ab", "--reuse", "a"]);
    assert!(said.contains("2 of 4 runs are taken over from a\n"), "{said}");
    let refused = tenantry(at, &["sweep", "s.yaml", "--out", "nothing", "--reuse", "card"]);
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn shards_merge_to_what_one_sweep_and_simulate_write() {
    let place = folder();
    let at = place.path();
    good(at, &sweep(&["--out", "whole"]));
    for shard in ["1/3", "2/3", "3/3"] {
        let out = format!("part-{}", &shard[..1]);
        good(at, &sweep(&["--shard", shard, "--out", &out]));
        assert!(!at.join(&out).join("summary.json").exists());
    }
    good(at, &["merge", "part-1", "part-2", "part-3", "--out", "merged"]);
    for name in &SAME[..4] {
        assert_eq!(file(&at.join("whole"), name), file(&at.join("merged"), name), "{name}");
    }
    let simulate = [&["simulate", "s.yaml"], &SWEEP[..], &["--out", "simulated"]].concat();
    good(at, &simulate);
    assert_eq!(file(&at.join("whole"), SAME[0]), file(&at.join("simulated"), SAME[0]));
    assert_eq!(names(&at.join("whole/runs")).len(), 2 * 2 * 5);

    // Shards that share a folder need no more than its name.
    for shard in ["2/2", "1/2"] {
        good(at, &sweep(&["--shard", shard, "--out", "shared"]));
    }
    good(at, &["merge", "shared", "--out", "shared"]);
    for name in SAME {
        assert_eq!(file(&at.join("whole"), name), file(&at.join("shared"), name), "{name}");
    }
}

/// The scenario in a folder is that of the command that wrote to it last.
#[test]
fn what_is_merged_has_the_sweeps_scenario_whatever_a_later_command_wrote() {
    let place = folder();
    let at = place.path();
    good(at, &sweep(&["--shard", "1/1", "--out", "part"]));
    good(at, &["merge", "part", "--out", "merged"]);
    good(at, &["simulate", "s.yaml", "--seed", "9", "--out", "part"]);
    good(at, &["merge", "part", "--out", "again"]);
    for name in &SAME[..4] {
        assert_eq!(file(&at.join("merged"), name), file(&at.join("again"), name), "{name}");
    }
}

/// What a shard replays is what all shards replay.
#[test]
fn a_changed_file_or_card_is_another_sweep() {
    let place = folder();
    let at = place.path();
    let record = |rate: &str| {
        let set = format!("workload.arrivals.poisson.rate={rate}");
        good(
            at,
            &["trace", "generate", "s.yaml", "log.csv", "--set", &set, "--quiet"],
        );
    };
    record("100/s");
    let replay = [
        "--set",
        "workload={arrivals: {trace: {path: log.csv}}, lengths: {joint: of-arrivals}}",
        "--set",
        "sweep={tenants.count: [20, 40]}",
    ];
    let sweep = |more: &[&str]| tenantry(at, &[&["sweep", "s.yaml"], &replay[..], more].concat());
    let done = |more: &[&str]| {
        let output = sweep(more);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let refused = |output: std::process::Output, words: &[&str]| {
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(words.iter().all(|word| message.contains(word)), "{words:?}: {message}");
    };
    done(&["--shard", "1/2", "--out", "one"]);
    done(&["--shard", "1/2", "--out", "shared"]);
    let before = file(at, "log.csv");
    record("50/s");
    done(&["--shard", "2/2", "--out", "two"]);
    let changed = "with other contents of log.csv (BLAKE3 ";
    refused(
        sweep(&["--shard", "2/2", "--out", "shared"]),
        &["must be a new folder, or one with this sweep, got shared", changed],
    );
    refused(
        tenantry(at, &["merge", "one", "two", "--out", "merged"]),
        &["two: must hold the same sweep as one, got other contents of log.csv"],
    );
    // Where both began in one folder at once, neither has seen the other; their runs tell.
    let runs = |folder: &str| names(&at.join(folder).join("runs"));
    for run in runs("two") {
        fs::copy(at.join("two/runs").join(&run), at.join("shared/runs").join(&run)).unwrap();
    }
    refused(
        tenantry(at, &["merge", "shared", "--out", "merged"]),
        &["must be a run of the sweep that sweep.json describes", &runs("two")[0]],
    );
    assert!(!at.join("merged").exists());

    // With the file as it was, all goes on; and the path by which a card is found says nothing of it.
    fs::write(at.join("log.csv"), before).unwrap();
    fs::rename(at.join("card"), at.join("moved")).unwrap();
    done(&["--shard", "2/2", "--out", "three", "--profile", "moved"]);
    fs::rename(at.join("moved"), at.join("card")).unwrap();
    good(at, &["merge", "one", "three", "--out", "merged"]);

    // One more measurement of one point: the same times.
    let text = fs::read_to_string(at.join("card/encoder_layer.csv")).unwrap();
    let (head, last) = text.trim_end().rsplit_once('\n').unwrap();
    let column = head.lines().next().unwrap().split(',').position(|name| name == "count").unwrap();
    let mut cells: Vec<String> = last.split(',').map(str::to_owned).collect();
    cells[column] = (cells[column].parse::<u32>().unwrap() + 1).to_string();
    fs::write(
        at.join("card/encoder_layer.csv"),
        format!("{head}\n{}\n", cells.join(",")),
    )
    .unwrap();
    refused(
        sweep(&["--shard", "2/2", "--out", "one"]),
        &[
            "must be a new folder, or one with this sweep, got one",
            "other contents of card ",
        ],
    );
}

/// Two builds of one version need not simulate alike.
#[test]
fn another_build_is_another_sweep() {
    let place = folder();
    let at = place.path();
    const HALF: [&str; 10] = [
        "sweep", "s.yaml", SWEEP[0], SWEEP[1], SWEEP[2], SWEEP[3], "--shard", "1/2", "--out", "part",
    ];
    good(at, &HALF);
    let path = at.join("part/sweep.json");
    let mut saved: Value = serde_json::from_slice(&file(at, "part/sweep.json")).unwrap();
    saved["program"] = "0".repeat(64).into();
    saved["digest"] = "0".repeat(64).into();
    fs::write(path, saved.to_string()).unwrap();
    check_bad(
        at,
        &[(
            &HALF,
            2,
            &["with another build of version", "which need not simulate alike"],
        )],
    );
}

#[test]
fn what_cannot_run_is_left_out_and_said() {
    let place = folder();
    let at = place.path();
    let memory = ["--set", "sweep={cluster.gpu_memory: [64 MiB, 1 KiB, 4096 GiB]}"];
    let arguments = [&["sweep", "s.yaml"], &memory[..], &["--out", "out"]].concat();
    let output = tenantry(at, &arguments);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{message}");
    assert!(message.contains("Left out, since they cannot run"), "{message}");
    let not_there = "the figures are of a card that is not there";
    assert_eq!(message.matches(not_there).count(), 1, "{message}");
    let summary: Value = serde_json::from_slice(&file(&at.join("out"), "summary.json")).unwrap();
    assert_eq!(summary["runs"].as_array().unwrap().len(), 4);

    // However many points they are: a note for each system and reason.
    let sizes = ["--set", "sweep={cluster.gpu_memory: [64 MiB, 1 KiB, 2 KiB, 3 KiB]}"];
    let output = tenantry(at, &[&["sweep", "s.yaml"], &sizes[..], &["--out", "many"]].concat());
    let message = String::from_utf8_lossy(&output.stderr);
    let notes: Vec<&str> = message.lines().filter(|line| line.contains("Left out")).collect();
    assert_eq!(notes.len(), 2, "{message}");
    for (note, system) in notes.iter().zip(["bert-shared", "hbert-adapter"]) {
        let said =
            "note: Left out, since they cannot run (3, 2 of them with other figures): s.yaml: cluster.gpu_memory: ";
        assert!(
            note.starts_with(said) && note.contains(system) && note.ends_with(", got 1.00 KiB."),
            "{note}"
        );
    }
}

/// There is no result then, and the scenario is wrong. Of a shard nobody knows what the others have.
#[test]
fn a_sweep_of_which_nothing_can_run_is_refused() {
    let place = folder();
    let at = place.path();
    const NONE: [&str; 6] = [
        "sweep",
        "s.yaml",
        "--set",
        "sweep={cluster.gpu_memory: [1 KiB, 2 KiB]}",
        "--out",
        "none",
    ];
    const SAID: [&str; 3] = [
        "error: test: must have a run that is possible, got none of 4: (2, 1 of them with other figures): s.yaml: \
         cluster.gpu_memory: must be of at least ",
        "for system bert-shared",
        "for system hbert-adapter",
    ];
    check_bad(at, &[(&NONE, 2, &SAID)]);
    assert_eq!(
        names(&at.join("none")),
        ["runs", "scenario.resolved.yaml", "sweep.json"]
    );
    for shard in ["1/2", "2/2"] {
        good(at, &[&NONE[..5], &["part", "--shard", shard]].concat());
    }
    check_bad(at, &[(&["merge", "part", "--out", "merged"], 2, &SAID)]);
}

/// Which command made the figures does not matter: whoever reads them learns that their card is another machine's.
#[test]
fn a_card_of_another_machine_is_told_of() {
    let place = folder();
    let at = place.path();
    let mut card = synthetic_card();
    card.provenance.source = Source::Measured;
    card.device.host.cpu = "Another Processor".to_owned();
    card.save(&at.join("card")).unwrap();
    let told = |args: &[&str], out: &str| {
        let output = tenantry(at, &[args, &["--out", out]].concat());
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {message}");
        let manifest: Value = serde_json::from_slice(&file(&at.join(out), "manifest.json")).unwrap();
        let caveats: Vec<String> = serde_json::from_value(manifest["caveats"].clone()).unwrap();
        let is_it = |caveat: &&String| {
            caveat.contains("on Another Processor, and this machine has ")
                && caveat.contains("its prices are the other's")
        };
        let caveat = caveats.iter().find(is_it);
        let caveat = caveat.unwrap_or_else(|| panic!("{args:?}: {caveats:#?}"));
        assert!(message.contains(&format!("note: {caveat}")), "{args:?}: {message}");
    };
    told(&["simulate", "s.yaml"], "simulated");
    told(&["sweep", "s.yaml"], "swept");
    told(&["merge", "swept"], "merged");
    let plan = [
        "--set",
        "slo={latency: 1s, at: p98}",
        "--set",
        "plan={find: fewest-cards, gpus: {from: 1, to: 2}}",
    ];
    told(&[&["plan", "s.yaml"], &plan[..]].concat(), "planned");
}

/// What came of a run's workload is told by whoever ran it, and a sweep's folder says on which card.
#[test]
fn notes_and_cards_are_those_of_one_run() {
    let place = folder();
    let at = place.path();
    // Silent for longer than its requests last, and fewer than are asked for.
    let rows: String = (60..110).map(|second| format!("{second}.5,10,20\n")).collect();
    let header = "arrived_at,num_prefill_tokens,num_decode_tokens\n";
    fs::write(at.join("late.csv"), format!("{header}{rows}")).unwrap();
    synthetic_card().save(&at.join("other")).unwrap();
    let late = [
        "s.yaml",
        "--profile",
        "./other",
        "--set",
        "workload.arrivals={trace: {path: late.csv}}",
        "--set",
        "workload.stop={requests: 600}",
        "--set",
        "sweep={tenants.count: [5, 20]}",
        "--out",
    ];
    good(at, &[&["simulate"], &late[..], &["simulated"]].concat());
    good(at, &[&["sweep"], &late[..], &["swept"]].concat());
    good(at, &["merge", "swept", "--out", "merged"]);
    for out in ["simulated", "swept", "merged"] {
        let manifest: Value = serde_json::from_slice(&file(&at.join(out), "manifest.json")).unwrap();
        let caveats: Vec<String> = serde_json::from_value(manifest["caveats"].clone()).unwrap();
        for note in [
            "the first request comes after 60 s of silence",
            "the arrivals are over after 50 requests, before workload.stop is reached (600 requests)",
        ] {
            let said = caveats.iter().filter(|caveat| caveat.contains(note)).count();
            assert_eq!(said, 1, "{out}: {note}: {caveats:#?}");
        }
        let resolved = String::from_utf8(file(&at.join(out), "scenario.resolved.yaml")).unwrap();
        assert!(resolved.contains("card: ./other\n"), "{out}: {resolved}");
    }

    // As earlier versions left it: there is nothing that could be written.
    let path = at.join("swept/sweep.json");
    let mut sweep: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    sweep.as_object_mut().unwrap().remove("resolved").unwrap();
    fs::write(&path, sweep.to_string()).unwrap();
    const MERGE: Case = (
        &["merge", "swept", "--out", "merged"],
        2,
        &["sweep.json: must hold the scenario in full, got none"],
    );
    check_bad(at, &[MERGE]);
    assert!(!file(&at.join("merged"), "scenario.resolved.yaml").is_empty());
}

/// Also of a rate by the hour that is not repeated.
#[test]
fn a_shape_that_is_over_before_the_stop_is_told() {
    let place = folder();
    let at = place.path();
    fs::write(
        at.join("minutes.csv"),
        "minute,requests,zero_seconds\n0,300,0\n1,200,0\n",
    )
    .unwrap();
    let shape = |repeat: &str| {
        let set = format!("workload.arrivals={{shape: {{path: minutes.csv, rate: 5/s{repeat}}}}}");
        let stop = "workload.stop={requests: 2000}";
        good(
            at,
            &["simulate", "s.yaml", "--set", &set, "--set", stop, "--out", "out"],
        );
        let manifest: Value = serde_json::from_slice(&file(&at.join("out"), "manifest.json")).unwrap();
        manifest["caveats"].to_string().contains("before workload.stop is reached (2000 requests)")
    };
    assert!(shape(""));
    assert!(!shape(", repeat: true"));
}

#[test]
fn job_files_run_every_shard() {
    let place = folder();
    let at = place.path();
    for engine in ["slurm", "kubernetes"] {
        good(
            at,
            &sweep(&["--job-file", engine, "--shards", "4", "--out", "jobs dir"]),
        );
    }
    let jobs = ["--job-file", "slurm", "--shards", "4", "--jobs", "3", "--out", "threes"];
    good(at, &sweep(&jobs));
    let threes = String::from_utf8(file(&at.join("threes"), "sweep.sbatch")).unwrap();
    assert!(
        threes.contains("#SBATCH --cpus-per-task=3\n") && threes.contains(":-3}"),
        "{threes}"
    );
    let out = at.join("jobs dir");
    assert_eq!(names(&out), ["sweep-job.yaml", "sweep.sbatch"], "and nothing was run");
    let text = String::from_utf8(file(&out, "sweep.sbatch")).unwrap();
    assert!(text.contains("#SBATCH --output='jobs dir/slurm-%A_%a.log'\n"), "{text}");

    // As Slurm does: the script as it is, with a task's number in the environment.
    for task in 1..=4 {
        let done = Command::new("bash")
            .arg(out.join("sweep.sbatch"))
            .current_dir(at)
            .env("SLURM_ARRAY_TASK_ID", task.to_string())
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    good(at, &["merge", "jobs dir", "--out", "merged"]);

    let job: serde_yaml::Value = serde_yaml::from_slice(&file(&out, "sweep-job.yaml")).unwrap();
    assert_eq!(job["spec"]["completionMode"], "Indexed");
    assert_eq!(job["spec"]["completions"], 4);
    let rule = &job["spec"]["podFailurePolicy"]["rules"][0];
    assert_eq!(rule["action"], "FailJob", "a bad scenario is not tried again");
    assert_eq!(
        rule["onExitCodes"]["values"],
        serde_yaml::from_str::<serde_yaml::Value>("[2]").unwrap()
    );
    let container = &job["spec"]["template"]["spec"]["containers"][0];
    let script = container["args"][0].as_str().unwrap();
    // As a pod does, with this program for the image's.
    let program = Path::new(env!("CARGO_BIN_EXE_tenantry")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let pods = script.replace("'jobs dir'", "pods");
    for index in 0..4 {
        let done = Command::new(container["command"][0].as_str().unwrap())
            .args([container["command"][1].as_str().unwrap(), &pods])
            .current_dir(at)
            .env("JOB_COMPLETION_INDEX", index.to_string())
            .env("PATH", &path)
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    good(at, &["merge", "pods", "--out", "merged-pods"]);
    assert_eq!(
        file(&at.join("merged"), SAME[0]),
        file(&at.join("merged-pods"), SAME[0])
    );
}

#[test]
fn mistakes_are_said() {
    let place = folder();
    let at = place.path();
    good(at, &sweep(&["--shard", "1/2", "--out", "part"]));
    good(at, &["sweep", "s.yaml", "--seed", "9", "--out", "other"]);
    check_bad(
        at,
        &[
            (
                &["merge", "part"],
                2,
                &["must hold all 20 runs together, got 10 without"],
            ),
            (
                &["merge", "part", "other"],
                2,
                &["other: must hold the same sweep as part, got another scenario"],
            ),
            (
                &["merge", "card"],
                2,
                &["card: must be a folder that `tenantry sweep` left"],
            ),
            (
                &["sweep", "s.yaml", "--seed", "8", "--out", "other"],
                2,
                &[
                    "--out: must be a new folder, or one with this sweep, got other, which has 2 runs of test with another scenario",
                ],
            ),
            (
                &["sweep", "s.yaml", "--shard", "0/2"],
                2,
                &["must be I/N with I from 1 to N, such as 3/8, got 0/2"],
            ),
            (&["sweep", "s.yaml", "--job-file", "slurm"], 2, &["--shards"]),
        ],
    );
}

/// Where a card lacks what one system needs, the other systems and cards are not lost; models of a route are looked at
/// one by one.
#[test]
fn points_of_cascades_and_runtimes_that_cannot_run_are_left_out() {
    let place = folder();
    let at = place.path();
    let sweep = |scenario: &str, more: &[&str], out: &str| {
        let arguments = [&["sweep", scenario, "--out", out, "--json"], more].concat();
        let output = tenantry(at, &arguments);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{message}");
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        (value["runs"].as_array().unwrap().len(), message)
    };
    let stop = "workload={arrivals: {poisson: {rate: 50/s}}, lengths: {input: {fixed: 26}}, stop: {requests: 200}}";
    let cards = ["--set", "sweep={card: [paper-rtx3090, l4]}", "--set", stop];
    let (runs, message) = sweep("gallery/static-or-dynamic-runtimes-for-tweets", &cards, "runtimes");
    assert_eq!(runs, 4, "{message}");
    assert!(
        message.contains("Left out, since they cannot run (1): system arlo:"),
        "{message}"
    );
    assert!(message.contains("static_model"), "{message}");

    // The large model of the route is what this card has no prices for.
    let cards = ["--set", "sweep={card: [paper-v100-tabi, paper-p5000]}", "--set", stop];
    let (runs, message) = sweep("gallery/when-does-a-cascade-stop-paying", &cards, "cascade");
    assert_eq!(runs, 5 + 1, "{message}");
    assert!(
        message.contains("Left out, since they cannot run (1): system asks-below-87.5:"),
        "{message}"
    );
}
