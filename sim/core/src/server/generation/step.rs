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
        let generating = state.running.iter().map(|&id| &self.sequences[id]);
        let wanted = generating
            .filter(|sequence| sequence.to_prefill == 0)
            .map(|sequence| state.pages.of(sequence.cached_tokens + 1) - sequence.pages);
        wanted.sum::<u32>() <= state.pages.free()
    }

    /// Decides what of which prompts the next step takes, and lets those whose prompts begin join the others. Whether a prompt that is
    /// ready is left for a later step.
    fn choose_chunks(&mut self, instance: InstanceId) -> bool {
        let state = &mut self.instances[instance.index()];
        let sequences = &mut self.sequences;
        let generating = state
            .running
            .iter()
            .filter(|&&id| sequences[id].to_prefill == 0)
            .count() as u32;
        let (mut prompts, mut tokens) = match self.spec.prefill {
            PrefillSpec::OnePerStep => (1, u32::MAX),
            PrefillSpec::Chunked { max_tokens } => (u32::MAX, max_tokens.saturating_sub(generating)),
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
        let (running, loaded) = (&mut state.running, &state.loaded);
        state.joining.retain(|&id| {
            let sequence = &mut sequences[id];
            let ready = sequence.slot == NO_SLOT || loaded[sequence.slot as usize];
            let begins = ready && chunk(sequence);
            if begins {
                sequence.started = true;
                running.push(id);
            }
            !begins
        });
        left
    }

    fn submit(&mut self, instance: InstanceId, prompts_left: bool, commands: &mut Commands) {
        let mut members = std::mem::take(&mut self.members);
        members.clear();
        let takes_part = |sequence: &Sequence| sequence.to_prefill == 0 || sequence.chunk_tokens > 0;
        let running = self.instances[instance.index()].running.iter();
        members.extend(
            running
                .filter(|&&id| takes_part(&self.sequences[id]))
                .map(|&id| self.member(id)),
        );
        if !members.is_empty() {
            self.submit_members(instance, &members, prompts_left, commands);
        }
        self.members = members;
    }

    fn submit_members(
        &mut self,
        instance: InstanceId,
        members: &[Member],
        prompts_left: bool,
        commands: &mut Commands,
    ) {
        let is_static = self.spec.join == JoinSpec::HeadRunStatic;
        let (max_steps, pages) = self.steps_with_pages(instance, members, if prompts_left { 1 } else { u32::MAX });
        let mut tenants = 0;
        let mut tokens = 0;
        for member in members {
            let counted = &mut self.counted_in[member.tenant as usize];
            tenants += u32::from(*counted != self.runs);
            *counted = self.runs;
            tokens += member.sequence.chunk_tokens.max(1);
        }
        self.runs += 1;
        let mut ids = self.spare.pop().unwrap_or_default();
        ids.extend(members.iter().map(|member| member.request));
        let batch = self.flights.insert(Flight::Run { instance, members: ids });
        let state = &mut self.instances[instance.index()];
        state.closed |= is_static;
        state.pages.promise(pages);
        state.run = Some(InFlight {
            batch,
            interruptible: max_steps > 1,
        });
        let (first_member, first_op) = (commands.members.len(), commands.ops.len());
        commands.members.extend_from_slice(members);
        commands.ops.push(Op {
            kind: OpKind::Run(Run {
                max_steps,
                until: if is_static { Until::AllEnd } else { Until::FirstEnds },
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
                requests: members.len() as u32,
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

    /// Steps that all members can make before a page is missing, or a position; and the pages that those take.
    fn steps_with_pages(&self, instance: InstanceId, members: &[Member], max_steps: u32) -> (u32, u32) {
        let pages = &self.instances[instance.index()].pages;
        let after_first = |member: &Member| member.sequence.cached_tokens + member.sequence.chunk_tokens.max(1);
        let wanted = |steps: u32| -> u32 {
            // Of a prompt that is not complete, all pages are held already.
            let more = |member: &Member| {
                let held = self.sequences[member.request].pages;
                pages.of(after_first(member) + steps - 1).saturating_sub(held)
            };
            members.iter().map(more).sum()
        };
        if max_steps == 1 {
            return (1, wanted(1));
        }
        let longest = members.iter().map(after_first).max().expect("a run has members");
        // The first step has its pages; the last position is the last that a token can take.
        let (mut fits, mut fails) = (1, self.positions.saturating_sub(longest) + 2);
        // Nobody runs as long as there are positions: galloping from below keeps the search short.
        let mut probe = 4 * self.spec.page_tokens;
        while fits + 1 < fails {
            let steps = if (fits + 1..fails).contains(&probe) {
                probe
            } else {
                fits + (fails - fits) / 2
            };
            if wanted(steps) <= pages.free() {
                fits = steps;
                probe = probe.saturating_mul(4);
            } else {
                fails = steps;
            }
        }
        (fits, wanted(fits))
    }

    pub(super) fn member(&self, id: RequestId) -> Member {
        let sequence = &self.sequences[id];
        Member {
            request: id,
            ticket: sequence.ticket,
            tenant: sequence.tenant,
            input_tokens: sequence.prompt_tokens,
            slot: sequence.slot,
            sequence: op::Sequence {
                cached_tokens: sequence.cached_tokens,
                chunk_tokens: sequence.chunk_tokens,
                completes: sequence.to_prefill == sequence.chunk_tokens,
                generated_tokens: sequence.generated_tokens,
                output_tokens: sequence.output_tokens,
            },
        }
    }
}
