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
        // Mostly somebody has only come to join.
        let nobody_leaves = outcome.ended.is_empty() && outcome.failed.is_empty() && self.given_up == 0;
        let leaving = match nobody_leaves {
            true => Vec::new(),
            false => self.leaving(instance, &outcome),
        };
        self.count_served(instance, &outcome);
        self.run_gaps.of(&outcome, ended, self.warm_up);
        let longest_gaps = self.longest_gaps_of_early(instance, &outcome);
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
        let going_on = state.generating.requests();
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
        if !nobody_leaves {
            self.let_leave(now, leaving, &longest_gaps, instance, &outcome, commands);
        }
        if self.only_prefills(instance) {
            self.park(now, instance, commands);
        }
        if self.instances[instance.index()].emptying {
            self.empty(now, instance, commands);
        }
        self.dispatch(now, commands);
        self.advance(now, instance, commands);
    }

    fn let_leave(
        &mut self,
        now: Time,
        mut leaving: Vec<(RequestId, Verdict)>,
        longest_gaps: &[(RequestId, Duration)],
        instance: InstanceId,
        outcome: &RunOutcome<'_>,
        commands: &mut Commands,
    ) {
        for (id, verdict) in leaving.drain(..) {
            self.leave(now, id, instance, commands);
            let sequence = &mut self.sequences[id];
            sequence.generated_tokens -= surplus(id, outcome);
            if let Some(&(_, longest)) = longest_gaps.iter().find(|&&(early, _)| early == id) {
                sequence.longest_gap = longest;
            }
            self.finish(now, id, verdict, commands);
        }
        self.leaving = leaving;
    }

    /// Who leaves at the end of a run, in the order in which they joined. A client that has given up hears of nothing else.
    fn leaving(&mut self, instance: InstanceId, outcome: &RunOutcome<'_>) -> Vec<(RequestId, Verdict)> {
        let running = &self.instances[instance.index()].running;
        let mut leaving = std::mem::take(&mut self.leaving);
        if self.given_up > 0 {
            let took_part = |id: &RequestId| self.sequences[*id].cancelled && self.sequences[*id].takes_part();
            let given_up = running.iter().filter(|&id| took_part(id));
            leaving.extend(given_up.map(|&id| (id, Verdict::Cancelled)));
        }
        leaving.extend({ outcome.failed.iter() }.map(|failed| (failed.request, Verdict::Failed(failed.reason))));
        leaving.extend(outcome.ended.iter().map(|ended| (ended.request, Verdict::Served)));
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

    /// How long those at most waited for a token, of those who generated before the run: before all that is left of it is booked on them.
    fn longest_gaps_of_early(&self, instance: InstanceId, outcome: &RunOutcome<'_>) -> Vec<(RequestId, Duration)> {
        let generating = &self.instances[instance.index()].generating;
        let generates = |early: &&Ended| self.sequences[early.request].chunk_tokens == 0;
        let longest = |early: &Ended| {
            let gap = generating.longest_gap(&self.sequences[early.request], outcome, &self.run_gaps, early.step);
            (early.request, gap)
        };
        self.early(outcome).filter(generates).map(longest).collect()
    }

    /// Counts a run's tokens as served, where that says whose turn it is.
    fn count_served(&mut self, instance: InstanceId, outcome: &RunOutcome<'_>) {
        let Some(counters) = &mut self.queue.counters else {
            return;
        };
        for &id in &self.instances[instance.index()].running {
            let sequence = &self.sequences[id];
            if sequence.to_prefill == sequence.chunk_tokens {
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
            let made = outcome.steps - surplus(id, outcome);
            let gap = self.run_gaps.longest(made);
            sequence.longest_gap = sequence.longest_gap.max(gap);
            // It had made one elsewhere, or here before it was evicted.
            if let Some(last) = sequence.last_token {
                let gap = gaps::between(last, outcome.first_step_ended);
                sequence.longest_gap = sequence.longest_gap.max(gap);
                if outcome.first_step_ended >= self.warm_up {
                    self.gaps.count(gap, 1);
                }
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

/// Tokens that a request made after its last, while it waited for others.
fn surplus(id: RequestId, outcome: &RunOutcome<'_>) -> u32 {
    let ended = outcome.ended.iter().find(|ended| ended.request == id);
    ended.map_or(0, |ended| outcome.steps - ended.step)
}
