//! What a model compiled for a few lengths costs: a staircase, which is never interpolated along tokens.

use crate::cost::{Beyond, Cost};
use crate::grid::Grid;
use crate::slice::Slice;
use crate::surfaces::Curve;

/// Costs of a whole encoder by the length that it was compiled for.
#[derive(Clone, Debug)]
pub struct StaticModel {
    /// Ascending lengths, and the costs of each by batch.
    compiled: Vec<(u32, Curve)>,
}

impl StaticModel {
    pub(crate) fn new(slice: &Slice, by_batch_and_tokens: &Grid<2>) -> StaticModel {
        let lengths = slice.knots().swap_remove(1);
        let curve = |length: u64| (length as u32, Curve(by_batch_and_tokens.along_first(length)));
        StaticModel {
            compiled: lengths.into_iter().map(curve).collect(),
        }
    }

    /// The lengths that the model was compiled for, ascending.
    pub fn lengths(&self) -> impl Iterator<Item = u32> + '_ {
        self.compiled.iter().map(|(length, _)| *length)
    }

    /// The compiled length that inputs of up to `tokens` run on; none if all are shorter.
    pub fn length_for(&self, tokens: u32) -> Option<u32> {
        self.step(tokens).map(|(length, _)| *length)
    }

    /// What `batch` sequences of up to `tokens` tokens cost on the next compiled length; none if all are shorter.
    /// Beyond the batches that were measured, extrapolated.
    pub fn cost(&self, batch: u32, tokens: u32) -> Option<Cost> {
        self.step(tokens).map(|(_, curve)| curve.cost(batch.into()))
    }

    /// How far this lies beyond the batches that were measured of the next compiled length.
    pub fn beyond(&self, batch: u32, tokens: u32) -> Option<Beyond> {
        self.step(tokens)?.1.beyond(batch.into())
    }

    fn step(&self, tokens: u32) -> Option<&(u32, Curve)> {
        self.compiled.get(self.compiled.partition_point(|(length, _)| *length < tokens))
    }
}
