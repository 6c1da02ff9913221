//! Who is answered in time, and who counts as late: one rule for all requests together, for tenants, for service
//! classes and for plans.

use tenantry_traces::{Duration, Time};

use crate::command::{Finish, Verdict};

/// What a request is to be answered within: all that is given. `first_token` limits what NVIDIA's AIPerf calls time to
/// first token, and `per_token` its inter-token latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// From arrival to the whole answer.
    pub latency: Option<Duration>,
    /// From arrival to the first token.
    pub first_token: Option<Duration>,
    /// From one token to the next, in the mean from the first to the answer's end. Kept where there is but one.
    pub per_token: Option<Duration>,
}

/// A target that a share of the requests must keep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slo {
    /// What each is to be answered within.
    pub target: Target,
    /// The share, between 0 and 1: 0.98 for `p98`.
    pub quantile: f64,
}

impl Target {
    /// The whole answer within so long.
    pub fn of_latency(latency: Duration) -> Target {
        Target {
            latency: Some(latency),
            ..Target::default()
        }
    }

    /// Whether a request is held to nothing but its whole latency.
    pub fn is_of_latency(&self) -> bool {
        self.first_token.is_none() && self.per_token.is_none()
    }

    /// Whether a request that leaves now has kept it so far. Who leaves without a first token has waited for it until
    /// now; who leaves before its last one may have caught up with the pace.
    #[inline]
    pub fn is_kept(&self, now: Time, finish: &Finish) -> bool {
        self.latency.is_none_or(|limit| now.since(finish.arrival) <= limit)
            && self.first_token.is_none_or(|limit| finish.to_first_token(now) <= limit)
            && self.per_token.is_none_or(|limit| finish.pace(now) <= limit)
    }

    /// The limit that [`taken`](Self::taken) is to be held against: the first that there is, of the whole answer, the
    /// first token, and each further one.
    pub fn limit(&self) -> Option<Duration> {
        self.latency.or(self.first_token).or(self.per_token)
    }

    /// The time of a request that leaves now that is longest in proportion to its limit, in proportion to
    /// [`limit`](Self::limit): the request has kept its target if and only if this is no longer. Of a target for the
    /// whole answer alone, it is the latency.
    pub fn taken(&self, now: Time, finish: &Finish) -> Duration {
        let Some(reference) = self.limit() else {
            return now.since(finish.arrival);
        };
        // Rounded up, so that a nanosecond too much is too much.
        let in_proportion = |limit: Option<Duration>, took: Duration| {
            let Some(limit) = limit else { return Duration::ZERO };
            let scaled = (u128::from(took.0) * u128::from(reference.0)).div_ceil(u128::from(limit.0.max(1)));
            Duration(u64::try_from(scaled).unwrap_or(u64::MAX))
        };
        in_proportion(self.latency, now.since(finish.arrival))
            .max(in_proportion(self.first_token, finish.to_first_token(now)))
            .max(in_proportion(self.per_token, finish.pace(now)))
    }
}

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

    /// One leaves now. Whether it is late.
    #[inline]
    pub fn left(&mut self, now: Time, finish: &Finish, target: Option<&Target>) -> bool {
        self.ended(finish.verdict, target.is_none_or(|target| target.is_kept(now, finish)))
    }

    /// One leaves that has kept its target so far, or has not. Whether it is late.
    #[inline]
    pub fn ended(&mut self, verdict: Verdict, has_time: bool) -> bool {
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

    /// How many were in time or late. Who was left inside when nothing more happened is late; not where the run was
    /// interrupted.
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
    use proptest::prelude::*;
    use tenantry_traces::Request;

    use super::*;
    use crate::command::{FailureReason, RejectReason, Waits};

    const ARRIVAL: Time = Time(1_000_000);

    /// Who came at [`ARRIVAL`].
    fn finish(verdict: Verdict, first_token_ms: Option<u64>, output_tokens: u32) -> Finish {
        let request = Request {
            ticket: 3,
            tenant: 0,
            arrival: ARRIVAL,
            input_tokens: 16,
            output_tokens,
            class: 0,
        };
        Finish {
            verdict,
            output_tokens,
            first_token: first_token_ms.map(|ms| ARRIVAL + Duration::from_millis(ms)),
            waits: Waits::default(),
            ..Finish::rejected(&request, RejectReason::QueueFull)
        }
    }

    fn after(ms: u64) -> Time {
        ARRIVAL + Duration::from_millis(ms)
    }

    fn target(latency: Option<u64>, first_token: Option<u64>, per_token: Option<u64>) -> Target {
        let [latency, first_token, per_token] =
            [latency, first_token, per_token].map(|ms| ms.map(Duration::from_millis));
        Target {
            latency,
            first_token,
            per_token,
        }
    }

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
            all.left(
                after(ms),
                &finish(verdict, None, 0),
                Some(&target(Some(10), None, None)),
            );
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

    /// Eleven tokens: the first after 100 ms, the last 200 ms later, 20 ms each.
    #[test]
    fn a_first_token_and_each_further_one_have_limits_of_their_own() {
        let answered = finish(Verdict::Served, Some(100), 11);
        for (limits, is_kept) in [
            (target(Some(300), Some(100), Some(20)), true),
            (target(Some(299), Some(100), Some(20)), false),
            (target(Some(300), Some(99), Some(20)), false),
            (target(Some(300), Some(100), Some(19)), false),
            (target(None, Some(100), None), true),
            (target(None, None, Some(20)), true),
            (target(None, None, Some(19)), false),
        ] {
            assert_eq!(limits.is_kept(after(300), &answered), is_kept, "{limits:?}");
        }
        let one_token = finish(Verdict::Served, Some(100), 1);
        assert!(target(None, None, Some(1)).is_kept(after(300), &one_token));
        // Who gives up between its tokens might have caught up; before its first token, it has waited for that.
        let between = finish(Verdict::Cancelled, Some(100), 3);
        assert!(target(None, None, Some(1)).is_kept(after(300), &between));
        let given_up = finish(Verdict::Cancelled, None, 0);
        let first = target(None, Some(50), None);
        assert!(first.is_kept(after(50), &given_up) && !first.is_kept(after(51), &given_up));
    }

    proptest! {
        /// What is taken in proportion says the same as the limits one by one; of the latency alone it is the latency.
        #[test]
        fn what_is_taken_is_within_the_limit_where_all_limits_are_kept(
            limits in (proptest::option::of(1_u64..500), proptest::option::of(1_u64..500), proptest::option::of(1_u64..500)),
            first in proptest::option::of(0_u64..400),
            further in 0_u64..400,
            tokens in 0_u32..40,
        ) {
            let limits = target(limits.0, limits.1, limits.2);
            let finish = finish(Verdict::Served, first, tokens);
            let now = after(first.unwrap_or(0) + further);
            let taken = limits.taken(now, &finish);
            match limits.limit() {
                Some(limit) => prop_assert_eq!(taken <= limit, limits.is_kept(now, &finish)),
                None => prop_assert!(limits.is_kept(now, &finish)),
            }
            if limits.is_of_latency() {
                prop_assert_eq!(taken, now.since(ARRIVAL));
            }
        }
    }
}
