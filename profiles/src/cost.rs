//! What an op costs: a median, its measured spread, and the surfaces that give them for any shape.
//!
//! Bind a surface once per run ([`Card::encoder_layer`](crate::Card::encoder_layer) and its kind), then look costs up: some
//! tens of nanoseconds, without allocation or hashing.

use crate::grid::Grid;

/// What one op takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Half of such ops take no longer, in nanoseconds.
    pub median_ns: u64,
    /// How far others lie from it.
    pub spread: Spread,
}

/// Quantiles as parts of a million of the median.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// 5 % take no longer; at most 1,000,000.
    pub p05_ppm: u32,
    /// 95 % take no longer; at least 1,000,000.
    pub p95_ppm: u32,
    /// 99 % take no longer; at least `p95_ppm`.
    pub p99_ppm: u32,
}

impl Spread {
    /// Every op takes the median.
    pub const NONE: Spread = Spread {
        p05_ppm: 1_000_000,
        p95_ppm: 1_000_000,
        p99_ppm: 1_000_000,
    };
}

impl Cost {
    /// The duration in nanoseconds that a share `u` (from 0 to 1) of such ops does not exceed: straight lines through the
    /// known quantiles, and no further than the outermost.
    pub fn at_quantile(&self, u: f64) -> u64 {
        let Spread {
            p05_ppm,
            p95_ppm,
            p99_ppm,
        } = self.spread;
        let known = [(0.05, p05_ppm), (0.5, 1_000_000), (0.95, p95_ppm), (0.99, p99_ppm)];
        let above = known.iter().position(|(share, _)| u < *share).unwrap_or(known.len());
        let ppm = match above {
            0 => f64::from(p05_ppm),
            4 => f64::from(p99_ppm),
            _ => {
                let ((low, low_ppm), (high, high_ppm)) = (known[above - 1], known[above]);
                let (low_ppm, high_ppm) = (f64::from(low_ppm), f64::from(high_ppm));
                low_ppm + (high_ppm - low_ppm) * ((u - low) / (high - low))
            }
        };
        (self.median_ns as f64 * ppm / 1e6 + 0.5) as u64
    }
}

/// Costs by batch and padded tokens.
#[derive(Clone, Debug)]
pub struct Surface(pub(crate) Grid<2>);

impl Surface {
    /// What `batch` sequences of `tokens` tokens each cost, extrapolated where they were not [covered](Self::covers).
    pub fn cost(&self, batch: u32, tokens: u32) -> Cost {
        self.0.cost([batch.into(), tokens.into()])
    }

    /// Whether this lies within what was measured; reports say where it does not.
    pub fn covers(&self, batch: u32, tokens: u32) -> bool {
        self.0.covers([batch.into(), tokens.into()])
    }
}

/// Costs by one quantity: sequences of a head, bytes of a copy or load.
#[derive(Clone, Debug)]
pub struct Curve(pub(crate) Grid<1>);

impl Curve {
    /// What `x` of them cost, extrapolated where it was not [covered](Self::covers).
    pub fn cost(&self, x: u64) -> Cost {
        self.0.cost([x])
    }

    /// Whether this lies within what was measured; reports say where it does not.
    pub fn covers(&self, x: u64) -> bool {
        self.0.covers([x])
    }
}

/// Costs of one layer's adapters.
#[derive(Clone, Debug)]
pub struct AdapterSurface(pub(crate) Grid<3>);

impl AdapterSurface {
    /// What the adapters of `tenants` tenants cost in a batch of `batch` sequences (at least one for each tenant) of
    /// `tokens` tokens each, extrapolated where they were not [covered](Self::covers).
    pub fn cost(&self, tenants: u32, batch: u32, tokens: u32) -> Cost {
        self.0.cost([tenants.into(), batch.into(), tokens.into()])
    }

    /// Whether this lies within what was measured; reports say where it does not.
    pub fn covers(&self, tenants: u32, batch: u32, tokens: u32) -> bool {
        self.0.covers([tenants.into(), batch.into(), tokens.into()])
    }
}
