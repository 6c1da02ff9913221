//! What compute takes longer after its lane was idle.
//!
//! At low load a lane sleeps between batches: its caches go cold and its clock slows down. On a small model that can double what
//! a batch takes, so that costs measured back to back would promise too much.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenantry_profiles::{ResumeRow, Stats};

use super::schedule::Measure;
use super::stats::Samples;
use crate::error::ExecutorError;

/// How long the lane is idle.
const IDLE_US: [u32; 5] = [100, 500, 2_000, 8_000, 25_000];
/// Sequences in the passes, so that there is little and much to compute.
pub(crate) const BATCHES: [u32; 2] = [1, 8];
/// How often each point is measured.
const ROUNDS: usize = 60;
/// A pass without idleness before it is measured for as many rounds.
const WARM_UP: usize = 3;
/// A pass slower than this is not worth the wait: idleness is lost in it.
const WORK_MAX: Duration = Duration::from_millis(50);

/// Measures forward passes, each larger than the one before, after idleness, beside the same back to back. Nothing once the user has
/// asked to stop.
pub(crate) fn measure(passes: Vec<Measure<'_>>, interrupted: &AtomicBool) -> Result<Vec<ResumeRow>, ExecutorError> {
    let mut rows: Vec<ResumeRow> = Vec::new();
    for mut pass in passes {
        let mut warm = Samples::default();
        for round in 0..WARM_UP + ROUNDS {
            if interrupted.load(Ordering::Relaxed) {
                return Ok(Vec::new());
            }
            let took = pass()?;
            if round >= WARM_UP {
                warm.push(micros(took));
            }
        }
        let work_us = warm.stats().median_us;
        if work_us > micros(WORK_MAX) && !rows.is_empty() {
            break;
        }
        let mut after_idle = IDLE_US.map(|_| Samples::default());
        for _ in 0..ROUNDS {
            for (idle_us, samples) in IDLE_US.into_iter().zip(&mut after_idle) {
                if interrupted.load(Ordering::Relaxed) {
                    return Ok(Vec::new());
                }
                std::thread::sleep(Duration::from_micros(idle_us.into()));
                // Some passes are faster than the median of those without idleness; a cost is not negative.
                samples.push((micros(pass()?) - work_us).max(1e-3));
            }
        }
        let row = |(idle_us, samples): (u32, Samples)| {
            let stats: Stats = samples.stats();
            ResumeRow {
                idle_us,
                work_us: work_us.round() as u32,
                stats,
            }
        };
        rows.extend(IDLE_US.into_iter().zip(after_idle).map(row));
    }
    Ok(rows)
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
