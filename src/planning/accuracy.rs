//! How often a system that is judged is right, and how sure that is.

use std::ops::Add;

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal};
use tenantry_core::RunRecord;

/// Answers that were judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answers {
    right: u64,
    judged: u64,
}

impl Answers {
    /// Of a run.
    pub fn of(record: &RunRecord) -> Answers {
        let counts = record.cascade.as_ref();
        let sum = |counts: &[u64]| counts.iter().sum();
        Answers {
            right: counts.map_or(0, |cascade| sum(&cascade.right)),
            judged: counts.map_or(0, |cascade| sum(&cascade.judged)),
        }
    }

    /// Which share of them is right; nothing where none was judged.
    pub fn share(self) -> Option<f64> {
        (self.judged > 0).then(|| self.right as f64 / self.judged as f64)
    }

    /// Whether at least this share of them is right; not where none was judged.
    pub fn are_enough(self, least: f64) -> bool {
        self.share().is_some_and(|share| share >= least)
    }

    /// How sure it is that the true share lies on the same side of `least`, from one half to 1: the score test of a
    /// proportion. Queries are independent of each other, whatever the load: each is right or not by itself.
    pub fn sure(self, least: f64) -> f64 {
        let Some(share) = self.share() else { return 1.0 };
        let error = (least * (1.0 - least) / self.judged as f64).sqrt();
        if error == 0.0 {
            return 1.0;
        }
        Normal::standard().cdf((share - least).abs() / error)
    }
}

impl Add for Answers {
    type Output = Answers;

    fn add(self, other: Answers) -> Answers {
        Answers {
            right: self.right + other.right,
            judged: self.judged + other.judged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_answers_are_surer_and_the_border_is_even() {
        let of = |right, judged| Answers { right, judged };
        assert_eq!(of(90, 100).sure(0.9), 0.5);
        // 920 of 1,000 against 0.9: z = 0.02 / sqrt(0.9 * 0.1 / 1000) = 2.108.
        assert!((of(920, 1000).sure(0.9) - 0.98249).abs() < 1e-4);
        assert!(of(9200, 10_000).sure(0.9) > of(920, 1000).sure(0.9));
        assert_eq!(of(880, 1000).sure(0.9), of(920, 1000).sure(0.9));
        assert_eq!((of(0, 0).share(), of(0, 0).sure(0.9)), (None, 1.0));
        assert_eq!((of(7, 8) + of(1, 2)).share(), Some(0.8));
    }
}
