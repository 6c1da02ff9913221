//! What compute and copies take longer after their lane was idle, and compute after another tenant's model.
//!
//! At low load a lane waits between batches, and what else the processor does meanwhile, for this program or for another, takes its caches:
//! a lane that spins through 30 ms is as slow afterwards as one that sleeps. On a small model that can double what a batch takes, so
//! that costs measured back to back would promise too much. As when serving, each pass has requests of its own, and the lane is woken
//! by another thread, which has woken itself for each of them.
//!
//! Where each tenant has a whole model, the one that is asked for has seldom been the last: its parameters come from memory, even without
//! any idleness.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use tenantry_profiles::{Changing, CopyResumeRow, ResumeRow};

use super::copies::Copies;
use super::schedule::Measure;
use super::stats::Samples;
use crate::error::ExecutorError;

/// How long the lane is idle, and how often that is measured: long waits less often. Without any idleness only where the model changes.
const IDLE_US: [(u32, usize); 8] = [
    (NOT_IDLE_US, 40),
    (100, 40),
    (500, 40),
    (2_000, 40),
    (8_000, 40),
    (25_000, 30),
    (100_000, 12),
    (300_000, 8),
];
/// Passes back to back before each idleness; the last is what the one after it is compared with, since the machine drifts within seconds.
const STEADY: usize = 3;
/// What stands for no idleness at all: tables have no zeros.
const NOT_IDLE_US: u32 = 1;
/// A thread that naps for less oversleeps by as much.
const NAP_MIN: Duration = Duration::from_millis(1);
/// A pass slower than this is not worth the wait: idleness is lost in it.
const WORK_MAX: Duration = Duration::from_millis(50);

/// A forward pass of so many requests, others at each call, or a copy.
pub(crate) struct Pass<'a> {
    pub requests: u32,
    pub measure: Measure<'a>,
    /// Lets the next calls be made with another model, where there are several.
    pub change_model: Option<Box<dyn FnMut() + 'a>>,
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
            change_model: None,
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
    changing: Changing,
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
            changing,
            idle_us: of.idle_us,
            work_us,
            stats: of.extra.stats(),
        }));
    }
    Ok(rows)
}

/// What was measured of one idleness.
#[derive(Default)]
struct Measured {
    idle_us: u32,
    /// Passes back to back.
    steady: Samples,
    /// What passes after idleness took beyond that.
    extra: Samples,
}

/// What it takes back to back, in whole microseconds.
fn work_us(measured: &[Measured]) -> u32 {
    let mut work = Samples::default();
    measured.iter().for_each(|of| work.append(of.steady.clone()));
    work.stats().median_us.round().max(1.0) as u32
}

/// What a pass takes after each idleness, in turns; nothing where the user has asked to stop.
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
        let changes = pass.change_model.is_some();
        let idlenesses: Vec<(u32, usize)> = IDLE_US
            .into_iter()
            .filter(|(idle_us, _)| *idle_us > NOT_IDLE_US || changes)
            .collect();
        let mut all: Vec<Measured> = idlenesses.iter().map(|_| Measured::default()).collect();
        let most = idlenesses.iter().map(|(_, rounds)| *rounds).max();
        for round in 0..most.expect("there is one idleness at least") {
            for (measured, &(idle_us, rounds)) in all.iter_mut().zip(&idlenesses) {
                if round >= rounds {
                    continue;
                }
                if interrupted.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                let mut steady_us = 0.0;
                for _ in 0..STEADY {
                    steady_us = micros((pass.measure)()?);
                }
                if idle_us > NOT_IDLE_US {
                    sleep.send(idle_us).expect("the waker ends after this");
                    woken.recv().expect("the waker ends after this");
                }
                if let Some(change_model) = &mut pass.change_model {
                    change_model();
                }
                // Some passes are faster than the one before the wait; a cost is not negative.
                let extra_us = (micros((pass.measure)()?) - steady_us).max(1e-3);
                measured.idle_us = idle_us;
                measured.steady.push(steady_us);
                measured.extra.push(extra_us);
            }
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
