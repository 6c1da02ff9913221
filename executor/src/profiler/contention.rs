//! How much compute and copies slow each other down when they run side by side.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tenantry_profiles::Contention;

use super::compute::Subject;
use super::copies::Copies;
use super::stats::Samples;
use crate::device::prepare_lane_thread;
use crate::error::ExecutorError;

/// Size of the copies: large enough to keep the memory busy, small enough to be many.
const COPY_BYTES: u64 = 1 << 20;
/// How often each of the three (compute alone, copies alone, both) is measured, in turns.
const ROUNDS: u32 = 12;
/// How long each lasts at a time.
const PHASE: Duration = Duration::from_millis(60);

/// Measures a model's layers beside copies, from two threads as the lanes do.
pub(crate) fn measure(
    subject: &Subject,
    copies: &Copies,
    interrupted: &AtomicBool,
) -> Result<Contention, ExecutorError> {
    let middle = |axis: &[u32]| axis[axis.len() / 2];
    let mut compute = subject.layers(middle(&subject.axes.batch), middle(&subject.axes.tokens))?;
    let [mut compute_alone, mut compute_beside, mut copy_alone, mut copy_beside] = [(); 4].map(|()| Samples::default());
    for _ in 0..ROUNDS {
        if interrupted.load(Ordering::Relaxed) {
            break;
        }
        repeat(&mut compute, &mut compute_alone)?;
        repeat(&mut copies.measure(COPY_BYTES), &mut copy_alone)?;
        let handle = copies.share();
        std::thread::scope(|scope| {
            let copying = scope.spawn(|| {
                // Moved in: tensors may go to another thread, but not be shared with it.
                let handle = handle;
                prepare_lane_thread();
                let mut samples = Samples::default();
                repeat(&mut handle.measure(COPY_BYTES), &mut samples).map(|()| samples)
            });
            repeat(&mut compute, &mut compute_beside)?;
            copy_beside.append(copying.join().expect("a copy reports its errors")?);
            Ok::<(), ExecutorError>(())
        })?;
    }
    Ok(Contention {
        compute_beside_copy: slowdown(&compute_beside, &compute_alone),
        copy_beside_compute: slowdown(&copy_beside, &copy_alone),
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
