//! Runs of steps on one instance.

mod running;
mod warm_up;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tch::Device;
use tenantry_core::command::FailureReason;
use tenantry_core::event::{Ended, Failed, STEPS_ALIKE};
use tenantry_core::ids::{InstanceId, RequestId};
use tenantry_core::op::{GoingOn, Member, OpKind, Run, Until};
use tenantry_traces::draw::{Draws, Purpose};

pub(super) use self::running::Running;
use super::places::{Held, Places};
use super::retrieval::{Retrieval, Wanted};
use super::tenants::{Plan, Slots};
use super::{GeneratedTokens, GenerationServing};
use crate::decoder::{Chunk, Decoder, KvCache, Sampling, Step, sample};
use crate::device::synchronize;
use crate::error::ExecutorError;
use crate::likeliest::{NOT_FINITE, not_finite};
use crate::lora::Segment;
use crate::machine::inputs::drawn_ids;
use crate::machine::serving::reason;
use crate::machine::threads::{Perform, Vacate, since};
use crate::machine::{Batch, Outcome, errors};

/// Makes steps of one instance's requests.
pub(super) struct RunLane {
    instance: InstanceId,
    /// Absent where each tenant has a model of its own.
    decoder: Option<Decoder>,
    kv: KvCache,
    places: Places,
    slots: Slots,
    retrieval: Option<Arc<Retrieval>>,
    held: HashMap<RequestId, Held>,
    /// Those whose prompts have begun, in the order in which they did.
    running: Vec<Running>,
    /// Whether requests go on elsewhere once their prompts are complete.
    only_prefills: bool,
    /// Whether they come from elsewhere then.
    only_decodes: bool,
    /// Tokens that the prompts of a tenant begin with in common.
    shared_prefix_tokens: u32,
    /// Of token ids.
    draws: Draws,
    vocabulary: u64,
    end_of_sequence: Option<i64>,
    device: Device,
    generated: GeneratedTokens,
    origin: Instant,
    /// The plan of the last step, which the next one uses again where its tokens fall on the same slots.
    plan: Option<(Vec<Segment>, Option<Plan>)>,
}

impl RunLane {
    pub fn new(serving: &GenerationServing, instance: usize) -> RunLane {
        RunLane {
            instance: InstanceId(instance as u32),
            retrieval: serving.retrieval.clone(),
            end_of_sequence: serving.end_of_sequence,
            shared_prefix_tokens: serving.shared_prefix_tokens,
            places: serving.places[instance].clone(),
            only_prefills: (instance as u32) < serving.prefill_instances,
            only_decodes: serving.prefill_instances > 0 && instance as u32 >= serving.prefill_instances,
            ..RunLane::over(
                serving.model(instance),
                &serving.caches[instance],
                serving.slots[instance].share(),
                (serving.seed, serving.vocabulary, serving.device),
                Arc::clone(&serving.generated),
            )
        }
    }

    /// A lane on which every request makes all its tokens, from their ids.
    pub fn over(
        decoder: Option<&Decoder>,
        kv: &KvCache,
        slots: Slots,
        (seed, vocabulary, device): (u64, u64, Device),
        generated: GeneratedTokens,
    ) -> RunLane {
        RunLane {
            instance: InstanceId(0),
            decoder: decoder.map(Decoder::share),
            places: Places::new(kv.pages()),
            kv: kv.share(),
            slots,
            retrieval: None,
            held: HashMap::new(),
            running: Vec::new(),
            only_prefills: false,
            only_decodes: false,
            shared_prefix_tokens: 0,
            draws: Draws::new(seed, Purpose::Tokens),
            vocabulary,
            end_of_sequence: None,
            device,
            generated,
            origin: Instant::now(),
            plan: None,
        }
    }

    pub fn device(&self) -> Device {
        self.device
    }

    /// Lets a request that is held have so many pages.
    pub fn grow(&mut self, request: RequestId, pages: u32) {
        let held = self.held.get_mut(&request).expect("a member is held");
        self.places.grow(request, held, pages);
    }

    /// Forgets what a request that is held has generated beyond so many tokens.
    pub fn forget_after(&mut self, request: RequestId, tokens: u32) {
        let held = self.held.get_mut(&request).expect("a member is held");
        held.ids.truncate(tokens as usize);
    }

    /// Keeps a member that is new here: its prompt, and what it has generated elsewhere.
    pub fn hold(&mut self, member: &Member) {
        let landed = |request| self.only_decodes.then(|| self.places.take_landed(request)).flatten();
        let held = self.held.entry(member.request).or_insert_with(|| {
            if let Some(landed) = landed(member.request) {
                return landed;
            }
            let mut ids = match &self.retrieval {
                Some(retrieval) => retrieval.prompt(member),
                None => drawn_ids(
                    self.draws,
                    self.vocabulary,
                    (member.ticket, member.tenant),
                    (member.input_tokens, self.shared_prefix_tokens),
                ),
            };
            let generated = self.generated.lock().expect("no lane panics with the tokens");
            ids.extend(generated.get(&member.ticket).into_iter().flatten());
            let shared = member.sequence.prefix.map(|prefix| self.places.prefix(prefix));
            let table = shared.unwrap_or_default();
            Held {
                ids,
                shared_pages: table.len() as u32,
                table,
            }
        });
        assert_eq!(
            held.ids.len() as u32,
            member.input_tokens + member.sequence.generated_tokens,
            "the server counts the tokens that ticket {} has",
            member.ticket
        );
    }

