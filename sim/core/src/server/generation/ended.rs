//! What the end of a run of steps says of those who took part.

use super::*;

impl GenerationServer {
    pub(super) fn ran(&mut self, now: Time, done: &Done<'_>, instance: InstanceId, commands: &mut Commands) {
        let outcome = done.run.expect("a run tells what came of it");
        let ended = done.timing.ended;
        let took = Took {
            computed: done.timing.lane + done.timing.busy,
            told: now.since(ended),
        };
        // Mostly somebody has only come to join, or one has its last token.
        let others_leave = !outcome.failed.is_empty() || self.given_up > 0;
        let nobody_leaves = outcome.ended.is_empty() && !others_leave;
        let answered = match outcome.ended {
            [ended] if !others_leave && self.spec.join != JoinSpec::HeadRunStatic => Some(ended.request),
            _ => None,
        };
        let leaving = match nobody_leaves || answered.is_some() {
            true => Vec::new(),
            false => self.leaving(instance, &outcome),
        };
        self.count_served(instance, &outcome);
        self.run_gaps.of(&outcome, ended, self.warm_up);
        let waited = self.instances[instance.index()].ended;
        if self.spec.join == JoinSpec::HeadRunStatic {
            self.let_wait(instance, &outcome);
        }
        let state = &mut self.instances[instance.index()];
        state.run = None;
        state.pages.promise(0);
        for asked in &state.asking {
            if let Some(turn) = &mut self.sequences[asked.id].turn {
                turn.asks += 1;
            }
        }
        self.answer(instance);
        let state = &mut self.instances[instance.index()];
        let going_on = state.generating.requests() - waited;
        let (pages, first) = state.generating.ran(&outcome, took, ended, &self.run_gaps);
        state.pages.take(pages);
        if outcome.first_step_ended >= self.warm_up && outcome.steps > 0 {
            self.gaps.count(first, going_on.into());
        }
        let mut prompts = std::mem::take(&mut state.prompts);
        let waiting = prompts.len();
        prompts.retain(|&id| !self.took_in(id, instance, &outcome, took));
        let makers = going_on + (waiting - prompts.len()) as u32;
        self.instances[instance.index()].prompts = prompts;
        let early = self.early(&outcome).map(|early| early.step);
        self.gaps.further(&self.run_gaps, makers, early);
        if let Some(id) = answered {
            self.leave(now, id, instance, commands);
            self.finish(now, id, Verdict::Served, commands);
        } else if !nobody_leaves {
            self.let_leave(now, leaving, instance, commands);
            self.return_ended(now, instance, commands);
        }
        if self.only_prefills(instance) {
            self.park(now, instance, commands);
        }
        if self.instances[instance.index()].emptying {
            match self.has_deleted(instance) {
                // Since it was to be emptied a tenant was deleted, whose requests end where they are.
                true => self.instances[instance.index()].emptying = false,
                false => self.empty(now, instance, commands),
            }
        }
        self.dispatch(now, commands);
        self.advance(now, instance, commands);
    }

    #[inline(never)]
    fn let_leave(
        &mut self,
        now: Time,
        mut leaving: Vec<(RequestId, Verdict)>,
        instance: InstanceId,
        commands: &mut Commands,
    ) {
        for (id, verdict) in leaving.drain(..) {
            self.leave(now, id, instance, commands);
            self.finish(now, id, verdict, commands);
        }
        self.leaving = leaving;
    }

    /// Those of a static batch who have their last token wait for the others, however its steps fall into runs.
    #[inline(never)]
    fn let_wait(&mut self, instance: InstanceId, outcome: &RunOutcome<'_>) {
        let state = &mut self.instances[instance.index()];
        for &Ended { request, step } in outcome.ended {
            let sequence = &mut self.sequences[request];
            let (before, longest_gap) = match sequence.chunk_tokens {
                0 => (
                    state.generating.steps_since(sequence.since),
                    state.generating.longest_gap(sequence, outcome, &self.run_gaps, step),
                ),
                _ => (0, longest_gap_from_prompt(sequence, outcome, &self.run_gaps, step)),
            };
            sequence.ended = Some(Made {
                tokens: sequence.generated_tokens + before + step,
                longest_gap,
            });
            state.ended += 1;
        }
    }

    /// Answers those who wait for the others of a static batch when none of these has a token left to make. Who has no
    /// position left for what it makes meanwhile cannot wait as long. Whether somebody was answered.
    #[inline]
    pub(super) fn return_ended(&mut self, now: Time, instance: InstanceId, commands: &mut Commands) -> bool {
        // In other batches nobody waits.
        self.instances[instance.index()].ended > 0 && self.return_from_batch(now, instance, commands)
    }

    #[inline(never)]
    fn return_from_batch(&mut self, now: Time, instance: InstanceId, commands: &mut Commands) -> bool {
        let state = &self.instances[instance.index()];
        let is_over = state.ended == state.placed();
        if !(is_over || state.generating.longest() == self.positions) {
            return false;
        }
        let leaves = |id: &RequestId| {
            let sequence = &self.sequences[*id];
            is_over || (sequence.ended.is_some() && state.generating.cached_tokens_of(sequence) == self.positions)
        };
        let leaving: Vec<RequestId> = state.running.iter().copied().filter(leaves).collect();
        for id in leaving {
            self.leave(now, id, instance, commands);
            self.finish_ended(now, id, commands);
        }
        true
    }

