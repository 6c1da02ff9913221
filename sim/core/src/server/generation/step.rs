//! What an instance does next: which requests run, what of their prompts comes into the cache, and for how many steps.

use super::*;
use crate::op::{self, Run, Until};
use crate::spec::PrefillSpec;

impl GenerationServer {
    /// Submits the instance's next run, unless one is under way or nobody is ready.
    pub(super) fn advance(&mut self, now: Time, instance: InstanceId, commands: &mut Commands) {
        if self.instances[instance.index()].run.is_some() {
            return;
        }
        let mut evicted = false;
        while !self.next_tokens_have_pages(instance) {
            self.evict_newest(now, instance, commands);
            evicted = true;
        }
        let prompts_left = self.choose_chunks(instance);
        self.submit(instance, prompts_left, commands);
        if evicted {
            self.dispatch(now, commands);
        }
    }

    /// Whether each request that generates has room for one token more. Prompts got theirs when they were placed.
    fn next_tokens_have_pages(&self, instance: InstanceId) -> bool {
        let state = &self.instances[instance.index()];
        let free = state.pages.free();
        // Nobody's token takes more than a page.
        if state.running.len() as u32 <= free {
            return true;
        }
        let generating = state.running.iter().map(|&id| &self.sequences[id]);
        let wanted = generating
            .filter(|sequence| sequence.to_prefill == 0)
            .map(|sequence| state.pages.of(sequence.cached_tokens + 1) - sequence.pages - sequence.shared_pages());
        wanted.sum::<u32>() <= free
    }

    /// Decides what of which prompts the next step takes, and lets those whose prompts begin join the others. Whether a prompt that is
    /// ready is left for a later step.
    fn choose_chunks(&mut self, instance: InstanceId) -> bool {
        let state = &mut self.instances[instance.index()];
        let sequences = &mut self.sequences;
        let (mut prompts, mut tokens) = match self.spec.prefill {
            PrefillSpec::OnePerStep => (1, u32::MAX),
            PrefillSpec::Chunked { max_tokens } => {
                let generates = |&&id: &&RequestId| sequences[id].to_prefill == 0;
                let generating = state.running.iter().filter(generates).count() as u32;
                (u32::MAX, max_tokens.saturating_sub(generating))
            }
        };
        let mut left = false;
        let mut chunk = |sequence: &mut Sequence| {
            let chunk = if prompts == 0 {
                0
            } else {
                sequence.to_prefill.min(tokens)
            };
            sequence.chunk_tokens = chunk;
            tokens -= chunk;
            prompts -= u32::from(chunk > 0);
            left |= chunk < sequence.to_prefill;
            chunk > 0
        };
        for &id in &state.running {
            if sequences[id].to_prefill > 0 {
                chunk(&mut sequences[id]);
            }
        }
        let (running, copies) = (&mut state.running, &state.copies);
        state.joining.retain(|&id| {
            let sequence = &mut sequences[id];
            let begins = sequence.is_ready(copies) && chunk(sequence);
            if begins {
                sequence.started = true;
                running.push(id);
            }
            !begins
        });
        left
    }

    fn submit(&mut self, instance: InstanceId, prompts_left: bool, commands: &mut Commands) {
        let first_member = commands.members.len();
        let takes_part = |sequence: &Sequence| sequence.to_prefill == 0 || sequence.chunk_tokens > 0;
        let (mut tenants, mut tokens, mut longest) = (0, 0, 0);
        let (run, page_tokens) = (self.runs, self.spec.page_tokens);
        self.rooms.clear();
        let running = &self.instances[instance.index()].running;
        self.rooms.reserve(running.len());
        commands.members.reserve(running.len());
        for &id in running {
            let sequence = &self.sequences[id];
            if !takes_part(sequence) {
                continue;
            }
            let counted = &mut self.counted_in[sequence.tenant as usize];
            tenants += u32::from(*counted != run);
            *counted = run;
            let step_tokens = sequence.chunk_tokens.max(1);
            tokens += step_tokens;
            let after_first = sequence.cached_tokens + step_tokens;
            longest = longest.max(after_first);
            let held = sequence.pages + sequence.shared_pages();
            self.rooms.push(held * page_tokens + 1 - after_first);
            commands.members.push(member(id, sequence));
        }
        if self.rooms.is_empty() {
            return;
        }
        self.runs += 1;
        let mut ids = self.spare.pop().unwrap_or_default();
        ids.extend(commands.members[first_member..].iter().map(|member| member.request));
        let is_static = self.spec.join == JoinSpec::HeadRunStatic;
        // The last position is the last that a token can take.
        let positions = (self.positions + 1).saturating_sub(longest).max(1);
        let max_steps = if prompts_left { 1 } else { positions };
        // What nobody reads goes for a page's steps, and not for all that a run could make if nobody ended.
        let soon = max_steps.min(self.spec.page_tokens);
        let wanted = self.rooms.iter().filter(|room| **room < soon).count() as u32;
        self.reclaim(instance, wanted, commands);
        let pages = &self.instances[instance.index()].pages;
        let (max_steps, wanted) = pages.steps(&self.rooms, max_steps);
        let batch = self.flights.insert(Flight::Run { instance, members: ids });
        let state = &mut self.instances[instance.index()];
        state.closed |= is_static;
        state.pages.promise(wanted);
        state.run = Some(InFlight {
            batch,
            interruptible: max_steps > 1,
        });
        let first_op = commands.ops.len();
        commands.ops.push(Op {
            kind: OpKind::Run(Run {
                max_steps,
                until: if is_static { Until::AllEnd } else { Until::FirstEnds },
                lookups: self.lookups,
            }),
            lane: self.topology.instances[instance.index()].compute,
            after: After::NONE,
            behind: false,
            told: true,
        });
        commands.list.push(Command::Submit(Submission {
            batch,
            instance,
            shape: BatchShape {
                requests: self.rooms.len() as u32,
                tokens,
                input_tokens: tokens,
                tenants,
            },
            members: first_member..commands.members.len(),
            loads: commands.loads.len()..commands.loads.len(),
            groups: 0..0,
            ops: first_op..commands.ops.len(),
        }));
    }
}

#[inline]
pub(super) fn member(id: RequestId, sequence: &Sequence) -> Member {
    Member {
        request: id,
        ticket: sequence.ticket,
        tenant: sequence.tenant,
        input_tokens: sequence.prompt_tokens,
        slot: sequence.slot,
        sequence: op::Sequence {
            prefix: sequence.prefix,
            cached_tokens: sequence.cached_tokens,
            chunk_tokens: sequence.chunk_tokens,
            completes: sequence.to_prefill == sequence.chunk_tokens,
            generated_tokens: sequence.generated_tokens,
            output_tokens: sequence.output_tokens,
        },
    }
}
