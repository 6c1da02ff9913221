//! Which request goes to which instance: at arrival, after an eviction, and when cards are to be emptied (Punica, section 5.1).

use super::*;

impl GenerationServer {
    /// Gives requests to instances, first come first served, until none fits; then asks those instances for work.
    ///
    /// An instance may have room if the run under way has not used what it was promised. Then that run is interrupted, and the
    /// request waits for its next step to know.
    pub(super) fn dispatch(&mut self, now: Time, commands: &mut Commands) {
        let mut touched = std::mem::take(&mut self.touched);
        while let Some((id, instance)) = self.next_placement() {
            if !self.fits(id, instance, Pages::free) {
                self.interrupt(instance, commands);
                break;
            }
            self.put(now, id, instance, commands);
            touched.push(instance);
        }
        for instance in touched.drain(..) {
            self.advance(now, instance, commands);
        }
        self.touched = touched;
    }

    /// The request that is next, and where it goes: at once, or when that instance's run is over.
    pub(super) fn next_placement(&self) -> Option<(RequestId, InstanceId)> {
        let first = self.queue.first()?;
        if self.spec.join == JoinSpec::QueuePerTenant {
            let of_its_tenant = |(index, state): (usize, &Instance)| {
                let instance = InstanceId(index as u32);
                let next = self.queue.first_of(self.tenant_on(state)?)?;
                self.fits(next, instance, Pages::perhaps_free)
                    .then_some((next, instance))
            };
            if let Some(placement) = self.instances.iter().enumerate().find_map(of_its_tenant) {
                return Some(placement);
            }
        }
        let fits = |instance: &InstanceId| self.fits(first, *instance, Pages::perhaps_free);
        let instance = match self.place {
            PlaceSpec::LargestWorkingSet => self.by_load.iter().rev().map(|&(_, id)| id).find(fits),
            PlaceSpec::LeastLoaded => self.by_load.iter().map(|&(_, id)| id).find(fits),
            PlaceSpec::RoundRobin => {
                let count = self.instances.len() as u64;
                let in_turn = (0..count).map(|step| InstanceId(((self.placed + step) % count) as u32));
                { in_turn }.find(fits)
            }
        };
        instance.map(|instance| (first, instance))
    }

    /// The tenant of those on an instance, where all are of one.
    fn tenant_on(&self, state: &Instance) -> Option<u32> {
        let id = state.running.first().or(state.joining.front())?;
        Some(self.sequences[*id].tenant)
    }

    /// Whether an instance has room for a request: among those that run, for its prompt and one page more, and for its adapters.
    pub(super) fn fits(&self, id: RequestId, instance: InstanceId, free: fn(&Pages) -> u32) -> bool {
        let state = &self.instances[instance.index()];
        let sequence = &self.sequences[id];
        let tenant = self.tenant_on(state);
        let among_those = match self.spec.join {
            JoinSpec::AnyTenant => true,
            JoinSpec::HeadRun | JoinSpec::QueuePerTenant => tenant.is_none_or(|tenant| tenant == sequence.tenant),
            JoinSpec::HeadRunStatic => !state.closed && tenant.is_none_or(|tenant| tenant == sequence.tenant),
        };
        among_those
            && !state.emptying
            && state.load() < self.spec.max_batch
            && state.pages.of(sequence.to_prefill) < free(&state.pages)
            && state
                .slots
                .as_ref()
                .is_none_or(|slots| slots.has_room_for(sequence.tenant))
    }

    /// Puts a request on an instance; its tenant's adapters begin to come in, if they must.
    fn put(&mut self, now: Time, id: RequestId, instance: InstanceId, commands: &mut Commands) {
        self.queue.remove(id, &self.sequences[id]);
        self.placed += 1;
        let state = &mut self.instances[instance.index()];
        let load = state.load();
        let sequence = &mut self.sequences[id];
        sequence.place = Place::Instance(instance);
        sequence.queued += now.since(sequence.queued_since);
        if let Some((there, left, was_cached)) = sequence.left.take() {
            let found = match self.spec.prefix_caching && there == instance {
                // The last token is computed anyway, for the one that follows it.
                true => state.pages.intact_tokens(left).min(was_cached),
                false => 0,
            };
            sequence.cached_tokens = found;
            sequence.to_prefill -= found;
            self.counts.recomputed_tokens += u64::from(was_cached - found);
        }
        let tokens = sequence.cached_tokens + sequence.to_prefill;
        state.pages.resize(&mut sequence.pages, tokens);
        state.joining.push_back(id);
        let mut ready = true;
        if let Some(slots) = &mut state.slots {
            match slots.acquire(sequence.tenant, false) {
                Acquired::Hit(slot) => {
                    sequence.slot = slot;
                    ready = state.loaded[slot as usize];
                }
                Acquired::Miss(slot) => {
                    sequence.slot = slot;
                    state.loaded[slot as usize] = false;
                    slots.counts.bytes_in += self.memory.adapter_bytes();
                    ready = false;
                    self.load(id, instance, commands);
                }
                Acquired::Full => unreachable!("a request that fits has a slot"),
            }
        }
        self.reload(instance, load);
        if ready && !self.instances[instance.index()].closed {
            self.interrupt(instance, commands);
        }
    }

