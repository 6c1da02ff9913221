//! Which request goes to which instance: at arrival, after an eviction, and when cards are to be emptied (Punica,
//! section 5.1).

use std::ops::Range;

use super::*;
use crate::op::{Fetch, SharedPrefix};

impl GenerationServer {
    /// Gives requests to instances, in the queue's order, until none fits; then asks those instances for work.
    ///
    /// An instance may have room if the run under way has not used what it was promised. Then that run is interrupted,
    /// and the request waits for its next step to know, while others are placed. Where tenants have turns, that is so
    /// for [`asking::ASKS_IN_TURN`] runs: after these all others wait too, or smaller requests would take what room
    /// there is for ever.
    #[inline(always)]
    pub(super) fn dispatch(&mut self, now: Time, commands: &mut Commands) {
        // Mostly nobody waits, or all instances are full.
        if (!self.queue.is_empty() && !self.are_full()) || !self.parked.is_empty() {
            self.dispatch_waiting(now, commands);
        }
    }

    /// Whether no instance takes another request, whatever pages it has.
    #[inline]
    fn are_full(&self) -> bool {
        let least = match self.instances.as_slice() {
            [only] => only.load(),
            // Loads count those that are parked, who are in no batch.
            _ if self.spec.disaggregated.is_some() => 0,
            _ => self.by_load.least(),
        };
        least >= self.spec.max_batch
    }

    #[inline(never)]
    fn dispatch_waiting(&mut self, now: Time, commands: &mut Commands) {
        loop {
            // Again after each that is placed: what it brings into host memory may be what the next transfer lacked.
            self.dispatch_parked(now, commands);
            self.settle_turns();
            let Some((id, instance)) = self.next_placement() else {
                break;
            };
            if self.has_pages(id, instance, Instance::free_pages) {
                self.put(now, id, instance, commands);
                self.touched.push(instance);
            } else if self.sequences[id].holds_others_up() {
                self.sequences[id].asked = Some(instance);
                self.interrupt(instance, commands);
                break;
            } else {
                self.ask(id, instance, commands);
            }
        }
        if !self.touched.is_empty() {
            self.advance_touched(now, commands);
        }
    }

    fn advance_touched(&mut self, now: Time, commands: &mut Commands) {
        let mut touched = std::mem::take(&mut self.touched);
        for instance in touched.drain(..) {
            self.advance(now, instance, commands);
        }
        self.touched = touched;
    }

    /// The request that is next, and where it goes: at once, or when that instance's run is over.
    #[inline]
    pub(super) fn next_placement(&self) -> Option<(RequestId, InstanceId)> {
        let first = self.queue.first().filter(|_| !self.are_full())?;
        if self.spec.join == JoinSpec::QueuePerTenant
            && let Some(placement) = self.next_of_a_turn(first)
        {
            return Some(placement);
        }
        let instance = match self.spec.disaggregated {
            None => {
                let before = self.placed + u64::from(self.queue.asking());
                self.choose(first, self.place_of(first), 0..self.instances.len() as u32, before)
            }
            // To have many prompts on one card would only let them wait for each other.
            Some(_) => self.choose(first, PlaceSpec::LeastLoaded, 0..self.spec.prefill_instances(), 0),
        };
        instance.map(|instance| (first, instance))
    }

    /// Which instance a request goes to that generates there. Who was moved would go back to the one that was emptied,
    /// where the least loaded is chosen.
    pub(super) fn place_of(&self, id: RequestId) -> PlaceSpec {
        match self.sequences[id].is_moved {
            true => PlaceSpec::LargestWorkingSet,
            false => self.place,
        }
    }

