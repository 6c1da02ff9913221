//! Distributions as a few points of their distribution function, linear between them.
//!
//! Real lengths and rates have caps, plateaus and two humps that no textbook family has; some forty points hold them
//! all.

use crate::spec::QuantilePoint;

/// A point of a distribution of whole tokens: the share that is at most so long.
pub type LengthKnot = (f64, u32);

/// A point of a continuous distribution: probability and value.
pub type Knot = (f64, f64);

/// The probabilities at which lengths are kept: every fortieth, and closer together in the tails, where percentiles are
/// read.
pub const LENGTH_PROBABILITIES: [f64; 51] = {
    let mut grid = [0.0; 51];
    let tails = [0.002, 0.005, 0.01, 0.0175];
    let mut i = 0;
    while i < tails.len() {
        grid[i] = tails[i];
        grid[50 - i - 1] = 1.0 - tails[i];
        i += 1;
    }
    while i < 50 - tails.len() {
        grid[i] = (i - tails.len() + 1) as f64 / 43.0;
        i += 1;
    }
    grid[50] = 1.0;
    grid
};

/// The knots of `values` at `probabilities`, exact at each knot. The first one says that nothing is shorter than the
/// shortest.
///
/// # Panics
/// If `values` is empty.
pub fn fit_lengths(values: &[u32], probabilities: &[f64]) -> Vec<LengthKnot> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let count = sorted.len();
    let mut knots = vec![(0.0, sorted[0].saturating_sub(1))];
    for &probability in probabilities {
        let rank = ((probability * count as f64).ceil() as usize).clamp(1, count);
        let value = sorted[rank - 1];
        if value > knots[knots.len() - 1].1 {
            let at_most = sorted.partition_point(|&other| other <= value);
            // Five decimals: what is printed as a constant is what is used.
            knots.push(((at_most as f64 / count as f64 * 1e5).round() / 1e5, value));
        }
    }
    knots
}

/// The knots as [`QuantilePoint`]s. A length stands for what rounds to it, so that the share of at most `tokens` is
/// reached half a token above.
pub fn points(knots: &[LengthKnot]) -> Vec<QuantilePoint> {
    let point = |&(probability, tokens): &LengthKnot| QuantilePoint {
        probability,
        tokens: f64::from(tokens) + 0.5,
    };
    knots.iter().map(point).collect()
}

/// The distribution function at `tokens`, linear between the points.
pub fn probability(points: &[QuantilePoint], tokens: f64) -> f64 {
    let above = points.partition_point(|point| point.tokens <= tokens);
    match (above.checked_sub(1).map(|i| points[i]), points.get(above)) {
        (None, _) => 0.0,
        (_, None) => 1.0,
        (Some(a), Some(b)) => {
            a.probability + (b.probability - a.probability) * (tokens - a.tokens) / (b.tokens - a.tokens)
        }
    }
}

/// The knots of `values` at `probabilities`, to six significant digits: the least value at 0, the largest at 1.
///
/// # Panics
/// If `values` is empty.
pub fn fit(values: &[f64], probabilities: &[f64]) -> Vec<Knot> {
    let last = (values.len() - 1) as f64;
    fit_at(values, probabilities, |probability| probability * last)
}

/// As [`fit`], where each of n values stands for the middle of its nth part of the distribution (Hazen's plotting
/// positions). Few values of a long tail need that: as many as were fitted, taken at the middles again, are those that
/// were fitted, and not all below the largest.
///
/// # Panics
/// If `values` is empty.
pub fn fit_middles(values: &[f64], probabilities: &[f64]) -> Vec<Knot> {
    let count = values.len() as f64;
    fit_at(values, probabilities, |probability| {
        (probability * count - 0.5).clamp(0.0, count - 1.0)
    })
}

