//! What a small and a large model make of the same items: confidence, who is right, and how the two go together.

use std::borrow::Cow;

use super::quantiles::{self, Knot};
use crate::outcome::Outcome;

/// Two levels of a cascade. Functions of the confidence are points, rising in the first number and linear between; a
/// constant is one point.
#[derive(Clone, Debug, PartialEq)]
pub struct TwoLevels {
    /// The small model's confidence: probability and value.
    pub confidence: Cow<'static, [Knot]>,
    /// Confidence and the chance that the small model is right; empty where the confidence is calibrated, that is, the
    /// chance itself.
    pub small_right: Cow<'static, [Knot]>,
    /// Confidence and the chance that the large model is right where the small one is.
    pub large_right_if_small_is: Cow<'static, [Knot]>,
    /// As above, where the small one is wrong.
    pub large_right_if_small_is_not: Cow<'static, [Knot]>,
}

// Both are of Tabi (Wang et al., EuroSys 2023), sections 7.3.2 and 7.4: shares of early returns at the cut-offs 0.75,
// 0.85 and 0.95, accuracies of returned and re-routed queries under either model. The shape between these points is
// linear and not the paper's; its dispatcher is read as a step at (1 + c) / 2.

/// Between these confidences the text says how many of the answers of [`SST_2`] and [`MNLI`] lie. Below the first and
/// above the second the points are where this project has put them.
pub const STATED_CONFIDENCES: [f64; 2] = [0.875, 0.975];

/// SST-2. The paper's accuracy of the small model on re-routed queries, 76.2 %, is below what any calibrated confidence
/// of two classes leaves there (83 %), so that it is put lower by a constant.
pub const SST_2: TwoLevels = TwoLevels {
    confidence: Cow::Borrowed(&[
        (0.0, 0.5),
        (0.076, 0.875),
        (0.11, 0.9),
        (0.126, 0.925),
        (0.302, 0.975),
        (1.0, 0.979),
    ]),
    small_right: Cow::Borrowed(&[
        (0.5, 0.387_08),
        (0.975, 0.862_08),
        (0.975_000_001, 0.975),
        (0.979, 0.979),
    ]),
    large_right_if_small_is: Cow::Borrowed(&[(1.0, 0.994_81)]),
    large_right_if_small_is_not: Cow::Borrowed(&[(1.0, 0.655_29)]),
};

/// MNLI, with a calibrated confidence.
pub const MNLI: TwoLevels = TwoLevels {
    confidence: Cow::Borrowed(&[
        (0.0, 0.461),
        (0.406, 0.875),
        (0.48, 0.9),
        (0.506, 0.925),
        (0.84, 0.975),
        (1.0, 0.993),
    ]),
    small_right: Cow::Borrowed(&[]),
    large_right_if_small_is: Cow::Borrowed(&[(1.0, 0.985_77)]),
    large_right_if_small_is_not: Cow::Borrowed(&[(1.0, 0.530_15)]),
};

impl TwoLevels {
    /// The confidence below which a share of `probability` lies.
    pub fn confidence_at(&self, probability: f64) -> f64 {
        quantiles::value_at(&self.confidence, probability)
    }

    /// The chance that the small model is right at `confidence`.
    pub fn small_right(&self, confidence: f64) -> f64 {
        if self.small_right.is_empty() {
            confidence
        } else {
            quantiles::value_at(&self.small_right, confidence)
        }
    }

    /// The chance that the large model is right, given what the small one did.
    pub fn large_right(&self, confidence: f64, small_right: bool) -> f64 {
        let points = if small_right {
            &self.large_right_if_small_is
        } else {
            &self.large_right_if_small_is_not
        };
        quantiles::value_at(points, confidence)
    }
}

/// The correlation of two normal numbers, from 0 to 1, of which both lie below their shares' quantiles in a share
/// `both` of the cases: how far two models, right in shares `one` and `other` of some items, are right about the same
/// ones. 0 where they are so less often than by chance.
///
/// Shares of 0 and 1 say nothing of it, and give 0.
pub fn correlation(both: f64, one: f64, other: f64) -> f64 {
    if [one, other].iter().any(|share| *share <= 0.0 || *share >= 1.0) || both <= one * other {
        return 0.0;
    }
    let (one, other) = (normal_quantile(one), normal_quantile(other));
    rising(|correlation| below_both(one, other, correlation), both, [0.0, 1.0])
}

