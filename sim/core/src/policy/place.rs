//! Which instance serves a request.

use std::collections::BTreeSet;

use crate::ids::InstanceId;
use crate::spec::PlaceSpec;

/// Requests waiting or running on each instance, ordered, so that no policy scans a large cluster.
#[derive(Debug)]
pub struct Loads {
    load: Vec<u32>,
    ordered: BTreeSet<(u32, InstanceId)>,
}

impl Loads {
    /// All idle.
    pub fn new(instances: u32) -> Loads {
        Loads {
            load: vec![0; instances as usize],
            ordered: (0..instances).map(|i| (0, InstanceId(i))).collect(),
        }
    }

    /// Number of instances.
    pub fn instances(&self) -> u32 {
        self.load.len() as u32
    }

    /// The least loaded; the lowest id among equals.
    pub fn least(&self) -> InstanceId {
        self.ordered.first().expect("a pool has an instance").1
    }

    #[inline]
    pub(crate) fn change(&mut self, instance: InstanceId, by: i32) {
        // With a single instance nobody asks for the order.
        if self.load.len() > 1 {
            self.reorder(instance, by);
        }
    }

    #[inline(never)]
    fn reorder(&mut self, instance: InstanceId, by: i32) {
        let load = &mut self.load[instance.index()];
        self.ordered.remove(&(*load, instance));
        *load = load.checked_add_signed(by).expect("loads are not negative");
        self.ordered.insert((*load, instance));
    }
}

/// Chooses an instance.
pub trait Place: Send {
    /// `placed` counts the requests placed before this one.
    fn place(&self, placed: u64, loads: &Loads) -> InstanceId;
}

struct LeastLoaded;

impl Place for LeastLoaded {
    fn place(&self, _: u64, loads: &Loads) -> InstanceId {
        loads.least()
    }
}

struct RoundRobin;

impl Place for RoundRobin {
    fn place(&self, placed: u64, loads: &Loads) -> InstanceId {
        InstanceId((placed % u64::from(loads.instances())) as u32)
    }
}

/// The policy that a spec names.
pub fn build(spec: &PlaceSpec) -> Box<dyn Place> {
    match spec {
        PlaceSpec::LeastLoaded => Box::new(LeastLoaded),
        PlaceSpec::RoundRobin => Box::new(RoundRobin),
        // Encoders keep nothing of a request, so that the fullest instance is no better than another.
        PlaceSpec::LargestWorkingSet => Box::new(LeastLoaded),
    }
}
