//! Prompts that are taken in on some instances and go on at others (DistServe, Zhong et al., OSDI 2024; Splitwise,
//! Patel et al., ISCA 2024).
//!
//! A request that has its first token is *parked*: its pages stay where they are, as in a queue, until an instance that
//! makes the further tokens has room for it. Then pages are taken there, its tenant's adapters begin to come in, and
//! its keys and values are copied; both sides hold pages until they have been. It joins the others with the token made
//! last as all that is left of its prompt. Whoever is evicted there is taken in anew, from its prompt, on an instance
//! that takes prompts in.

use super::*;
use crate::op::{SharedPrefix, Transfer};

/// What an instance keeps of a request whose keys and values are being copied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    pub id: RequestId,
    pub pages: u32,
    pub prefix: Option<SharedPrefix>,
}

impl GenerationServer {
    /// Those whose prompts are complete on an instance that only takes prompts in make no tokens there.
    pub(super) fn park(&mut self, now: Time, instance: InstanceId, commands: &mut Commands) {
        loop {
            let state = &mut self.instances[instance.index()];
            let mut running = state.running.iter();
            let Some(at) = running.position(|&id| self.sequences[id].to_prefill == 0) else {
                return;
            };
            let id = state.running.remove(at);
            let sequence = &mut self.sequences[id];
            state.generating.leave(sequence);
            let mut is_current = true;
            if let Some(slots) = &mut state.slots {
                is_current = slots.holds_in(sequence.tenant, sequence.slot);
                slots.release(sequence.slot);
                sequence.slot = NO_SLOT;
            }
            sequence.started = false;
            sequence.transferred = Transferred::Parked;
            sequence.queued_since = now;
            state.parked.push(id);
            self.parked.insert(sequence.parked(id));
            self.note_tenant(instance);
            commands.list.push(Command::Park { instance, request: id });
            if !is_current || !self.fits_a_cache(id) {
                self.unpark(now, id, commands);
            }
        }
    }

    /// A request that is parked is taken in anew: what its tenant has of its own is not any more what its prompt was
    /// computed with. Or it fails: with the token that its prompt gave, after an eviction, no cache holds it.
    pub(super) fn unpark(&mut self, now: Time, id: RequestId, commands: &mut Commands) {
        let Place::Instance(instance) = self.sequences[id].place else {
            unreachable!("who is parked is on an instance")
        };
        self.leave(now, id, instance, commands);
        self.requeue(now, id, commands);
    }

    /// Who is next of those that are parked, and where it goes: at once, or when that instance's run is over.
    pub(super) fn next_transfer(&self) -> Option<(RequestId, InstanceId)> {
        let &(_, _, first) = self.parked.first()?;
        let decoding = self.spec.prefill_instances()..self.instances.len() as u32;
        let before = self.counts.transfers + u64::from(self.parked_asking);
        let to = self.choose(first, self.place_of(first), decoding, before)?;
        Some((first, to))
    }

    /// Begins to copy those that are parked, in the order in which they came to be, until no instance has room for the next; who has
    /// asked one lets others go.
    #[inline]
    pub(super) fn dispatch_parked(&mut self, now: Time, commands: &mut Commands) {
        // Mostly nobody is.
        if !self.parked.is_empty() {
            self.dispatch_those_parked(now, commands);
        }
    }

    #[inline(never)]
    fn dispatch_those_parked(&mut self, now: Time, commands: &mut Commands) {
        while let Some((id, to)) = self.next_transfer() {
            match self.has_pages(id, to, Instance::free_pages) {
                true => self.transfer(now, id, to, commands),
                false => self.ask(id, to, commands),
            }
        }
    }