    /// Those of a run: who goes on, and the batch's members, whose prompts it takes in.
    fn begin(&mut self, run: &Run, batch: &Batch) -> Vec<Running> {
        let going_on = self.running.iter().filter(|running| running.completes);
        let (requests, cached_tokens) = going_on.fold((0, 0), |(requests, tokens), running| {
            (requests + 1, tokens + u64::from(running.cached))
        });
        assert_eq!(
            GoingOn {
                requests,
                cached_tokens
            },
            run.going_on,
            "the server counts those who go on, and their tokens"
        );
        for member in &batch.members {
            self.hold(member);
            let new = Running::new(member);
            match self.running.iter_mut().find(|running| running.request == member.request) {
                Some(known) => *known = new,
                None => self.running.push(new),
            }
        }
        let takes_part = |running: &mut Running| running.completes || running.chunk > 0;
        self.running.extract_if(.., takes_part).collect()
    }

    fn run(&mut self, run: &Run, batch: &Batch) -> Outcome {
        let mut members = self.begin(run, batch);
        let mut outcome = Outcome {
            steps: 0,
            first_step_ended: since(self.origin),
            marks: Vec::new(),
            ended: Vec::new(),
            failed: Vec::new(),
        };
        while !members.is_empty() && outcome.steps < run.max_steps {
            let broken = match self.step(&mut members) {
                Ok(broken) => broken,
                Err(error) => {
                    // What was issued before it failed still writes into pages that may be another's from now on.
                    let _ = synchronize(self.device);
                    // Prompts are what needs the most memory, and all that is new: they fail, and the others go on
                    // without them.
                    let otherwise = match error {
                        ExecutorError::Plot(_) => FailureReason::LookupFailed,
                        _ => FailureReason::ComputeFailed,
                    };
                    let reason = reason(&error, otherwise);
                    let prompts = members.iter().any(|member| member.chunk > 0);
                    let fails = |member: &mut Running| member.chunk > 0 || !prompts;
                    for Running { request, .. } in members.extract_if(.., fails) {
                        outcome.failed.push(Failed { request, reason });
                    }
                    continue;
                }
            };
            outcome.steps += 1;
            if outcome.steps == 1 {
                outcome.first_step_ended = since(self.origin);
            }
            if outcome.steps.is_multiple_of(STEPS_ALIKE) {
                outcome.marks.push(since(self.origin));
            }
            // Nothing can follow what is not a number.
            for Running { request, tenant, .. } in members.extract_if(.., |member| broken.contains(&member.request)) {
                errors::note(&not_finite(tenant));
                let reason = FailureReason::ComputeFailed;
                outcome.failed.push(Failed { request, reason });
            }
            self.note_ended(&mut members, outcome.steps);
            let over = match run.until {
                Until::FirstEnds => members.iter().any(|member| member.ended.is_some()),
                Until::AllEnd => members.iter().all(Running::has_ended),
            };
            if over || !outcome.failed.is_empty() || batch.interrupted.load(Ordering::Relaxed) {
                break;
            }
        }
        let ended = |member: &Running| {
            let (request, step) = (member.request, member.ended?);
            Some(Ended { request, step })
        };
        outcome.ended = members.iter().filter_map(ended).collect();
        self.keep_generated(&members);
        if self.only_prefills {
            for member in members.iter().filter(|member| member.completes) {
                self.places.complete(member.request, &self.held[&member.request]);
            }
        }
        members.iter_mut().for_each(Running::end_run);
        // Those who waited for their prompts' turn joined last.
        self.running.splice(..0, members);
        outcome
    }

