//! Which instance serves a request.

use std::collections::BTreeSet;

use crate::ids::InstanceId;
use crate::spec::PlaceSpec;

/// Requests waiting or running on each instance, ordered, so that no policy scans a large cluster.
#[derive(Debug)]
pub struct Loads {
    load: Vec<u32>,
    /// Those that take requests, by id.
    open: Vec<InstanceId>,
    /// The same by load.
    ordered: BTreeSet<(u32, InstanceId)>,
}

impl Loads {
    /// All idle, and open.
    pub fn new(instances: u32) -> Loads {
        Loads {
            load: vec![0; instances as usize],
            open: (0..instances).map(InstanceId).collect(),
            ordered: (0..instances).map(|i| (0, InstanceId(i))).collect(),
        }
    }

    /// Number of instances.
    pub fn instances(&self) -> u32 {
        self.load.len() as u32
    }

    /// Instances that take requests, by id.
    pub fn open(&self) -> &[InstanceId] {
        &self.open
    }

    /// Requests of an instance, where there are several.
    pub(crate) fn of(&self, instance: InstanceId) -> u32 {
        self.load[instance.index()]
    }

    /// Gives an instance no more requests.
    pub(crate) fn close(&mut self, instance: InstanceId) {
        self.open.retain(|&other| other != instance);
        self.ordered.remove(&(self.of(instance), instance));
    }

    /// Gives a closed instance requests again.
    pub(crate) fn reopen(&mut self, instance: InstanceId) {
        let at = self.open.partition_point(|&other| other < instance);
        self.open.insert(at, instance);
        self.ordered.insert((self.of(instance), instance));
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
        let is_open = self.ordered.remove(&(*load, instance));
        *load = load.checked_add_signed(by).expect("loads are not negative");
        if is_open {
            self.ordered.insert((*load, instance));
        }
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
        loads.open()[(placed % loads.open().len() as u64) as usize]
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
