//! Who waits to hear whether an instance has room.
//!
//! A run is promised half of the pages that are free, and mostly ends long before these are taken: what of them an
//! instance has left is known when its run is over. Who was chosen for an instance that has room only if some are left
//! therefore *asks* it: the run ends at its next step, and until then those who come after go where they are to go. Did
//! they wait too, a cluster would place no more than one request a step.

use super::*;

/// For how many runs' ends a request waits that has its tenant's turn, before all others wait with it. Others pass it
/// in as many steps; with one, a cluster whose memory is scarce waits for an answer most of the time.
pub(super) const ASKS_IN_TURN: u8 = 4;

/// A request that has asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub id: RequestId,
    /// That it needs there.
    pub pages: u32,
}

impl GenerationServer {
    /// A request of the queue, or of those that are parked, waits for an instance's run to end, and nobody waits for
    /// the request.
    #[inline(never)]
    pub(super) fn ask(&mut self, id: RequestId, instance: InstanceId, commands: &mut Commands) {
        let pages = self.pages_wanted(id, instance);
        let sequence = &mut self.sequences[id];
        sequence.asked = Some(instance);
        match sequence.place {
            Place::Queue => {
                let turn = sequence.turn;
                self.queue.ask(id, sequence);
                self.reconsider_turns_after(id, turn);
            }
            Place::Instance(_) => {
                self.parked.remove(&sequence.parked(id));
                self.parked_asking += 1;
            }
        }
        let state = &mut self.instances[instance.index()];
        let load = state.load();
        state.asking.push(Asked { id, pages });
        self.reload(instance, load);
        self.interrupt(instance, commands);
    }

    /// An instance knows what it has left, or takes nobody any more: who has asked it is where it was before, with a
    /// place to be found.
    #[inline]
    pub(super) fn answer(&mut self, instance: InstanceId) {
        while let Some(last) = self.instances[instance.index()].asking.len().checked_sub(1) {
            self.ask_no_more(instance, last);
        }
    }

    /// A request does not wait for an answer any more, if it did.
    pub(super) fn forget_asking(&mut self, id: RequestId) {
        let Some(instance) = self.sequences[id].asked else {
            return;
        };
        let mut asking = self.instances[instance.index()].asking.iter();
        if let Some(at) = asking.position(|asked| asked.id == id) {
            self.ask_no_more(instance, at);
        }
    }

    #[inline(never)]
    fn ask_no_more(&mut self, instance: InstanceId, at: usize) {
        let state = &mut self.instances[instance.index()];
        let load = state.load();
        let id = state.asking.swap_remove(at).id;
        self.reload(instance, load);
        let sequence = &self.sequences[id];
        match sequence.place {
            Place::Queue => {
                self.queue.ask_no_more(id, sequence);
                self.reconsider_turns_since(self.sequences[id].arrival);
            }
            Place::Instance(_) => {
                self.parked.insert(sequence.parked(id));
                self.parked_asking -= 1;
            }
        }
    }
}
