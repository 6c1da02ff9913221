//! Who is answered in time, and who counts as late: one rule for the tenants, for the service classes and (`slo_attainment`) for all together,
//! which is a plan's, too.

use tenantry_core::command::Verdict;
use tenantry_traces::Duration;

/// Of requests that arrived after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InTime {
    came: u32,
    /// Answered within the target.
    in_time: u32,
    /// Answered later, refused, failed, or given up after the target had passed.
    late: u32,
    /// Given up before: what would have come of them is not known.
    unknown: u32,
}

impl InTime {
    pub fn came(&mut self) {
        self.came += 1;
    }

    /// One leaves; without a target everybody has time.
    pub fn left(&mut self, verdict: Verdict, latency: Duration, target: Option<Duration>) {
        let has_time = target.is_none_or(|target| latency <= target);
        let count = match verdict {
            Verdict::Served if has_time => &mut self.in_time,
            Verdict::Cancelled if has_time => &mut self.unknown,
            Verdict::Served | Verdict::Cancelled | Verdict::Rejected(_) | Verdict::Failed(_) => &mut self.late,
        };
        *count += 1;
    }

    pub fn in_time(&self) -> u32 {
        self.in_time
    }

    /// How many were in time or late. Who was left inside when nothing more happened is late; not where the user ended it.
    pub fn judged(&self, interrupted: bool) -> u32 {
        match interrupted {
            true => self.in_time + self.late,
            false => self.came - self.unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use tenantry_core::command::{FailureReason, RejectReason};

    use super::*;

    #[test]
    fn whoever_waits_beyond_the_target_is_late_however_it_ends() {
        let mut all = InTime::default();
        (0..8).for_each(|_| all.came());
        let ends = [
            (Verdict::Served, 10),
            (Verdict::Served, 11),
            (Verdict::Rejected(RejectReason::QueueFull), 0),
            (Verdict::Failed(FailureReason::OutOfMemory), 5),
            (Verdict::Cancelled, 9),
            (Verdict::Cancelled, 11),
        ];
        for (verdict, ms) in ends {
            all.left(verdict, Duration::from_millis(ms), Some(Duration::from_millis(10)));
        }
        assert_eq!(
            (all.in_time(), all.judged(true)),
            (1, 5),
            "who gave up before the target tells nothing"
        );
        assert_eq!(all.judged(false), 7, "two are inside for ever");
    }
}
