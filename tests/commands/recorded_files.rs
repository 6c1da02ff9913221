//! Files that a run reads: faults in them behind what it replays, and that nothing is written over them.

use std::fs;
use std::path::Path;

use crate::common::{folder, good, names, tenantry};

const LENGTHS: &str = "workload.lengths={joint: of-arrivals}";

/// What nobody asked to be replayed costs no finished run: beyond a cut it is not looked at, beyond the last request it
/// is told of.
#[test]
fn a_fault_behind_what_is_replayed_is_no_fault_of_the_run() {
    let folder = folder();
    let at = folder.path();
    let rows: String = (0..300_u64).map(|i| format!("{i},0,{},9,0,0\n", i * 10_000_000)).collect();
    let header = "ticket,tenant,arrival_ns,input_tokens,output_tokens,class";
    fs::write(at.join("t.csv"), format!("{header}\n{rows}300,0,oops,9,0,0\n")).unwrap();
    let run = |cut: &str, stop: &str| {
        let arrivals = format!("workload.arrivals={{trace: {{path: t.csv{cut}}}}}");
        let stop = format!("workload.stop={stop}");
        let args = [
            "simulate", "s.yaml", "--set", &arrivals, "--set", LENGTHS, "--set", &stop,
        ];
        tenantry(at, &args)
    };
    let told = "note: What is known of a recording ends where it cannot be read: t.csv:302: ";
    for (cut, stop, is_told) in [(", length: 2s", "{}", false), ("", "{requests: 200}", true)] {
        let output = run(cut, stop);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && message.contains(told) == is_told,
            "{message}"
        );
    }
    assert_eq!(run("", "{}").status.code(), Some(2), "who replays all of it meets it");
}

/// A card that was measured and a run's results may not be had again.
#[test]
fn no_page_is_written_over_what_it_shows() {
    let folder = folder();
    let at = folder.path();
    good(at, &["simulate", "s.yaml", "--out", "run"]);
    good(at, &["sweep", "s.yaml", "--out", "swept"]);
    let read = ["card/card.yaml", "run/summary.json", "swept/runs/000000.json"];
    let before = read.map(|name| fs::read(at.join(name)).unwrap());
    for (command, flag) in [
        (
            &["profile", "show", "./card", "--report", "card/card.yaml"][..],
            "--report",
        ),
        (
            &["profile", "compare", "cpu", "./card", "--report", "./card/card.yaml"],
            "--report",
        ),
        (&["report", "run", "--out", "run/summary.json"], "--out"),
        (&["report", "swept", "--out", "swept/runs/000000.json"], "--out"),
    ] {
        let output = tenantry(at, command);
        let message = String::from_utf8_lossy(&output.stderr);
        let must = format!("{flag}: must be another file than those that are read");
        assert!(output.status.code() == Some(2) && message.contains(&must), "{message}");
    }
    assert!(before == read.map(|name| fs::read(at.join(name)).unwrap()));
    #[cfg(unix)]
    {
        fs::create_dir(at.join("elsewhere")).unwrap();
        fs::rename(at.join("run/summary.json"), at.join("elsewhere/summary")).unwrap();
        std::os::unix::fs::symlink("../elsewhere/summary", at.join("run/summary.json")).unwrap();
        let output = tenantry(at, &["report", "run", "--out", "run/summary.json"]);
        assert_eq!(output.status.code(), Some(2), "a link is a result too");
    }
    // Nor over another folder's figures, a card, a recording or any other file: a page is called one.
    good(at, &["trace", "generate", "s.yaml", "t.csv"]);
    good(at, &["trace", "generate", "s.yaml", "u.csv"]);
    let others = ["swept/summary.json", "card/card.yaml", "u.csv", "s.yaml"];
    let before = others.map(|name| fs::read(at.join(name)).unwrap());
    for (command, flag) in [
        (&["report", "run", "--out"][..], "--out"),
        (&["profile", "show", "cpu", "--report"], "--report"),
        (&["profile", "compare", "cpu", "cpu-epyc", "--report"], "--report"),
        (&["trace", "info", "t.csv", "--report"], "--report"),
        (&["trace", "fit", "requests", "t.csv", "--report"], "--report"),
    ] {
        for over in others.into_iter().chain(["run/timeline.json", "run/page"]) {
            let output = tenantry(at, &[command, &[over]].concat());
            let message = String::from_utf8_lossy(&output.stderr);
            let must = format!("{flag}: must be another file than those that are read, got {over}");
            let ends = format!("{flag}: must end in .html or .htm, got {over}");
            let is_refused = message.contains(&must) || message.contains(&ends);
            assert!(
                output.status.code() == Some(2) && is_refused,
                "{command:?} {over}: {message}"
            );
        }
    }
    assert!(before == others.map(|name| fs::read(at.join(name)).unwrap()));
    // Its own page is made anew.
    for page in ["run/report.html", "run/page.htm"] {
        for _ in 0..2 {
            good(at, &["report", "run", "--out", page]);
        }
    }
}

