//! Runs to test with.

use tenantry_core::RunRecord;
use tenantry_core::command::{RejectReason, Verdict};
use tenantry_core::in_time::{Slo, Target};
use tenantry_core::ledger::{Counts, Series, Window};
use tenantry_core::machine::LaneUse;
use tenantry_core::server::{MemoryUse, SwapCounts};
use tenantry_traces::{Duration, Time};

use crate::curves::Run;
use crate::folder::RunFolder;
use crate::manifest::{Host, Manifest, ProfileSource};
use crate::summary::{RunLabels, VIRTUAL};
use crate::validation::Validation;

/// Of [`labels`].
const TARGET: Duration = Duration::from_millis(150);

/// The labels of a first run with a target of 150 ms at p98.
pub fn labels(system: &str, machine: &str) -> RunLabels {
    RunLabels {
        system: system.to_owned(),
        parameters: Default::default(),
        repeat: 0,
        machine: machine.to_owned(),
        seed: 7,
        slo: Some(Slo {
            target: Target::of_latency(TARGET),
            quantile: 0.98,
        }),
        card: "h200-sxm".into(),
        gpus: 1,
        price_per_hour: None,
    }
}

/// A run whose latencies are spread evenly from 1 % to 100 % of `slowest`, all parts in fixed proportion.
pub fn record(requests: u64, slowest: Duration) -> RunRecord {
    let mut record = RunRecord {
        counts: Counts {
            offered: requests + 2,
            served: requests,
            rejected: 2,
            ..Counts::default()
        },
        rejected: [(RejectReason::QueueFull, 2)].into(),
        refused: 2,
        end: Time(10_000_000_000),
        duration: Duration::from_secs(10),
        served: requests,
        batches: requests.div_ceil(4),
        batch_requests: requests,
        input_tokens: 96 * requests,
        padded_tokens: 128 * requests,
        in_flight_mean: 3.25,
        series: series(requests),
        lanes: vec![
            LaneUse {
                name: "gpu0/copy".into(),
                busy: Duration::from_millis(1_234),
            },
            LaneUse {
                name: "gpu0/compute0".into(),
                busy: Duration::from_millis(8_765),
            },
        ],
        memory: MemoryUse {
            capacity_bytes: 16 << 30,
            shared_bytes: 440 << 20,
            per_tenant_bytes: 7 << 20,
            tenant_bytes: 700 << 20,
            cache_bytes: 0,
        },
        swaps: Some(SwapCounts {
            hits: 900,
            misses: 100,
            evictions: 40,
            bytes_in: 700 << 20,
        }),
        ..RunRecord::default()
    };
    for i in 0..requests {
        let latency = slowest.0 * (i % 100 + 1) / 100;
        let parts = [latency / 2, latency / 8, latency / 16, latency / 4];
        let tell = latency - parts.iter().sum::<u64>();
        let [queue, lane, stall, compute] = parts.map(Duration);
        record.latency.record(Duration(latency));
        note(&mut record, Verdict::Served, Duration(latency));
        record.queue.record(queue);
        record.lane.record(lane);
        record.stall.record(stall);
        record.compute.record(compute);
        record.tell.record(Duration(tell));
    }
    for _ in 0..record.refused {
        note(&mut record, Verdict::Rejected(RejectReason::QueueFull), Duration::ZERO);
    }
    record
}

/// One more comes and leaves after so long, as far as the target is concerned.
pub fn note(record: &mut RunRecord, verdict: Verdict, latency: Duration) {
    record.in_time.came();
    record.in_time.ended(verdict, latency <= TARGET);
}

/// A hundred windows of 100 ms with a wave in them.
fn series(requests: u64) -> Series {
    let window = |i: u64| {
        let served = requests / 100 + i % 7;
        Window {
            arrived: served,
            served,
            latency_sum_ns: 0,
            batches: served.div_ceil(4),
            batch_requests: served,
        }
    };
    Series {
        width: Duration::from_millis(100),
        windows: (0..100).map(window).collect(),
    }
}

/// Two systems, simulated once and executed three times.
pub fn runs() -> Vec<Run> {
    let mut runs = Vec::new();
    for (system, slowest_ms) in [("hmi", 120), ("bert-dedicated", 900)] {
        runs.push(Run::new(
            labels(system, VIRTUAL),
            &record(1_000, Duration::from_millis(slowest_ms)),
        ));
        for repeat in 0..3 {
            let slowest = Duration::from_millis(slowest_ms + 1 + u64::from(repeat));
            runs.push(Run::new(
                RunLabels {
                    repeat,
                    ..labels(system, "cpu")
                },
                &record(1_000, slowest),
            ));
        }
    }
    runs
}

/// With everything in it.
pub fn manifest() -> Manifest {
    Manifest {
        version: "0.1.0".into(),
        command_line: ["tenantry", "validate", "scenarios/quickstart.yaml", "--device", "cpu"]
            .map(String::from)
            .into(),
        started: Some("2025-01-02T03:04:05Z".into()),
        wall_s: 12.345,
        events_per_s: Some(4_567_890.0),
        profile: Some(ProfileSource {
            name: "cpu".into(),
            digest: "b3:0123456789abcdef".into(),
            provenance: Some("measured 2025-01-01".into()),
        }),
        other_profiles: Vec::new(),
        host: Host {
            name: "desk".into(),
            processor: Some("A processor".into()),
            cores: 2,
            device: Some("cpu".into()),
        },
        caveats: vec!["Layer forward is extrapolated beyond 128 tokens.".into()],
    }
}

/// What such runs, compared, leave behind.
pub fn folder<'a>(runs: &'a [Run], validation: &'a Validation, manifest: &'a Manifest) -> RunFolder<'a> {
    RunFolder {
        scenario: "quickstart",
        seed: 7,
        resolved_scenario: "name: quickstart\n",
        runs,
        validation: Some(validation),
        manifest,
    }
}
