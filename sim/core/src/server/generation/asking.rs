//! Who waits to hear whether an instance has room.
//!
//! A run is promised all the pages that its steps could take, and ends long before most are taken: what an instance has left is known when its run is
//! over. Who was chosen for an instance that may have room therefore *asks* it: the run ends at its next step, and until then those who come after go
//! where they are to go. Did they wait too, a cluster would place no more than one request a step.

use super::*;

/// A request that has asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub id: RequestId,
    pub tenant: u32,
    pub instance: InstanceId,
    /// That it needs there.
    pub pages: u32,
}

/// Those that have asked and do not know yet, in the order in which they did. They are few: of an instance no more than come in a step.
#[derive(Debug, Default)]
pub(super) struct Asking(Vec<Asked>);

impl Asking {
    pub fn len(&self) -> u32 {
        self.0.len() as u32
    }

    pub fn iter(&self) -> impl Iterator<Item = &Asked> {
        self.0.iter()
    }

    pub fn push(&mut self, asked: Asked) {
        self.0.push(asked);
    }

    /// Takes the first out for whom this holds.
    pub fn take(&mut self, which: impl Fn(&Asked) -> bool) -> Option<Asked> {
        let at = self.0.iter().position(which)?;
        Some(self.0.remove(at))
    }
}

impl GenerationServer {
    /// The request, first of the queue or of those that are parked, waits for an instance's run to end, and no one waits for it.
    #[inline(never)]
    pub(super) fn ask(&mut self, id: RequestId, instance: InstanceId, commands: &mut Commands) {
        let pages = self.pages_wanted(id, instance);
        let sequence = &mut self.sequences[id];
        sequence.asked = Some(instance);
        let asked = Asked {
            id,
            tenant: sequence.tenant,
            instance,
            pages,
        };
        match sequence.place {
            Place::Queue => self.queue.ask(asked, sequence),
            Place::Instance(_) => {
                let (arrival, ticket) = sequence.order();
                self.parked.remove(&(arrival, ticket, id));
                self.asking.push(asked);
            }
        }
        let state = &mut self.instances[instance.index()];
        let load = state.load();
        state.asked += 1;
        state.asked_pages += pages;
        self.reload(instance, load);
        self.interrupt(instance, commands);
    }

    /// An instance's run is over, or it takes nobody any more: who has asked it is where it was, with a place to be found.
    #[inline]
    pub(super) fn answer(&mut self, instance: InstanceId) {
        if self.instances[instance.index()].asked > 0 {
            self.ask_no_more(|asked| asked.instance == instance);
        }
    }

    /// Those for whom this holds are where they were before they asked.
    #[inline(never)]
    pub(super) fn ask_no_more(&mut self, which: impl Fn(&Asked) -> bool) {
        while let Some(asked) = self.queue.ask_no_more(&which, &self.sequences) {
            self.not_asked(asked);
        }
        while let Some(asked) = self.asking.take(&which) {
            let (arrival, ticket) = self.sequences[asked.id].order();
            self.parked.insert((arrival, ticket, asked.id));
            self.not_asked(asked);
        }
    }

    fn not_asked(&mut self, asked: Asked) {
        let state = &mut self.instances[asked.instance.index()];
        let load = state.load();
        state.asked -= 1;
        state.asked_pages -= asked.pages;
        self.reload(asked.instance, load);
    }
}
