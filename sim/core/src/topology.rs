//! Which lanes there are, and which of them get into each other's way.

use crate::ids::{GpuId, InstanceId, LaneId};
use crate::spec::{ClusterSpec, PoolSpec};

/// What a lane is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneKind {
    /// Forward passes of one instance.
    Compute,
    /// Copies from host memory to one card.
    Copy,
}

/// One lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// As reports call it: `gpu0/compute0`, `gpu0/copy`.
    pub name: String,
    /// What it is for.
    pub kind: LaneKind,
    /// The card it belongs to. Lanes of a card share its memory, so that ops that run side by side slow each other down.
    pub gpu: GpuId,
}

/// An instance and its lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance {
    /// The card it runs on.
    pub gpu: GpuId,
    /// Its own.
    pub compute: LaneId,
    /// Shared with the card's other instances.
    pub copy: LaneId,
}

/// The lanes of a cluster that serves one pool. Both machines are built from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// By [`LaneId`].
    pub lanes: Vec<Lane>,
    /// By [`InstanceId`].
    pub instances: Vec<Instance>,
}

impl Topology {
    /// A copy lane for each card and a compute lane for each instance.
    pub fn new(cluster: &ClusterSpec, pool: &PoolSpec) -> Topology {
        let mut topology = Topology {
            lanes: Vec::new(),
            instances: Vec::new(),
        };
        for gpu in (0..cluster.gpus).map(GpuId) {
            let copy = topology.add_lane(format!("{gpu}/copy"), LaneKind::Copy, gpu);
            for k in 0..pool.instances_per_gpu {
                let compute = topology.add_lane(format!("{gpu}/compute{k}"), LaneKind::Compute, gpu);
                topology.instances.push(Instance { gpu, compute, copy });
            }
        }
        topology
    }

    fn add_lane(&mut self, name: String, kind: LaneKind, gpu: GpuId) -> LaneId {
        self.lanes.push(Lane { name, kind, gpu });
        LaneId(self.lanes.len() as u32 - 1)
    }

    /// All instances.
    pub fn instance_ids(&self) -> impl Iterator<Item = InstanceId> + use<> {
        (0..self.instances.len() as u32).map(InstanceId)
    }
}
