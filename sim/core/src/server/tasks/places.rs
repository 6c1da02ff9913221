//! Places in pools of those who are not there: a pool that waits for so many queries counts them, since nobody else
//! would fill it.

use tenantry_traces::Time;

use super::TaskServer;
use super::repository::Entry;
use crate::command::{Commands, RejectReason};
use crate::ids::InstanceId;
use crate::spec::PlanningSpec;

/// Of those who came for pools of `size` and have `gone`, beside so many who wait: how many leave a place empty beside
/// somebody. A pool of nobody but such is none.
fn without_empty_pools(gone: u32, waiting: u32, size: u32) -> u32 {
    let left_in_last = (size - waiting % size) % size;
    gone.min(left_in_last) + gone.saturating_sub(left_in_last) % size
}

impl TaskServer {
    /// A pool that waits for so many queries counts those that were turned away or have left: otherwise one refused
    /// task would keep all others waiting.
    pub(super) fn leave_place(&mut self, instance: InstanceId) {
        let gone = self.instances[instance.index()].gone + 1;
        self.leave_places(instance, gone);
    }

    /// An instance counts `gone` of those that are not there, and no more of them than leave a place empty beside
    /// somebody. For placement they are part of its load: who comes next fills another's pool.
    pub(super) fn leave_places(&mut self, instance: InstanceId, gone: u32) {
        let PlanningSpec::Pool { size, .. } = self.planning else {
            return;
        };
        let state = &mut self.instances[instance.index()];
        let waiting = state.queue.view(&self.requests).len();
        let gone = without_empty_pools(gone, waiting, size);
        let before = std::mem::replace(&mut state.gone, gone);
        self.load_changed(instance, gone as i32 - before as i32);
    }

    /// A query that is turned away takes the place that it would have had. Where it is for too many who wait, nobody
    /// can come to fill their pools, and it is a place beside one of them.
    pub(super) fn turned_away(&mut self, now: Time, tenant: u32, reason: RejectReason, commands: &mut Commands) {
        let PlanningSpec::Pool { .. } = self.planning else {
            return;
        };
        let position = match self.repository.entry(tenant) {
            Entry::Loaded(task) => task.position,
            // Of one that has no stream, any.
            Entry::Unknown | Entry::Refused(_) => tenant,
        };
        let (mut instance, stream) = (self.instance_for(position), self.stream_of(position));
        self.placed[stream] += 1;
        if reason == RejectReason::QueueFull {
            let somebody_waits = |instance: &InstanceId| {
                let queue = &self.instances[instance.index()].queue;
                !queue.view(&self.requests).is_empty()
            };
            instance = self.from(instance).find(somebody_waits).unwrap_or(instance);
        }
        self.leave_place(instance);
        self.advance(now, instance, commands);
    }

    /// All instances of an instance's stream, from it on.
    fn from(&self, instance: InstanceId) -> impl Iterator<Item = InstanceId> + use<> {
        let (streams, instances) = (self.loads.len() as u32, self.instances.len() as u32);
        (0..instances / streams).map(move |card| InstanceId((instance.0 + card * streams) % instances))
    }
}