    /// Where a request goes of these instances: at once, or when that instance's run is over. `before` it, so many
    /// others went there.
    pub(super) fn choose(&self, id: RequestId, place: PlaceSpec, among: Range<u32>, before: u64) -> Option<InstanceId> {
        let fits =
            |instance: InstanceId| among.contains(&instance.0) && self.fits(id, instance, Instance::perhaps_free_pages);
        if self.instances.len() == 1 {
            return Some(InstanceId(0)).filter(|&only| fits(only));
        }
        // An instance that has room when it is asked keeps its word.
        let asked = self.sequences[id]
            .asked
            .filter(|asked| among.contains(&asked.0) && self.fits(id, *asked, Instance::free_pages));
        // Those that are full may be many, and so may those of other tenants.
        let below = match self.spec.disaggregated {
            None => self.spec.max_batch,
            Some(_) => u32::MAX,
        };
        let tenant = self.sequences[id].tenant;
        match (place, &self.by_tenant) {
            _ if asked.is_some() => asked,
            (PlaceSpec::LargestWorkingSet, Some(by_tenant)) => by_tenant.most_loaded(tenant, below, fits),
            (PlaceSpec::LargestWorkingSet, None) => self.by_load.most_loaded(below, fits),
            (PlaceSpec::LeastLoaded, Some(by_tenant)) => by_tenant.least_loaded(tenant, below, fits),
            // Who is parked makes nobody wait there, and is among the loads that instances are ordered by.
            (PlaceSpec::LeastLoaded, None) if self.spec.disaggregated.is_some() => {
                let mut least = None;
                for instance in among.clone().map(InstanceId) {
                    let load = self.instances[instance.index()].in_batch();
                    if least.is_none_or(|(of, _)| load < of) && fits(instance) {
                        least = Some((load, instance));
                    }
                }
                least.map(|(_, instance)| instance)
            }
            (PlaceSpec::LeastLoaded, None) => self.by_load.least_loaded(below, fits),
            (PlaceSpec::RoundRobin, _) => {
                let count = among.len() as u64;
                let mut in_turn = (0..count).map(|step| InstanceId(among.start + ((before + step) % count) as u32));
                in_turn.find(|&instance| fits(instance))
            }
        }
    }

    /// The tenant of those on an instance, where all are of one.
    pub(super) fn tenant_on(&self, state: &Instance) -> Option<u32> {
        let id = state.here().next()?;
        Some(self.sequences[id].tenant)
    }

    /// Whether an instance has room for a request: among those that run, for its prompt and one page more, and for its
    /// adapters.
    pub(super) fn fits(&self, id: RequestId, instance: InstanceId, free: impl Fn(&Instance) -> u32) -> bool {
        self.takes(instance, id) && self.has_pages(id, instance, free)
    }

    /// Likewise, for its prompt and one page more.
    pub(super) fn has_pages(&self, id: RequestId, instance: InstanceId, free: impl Fn(&Instance) -> u32) -> bool {
        let state = &self.instances[instance.index()];
        self.pages_wanted(id, instance) + state.asked_pages() <= free(state)
    }

    /// For its prompt, and one page more.
    pub(super) fn pages_wanted(&self, id: RequestId, instance: InstanceId) -> u32 {
        let state = &self.instances[instance.index()];
        let sequence = &self.sequences[id];
        let shared = state.prefixes.would_share(sequence.tenant, sequence.prompt_tokens);
        let pages = state.pages.of(sequence.tokens()) - shared;
        // With nobody beside it, it has the whole cache: there is no larger one.
        pages + u32::from(state.load() > 0)
    }

    /// Whether an instance has room for a request, pages aside.
    fn takes(&self, instance: InstanceId, id: RequestId) -> bool {
        let state = &self.instances[instance.index()];
        let sequence = &self.sequences[id];
        if state.in_batch() >= self.spec.max_batch || state.emptying || !self.is_there(instance) {
            return false;
        }
        let same_tenant = || self.tenant_on(state).is_none_or(|tenant| tenant == sequence.tenant);
        let among_those = match self.spec.join {
            JoinSpec::AnyTenant => true,
            JoinSpec::HeadRun | JoinSpec::QueuePerTenant => same_tenant(),
            JoinSpec::HeadRunStatic => !state.closed && same_tenant(),
        };
        among_those
            && state.slots.as_ref().is_none_or(|slots| slots.has_room_for(sequence.tenant))
            && (self.host_has_room_for(sequence.tenant)
                || state.slots.as_ref().is_some_and(|slots| slots.holds(sequence.tenant)))
    }

    /// Whether a tenant's adapters can come through host memory, where that does not hold all tenants'.
    pub(super) fn host_has_room_for(&self, tenant: u32) -> bool {
        self.host.as_ref().is_none_or(|host| host.has_room_for(tenant))
    }

    /// Whether an instance's cards are there, with the model, where they come and go.
    fn is_there(&self, instance: InstanceId) -> bool {
        self.cards.as_ref().is_none_or(|cards| cards.serves(instance))
    }

