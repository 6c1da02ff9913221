//! What compute and copies take longer after their lane was idle.
//!
//! At low load a lane waits between batches, and what else the processor does meanwhile, for this program or for another, takes its caches:
//! a lane that spins through 30 ms is as slow afterwards as one that sleeps. On a small model that can double what a batch takes, so
//! that costs measured back to back would promise too much. As when serving, each pass has requests of its own, and the lane is woken
//! by another thread, which has woken itself for each of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use tenantry_profiles::{CopyResumeRow, ResumeRow};

use super::copies::Copies;
use super::schedule::Measure;
use super::stats::Samples;
use crate::error::ExecutorError;

/// How long the lane is idle, and how often that is measured: long waits less often.
const IDLE_US: [(u32, usize); 7] = [
    (100, 40),
    (500, 40),
    (2_000, 40),
    (8_000, 40),
    (25_000, 30),
    (100_000, 10),
    (300_000, 6),
];
/// Sequences in the passes, so that there is little and much to compute.
pub(crate) const BATCHES: [u32; 2] = [1, 8];
/// Passes back to back before each idleness, with which those after it are compared: the machine drifts. The first ones warm up.
const STEADY: usize = 20;
/// Passes that are not counted, at the beginning of each.
const WARM_UP: usize = 1;
/// A thread that naps for less oversleeps by as much.
const NAP_MIN: Duration = Duration::from_millis(1);
/// A pass slower than this is not worth the wait: idleness is lost in it.
const WORK_MAX: Duration = Duration::from_millis(50);

/// A forward pass of so many requests, others at each call, or a copy.
pub(crate) struct Pass<'a> {
    pub requests: u32,
    pub measure: Measure<'a>,
}

/// Bytes of the copies: the adapters of a small model, and a small model.
const COPY_BYTES: [u64; 2] = [32 << 10, 2 << 20];

/// Measures copies to the device after idleness, from memory that nobody has touched for a while. Nothing once the user has asked to
/// stop.
pub(crate) fn measure_copies(copies: &Copies, interrupted: &AtomicBool) -> Result<Vec<CopyResumeRow>, ExecutorError> {
    let mut rows = Vec::new();
    for bytes in COPY_BYTES {
        let mut pass = Pass {
            requests: 1,
            measure: Box::new(copies.measure(bytes)),
        };
        let Some(measured) = after_idle(&mut pass, interrupted)? else {
            return Ok(Vec::new());
        };
        let work_us = work_us(&measured);
        rows.extend(measured.into_iter().map(|of| CopyResumeRow {
            idle_us: of.idle_us,
            work_us,
            stats: of.extra.stats(),
        }));
    }
    Ok(rows)
}

/// Measures a model's forward passes, each larger than the one before, after idleness, beside the same back to back. Nothing once the
/// user has asked to stop.
pub(crate) fn measure(
    model: &str,
    passes: Vec<Pass<'_>>,
    interrupted: &AtomicBool,
) -> Result<Vec<ResumeRow>, ExecutorError> {
    let mut rows: Vec<ResumeRow> = Vec::new();
    for mut pass in passes {
        (pass.measure)()?;
        if (pass.measure)()? > WORK_MAX && !rows.is_empty() {
            break;
        }
        let Some(measured) = after_idle(&mut pass, interrupted)? else {
            return Ok(Vec::new());
        };
        let work_us = work_us(&measured);
        rows.extend(measured.into_iter().map(|of| ResumeRow {
            model: model.to_string(),
            idle_us: of.idle_us,
            work_us,
            stats: of.extra.stats(),
        }));
    }
    Ok(rows)
}

/// What was measured of one idleness.
struct Measured {
    idle_us: u32,
    /// The median of a pass back to back.
    steady_us: f64,
    /// What passes after idleness took beyond that.
    extra: Samples,
}

/// What it takes back to back, in whole microseconds.
fn work_us(measured: &[Measured]) -> u32 {
    let mut work = Samples::default();
    measured.iter().for_each(|of| work.push(of.steady_us));
    work.stats().median_us.round().max(1.0) as u32
}

/// What a pass takes after each idleness; nothing where the user has asked to stop.
fn after_idle(pass: &mut Pass<'_>, interrupted: &AtomicBool) -> Result<Option<Vec<Measured>>, ExecutorError> {
    let (sleep, sleeps) = mpsc::channel::<u32>();
    let (wake, woken) = mpsc::channel::<()>();
    let requests = pass.requests;
    std::thread::scope(|scope| {
        // Ends when `sleep` goes.
        scope.spawn(move || {
            for idle_us in sleeps {
                nap(Duration::from_micros(idle_us.into()), requests);
                if wake.send(()).is_err() {
                    return;
                }
            }
        });
        let mut all = Vec::new();
        // One idleness after the other: how cold memory has grown depends on how often passes come.
        for (idle_us, rounds) in IDLE_US {
            let mut steady = Samples::default();
            for round in 0..WARM_UP + STEADY {
                let took = (pass.measure)()?;
                if round >= WARM_UP {
                    steady.push(micros(took));
                }
            }
            let steady_us = steady.stats().median_us;
            let mut extra = Samples::default();
            for round in 0..WARM_UP + rounds {
                if interrupted.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                sleep.send(idle_us).expect("the waker ends after this");
                woken.recv().expect("the waker ends after this");
                let took = (pass.measure)()?;
                if round >= WARM_UP {
                    // Some passes are faster than most back to back; a cost is not negative.
                    extra.push((micros(took) - steady_us).max(1e-3));
                }
            }
            all.push(Measured {
                idle_us,
                steady_us,
                extra,
            });
        }
        drop(sleep);
        Ok(Some(all))
    })
}

/// Sleeps for so long in all, waking as often as requests arrive.
fn nap(all: Duration, requests: u32) {
    let naps = (all.as_nanos() / NAP_MIN.as_nanos()).clamp(1, requests.into()) as u32;
    for _ in 0..naps {
        std::thread::sleep(all / naps);
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