    /// One step of all members: their chunks come into the cache, and those whose prompt is complete get a token. Whose
    /// logits are not finite get none that means anything, and are told.
    pub fn step(&mut self, members: &mut [Running]) -> Result<Vec<RequestId>, ExecutorError> {
        for member in members.iter() {
            self.grow(member.request, self.kv.pages_for(member.counted()));
        }
        let chunk = |member: &Running| {
            let held = &self.held[&member.request];
            Chunk {
                ids: &held.ids[member.cached as usize..member.cached_next() as usize],
                cached: member.cached,
                pages: &held.table,
                slot: member.slot,
                wants_token: member.completes,
            }
        };
        let chunks: Vec<Chunk<'_>> = members.iter().map(chunk).collect();
        let decoder = self.decoder_of(&chunks)?;
        let step = decoder.step(&chunks, &self.kv)?;
        if self.plan.as_ref().is_none_or(|(segments, _)| segments != step.segments()) {
            self.plan = Some((step.segments().to_vec(), self.slots.plan(&step)?));
        }
        let plan = self.plan.as_ref().and_then(|(_, plan)| plan.as_ref());
        let logits = self.forward(self.decoder_of(&chunks)?, &step, members, plan)?;
        let tokens = match step.wanted() {
            0 => {
                synchronize(self.device)?;
                Vec::new()
            }
            // Reading the tokens waits for the device.
            wanted => sample(&logits, &vec![Sampling::Greedy; wanted])?,
        };
        let mut tokens = tokens.into_iter();
        let mut broken = Vec::new();
        for member in members {
            member.cached = member.cached_next();
            member.chunk = 0;
            if member.completes {
                let token = tokens.next().expect("a token for each that wants one");
                let held = self.held.get_mut(&member.request).expect("a member is held");
                // What is made beyond an answer's end is nobody's.
                if token == NOT_FINITE && !member.has_ended() {
                    broken.push(member.request);
                }
                held.ids.push(token.max(0));
            }
        }
        Ok(broken)
    }

    /// The backbone or, where each tenant has a model of its own, that of the one tenant.
    fn decoder_of(&self, chunks: &[Chunk<'_>]) -> Result<&Decoder, ExecutorError> {
        let Slots::Models(models) = &self.slots else {
            return Ok(self.decoder.as_ref().expect("tenants without models share one"));
        };
        let slot = chunks.first().and_then(|chunk| chunk.slot);
        match slot.filter(|_| chunks.iter().all(|chunk| chunk.slot == slot)) {
            Some(slot) => Ok(models.model(slot)),
            None => Err(ExecutorError::input(
                "a step with tenants' own models",
                "of one tenant",
                "several, or none",
            )),
        }
    }

    /// Logits of the members that want a token: from their ids, or from what is looked up of them.
    fn forward(
        &self,
        decoder: &Decoder,
        step: &Step,
        members: &[Running],
        plan: Option<&Plan>,
    ) -> Result<tch::Tensor, ExecutorError> {
        let tenants = self.slots.parameters(plan);
        let Some(retrieval) = &self.retrieval else {
            return decoder.forward(step, &self.kv, tenants);
        };
        let wanted = |member: &Running| Wanted {
            request: member.request,
            tenant: member.tenant,
            ids: &self.held[&member.request].ids,
            first: member.cached,
            end: member.cached_next(),
        };
        let wanted: Vec<Wanted<'_>> = members.iter().map(wanted).collect();
        let states = retrieval.states(self.instance, &wanted)?;
        let logits = decoder.forward_upper(states, step, &self.kv, tenants)?;
        for member in members.iter().filter(|member| member.chunk > 0 && member.completes) {
            retrieval.drop_staged(self.instance, member.request);
        }
        Ok(logits)
    }

    /// Counts the tokens of the step that is over. Where all wait for the longest, a member that has ended goes on, and
    /// what it makes is not counted.
    fn note_ended(&self, members: &mut [Running], step: u32) {
        for member in members.iter_mut().filter(|member| member.completes && !member.has_ended()) {
            member.made += 1;
            let last = self.held[&member.request].ids.last();
            if member.made == member.left || (last.is_some() && last == self.end_of_sequence.as_ref()) {
                member.ended = Some(step);
            }
        }
    }

    fn keep_generated(&self, members: &[Running]) {
        let mut generated = self.generated.lock().expect("no lane panics with the tokens");
        for member in members.iter().filter(|member| member.made > 0) {
            let new = member.tokens as usize..(member.tokens + member.made) as usize;
            let tokens = generated.entry(member.ticket).or_default();
            tokens.extend(&self.held[&member.request].ids[new]);
        }
    }
}

impl Perform for RunLane {
    fn device(&self) -> Device {
        self.device
    }

    fn prepare(&mut self) -> Result<(), ExecutorError> {
        self.warm_up()
    }

    fn start_clock(&mut self, origin: Instant) {
        self.origin = origin;
    }

    fn perform(&mut self, kind: &OpKind, batch: &Batch) {
        let OpKind::Run(run) = kind else {
            unreachable!("a decoder's compute lane makes steps")
        };
        let outcome = self.run(run, batch);
        *batch.outcome.lock().expect("nobody panics with what came of a run") = Some(outcome);
    }

    fn release(&mut self, request: RequestId) {
        if let Some(retrieval) = &self.retrieval {
            retrieval.drop_staged(self.instance, request);
        }
        self.running.retain(|running| running.request != request);
        // Who leaves before the first step has at most been looked up, or copied.
        assert!(
            self.held.remove(&request).is_some() || self.retrieval.is_some() || self.only_decodes,
            "a request leaves once, and after its first step"
        );
    }

    fn park(&mut self, request: RequestId) {
        self.running.retain(|running| running.request != request);
    }

    fn vacate(&self) -> Option<Box<dyn Vacate>> {
        Some(Box::new(self.places.clone()))
    }
}

#[cfg(test)]
mod tests;