    fn load(&mut self, id: RequestId, instance: InstanceId, commands: &mut Commands) {
        let Sequence { tenant, slot, .. } = self.sequences[id];
        let batch = self.flights.insert(Flight::Load { instance, tenant, slot });
        let (first_member, first_load, first_op) = (commands.members.len(), commands.loads.len(), commands.ops.len());
        commands.members.push(self.member(id));
        commands.loads.push(Load { tenant, slot });
        let layers = u32::from(self.layers.count);
        commands.ops.push(Op {
            kind: OpKind::CopyIn(CopyIn {
                layers: self.layers,
                chunks: layers,
                chunk_bytes: self.memory.adapter_bytes() / u64::from(layers),
            }),
            lane: self.topology.instances[instance.index()].copy,
            after: After::NONE,
            behind: false,
            told: true,
        });
        commands.list.push(Command::Submit(Submission {
            batch,
            instance,
            shape: BatchShape {
                requests: 1,
                tokens: 0,
                input_tokens: 0,
                tenants: 1,
            },
            members: first_member..commands.members.len(),
            loads: first_load..commands.loads.len(),
            ops: first_op..commands.ops.len(),
        }));
    }

    /// Lets the newest request of an instance go, for its pages.
    pub(super) fn evict_newest(&mut self, now: Time, instance: InstanceId, commands: &mut Commands) {
        let state = &self.instances[instance.index()];
        let here = state.running.iter().chain(&state.joining).copied();
        let newest = here.max_by_key(|&id| self.sequences[id].order());
        let newest = newest.expect("pages are wanted by somebody");
        let alone = state.load() == 1;
        self.leave(now, newest, instance, commands);
        if alone {
            // The whole cache does not hold it, and no other instance has a larger one.
            self.finish(now, newest, Verdict::Failed(FailureReason::OutOfMemory), commands);
        } else {
            self.counts.evictions += 1;
            self.requeue(newest);
        }
    }

    /// The pool's timer runs while there is anybody to move.
    pub(super) fn set_consolidation(&mut self, now: Time, commands: &mut Commands) {
        if let Some(consolidate) = self.spec.consolidate
            && !self.consolidation_set
            && !self.sequences.is_empty()
        {
            self.consolidation_set = true;
            commands.list.push(Command::SetTimer {
                instance: POOL,
                at: now + consolidate.every,
            });
        }
    }

    /// Empties the least loaded instance, if it is lightly loaded and others that run more have room for its requests.
    pub(super) fn consolidate(&mut self, now: Time, commands: &mut Commands) {
        self.consolidation_set = false;
        let Some(consolidate) = self.spec.consolidate else {
            return;
        };
        let least = self.by_load.range((1, POOL)..).next().copied();
        let Some((load, instance)) = least.filter(|&(load, _)| load <= consolidate.light) else {
            return;
        };
        let pages_wanted = self.instances[instance.index()].pages.used() + load;
        let (mut room, mut pages) = (0, 0);
        for &(other_load, other) in self.by_load.range((load, InstanceId(instance.0 + 1))..) {
            let state = &self.instances[other.index()];
            if !state.emptying {
                room += self.spec.max_batch - other_load.min(self.spec.max_batch);
                pages += state.pages.free();
            }
        }
        if room < load || pages < pages_wanted {
            return;
        }
        self.instances[instance.index()].emptying = true;
        match self.instances[instance.index()].run {
            Some(_) => self.interrupt(instance, commands),
            None => {
                self.empty(now, instance, commands);
                self.dispatch(now, commands);
            }
        }
    }

    /// Sends everyone on an instance back to the queue.
    pub(super) fn empty(&mut self, now: Time, instance: InstanceId, commands: &mut Commands) {
        let state = &self.instances[instance.index()];
        let all: Vec<RequestId> = state.running.iter().chain(&state.joining).copied().collect();
        for id in all {
            self.leave(now, id, instance, commands);
            self.counts.migrations += 1;
            self.requeue(id);
        }
    }
}
