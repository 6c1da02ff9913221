//! Confidence that is as high as the accuracy: temperature scaling (Guo et al., ICML 2017; Tabi, Eq. 3) for classes,
//! and its counterpart for regression.

use crate::error::CascadeError;

/// Temperatures that a fit may give. Where every answer is right, the likelihood has no maximum: the fit stops at the
/// lower end.
const TEMPERATURES: std::ops::RangeInclusive<f64> = 0.01..=100.0;

/// Newton's steps; each halves the bracket at worst.
const STEPS: u32 = 100;

/// The probabilities that `logits` stand for at a temperature (Tabi, Eq. 2 and 3). Empty for no logits.
pub fn softmax(logits: &[f32], temperature: Temperature) -> Vec<f64> {
    let scaled = |logit: f32| f64::from(logit) / temperature.0;
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut shares: Vec<f64> = logits.iter().map(|&z| libm::exp(scaled(z) - scaled(most))).collect();
    let sum: f64 = shares.iter().sum();
    shares.iter_mut().for_each(|share| *share /= sum);
    shares
}

/// What logits are divided by; 1 leaves them as they are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Temperature(f64);

impl Temperature {
    /// Leaves logits as they are.
    pub const ONE: Temperature = Temperature(1.0);

    /// # Errors
    /// [`CascadeError::Range`] unless positive and finite.
    pub fn new(temperature: f64) -> Result<Temperature, CascadeError> {
        if temperature > 0.0 && temperature.is_finite() {
            return Ok(Temperature(temperature));
        }
        Err(CascadeError::Range {
            what: "temperature",
            must: "above 0",
            got: temperature,
        })
    }

    /// As a number.
    pub fn value(self) -> f64 {
        self.0
    }

    /// Whether it is an end of the range that [`Temperature::fit`] tries, and so not where the likelihood is greatest:
    /// of items that are all answered rightly there is no such place.
    pub fn is_at_an_end(self) -> bool {
        const NEAR: f64 = 1e-6;
        self.0 <= TEMPERATURES.start() * (1.0 + NEAR) || self.0 >= TEMPERATURES.end() * (1.0 - NEAR)
    }

    /// The temperature that minimises the mean negative log-likelihood of the labels, from 0.01 to 100.
    ///
    /// `items` are logits and label. The likelihood is concave in the inverse temperature, so that Newton's method
    /// within a bracket finds its maximum.
    ///
    /// # Errors
    /// Where there are no items, a label is beyond the logits, logits differ in length or are not finite.
    pub fn fit<'a, I>(items: I) -> Result<Temperature, CascadeError>
    where
        I: IntoIterator<Item = (&'a [f32], usize)> + Clone,
    {
        check(items.clone())?;
        let (mut low, mut high) = (1.0 / TEMPERATURES.end(), 1.0 / TEMPERATURES.start());
        let mut inverse = 1.0;
        for _ in 0..STEPS {
            let (slope, curvature) = slope_and_curvature(items.clone(), inverse);
            if slope > 0.0 {
                high = inverse;
            } else {
                low = inverse;
            }
            let step = inverse - slope / curvature;
            let next = if step > low && step < high {
                step
            } else {
                (low + high) / 2.0
            };
            if (next - inverse).abs() <= 1e-12 * inverse {
                break;
            }
            inverse = next;
        }
        Temperature::new(1.0 / inverse)
    }

    /// The confidence in the likeliest class (Eq. 3), and which it is; the first among equals.
    pub fn confidence(self, logits: &[f32]) -> Confident {
        Confident::of(&softmax(logits, self))
    }

    /// The mean negative log-likelihood of the labels, in nats.
    ///
    /// # Errors
    /// As [`Temperature::fit`].
    pub fn loss<'a, I>(self, items: I) -> Result<f64, CascadeError>
    where
        I: IntoIterator<Item = (&'a [f32], usize)> + Clone,
    {
        let count = check(items.clone())?;
        let log = |(logits, label): (&[f32], usize)| -libm::log(softmax(logits, self)[label].max(f64::MIN_POSITIVE));
        Ok(items.into_iter().map(log).sum::<f64>() / count as f64)
    }
}

/// An answer and how sure the model is of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Confident {
    /// The likeliest class.
    pub class: usize,
    /// Its probability.
    pub confidence: f64,
}

impl Confident {
    /// The likeliest of some probabilities; the first among equals.
    pub fn of(shares: &[f64]) -> Confident {
        let mut best = Confident {
            class: 0,
            confidence: 0.0,
        };
        for (class, &confidence) in shares.iter().enumerate() {
            if confidence > best.confidence {
                best = Confident { class, confidence };
            }
        }
        best
    }
}

/// The number of items, once they have been looked at.
pub(crate) fn check<'a>(items: impl IntoIterator<Item = (&'a [f32], usize)>) -> Result<usize, CascadeError> {
    let mut count = 0;
    let mut classes = 0;
    for (item, (logits, label)) in items.into_iter().enumerate() {
        if item == 0 {
            classes = logits.len();
        }
        if logits.len() != classes {
            let got = logits.len();
            return Err(CascadeError::Classes { item, classes, got });
        }
        if label >= classes {
            return Err(CascadeError::Label { item, label, classes });
        }
        if let Some(logit) = logits.iter().find(|logit| !logit.is_finite()) {
            return Err(CascadeError::NotFinite {
                item,
                what: "logit",
                got: f64::from(*logit),
            });
        }
        count += 1;
    }
    if count == 0 {
        return Err(CascadeError::Nothing { what: "calibration" });
    }
    Ok(count)
}

