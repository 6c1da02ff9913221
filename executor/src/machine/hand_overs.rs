//! What handing work over takes on this machine, measured with the very threads that serve.
//!
//! The loop and a lane sleep in turns. Whoever wakes the other is on a core that is awake; whether the other is woken
//! there, in some microseconds, or on a core that has gone to sleep, in ten times as many, the system decides by what
//! it saw of both: a lane that pauses for longer than it works shares the loop's core, one that hardly pauses gets its
//! own, and where all others compute there is no core to wake. So it is measured by that rhythm.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration as HostDuration, Instant};

use tch::Device;
use tenantry_core::board::OpRef;
use tenantry_core::ids::{BatchId, GpuId, InstanceId, LaneId};
use tenantry_core::machine::MachineError;
use tenantry_core::op::{BatchShape, CopyIn, Layers, OpKind};
use tenantry_core::topology::{Lane, LaneKind};
use tenantry_profiles::OtherCores;
use tenantry_traces::Duration;

use super::threads::{Perform, Threads};
use super::{Batch, Job, Workers};
use crate::device::{prepare_loop_thread, yield_to_loop};

/// Pauses between an end that was heard and the next op, in microseconds; 0 is at once.
const PAUSES_US: [u32; 5] = [0, 100, 500, 2_000, 8_000];
/// What ops take, in microseconds.
const WORKS_US: [u32; 4] = [100, 400, 2_000, 8_000];
/// Rounds of a rhythm until the system has settled on cores, which do not count.
const SETTLE_ROUNDS: u32 = 5;
/// How long the rounds that count take together, in microseconds, where that is within [`ROUNDS`].
const TIME_US: u32 = 80_000;
/// The fewest and the most rounds that count.
const ROUNDS: [u32; 2] = [24, 80];
/// What an op walks through while it lasts: as a pass does, it takes the caches.
const WALKED_BYTES: usize = 8 << 20;

/// What it took to hand work over in one round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandOver {
    /// From hearing of the last end until handing the next op over; 0 is at once.
    pub pause_us: u32,
    /// What the op takes.
    pub work_us: u32,
    /// What the other cores did.
    pub other_cores: OtherCores,
    /// From the instant that the loop slept until to its noticing that it had come; nothing without a pause.
    pub alarm: Option<Duration>,
    /// From handing the op over until it started.
    pub wake: Duration,
    /// From the op's end until the loop heard of it.
    pub tell: Duration,
}

/// Measures hand-overs in all rhythms, first beside idle cores and then with all others busy. What was measured by then
/// where the user asks to stop. `device` is what the lane works for: a GPU's clock is read about each op, which is part
/// of handing it over.
///
/// # Errors
/// When the system has no more threads.
pub(crate) fn hand_overs(device: Device, interrupted: &AtomicBool) -> Result<Vec<HandOver>, MachineError> {
    prepare_loop_thread();
    let cores = tenantry_profiles::cores();
    let mut measured = Vec::new();
    for (other_cores, neighbours) in [(OtherCores::Idle, 0), (OtherCores::Busy, cores - 1)] {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..neighbours {
                scope.spawn(|| compute_until(&is_over));
            }
            let rhythms = in_all_rhythms(device, other_cores, interrupted, &mut measured);
            is_over.store(true, Ordering::Relaxed);
            rhythms
        })?;
    }
    Ok(measured)
}

fn in_all_rhythms(
    device: Device,
    other_cores: OtherCores,
    interrupted: &AtomicBool,
    measured: &mut Vec<HandOver>,
) -> Result<(), MachineError> {
    let mut probe = Probe::start(device)?;
    let mut measure = || {
        for (pause_us, work_us) in PAUSES_US.into_iter().flat_map(|pause| WORKS_US.map(|work| (pause, work))) {
            let rounds = (TIME_US / (pause_us + work_us)).clamp(ROUNDS[0], ROUNDS[1]);
            for round in 0..SETTLE_ROUNDS + rounds {
                if interrupted.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let hand_over = probe.round(pause_us, work_us, other_cores)?;
                if round >= SETTLE_ROUNDS {
                    measured.push(hand_over);
                }
            }
        }
        Ok(())
    };
    let done = measure();
    // Also where the user wants no more.
    probe.threads.stop();
    done
}

