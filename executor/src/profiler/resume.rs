//! What compute takes longer after its lane was idle.
//!
//! At low load a lane sleeps between batches: its caches go cold, its clock slows down, and on a virtual machine its memory may have to be
//! mapped anew, page by page. On a small model that can double what a batch takes, so that costs measured back to back would promise
//! too much. As when serving, the lane is woken by another thread, which has slept too: that one comes back on another core as often as not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use tenantry_profiles::ResumeRow;

use super::schedule::Measure;
use super::stats::Samples;
use crate::error::ExecutorError;

/// How long the lane is idle, and how often that is measured: long waits less often.
const IDLE_US: [(u32, usize); 7] = [
    (100, 40),
    (500, 40),
    (2_000, 40),
    (8_000, 40),
    (25_000, 40),
    (100_000, 12),
    (300_000, 12),
];
/// Sequences in the passes, so that there is little and much to compute.
pub(crate) const BATCHES: [u32; 2] = [1, 8];
/// A pass without idleness before it is measured.
const WARM_UP: usize = 3;
/// A pass slower than this is not worth the wait: idleness is lost in it.
const WORK_MAX: Duration = Duration::from_millis(50);

/// Measures a model's forward passes, each larger than the one before, after idleness, beside the same back to back. Nothing once the
/// user has asked to stop.
pub(crate) fn measure(
    model: &str,
    passes: Vec<Measure<'_>>,
    interrupted: &AtomicBool,
) -> Result<Vec<ResumeRow>, ExecutorError> {
    let mut rows: Vec<ResumeRow> = Vec::new();
    for mut pass in passes {
        let mut last = Duration::ZERO;
        for _ in 0..WARM_UP {
            last = pass()?;
        }
        if last > WORK_MAX && !rows.is_empty() {
            break;
        }
        let Some(pairs) = after_idle(&mut pass, interrupted)? else {
            return Ok(Vec::new());
        };
        let mut warm = Samples::default();
        pairs.iter().flatten().for_each(|pair| warm.push(micros(pair.next)));
        let work_us = warm.stats().median_us.round() as u32;
        let row = |((idle_us, _), pairs): ((u32, usize), &Vec<Pair>)| {
            let mut samples = Samples::default();
            for pair in pairs {
                // Some passes are faster than the next one; a cost is not negative.
                samples.push((micros(pair.first) - micros(pair.next)).max(1e-3));
            }
            ResumeRow {
                model: model.to_string(),
                idle_us,
                work_us,
                stats: samples.stats(),
            }
        };
        rows.extend(IDLE_US.into_iter().zip(&pairs).map(row));
    }
    Ok(rows)
}

/// A pass after idleness and the same right after it, so that what the machine does meanwhile weighs on both alike.
struct Pair {
    first: Duration,
    next: Duration,
}

/// What a pass takes after each idleness, in turns; nothing where the user has asked to stop.
fn after_idle(
    pass: &mut Measure<'_>,
    interrupted: &AtomicBool,
) -> Result<Option<[Vec<Pair>; IDLE_US.len()]>, ExecutorError> {
    let (sleep, sleeps) = mpsc::channel::<u32>();
    let (wake, woken) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        // Ends when `sleep` goes.
        scope.spawn(move || {
            for idle_us in sleeps {
                std::thread::sleep(Duration::from_micros(idle_us.into()));
                if wake.send(()).is_err() {
                    return;
                }
            }
        });
        let mut pairs: [Vec<Pair>; IDLE_US.len()] = Default::default();
        let most = IDLE_US.into_iter().map(|(_, rounds)| rounds).max();
        for round in 0..most.expect("there is one idleness at least") {
            for (pairs, (idle_us, rounds)) in pairs.iter_mut().zip(IDLE_US) {
                if interrupted.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                if round < rounds {
                    sleep.send(idle_us).expect("the waker ends after this");
                    woken.recv().expect("the waker ends after this");
                    pairs.push(Pair {
                        first: pass()?,
                        next: pass()?,
                    });
                }
            }
        }
        drop(sleep);
        Ok(Some(pairs))
    })
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
