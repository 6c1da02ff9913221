//! One model of a route: its instances, their queues, and what batches and placement its pool asks for.

use std::ops::Range;

use tenantry_traces::{Duration, Time};

use super::super::memory::{Memory, MemoryUse, ServerError};
use super::super::queue::Queue;
use crate::ids::{InstanceId, LaneId};
use crate::op::{After, Encode, Layers, Op, OpKind};
use crate::policy::batch::{self, Batch};
use crate::policy::place::{self, Loads, Place};
use crate::spec::{ClusterSpec, Padding, PoolSpec, RouteSpec, StageSpec};

/// A running copy of a stage's model.
pub(super) struct Instance {
    pub queue: Queue,
    /// Whether a batch runs on it.
    pub busy: bool,
    /// The earliest instant for which a timer is set and has not come.
    pub timer: Option<Time>,
}

/// What a stage did.
#[derive(Clone, Debug, PartialEq)]
pub struct StageCounts {
    /// The pool's name.
    pub name: String,
    /// Requests that its model answered.
    pub answered: u64,
    /// Its batches computed for so long, all together.
    pub computed: Duration,
    /// See [`StageSpec::packing`].
    pub packing: Option<f64>,
}

/// One model of a route.
pub(super) struct Stage {
    pub place: Box<dyn Place>,
    pub batch: Box<dyn Batch>,
    pub loads: Loads,
    pub placed: u64,
    /// Of its first instance.
    first_instance: u32,
    /// Whether it goes on where the stage before has ended.
    continues: bool,
    padding: Padding,
    max_tokens: u32,
    layers: Layers,
    /// Whether somebody reads how sure its answers are.
    inspected: bool,
    pub counts: StageCounts,
}

impl Stage {
    /// `instances` are those of the stage.
    pub fn new(spec: &StageSpec, instances: Range<u32>) -> Stage {
        let PoolSpec { padding, .. } = spec.pool;
        Stage {
            place: place::build(&spec.pool.place),
            batch: batch::build(&spec.pool.batch),
            loads: Loads::new(instances.len() as u32),
            placed: 0,
            first_instance: instances.start,
            continues: spec.continues(),
            padding,
            max_tokens: match padding {
                Padding::Longest => spec.pool.model.positions,
                Padding::To(tokens) => tokens,
            },
            layers: spec.layers,
            inspected: spec.dispatch.is_some(),
            counts: StageCounts {
                name: spec.pool.name.clone(),
                answered: 0,
                computed: Duration::ZERO,
                packing: spec.packing,
            },
        }
    }

    /// The longest request that it takes.
    pub fn max_tokens(&self) -> u32 {
        self.max_tokens
    }

    /// To what length a batch is padded whose longest request has `tokens`.
    pub fn padded(&self, tokens: u32) -> u32 {
        match self.padding {
            Padding::Longest => tokens,
            Padding::To(fixed) => fixed,
        }
    }

    /// Where a request goes; `before` ran it at the stage before.
    pub fn place(&mut self, before: Option<(&Stage, InstanceId)>) -> InstanceId {
        let local = match before {
            Some((stage, instance)) if self.continues => stage.local(instance),
            _ => self.place.place(self.placed, &self.loads),
        };
        self.placed += 1;
        self.loads.change(local, 1);
        InstanceId(self.first_instance + local.0)
    }

    /// A request has left an instance.
    pub fn left(&mut self, instance: InstanceId) {
        self.loads.change(self.local(instance), -1);
    }

    /// An instance by its place among the stage's own.
    fn local(&self, instance: InstanceId) -> InstanceId {
        InstanceId(instance.0 - self.first_instance)
    }

    /// A forward pass, and a look at what came of it where somebody wants to know.
    pub fn lay_out(&self, lane: LaneId, ops: &mut Vec<Op>) {
        let op = |kind, told| Op {
            kind,
            lane,
            after: After::NONE,
            behind: false,
            told,
        };
        let encode = Encode {
            begin: true,
            embed: self.layers.first == 0,
            layers: self.layers,
            heads: true,
        };
        ops.push(op(OpKind::Encode(encode), !self.inspected));
        if self.inspected {
            ops.push(op(OpKind::Inspect, true));
        }
    }
}

/// The cards' memory with all models in it.
///
/// # Errors
/// Where the models of a card do not fit on it together.
pub(super) fn memory(cluster: &ClusterSpec, route: &RouteSpec, tenants: u32) -> Result<MemoryUse, ServerError> {
    let mut used_bytes = vec![0_u64; cluster.gpus as usize];
    let whole = ClusterSpec {
        gpus: 1,
        ..cluster.clone()
    };
    for stage in route.stages.iter().filter(|stage| !stage.continues()) {
        let shared_bytes = Memory::plan(&whole, &stage.pool, tenants)?.used(0).shared_bytes;
        for &gpu in &stage.gpus {
            let used = &mut used_bytes[gpu as usize];
            *used += shared_bytes;
            if *used > cluster.gpu_memory_bytes {
                return Err(ServerError::BackboneDoesNotFit {
                    model: format!("{} beside the other models of card {gpu}", stage.pool.model.name),
                    needed_bytes: *used,
                    available_bytes: cluster.gpu_memory_bytes,
                });
            }
        }
    }
    Ok(MemoryUse {
        capacity_bytes: u64::from(cluster.gpus) * cluster.gpu_memory_bytes,
        shared_bytes: used_bytes.iter().sum(),
        ..MemoryUse::default()
    })
}
