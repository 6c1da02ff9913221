//! How unevenly tenants ask: Azure Functions.

use super::quantiles::{self, Knot};

/// Where the numbers come from.
pub const SOURCE: &str = "Azure Functions 2019 trace (Shahrad et al., USENIX ATC 2020; CC-BY 4.0), one day, 1 350 functions sampled by \
     vhive-serverless/invitro data/traces/1350_inv.csv @457ee78; fitted on every second function. The sampler leaves out the \
     heaviest functions, so that concentration is understated";

/// Where the logarithm of a tenant's requests in a day is kept: closer together at the top, which holds nearly all requests.
pub const PROBABILITIES: [f64; 22] = [
    0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.965, 0.975, 0.985, 0.99, 0.994,
    0.997, 1.0,
];

/// Quantiles of the natural logarithm of a tenant's requests in a day.
pub const LOG_REQUESTS: [Knot; 22] = [
    (0.0, 0.0),
    (0.05, 0.0),
    (0.1, 0.0),
    (0.2, 1.09861),
    (0.3, 1.94591),
    (0.4, 2.80896),
    (0.5, 3.52636),
    (0.6, 4.50423),
    (0.7, 5.56604),
    (0.75, 5.80812),
    (0.8, 6.18744),
    (0.85, 6.68108),
    (0.9, 7.27281),
    (0.925, 7.35688),
    (0.95, 7.62232),
    (0.965, 7.91447),
    (0.975, 8.16317),
    (0.985, 8.91086),
    (0.99, 9.18755),
    (0.994, 9.77813),
    (0.997, 10.4098),
    (1.0, 11.3667),
];

/// The knots of tenants' totals, of which zeros count as nothing.
///
/// # Panics
/// If there is no total above 0.
pub fn fit(totals: &[f64]) -> Vec<Knot> {
    let logs: Vec<f64> = totals
        .iter()
        .filter(|&&total| total > 0.0)
        .map(|&total| libm::log(total))
        .collect();
    quantiles::fit(&logs, &PROBABILITIES)
}

/// The weight of each of `tenants`, the most popular first: the distribution's own quantiles, so that no draw is needed.
pub fn weights(tenants: u32) -> Vec<f64> {
    weights_of(&LOG_REQUESTS, tenants)
}

/// As [`weights`], for knots of one's own fit.
pub fn weights_of(knots: &[Knot], tenants: u32) -> Vec<f64> {
    let middle = |rank: u32| 1.0 - (f64::from(rank) + 0.5) / f64::from(tenants);
    (0..tenants)
        .map(|rank| libm::exp(quantiles::value_at(knots, middle(rank))))
        .collect()
}
