//! How much compute, copies and look-ups slow each other down when they run side by side.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tenantry_profiles::{Contention, middle};

use super::copies::Copies;
use super::lookups::LookupSubject;
use super::schedule::Measure;
use super::stats::Samples;
use crate::device::{Stream, prepare_lane_thread};
use crate::error::ExecutorError;

/// Size of the copies: large enough to keep the memory busy, small enough to be many.
const COPY_BYTES: u64 = 1 << 20;
/// How often each of the three (compute alone, the other alone, both) is measured, in turns.
const ROUNDS: u32 = 12;
/// How long each lasts at a time.
const PHASE: Duration = Duration::from_millis(60);

/// Measures `compute`, a model's layers, beside copies and beside look-ups, where there are tables, from two threads as
/// the lanes do.
pub(crate) fn measure(
    compute: &mut Measure<'_>,
    copies: &Copies,
    lookups: Option<&LookupSubject>,
    interrupted: &AtomicBool,
) -> Result<Contention, ExecutorError> {
    let beside_copy = side_by_side(compute, || copies.share(), copying, copies.stream()?, interrupted)?;
    let beside_lookup = match lookups {
        Some(lookups) => {
            // The host looks up, and issues nothing to any stream.
            let none = Stream::current(tch::Device::Cpu)?;
            side_by_side(compute, || lookups, |lookups| lookups.beside(), none, interrupted)?
        }
        None => Slowdowns {
            compute: 1.0,
            other: 1.0,
        },
    };
    Ok(Contention {
        compute_beside_copy: beside_copy.compute,
        copy_beside_compute: beside_copy.other,
        compute_beside_lookup: beside_lookup.compute,
        lookup_beside_compute: beside_lookup.other,
    })
}

fn copying(copies: &Copies) -> Measure<'_> {
    Box::new(copies.measure(COPY_BYTES))
}

/// By how much each of two grows beside the other.
struct Slowdowns {
    compute: f64,
    other: f64,
}

/// Measures `compute` and what `other` measures on a `stream` of its own, alone and beside each other. `share` gives a
/// handle that may go to another thread.
fn side_by_side<S: Send>(
    compute: &mut Measure<'_>,
    share: impl Fn() -> S,
    other: for<'a> fn(&'a S) -> Measure<'a>,
    stream: Stream,
    interrupted: &AtomicBool,
) -> Result<Slowdowns, ExecutorError> {
    let [mut of_compute, mut of_other] = [(); 2].map(|()| Vec::new());
    for _ in 0..ROUNDS {
        if interrupted.load(Ordering::Relaxed) {
            break;
        }
        let other_alone = alone(&mut other(&share()))?;
        let compute_alone = alone(&mut *compute)?;
        let (handle, company) = (share(), Company::default());
        let (compute_beside, other_beside) = std::thread::scope(|scope| {
            let beside = scope.spawn(|| {
                // Moved in: tensors may go to another thread, but not be shared with it.
                let handle = handle;
                prepare_lane_thread();
                company.member(1, || {
                    stream.make_current()?;
                    Ok(other(&handle))
                })
            });
            let computed = company.member(0, || Ok(&mut *compute));
            let other = beside.join().expect("the other reports its errors")?;
            Ok::<_, ExecutorError>((computed?, other))
        })?;
        of_compute.push(ratio(&compute_beside, &compute_alone));
        of_other.push(ratio(&other_beside, &other_alone));
    }
    Ok(Slowdowns {
        compute: slowdown(of_compute),
        other: slowdown(of_other),
    })
}

/// Measures again and again for one phase, after a warm-up.
fn alone(mut measure: impl FnMut() -> Result<Duration, ExecutorError>) -> Result<Samples, ExecutorError> {
    measure()?;
    let (start, mut samples) = (Instant::now(), Samples::default());
    while samples.count() == 0 || start.elapsed() < PHASE {
        samples.push(measure()?.as_secs_f64() * 1e6);
    }
    Ok(samples)
}

/// Two who measure at the same time: they begin together, and what one of them still measures when the other has ended
/// does not count.
#[derive(Debug, Default)]
struct Company {
    /// Who is warm.
    ready: [AtomicBool; 2],
    /// Who has measured for long enough, and at least once.
    enough: [AtomicBool; 2],
    /// Who measures no more: both have had enough, or one has failed.
    ended: [AtomicBool; 2],
}

impl Company {
    /// What one of the two measures beside the other.
    fn member<M: FnMut() -> Result<Duration, ExecutorError>>(
        &self,
        me: usize,
        prepare: impl FnOnce() -> Result<M, ExecutorError>,
    ) -> Result<Samples, ExecutorError> {
        let samples = self.measured(me, prepare);
        self.ended[me].store(true, Ordering::SeqCst);
        samples
    }

