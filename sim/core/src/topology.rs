//! Which lanes there are, and which of them get into each other's way.

use std::ops::Range;

use crate::ids::{GpuId, InstanceId, LaneId, PoolId};
use crate::spec::{ClusterSpec, DisaggregatedSpec, GenerationSpec, PoolSpec, StageSpec, TasksSpec};

/// What a lane is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneKind {
    /// Forward passes of one instance.
    Compute,
    /// Copies from host memory to one card.
    Copy,
    /// Representations looked up for one card's batches.
    Lookup,
    /// The allocation program, or the plans of pools, on the host.
    Solve,
    /// Pages of key-value caches, between two cards.
    Link,
    /// What the host reads from its disk, for all cards.
    Disk,
}

/// One lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// As reports call it: `gpu0/compute0`, `gpu0/copy`, `gpu0/lookup`, `gpu0/link`, `host/solver`, `host/planner`,
    /// `host/disk`.
    pub name: String,
    /// What it is for.
    pub kind: LaneKind,
    /// The card it belongs to. Lanes of a card share its memory, so that ops that run side by side slow each other
    /// down.
    pub gpu: GpuId,
}

/// An instance and its lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Whose model it runs.
    pub pool: PoolId,
    /// The card it runs on.
    pub gpu: GpuId,
    /// Its own.
    pub compute: LaneId,
    /// Shared with the card's other instances, and with other cards where there are fewer copy lanes than cards.
    pub copy: LaneId,
    /// Where representations are looked up; shared likewise, and the copy lane where there is no other.
    pub lookup: LaneId,
    /// Its own, where pages of its cache come from other cards or go to them one after the other; nothing where they do
    /// not, and on the side that has more cards.
    pub link: Option<LaneId>,
}

/// Instances of a cluster at most: each has queues and lanes of its own.
pub const INSTANCES_MAX: u64 = 1_000_000;

/// Lanes of so many at most: each has one that computes and perhaps a link, and each may have a card of its own, which
/// copies and looks up; the host has one that plans or solves, and one for the disk.
pub const LANES_MAX: u64 = 4 * INSTANCES_MAX + 2;

/// The lanes of a cluster. Both machines are built from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// By [`LaneId`].
    pub lanes: Vec<Lane>,
    /// By [`InstanceId`].
    pub instances: Vec<Instance>,
    /// Where the allocation program is solved, or pools are planned, where the system does either.
    pub solver: Option<LaneId>,
    /// Where the host reads from its disk, of which there is one for all cards: where host memory does not hold all, or
    /// tenants and domains come and change while others are served.
    pub disk: Option<LaneId>,
}

impl Topology {
    /// A copy lane for each card, or one that plans pools in their place, and a look-up lane where something is looked
    /// up, as far as there are such; one that reads from the disk where host memory does not hold all; and a compute
    /// lane for each instance.
    pub fn new(cluster: &ClusterSpec, pool: &PoolSpec) -> Topology {
        let mut topology = Topology {
            lanes: Vec::new(),
            instances: Vec::new(),
            solver: None,
            disk: None,
        };
        let mut copy_lanes: Vec<LaneId> = Vec::new();
        let mut lookup_lanes: Vec<LaneId> = Vec::new();
        let lookups = if pool.plot.is_some() { cluster.lookup_lanes } else { 0 };
        let linked = linked_cards(cluster, pool);
        if pool.tasks.as_ref().is_some_and(TasksSpec::plans) {
            // Tasks lie on the cards and nothing is copied: the host's lane plans instead, for all cards.
            let planner = topology.add_lane("host/planner".into(), LaneKind::Solve, GpuId(0));
            topology.solver = Some(planner);
            copy_lanes.push(planner);
        }
        if pool.generation.as_ref().and_then(GenerationSpec::host_slots).is_some() {
            topology.add_disk();
        }
        for gpu in (0..cluster.gpus).map(GpuId) {
            if topology.solver.is_none() && gpu.0 < cluster.copy_lanes {
                copy_lanes.push(topology.add_lane(format!("{gpu}/copy"), LaneKind::Copy, gpu));
            }
            let copy = copy_lanes[gpu.index() % copy_lanes.len()];
            // The first of the cards that share an instance's layers stands for all of them.
            let parallel = pool.generation.as_ref().map_or(1, |generation| generation.tensor_parallel);
            if !gpu.0.is_multiple_of(parallel) {
                continue;
            }
            if gpu.0 < lookups {
                lookup_lanes.push(topology.add_lane(format!("{gpu}/lookup"), LaneKind::Lookup, gpu));
            }
            let lookup = match lookup_lanes.len() {
                0 => copy,
                lanes => lookup_lanes[gpu.index() % lanes],
            };
            for k in 0..pool.instances_per_gpu {
                let compute = topology.add_lane(format!("{gpu}/compute{k}"), LaneKind::Compute, gpu);
                let is_linked = linked.contains(&gpu.0);
                let link = is_linked.then(|| topology.add_lane(format!("{gpu}/link"), LaneKind::Link, gpu));
                topology.instances.push(Instance {
                    pool: PoolId(0),
                    gpu,
                    compute,
                    copy,
                    lookup,
                    link,
                });
            }
        }
        if matches!(&pool.runtimes, Some(runtimes) if runtimes.solves()) {
            // The host's affair: it belongs to no card, and is counted to the first.
            topology.solver = Some(topology.add_lane("host/solver".into(), LaneKind::Solve, GpuId(0)));
        }
        topology
    }