/// The knots at the ranks of `probabilities`, from 0 to one less than there are values, linear between two.
fn fit_at(values: &[f64], probabilities: &[f64], rank: impl Fn(f64) -> f64) -> Vec<Knot> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let knot = |&probability: &f64| {
        let rank = rank(probability);
        let below = rank as usize;
        let above = (below + 1).min(sorted.len() - 1);
        let value = sorted[below] + (sorted[above] - sorted[below]) * (rank - below as f64);
        (probability, six_digits(value))
    };
    probabilities.iter().map(knot).collect()
}

fn six_digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().expect("a printed float is a float")
}

/// The value at `probability`, linear between the knots.
pub fn value_at(knots: &[Knot], probability: f64) -> f64 {
    let above = knots.partition_point(|knot| knot.0 <= probability);
    match (above.checked_sub(1).map(|i| knots[i]), knots.get(above)) {
        (None, _) => knots[0].1,
        (Some(last), None) => last.1,
        (Some(a), Some(b)) => a.1 + (b.1 - a.1) * (probability - a.0) / (b.0 - a.0),
    }
}

/// As [`value_at`], where values come as often as they are large: how long that is which a random instant falls into.
/// Quantiles of x are linear between knots, so that the integral of x along them is, and rises as x² does.
pub fn value_by_size_at(knots: &[Knot], probability: f64) -> f64 {
    let mut left = probability * mean(knots);
    for pair in knots.windows(2) {
        let (a, b) = (pair[0], pair[1]);
        let area = (b.0 - a.0) * (a.1 + b.1) / 2.0;
        if left < area {
            return libm::sqrt(a.1 * a.1 + left / area * (b.1 * b.1 - a.1 * a.1));
        }
        left -= area;
    }
    knots[knots.len() - 1].1
}

/// The mean: the integral of the quantile function.
pub fn mean(knots: &[Knot]) -> f64 {
    knots.windows(2).map(|pair| (pair[1].0 - pair[0].0) * (pair[0].1 + pair[1].1) / 2.0).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_grid_rises() {
        assert!(
            LENGTH_PROBABILITIES.windows(2).all(|pair| pair[0] < pair[1]),
            "{LENGTH_PROBABILITIES:?}"
        );
    }

    proptest! {
        #[test]
        fn knots_are_exact(values in proptest::collection::vec(1u32..5000, 1..400)) {
            let knots = fit_lengths(&values, &LENGTH_PROBABILITIES);
            prop_assert_eq!(knots[knots.len() - 1].0, 1.0);
            for pair in knots.windows(2) {
                prop_assert!(pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1);
            }
            for (probability, tokens) in &knots[1..] {
                let share = values.iter().filter(|&value| value <= tokens).count() as f64 / values.len() as f64;
                prop_assert!((share - probability).abs() < 1e-5);
            }
        }

        #[test]
        fn values_at_the_middles_come_back(values in proptest::collection::vec(-1e6f64..1e6, 1..40)) {
            let middle = |rank: usize| (rank as f64 + 0.5) / values.len() as f64;
            let middles: Vec<f64> = (0..values.len()).map(middle).collect();
            let mut sorted = values.clone();
            sorted.sort_unstable_by(f64::total_cmp);
            let knots = fit_middles(&values, &middles);
            for (middle, value) in middles.iter().zip(sorted) {
                prop_assert!((value_at(&knots, *middle) - value).abs() <= 1e-5 * value.abs());
            }
            prop_assert_eq!(fit_middles(&values, &[0.0, 1.0])[1].1, knots[knots.len() - 1].1);
        }

        #[test]
        fn quantiles_rise(values in proptest::collection::vec(-1e6f64..1e6, 2..100), p in 0.0f64..1.0, q in 0.0f64..1.0) {
            let knots = fit(&values, &[0.0, 0.25, 0.5, 0.75, 1.0]);
            let (low, high) = (p.min(q), p.max(q));
            prop_assert!(value_at(&knots, low) <= value_at(&knots, high));
        }
    }
}
