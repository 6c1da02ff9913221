//! How long a lane's ops span on the stream of the device that works for it, beside what they take by the host's clock.

use std::collections::VecDeque;
use std::time::Duration;

use tch::Device;
use tenantry_core::topology::{Lane, LaneKind};

use crate::device::{Event, Stream};
use crate::error::ExecutorError;

/// What a lane's ops took in all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneClocks {
    /// The lane's name.
    pub lane: String,
    /// Ops.
    pub ops: u64,
    /// By the host's clock: from taking an op up until the lane could take up the next. An op of which only the last
    /// part is waited for may be over for the host and not for the device.
    pub host: Duration,
    /// By the device's: from the place in the lane's stream before an op to that after it. That is not work alone: a
    /// stream with nothing to do reaches the place before at once, and then waits for what the host is still to issue.
    pub span: Duration,
}

/// Takes both times of one lane's ops.
#[derive(Debug)]
pub(super) struct Clocks {
    on: Device,
    sums: LaneClocks,
    /// The place before the op that is being done.
    before: Option<Event>,
    /// Ops that the device may not have come past, the oldest first.
    open: VecDeque<[Event; 2]>,
    /// Events to be used again.
    spare: Vec<Event>,
}

impl Clocks {
    /// Of a lane that issues to a GPU. Not of one whose ops end in host memory: all of its span would be the host's
    /// time.
    pub fn of(lane: &Lane, on: Device) -> Option<Clocks> {
        let issues = match lane.kind {
            LaneKind::Compute | LaneKind::Copy | LaneKind::Link => true,
            LaneKind::Lookup | LaneKind::Solve | LaneKind::Disk => false,
        };
        (issues && on.is_cuda()).then(|| Clocks::new(&lane.name, on))
    }

    fn new(lane: &str, on: Device) -> Clocks {
        Clocks {
            on,
            sums: LaneClocks {
                lane: lane.to_string(),
                ops: 0,
                host: Duration::ZERO,
                span: Duration::ZERO,
            },
            before: None,
            open: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    /// An op is about to start.
    ///
    /// # Errors
    /// A device that is lost.
    pub fn before(&mut self) -> Result<(), ExecutorError> {
        self.before = Some(self.mark()?);
        Ok(())
    }

    /// It has ended, and took the host so long. Marking the places takes a microsecond or two, which is part of handing
    /// the op over and of telling of its end, and is measured with these
    /// ([`hand_overs`](super::hand_overs::hand_overs)).
    ///
    /// # Errors
    /// A device that is lost.
    pub fn after(&mut self, host: Duration) -> Result<(), ExecutorError> {
        let after = self.mark()?;
        let before = self.before.take().expect("an op begins before it ends");
        self.sums.ops += 1;
        self.sums.host += host;
        self.open.push_back([before, after]);
        Ok(())
    }

    /// Books the ops that the device has come past. Nobody waits for it.
    ///
    /// # Errors
    /// A device that is lost.
    pub fn book(&mut self) -> Result<(), ExecutorError> {
        while let Some([_, after]) = self.open.front()
            && after.is_over()?
        {
            self.close()?;
        }
        Ok(())
    }

    /// Waits for the device, and says what all ops took.
    ///
    /// # Errors
    /// A device that is lost.
    pub fn sums(mut self) -> Result<LaneClocks, ExecutorError> {
        while let Some([_, after]) = self.open.front() {
            after.synchronize()?;
            self.close()?;
        }
        Ok(self.sums)
    }

    fn mark(&mut self) -> Result<Event, ExecutorError> {
        match self.spare.pop() {
            None => Event::now(self.on),
            Some(mut event) => {
                event.record(Stream::current(self.on)?)?;
                Ok(event)
            }
        }
    }

    /// Books the oldest op, which the device has come past.
    fn close(&mut self) -> Result<(), ExecutorError> {
        if let Some([before, after]) = self.open.pop_front() {
            self.sums.span += after.since(&before)?;
            self.spare.extend([before, after]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tenantry_core::ids::GpuId;

    use super::*;

    #[test]
    fn lanes_that_issue_to_a_gpu_are_timed() {
        let timed = |kind, on| {
            let lane = Lane {
                name: "lane".to_owned(),
                kind,
                gpu: GpuId(0),
            };
            Clocks::of(&lane, on).is_some()
        };
        for kind in [LaneKind::Compute, LaneKind::Copy, LaneKind::Link] {
            assert!(timed(kind, Device::Cuda(0)) && !timed(kind, Device::Cpu), "{kind:?}");
        }
        for kind in [LaneKind::Lookup, LaneKind::Solve, LaneKind::Disk] {
            assert!(!timed(kind, Device::Cuda(0)), "{kind:?} ends in host memory");
        }
    }

    #[test]
    fn ops_are_timed_by_both_clocks() {
        let mut clocks = Clocks::new("compute-0", Device::Cpu);
        for _ in 0..3 {
            clocks.before().unwrap();
            std::thread::sleep(Duration::from_millis(2));
            clocks.after(Duration::from_millis(2)).unwrap();
            clocks.book().unwrap();
        }
        assert!(clocks.open.is_empty() && clocks.spare.len() == 2, "{clocks:?}");
        let sums = clocks.sums().unwrap();
        assert_eq!((sums.lane.as_str(), sums.ops), ("compute-0", 3));
        // A CPU's events are instants around those of the host's clock.
        assert!(
            sums.host == Duration::from_millis(6) && sums.span >= sums.host,
            "{sums:?}"
        );
    }
}
