//! What holds between events, for tests.

use super::*;

impl GenerationServer {
    /// See [`super::super::Server::check_laws`].
    ///
    /// # Errors
    /// The law that is broken.
    pub fn check_laws(&mut self, now: Time) -> Result<(), String> {
        let placed: u32 = self.instances.iter().map(Instance::placed).sum();
        if placed + self.queue.len() != self.sequences.len() as u32 {
            return Err(format!(
                "{placed} are placed and {} wait, but {} are in flight",
                self.queue.len(),
                self.sequences.len()
            ));
        }
        for instance in self.topology.instance_ids() {
            self.check_instance(now, instance)?;
            self.check_indices(now, instance)?;
        }
        let slots = || self.instances.iter().filter_map(|instance| instance.slots.as_ref());
        let held = |tenant: &u32| !self.tenancy.may_be_resident(*tenant) && slots().any(|slots| slots.holds(*tenant));
        if let Some(tenant) = (0..self.tenants).find(held) {
            return Err(format!("tenant {tenant} is not there at {now}, and its slot is found"));
        }
        self.check_fairness(now)?;
        if let Some(first) = self.queue.first().filter(|_| self.spec.join == JoinSpec::QueuePerTenant)
            && self.next_of_a_turn(first) != self.next_of_all_turns(first)
        {
            return Err(format!("a turn goes on at {now} where nobody looks for one"));
        }
        if let Some((id, instance)) = self.next_placement() {
            let ticket = self.sequences[id].ticket;
            // Where tenants have turns, who has asked often enough waits for the run's end and all others for it.
            let waits_for_run = self.instances[instance.index()].run.is_some() && self.sequences[id].holds_others_up();
            if self.fits(id, instance, Instance::free_pages) || !waits_for_run {
                return Err(format!(
                    "ticket {ticket} waits at {now} while {instance} may have room for it"
                ));
            }
        }
        self.check_transfers(now)?;
        self.check_cards()
    }

    /// Keys and values that are being copied are counted on both sides, and who has room for what waits to be copied
    /// has it.
    fn check_transfers(&self, now: Time) -> Result<(), String> {
        let parked: usize = self.instances.iter().map(|instance| instance.parked.len()).sum();
        let sending: Vec<RequestId> = self
            .instances
            .iter()
            .flat_map(|instance| instance.sending.iter().map(|sending| sending.id))
            .collect();
        let coming = self.sequences.iter().filter(|(_, s)| s.transferred == Transferred::Coming);
        let is_sent = |id: RequestId| sending.iter().filter(|&&other| other == id).count() == 1;
        let comes = coming.map(|(id, _)| is_sent(id)).collect::<Vec<bool>>();
        let waiting = self.parked.len() + self.parked_asking as usize;
        if parked != waiting || comes.len() != sending.len() || comes.contains(&false) {
            return Err(format!(
                "{parked} wait on instances and {waiting} in all to be copied at {now}; {} are sent and {} come",
                sending.len(),
                comes.len()
            ));
        }
        if let Some((id, instance)) = self.next_transfer() {
            let ticket = self.sequences[id].ticket;
            return Err(format!("ticket {ticket} is not copied at {now} to {instance}"));
        }
        Ok(())
    }

    /// Tenants that wait were served the same, up to what one can be given in its turns (Sheng et al., Theorem 4.4): a
    /// prompt, and what all that run generate until they leave. That is more than all caches hold, as it is there,
    /// where some are evicted.
    fn check_fairness(&self, now: Time) -> Result<(), String> {
        let Some(counters) = &self.queue.counters else {
            return Ok(());
        };
        // Whoever runs keeps its instance, whose turn it may be.
        if self.spec.join == JoinSpec::QueuePerTenant {
            return Ok(());
        }
        let cached = u64::from(self.memory.pages) * u64::from(self.spec.page_tokens);
        let longest = u64::from(self.positions).min(cached + 1);
        // Those that are parked have had their turn too, and hold a page each at the least.
        let parked = u64::from(self.memory.pages) * u64::from(self.spec.prefill_instances());
        let running = u64::from(self.spec.max_batch) * self.instances.len() as u64;
        let generated = longest * (running + parked);
        let (spread, most) = (counters.spread(), counters.spread_max(self.positions, generated));
        if spread > most {
            return Err(format!(
                "tenants that wait at {now} were served {spread} weighted tokens more or less than each other, {most} \
                 at most"
            ));
        }
        Ok(())
    }

