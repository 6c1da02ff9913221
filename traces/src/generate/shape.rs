//! Aggregated rates as a rate over time.

use std::sync::Arc;

use super::process::{Rates, Segment};
use crate::error::{TraceError, positive};
use crate::read::shape::RateShape;
use crate::spec::ShapeSpec;
use crate::time::{Duration, Time};

/// A segment a step, whose rate is in proportion to the step's value.
pub struct ShapedRates {
    shape: Arc<RateShape>,
    step: Duration,
    repeat: bool,
    /// Requests per nanosecond for a value of 1.
    scale: f64,
    next: usize,
    now: Time,
}

impl ShapedRates {
    /// At rates of `shape`, which `spec` names.
    pub fn new(field: &str, spec: &ShapeSpec, shape: Arc<RateShape>, factor: f64) -> Result<ShapedRates, TraceError> {
        let rate_per_s = positive(&format!("{field}.rate_per_s"), spec.rate_per_s)?;
        if spec.step == Some(Duration::ZERO) {
            return Err(TraceError::spec(&format!("{field}.step"), "above 0", "0 s"));
        }
        let mean = shape.values.iter().sum::<f64>() / shape.values.len() as f64;
        Ok(ShapedRates {
            scale: rate_per_s * factor / mean / 1e9,
            step: spec.step.unwrap_or(shape.step),
            repeat: spec.repeat,
            shape,
            next: 0,
            now: Time::ZERO,
        })
    }
}

impl Rates for ShapedRates {
    fn next(&mut self) -> Result<Option<Segment>, TraceError> {
        if self.next == self.shape.values.len() {
            if !self.repeat {
                return Ok(None);
            }
            self.next = 0;
        }
        let value = self.shape.values[self.next];
        self.next += 1;
        self.now = Time(self.now.0.saturating_add(self.step.0));
        Ok(Some(Segment {
            until: self.now,
            rate_per_ns: value * self.scale,
            slope: 0.0,
        }))
    }
}
