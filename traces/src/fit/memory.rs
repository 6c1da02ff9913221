//! Over what time a level is forgotten, from counts that follow it.
//!
//! Two things make the counts' own autocorrelation less than that of the Gaussian that the generator draws levels from:
//! counts are Poisson about their level, and a level is a quantile of a distribution that is not normal. The first is
//! taken off; the second is undone as Cario and Nelson do (section 3), who look for the correlation of the Gaussian
//! that gives the levels the one that is wanted.

use super::quantiles::{self, Knot};

/// The time constant of the Gaussian behind levels whose distribution is `rates`. `runs` are requests a second over
/// steps of `step_s`, of which neighbours are neighbours in time; the autocorrelation is matched at `lag` steps.
pub fn memory_s(runs: &[&[f64]], rates: &[Knot], step_s: usize, lag: usize) -> f64 {
    let levels = || runs.iter().copied().flatten();
    let count = levels().count() as f64;
    let mean = levels().sum::<f64>() / count;
    let variance = levels().map(|level| (level - mean) * (level - mean)).sum::<f64>() / count;
    let pairs = || runs.iter().flat_map(|run| run.iter().zip(run.iter().skip(lag)));
    let covariance = pairs().map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>() / pairs().count().max(1) as f64;
    let of_levels = variance - mean / step_s as f64;
    let correlation = if of_levels > 0.0 { covariance / of_levels } else { 0.0 };
    let gaussian = gaussian_correlation(rates, correlation).clamp(0.01, 0.9999);
    (-((lag * step_s) as f64) / libm::log(gaussian)).round()
}

/// What two standard normal variables must be correlated by so that their quantiles of `rates` are by `correlation`.
fn gaussian_correlation(rates: &[Knot], correlation: f64) -> f64 {
    let powers = hermite_powers(rates);
    let whole: f64 = powers.iter().sum();
    let of = |gaussian: f64| powers.iter().rev().fold(0.0, |sum, power| (sum + power) * gaussian) / whole;
    let (mut below, mut above) = (0.0, 1.0);
    for _ in 0..50 {
        let middle = 0.5 * (below + above);
        if of(middle) < correlation {
            below = middle;
        } else {
            above = middle;
        }
    }
    below
}

/// By Mehler's formula, quantiles of variables with correlation ρ have a covariance of Σ cₖ² ρᵏ, where cₖ is the
/// quantile function's coefficient for the normalised Hermite polynomial of degree k. These are the cₖ², from degree 1
/// on.
fn hermite_powers(rates: &[Knot]) -> [f64; 40] {
    const STEPS: usize = 4000;
    const FARTHEST: f64 = 8.0;
    let width = 2.0 * FARTHEST / STEPS as f64;
    let mut coefficients = [0.0; 40];
    for step in 0..STEPS {
        let z = (step as f64 + 0.5) * width - FARTHEST;
        let density = libm::exp(-0.5 * z * z) / libm::sqrt(std::f64::consts::TAU);
        let probability = 0.5 * libm::erfc(-z / std::f64::consts::SQRT_2);
        let weighted = quantiles::value_at(rates, probability) * density * width;
        let (mut before, mut polynomial) = (1.0, z);
        for (degree, coefficient) in (1..).zip(&mut coefficients) {
            *coefficient += weighted * polynomial;
            let next = (z * polynomial - libm::sqrt(f64::from(degree)) * before) / libm::sqrt(f64::from(degree + 1));
            (before, polynomial) = (polynomial, next);
        }
    }
    coefficients.map(|coefficient| coefficient * coefficient)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_quantile_of_a_normal_variable_is_known() {
        // Uniform levels of normal variables are correlated by 6/π · asin(ρ/2).
        for gaussian in [0.1, 0.5, 0.9] {
            let uniform = 6.0 / std::f64::consts::PI * libm::asin(gaussian / 2.0);
            let got = gaussian_correlation(&[(0.0, 3.0), (1.0, 7.0)], uniform);
            assert!((got - gaussian).abs() < 1e-3, "{got}, must be {gaussian}");
        }
        // A few high levels are correlated by much less than what they are drawn from.
        let seldom = [(0.0, 1.0), (0.9, 1.0), (1.0, 50.0)];
        assert!(gaussian_correlation(&seldom, 0.5) > 0.65);
    }

    #[test]
    fn levels_that_are_all_alike_are_forgotten_at_once() {
        let runs: [&[f64]; 2] = [&[5.0; 40], &[5.0; 40]];
        let memory_s = memory_s(&runs, &[(0.0, 5.0), (1.0, 5.0)], 10, 6);
        assert!(memory_s < 20.0, "{memory_s}");
    }
}
