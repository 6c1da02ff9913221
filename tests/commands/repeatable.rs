//! The same input gives the same bytes, whatever the number of threads.

use std::fs;
use std::process::Command;

use tenantry_profiles::testing::synthetic_card;

#[test]
fn summaries_are_byte_identical_across_runs_and_jobs() {
    let folder = tempfile::tempdir().unwrap();
    synthetic_card().save(&folder.path().join("card")).unwrap();
    let summary = |out: &str, jobs: &str, seed: &str| {
        let run = Command::new(env!("CARGO_BIN_EXE_tenantry"))
            .current_dir(folder.path())
            .args([
                "simulate",
                "quickstart",
                "--profile",
                "./card",
                "--jobs",
                jobs,
                "--seed",
                seed,
                "--out",
                out,
            ])
            .args(["--set", "repeats=2", "--set", "sweep={tenants.count: [10, 100, 1000]}"])
            .output()
            .unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        let file = |name| fs::read(folder.path().join(out).join(name)).unwrap();
        (
            file("summary.json"),
            file("summary.csv"),
            file("scenario.resolved.yaml"),
        )
    };
    let first = summary("a", "1", "7");
    assert_eq!(first, summary("b", "2", "7"));
    assert_eq!(first, summary("c", "2", "7"));
    assert_ne!(first.0, summary("d", "2", "8").0);
}
