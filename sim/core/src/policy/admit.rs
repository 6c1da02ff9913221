//! Which requests are let in.

use tenantry_traces::{Duration, Request, Time};

use crate::command::RejectReason;
use crate::spec::AdmitSpec;

/// Lets a request in or turns it away.
pub trait Admit: Send {
    /// Asked once for each request that could be served, in the order in which they come; `waiting` counts those that
    /// wait anywhere in the system.
    ///
    /// # Errors
    /// Why it is turned away.
    fn admit(&mut self, now: Time, request: &Request, waiting: u32) -> Result<(), RejectReason>;
}

struct Open;

impl Admit for Open {
    fn admit(&mut self, _: Time, _: &Request, _: u32) -> Result<(), RejectReason> {
        Ok(())
    }
}

struct BoundedQueue {
    max_waiting: u32,
}

impl Admit for BoundedQueue {
    fn admit(&mut self, _: Time, _: &Request, waiting: u32) -> Result<(), RejectReason> {
        if waiting < self.max_waiting {
            Ok(())
        } else {
            Err(RejectReason::QueueFull)
        }
    }
}

/// Each tenant has a bucket of tokens, which a request takes one of and time fills again: the virtual scheduling of the
/// generic cell rate algorithm (ITU-T I.371), which keeps one time of a bucket.
struct RateLimit {
    period: Duration,
    /// How long before the bucket is full again a request may still come.
    tolerance_ns: u128,
    /// By tenant, as far as any has come: when its bucket is full again, in nanoseconds, of which a large burst at a
    /// low rate takes more than a [`Time`] has.
    full_at: Vec<u128>,
}

impl Admit for RateLimit {
    fn admit(&mut self, now: Time, request: &Request, _: u32) -> Result<(), RejectReason> {
        let tenant = request.tenant as usize;
        if tenant >= self.full_at.len() {
            self.full_at.resize(tenant + 1, 0);
        }
        let (now, full_at) = (u128::from(now.0), &mut self.full_at[tenant]);
        if full_at.saturating_sub(now) > self.tolerance_ns {
            return Err(RejectReason::RateLimited);
        }
        *full_at = now.max(*full_at) + u128::from(self.period.0);
        Ok(())
    }
}

/// The policy that a spec names.
pub fn build(spec: &AdmitSpec) -> Box<dyn Admit> {
    match *spec {
        AdmitSpec::Open => Box::new(Open),
        AdmitSpec::BoundedQueue { max_waiting } => Box::new(BoundedQueue { max_waiting }),
        AdmitSpec::RateLimit { period, burst } => Box::new(RateLimit {
            period,
            tolerance_ns: u128::from(period.0) * u128::from(burst.saturating_sub(1)),
            full_at: Vec::new(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PERIOD: Duration = Duration::from_millis(100);

    fn limit(burst: u32) -> Box<dyn Admit> {
        build(&AdmitSpec::RateLimit { period: PERIOD, burst })
    }

    fn of(tenant: u32) -> Request {
        Request {
            ticket: 0,
            tenant,
            arrival: Time::ZERO,
            input_tokens: 1,
            output_tokens: 0,
            class: 0,
        }
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn a_burst_is_let_in_and_then_one_a_period() {
        let mut limit = limit(3);
        let let_in = |limit: &mut Box<dyn Admit>, ms| limit.admit(at(ms), &of(7), 0);
        assert_eq!([0; 3].map(|ms| let_in(&mut limit, ms)), [Ok(()); 3]);
        let refused = Err(RejectReason::RateLimited);
        assert_eq!(
            [0, 99, 100, 101, 200].map(|ms| let_in(&mut limit, ms)),
            [refused, refused, Ok(()), refused, Ok(())]
        );
        // The bucket is full again, and never fuller.
        assert_eq!([9_000; 3].map(|ms| let_in(&mut limit, ms)), [Ok(()); 3]);
        assert_eq!(let_in(&mut limit, 9_000), refused);
    }

    /// A rate so low that no second request is ever let in after the burst.
    #[test]
    fn a_period_beyond_any_clock_is_one_too() {
        let mut limit = build(&AdmitSpec::RateLimit {
            period: Duration(u64::MAX),
            burst: 3,
        });
        let let_in = (0..9).filter(|_| limit.admit(at(0), &of(0), 0).is_ok()).count();
        assert_eq!(let_in, 3);
    }

    proptest! {
        /// As a bucket counts that holds tokens: those who were turned away took none, and tenants have nothing to do
        /// with each other.
        #[test]
        fn each_tenant_has_a_bucket_of_its_own(
            burst in 1u32..6,
            mut requests in proptest::collection::vec((0u64..3_000, 0u32..4), 0..120),
        ) {
            requests.sort_unstable();
            let mut limit = limit(burst);
            // In tokens times the period's milliseconds.
            let full = u64::from(burst) * 100;
            let mut buckets = [(0, full); 4];
            for (ms, tenant) in requests {
                let (since, tokens) = &mut buckets[tenant as usize];
                *tokens = (*tokens + ms - *since).min(full);
                *since = ms;
                let lets_in = *tokens >= 100;
                *tokens -= if lets_in { 100 } else { 0 };
                prop_assert_eq!(limit.admit(at(ms), &of(tenant), 0).is_ok(), lets_in);
            }
        }
    }
}
