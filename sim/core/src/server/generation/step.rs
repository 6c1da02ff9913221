//! What an instance does next: which requests run, what of their prompts comes into the cache, and for how many steps.

use super::*;
use crate::op::{self, GoingOn, Run, Until};
use crate::spec::PrefillSpec;

impl GenerationServer {
    /// Submits the instance's next run, unless one is under way or nobody is ready.
    #[inline]
    pub(super) fn advance(&mut self, now: Time, instance: InstanceId, commands: &mut Commands) {
        if self.instances[instance.index()].run.is_none() {
            self.begin(now, instance, commands);
        }
    }

    #[inline(never)]
    fn begin(&mut self, now: Time, instance: InstanceId, commands: &mut Commands) {
        // Whoever an instance waited for may have left since its last run.
        let mut somebody_left = self.return_ended(now, instance, commands);
        while !self.next_tokens_have_pages(instance) {
            self.evict_newest(now, instance, commands);
            self.return_ended(now, instance, commands);
            somebody_left = true;
        }
        let prompts_left = self.choose_chunks(instance);
        self.submit(instance, prompts_left, commands);
        if somebody_left {
            self.dispatch(now, commands);
        }
    }

    /// Whether each request that generates has room for one token more. Prompts got theirs when they were placed.
    fn next_tokens_have_pages(&self, instance: InstanceId) -> bool {
        let state = &self.instances[instance.index()];
        state.generating.without_room() <= state.pages.free()
    }

    /// Decides what of which prompts the next step takes, and lets those whose prompts begin join the others. Whether a
    /// prompt that is ready is left for a later step.
    fn choose_chunks(&mut self, instance: InstanceId) -> bool {
        let only_decodes = self.only_decodes(instance);
        let state = &mut self.instances[instance.index()];
        let sequences = &mut self.sequences;
        let (mut prompts, mut tokens) = match self.spec.prefill {
            // What comes here has its prompt in the cache but for the token made last.
            _ if only_decodes => (u32::MAX, u32::MAX),
            PrefillSpec::OnePerStep => (1, u32::MAX),
            PrefillSpec::Chunked { max_tokens } => {
                let generating = state.generating.requests();
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
        for &id in &state.prompts {
            chunk(&mut sequences[id]);
        }
        let mut next = 0;
        while let Some(&id) = state.joining.get(next) {
            let sequence = &mut sequences[id];
            if sequence.is_ready(&state.copies) && chunk(sequence) {
                sequence.started = true;
                state.joining.remove(next);
                state.prompts.push(id);
                state.running.push(id);
            } else {
                next += 1;
            }
        }
        left
    }

    fn submit(&mut self, instance: InstanceId, prompts_left: bool, commands: &mut Commands) {
        let mark = commands.mark();
        let Instance {
            prompts,
            generating,
            ended,
            ..
        } = &mut self.instances[instance.index()];
        let going_on = GoingOn {
            requests: generating.requests(),
            cached_tokens: generating.cached_tokens(),
        };
        let (mut tenants, mut tokens) = (generating.different_tenants(), going_on.requests);
        // After the first step.
        let mut longest = generating.longest() + 1;
        generating.rooms(&mut self.rooms);
        for &id in prompts.iter() {
            let sequence = &self.sequences[id];
            if sequence.chunk_tokens == 0 {
                continue;
            }
            let counted = &mut self.counted_in[sequence.tenant as usize];
            let is_counted = std::mem::replace(counted, self.runs) == self.runs;
            tenants += u32::from(!is_counted && !generating.has_tenant(sequence.tenant));
            tokens += sequence.chunk_tokens;
            let after_first = sequence.cached_tokens + sequence.chunk_tokens;
            longest = longest.max(after_first);
            let held = sequence.pages + sequence.shared_pages();
            self.rooms.add(held * self.spec.page_tokens + 1 - after_first);
            commands.members.push(member(id, sequence));
        }
        let requests = going_on.requests + (commands.members.len() - mark.members) as u32;
        // Nor is there a step for those alone who have their last token.
        if requests == *ended {
            return;
        }
        self.runs += 1;
        let is_static = self.spec.join == JoinSpec::HeadRunStatic;
        // The last position is the last that a token can take.
        let positions = (self.positions + 1).saturating_sub(longest).max(1);
        // Who has its first token goes on elsewhere, where some instances only take prompts in.
        let is_one_step = prompts_left || self.only_prefills(instance);
        let max_steps = if is_one_step { 1 } else { positions };
        // What nobody reads goes for a page's steps, and not for all that a run could make if nobody ended.
        let soon = max_steps.min(self.spec.page_tokens);
        self.reclaim(instance, self.rooms.with_less(soon), commands);
        let pages = &self.instances[instance.index()].pages;
        // Nobody joins a static batch, and nobody makes a second token where prompts are taken in apart.
        let (max_steps, promised) = if is_static || self.only_prefills(instance) {
            pages.steps(&self.rooms, max_steps, pages.unused())
        } else {
            pages.steps_of_half(&self.rooms, max_steps)
        };
        let batch = self.flights.insert(Flight::Run { instance });
        let state = &mut self.instances[instance.index()];
        state.closed |= is_static;
        state.pages.promise(promised);
        state.run = Some(InFlight {
            batch,
            interruptible: max_steps > 1,
        });
        let run = OpKind::Run(Run {
            max_steps,
            until: if is_static { Until::AllEnd } else { Until::FirstEnds },
            lookups: self.lookups,
            going_on,
        });
        let lane = self.topology.instances[instance.index()].compute;
        commands.ops.push(Op::alone(run, lane));
        let shape = BatchShape {
            requests,
            tokens,
            input_tokens: tokens,
            tenants,
        };
        commands.submit(batch, instance, shape, mark);
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
