//! Targets for the first token and each further one, beside the whole answer's or in its place.

use crate::common::requests::{Cells, rows, text, whole};
use crate::common::{folder, good_json};

const SCENARIO: &str = "punica/fig-13-conversations";

const MS: u64 = 1_000_000;

/// Whether a request was answered within these limits, by its row.
fn is_in_time(row: &Cells, latency_ms: u64, ttft_ms: u64, tpot_ms: u64) -> bool {
    let of = |column: &str| whole(row, column).unwrap();
    if text(row, "outcome") != Some("finished") {
        return false;
    }
    let (arrival, first, end) = (of("arrival_ns"), of("first_token_ns"), of("end_ns"));
    let later = of("generated_tokens") - 1;
    end - arrival <= latency_ms * MS
        && first - arrival <= ttft_ms * MS
        && (later == 0 || (end - first) / later <= tpot_ms * MS)
}

/// The share in time is that of the requests which keep all limits, counted from the table of requests.
#[test]
fn who_keeps_all_limits_is_in_time() {
    let place = folder();
    let at = place.path();
    let limits = [
        ("{ttft: 400ms, at: p98}", (u64::MAX / MS, 400, u64::MAX / MS)),
        ("{tpot: 42ms, at: p98}", (u64::MAX / MS, u64::MAX / MS, 42)),
        ("{latency: 20s, ttft: 400ms, tpot: 42ms, at: p98}", (20_000, 400, 42)),
    ];
    let mut shares = Vec::new();
    for (slo, (latency_ms, ttft_ms, tpot_ms)) in limits {
        let slo = format!("slo={slo}");
        let arguments = [
            "simulate",
            SCENARIO,
            "--requests",
            "--out",
            "out",
            "--set",
            &slo,
            "--set",
            "workload.stop={requests: 1500}",
            "--set",
            "sweep={}",
        ];
        let run = good_json(at, &arguments)["runs"][0].clone();
        let rows = rows(&at.join("out/requests.parquet"));
        let of_run: Vec<&Cells> = rows.iter().filter(|row| text(row, "system") == run["system"].as_str()).collect();
        let in_time = of_run.iter().filter(|row| is_in_time(row, latency_ms, ttft_ms, tpot_ms)).count();
        let share = in_time as f64 / of_run.len() as f64;
        let told = run["slo_attainment"].as_f64().unwrap();
        assert!((told - share).abs() < 1e-5, "{slo}: {told}, by the rows {share}");
        assert!(share > 0.02 && share < 0.98, "{slo} tells nothing: {share}");
        assert_eq!(run["slo"]["ttft_ms"].is_null(), ttft_ms > 1000, "{run}");
        assert_eq!(run["slo"]["tpot_ms"].is_null(), tpot_ms > 1000, "{run}");
        assert_eq!(run["slo"]["latency_ms"].is_null(), latency_ms > 1_000_000, "{run}");
        assert_eq!(run["slo"]["met"], false);
        shares.push(share);
    }
    assert!(shares[2] <= shares[0].min(shares[1]), "{shares:?}");
    let page = std::fs::read_to_string(at.join("out/report.html")).unwrap();
    assert!(
        page.contains("20.0\u{a0}s, 400\u{a0}ms to the first token and 42.0\u{a0}ms a token at p98"),
        "the page names all limits"
    );
}

/// The answer keeps what it says, and one card less does not.
#[test]
fn a_plan_looks_for_what_keeps_all_limits() {
    let place = folder();
    let at = place.path();
    let small = [
        "workload.stop={after: 200s}",
        "plan={find: fewest-cards, gpus: {from: 1, to: 12}, repeats: 3}",
        "card=h100-sxm",
    ];
    let set = small.iter().flat_map(|set| ["--set", *set]);
    let arguments: Vec<&str> = ["plan", "plan/chat-by-first-token", "--out", "p"].into_iter().chain(set).collect();
    let report = good_json(at, &arguments);
    let answer = report["answer"].as_str().unwrap();
    assert!(answer.contains("to the first token and"), "{answer}");
    let options = report["options"].as_array().unwrap();
    let chosen = options.iter().find(|option| option["chosen"] == true).unwrap();
    let gpus = chosen["gpus"].as_u64().unwrap();
    assert!(gpus > 1, "{report}");
    let run = |gpus: u64| {
        let gpus = format!("cluster.gpus={gpus}");
        good_json(at, &["simulate", "p/answer.yaml", "--out", "s", "--set", &gpus])["runs"][0].clone()
    };
    let of_run = run(gpus);
    // What is limited is shown, of all seeds together.
    for part in ["ttft_ms", "tpot_ms"] {
        let [told, seen] = [&chosen[part], &of_run[part]["p95"]].map(|figure| figure.as_f64().unwrap());
        assert!((told / seen - 1.0).abs() < 0.2, "{part}: {told}, by one run {seen}");
    }
    let share = |run: &serde_json::Value| run["slo_attainment"].as_f64().unwrap();
    let (kept, missed) = (share(&of_run), share(&run(gpus - 1)));
    assert!(
        kept >= 0.94 && missed < 0.95,
        "{gpus} cards keep {kept}, one less {missed}"
    );
}
