//! When the next model is asked (Tabi, section 4.1).

use crate::error::CascadeError;

/// The dispatcher of Eq. 4: always below the cut-off, and above it by a chance that falls with confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reroute {
    cut_off: f64,
    slope: f64,
}

impl Reroute {
    /// The cut-off `c`, from 0 to 1, and the sigmoid's slope `k`, at least 0. The paper never gives its `k`: at 0 every
    /// second answer above the cut-off goes on, and a large one is a step at (1 + c) / 2.
    ///
    /// # Errors
    /// [`CascadeError::Range`] where one is outside its range.
    pub fn new(cut_off: f64, slope: f64) -> Result<Reroute, CascadeError> {
        let range = |what, must, got| Err(CascadeError::Range { what, must, got });
        if !(0.0..=1.0).contains(&cut_off) {
            return range("cut-off", "from 0 to 1", cut_off);
        }
        if !(slope >= 0.0 && slope.is_finite()) {
            return range("slope", "at least 0", slope);
        }
        Ok(Reroute { cut_off, slope })
    }

    /// `c`.
    pub fn cut_off(&self) -> f64 {
        self.cut_off
    }

    /// `k`.
    pub fn slope(&self) -> f64 {
        self.slope
    }

    /// The probability that the next model is asked, given the calibrated confidence.
    pub fn probability(&self, confidence: f64) -> f64 {
        if confidence <= self.cut_off {
            return 1.0;
        }
        let normal = (confidence - self.cut_off) / (1.0 - self.cut_off) - 0.5;
        1.0 / (1.0 + libm::exp(self.slope * normal))
    }

    /// Whether the next model is asked. `coin` is uniform in `[0, 1)`.
    pub fn asks_next(&self, confidence: f64, coin: f64) -> bool {
        coin < self.probability(confidence)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_answers() {
        let reroute = Reroute::new(0.9, 10.0).unwrap();
        assert_eq!(reroute.probability(0.9), 1.0);
        assert!((reroute.probability(0.95) - 0.5).abs() < 1e-12);
        assert!((reroute.probability(1.0) - 1.0 / (1.0 + libm::exp(5.0))).abs() < 1e-12);
        // A large slope is a step half way between the cut-off and 1.
        let step = Reroute::new(0.95, 1e6).unwrap();
        assert_eq!((step.probability(0.974), step.probability(0.976)), (1.0, 0.0));
        // With a cut-off of 1 the large model serves all.
        assert_eq!(Reroute::new(1.0, 10.0).unwrap().probability(1.0), 1.0);
    }

    #[test]
    fn out_of_range_is_refused() {
        assert_eq!(
            Reroute::new(1.2, 1.0).unwrap_err().to_string(),
            "cut-off: must be from 0 to 1, got 1.2"
        );
        assert!(Reroute::new(0.5, f64::NAN).is_err());
    }

    proptest! {
        /// More confidence, or a lower cut-off, never makes the next model likelier to be asked.
        #[test]
        fn falls_with_confidence(c in 0.0..=1.0_f64, k in 0.0..500.0_f64, a in 0.0..=1.0_f64, b in 0.0..=1.0_f64) {
            let reroute = Reroute::new(c, k).unwrap();
            let (low, high) = (a.min(b), a.max(b));
            prop_assert!(reroute.probability(low) >= reroute.probability(high));
            prop_assert!((0.0..=1.0).contains(&reroute.probability(a)));
            let lower = Reroute::new(c * b, k).unwrap();
            prop_assert!(lower.probability(a) <= reroute.probability(a) + 1e-12);
        }
    }
}
