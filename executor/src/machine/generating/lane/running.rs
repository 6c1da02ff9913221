//! A request in runs of steps: what it has in the cache, and what its next step takes.

use tenantry_core::ids::RequestId;
use tenantry_core::op::{Member, NO_SLOT};

/// A request that is in runs here.
pub(in crate::machine::generating) struct Running {
    pub(super) request: RequestId,
    pub(super) ticket: u64,
    pub(super) tenant: u32,
    pub(super) slot: Option<u32>,
    /// Its prompt and what it had generated before the run under way.
    pub(super) tokens: u32,
    pub(super) cached: u32,
    /// What the next step takes; 0 where that is the token made last.
    pub(super) chunk: u32,
    /// Whether the next step makes a token.
    pub(super) completes: bool,
    /// Tokens to be made from the beginning of the run; 0 where an earlier one made the last, and it waits for others.
    pub(super) left: u32,
    /// In the run, up to its last.
    pub(super) made: u32,
    /// The run's step that made its last.
    pub(super) ended: Option<u32>,
}

impl Running {
    pub fn new(member: &Member) -> Running {
        let sequence = member.sequence;
        Running {
            request: member.request,
            ticket: member.ticket,
            tenant: member.tenant,
            slot: (member.slot != NO_SLOT).then_some(member.slot),
            tokens: member.input_tokens + sequence.generated_tokens,
            cached: sequence.cached_tokens,
            chunk: sequence.chunk_tokens,
            completes: sequence.chunk_tokens == 0 || sequence.completes,
            left: sequence.output_tokens.saturating_sub(sequence.generated_tokens).max(1),
            made: 0,
            ended: None,
        }
    }

    /// Whether it has its last token.
    pub(super) fn has_ended(&self) -> bool {
        self.left == 0 || self.ended.is_some()
    }

    /// The run is over.
    pub(super) fn end_run(&mut self) {
        self.tokens += self.made;
        self.left = match self.ended.take() {
            Some(_) => 0,
            None => self.left - self.made,
        };
        self.made = 0;
    }

    /// Tokens in the cache after the next step.
    pub(super) fn cached_next(&self) -> u32 {
        self.cached + self.chunk.max(1)
    }

    /// Tokens that the server has counted pages for: a prompt's all at once.
    pub(super) fn counted(&self) -> u32 {
        match self.chunk {
            0 => self.cached_next(),
            _ => self.tokens.max(self.cached_next()),
        }
    }
}