/// What lanes do beside the one that is measured.
fn compute_until(is_over: &AtomicBool) {
    yield_to_loop();
    let mut walk = Walk::default();
    while !is_over.load(Ordering::Relaxed) {
        walk.on();
    }
}

/// One lane and its loop.
struct Probe {
    threads: Threads,
    work_us: Arc<AtomicU32>,
    batch: Arc<Batch>,
}

impl Probe {
    fn start(device: Device) -> Result<Probe, MachineError> {
        let lane = Lane {
            name: "probe".into(),
            kind: LaneKind::Compute,
            gpu: GpuId(0),
        };
        let work_us = Arc::new(AtomicU32::new(0));
        let lasting = Lasting {
            device,
            work_us: Arc::clone(&work_us),
            walk: Walk::default(),
        };
        Ok(Probe {
            threads: Threads::start(vec![(lane, Box::new(lasting))], Arc::default())?,
            work_us,
            batch: Arc::new(nobodys()),
        })
    }

    fn round(&mut self, pause_us: u32, work_us: u32, other_cores: OtherCores) -> Result<HandOver, MachineError> {
        let Probe { threads, batch, .. } = self;
        self.work_us.store(work_us, Ordering::Relaxed);
        let alarm = match pause_us {
            0 => None,
            _ => {
                let until = threads.now() + Duration(u64::from(pause_us) * 1_000);
                threads.wait(Some(until))?;
                Some(threads.now().since(until))
            }
        };
        let handed = threads.now();
        threads.issue(Job {
            lane: LaneId(0),
            op: OpRef {
                batch: BatchId { slot: 0, generation: 0 },
                index: 0,
            },
            kind: OpKind::CopyIn(CopyIn {
                layers: Layers::all(0),
                chunks: 0,
                chunk_bytes: 0,
            }),
            batch: Arc::clone(batch),
        })?;
        let ran = threads.wait(None)?.expect("an op is in hand");
        Ok(HandOver {
            pause_us,
            work_us,
            other_cores,
            alarm,
            wake: ran.started.since(handed),
            tell: threads.now().since(ran.ended),
        })
    }
}

/// Does nothing but last.
struct Lasting {
    device: Device,
    work_us: Arc<AtomicU32>,
    walk: Walk,
}

impl Perform for Lasting {
    fn device(&self) -> Device {
        self.device
    }

    fn perform(&mut self, _: &OpKind, _: &Batch) {
        let start = Instant::now();
        let work = HostDuration::from_micros(self.work_us.load(Ordering::Relaxed).into());
        while start.elapsed() < work {
            self.walk.on();
        }
    }
}

/// Through more memory than caches hold.
struct Walk {
    numbers: Vec<u64>,
    at: usize,
}

impl Default for Walk {
    fn default() -> Walk {
        Walk {
            numbers: vec![1; WALKED_BYTES / size_of::<u64>()],
            at: 0,
        }
    }
}

impl Walk {
    /// Some lines on.
    fn on(&mut self) {
        const NUMBERS: usize = 512;
        let next = &mut self.numbers[self.at..self.at + NUMBERS];
        for number in next {
            *number = std::hint::black_box(number.wrapping_mul(3));
        }
        self.at = (self.at + NUMBERS) % self.numbers.len();
    }
}

/// A batch of no requests.
fn nobodys() -> Batch {
    Batch::new(InstanceId(0), BatchShape::NOTHING, Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rhythm_is_measured_beside_idle_and_beside_busy_cores() {
        let measured = hand_overs(Device::Cpu, &AtomicBool::new(false)).unwrap();
        for other_cores in [OtherCores::Idle, OtherCores::Busy] {
            for pause_us in PAUSES_US {
                for work_us in WORKS_US {
                    let of = measured.iter().filter(|hand_over| {
                        (hand_over.pause_us, hand_over.work_us, hand_over.other_cores)
                            == (pause_us, work_us, other_cores)
                    });
                    let of: Vec<&HandOver> = of.collect();
                    assert!(of.len() as u32 >= ROUNDS[0], "{pause_us} {work_us} {other_cores}");
                    assert!(of.iter().all(|hand_over| hand_over.alarm.is_some() == (pause_us > 0)));
                    assert!(of.iter().all(|hand_over| hand_over.wake.0 > 0 && hand_over.tell.0 > 0));
                }
            }
        }
        assert!(hand_overs(Device::Cpu, &AtomicBool::new(true)).unwrap().is_empty());
    }
}
