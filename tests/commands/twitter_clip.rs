//! The real six hours of the Twitter stream, replayed through the quickstart's systems on the shipped profile.

use std::fs;
use std::process::Command;

#[test]
fn six_real_hours_go_through_all_systems() {
    let Some(clip) = crate::common::recording("twitter/twitter_2021_08_clip_6h.csv") else {
        return;
    };
    let out = tempfile::tempdir().unwrap();
    let arrivals = format!(
        "workload.arrivals={{counts: {{path: {}, placement: even}}}}",
        clip.display()
    );
    let run = Command::new(env!("CARGO_BIN_EXE_tenantry"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args([
            "simulate",
            "quickstart",
            "--set",
            &arrivals,
            "--set",
            "workload.stop={after: 6h}",
            "--out",
        ])
        .arg(out.path())
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let summary: serde_json::Value =
        serde_json::from_slice(&fs::read(out.path().join("summary.json")).unwrap()).unwrap();
    let runs = summary["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 3);
    for run in runs {
        let requests = &run["requests"];
        // Every record of the clip is a request of every system, and each is answered: the peak is 269 a second.
        assert_eq!(requests["offered"], 1_071_141, "{run}");
        assert_eq!(requests["finished"], 1_071_141, "{run}");
        let throughput = run["throughput_rps"].as_f64().unwrap();
        assert!(
            (throughput - 49.6).abs() < 0.3,
            "the clip has 49.59 requests a second, served {throughput}"
        );
    }
    // Shared backbones wait for companions; a model of one's own answers at once, as long as it is there.
    let mean_ms = |system: usize| runs[system]["latency_ms"]["mean"].as_f64().unwrap();
    assert!(mean_ms(0) < mean_ms(1) && mean_ms(0) < mean_ms(2), "{summary}");
}
