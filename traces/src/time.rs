//! Integer time. Floating-point seconds appear only where people read or write them.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

/// An instant, in nanoseconds since the start of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);

/// A length of time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Duration(pub u64);

impl Time {
    /// The start of a run.
    pub const ZERO: Time = Time(0);
    /// Later than anything that happens in a run.
    pub const MAX: Time = Time(u64::MAX);
    /// Nothing arrives then or later: after 292 years, half of what a time holds, so that what becomes of a request is
    /// within the other half.
    pub const ARRIVALS_END: Time = Time(1 << 63);

    /// The time since `earlier`. Time never runs back, so an `earlier` that is later is a broken invariant.
    ///
    /// # Panics
    /// If `earlier` is later than `self`.
    #[inline]
    #[track_caller]
    pub fn since(self, earlier: Time) -> Duration {
        Duration(self.0.checked_sub(earlier.0).expect("time runs forward"))
    }

    /// Seconds since the start, for people.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Duration {
    /// No time at all.
    pub const ZERO: Duration = Duration(0);

    /// From whole microseconds.
    pub const fn from_micros(us: u64) -> Duration {
        Duration(us * 1_000)
    }

    /// From whole milliseconds.
    pub const fn from_millis(ms: u64) -> Duration {
        Duration(ms * 1_000_000)
    }

    /// From whole seconds.
    pub const fn from_secs(s: u64) -> Duration {
        Duration(s * 1_000_000_000)
    }

    /// From seconds, rounded to the nearest nanosecond. `None` where that is negative, not finite or beyond 2^64 ns.
    pub fn from_secs_f64(seconds: f64) -> Option<Duration> {
        let ns = (seconds * 1e9).round();
        (ns >= 0.0 && ns < u64::MAX as f64).then_some(Duration(ns as u64))
    }

    /// Seconds, for people.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Milliseconds, for people.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    #[inline]
    #[track_caller]
    fn add(self, rhs: Duration) -> Time {
        Time(self.0.checked_add(rhs.0).expect("time within 584 years"))
    }
}

impl AddAssign<Duration> for Time {
    #[inline]
    #[track_caller]
    fn add_assign(&mut self, rhs: Duration) {
        *self = *self + rhs;
    }
}

impl Add for Duration {
    type Output = Duration;
    #[inline]
    #[track_caller]
    fn add(self, rhs: Duration) -> Duration {
        Duration(self.0.checked_add(rhs.0).expect("duration within 584 years"))
    }
}

impl AddAssign for Duration {
    #[inline]
    #[track_caller]
    fn add_assign(&mut self, rhs: Duration) {
        *self = *self + rhs;
    }
}

impl Sub for Duration {
    type Output = Duration;
    #[inline]
    #[track_caller]
    fn sub(self, rhs: Duration) -> Duration {
        Duration(self.0.checked_sub(rhs.0).expect("durations are not negative"))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6} s", self.as_secs_f64())
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ns if ns < 1_000 => write!(f, "{ns} ns"),
            ns if ns < 1_000_000 => write!(f, "{:.1} µs", ns as f64 / 1e3),
            ns if ns < 1_000_000_000 => write!(f, "{:.2} ms", ns as f64 / 1e6),
            ns => write!(f, "{:.3} s", ns as f64 / 1e9),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_round_to_nanoseconds() {
        assert_eq!(Duration::from_secs_f64(1.5e-9), Some(Duration(2)));
        assert_eq!(Duration::from_secs_f64(0.25), Some(Duration::from_millis(250)));
        assert_eq!(Duration::from_secs_f64(-1.0), None);
        assert_eq!(Duration::from_secs_f64(f64::NAN), None);
        assert_eq!(Duration::from_secs_f64(1e300), None);
    }

    #[test]
    #[should_panic(expected = "time runs forward")]
    fn time_does_not_run_back() {
        let _ = Time(1).since(Time(2));
    }
}
