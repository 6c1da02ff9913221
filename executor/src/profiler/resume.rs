//! What compute and copies take longer after their lane was idle, and compute after another tenant's model.
//!
//! At low load a lane waits between batches, and what else the processor does meanwhile, for this program or for
//! another, takes its caches: a lane that spins through 30 ms is as slow afterwards as one that sleeps. On a small
//! model that can double what a batch takes, so that costs measured back to back would promise too much. As when
//! serving, each pass has requests of its own, and the lane is woken by another thread, which has woken itself for each
//! of them.
//!
//! How slow a lane is depends on more than its last wait: one that works a millisecond in twenty never warms up, and
//! one that has waited needs some milliseconds of work until it is as fast as it gets. So waits and work take turns for
//! a while before anything counts; work of several sizes tells how a lane warms up; and what it is compared with is
//! measured after enough of it.
//!
//! Where each tenant has a whole model, the one that is asked for has seldom been the last: its parameters come from
//! memory, even without any idleness.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::Scope;
use std::time::Duration;

use tenantry_profiles::{Changing, CopyResumeRow, LookupResumeRow, ResumeRow, Stats};

use super::copies::Copies;
use super::lookups::LookupSubject;
use super::schedule::Measure;
use super::stats::Samples;
use crate::device::prepare_loop_thread;
use crate::error::ExecutorError;

/// How long the lane is idle, and in how many rounds that is measured: long waits less often. Without any idleness only
/// where the model changes.
const IDLE_US: [(u32, usize); 7] = [
    (NOT_IDLE_US, 10),
    (100, 10),
    (500, 10),
    (2_000, 10),
    (8_000, 10),
    (25_000, 8),
    (100_000, 4),
];
/// Waits and work in turns in a round, of which the first does not count: it follows upon a warm lane.
const CYCLES: usize = 3;
/// Work after which a lane is taken to be warm.
const WARM_UP: Duration = Duration::from_millis(12);
/// Calls back to back that follow upon that. What a round is compared with is measured beside it, since the machine
/// drifts within seconds.
const STEADY: usize = 3;
/// Work of one size is as good as another's that is hardly more.
const WORK_STEP: f64 = 1.2;
/// What stands for no idleness at all: tables have no zeros.
const NOT_IDLE_US: u32 = 1;
/// A thread that naps for less oversleeps by as much.
const NAP_MIN: Duration = Duration::from_millis(1);
/// Work that takes longer than this is not worth the wait: idleness is lost in it.
const WORK_MAX: Duration = Duration::from_millis(50);

/// A forward pass of so many requests, others at each call, or a copy.
pub(crate) struct Pass<'a> {
    pub requests: u32,
    /// Calls that are one piece of work.
    pub calls: u32,
    pub measure: Measure<'a>,
    /// Lets the next calls be made with another model, where there are several.
    pub change_model: Option<Box<dyn FnMut() -> Result<(), ExecutorError> + 'a>>,
}

/// Bytes of the copies: the adapters of a small model, and a small model.
const COPY_BYTES: [u64; 2] = [32 << 10, 2 << 20];

/// Measures copies to the device after idleness, from memory that nobody has touched for a while. Nothing once the user
/// has asked to stop.
pub(crate) fn measure_copies(copies: &Copies, interrupted: &AtomicBool) -> Result<Vec<CopyResumeRow>, ExecutorError> {
    let mut rows = Vec::new();
    for bytes in COPY_BYTES {
        let mut pass = Pass {
            requests: 1,
            calls: 1,
            // What a wait costs, it costs an op once.
            measure: Box::new(copies.op(bytes)),
            change_model: None,
        };
        let Some(measured) = rows_after_idle(&mut pass, interrupted, |idle_us, work_us, stats| CopyResumeRow {
            idle_us,
            work_us,
            stats,
        })?
        else {
            return Ok(Vec::new());
        };
        rows.extend(measured);
    }
    Ok(rows)
}

/// Tokens of the look-ups: a text, and a batch of them.
const LOOKUP_TOKENS: [u32; 2] = [128, 2048];

/// Measures look-ups after idleness of the threads that share their work. Nothing once the user has asked to stop.
pub(crate) fn measure_lookups(
    lookup: &LookupSubject,
    interrupted: &AtomicBool,
) -> Result<Vec<LookupResumeRow>, ExecutorError> {
    let mut rows = Vec::new();
    for threads in lookup.least_and_most_threads() {
        for tokens in LOOKUP_TOKENS {
            let mut pass = Pass {
                requests: 1,
                calls: 1,
                measure: lookup.by_threads(threads, tokens),
                change_model: None,
            };
            let Some(measured) = rows_after_idle(&mut pass, interrupted, |idle_us, work_us, stats| LookupResumeRow {
                threads,
                idle_us,
                work_us,
                stats,
            })?
            else {
                return Ok(Vec::new());
            };
            rows.extend(measured);
        }
    }
    Ok(rows)
}

/// Measures a model's forward passes after idleness, beside the same back to back; of passes that take about as long as
/// the ones before none. Nothing once the user has asked to stop.
pub(crate) fn measure(
    model: &str,
    changing: Changing,
    first_layer: u32,
    passes: Vec<Pass<'_>>,
    interrupted: &AtomicBool,
) -> Result<Vec<ResumeRow>, ExecutorError> {
    let mut rows: Vec<ResumeRow> = Vec::new();
    let mut last_us = 0.0;
    for mut pass in passes {
        (pass.measure)()?;
        let work = (pass.measure)()? * pass.calls;
        if work > WORK_MAX && !rows.is_empty() {
            break;
        }
        if micros(work) < last_us * WORK_STEP {
            continue;
        }
        last_us = micros(work);
        let Some(measured) = rows_after_idle(&mut pass, interrupted, |idle_us, work_us, stats| ResumeRow {
            model: model.to_string(),
            changing,
            from_layer: first_layer + 1,
            idle_us,
            work_us,
            stats,
        })?
        else {
            return Ok(Vec::new());
        };
        rows.extend(measured);
    }
    Ok(rows)
}

