//! Costs for any shape, by tables of measured ones.
//!
//! Bind a surface once per run ([`Card::encoder_layer`](crate::Card::encoder_layer) and its kind), then look costs up:
//! some tens of nanoseconds, without allocation or hashing.

use crate::cost::{Beyond, Cost};
use crate::grid::Grid;

/// Costs by batch and padded tokens.
#[derive(Clone, Debug)]
pub struct Surface(pub(crate) Grid<2>);

impl Surface {
    /// What `batch` sequences of `tokens` tokens each cost, extrapolated where they were not [covered](Self::covers).
    pub fn cost(&self, batch: u32, tokens: u32) -> Cost {
        self.0.cost([batch.into(), tokens.into()])
    }

    /// The median of [`cost`](Self::cost), for a fraction of what all of it takes.
    #[inline]
    pub fn median_ns(&self, batch: u32, tokens: u32) -> u64 {
        self.0.median_ns([batch.into(), tokens.into()])
    }

    /// What the smallest measured batch of the shortest measured sequences costs: of an operator, launching alone.
    pub fn least(&self) -> Cost {
        self.0.cost(self.0.nearest([0, 0]))
    }

    /// Whether this lies within what was measured; reports say where it does not.
    #[inline]
    pub fn covers(&self, batch: u32, tokens: u32) -> bool {
        self.0.covers([batch.into(), tokens.into()])
    }

    /// How far this lies beyond what was measured; nothing where it is [covered](Self::covers).
    #[inline]
    pub fn beyond(&self, batch: u32, tokens: u32) -> Option<Beyond> {
        self.0.beyond([batch.into(), tokens.into()])
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

    /// The median of [`cost`](Self::cost), for a fraction of what all of it takes.
    #[inline]
    pub fn median_ns(&self, x: u64) -> u64 {
        self.0.median_ns([x])
    }

    /// Whether this lies within what was measured; reports say where it does not.
    #[inline]
    pub fn covers(&self, x: u64) -> bool {
        self.0.covers([x])
    }

    /// How far this lies beyond what was measured; nothing where it is [covered](Self::covers).
    #[inline]
    pub fn beyond(&self, x: u64) -> Option<Beyond> {
        self.0.beyond([x])
    }
}

/// Costs of one layer's adapters by tenants, or of what computes side by side by how many do.
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

    /// How far this lies beyond what was measured; nothing where it is [covered](Self::covers).
    #[inline]
    pub fn beyond(&self, tenants: u32, batch: u32, tokens: u32) -> Option<Beyond> {
        self.0.beyond([tenants.into(), batch.into(), tokens.into()])
    }

    /// Where the first is how many compute side by side: how much longer each takes than alone, in parts of a million,
    /// and never less.
    pub fn beside_ppm(&self, streams: u32, batch: u32, tokens: u32) -> u64 {
        const UNIT: u64 = 1_000_000;
        let ns = |streams: u32| self.0.median_ns([streams.into(), batch.into(), tokens.into()]);
        (ns(streams) * UNIT / ns(1).max(1)).max(UNIT)
    }
}

/// Costs of heads that label every token.
#[derive(Clone, Debug)]
pub struct TaggingSurface(pub(crate) Grid<3>);

impl TaggingSurface {
    /// What labels of `batch` sequences of `tokens` tokens cost, by heads of `classes` labels, extrapolated where that
    /// was not measured.
    pub fn cost(&self, batch: u32, tokens: u32, classes: u32) -> Cost {
        self.0.cost([batch.into(), tokens.into(), classes.into()])
    }

    /// How far this lies beyond what was measured; nothing where it does not.
    #[inline]
    pub fn beyond(&self, batch: u32, tokens: u32, classes: u32) -> Option<Beyond> {
        self.0.beyond([batch.into(), tokens.into(), classes.into()])
    }
}

/// Costs of look-ups in PLOT tables.
#[derive(Clone, Debug)]
pub struct LookupSurface(pub(crate) Grid<3>);

impl LookupSurface {
    /// What looking up fragments of `fragment_tokens` tokens in texts of `tokens` tokens together costs `threads`
    /// threads, extrapolated where that was not measured.
    pub fn cost(&self, threads: u32, tokens: u32, fragment_tokens: u32) -> Cost {
        self.0.cost([threads.into(), tokens.into(), fragment_tokens.into()])
    }

    /// How far this lies beyond what was measured; nothing where it does not.
    #[inline]
    pub fn beyond(&self, threads: u32, tokens: u32, fragment_tokens: u32) -> Option<Beyond> {
        self.0.beyond([threads.into(), tokens.into(), fragment_tokens.into()])
    }
}
