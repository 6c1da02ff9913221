//! Which instance serves a request.

use super::load_index::LoadIndex;
use crate::ids::InstanceId;
use crate::spec::PlaceSpec;

/// Requests waiting or running on each instance, and the instances by them, so that no policy scans a large cluster.
#[derive(Debug)]
pub struct Loads {
    load: Vec<u32>,
    is_open: Vec<bool>,
    /// Those that take requests, by id.
    open: Vec<InstanceId>,
    /// The same by load.
    by_load: LoadIndex,
}

impl Loads {
    /// All idle, and open.
    pub fn new(instances: u32) -> Loads {
        let open: Vec<InstanceId> = (0..instances).map(InstanceId).collect();
        let mut by_load = LoadIndex::default();
        open.iter().for_each(|&instance| by_load.insert(0, instance));
        Loads {
            load: vec![0; instances as usize],
            is_open: vec![true; instances as usize],
            open,
            by_load,
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
        if std::mem::replace(&mut self.is_open[instance.index()], false) {
            self.open.retain(|&other| other != instance);
            self.by_load.remove(self.of(instance), instance);
        }
    }

    /// Gives a closed instance requests again.
    pub(crate) fn reopen(&mut self, instance: InstanceId) {
        if !std::mem::replace(&mut self.is_open[instance.index()], true) {
            let at = self.open.partition_point(|&other| other < instance);
            self.open.insert(at, instance);
            self.by_load.insert(self.of(instance), instance);
        }
    }

    /// The least loaded; the lowest id among equals.
    pub fn least(&self) -> InstanceId {
        // The order of one is not asked for.
        if let &[only] = &self.open[..] {
            return only;
        }
        let least = self.by_load.least();
        least.expect("a pool has an instance").1
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
        let was = std::mem::replace(load, load.checked_add_signed(by).expect("loads are not negative"));
        if self.is_open[instance.index()] {
            self.by_load.change(instance, was, *load);
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
