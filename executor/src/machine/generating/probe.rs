//! A lane's step, made again and again: what the profiler measures is what serves.

use std::time::{Duration, Instant};

use tenantry_core::ids::RequestId;
use tenantry_core::op::{Member, NO_SLOT, Sequence};

use super::GeneratedTokens;
use super::lane::{RunLane, Running};
use super::tenants::Slots;
use crate::decoder::{Decoder, KvCache};
use crate::device::synchronize;
use crate::error::ExecutorError;

/// One sequence of a step that is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probed {
    /// Tokens of its prompt; 1 for a new token.
    pub chunk_tokens: u32,
    /// Tokens that the last of them attends to, its own included.
    pub context: u32,
    /// Of its tenant.
    pub slot: Option<u32>,
}

/// A lane with the same sequences before each step.
pub(crate) struct StepProbe {
    lane: RunLane,
    members: Vec<Member>,
}

impl StepProbe {
    /// Pages of the sequences lie apart, as they do once sequences have come and gone.
    pub fn new(decoder: &Decoder, kv: &KvCache, slots: Slots, sequences: &[Probed], seed: u64) -> StepProbe {
        let member = |(index, sequence): (usize, &Probed)| Member {
            request: RequestId {
                slot: index as u32,
                generation: 0,
            },
            ticket: index as u64,
            tenant: index as u32,
            input_tokens: sequence.context,
            slot: sequence.slot.unwrap_or(NO_SLOT),
            sequence: Sequence {
                prefix: None,
                cached_tokens: sequence.context - sequence.chunk_tokens,
                chunk_tokens: if sequence.chunk_tokens > 1 {
                    sequence.chunk_tokens
                } else {
                    0
                },
                completes: true,
                generated_tokens: 0,
                output_tokens: u32::MAX,
            },
        };
        let members: Vec<Member> = sequences.iter().enumerate().map(member).collect();
        let mut lane = RunLane::over(
            Some(decoder),
            kv,
            slots,
            (seed, decoder.shape().vocabulary.into(), decoder.device()),
            GeneratedTokens::default(),
        );
        members.iter().for_each(|member| lane.hold(member));
        let most = sequences.iter().map(|sequence| kv.pages_for(sequence.context)).max();
        for pages in 1..=most.unwrap_or(0) {
            for member in &members {
                lane.grow(member.request, pages.min(kv.pages_for(member.input_tokens)));
            }
        }
        StepProbe { lane, members }
    }

    /// Makes the step, and says how long it took.
    pub fn step(&mut self) -> Result<Duration, ExecutorError> {
        let mut running: Vec<Running> = self.members.iter().map(Running::new).collect();
        let device = self.lane.device();
        synchronize(device)?;
        let start = Instant::now();
        self.lane.step(&mut running)?;
        let took = start.elapsed();
        for member in &self.members {
            self.lane.forget_after(member.request, member.input_tokens);
        }
        Ok(took)
    }
}