    /// Puts a request on an instance; its tenant's adapters begin to come in, if they must.
    fn put(&mut self, now: Time, id: RequestId, instance: InstanceId, commands: &mut Commands) {
        let turn = self.sequences[id].turn;
        self.queue.remove(id, &self.sequences[id]);
        self.reconsider_turns_after(id, turn);
        self.placed += 1;
        self.tenancy.enter(self.sequences[id].tenant);
        let prefills_only = self.only_prefills(instance);
        let load = self.instances[instance.index()].load();
        if load == 0 {
            self.begin_turn(now, instance);
        }
        let state = &mut self.instances[instance.index()];
        let sequence = &mut self.sequences[id];
        self.queue.charge(sequence);
        sequence.place = Place::Instance(instance);
        // Where its prompt is taken in alone, it has not come to where it was to go.
        sequence.is_moved &= prefills_only;
        sequence.asked = None;
        sequence.turn = None;
        sequence.queued += now.since(sequence.queued_since);
        let version = self.versions.get(&sequence.tenant).copied().unwrap_or(0);
        let is_of_this_version = std::mem::replace(&mut sequence.version, version) == version;
        let mut was_cached_once = 0;
        if let Some((there, left, was_cached)) = sequence.left.take() {
            let found = match self.spec.prefix_caching && there == instance && is_of_this_version {
                // The last token is computed anyway, for the one that follows it.
                true => state.pages.intact_tokens(left).min(was_cached),
                false => 0,
            };
            sequence.cached_tokens = found;
            sequence.to_prefill -= found;
            was_cached_once = was_cached;
        }
        let PrefixPages { found, begun, outgrown } = state.enter_prefix(sequence);
        if found > 0 {
            let found_tokens = state.pages.tokens(found);
            sequence.cached_tokens = found_tokens;
            sequence.to_prefill -= found_tokens;
            self.counts.shared_tokens += u64::from(found_tokens);
        }
        self.counts.recomputed_tokens += u64::from(was_cached_once.saturating_sub(sequence.cached_tokens));
        let tokens = sequence.cached_tokens + sequence.to_prefill - state.pages.tokens(sequence.shared_pages());
        let wanted = begun + state.pages.of(tokens);
        self.let_go(instance, outgrown, commands);
        self.reclaim(instance, wanted, commands);
        let state = &mut self.instances[instance.index()];
        let sequence = &mut self.sequences[id];
        state.pages.take(begun);
        state.pages.resize(&mut sequence.pages, tokens);
        state.joining.push_back(id);
        self.pin(id, instance, commands);
        if self.lookups == LookupsInSteps::NewTokens {
            self.retrieve(id, instance, commands);
        }
        self.reload(instance, load);
        let state = &self.instances[instance.index()];
        if !state.closed && self.sequences[id].is_ready(&state.copies) {
            self.interrupt(instance, commands);
        }
    }

    /// Finds or makes room for what a request's tenant has of its own, which begins to come in if it must.
    pub(super) fn pin(&mut self, id: RequestId, instance: InstanceId, commands: &mut Commands) {
        let state = &mut self.instances[instance.index()];
        let Some(slots) = &mut state.slots else { return };
        let sequence = &mut self.sequences[id];
        match slots.acquire(sequence.tenant, false, |_| false) {
            Acquired::Hit(slot) => sequence.slot = slot,
            Acquired::Miss(slot) => {
                sequence.slot = slot;
                state.copies[slot as usize] += 1;
                slots.counts.bytes_in += self.memory.tenant_bytes();
                let load = Waiting {
                    instance,
                    slot,
                    member: step::member(id, sequence),
                };
                self.load(load, commands);
            }
            Acquired::Full => unreachable!("a request that fits has a slot"),
        }
    }

    /// Lets go of prefixes that nobody reads until so many pages are unused, or there are none.
    #[inline]
    pub(super) fn reclaim(&mut self, instance: InstanceId, pages: u32, commands: &mut Commands) {
        let state = &mut self.instances[instance.index()];
        state.pages.set_idle(state.prefixes.idle_pages());
        if state.pages.unused() < pages {
            self.reclaim_prefixes(instance, pages, commands);
        }
    }

    #[inline(never)]
    pub(super) fn reclaim_prefixes(&mut self, instance: InstanceId, pages: u32, commands: &mut Commands) {
        while self.instances[instance.index()].pages.unused() < pages {
            let Some(unread) = self.instances[instance.index()].prefixes.reclaim() else {
                break;
            };
            self.let_go(instance, Some(unread), commands);
        }
    }

    /// Lets go of a prefix's pages, if there is one to be let go of.
    pub(super) fn let_go(&mut self, instance: InstanceId, unread: Option<SharedPrefix>, commands: &mut Commands) {
        let state = &mut self.instances[instance.index()];
        if let Some(SharedPrefix { id: prefix, mut pages }) = unread {
            state.pages.resize(&mut pages, 0);
            commands.list.push(Command::ReleasePrefix { instance, prefix });
        }
        state.pages.set_idle(state.prefixes.idle_pages());
    }