/// Of the negative log-likelihood along the inverse temperature: `Σ E[z] − z_label` and `Σ Var[z]`.
fn slope_and_curvature<'a>(items: impl IntoIterator<Item = (&'a [f32], usize)>, inverse: f64) -> (f64, f64) {
    let temperature = Temperature(1.0 / inverse);
    let (mut slope, mut curvature) = (0.0, 0.0);
    for (logits, label) in items {
        let shares = softmax(logits, temperature);
        let of = |power: fn(f64) -> f64| -> f64 {
            shares.iter().zip(logits).map(|(share, &z)| share * power(f64::from(z))).sum()
        };
        let mean = of(|z| z);
        slope += mean - f64::from(logits[label]);
        curvature += (of(|z| z * z) - mean * mean).max(0.0);
    }
    (slope, curvature)
}

/// What a regression's stated standard deviations are multiplied by: the temperature of a normal distribution, fitted
/// likewise by its negative log-likelihood (after Kuleshov et al., ICML 2018, with one parameter).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread(f64);

impl Spread {
    /// # Errors
    /// [`CascadeError::Range`] unless positive and finite.
    pub fn new(spread: f64) -> Result<Spread, CascadeError> {
        Spread::checked(spread, "spread").map(Spread)
    }

    /// As a number.
    pub fn value(self) -> f64 {
        self.0
    }

    /// The factor that minimises the negative log-likelihood, in closed form: the root mean square of the errors in
    /// stated standard deviations.
    ///
    /// `items` are prediction, stated standard deviation and true value. A model that states none is given 1
    /// throughout.
    ///
    /// # Errors
    /// Where there are no items, a number is not finite, a standard deviation is not positive, or no prediction errs.
    pub fn fit(items: impl IntoIterator<Item = (f64, f64, f64)>) -> Result<Spread, CascadeError> {
        let (mut sum, mut count) = (0.0, 0_u64);
        for (item, (predicted, deviation, truth)) in items.into_iter().enumerate() {
            for (what, got) in [("prediction", predicted), ("true value", truth)] {
                if !got.is_finite() {
                    return Err(CascadeError::NotFinite { item, what, got });
                }
            }
            Spread::checked(deviation, "standard deviation")?;
            let error = (predicted - truth) / deviation;
            sum += error * error;
            count += 1;
        }
        if count == 0 {
            return Err(CascadeError::Nothing { what: "spread" });
        }
        Spread::checked(libm::sqrt(sum / count as f64), "spread").map(Spread)
    }

    fn checked(got: f64, what: &'static str) -> Result<f64, CascadeError> {
        if got > 0.0 && got.is_finite() {
            return Ok(got);
        }
        Err(CascadeError::Range {
            what,
            must: "above 0",
            got,
        })
    }

    /// The probability that the truth lies within `tolerance` of a prediction of this stated standard deviation. A
    /// regression's answer counts as right where it does.
    pub fn confidence(self, deviation: f64, tolerance: f64) -> f64 {
        libm::erf(tolerance / (self.0 * deviation * std::f64::consts::SQRT_2))
    }
}

/// Answers of about the same confidence.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bucket {
    /// How many.
    pub items: u64,
    /// Their mean confidence; 0 where there are none.
    pub confidence: f64,
    /// The share that is right; 0 where there are none.
    pub accuracy: f64,
}

/// Answers in `buckets` of equal width between 0 and 1 (Tabi, Fig. 6). `items` are confidence and whether the answer is
/// right.
///
/// # Errors
/// [`CascadeError::Range`] where a confidence is outside [0, 1] or there are no buckets.
pub fn reliability(items: impl IntoIterator<Item = (f64, bool)>, buckets: usize) -> Result<Vec<Bucket>, CascadeError> {
    if buckets == 0 {
        return Err(CascadeError::Range {
            what: "buckets",
            must: "at least 1",
            got: 0.0,
        });
    }
    let mut sums = vec![Bucket::default(); buckets];
    for (confidence, right) in items {
        if !(0.0..=1.0).contains(&confidence) {
            return Err(CascadeError::Range {
                what: "confidence",
                must: "from 0 to 1",
                got: confidence,
            });
        }
        let bucket = &mut sums[((confidence * buckets as f64) as usize).min(buckets - 1)];
        bucket.items += 1;
        bucket.confidence += confidence;
        bucket.accuracy += f64::from(u8::from(right));
    }
    for bucket in sums.iter_mut().filter(|bucket| bucket.items > 0) {
        bucket.confidence /= bucket.items as f64;
        bucket.accuracy /= bucket.items as f64;
    }
    Ok(sums)
}

