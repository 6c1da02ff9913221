//! Management requests: tenants come, change and go while others generate.

use super::*;
use crate::op::Manage;

impl GenerationServer {
    #[inline(never)]
    pub(super) fn manage(&mut self, now: Time, request: ManageRequest, commands: &mut Commands) {
        match self.tenancy.begin(request, commands) {
            Begun::Nothing => {}
            Begun::Submit(manage) => self.submit_manage(request, manage, commands),
            Begun::Delete(tenant) => self.delete(now, tenant, commands),
        }
    }

    pub(super) fn submit_manage(&mut self, request: ManageRequest, manage: Manage, commands: &mut Commands) {
        let batch = self.flights.insert(Flight::Manage(request));
        self.tenancy.submit(batch, manage, &self.topology, commands);
    }

    /// Nobody finds the tenant's slots, and who waits in the queue has waited in vain; who is on an instance goes on
    /// there. Deletion is rare, so it searches.
    fn delete(&mut self, now: Time, tenant: u32, commands: &mut Commands) {
        self.invalidate(now, tenant, commands);
        let waits =
            |(_, sequence): &(RequestId, &Sequence)| sequence.tenant == tenant && sequence.place == Place::Queue;
        let waiting: Vec<RequestId> = self.sequences.iter().filter(waits).map(|(id, _)| id).collect();
        for &id in &waiting {
            self.forget_asking(id);
            self.queue.remove(id, &self.sequences[id]);
            self.finish(now, id, Verdict::Failed(FailureReason::Deleted), commands);
        }
        if let Some(request) = self.tenancy.unused(tenant) {
            self.submit_manage(request, discard(request), commands);
        }
        // Who is first may be another now, and a slot may have become free.
        self.dispatch(now, commands);
    }

    /// Nobody finds what is there of a tenant's former version, nor goes on from what it has computed.
    fn invalidate(&mut self, now: Time, tenant: u32, commands: &mut Commands) {
        *self.versions.entry(tenant).or_default() += 1;
        if let Some(host) = &mut self.host {
            host.invalidate(tenant);
        }
        for instance in self.topology.instance_ids() {
            let state = &mut self.instances[instance.index()];
            if let Some(slots) = &mut state.slots {
                slots.invalidate(tenant);
            }
            let unread = state.prefixes.invalidate(tenant);
            self.let_go(instance, unread, commands);
            self.answer(instance);
        }
        let parked = self.parked.iter().map(|&(_, _, id)| id);
        let of_tenant: Vec<RequestId> = parked.filter(|&id| self.sequences[id].tenant == tenant).collect();
        for id in of_tenant {
            self.unpark(now, id, commands);
        }
    }

    pub(super) fn managed(
        &mut self,
        now: Time,
        request: ManageRequest,
        failed: Option<FailureReason>,
        commands: &mut Commands,
    ) {
        let (renewed, unused) = self.tenancy.ended(request, failed, commands);
        if renewed {
            self.invalidate(now, request.change.of(), commands);
        }
        if let Some(request) = unused {
            self.submit_manage(request, discard(request), commands);
        }
        // A slot may have become free.
        self.dispatch(now, commands);
    }
}
