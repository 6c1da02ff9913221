//! How much compute, copies and look-ups slow each other down when they run side by side.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tenantry_profiles::Contention;

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

/// Measures `compute`, a model's layers, beside copies and beside look-ups, where there are tables, from two threads as the lanes do.
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

/// Measures `compute` and what `other` measures on a `stream` of its own, alone and beside each other. `share` gives a handle that may go to
/// another thread.
fn side_by_side<S: Send>(
    compute: &mut Measure<'_>,
    share: impl Fn() -> S,
    other: for<'a> fn(&'a S) -> Measure<'a>,
    stream: Stream,
    interrupted: &AtomicBool,
) -> Result<Slowdowns, ExecutorError> {
    let [mut compute_alone, mut compute_beside, mut other_alone, mut other_beside] =
        [(); 4].map(|()| Samples::default());
    for _ in 0..ROUNDS {
        if interrupted.load(Ordering::Relaxed) {
            break;
        }
        repeat(compute, &mut compute_alone)?;
        repeat(&mut other(&share()), &mut other_alone)?;
        let handle = share();
        std::thread::scope(|scope| {
            let beside = scope.spawn(|| {
                // Moved in: tensors may go to another thread, but not be shared with it.
                let handle = handle;
                prepare_lane_thread();
                stream.make_current()?;
                let mut samples = Samples::default();
                repeat(&mut other(&handle), &mut samples).map(|()| samples)
            });
            repeat(compute, &mut compute_beside)?;
            other_beside.append(beside.join().expect("the other reports its errors")?);
            Ok::<(), ExecutorError>(())
        })?;
    }
    Ok(Slowdowns {
        compute: slowdown(&compute_beside, &compute_alone),
        other: slowdown(&other_beside, &other_alone),
    })
}

/// Measures again and again for one phase, after a warm-up.
fn repeat(
    measure: &mut impl FnMut() -> Result<Duration, ExecutorError>,
    samples: &mut Samples,
) -> Result<(), ExecutorError> {
    measure()?;
    let start = Instant::now();
    while start.elapsed() < PHASE {
        samples.push(measure()?.as_secs_f64() * 1e6);
    }
    Ok(())
}

/// By how much an op grows, by the fastest twentieth of each: other programs on the machine slow more than half of the ops
/// where two threads are busy, but hardly ever all. What seems to be faster in company is as fast.
fn slowdown(beside: &Samples, alone: &Samples) -> f64 {
    if beside.count() == 0 || alone.count() == 0 {
        return 1.0;
    }
    (beside.stats().p05_us / alone.stats().p05_us).max(1.0)
}