/// The mean distance between confidence and accuracy over [`reliability`]'s buckets, by their items (Guo et al., Eq.
/// 3); 0 for no items.
///
/// # Errors
/// As [`reliability`].
pub fn expected_calibration_error(
    items: impl IntoIterator<Item = (f64, bool)>,
    buckets: usize,
) -> Result<f64, CascadeError> {
    let buckets = reliability(items, buckets)?;
    let all: u64 = buckets.iter().map(|bucket| bucket.items).sum();
    let apart = |bucket: &Bucket| bucket.items as f64 * (bucket.confidence - bucket.accuracy).abs();
    Ok(buckets.iter().map(apart).sum::<f64>() / all.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two classes whose log-odds are `gap`, right in `right` of `all` items.
    fn of_one_gap(gap: f32, right: usize, all: usize) -> Vec<([f32; 2], usize)> {
        (0..all).map(|i| ([gap, 0.0], usize::from(i >= right))).collect()
    }

    fn borrowed(items: &[([f32; 2], usize)]) -> impl Iterator<Item = (&[f32], usize)> + Clone {
        items.iter().map(|(logits, label)| (logits.as_slice(), *label))
    }

    #[test]
    fn a_single_gap_has_a_closed_form() {
        // The fitted probability is the share that is right: gap / T = ln(0.8 / 0.2).
        let items = of_one_gap(4.0, 80, 100);
        let fitted = Temperature::fit(borrowed(&items)).unwrap();
        assert!((fitted.value() - 4.0 / libm::log(4.0)).abs() < 1e-9, "{fitted:?}");
        assert!((fitted.confidence(&[4.0, 0.0]).confidence - 0.8).abs() < 1e-9);
    }

    #[test]
    fn the_fit_stops_at_its_ends() {
        let right = of_one_gap(1.0, 10, 10);
        let sure = Temperature::fit(borrowed(&right)).unwrap();
        assert!((sure.value() - 0.01).abs() < 1e-9 && sure.is_at_an_end());
        let wrong = of_one_gap(1.0, 0, 10);
        let unsure = Temperature::fit(borrowed(&wrong)).unwrap();
        assert!((unsure.value() - 100.0).abs() < 1e-6 && unsure.is_at_an_end());
        assert!(!Temperature::fit(borrowed(&of_one_gap(1.0, 8, 10))).unwrap().is_at_an_end());
    }

    #[test]
    fn labels_must_match_the_head() {
        let items: [(&[f32], usize); 2] = [(&[0.0, 1.0], 1), (&[0.0, 1.0], 2)];
        let error = Temperature::fit(items).unwrap_err().to_string();
        assert_eq!(error, "item 1: label: must be below the head's 2 classes, got 2");
        let items: [(&[f32], usize); 2] = [(&[0.0, 1.0], 1), (&[0.0, 1.0, 2.0], 2)];
        let error = Temperature::fit(items).unwrap_err().to_string();
        assert_eq!(error, "item 1: logits: must be 2 as the first item's, got 3");
        let items: [(&[f32], usize); 1] = [(&[0.0, f32::NAN], 1)];
        let error = Temperature::fit(items).unwrap_err().to_string();
        assert_eq!(error, "item 0: logit: must be finite, got NaN");
        assert!(Temperature::fit([]).is_err());
    }

    #[test]
    fn a_regression_s_spread_is_its_root_mean_square_error() {
        let spread = Spread::fit([(1.0, 1.0, 4.0), (2.0, 2.0, -6.0)]).unwrap();
        assert!((spread.value() - libm::sqrt((9.0 + 16.0) / 2.0)).abs() < 1e-12);
        // One standard deviation holds 68.27 %.
        assert!((spread.confidence(2.0, 2.0 * spread.value()) - 0.682_689_5).abs() < 1e-6);
        assert!(Spread::fit([(1.0, 0.0, 4.0)]).is_err());
        assert!(Spread::fit([(1.0, 1.0, 1.0)]).is_err());
    }

    #[test]
    fn calibration_error_is_the_distance_between_confidence_and_accuracy() {
        let items = [(0.95, true), (0.95, false), (0.55, true), (0.55, true)];
        let error = expected_calibration_error(items, 10).unwrap();
        assert!((error - (0.5 * 0.45 + 0.5 * 0.45)).abs() < 1e-12);
        assert_eq!(expected_calibration_error([(1.0, true)], 15), Ok(0.0));
        let error = expected_calibration_error([(1.01, true)], 15).unwrap_err().to_string();
        assert_eq!(error, "confidence: must be from 0 to 1, got 1.01");
    }
}
