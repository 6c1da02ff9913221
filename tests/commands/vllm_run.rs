//! A measured run of vLLM on an RTX 4090, predicted from that card's imported profile: nothing is fitted to the run.
//!
//! vLLM had prefix caching on: an evicted request that comes back finds what has not been overwritten of its pages.
//! Prompts that share a beginning find each other's too, but the file of lengths no longer shows which do, so that the
//! prediction is an upper bound.

use std::fs;
use std::process::Command;

use serde_json::Value;

/// 2,588 pages of 16 tokens beside the weights, as the engine reports.
const SCENARIO: &str = "
name: vllm-rtx4090
seed: 1
card: rtx4090
cluster: { gpus: 1, gpu_memory: 21488000000 B }
models: { backbone: llama3.1-8b }
tenants: { count: 1, popularity: identical }
workload:
  arrivals: { trace: { path: TRACE } }
  lengths: { joint: of-arrivals }
jitter: none
systems:
  - preset: chunked-prefill
    dtype: bf16
    generation: { lora: null, max_batch: 256, prefill: { chunked: { max_tokens: 2048 } }, page_tokens: 16, prefix_caching: true }
";

fn at(request: &Value, key: &str) -> f64 {
    request[key].as_f64().unwrap()
}

#[test]
fn a_measured_run_is_predicted_from_the_cards_profile() {
    let trace = crate::common::recording("llmservingsim/sharegpt_llama31_8b_300_sps10_lengths.csv");
    let measured = crate::common::recording("llmservingsim/RTX4090_llama31_8b_vllm_requests.jsonl");
    let (Some(trace), Some(measured)) = (trace, measured) else {
        return;
    };
    let measured = fs::read_to_string(measured).unwrap();
    let measured: Vec<Value> = measured.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mean = |of: fn(&Value) -> f64| measured.iter().map(of).sum::<f64>() / measured.len() as f64;
    let ttft_ms = mean(|request| 1e3 * (at(request, "first_token_ts") - at(request, "queued_ts")));
    let tpot_ms = mean(|request| {
        1e3 * (at(request, "last_token_ts") - at(request, "first_token_ts")) / (at(request, "output_toks") - 1.0)
    });
    let latency_ms = mean(|request| 1e3 * (at(request, "last_token_ts") - at(request, "queued_ts")));

    let out = tempfile::tempdir().unwrap();
    let scenario = out.path().join("scenario.yaml");
    fs::write(&scenario, SCENARIO.replace("TRACE", &trace.display().to_string())).unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_tenantry"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .arg("simulate")
        .arg(&scenario)
        .arg("--out")
        .arg(out.path().join("out"))
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let summary: Value = serde_json::from_slice(&fs::read(out.path().join("out/summary.json")).unwrap()).unwrap();
    let run = &summary["runs"][0];
    assert_eq!(run["requests"]["finished"], 300);

    for (what, measured_ms) in [("ttft_ms", ttft_ms), ("tpot_ms", tpot_ms), ("latency_ms", latency_ms)] {
        let predicted_ms = run[what]["mean"].as_f64().unwrap();
        let off = predicted_ms / measured_ms - 1.0;
        println!(
            "{what}: measured {measured_ms:.1}, predicted {predicted_ms:.1} ({:+.1} %)",
            off * 100.0
        );
        assert!(off.abs() < 0.03, "{what} is off by {off}");
    }
}
