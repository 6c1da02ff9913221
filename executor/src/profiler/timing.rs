//! How long an op takes: by the device's clock, or by the host's where issuing it is what is asked for.

use std::time::{Duration, Instant};

use tenantry_profiles::{DispatchOperation, DispatchRow, Tables};

use super::schedule::Point;
use crate::device::{Event, Stream, synchronize};
use crate::error::ExecutorError;

/// The point of issuing a layer to a GPU: `measure` says how long the host was busy.
pub(super) fn issue<'a>(measure: impl FnMut() -> Result<Duration, ExecutorError> + 'a) -> Point<'a> {
    let row = |tables: &mut Tables, stats| {
        tables.dispatch.push(DispatchRow {
            operation: DispatchOperation::Issue,
            stats,
        });
    };
    Point::new("dispatch: issue".into(), measure, row)
}

/// Issues something to a device and says how long the host was busy with that, by its own clock. What comes of it is
/// waited for, so that no queue is ever full.
pub(super) fn issued<T>(
    device: tch::Device,
    work: impl FnOnce() -> Result<T, ExecutorError>,
) -> Result<Duration, ExecutorError> {
    synchronize(device)?;
    let start = Instant::now();
    let result = work()?;
    let took = start.elapsed();
    synchronize(device)?;
    drop(result);
    Ok(took)
}

/// Does the same to each of several things, and says how long that took in all. What must be `prepared` for it is no
/// part of it. A GPU that has been told of the next while it does one never waits for the host, as in a pass: there all
/// are prepared first, and timed as one.
pub(super) fn timed_in_turn<T>(
    device: tch::Device,
    things: &mut [T],
    mut prepare: impl FnMut(&mut T) -> Result<(), ExecutorError>,
    mut work: impl FnMut(&mut T) -> Result<(), ExecutorError>,
) -> Result<Duration, ExecutorError> {
    if device.is_cuda() {
        things.iter_mut().try_for_each(prepare)?;
        return timed(device, || things.iter_mut().try_for_each(work));
    }
    let mut took = Duration::ZERO;
    for thing in things {
        prepare(thing)?;
        took += timed(device, || work(thing))?;
    }
    Ok(took)
}

/// Does something on a device and says how long it took until the device was done, by the device's clock: a GPU's
/// begins when it has nothing else to do on this thread's stream, so that an op that its kernels' issuing takes longer
/// than their running lasts as long as that.
pub(super) fn timed<T>(
    device: tch::Device,
    work: impl FnOnce() -> Result<T, ExecutorError>,
) -> Result<Duration, ExecutorError> {
    // The device makes an event when it is first recorded: beforehand, so that it is no part of what is timed.
    let mut end = Event::now(device)?;
    synchronize(device)?;
    let start = Event::now(device)?;
    let result = work()?;
    end.record(Stream::current(device)?)?;
    end.synchronize()?;
    let took = end.since(&start)?;
    drop(result);
    Ok(took)
}