    fn transfer(&mut self, now: Time, id: RequestId, to: InstanceId, commands: &mut Commands) {
        let sequence = &mut self.sequences[id];
        let Place::Instance(from) = std::mem::replace(&mut sequence.place, Place::Instance(to)) else {
            unreachable!("who is parked is on an instance")
        };
        self.parked.remove(&sequence.parked(id));
        sequence.queued += now.since(sequence.queued_since);
        sequence.asked = None;
        sequence.is_moved = false;
        let state = &mut self.instances[from.index()];
        state.parked.retain(|&other| other != id);
        state.sending.push(Sending {
            id,
            pages: std::mem::take(&mut sequence.pages),
            prefix: sequence.prefix.take(),
        });

        // The token made last is not in the cache yet: that much of what it begins with is left.
        sequence.to_prefill = 1;
        let state = &mut self.instances[to.index()];
        let load = state.load();
        // What is found there is not copied.
        let PrefixPages {
            found: first_page,
            begun,
            outgrown,
        } = state.enter_prefix(sequence);
        let own = sequence.tokens() - state.pages.tokens(sequence.shared_pages());
        let pages = state.pages.of(sequence.cached_tokens) - first_page;
        let wanted = begun + state.pages.of(own);
        self.let_go(to, outgrown, commands);
        self.reclaim(to, wanted, commands);
        let state = &mut self.instances[to.index()];
        let sequence = &mut self.sequences[id];
        state.pages.take(begun);
        state.pages.resize(&mut sequence.pages, own);
        state.joining.push_back(id);
        sequence.transferred = Transferred::Coming;
        self.reload(to, load);

        self.counts.transfers += 1;
        self.counts.transferred_bytes += u64::from(pages) * self.memory.page_bytes();
        let batch = self.flights.insert(Flight::Transfer { from, to, request: id });
        let sequence = &self.sequences[id];
        let mark = commands.mark();
        commands.members.push(step::member(id, sequence));
        let transfer = OpKind::Transfer(Transfer {
            from,
            first_page,
            pages,
            page_bytes: self.memory.page_bytes() / u64::from(self.spec.tensor_parallel),
        });
        let lane = self.topology.link(from, to);
        let lane = lane.expect("between those who take prompts in and those who go on there are links");
        commands.ops.push(Op::alone(transfer, lane));
        let shape = BatchShape {
            requests: 1,
            tokens: sequence.cached_tokens,
            input_tokens: sequence.cached_tokens,
            tenants: 1,
        };
        commands.submit(batch, to, shape, mark);
        self.pin(id, to, commands);
    }

    /// A request's keys and values are where it goes on, or could not be copied.
    pub(super) fn transferred(
        &mut self,
        now: Time,
        done: &Done<'_>,
        from: InstanceId,
        to: InstanceId,
        id: RequestId,
        commands: &mut Commands,
    ) {
        let state = &mut self.instances[from.index()];
        let load = state.load();
        let at = state.sending.iter().position(|sending| sending.id == id);
        let mut sent = state.sending.swap_remove(at.expect("what is copied is kept meanwhile"));
        state.pages.resize(&mut sent.pages, 0);
        let unread = sent.prefix.and_then(|prefix| state.prefixes.leave(prefix));
        commands.list.push(Command::Release {
            instance: from,
            request: id,
        });
        self.reload(from, load);
        self.let_go(from, unread, commands);
        self.answer(from);

        let sequence = &mut self.sequences[id];
        sequence.transferred = Transferred::There;
        let failed = done.failures.first().map(|failure| failure.reason).or(sequence.failed);
        let verdict = match failed {
            _ if sequence.cancelled => Some(Verdict::Cancelled),
            failed => failed.map(Verdict::Failed),
        };
        let state = &self.instances[to.index()];
        let is_current = state.slots.as_ref().is_none_or(|slots| slots.holds_in(sequence.tenant, sequence.slot));
        if let Some(verdict) = verdict {
            self.leave(now, id, to, commands);
            self.finish(now, id, verdict, commands);
        } else if !is_current {
            // What its prompt was computed with is not what it would go on with.
            self.leave(now, id, to, commands);
            self.requeue(now, id, commands);
        } else {
            if let Some(prefix) = sequence.prefix {
                let state = &mut self.instances[to.index()];
                state.prefixes.cached(prefix, sequence.cached_tokens);
            }
            self.interrupt_if_ready(to, commands);
        }
        self.dispatch(now, commands);
        self.advance(now, to, commands);
    }
}
