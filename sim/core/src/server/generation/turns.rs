//! Whose turn it is on an instance, where every tenant has a queue of its own: a turn goes on for those who came before
//! it began.

use super::sequence::Turn;
use super::*;

/// Instances on which a turn may go on; on all others none does, so that nobody looks at each of them for each request.
#[derive(Debug, Default)]
pub(super) struct Turns {
    perhaps: BTreeSet<InstanceId>,
    /// When the last turn began anywhere.
    begun: Time,
}

impl GenerationServer {
    fn has_turns(&self) -> bool {
        self.spec.join == JoinSpec::QueuePerTenant
    }

    /// The first request comes to an instance, whose tenant's turn begins.
    #[inline]
    pub(super) fn begin_turn(&mut self, now: Time, instance: InstanceId) {
        self.instances[instance.index()].turn_since = now;
        self.turns.begun = now;
    }

    /// An instance's requests are no longer the same: there may be room for who waits for a turn.
    #[inline]
    pub(super) fn reconsider_turn(&mut self, instance: InstanceId) {
        if self.has_turns() {
            self.turns.perhaps.insert(instance);
        }
    }

    /// A request waits that came at this time: it may belong to turns that began since.
    #[inline]
    pub(super) fn reconsider_turns_since(&mut self, arrival: Time) {
        // Most come later than any turn began.
        if self.has_turns() && arrival <= self.turns.begun {
            self.reconsider_those_turns_since(arrival);
        }
    }

    #[inline(never)]
    fn reconsider_those_turns_since(&mut self, arrival: Time) {
        let began = |(_, instance): &(InstanceId, &Instance)| arrival <= instance.turn_since;
        let with_ids = self.topology.instance_ids().zip(&self.instances).filter(began);
        self.turns.perhaps.extend(with_ids.map(|(id, _)| id));
    }

    /// A request has left the queue. If it had its tenant's turn, who is next of the tenant may have come before it;
    /// else who is next came later.
    pub(super) fn reconsider_turns_after(&mut self, id: RequestId, turn: Option<Turn>) {
        if turn.is_some()
            && let Some(next) = self.queue.next_of(self.sequences[id].tenant)
        {
            self.reconsider_turns_since(self.sequences[next].arrival);
        }
    }

    /// Leaves out where no turn goes on until something changes.
    #[inline]
    pub(super) fn settle_turns(&mut self) {
        if !self.turns.perhaps.is_empty() {
            self.settle_those_turns();
        }
    }

    #[inline(never)]
    fn settle_those_turns(&mut self) {
        let mut turns = std::mem::take(&mut self.turns);
        turns.perhaps.retain(|&instance| self.goes_on(instance).is_some());
        self.turns = turns;
    }

    /// The next of a tenant whose turn it is on an instance, where that is not the first of all.
    pub(super) fn next_of_a_turn(&self, first: RequestId) -> Option<(RequestId, InstanceId)> {
        self.next_of_turns(first, self.turns.perhaps.iter().copied())
    }

    /// Likewise, looked for on every instance.
    pub(super) fn next_of_all_turns(&self, first: RequestId) -> Option<(RequestId, InstanceId)> {
        self.next_of_turns(first, self.topology.instance_ids())
    }

    fn next_of_turns(
        &self,
        first: RequestId,
        mut among: impl Iterator<Item = InstanceId>,
    ) -> Option<(RequestId, InstanceId)> {
        among.find_map(|instance| {
            let next = self.goes_on(instance)?;
            // The first goes where it would go anyhow.
            (next != first && self.fits(next, instance, Instance::perhaps_free_pages)).then_some((next, instance))
        })
    }

    /// With whom the turn on an instance goes on, pages and slots aside. Whoever is served less than its tenant waits
    /// for the next turn: else two of them would take one request each in turns, with nobody beside it.
    fn goes_on(&self, instance: InstanceId) -> Option<RequestId> {
        let state = &self.instances[instance.index()];
        if state.load() >= self.spec.max_batch {
            return None;
        }
        let next = self.queue.next_of(self.tenant_on(state)?)?;
        (self.sequences[next].arrival <= state.turn_since).then_some(next)
    }
}