    fn check_instance(&self, now: Time, instance: InstanceId) -> Result<(), String> {
        let state = &self.instances[instance.index()];
        let parked = || state.parked.iter().map(|&id| &self.sequences[id]);
        let here = || state.here().map(|id| &self.sequences[id]);
        let (shared, readers) = state.prefixes.held();
        for (prefix, counted) in readers {
            let of_those_here = here().chain(parked()).map(|sequence| sequence.prefix);
            let all = of_those_here.chain(state.sending.iter().map(|sending| sending.prefix));
            let read = all.flatten().filter(|of| of.id == prefix).count() as u32;
            if read != counted {
                return Err(format!(
                    "{read} read prefix {prefix} on {instance}, and {counted} are counted"
                ));
            }
        }
        // Those who generate, with what has not been booked on them.
        let booked = state.running.iter().filter_map(|&id| {
            let mut sequence = self.sequences[id].clone();
            (sequence.to_prefill == 0).then(|| {
                state.generating.book(&mut sequence);
                sequence
            })
        });
        let booked: Vec<Sequence> = booked.collect();
        state.generating.check(&booked)?;
        let others = here().filter(|sequence| !sequence.started || sequence.to_prefill > 0);
        let placed = booked.iter().chain(others).chain(parked());
        let sent = state.sending.iter().map(|sending| sending.pages);
        let held: u32 = shared + placed.map(|sequence| sequence.pages).chain(sent).sum::<u32>();
        if self.only_prefills(instance) && !booked.is_empty() {
            return Err(format!("somebody generates on {instance}, which only takes prompts in"));
        }
        if held != state.pages.used() || held > state.pages.total() {
            return Err(format!(
                "requests and prefixes on {instance} hold {held} pages, and {} of {} are used",
                state.pages.used(),
                state.pages.total()
            ));
        }
        let could_run = |sequence: &Sequence| sequence.ended.is_none() && sequence.is_ready(&state.copies);
        if state.run.is_none() && here().any(could_run) {
            return Err(format!("{instance} is idle at {now} while somebody is ready to run"));
        }
        let ended = here().filter(|sequence| sequence.ended.is_some()).count() as u32;
        if ended != state.ended || (ended > 0 && ended == state.placed()) {
            return Err(format!(
                "{ended} wait for others on {instance} at {now}, {} are counted, and {} are there",
                state.ended,
                state.placed()
            ));
        }
        self.check_asking(now, instance)?;
        if state.in_batch() > self.spec.max_batch {
            return Err(format!("{} requests are in {instance}'s batch", state.in_batch()));
        }
        if let Some(sequence) = here().chain(parked()).find(|s| s.place != Place::Instance(instance)) {
            return Err(format!("ticket {} is on {instance} and elsewhere", sequence.ticket));
        }
        Ok(())
    }

    /// How many requests an instance has, and whose, is known where it is looked for. One instance is no order.
    fn check_indices(&self, now: Time, instance: InstanceId) -> Result<(), String> {
        let state = &self.instances[instance.index()];
        if self.instances.len() > 1 && !self.by_load.holds(instance, state.load()) {
            return Err(format!(
                "{instance} has {} requests at {now}, and is looked for elsewhere",
                state.load()
            ));
        }
        let there = (self.tenant_on(state), state.load());
        let by_tenant = self.by_tenant.as_ref();
        match by_tenant.map(|by_tenant| by_tenant.place(instance)) {
            Some(taken) if taken != there => Err(format!(
                "{instance} has {there:?} at {now} (tenant, requests), and is looked for as with {taken:?}"
            )),
            _ => Ok(()),
        }
    }

    /// Those that have asked an instance are in no queue, and it will say whether it has room for all of them.
    fn check_asking(&self, now: Time, instance: InstanceId) -> Result<(), String> {
        let state = &self.instances[instance.index()];
        for asked in &state.asking {
            let sequence = &self.sequences[asked.id];
            let may_have_room = state.asked_pages() <= state.perhaps_free_pages() && !state.emptying;
            let is_asked = state.run.is_some_and(|run| !run.interruptible) && sequence.asked == Some(instance);
            let waits_twice = self.queue.holds(asked.id, sequence) || self.parked.contains(&sequence.parked(asked.id));
            if !may_have_room || !is_asked || waits_twice {
                return Err(format!(
                    "ticket {} asks {instance} at {now}, which will not say that it has room",
                    sequence.ticket
                ));
            }
        }
        Ok(())
    }
}
