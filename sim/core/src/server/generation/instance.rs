//! What the server knows of an instance.

use super::*;
use crate::op::SharedPrefix;

/// A run that has been submitted and has not ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub batch: BatchId,
    /// Whether an interrupt would end it sooner, and none has been sent.
    pub interruptible: bool,
}

pub(super) struct Instance {
    /// In the order in which they joined.
    pub running: Vec<RequestId>,
    /// Of these, whose prompts are not complete.
    pub prompts: Vec<RequestId>,
    /// The others.
    pub generating: Generating,
    /// Of these, who have their last token and wait for the others of a static batch.
    pub ended: u32,
    /// Placed here; their prompts have not begun.
    pub joining: VecDeque<RequestId>,
    /// Their prompts are complete, and they wait for an instance that goes on from there.
    pub parked: Vec<RequestId>,
    /// What is kept of those that are being copied to such an instance.
    pub sending: Vec<Sending>,
    /// Requests that come here when the run is over, if there is room.
    pub asking: Vec<Asked>,
    pub pages: Pages,
    pub prefixes: Prefixes,
    /// Absent where tenants have nothing of their own.
    pub slots: Option<Slots>,
    /// By slot: copies into it that have not ended.
    pub copies: Vec<u32>,
    pub run: Option<InFlight>,
    /// Everyone here is to go elsewhere.
    pub emptying: bool,
    /// A static batch that has begun: nobody joins.
    pub closed: bool,
    /// When the first of those here came, since when it was never empty.
    pub turn_since: Time,
}

/// Pages of what the prompts of a tenant begin with alike.
#[derive(Default)]
pub(super) struct PrefixPages {
    /// That are there.
    pub found: u32,
    /// That the one who came begins.
    pub begun: u32,
    /// Those of a shorter prefix, which are to be let go of.
    pub outgrown: Option<SharedPrefix>,
}

impl Instance {
    /// A request comes whose prompt may begin as others of its tenant do.
    pub(super) fn enter_prefix(&mut self, sequence: &mut Sequence) -> PrefixPages {
        let mut of_prefix = PrefixPages::default();
        sequence.prefix = match self.prefixes.enter(sequence.tenant, sequence.prompt_tokens) {
            Entered::Alone => return of_prefix,
            Entered::Begun(prefix, outgrown) => {
                (of_prefix.begun, of_prefix.outgrown) = (prefix.pages, outgrown);
                Some(prefix)
            }
            Entered::Found(prefix) => {
                of_prefix.found = prefix.pages;
                Some(prefix)
            }
        };
        of_prefix
    }

    /// Requests that are here, in part, or perhaps soon.
    pub(super) fn load(&self) -> u32 {
        self.placed() + self.sending.len() as u32 + self.asking.len() as u32
    }

    /// Those of them that run here, or soon will: all but who only keeps pages here, to go on elsewhere.
    pub(super) fn in_batch(&self) -> u32 {
        (self.running.len() + self.joining.len() + self.asking.len()) as u32
    }

    /// For those that have asked.
    pub(super) fn asked_pages(&self) -> u32 {
        self.asking.iter().map(|asked| asked.pages).sum()
    }

    /// Pages that who comes may have. What those who generate need for their next step is theirs: else who came would
    /// be evicted for it at once, and what they need is in what a run under way was promised.
    pub(super) fn free_pages(&self) -> u32 {
        match self.run {
            Some(_) => self.pages.free(),
            None => self.pages.free().saturating_sub(self.generating.without_room()),
        }
    }

    /// Likewise if the run under way takes no more than its first step does.
    pub(super) fn perhaps_free_pages(&self) -> u32 {
        let perhaps_free = self.pages.perhaps_free();
        perhaps_free.saturating_sub(self.generating.without_room())
    }

    /// Requests of which it says where they are.
    pub(super) fn placed(&self) -> u32 {
        (self.running.len() + self.joining.len() + self.parked.len()) as u32
    }

    /// All that are placed here, those aside that only wait to go elsewhere.
    pub(super) fn here(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.running.iter().chain(&self.joining).copied()
    }
}
