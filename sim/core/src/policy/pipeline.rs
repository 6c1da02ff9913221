//! How a batch becomes ops on lanes (HMI, section 6 and Fig. 10).
//!
//! Two questions, answered apart: does the next batch's work start while this one computes ([`Op::behind`] says no),
//! and does a batch compute when all its parameters are there, or each layer when its own are.

use crate::op::{After, CopyIn, Encode, Layers, Lookup, Op, OpKind, Stage};
use crate::spec::{ParameterPipeline, PipelineSpec};
use crate::topology::Instance;

/// What a batch needs, whatever the pipeline.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Layers that compute: all, or those above what is looked up.
    pub layers: Layers,
    /// What is looked up, if anything.
    pub retrieval: Option<Retrieval>,
    /// What must come in, if anything.
    pub copy: Option<CopyWork>,
    /// Whether the instance has another batch under way.
    pub follows: bool,
}

/// Representations that stand for the lower layers.
#[derive(Clone, Copy, Debug)]
pub struct Retrieval {
    /// Tokens of the batch, without padding.
    pub tokens: u32,
    /// Fragments in them.
    pub fragments: u32,
    /// Their hidden states with padding, as they go to the card.
    pub bytes: u64,
}

/// Parameters that must come in.
#[derive(Clone, Copy, Debug)]
pub struct CopyWork {
    /// Tenants, of whom each takes one copy, or one a layer where layers wait for their own.
    pub loads: u32,
    /// Parts in which a tenant's parameters may come: one for a whole model, one a layer for adapters.
    pub parts: u32,
    /// Bytes of each part.
    pub part_bytes: u64,
}

/// Ops that a batch has beside those of its layers, at most.
pub(crate) const OPS_BESIDE_LAYERS: usize = 2;

/// Lays a batch out on its instance's lanes.
pub trait Pipeline: Send {
    /// Batches that an instance may have submitted and not ended.
    fn depth(&self) -> u32;

    /// Appends the ops. The last one is told, and ends after all others.
    fn lay_out(&self, work: Work, lanes: Instance, ops: &mut Vec<Op>);
}

impl Pipeline for PipelineSpec {
    fn depth(&self) -> u32 {
        if *self == PipelineSpec::SYNCHRONOUS { 1 } else { 2 }
    }

    fn lay_out(&self, work: Work, lanes: Instance, ops: &mut Vec<Op>) {
        let behind_parameters = self.depth() > 1 && self.parameters == ParameterPipeline::Synchronous;
        let behind_retrieval = self.depth() > 1 && !self.prefetch_retrieval;
        let mut batch = Batch {
            lanes,
            behind_parameters,
            behind_retrieval,
            // Where look-ups have no lane of their own, one that waits for the batch before would keep back parameters
            // that need not.
            copies_first: work.follows && behind_retrieval && !behind_parameters && lanes.lookup == lanes.copy,
            first: ops.len(),
            ops,
        };
        let retrieved = work.retrieval.filter(|_| !batch.copies_first).map(|retrieval| batch.look_up(retrieval));
        let by_layer = work.copy.filter(|copy| self.parameters == ParameterPipeline::NextLayer && copy.parts > 1);
        match by_layer {
            Some(copy) => batch.layer_by_layer(work, copy, retrieved),
            None => batch.as_a_whole(work, retrieved, *self == PipelineSpec::SYNCHRONOUS),
        }
    }
}

/// A batch being laid out.
struct Batch<'a> {
    lanes: Instance,
    behind_parameters: bool,
    behind_retrieval: bool,
    /// What is looked up comes after all parameters.
    copies_first: bool,
    /// Index of its first op in `ops`.
    first: usize,
    ops: &'a mut Vec<Op>,
}