    /// Brings a tenant's adapters into a slot: from host memory, and into that from the disk where they are not there.
    pub(super) fn load(&mut self, load: Waiting, commands: &mut Commands) {
        let found = self.host.as_mut().map(|host| host.load(load));
        let (host_slot, is_read) = match found {
            None => (NO_SLOT, false),
            Some(InHost::Waits) => return,
            Some(InHost::There(slot)) => (slot, false),
            Some(InHost::Read(slot)) => (slot, true),
        };
        let Waiting { instance, slot, member } = load;
        let batch = self.flights.insert(Flight::Load {
            instance,
            tenant: member.tenant,
            slot,
            host_slot,
            is_read,
        });
        let mark = commands.mark();
        commands.members.push(member);
        commands.loads.push(Load {
            tenant: member.tenant,
            slot,
        });
        let lanes = &self.topology.instances[instance.index()];
        if is_read {
            commands.ops.push(Op {
                kind: OpKind::Fetch(Fetch {
                    bytes: self.memory.stored_bytes(),
                    slot: host_slot,
                }),
                lane: self.topology.disk.expect("where host memory does not hold all, it is read from a disk"),
                after: After::NONE,
                behind: false,
                told: false,
            });
        }
        commands.ops.push(Op {
            kind: OpKind::CopyIn(CopyIn {
                layers: self.layers,
                chunks: 1,
                // Each card has its part of them, over a link of its own.
                chunk_bytes: self.memory.tenant_bytes() / u64::from(self.spec.tensor_parallel),
            }),
            lane: lanes.copy,
            after: if is_read { After::op(0) } else { After::NONE },
            behind: false,
            told: true,
        });
        let shape = BatchShape {
            requests: 1,
            tokens: 0,
            input_tokens: 0,
            tenants: 1,
        };
        commands.submit(batch, instance, shape, mark);
    }

    /// Likewise for a load that has waited for host memory, if anybody still wants it. All who did may have left
    /// meanwhile, and the slot be another tenant's, whose adapters it would replace.
    pub(super) fn load_after_waiting(&mut self, now: Time, load: Waiting, commands: &mut Commands) {
        let Waiting { instance, slot, member } = load;
        let state = &mut self.instances[instance.index()];
        let holds = state.slots.as_ref().is_some_and(|slots| slots.holds_in(member.tenant, slot));
        let waits = |&id: &RequestId| {
            let sequence = &self.sequences[id];
            sequence.slot == slot && sequence.tenant == member.tenant
        };
        if holds || state.joining.iter().any(waits) {
            self.load(load, commands);
        } else {
            state.copies[slot as usize] -= 1;
            self.interrupt_if_ready(instance, commands);
            self.advance(now, instance, commands);
        }
    }

    /// Lets the newest request of an instance go, for its pages: the order in which requests have their turns is kept
    /// (Punica, Section 5.3). Where it is not that of arrival, the newest of the tenant that was served most goes. Who
    /// has its last token has nothing to come back for: it keeps its pages until its batch is over, which it is once
    /// all others are gone.
    pub(super) fn evict_newest(&mut self, now: Time, instance: InstanceId, commands: &mut Commands) {
        let here = self.instances[instance.index()].here();
        let here = here.filter(|&id| self.sequences[id].ended.is_none());
        // What is being copied here keeps its pages until it has been.
        let here = here.filter(|&id| self.sequences[id].transferred != Transferred::Coming);
        let newest = here.max_by_key(|&id| {
            let sequence = &self.sequences[id];
            (self.queue.served(sequence.tenant), sequence.order())
        });
        let newest = newest.expect("pages are wanted by somebody");
        self.leave(now, newest, instance, commands);
        self.counts.evictions += u64::from(self.requeue(now, newest, commands));
    }

    /// Puts a request that has left its instance back into the queue; what it had cached must be computed again. False
    /// where no whole cache holds that, or its tenant's model was deleted meanwhile: then it fails.
    pub(super) fn requeue(&mut self, now: Time, id: RequestId, commands: &mut Commands) -> bool {
        if self.tenancy.is_deleted(self.sequences[id].tenant) {
            self.finish(now, id, Verdict::Failed(FailureReason::Deleted), commands);
            return false;
        }
        let sequence = &mut self.sequences[id];
        sequence.to_prefill = sequence.tokens();
        sequence.cached_tokens = 0;
        let fits = self.fits_a_cache(id);
        if fits {
            self.queue.push(id, &self.sequences[id]);
            self.reconsider_turns_since(self.sequences[id].arrival);
        } else {
            self.finish(now, id, Verdict::Failed(FailureReason::OutOfMemory), commands);
        }
        fits
    }

