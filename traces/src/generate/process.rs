//! Arrivals as a renewal process run on a clock that the rate drives.
//!
//! Poisson, constant, gamma, Markov-modulated, ramped, counted and fitted arrivals are all one thing: gaps of mean 1,
//! drawn alike, laid end to end in *operational time*, whose speed is the current rate (time-rescaling: Daley and
//! Vere-Jones, "An Introduction to the Theory of Point Processes", vol. I, section 7.4). With exponential gaps that is
//! exactly the Poisson process of that rate. So a kind of arrivals is a choice of [`Gaps`] and of [`Rates`].

use super::arrival::Arrival;
use crate::draw::{Draws, Stream};
use crate::error::TraceError;
use crate::time::Time;

/// A stretch of time over which the rate is linear. It begins where the one before ended.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Where it ends.
    pub until: Time,
    /// At its beginning, in requests per nanosecond.
    pub rate_per_ns: f64,
    /// By how much the rate grows in a nanosecond.
    pub slope: f64,
}

/// A rate over time, segment by segment.
pub trait Rates: Send {
    /// The next segment; `None` where there are no more arrivals.
    fn next(&mut self) -> Result<Option<Segment>, TraceError>;
}

/// Gaps of mean 1 in operational time, each a pure function of its index.
#[derive(Clone, Copy, Debug)]
pub enum Gaps {
    Even,
    Exponential(Draws),
    Gamma { draws: Draws, shape: f64 },
}

impl Gaps {
    #[inline(always)]
    fn of(&self, index: u64) -> f64 {
        match self {
            // Half a gap before the first: so that counts per second come out exactly, none on the border of two
            // seconds.
            Gaps::Even => {
                if index == 0 {
                    0.5
                } else {
                    1.0
                }
            }
            // What is left of an exponential gap is as long as a whole one.
            Gaps::Exponential(draws) => draws.about(index).exponential(),
            Gaps::Gamma { draws, shape } if index == 0 => Gaps::left_of_gamma(draws.about(0), *shape),
            Gaps::Gamma { draws, shape } => draws.about(index).gamma(*shape) / shape,
        }
    }

    /// What is left of a gamma gap at a moment that knows nothing of it, so that the rate is the same from the start
    /// on: a random part of a gap that is met the more often the longer it is (Cox, "Renewal Theory", section 5.2),
    /// which is one more of shape.
    #[cold]
    fn left_of_gamma(mut stream: Stream, shape: f64) -> f64 {
        stream.unit() * stream.gamma(shape + 1.0) / shape
    }
}

/// Steps of a rate that may go by without a request: a year of seconds. They take some seconds to look through, and who
/// asks for less waits for ever.
pub const MOST_STEPS: u64 = 30_000_000;

/// What is said of arrivals that have had none in so many.
#[cold]
pub fn too_seldom() -> TraceError {
    let must_be = format!("more frequent than a request in {MOST_STEPS} steps of their rate");
    TraceError::spec("workload.arrivals", &must_be, "none in as many")
}

/// The whole part of so many nanoseconds, and the rest.
#[cold]
fn beyond(ns: f64) -> (u64, f64) {
    let whole = ns as u64;
    (whole, ns - whole as f64)
}

/// The arrivals of `gaps` under `rates`.
pub struct Process<R> {
    rates: R,
    gaps: Gaps,
    /// What comes at this time or later is not asked for.
    end: Time,
    index: u64,
    segment: Segment,
    /// At the beginning of the segment: a product is quicker than a quotient.
    ns_per_request: f64,
    segment_start: Time,
    /// The last arrival is at `now` plus `fraction` nanoseconds: the fraction is kept, so that rounding does not add
    /// up.
    now: Time,
    fraction: f64,
}

impl<R: Rates> Process<R> {
    pub fn new(rates: R, gaps: Gaps, end: Time) -> Process<R> {
        Process {
            rates,
            gaps,
            end,
            index: 0,
            // Before the first segment: an empty one.
            segment: Segment {
                until: Time::ZERO,
                rate_per_ns: 0.0,
                slope: 0.0,
            },
            ns_per_request: f64::INFINITY,
            segment_start: Time::ZERO,
            now: Time::ZERO,
            fraction: 0.0,
        }
    }

