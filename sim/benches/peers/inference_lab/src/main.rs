//! `inference-lab` (a crate) on the lengths, rate and cap of this folder's README.
//!
//! `cargo run --release -- [REQUESTS] [WORKERS] [RATE]`, a second and worker

use inference_lab::config::{ModelConfig, WorkloadConfig};
use inference_lab::simulation::Simulator;

/// Seconds for which this thread has had a core.
fn busy_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("it runs on Linux");
    let ns = stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok());
    ns.expect("it begins with the nanoseconds on a core") / 1e9
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |or: u32| arguments.next().map_or(Ok(or), |text| text.parse());
    let (requests, workers, rate) = (number(10_000)?, number(1)?, number(1)?);
    let arrivals = rate * workers;
    let model = ModelConfig::from_toml(&format!(
        r#"
        model = "llama-3.1-8b-instruct"
        [scheduler]
        max_num_batched_tokens = 8192
        max_num_seqs = 32
        policy = "fcfs"
        enable_chunked_prefill = true
        block_size = 16
        [hardware.h100]
        tp = 1
        replicas = {workers}
        "#
    ))?;
    let workload: WorkloadConfig = toml::from_str(&format!(
        r#"
        arrival_pattern = "poisson"
        arrival_rate = {arrivals}.0
        num_requests = {requests}
        seed = 7
        input_len_dist = {{ type = "fixed", value = 1147 }}
        output_len_dist = {{ type = "fixed", value = 211 }}
        "#
    ))?;
    let mut simulator = Simulator::new(model.deployment(Some("h100"))?.with_workload(workload), None)?;
    let start_s = busy_s();
    simulator.run_with_callback(|_| {})?;
    let seconds = busy_s() - start_s;
    let summary = simulator.summary();
    println!(
        "inference-lab, {workers} workers, {rate}/s each: {requests} requests, {seconds:.2} s of CPU, {:.0} requests/s \
         of CPU, mean end to end {:.0} ms",
        f64::from(requests) / seconds,
        summary.latency_metrics.e2e_ms.mean
    );
    Ok(())
}