    /// Whether a whole cache holds a request, with what it has generated.
    pub(super) fn fits_a_cache(&self, id: RequestId) -> bool {
        let pages = &self.instances[0].pages;
        pages.of(self.sequences[id].tokens()) <= pages.total()
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
    ///
    /// Only one whose requests have all made a token since they came to it: else requests whose prompts, or whose
    /// tenants' adapters, take longer than the period could be moved for ever.
    #[inline(never)]
    pub(super) fn consolidate(&mut self, now: Time, commands: &mut Commands) {
        self.consolidation_set = false;
        let Some(consolidate) = self.spec.consolidate else {
            return;
        };
        // A card that only takes prompts in is empty when they are over.
        let mut busy = self.by_load.busy().iter().copied();
        let least = busy.find(|&(_, instance)| !self.only_prefills(instance));
        let Some((load, instance)) = least.filter(|&(load, _)| load <= consolidate.light) else {
            return;
        };
        if !self.is_settled(instance) {
            // A run that took prompts in and goes on for long says so when it ends: before the next time.
            self.interrupt(instance, commands);
            return;
        }
        if !self.has_room_elsewhere(load, instance) {
            return;
        }
        self.instances[instance.index()].emptying = true;
        match self.instances[instance.index()].run {
            Some(_) => self.interrupt(instance, commands),
            None => self.empty(now, instance, commands),
        }
        // Who waited for this instance's run goes elsewhere now, if there is room, and does not come back when it is
        // empty.
        for asked in &self.instances[instance.index()].asking {
            self.sequences[asked.id].asked = None;
        }
        self.answer(instance);
        self.dispatch(now, commands);
    }

    /// Whether all on an instance have made a token since they came to it, and may go on elsewhere: where its tenant's
    /// model is deleted, a request ends where it is.
    fn is_settled(&self, instance: InstanceId) -> bool {
        let mut here = self.instances[instance.index()].here();
        here.all(|id| {
            let sequence = &self.sequences[id];
            sequence.to_prefill == 0 && !self.tenancy.is_deleted(sequence.tenant)
        })
    }

    /// Whether somebody on an instance ends where it is, since its tenant was deleted, and has more to make.
    pub(super) fn has_deleted(&self, instance: InstanceId) -> bool {
        let mut here = self.instances[instance.index()].here();
        here.any(|id| self.sequences[id].ended.is_none() && self.tenancy.is_deleted(self.sequences[id].tenant))
    }

    /// Whether instances that run more than this one, which runs `load`, have room for everyone on it.
    fn has_room_elsewhere(&self, load: u32, instance: InstanceId) -> bool {
        let more_loaded = self.by_load.after(load, instance).iter().rev();
        let mut others: Vec<(InstanceId, u32, u32)> = more_loaded
            .filter(|&&(_, other)| !self.only_prefills(other))
            .map(|&(load, other)| {
                let requests = self.spec.max_batch.saturating_sub(load);
                let state = &self.instances[other.index()];
                // As where requests are placed: a run that was promised the pages is asked to end.
                let free = state.perhaps_free_pages().saturating_sub(state.asked_pages());
                (other, requests, free)
            })
            .collect();
        let state = &self.instances[instance.index()];
        let mut going_on = state.running.iter().filter(|&&id| self.sequences[id].ended.is_none());
        going_on.all(|&id| {
            let sequence = &self.sequences[id];
            let generated_tokens = sequence.generated_tokens + state.generating.steps_since(sequence.since);
            // With what it generated, and a page more, as for any that comes.
            let pages = state.pages.of(sequence.prompt_tokens + generated_tokens) + 1;
            let place = others
                .iter_mut()
                .find(|(other, requests, free)| *requests > 0 && *free >= pages && self.takes(*other, id));
            place.is_some_and(|(_, requests, free)| {
                *requests -= 1;
                *free -= pages;
                true
            })
        })
    }

    /// Sends everyone on an instance back to the queue, but those who have their last token: they are answered.
    pub(super) fn empty(&mut self, now: Time, instance: InstanceId, commands: &mut Commands) {
        let state = &self.instances[instance.index()];
        let all: Vec<RequestId> = state.here().collect();
        for id in all {
            self.leave(now, id, instance, commands);
            if self.sequences[id].ended.is_some() {
                self.finish_ended(now, id, commands);
                continue;
            }
            self.sequences[id].is_moved = true;
            self.counts.migrations += u64::from(self.requeue(now, id, commands));
        }
    }
}