    /// Always inlined, as are the other steps from here to a request: each is a few instructions, and a call with what
    /// it returns through memory as many again.
    #[inline(always)]
    fn advance(&mut self) -> Result<Option<Time>, TraceError> {
        let mut gap = self.gaps.of(self.index);
        self.index += 1;
        let mut steps = 0;
        loop {
            let Segment { until, slope, .. } = self.segment;
            let left_ns = (until.0 - self.now.0) as f64 - self.fraction;
            let (rate, step_ns) = if slope == 0.0 {
                (self.segment.rate_per_ns, gap * self.ns_per_request)
            } else {
                let elapsed_ns = (self.now.0 - self.segment_start.0) as f64 + self.fraction;
                let rate = (self.segment.rate_per_ns + slope * elapsed_ns).max(0.0);
                // The root of rate·t + slope·t²/2 = gap that is stable for small slopes; NaN where the rate falls to 0
                // first.
                (rate, 2.0 * gap / (rate + (rate * rate + 2.0 * slope * gap).sqrt()))
            };
            // False for NaN and for infinity, that is, where the segment does not hold the gap.
            if step_ns < left_ns {
                let ns = self.fraction + step_ns;
                // Below 2^63, which are centuries, a signed number is the quicker to convert.
                let (whole, fraction) = match ns as i64 {
                    i64::MIN..0 | i64::MAX => beyond(ns),
                    whole => (whole as u64, ns - whole as f64),
                };
                self.fraction = fraction;
                self.now = Time(self.now.0 + whole);
                return Ok(Some(Time(self.now.0 + u64::from(self.fraction >= 0.5))));
            }
            gap = (gap - (rate + 0.5 * slope * left_ns) * left_ns).max(0.0);
            self.now = until;
            self.fraction = 0.0;
            self.segment_start = until;
            if until >= self.end {
                return Ok(None);
            }
            steps += 1;
            if steps > MOST_STEPS {
                return Err(too_seldom());
            }
            match self.rates.next()? {
                Some(segment) => {
                    self.segment = segment;
                    self.ns_per_request = segment.rate_per_ns.recip();
                }
                None => return Ok(None),
            }
        }
    }
}

impl<R: Rates> Iterator for Process<R> {
    type Item = Result<Arrival, TraceError>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        self.advance().map(|at| at.map(Arrival::at)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::super::rates::Constant;
    use super::*;
    use crate::draw::Purpose;

    /// Nothing in each second but one.
    struct Silence {
        seconds: u64,
        until_s: u64,
    }

    impl Rates for Silence {
        fn next(&mut self) -> Result<Option<Segment>, TraceError> {
            self.seconds += 1;
            Ok(Some(Segment {
                until: Time(self.seconds * 1_000_000_000),
                rate_per_ns: if self.seconds == self.until_s { 1.0 } else { 0.0 },
                slope: 0.0,
            }))
        }
    }

    /// From the first instant on, as if they had gone on for ever before: neither a surplus nor a lack.
    #[test]
    fn gamma_gaps_begin_at_any_moment() {
        for cv in [4.0, 0.2] {
            let in_window = |seed| {
                let gaps = Gaps::Gamma {
                    draws: Draws::new(seed, Purpose::Arrival),
                    shape: 1.0 / (cv * cv),
                };
                // A millisecond of a hundred a second.
                Process::new(Constant::new(100.0), gaps, Time::MAX)
                    .take_while(|arrival| arrival.as_ref().unwrap().at.0 < 1_000_000)
                    .count() as f64
            };
            let counts: Vec<f64> = (0..40_000).map(in_window).collect();
            let seeds = counts.len() as f64;
            let mean = counts.iter().sum::<f64>() / seeds;
            let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / seeds;
            assert!((mean - 0.1).abs() < 4.0 * (variance / seeds).sqrt(), "cv {cv}: {mean}");
        }
    }

    #[test]
    fn a_year_of_silence_is_waited_for_and_no_more() {
        let first = |until_s| {
            let gaps = Gaps::Exponential(Draws::new(7, Purpose::Arrival));
            Process::new(Silence { seconds: 0, until_s }, gaps, Time::MAX).next().unwrap()
        };
        assert_eq!(first(MOST_STEPS).unwrap().at.0 / 1_000_000_000, MOST_STEPS - 1);
        let error = first(MOST_STEPS + 1).unwrap_err().to_string();
        assert_eq!(
            error,
            "workload.arrivals: must be more frequent than a request in 30000000 steps of their rate, got none in as \
             many"
        );
    }
}
