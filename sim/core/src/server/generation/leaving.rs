//! How a request leaves: its instance, and the system.

use super::*;

impl GenerationServer {
    /// Takes a request off its instance.
    pub(super) fn leave(&mut self, now: Time, id: RequestId, instance: InstanceId, commands: &mut Commands) {
        if self.sequences[id].transferred == Transferred::Parked {
            self.forget_asking(id);
        }
        let state = &mut self.instances[instance.index()];
        let load = state.load();
        let sequence = &mut self.sequences[id];
        if sequence.started {
            let at = state.running.iter().position(|&other| other == id);
            state.running.remove(at.expect("who has started runs"));
            state.ended -= u32::from(sequence.ended.is_some());
            match sequence.to_prefill {
                0 => state.generating.leave(sequence),
                _ => state.prompts.retain(|&other| other != id),
            }
        } else if sequence.transferred == Transferred::Parked {
            self.parked.remove(&sequence.parked(id));
            sequence.queued += now.since(sequence.queued_since);
            state.parked.retain(|&other| other != id);
        } else {
            state.joining.retain(|&other| other != id);
        }
        let left = state.pages.leave(&mut sequence.pages);
        let unread = sequence.prefix.take().and_then(|prefix| state.prefixes.leave(prefix));
        sequence.left = Some((instance, left, sequence.cached_tokens));
        if let Some(slots) = &mut state.slots
            && sequence.slot != NO_SLOT
        {
            slots.release(sequence.slot);
            sequence.slot = NO_SLOT;
        }
        let is_known = sequence.started || sequence.retrieval == Retrieval::There;
        if is_known || sequence.transferred != Transferred::No {
            commands.list.push(Command::Release { instance, request: id });
        }
        sequence.retrieval = Retrieval::None;
        sequence.transferred = Transferred::No;
        sequence.started = false;
        sequence.chunk_tokens = 0;
        sequence.place = Place::Queue;
        sequence.queued_since = now;
        if state.load() == 0 {
            state.closed = false;
            state.emptying = false;
        }
        self.reload(instance, load);
        self.let_go(instance, unread, commands);
        self.answer(instance);
        let tenant = self.sequences[id].tenant;
        if let Some(request) = self.tenancy.leave(tenant) {
            self.submit_manage(request, discard(request), commands);
        }
    }

    pub(super) fn finish(&mut self, now: Time, id: RequestId, verdict: Verdict, commands: &mut Commands) {
        let sequence = &self.sequences[id];
        self.given_up -= u32::from(sequence.cancelled);
        // `leave` counts from here on as if it waited again.
        let queued = sequence.queued + now.since(sequence.queued_since);
        let known = queued + sequence.computed + sequence.told;
        let latency = now.since(sequence.arrival);
        let made = sequence.ended.unwrap_or(Made {
            tokens: sequence.generated_tokens,
            longest_gap: sequence.longest_gap,
        });
        commands.list.push(Command::Finish(Finish {
            request: Some(id),
            ticket: sequence.ticket,
            tenant: sequence.tenant,
            class: sequence.class,
            arrival: sequence.arrival,
            input_tokens: sequence.prompt_tokens,
            batch_requests: sequence.batch_requests,
            output_tokens: made.tokens,
            first_token: sequence.first_token,
            longest_gap: made.longest_gap,
            verdict,
            waits: Waits {
                queue: queued,
                lane: Duration::ZERO,
                stall: Duration(latency.0 - known.0),
                compute: sequence.computed,
                tell: sequence.told,
            },
            returned: None,
        }));
        // It is large: nobody needs it moved.
        self.sequences.discard(id);
    }
}