    fn measured<M: FnMut() -> Result<Duration, ExecutorError>>(
        &self,
        me: usize,
        prepare: impl FnOnce() -> Result<M, ExecutorError>,
    ) -> Result<Samples, ExecutorError> {
        let is = |all: &[AtomicBool; 2], who: usize| all[who].load(Ordering::SeqCst);
        let other = 1 - me;
        let mut measure = prepare()?;
        measure()?;
        self.ready[me].store(true, Ordering::SeqCst);
        while !is(&self.ready, other) && !is(&self.ended, other) {
            std::hint::spin_loop();
        }
        let (start, mut samples) = (Instant::now(), Samples::default());
        while !is(&self.ended, other) {
            let us = measure()?.as_secs_f64() * 1e6;
            // Whatever is the last of the other, the first counts.
            if samples.count() == 0 || !is(&self.ended, other) {
                samples.push(us);
            }
            if start.elapsed() >= PHASE {
                self.enough[me].store(true, Ordering::SeqCst);
                if is(&self.enough, other) {
                    break;
                }
            }
        }
        Ok(samples)
    }
}

/// What the median grew by in one round; nothing is known where one of the two measured nothing.
fn ratio(beside: &Samples, alone: &Samples) -> Option<f64> {
    (beside.count() > 0 && alone.count() > 0).then(|| beside.stats().median_us / alone.stats().median_us)
}

/// By how much an op grows: the median of all rounds, each compared with itself, so that what disturbs one for a while
/// disturbs both sides of its ratio. What seems to be faster in company is as fast.
fn slowdown(rounds: Vec<Option<f64>>) -> f64 {
    let mut rounds: Vec<f64> = rounds.into_iter().flatten().collect();
    rounds.sort_by(f64::total_cmp);
    match rounds.is_empty() {
        true => 1.0,
        false => middle(&rounds).max(1.0),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    /// Copies that someone else sees: whether one is under way, and whether by a thread of its own.
    struct Scripted<'a> {
        beside: &'a AtomicBool,
        calls: &'a AtomicU32,
        main: std::thread::ThreadId,
    }

    const ALONE: Duration = Duration::from_micros(100);

    /// Takes two and a half times as long on another thread, where compute is beside it.
    fn copying(of: &Scripted<'_>) -> Measure<'static> {
        let is_beside = std::thread::current().id() != of.main;
        of.beside.store(is_beside, Ordering::SeqCst);
        of.calls.fetch_add(1, Ordering::SeqCst);
        Box::new(move || {
            std::thread::sleep(Duration::from_micros(200));
            Ok(if is_beside { ALONE.mul_f64(2.5) } else { ALONE })
        })
    }

    #[test]
    fn each_grows_by_what_it_takes_beside_the_other() {
        let (beside, calls, never) = (AtomicBool::new(false), AtomicU32::new(0), AtomicBool::new(false));
        // A few of these make a phase, so that one is mostly under way when the copies have had enough.
        let mut compute: Measure = Box::new(|| {
            std::thread::sleep(PHASE / 4);
            Ok(if beside.load(Ordering::SeqCst) {
                3 * ALONE
            } else {
                2 * ALONE
            })
        });
        let share = || Scripted {
            beside: &beside,
            calls: &calls,
            main: std::thread::current().id(),
        };
        // The thread that copies beside asks for its handle on the main one.
        let none = Stream::current(tch::Device::Cpu).unwrap();
        let both = side_by_side(&mut compute, share, copying, none, &never).unwrap();
        assert_eq!((both.compute, both.other), (1.5, 2.5));
        assert_eq!(calls.load(Ordering::SeqCst), 2 * ROUNDS);
    }

    #[test]
    fn who_fails_keeps_nobody_waiting() {
        let company = Company::default();
        let fails = || Err(ExecutorError::input("a copy", "possible", "not"));
        let measured = std::thread::scope(|scope| {
            let other = scope.spawn(|| company.member(1, || Ok(fails)).is_err());
            let measured = company.member(0, || Ok(|| Ok(ALONE)));
            assert!(other.join().unwrap());
            measured
        });
        assert!(measured.unwrap().count() < 2);
    }

    #[test]
    fn one_round_that_was_disturbed_changes_nothing() {
        let rounds = vec![Some(1.1), Some(1.2), Some(4.0), None, Some(1.2)];
        assert_eq!(slowdown(rounds), 1.2);
        assert_eq!(slowdown(vec![Some(0.9)]), 1.0);
        assert_eq!(slowdown(vec![]), 1.0);
    }
}
