//! What holds between events, for tests.

use super::*;

impl GenerationServer {
    /// See [`super::super::Server::check_laws`].
    ///
    /// # Errors
    /// The law that is broken.
    pub fn check_laws(&mut self, now: Time) -> Result<(), String> {
        let placed: u32 = self.instances.iter().map(Instance::load).sum();
        if placed + self.queue.len() != self.sequences.len() as u32 {
            return Err(format!(
                "{placed} are placed and {} wait, but {} are in flight",
                self.queue.len(),
                self.sequences.len()
            ));
        }
        for instance in self.topology.instance_ids() {
            self.check_instance(now, instance)?;
        }
        let slots = || self.instances.iter().filter_map(|instance| instance.slots.as_ref());
        let held = |tenant: &u32| !self.tenancy.may_be_resident(*tenant) && slots().any(|slots| slots.holds(*tenant));
        if let Some(tenant) = (0..self.tenants).find(held) {
            return Err(format!("tenant {tenant} is not there at {now}, and its slot is found"));
        }
        if let Some((id, instance)) = self.next_placement() {
            let ticket = self.sequences[id].ticket;
            if self.fits(id, instance, Pages::free) {
                return Err(format!(
                    "ticket {ticket} waits at {now} while {instance} has room for it"
                ));
            }
            if self.instances[instance.index()].run.is_none() {
                return Err(format!(
                    "ticket {ticket} waits at {now} for a run of {instance} that is not there"
                ));
            }
        }
        Ok(())
    }

    fn check_instance(&self, now: Time, instance: InstanceId) -> Result<(), String> {
        let state = &self.instances[instance.index()];
        let here = || {
            state
                .running
                .iter()
                .chain(&state.joining)
                .map(|&id| &self.sequences[id])
        };
        let held: u32 = here().map(|sequence| sequence.pages).sum();
        if held != state.pages.used() || held > state.pages.total() {
            return Err(format!(
                "requests on {instance} hold {held} pages, and {} of {} are used",
                state.pages.used(),
                state.pages.total()
            ));
        }
        let ready = |sequence: &Sequence| sequence.slot == NO_SLOT || state.loaded[sequence.slot as usize];
        if state.run.is_none() && here().any(ready) {
            return Err(format!("{instance} is idle at {now} while somebody is ready to run"));
        }
        if state.load() > self.spec.max_batch {
            return Err(format!("{} requests are on {instance}", state.load()));
        }
        if let Some(sequence) = here().find(|s| s.place != Place::Instance(instance)) {
            return Err(format!("ticket {} is on {instance} and elsewhere", sequence.ticket));
        }
        Ok(())
    }
}
