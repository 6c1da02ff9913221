//! Rates over time: constant, Markov-modulated, ramped, and products of two.

use super::process::{Rates, Segment};
use crate::draw::Draws;
use crate::error::{TraceError, not_negative, positive};
use crate::spec::{MmppState, RampPoint};
use crate::time::{Duration, Time};

const NS_PER_S: f64 = 1e9;

/// One rate for ever.
pub struct Constant {
    segment: Option<Segment>,
}

impl Constant {
    pub fn new(rate_per_s: f64) -> Constant {
        Constant {
            segment: Some(Segment {
                until: Time::MAX,
                rate_per_ns: rate_per_s / NS_PER_S,
                slope: 0.0,
            }),
        }
    }
}

impl Rates for Constant {
    fn next(&mut self) -> Result<Option<Segment>, TraceError> {
        Ok(self.segment.take())
    }
}

/// A rate that jumps between states. Dwell times and states are functions of the number of jumps.
pub struct Mmpp {
    states: Vec<MmppState>,
    draws: Draws,
    jumps: u64,
    state: usize,
    until: Time,
}

impl Mmpp {
    /// `field` names `states` in errors.
    pub fn new(field: &str, states: &[MmppState], draws: Draws) -> Result<Mmpp, TraceError> {
        if states.is_empty() {
            return Err(TraceError::spec(field, "a list of at least one state", "an empty list"));
        }
        for (i, state) in states.iter().enumerate() {
            not_negative(&format!("{field}[{i}].rate_per_s"), state.rate_per_s)?;
            positive(&format!("{field}[{i}].mean_dwell"), state.mean_dwell.as_secs_f64())?;
        }
        if states.iter().all(|state| state.rate_per_s == 0.0) {
            return Err(TraceError::spec(
                field,
                "states of which one has a rate above 0",
                "only zeros",
            ));
        }
        // The embedded chain visits all states alike, so that the time in a state is in proportion to its dwell.
        let total: f64 = states.iter().map(|state| state.mean_dwell.as_secs_f64()).sum();
        let mut left = draws.about(0).unit() * total;
        let first = states.iter().position(|state| {
            left -= state.mean_dwell.as_secs_f64();
            left < 0.0
        });
        Ok(Mmpp {
            states: states.to_vec(),
            draws,
            jumps: 0,
            state: first.unwrap_or(0),
            until: Time::ZERO,
        })
    }
}

impl Rates for Mmpp {
    fn next(&mut self) -> Result<Option<Segment>, TraceError> {
        self.jumps += 1;
        let mut stream = self.draws.about(self.jumps);
        if self.jumps > 1 && self.states.len() > 1 {
            let others = self.states.len() as u64 - 1;
            self.state = (self.state + 1 + stream.below(others) as usize) % self.states.len();
        }
        let MmppState { rate_per_s, mean_dwell } = self.states[self.state];
        // At least a nanosecond, so that time goes on whatever is drawn.
        let dwell_ns = (mean_dwell.0 as f64 * stream.exponential()).max(1.0) as u64;
        self.until = Time(self.until.0.saturating_add(dwell_ns));
        Ok(Some(Segment {
            until: self.until,
            rate_per_ns: rate_per_s / NS_PER_S,
            slope: 0.0,
        }))
    }
}

/// Two states of mean 1 in requests a second, to be multiplied with another rate: bursts of `peak` times the mean.
pub fn bursts(field: &str, peak: f64, share: f64, mean_burst: Duration, draws: Draws) -> Result<Mmpp, TraceError> {
    if !(peak.is_finite() && peak > 1.0) {
        return Err(TraceError::spec(
            &format!("{field}.peak"),
            "a finite number above 1",
            peak,
        ));
    }
    if !(share > 0.0 && peak * share <= 1.0) {
        let must_be = format!("above 0 and at most 1 / peak = {}", 1.0 / peak);
        return Err(TraceError::spec(&format!("{field}.share"), &must_be, share));
    }
    let mean_lull_s = mean_burst.as_secs_f64() * (1.0 - share) / share;
    let Some(mean_lull) = Duration::from_secs_f64(mean_lull_s) else {
        return Err(TraceError::spec(
            &format!("{field}.share"),
            "large enough for lulls below 584 years",
            share,
        ));
    };
    let states = [
        MmppState {
            rate_per_s: peak,
            mean_dwell: mean_burst,
        },
        MmppState {
            rate_per_s: (1.0 - peak * share) / (1.0 - share),
            mean_dwell: mean_lull,
        },
    ];
    Mmpp::new(field, &states, draws)
}

/// A rate that runs linearly from point to point, after silence up to the first.
pub struct Ramp {
    points: Vec<RampPoint>,
    next: usize,
}

impl Ramp {
    /// `field` names `points` in errors.
    pub fn new(field: &str, points: &[RampPoint]) -> Result<Ramp, TraceError> {
        if points.len() < 2 {
            return Err(TraceError::spec(field, "a list of at least two points", points.len()));
        }
        for (i, point) in points.iter().enumerate() {
            not_negative(&format!("{field}[{i}].rate_per_s"), point.rate_per_s)?;
            if i > 0 && point.at <= points[i - 1].at {
                let must_be = format!("later than the point before, {}", points[i - 1].at);
                return Err(TraceError::spec(&format!("{field}[{i}].at"), &must_be, point.at));
            }
        }
        Ok(Ramp {
            points: points.to_vec(),
            next: 0,
        })
    }
}

impl Rates for Ramp {
    fn next(&mut self) -> Result<Option<Segment>, TraceError> {
        let Some(to) = self.points.get(self.next) else {
            return Ok(None);
        };
        let (rate_per_s, slope) = match self.next.checked_sub(1).map(|before| self.points[before]) {
            None => (0.0, 0.0),
            Some(from) => {
                let ns = to.at.since(from.at).0 as f64;
                (from.rate_per_s, (to.rate_per_s - from.rate_per_s) / NS_PER_S / ns)
            }
        };
        self.next += 1;
        Ok(Some(Segment {
            until: to.at,
            rate_per_ns: rate_per_s / NS_PER_S,
            slope,
        }))
    }
}

/// The product of two rates that are constant over each of their segments.
pub struct Product<R, F> {
    rates: R,
    factors: F,
    rate: Option<Segment>,
    factor: Option<Segment>,
    now: Time,
}

impl<R: Rates, F: Rates> Product<R, F> {
    /// `factors` are in requests a second, of which 1 leaves the rate as it is.
    pub fn new(rates: R, factors: F) -> Product<R, F> {
        Product {
            rates,
            factors,
            rate: None,
            factor: None,
            now: Time::ZERO,
        }
    }
}

impl<R: Rates, F: Rates> Rates for Product<R, F> {
    fn next(&mut self) -> Result<Option<Segment>, TraceError> {
        let now = self.now;
        if self.rate.is_none_or(|rate| rate.until <= now) {
            self.rate = self.rates.next()?;
        }
        if self.factor.is_none_or(|factor| factor.until <= now) {
            self.factor = self.factors.next()?;
        }
        let (Some(rate), Some(factor)) = (self.rate, self.factor) else {
            return Ok(None);
        };
        self.now = rate.until.min(factor.until);
        Ok(Some(Segment {
            until: self.now,
            rate_per_ns: rate.rate_per_ns * factor.rate_per_ns * NS_PER_S,
            slope: 0.0,
        }))
    }
}