    /// A compute lane for each instance of each stage, and a copy lane for each card, on which nothing is copied. A
    /// stage that goes on where the one before has ended has that one's lanes.
    pub fn of_stages(cluster: &ClusterSpec, stages: &[StageSpec]) -> Topology {
        let mut topology = Topology {
            lanes: Vec::new(),
            instances: Vec::new(),
            solver: None,
            disk: None,
        };
        let mut computing = vec![0; cluster.gpus as usize];
        let copies: Vec<LaneId> = (0..cluster.gpus)
            .map(|gpu| topology.add_lane(format!("{}/copy", GpuId(gpu)), LaneKind::Copy, GpuId(gpu)))
            .collect();
        let mut first_of_stage = 0;
        for (pool, stage) in stages.iter().enumerate() {
            let pool = PoolId(pool as u32);
            let before = first_of_stage..topology.instances.len();
            first_of_stage = topology.instances.len();
            if stage.continues() {
                for index in before {
                    let instance = Instance {
                        pool,
                        ..topology.instances[index]
                    };
                    topology.instances.push(instance);
                }
                continue;
            }
            for gpu in stage.gpus.iter().copied().map(GpuId) {
                for _ in 0..stage.pool.instances_per_gpu {
                    let number = &mut computing[gpu.index()];
                    let compute = topology.add_lane(format!("{gpu}/compute{number}"), LaneKind::Compute, gpu);
                    *number += 1;
                    let copy = copies[gpu.index()];
                    topology.instances.push(Instance {
                        pool,
                        gpu,
                        compute,
                        copy,
                        lookup: copy,
                        link: None,
                    });
                }
            }
        }
        topology
    }

    /// The lane that carries pages from one instance to another, if any does.
    pub fn link(&self, from: InstanceId, to: InstanceId) -> Option<LaneId> {
        let link = |instance: InstanceId| self.instances[instance.index()].link;
        link(from).or(link(to))
    }

    /// Gives the host's disk a lane, if it has none: whatever the cards, it reads one thing at a time.
    pub(crate) fn add_disk(&mut self) {
        if self.disk.is_none() {
            self.disk = Some(self.add_lane("host/disk".into(), LaneKind::Disk, GpuId(0)));
        }
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

/// Cards with a link lane of their own, where some take prompts in and others go on from there: those of the side with
/// fewer cards. A card sends or receives one transfer at a time, as fast as its link goes, and on that side links are
/// the first to have too much to do.
fn linked_cards(cluster: &ClusterSpec, pool: &PoolSpec) -> Range<u32> {
    let disaggregated = pool.generation.as_ref().and_then(|generation| generation.disaggregated);
    let Some(DisaggregatedSpec { prefill_gpus, .. }) = disaggregated else {
        return 0..0;
    };
    match prefill_gpus * 2 <= cluster.gpus {
        true => 0..prefill_gpus,
        false => prefill_gpus..cluster.gpus,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::GenerationSpec;
    use crate::testing::{cluster, pool};

    #[test]
    fn instances_compute_alone_and_copy_together() {
        let pool = PoolSpec {
            instances_per_gpu: 2,
            ..pool("pool")
        };
        let topology = Topology::new(&cluster(2, 1), &pool);
        let names: Vec<&str> = topology.lanes.iter().map(|lane| lane.name.as_str()).collect();
        let expected = [
            "gpu0/copy",
            "gpu0/compute0",
            "gpu0/compute1",
            "gpu1/copy",
            "gpu1/compute0",
            "gpu1/compute1",
        ];
        assert_eq!(names, expected);
        assert_eq!(topology.instances[1].copy, topology.instances[0].copy);
        assert_ne!(topology.instances[2].copy, topology.instances[0].copy);
    }

    #[test]
    fn cards_share_the_copy_lanes_that_there_are() {
        let cluster = ClusterSpec {
            copy_lanes: 2,
            ..cluster(3, 1)
        };
        let topology = Topology::new(&cluster, &pool("pool"));
        let copy: Vec<LaneId> = topology.instances.iter().map(|instance| instance.copy).collect();
        assert_eq!((copy[0], copy.len()), (copy[2], 3));
        assert_ne!(copy[0], copy[1]);
    }

    #[test]
    fn cards_share_one_disk() {
        let mut topology = Topology::new(&cluster(3, 1), &pool("pool"));
        assert_eq!(topology.disk, None);
        let lanes = topology.lanes.len();
        (0..2).for_each(|_| topology.add_disk());
        assert_eq!(topology.lanes.len(), lanes + 1);
        let disk = &topology.lanes[topology.disk.expect("it was added").index()];
        assert_eq!((disk.name.as_str(), disk.kind), ("host/disk", LaneKind::Disk));
    }

    #[test]
    fn the_side_with_fewer_cards_has_the_links() {
        let linked = |prefill_gpus| {
            let mut pool = pool("pool");
            pool.generation = Some(GenerationSpec {
                disaggregated: Some(DisaggregatedSpec {
                    prefill_gpus,
                    link: None,
                }),
                ..GenerationSpec::default()
            });
            let topology = Topology::new(&cluster(4, 1), &pool);
            let (of, to) = (InstanceId(0), InstanceId(3));
            assert!(topology.link(of, to).is_some(), "any pair has a link between them");
            topology.instances.iter().map(|instance| instance.link.is_some()).collect::<Vec<_>>()
        };
        assert_eq!(linked(1), [true, false, false, false]);
        assert_eq!(linked(2), [true, true, false, false]);
        assert_eq!(linked(3), [false, false, false, true]);
    }
}
