//! Runs to test with.

use tenantry_core::RunRecord;
use tenantry_core::ledger::{Counts, Window};
use tenantry_reports::summary::VIRTUAL;
use tenantry_reports::{Run, RunLabels};
use tenantry_traces::{Duration, Time};

/// The labels of a first simulated run, without a target.
pub fn labels(system: &str) -> RunLabels {
    RunLabels {
        system: system.into(),
        parameters: Default::default(),
        repeat: 0,
        machine: VIRTUAL.into(),
        seed: 7,
        slo: None,
        card: "h200-sxm".into(),
        gpus: 1,
        price_per_hour: None,
    }
}

/// Ten seconds in which so many requests came, all at once after five of them, and were answered.
pub fn record(requests: u64) -> RunRecord {
    let mut record = RunRecord {
        counts: Counts {
            offered: requests,
            served: requests,
            ..Counts::default()
        },
        served: requests,
        end: Time(10_000_000_000),
        duration: Duration::from_secs(10),
        ..RunRecord::default()
    };
    record.series.width = Duration::from_secs(1);
    record.series.windows = vec![Window::default(); 10];
    record.series.windows[5].arrived = requests;
    (0..requests).for_each(|_| record.in_time.came());
    record
}

/// Such a run.
pub fn run(system: &str, requests: u64) -> Run {
    Run::new(labels(system), &record(requests))
}