/// Found out before work is done for it, and before a device or a pipe is replaced by a file.
#[cfg(unix)]
#[test]
fn a_file_that_cannot_be_written_is_found_at_once() {
    let folder = folder();
    let at = folder.path();
    good(at, &["trace", "generate", "s.yaml", "t.csv"]);
    fs::create_dir(at.join("there")).unwrap();
    make_pipe(&at.join("fifo"));
    std::os::unix::fs::symlink("nowhere", at.join("link")).unwrap();
    let commands = [
        (&["trace", "generate", "s.yaml"][..], "OUT"),
        (&["trace", "convert", "t.csv"], "OUT"),
        (&["trace", "info", "t.csv", "--report"], "--report"),
        (&["trace", "fit", "requests", "t.csv", "--out"], "--out"),
        (&["profile", "show", "cpu", "--report"], "--report"),
        (&["profile", "compare", "cpu", "cpu-epyc", "--report"], "--report"),
        (&["simulate", "s.yaml", "--record"], "--record"),
        (&["report", "there", "--out"], "--out"),
    ];
    let places = [
        ("there", "got there, which is a folder"),
        ("new/", "got new/, which is a folder"),
        ("s.yaml/t.csv", "got s.yaml/t.csv, where s.yaml is a file"),
        ("link/t.csv", "got link/t.csv, where link leads nowhere"),
        ("fifo", "got fifo, which is a device or a pipe"),
    ];
    for (command, flag) in commands {
        for (place, got) in places {
            let output = tenantry(at, &[command, &[place]].concat());
            let message = String::from_utf8_lossy(&output.stderr);
            let must = format!("{flag}: must be a file, or one that can be made, {got}");
            assert!(
                output.status.code() == Some(2) && message.contains(&must),
                "{command:?}: {message}"
            );
        }
    }
}

/// The second of two files would take the place of the first.
#[test]
fn two_files_are_not_given_one_name() {
    let folder = folder();
    let at = folder.path();
    good(at, &["trace", "generate", "s.yaml", "t.csv"]);
    for (command, must) in [
        (
            &[
                "trace", "fit", "requests", "t.csv", "--out", "f.yaml", "--report", "./f.yaml",
            ][..],
            "--out: must be another file than --report, got f.yaml for both",
        ),
        (
            &[
                "simulate",
                "s.yaml",
                "--out",
                "run",
                "--record",
                "run/../run/summary.csv",
            ],
            "--record: must be another file than summary.csv of --out, got run/../run/summary.csv for both",
        ),
    ] {
        let output = tenantry(at, command);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && message.contains(must), "{message}");
    }
}

#[cfg(unix)]
fn make_pipe(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success());
}

/// The first look at a pipe would take what comes first from it, and wait for ever where nobody writes to it.
#[cfg(unix)]
#[test]
fn a_pipe_is_no_trace() {
    let folder = folder();
    make_pipe(&folder.path().join("fifo"));
    for pipe in ["/dev/null", "fifo"] {
        let output = tenantry(folder.path(), &["trace", "convert", pipe, "t.csv"]);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        let must = format!("{pipe}: must be a file, since it is looked at before it is read");
        assert!(message.contains(&must), "{message}");
    }
}

/// A recording may not be had again, and a scenario neither.
#[test]
fn nothing_is_recorded_over_what_is_read() {
    let folder = folder();
    let at = folder.path();
    let workload = ["--set", "workload.arrivals={trace: {path: t.csv}}", "--set", LENGTHS];
    good(at, &["trace", "generate", "s.yaml", "t.csv"]);
    let [trace, scenario] = ["t.csv", "s.yaml"].map(|name| fs::read(at.join(name)).unwrap());
    for over in ["t.csv", "./t.csv", "s.yaml"] {
        for (command, flag) in [
            (vec!["simulate", "s.yaml", "--record", over], "--record"),
            (vec!["trace", "generate", "s.yaml", over], "OUT"),
        ] {
            let output = tenantry(at, &[&command[..], &workload[..]].concat());
            let message = String::from_utf8_lossy(&output.stderr);
            let must = format!("{flag}: must be another file than those that are read, got {over}");
            assert!(output.status.code() == Some(2) && message.contains(&must), "{message}");
        }
    }
    let report = tenantry(at, &["trace", "info", "t.csv", "--report", "t.csv"]);
    assert_eq!(report.status.code(), Some(2));
    assert!([trace, scenario] == ["t.csv", "s.yaml"].map(|name| fs::read(at.join(name)).unwrap()));

    // Who was who in the file that had the name before is not who is who in this one.
    for record in [
        &["simulate", "s.yaml", "--record", "other.csv"][..],
        &["trace", "generate", "s.yaml", "other.csv"],
    ] {
        fs::write(at.join("other.csv.tenants.csv"), "tenant,name\n0,60000\n").unwrap();
        good(at, record);
        assert!(!names(at).contains(&"other.csv.tenants.csv".to_owned()));
    }
}