/// What was measured of one idleness.
#[derive(Default)]
struct Measured {
    idle_us: u32,
    /// Work on a warm lane.
    steady: Samples,
    /// What work after idleness took beyond that.
    extra: Samples,
}

/// What it takes back to back, in whole microseconds.
fn work_us(measured: &[Measured]) -> u32 {
    let mut work = Samples::default();
    measured.iter().for_each(|of| work.append(of.steady.clone()));
    work.stats().median_us.round().max(1.0) as u32
}

/// A row for each idleness, of how long that was, what the work takes back to back, both in microseconds, and what it
/// took beyond that; nothing where the user has asked to stop.
fn rows_after_idle<R>(
    pass: &mut Pass<'_>,
    interrupted: &AtomicBool,
    row: impl Fn(u32, u32, Stats) -> R,
) -> Result<Option<Vec<R>>, ExecutorError> {
    let Some(measured) = after_idle(pass, interrupted)? else {
        return Ok(None);
    };
    let work_us = work_us(&measured);
    let rows = measured.into_iter().map(|of| row(of.idle_us, work_us, of.extra.stats().not_negative()));
    Ok(Some(rows.collect()))
}

/// What work takes after each idleness, in turns; nothing where the user has asked to stop.
fn after_idle(pass: &mut Pass<'_>, interrupted: &AtomicBool) -> Result<Option<Vec<Measured>>, ExecutorError> {
    let changes = pass.change_model.is_some();
    let idlenesses: Vec<(u32, usize)> =
        IDLE_US.into_iter().filter(|(idle_us, _)| *idle_us > NOT_IDLE_US || changes).collect();
    let mut all: Vec<Measured> = idlenesses.iter().map(|_| Measured::default()).collect();
    let most = idlenesses.iter().map(|(_, rounds)| *rounds).max();
    let most = most.expect("there is one idleness at least");
    std::thread::scope(|scope| {
        let lane = Lane::woken_by(scope, pass.requests);
        for round in 0..most {
            for (measured, &(idle_us, rounds)) in all.iter_mut().zip(&idlenesses) {
                if round >= rounds {
                    continue;
                }
                if interrupted.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                measured.idle_us = idle_us;
                measured.round(&lane, pass)?;
            }
        }
        Ok(Some(all))
    })
}

impl Measured {
    /// Waits and work in turns on a lane, then work without waits.
    fn round(&mut self, lane: &Lane, pass: &mut Pass<'_>) -> Result<(), ExecutorError> {
        let mut cold_us = [0.0; CYCLES];
        for cold_us in &mut cold_us {
            let mut work = || {
                if let Some(change_model) = &mut pass.change_model {
                    change_model()?;
                }
                for _ in 0..pass.calls {
                    *cold_us += micros((pass.measure)()?);
                }
                Ok(())
            };
            match self.idle_us {
                NOT_IDLE_US => work()?,
                idle_us => lane.work_after(idle_us, work)?,
            }
        }
        let steady_us = f64::from(pass.calls) * steady_call_us(&mut pass.measure)?;
        self.steady.push(steady_us);
        // Some is faster than what came after it, which is as much a part of the mean as what is slower.
        cold_us[1..].iter().for_each(|cold_us| self.extra.push(cold_us - steady_us));
        Ok(())
    }
}

/// A lane whose waker is another thread.
struct Lane {
    sleep: Sender<u32>,
    woken: Receiver<()>,
    end: Sender<()>,
}

impl Lane {
    /// With its waker, for work of so many requests.
    fn woken_by<'scope>(scope: &'scope Scope<'scope, '_>, requests: u32) -> Lane {
        let (sleep, sleeps) = mpsc::channel();
        let (wake, woken) = mpsc::channel();
        let (end, ends) = mpsc::channel();
        // Ends when nobody can tell it to sleep any more.
        scope.spawn(move || wake_and_hear(&sleeps, requests, &wake, &ends));
        Lane { sleep, woken, end }
    }

    /// Waits for so long, and works when it is woken.
    fn work_after(&self, idle_us: u32, work: impl FnOnce() -> Result<(), ExecutorError>) -> Result<(), ExecutorError> {
        const ENDS_LAST: &str = "the waker ends after the lane";
        self.sleep.send(idle_us).expect(ENDS_LAST);
        self.woken.recv().expect(ENDS_LAST);
        work()?;
        self.end.send(()).expect(ENDS_LAST);
        // As when serving, a lane that has worked leaves the processor to the loop.
        self.woken.recv().expect(ENDS_LAST);
        Ok(())
    }
}

/// Sleeps as long as it is told, wakes the lane, and waits until that has worked, as the loop does when serving.
fn wake_and_hear(sleeps: &Receiver<u32>, requests: u32, wake: &Sender<()>, ends: &Receiver<()>) {
    prepare_loop_thread();
    for idle_us in sleeps {
        nap(Duration::from_micros(idle_us.into()), requests);
        if wake.send(()).is_err() || ends.recv().is_err() || wake.send(()).is_err() {
            break;
        }
    }
}

/// What a call takes back to back on a warm lane, in microseconds: the median of a few.
fn steady_call_us(measure: &mut Measure<'_>) -> Result<f64, ExecutorError> {
    let mut worked = Duration::ZERO;
    while worked < WARM_UP {
        worked += measure()?;
    }
    let mut steady = Samples::default();
    for _ in 0..STEADY {
        steady.push(micros(measure()?));
    }
    Ok(steady.stats().median_us)
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
