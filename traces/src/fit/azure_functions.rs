//! How unevenly tenants ask: Azure Functions.

use super::quantiles::{self, Knot};

/// Where the numbers come from.
pub const SOURCE: &str = "Azure Functions 2019 trace (Shahrad et al., USENIX ATC 2020; CC-BY 4.0), one day, 1 350 \
                          functions sampled by vhive-serverless/invitro data/traces/1350_inv.csv @457ee78; fitted on a \
                          half of the functions. The sampler leaves out the heaviest functions, so that concentration \
                          is understated";

/// Where the logarithm of a tenant's requests in a day is kept: closer together at the top, which holds nearly all
/// requests.
pub const PROBABILITIES: [f64; 26] = [
    0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.965, 0.975, 0.98, 0.985, 0.99,
    0.994, 0.997, 0.998, 0.999, 0.9995, 1.0,
];

/// Quantiles of the natural logarithm of a tenant's requests in a day.
pub const LOG_REQUESTS: [Knot; 26] = [
    (0.0, 0.0),
    (0.05, 0.0),
    (0.1, 0.0),
    (0.2, 1.09861),
    (0.3, 1.94591),
    (0.4, 2.8029),
    (0.5, 3.52636),
    (0.6, 4.49981),
    (0.7, 5.56834),
    (0.75, 5.80961),
    (0.8, 6.18619),
    (0.85, 6.69463),
    (0.9, 7.27309),
    (0.925, 7.35962),
    (0.95, 7.62217),
    (0.965, 7.8896),
    (0.975, 8.17303),
    (0.98, 8.42156),
    (0.985, 8.98174),
    (0.99, 9.29645),
    (0.994, 9.81307),
    (0.997, 10.459),
    (0.998, 10.6302),
    (0.999, 11.2151),
    (0.9995, 11.3667),
    (1.0, 11.3667),
];

/// Two halves of tenants' totals, one to fit and one to check. They are dealt out from the largest on as 0, 1, 1, 0: a
/// few tenants are a good part of all requests, and of pairs in order of size the first would always be the larger.
pub fn halves(totals: &[f64]) -> [Vec<f64>; 2] {
    let mut sorted = totals.to_vec();
    sorted.sort_unstable_by(|a, b| b.total_cmp(a));
    let mut halves = [Vec::new(), Vec::new()];
    for (rank, total) in sorted.into_iter().enumerate() {
        halves[(rank % 4 == 1 || rank % 4 == 2) as usize].push(total);
    }
    halves
}

/// The knots of tenants' totals, of which zeros count as nothing.
///
/// # Panics
/// If there is no total above 0.
pub fn fit(totals: &[f64]) -> Vec<Knot> {
    let logs: Vec<f64> = totals.iter().filter(|&&total| total > 0.0).map(|&total| libm::log(total)).collect();
    quantiles::fit_middles(&logs, &PROBABILITIES)
}

/// The weight of each of `tenants`, the most popular first: the distribution's own quantiles, so that no draw is
/// needed.
pub fn weights(tenants: u32) -> Vec<f64> {
    weights_of(&LOG_REQUESTS, tenants)
}

/// As [`weights`], for knots of one's own fit.
pub fn weights_of(knots: &[Knot], tenants: u32) -> Vec<f64> {
    let middle = |rank: u32| 1.0 - (f64::from(rank) + 0.5) / f64::from(tenants);
    (0..tenants).map(|rank| libm::exp(quantiles::value_at(knots, middle(rank)))).collect()
}