impl Batch<'_> {
    /// Appends an op and returns its index in the batch.
    fn push(&mut self, op: Op) -> usize {
        self.ops.push(op);
        self.ops.len() - 1 - self.first
    }

    /// What was looked up is copied in by [`stage`](Self::stage).
    fn look_up(&mut self, retrieval: Retrieval) -> (usize, Retrieval) {
        let op = Op {
            kind: OpKind::Lookup(Lookup {
                tokens: retrieval.tokens,
                fragments: retrieval.fragments,
            }),
            lane: self.lanes.lookup,
            after: After::NONE,
            behind: self.behind_retrieval,
            told: false,
        };
        (self.push(op), retrieval)
    }

    fn stage(&mut self, (lookup, retrieval): (usize, Retrieval)) -> usize {
        self.push(Op {
            kind: OpKind::Stage(Stage { bytes: retrieval.bytes }),
            lane: self.lanes.copy,
            after: After::op(lookup),
            behind: false,
            told: false,
        })
    }

    /// The same, of what has not been looked up yet where that is to come last.
    fn staged_last(&mut self, work: Work, retrieved: Option<(usize, Retrieval)>) -> Option<usize> {
        let late = work.retrieval.filter(|_| self.copies_first);
        let retrieved = retrieved.or_else(|| Some(self.look_up(late?)))?;
        Some(self.stage(retrieved))
    }

    fn copy_in(&mut self, layers: Layers, chunks: u32, chunk_bytes: u64, after: After) -> usize {
        self.push(Op {
            kind: OpKind::CopyIn(CopyIn {
                layers,
                chunks,
                chunk_bytes,
            }),
            lane: self.lanes.copy,
            after,
            behind: self.behind_parameters,
            told: false,
        })
    }

    fn encode(&mut self, work: Work, layers: Layers, after: After) {
        let last = layers.range().end == work.layers.range().end;
        self.push(Op {
            kind: OpKind::Encode(Encode {
                begin: layers.first == work.layers.first,
                embed: layers.first == work.layers.first && work.retrieval.is_none(),
                layers,
                heads: last,
            }),
            lane: self.lanes.compute,
            after,
            behind: false,
            told: last,
        });
    }

    /// Copy, then compute. The copy lane runs in order, so that what must wait longest comes last on it: what is looked
    /// up, or where that is ahead and parameters are not, those, which wait for the batch before.
    fn as_a_whole(&mut self, work: Work, retrieved: Option<(usize, Retrieval)>, one_after_the_other: bool) {
        let after_lookup = match retrieved {
            Some((lookup, _)) if one_after_the_other => After::op(lookup),
            _ => After::NONE,
        };
        let staged_ahead = work.follows && self.behind_parameters && !self.behind_retrieval;
        let mut staged = retrieved.filter(|_| staged_ahead).map(|retrieved| self.stage(retrieved));
        let copied = work.copy.map(|copy| {
            let bytes = u64::from(copy.parts) * copy.part_bytes;
            self.copy_in(work.layers, copy.loads, bytes, after_lookup)
        });
        if !staged_ahead {
            staged = self.staged_last(work, retrieved);
        }
        self.encode(work, work.layers, After::both(copied, staged));
    }

    /// A layer computes once its own adapters are there, while the next layer's come in.
    fn layer_by_layer(&mut self, work: Work, copy: CopyWork, retrieved: Option<(usize, Retrieval)>) {
        let mut copied = Vec::with_capacity(work.layers.count.into());
        let mut staged = None;
        for layer in work.layers.each() {
            copied.push(self.copy_in(layer, copy.loads, copy.part_bytes, After::NONE));
            // The first layer needs its adapters and the hidden states; both before anything for later layers.
            if layer.first == work.layers.first {
                staged = retrieved.map(|retrieved| self.stage(retrieved));
            }
        }
        if self.copies_first {
            staged = self.staged_last(work, None);
        }
        for (layer, copied) in work.layers.each().zip(copied) {
            self.encode(work, layer, After::both(Some(copied), staged.take()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{GpuId, LaneId, PoolId};

    /// Which ops a batch of two layers above a table is laid out in, where parameters come ahead and look-ups wait for
    /// the batch before.
    fn order(lookup: LaneId, follows: bool) -> Vec<&'static str> {
        let lanes = Instance {
            pool: PoolId(0),
            gpu: GpuId(0),
            compute: LaneId(0),
            copy: LaneId(1),
            lookup,
            link: None,
        };
        let work = Work {
            layers: Layers { first: 2, count: 2 },
            retrieval: Some(Retrieval {
                tokens: 8,
                fragments: 6,
                bytes: 64,
            }),
            copy: Some(CopyWork {
                loads: 1,
                parts: 2,
                part_bytes: 16,
            }),
            follows,
        };
        let pipeline = PipelineSpec {
            prefetch_retrieval: false,
            ..PipelineSpec::LAYERWISE
        };
        let mut ops = Vec::new();
        pipeline.lay_out(work, lanes, &mut ops);
        let name = |op: &Op| match op.kind {
            OpKind::Lookup(_) => "look up",
            OpKind::Stage(_) => "stage",
            OpKind::CopyIn(_) => "copy",
            _ => "encode",
        };
        ops.iter().map(name).collect()
    }

    #[test]
    fn parameters_do_not_wait_behind_a_look_up_that_waits() {
        let one_lane = order(LaneId(1), true);
        assert_eq!(one_lane, ["copy", "copy", "look up", "stage", "encode", "encode"]);
        // On a lane of its own it keeps back nobody; and where nothing computes, it does not wait.
        for first in [order(LaneId(2), true), order(LaneId(1), false)] {
            assert_eq!(first, ["look up", "copy", "stage", "copy", "encode", "encode"]);
        }
    }
}
