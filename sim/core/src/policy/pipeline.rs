//! How a batch becomes ops on lanes (HMI, section 6 and Fig. 10).

use crate::op::{After, CopyIn, Encode, Layers, Op, OpKind};
use crate::spec::PipelineSpec;
use crate::topology::Instance;

/// What a batch needs, whatever the pipeline.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Layers of the model.
    pub layers: u32,
    /// What must come in, if anything.
    pub copy: Option<CopyWork>,
}

/// Parameters that must come in.
#[derive(Clone, Copy, Debug)]
pub struct CopyWork {
    /// Tenants.
    pub loads: u32,
    /// Copies that each tenant takes: one for a whole model, one a layer for adapters.
    pub chunks_per_load: u32,
    /// Bytes of each.
    pub chunk_bytes: u64,
}

/// Lays a batch out on its instance's lanes.
pub trait Pipeline: Send {
    /// Batches that an instance may have submitted and not ended.
    fn depth(&self) -> u32;

    /// Appends the ops. The last one is told, and ends after all others.
    fn lay_out(&self, work: Work, lanes: Instance, ops: &mut Vec<Op>);
}

/// Copy, then compute. The number of batches in flight decides what overlaps: with one, nothing; with two, the next batch's
/// copies run beside this batch's compute.
struct WholeBatch {
    depth: u32,
}

impl Pipeline for WholeBatch {
    fn depth(&self) -> u32 {
        self.depth
    }

    fn lay_out(&self, work: Work, lanes: Instance, ops: &mut Vec<Op>) {
        let layers = Layers::all(work.layers);
        let mut after = After::NONE;
        if let Some(copy) = work.copy {
            let chunks = copy.loads * copy.chunks_per_load;
            let kind = OpKind::CopyIn(CopyIn {
                layers,
                chunks,
                chunk_bytes: copy.chunk_bytes,
            });
            ops.push(Op {
                kind,
                lane: lanes.copy,
                after: After::NONE,
                told: false,
            });
            after = After::op(0);
        }
        let kind = OpKind::Encode(Encode {
            embed: true,
            layers,
            heads: true,
        });
        ops.push(Op {
            kind,
            lane: lanes.compute,
            after,
            told: true,
        });
    }
}

/// A layer computes once its own adapters are there, while the next layer's come in.
struct Layerwise;

impl Pipeline for Layerwise {
    fn depth(&self) -> u32 {
        2
    }

    fn lay_out(&self, work: Work, lanes: Instance, ops: &mut Vec<Op>) {
        let Some(copy) = work.copy else {
            return WholeBatch { depth: self.depth() }.lay_out(work, lanes, ops);
        };
        let count = u16::try_from(work.layers).expect("fewer than 65,536 layers");
        for first in 0..count {
            let layers = Layers { first, count: 1 };
            let kind = OpKind::CopyIn(CopyIn {
                layers,
                chunks: copy.loads,
                chunk_bytes: copy.chunk_bytes,
            });
            ops.push(Op {
                kind,
                lane: lanes.copy,
                after: After::NONE,
                told: false,
            });
        }
        for first in 0..count {
            let last = first + 1 == count;
            let kind = OpKind::Encode(Encode {
                embed: first == 0,
                layers: Layers { first, count: 1 },
                heads: last,
            });
            ops.push(Op {
                kind,
                lane: lanes.compute,
                after: After::op(usize::from(first)),
                told: last,
            });
        }
    }
}

/// The policy that a spec names.
pub fn build(spec: &PipelineSpec) -> Box<dyn Pipeline> {
    match spec {
        PipelineSpec::Synchronous => Box::new(WholeBatch { depth: 1 }),
        PipelineSpec::Prefetch => Box::new(WholeBatch { depth: 2 }),
        PipelineSpec::Layerwise => Box::new(Layerwise),
    }
}