/// Where `of`, which rises, reaches `value` between two ends.
fn rising(of: impl Fn(f64) -> f64, value: f64, [mut low, mut high]: [f64; 2]) -> f64 {
    for _ in 0..BISECTIONS {
        let middle = f64::midpoint(low, high);
        if of(middle) < value {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// Enough for a dozen digits.
const BISECTIONS: u32 = 45;
/// Steps of the integral over what two normal numbers have in common, from −6 to 6.
const STEPS: u32 = 600;

/// The share of a normal distribution below `x`.
pub(crate) fn normal_below(x: f64) -> f64 {
    0.5 * libm::erfc(-x / std::f64::consts::SQRT_2)
}

fn normal_quantile(share: f64) -> f64 {
    rising(normal_below, share, [-9.0, 9.0])
}

/// The chance that two normal numbers with this correlation lie below `one` and `other`: given what they have in
/// common, each is on its own.
fn below_both(one: f64, other: f64, correlation: f64) -> f64 {
    let (common, own) = (correlation.sqrt(), (1.0 - correlation).sqrt().max(1e-9));
    let width = 12.0 / f64::from(STEPS);
    let at = |step: u32| {
        let z = -6.0 + width * (f64::from(step) + 0.5);
        let density = libm::exp(-0.5 * z * z) / (2.0 * std::f64::consts::PI).sqrt();
        let given = |x: f64| normal_below((x - common * z) / own);
        density * given(one) * given(other) * width
    };
    (0..STEPS).map(at).sum()
}

/// Bins of equally many items, as far as these are not equally sure, for the small model's accuracy, and half as many
/// for the large one's, which has fewer items each.
const BINS: usize = 20;

/// A bin of few items is drawn towards all of them, as if it had so many more.
const PRIOR_ITEMS: f64 = 5.0;

/// Fits two models' outcomes on the same items.
///
/// # Panics
/// If there are no items.
pub fn fit(items: &[[Outcome; 2]]) -> TwoLevels {
    let mut sorted = items.to_vec();
    sorted.sort_by(|a, b| a[0].confidence.total_cmp(&b[0].confidence));
    let confidences: Vec<f64> = sorted.iter().map(|item| f64::from(item[0].confidence)).collect();
    let grid: Vec<f64> = (0..=50).map(|i| f64::from(i) / 50.0).collect();
    let given = |small_right: bool| -> Vec<&[Outcome; 2]> {
        sorted.iter().filter(|item| item[0].correct == small_right).collect()
    };
    TwoLevels {
        confidence: quantiles::fit(&confidences, &grid).into(),
        small_right: chances(&sorted.iter().collect::<Vec<_>>(), 0, BINS).into(),
        large_right_if_small_is: chances(&given(true), 1, BINS / 2).into(),
        large_right_if_small_is_not: chances(&given(false), 1, BINS / 2).into(),
    }
}

/// In bins of rising confidence, the mean confidence and the share of items that `model` gets right. No items are one
/// point at 1.
fn chances(sorted: &[&[Outcome; 2]], model: usize, bins: usize) -> Vec<Knot> {
    let right = |items: &[&[Outcome; 2]]| items.iter().filter(|item| item[model].correct).count() as f64;
    if sorted.is_empty() {
        return vec![(1.0, 1.0)];
    }
    let overall = right(sorted) / sorted.len() as f64;
    let (size, mut rest) = (sorted.len().div_ceil(bins), sorted);
    let mut points: Vec<Knot> = Vec::new();
    while !rest.is_empty() {
        // Those of one confidence are in one bin, however many they are: a function has one value there.
        let highest = rest[size.min(rest.len()) - 1][0].confidence;
        let (items, others) = rest.split_at(rest.partition_point(|item| item[0].confidence <= highest));
        rest = others;
        let count = items.len() as f64;
        let confidence = items.iter().map(|item| f64::from(item[0].confidence)).sum::<f64>() / count;
        points.push((
            confidence,
            (right(items) + PRIOR_ITEMS * overall) / (count + PRIOR_ITEMS),
        ));
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of two normal numbers with a correlation of ρ, both are below their median in 1/4 + asin(ρ) / 2π of the cases.
    #[test]
    fn a_correlation_is_found_again() {
        for expected in [0.0_f64, 0.2, 0.5, 0.9] {
            let both = 0.25 + expected.asin() / (2.0 * std::f64::consts::PI);
            let found = correlation(both, 0.5, 0.5);
            assert!((found - expected).abs() < 1e-3, "{found} instead of {expected}");
        }
        assert_eq!(correlation(0.1, 0.5, 0.5), 0.0, "less than by chance");
        assert_eq!(correlation(0.5, 0.5, 1.0), 0.0);
        assert!(correlation(0.3, 0.3, 0.3) > 0.99);
    }
}
