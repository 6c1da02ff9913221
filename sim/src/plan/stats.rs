//! How sure a figure of a run is: batch means, and Student's t.
//!
//! A run's requests, in order of arrival, are cut into equal batches, whose means are nearly independent where a batch
//! is much longer than a busy period (Law and Kelton, *Simulation Modeling and Analysis*, section 9.5.3). Whether they
//! are is checked: while neighbours resemble each other more than chance allows, they are joined. Repeats with other
//! seeds add batches; and they are independent whatever a run's batches are, as where bursts are longer than a batch,
//! so that their own spread has the last word.

use statrs::distribution::{ContinuousCDF, StudentsT};
use statrs::function::beta::beta_reg;

/// Fewer batches than this say too little of their own spread to be joined further.
const BATCHES_MIN: usize = 5;

/// Sums of equal numbers are off by less, relatively.
const ROUNDING: f64 = 1e-12;

/// A mean and its spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Of the batches.
    pub mean: f64,
    /// Standard error of the mean.
    pub error: f64,
    /// Degrees of freedom.
    pub freedom: f64,
}

impl Estimate {
    /// Of some repeats' batches. Nothing where there are none.
    pub fn of(repeats: &[Vec<f64>]) -> Option<Estimate> {
        let batches: Vec<f64> = repeats.iter().flat_map(|batches| independent(batches)).collect();
        let count = batches.len() as f64;
        if batches.is_empty() {
            return None;
        }
        let mean = batches.iter().sum::<f64>() / count;
        let square = batches.iter().map(|batch| (batch - mean) * (batch - mean)).sum::<f64>();
        // Equal batches have no spread, but their sum is rounded.
        let square = if square <= ROUNDING * ROUNDING * count * mean * mean {
            0.0
        } else {
            square
        };
        Some(Estimate {
            mean,
            error: if count > 1.0 {
                (square / (count - 1.0) / count).sqrt()
            } else {
                f64::INFINITY
            },
            freedom: (count - 1.0).max(1.0),
        })
    }

    /// The share of requests that kept a target, by the repeats' own (how many did, of how many): a ratio, since bursts
    /// bring more requests and more misses at once (Law and Kelton, section 9.5.2). Nothing where there are no
    /// requests.
    pub fn of_repeats(repeats: &[(u64, u64)]) -> Option<Estimate> {
        let count = repeats.len() as f64;
        let sum = |of: fn(&(u64, u64)) -> u64| repeats.iter().map(of).sum::<u64>() as f64;
        let (kept, judged) = (sum(|repeat| repeat.0), sum(|repeat| repeat.1));
        if judged == 0.0 {
            return None;
        }
        let mean = kept / judged;
        let residual = |(kept, judged): &(u64, u64)| *kept as f64 - mean * *judged as f64;
        let square: f64 = repeats.iter().map(|repeat| residual(repeat) * residual(repeat)).sum();
        Some(Estimate {
            mean,
            error: if count > 1.0 {
                (square / (count - 1.0) * count).sqrt() / judged
            } else {
                f64::INFINITY
            },
            freedom: (count - 1.0).max(1.0),
        })
    }

    /// How sure it is that the true mean is above `bound`, from 0 to 1: one-sided, by Student's t.
    pub fn above(&self, bound: f64) -> f64 {
        let distance = self.mean - bound;
        if self.error == 0.0 {
            return if distance >= -ROUNDING * bound.abs() { 1.0 } else { 0.0 };
        }
        if self.error.is_infinite() {
            return 0.5;
        }
        student(self.freedom).cdf(distance / self.error)
    }

    /// How sure it is that the true mean is not below `bound`, or that it is.
    pub fn on_the_side(&self, not_below: bool, bound: f64) -> f64 {
        match not_below {
            true => self.above(bound),
            false => 1.0 - self.above(bound),
        }
    }

    /// Half the width of the two-sided interval that holds the true mean with this confidence.
    pub fn half_width(&self, confidence: f64) -> f64 {
        if self.error == 0.0 || self.error.is_infinite() {
            return self.error;
        }
        self.error * student(self.freedom).inverse_cdf(0.5 + confidence / 2.0)
    }
}

/// How sure so many requests can be at most that the true share lies on the side of `share` on which `kept` of `judged`
/// do: the exact binomial test, of independent requests. Those that come in bursts are late together: give the numbers
/// divided by their index of dispersion, which is by how much the variance of such a sum exceeds that of independent
/// ones (Cox and Lewis, *The Statistical Analysis of Series of Events*, section 4.5). Batches and repeats say how much
/// less sure the rest makes it; but where all are alike, as where nothing is late, they would say that nothing is in
/// doubt.
pub fn sure_by_count(kept: f64, judged: f64, share: f64) -> f64 {
    if judged <= 0.0 || share >= 1.0 || share <= 0.0 {
        return 1.0;
    }
    // The binomial distribution by the beta function, which fractions of requests need.
    if kept >= share * judged {
        1.0 - beta_reg(kept, judged - kept + 1.0, share)
    } else {
        beta_reg(kept + 1.0, judged - kept, share)
    }
}