    /// Apart from who leaves as most do, so that these stay inlined.
    #[inline(never)]
    pub(super) fn finish_ended(&mut self, now: Time, id: RequestId, commands: &mut Commands) {
        self.finish(now, id, Verdict::Served, commands);
    }

    /// Who leaves at the end of a run, in the order in which they joined, but those of a static batch who have their
    /// last token. A client that has given up hears of nothing else.
    #[inline(never)]
    fn leaving(&mut self, instance: InstanceId, outcome: &RunOutcome<'_>) -> Vec<(RequestId, Verdict)> {
        let running = &self.instances[instance.index()].running;
        let mut leaving = std::mem::take(&mut self.leaving);
        if self.given_up > 0 {
            let took_part = |id: &RequestId| self.sequences[*id].cancelled && self.sequences[*id].takes_part();
            let given_up = running.iter().filter(|&id| took_part(id));
            leaving.extend(given_up.map(|&id| (id, Verdict::Cancelled)));
        }
        leaving.extend(outcome.failed.iter().map(|failed| (failed.request, Verdict::Failed(failed.reason))));
        if self.spec.join != JoinSpec::HeadRunStatic {
            leaving.extend(outcome.ended.iter().map(|ended| (ended.request, Verdict::Served)));
        }
        if leaving.len() > 1 {
            leaving.sort_by_key(|&(id, _)| running.iter().position(|&other| other == id));
            leaving.dedup_by_key(|&mut (id, _)| id);
        }
        leaving
    }

    /// Who has its last token, and waited for others that make more.
    fn early<'a>(&self, outcome: &RunOutcome<'a>) -> impl Iterator<Item = &'a Ended> + Clone + use<'a> {
        let steps = outcome.steps;
        let all: &[Ended] = match self.spec.join {
            JoinSpec::HeadRunStatic => outcome.ended,
            _ => &[],
        };
        all.iter().filter(move |ended| ended.step < steps)
    }

    /// Counts a run's tokens as served, where that says whose turn it is.
    fn count_served(&mut self, instance: InstanceId, outcome: &RunOutcome<'_>) {
        let Some(counters) = &mut self.queue.counters else {
            return;
        };
        for &id in &self.instances[instance.index()].running {
            let sequence = &self.sequences[id];
            if sequence.to_prefill == sequence.chunk_tokens && sequence.ended.is_none() {
                counters.serve(sequence.tenant, 0, outcome.steps - surplus(id, outcome));
            }
        }
    }

    /// Books a run on a request, if it was one of those whose prompts the run took in. Whether that completed it.
    fn took_in(&mut self, id: RequestId, instance: InstanceId, outcome: &RunOutcome<'_>, took: Took) -> bool {
        let sequence = &mut self.sequences[id];
        let chunk = std::mem::take(&mut sequence.chunk_tokens);
        if chunk == 0 {
            return false;
        }
        sequence.computed += took.computed;
        sequence.told += took.told;
        sequence.batch_requests = sequence.batch_requests.max(outcome.requests);
        // Who has failed leaves, with what it computed.
        if outcome.steps == 0 || outcome.failed.iter().any(|failed| failed.request == id) {
            return false;
        }
        sequence.cached_tokens += chunk;
        sequence.to_prefill -= chunk;
        let is_complete = sequence.to_prefill == 0;
        if is_complete {
            // The token made last is not in the cache.
            sequence.cached_tokens += outcome.steps - 1;
            sequence.generated_tokens += outcome.steps;
            sequence.first_token.get_or_insert(outcome.first_step_ended);
            sequence.longest_gap = longest_gap_from_prompt(sequence, outcome, &self.run_gaps, outcome.steps);
            if let Some(gap) = gap_while_away(sequence, outcome)
                && outcome.first_step_ended >= self.warm_up
            {
                self.gaps.count(gap, 1);
            }
        }
        let state = &mut self.instances[instance.index()];
        if let Some(prefix) = sequence.prefix {
            state.prefixes.cached(prefix, sequence.cached_tokens);
        }
        let held = sequence.cached_tokens + sequence.to_prefill;
        let own = held - state.pages.tokens(sequence.shared_pages());
        state.pages.resize(&mut sequence.pages, own);
        if is_complete {
            sequence.since = state.generating.join(sequence);
        }
        is_complete
    }
}

/// How long a request whose prompt a run completes has waited for a token at most, of which so many steps of the run
/// made it one.
fn longest_gap_from_prompt(sequence: &Sequence, outcome: &RunOutcome<'_>, gaps: &RunGaps, steps: u32) -> Duration {
    let away = gap_while_away(sequence, outcome).unwrap_or(Duration::ZERO);
    sequence.longest_gap.max(away).max(gaps.longest(steps))
}

/// From the last token that it had made elsewhere, or here before it was evicted, to its first of the run.
fn gap_while_away(sequence: &Sequence, outcome: &RunOutcome<'_>) -> Option<Duration> {
    let last = sequence.last_token?;
    Some(gaps::between(last, outcome.first_step_ended))
}

/// Tokens that a request made after its last, while it waited for others.
fn surplus(id: RequestId, outcome: &RunOutcome<'_>) -> u32 {
    let ended = outcome.ended.iter().find(|ended| ended.request == id);
    ended.map_or(0, |ended| outcome.steps - ended.step)
}
