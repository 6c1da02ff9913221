//! Who is answered in time, and who counts as late: one rule for all requests together, for tenants, for service classes and for plans.

use tenantry_traces::Duration;

use crate::command::Verdict;

/// Requests by whether they were answered within a target; without one everybody has time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InTime {
    came: u64,
    /// Answered within the target.
    in_time: u64,
    /// Answered later, refused, failed, or given up and not let go of before the target had passed.
    late: u64,
    /// Given up, and gone before: what would have come of them is not known.
    unknown: u64,
}

impl InTime {
    /// One comes.
    #[inline]
    pub fn came(&mut self) {
        self.came += 1;
    }

    /// One leaves, so long after it came. Whether it is late.
    #[inline]
    pub fn left(&mut self, verdict: Verdict, latency: Duration, target: Option<Duration>) -> bool {
        let has_time = target.is_none_or(|target| latency <= target);
        match verdict {
            Verdict::Served if has_time => self.in_time += 1,
            Verdict::Cancelled if has_time => self.unknown += 1,
            Verdict::Served | Verdict::Cancelled | Verdict::Rejected(_) | Verdict::Failed(_) => {
                self.late += 1;
                return true;
            }
        }
        false
    }

    /// How many were answered within the target.
    pub fn in_time(&self) -> u64 {
        self.in_time
    }

    /// How many were in time or late. Who was left inside when nothing more happened is late; not where the run was interrupted.
    pub fn judged(&self, interrupted: bool) -> u64 {
        match interrupted {
            true => self.in_time + self.late,
            false => self.came - self.unknown,
        }
    }

    /// Which share of these was in time; nothing where there are none.
    pub fn share(&self, interrupted: bool) -> Option<f64> {
        let judged = self.judged(interrupted);
        (judged > 0).then(|| self.in_time as f64 / judged as f64)
    }
}

#[cfg(test)]
mod tests {
    use crate::command::{FailureReason, RejectReason};

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
        assert_eq!((all.share(true), all.share(false)), (Some(0.2), Some(1.0 / 7.0)));
        assert_eq!(InTime::default().share(false), None);
    }
}