fn student(freedom: f64) -> StudentsT {
    StudentsT::new(0.0, 1.0, freedom).expect("a scale of 1 and at least one degree of freedom")
}

/// The batches, or joined ones where neighbours are correlated.
fn independent(batches: &[f64]) -> Vec<f64> {
    let mut batches = batches.to_vec();
    while batches.len() >= 2 * BATCHES_MIN && is_correlated(&batches) {
        batches = batches.chunks(2).map(|pair| pair.iter().sum::<f64>() / pair.len() as f64).collect();
    }
    batches
}

/// Whether the lag-1 autocorrelation is beyond what chance allows in one case of twenty.
fn is_correlated(batches: &[f64]) -> bool {
    let count = batches.len() as f64;
    let mean = batches.iter().sum::<f64>() / count;
    let square: f64 = batches.iter().map(|batch| (batch - mean) * (batch - mean)).sum();
    let lagged: f64 = batches.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    square > 0.0 && lagged / square > 1.645 / count.sqrt()
}

#[cfg(test)]
mod tests {
    use tenantry_traces::draw::{Draws, Purpose, Stream};

    use super::*;

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-3, "{found} against {expected}");
    }

    #[test]
    fn intervals_are_those_of_the_tables() {
        // Ten values with mean 5.5 and standard deviation 3.0277; t(0.975, 9) = 2.262.
        let shuffled = [3.0, 9.0, 1.0, 7.0, 5.0, 10.0, 2.0, 8.0, 4.0, 6.0];
        let estimate = Estimate::of(&[shuffled.to_vec()]).unwrap();
        close(estimate.mean, 5.5);
        close(estimate.half_width(0.95), 2.262 * 3.02765 / 10_f64.sqrt());
        close(estimate.above(5.5), 0.5);
        close(estimate.above(estimate.mean - 1.833 * estimate.error), 0.95);
    }

    #[test]
    fn few_requests_say_little_however_alike_they_are() {
        // 0.98^50 = 0.364: so often do 50 of 50 keep it where 98 % do in truth.
        close(sure_by_count(50.0, 50.0, 0.98), 1.0 - 0.364);
        close(sure_by_count(200.0, 200.0, 0.98), 1.0 - 0.0176);
        assert!(sure_by_count(60_000.0, 60_000.0, 0.98) > 1.0 - 1e-9);
        // 95 of 100 where 98 were to be expected: P(X ≤ 95) = 0.0508.
        close(sure_by_count(95.0, 100.0, 0.98), 1.0 - 0.0508);
        // Where a thousand tell as much as one: 0.98^27.5 = 0.574.
        close(sure_by_count(27.5, 27.5, 0.98), 1.0 - 0.574);
        assert_eq!(
            (sure_by_count(0.0, 0.0, 0.98), sure_by_count(5.0, 5.0, 0.0)),
            (1.0, 1.0)
        );
    }

    #[test]
    fn repeats_with_more_requests_weigh_more() {
        // 900 of 1,000, 2,700 of 3,000 and 1,700 of 2,000: 5,300 of 6,000, off by 16.7, 50 and -66.7 requests.
        let estimate = Estimate::of_repeats(&[(900, 1000), (2700, 3000), (1700, 2000)]).unwrap();
        close(estimate.mean, 5300.0 / 6000.0);
        let square: f64 = 16.667_f64.powi(2) + 50.0_f64.powi(2) + 66.667_f64.powi(2);
        close(estimate.error, (square / 2.0 / 3.0).sqrt() / 2000.0);
        assert_eq!(estimate.freedom, 2.0);
        assert_eq!(Estimate::of_repeats(&[(98, 100)]).unwrap().above(0.5), 0.5);
        assert_eq!(Estimate::of_repeats(&[(0, 0)]), None);
    }

    #[test]
    fn no_spread_is_no_doubt_and_one_batch_is_no_knowledge() {
        let same = Estimate::of(&[vec![0.98; 20]]).unwrap();
        assert_eq!((same.above(0.98), same.above(0.99)), (1.0, 0.0));
        assert_eq!(Estimate::of(&[vec![0.98]]).unwrap().above(0.5), 0.5);
        assert_eq!(Estimate::of(&[]), None);
    }

    /// A first-order autoregressive series.
    fn series(stream: &mut Stream, memory: f64) -> Vec<f64> {
        let mut value = stream.normal() / (1.0 - memory * memory).sqrt();
        let mut next = || {
            value = memory * value + stream.normal();
            value
        };
        (0..20).map(|_| next()).collect()
    }

    #[test]
    fn intervals_hold_the_mean_as_often_as_they_say() {
        let mut stream = Draws::new(7, Purpose::Arrival).about(0);
        for (memory, at_least) in [(0.0, 0.93), (0.3, 0.85)] {
            let mut held = 0;
            for _ in 0..2000 {
                let estimate = Estimate::of(&[series(&mut stream, memory), series(&mut stream, memory)]).unwrap();
                held += u32::from(estimate.mean.abs() <= estimate.half_width(0.95));
            }
            let share = f64::from(held) / 2000.0;
            assert!(share >= at_least, "memory {memory}: {share}");
        }
    }
}
