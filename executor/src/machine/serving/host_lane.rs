//! Copies and look-ups of an encoder's instances, and the allocation program.

use super::*;
use crate::device::synchronize;

/// Looks up in host memory, and copies to the device: what was looked up, and tenants' parameters. A lane is given all
/// of these or some.
pub(super) struct HostLane {
    pub retrieval: Option<Arc<Retrieval>>,
    pub kind: Kind,
    pub device: Device,
    /// Those that are computed, and so have parameters.
    pub computed: Layers,
    pub store: Store,
    /// By instance.
    pub slots: Vec<Slots>,
    /// By instance and slot: what was begun to be copied there, until its last layer is. Its later layers are of the
    /// same version, whatever has come to the store meanwhile.
    pub begun: BTreeMap<(InstanceId, u32), Tensor>,
    pub bad_slots: BadSlots,
    pub manager: Manager,
    /// By instance and then by stream, where instances have runtimes.
    pub runtimes: Vec<Vec<Encoder>>,
    /// By stream: what those are loaded from.
    pub weights: Vec<Encoder>,
}

impl HostLane {
    fn load(&mut self, instance: InstanceId, tenant: u32, slot: u32, layers: Layers) -> Result<(), FailureReason> {
        if self.store.sets().is_some_and(|sets| tenant >= sets.tenants()) {
            return Err(FailureReason::LoadFailed);
        }
        let loaded = match (&self.store, &self.slots[instance.index()]) {
            (Store::Models(store), Slots::Models(slots)) => slots.load(store, tenant, slot),
            (Store::Adapters(store), Slots::Adapters(cache, _)) => {
                let at = (instance, slot);
                if layers.first == self.computed.first {
                    self.begun.insert(at, store.block(tenant));
                }
                let block = self.begun.entry(at).or_insert_with(|| store.block(tenant));
                cache.issue_load(block, slot, layers.range())
            }
            _ => return Err(FailureReason::LoadFailed),
        };
        loaded.map_err(|error| reason(&error, FailureReason::LoadFailed))
    }

    fn copy_in(&mut self, batch: &Batch, layers: Layers) {
        for load in &batch.loads {
            let result = self.load(batch.instance, load.tenant, load.slot, layers);
            let mut bad = self.bad_slots.lock().expect("no lane panics with the list");
            let Err(reason) = result else {
                // The first layer's copy makes a slot good again; a later layer's does not mend an earlier one's
                // failure.
                if layers.first == self.computed.first {
                    bad.remove(&(batch.instance, load.slot));
                }
                continue;
            };
            bad.insert((batch.instance, load.slot));
            fail_those(batch, reason, |member| member.tenant == load.tenant);
        }
        // All are issued before any is waited for.
        if let Err(error) = synchronize(self.device) {
            let mut bad = self.bad_slots.lock().expect("no lane panics with the list");
            bad.extend(batch.loads.iter().map(|load| (batch.instance, load.slot)));
            fail_all(batch, reason(&error, FailureReason::LoadFailed));
        }
        // What has come in whole is read no more: the memory of a version that the store has let go of goes with it.
        if layers.range().end == self.computed.range().end {
            for load in &batch.loads {
                self.begun.remove(&(batch.instance, load.slot));
            }
        }
    }
}

impl Perform for HostLane {
    fn device(&self) -> Device {
        self.device
    }

    fn prepare(&mut self) -> Result<(), ExecutorError> {
        prepare_lane_thread();
        Ok(())
    }

    fn perform(&mut self, kind: &OpKind, batch: &Batch) {
        let retrieval = || self.retrieval.as_ref().expect("a pool that looks up has tables");
        match kind {
            OpKind::CopyIn(copy) => self.copy_in(batch, copy.layers),
            OpKind::Lookup(_) | OpKind::Stage(_) if is_lost(batch) => {}
            OpKind::Lookup(_) => {
                if let Err(error) = retrieval().look_up(batch) {
                    fail_all(batch, reason(&error, FailureReason::LookupFailed));
                }
            }
            OpKind::Stage(_) => {
                if let Err(error) = retrieval().stage(batch, self.kind) {
                    fail_all(batch, reason(&error, FailureReason::LoadFailed));
                }
            }
            OpKind::Manage(manage) => self.manager.perform(manage, batch),
            OpKind::LoadRuntime(load) => {
                // A runtime's weights are its stream's model's, whatever its length.
                let stream = usize::from(load.runtime.stream);
                let runtime = &mut self.runtimes[batch.instance.index()][stream];
                if let Err(error) = runtime.load(self.weights[stream].parameters()) {
                    fail_all(batch, reason(&error, FailureReason::LoadFailed));
                }
            }
            _ => unreachable!("a host's lane computes nothing"),
        }
    }
}

/// Solves the allocation program on a thread of its own.
pub(super) struct SolverLane;

impl Perform for SolverLane {
    fn perform(&mut self, _: &OpKind, batch: &Batch) {
        let question = batch.question.as_ref().expect("a solver is asked something");
        let answer = tenantry_solver::answer_or_keep(question);
        *batch.answer.lock().expect("no lane panics with the answer") = Some(answer);
    }
}
