//! What a run is remembered by: counts, distributions, a series over time, and the laws that must hold.

mod record;
mod series;

use tenantry_traces::{Action, Duration, Time};

use crate::command::{Command, Commands, Finish, Returned, Verdict};
use crate::durations::{InRuns, Tally};
use crate::event::{Done, Event};
use crate::in_time::Target;
use crate::machine::{LookupCounts, Machine};
use crate::op::{BatchShape, Op, Submission};
use crate::run::RunEnd;
use crate::server::cascade::StageCounts;
use crate::server::generation::GenerationCounts;
use crate::server::{Server, SwapCounts};

pub use crate::durations::Durations;
pub use record::{ByReason, CascadeRecord, Counts, ManagementRecord, RunRecord};
pub use series::{Series, Window};

use series::Windows;

/// A law of the simulation that a run broke: a mistake in Tenantry, never in its input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("broken law: {0}")]
pub struct BrokenLaw(pub String);

/// Counters at the end of the warm-up, which are left out.
#[derive(Clone, Debug, Default)]
struct Before {
    swaps: Option<SwapCounts>,
    lookups: Option<LookupCounts>,
    stages: Vec<StageCounts>,
    generation: Option<GenerationCounts>,
    /// Pools that were taken up, and mini-batches that ran.
    pools: (u64, u64),
}

impl Before {
    fn of(server: &Server) -> Before {
        Before {
            swaps: server.swaps(),
            lookups: None,
            stages: server.stages(),
            generation: server.generation(),
            pools: server.tasks().map_or((0, 0), |tasks| (tasks.plans, tasks.groups)),
        }
    }
}

/// Tokens of an answer that ended now and were made at a time or later, as if evenly from its first one on.
fn made_since(from: Time, now: Time, finish: &Finish) -> u32 {
    match finish.first_token {
        Some(first) if first < from => {
            let later = u128::from(finish.output_tokens.saturating_sub(1));
            let share = |tokens: u128| tokens * u128::from(now.since(from).0) / u128::from(now.since(first).0);
            share(later) as u32
        }
        _ => finish.output_tokens,
    }
}

#[cold]
fn runs_back(before: Time, now: Time, event: &Event<'_>) -> BrokenLaw {
    BrokenLaw(format!("time runs forward, but {event:?} at {now} follows {before}"))
}

#[cold]
fn too_soon(ticket: u64) -> BrokenLaw {
    BrokenLaw(format!("ticket {ticket} is handled before it arrives"))
}

/// Observes a run and makes its record.
#[derive(Debug)]
pub struct Ledger {
    warm_up: Time,
    target: Option<Target>,
    at_warm_up: Option<Before>,
    record: RunRecord,
    /// Whether what the server and the machine came to is in the record.
    has_ended: bool,
    /// Of the record, until it is closed.
    windows: Windows,
    latency: Tally,
    queue: Tally,
    first_token: Tally,
    per_token: Tally,
    longest_gap: Tally,
    /// On the lane, stalled, computing, and until it was told.
    of_batch: InRuns<4>,
    in_flight: u64,
    in_flight_area: u128,
    latest: Time,
}

impl Ledger {
    /// `warm_up` is left out of the figures.
    pub fn new(warm_up: Time) -> Ledger {
        Ledger {
            warm_up,
            target: None,
            at_warm_up: None,
            has_ended: false,
            in_flight: 0,
            in_flight_area: 0,
            latest: Time::ZERO,
            record: RunRecord::default(),
            windows: Windows::default(),
            latency: Tally::default(),
            queue: Tally::default(),
            first_token: Tally::default(),
            per_token: Tally::default(),
            longest_gap: Tally::default(),
            of_batch: InRuns::default(),
        }
    }

    /// Judges requests by whether they keep it.
    pub fn with_target(self, target: Option<Target>) -> Ledger {
        Ledger { target, ..self }
    }

    /// End of the warm-up.
    pub fn warm_up(&self) -> Time {
        self.warm_up
    }

    /// Whether the warm-up is over.
    #[inline]
    pub fn is_warm(&self) -> bool {
        self.at_warm_up.is_some()
    }

    /// Whether nobody is inside: all who came have left.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.in_flight == 0
    }

    /// The warm-up is over when the first event after it comes, before it is handled: what was swapped and answered by
    /// single models until now is not counted, nor which tokens were made.
    pub(crate) fn warmed_up(&mut self, server: &mut Server) {
        server.warmed_up(self.warm_up);
        self.at_warm_up = Some(Before::of(server));
    }

    /// Nor what was looked up.
    pub(crate) fn leave_out_lookups(&mut self, machine: &impl Machine) {
        let before = self.at_warm_up.as_mut().expect("the warm-up is over");
        before.lookups = machine.lookups();
    }

    /// # Errors
    /// When time runs back.
    #[inline]
    pub(crate) fn event(&mut self, before: Time, now: Time, event: &Event<'_>) -> Result<(), BrokenLaw> {
        if now < before {
            return Err(runs_back(before, now, event));
        }
        self.in_flight_area += u128::from(self.in_flight) * u128::from(now.since(self.latest).0);
        self.latest = now;
        if let Event::Arrived(request) = event {
            if now < request.arrival {
                return Err(too_soon(request.ticket));
            }
            self.record.counts.offered += 1;
            // It has been here since it arrived, heard or not.
            self.in_flight_area += u128::from(now.since(request.arrival).0);
            if request.arrival >= self.warm_up {
                self.record.in_time.came();
            }
            self.in_flight += 1;
            self.windows.at(now).arrived += 1;
        }
        if let Event::Manage(request) = event
            && request.change.action != Action::Absent
        {
            self.record.management.offered += 1;
        }
        if let Event::Done(Done {
            run: Some(run), timing, ..
        }) = event
        {
            let first = u32::from(run.steps > 0 && run.first_step_ended >= self.warm_up);
            let counted = first + run.further_steps_since(self.warm_up, timing.ended);
            self.batches(now, run.steps, counted, run.requests);
        }
        Ok(())
    }

    /// # Errors
    /// When more leave than came.
    #[inline(always)]
    pub(crate) fn command(&mut self, now: Time, command: &Command, commands: &Commands) -> Result<(), BrokenLaw> {
        match command {
            Command::Submit(submission) => self.submitted(now, submission, commands.ops(submission)),
            Command::Finish(finish) => self.finish(now, finish)?,
            Command::Managed(managed) => self.record.management.answer(now, managed),
            Command::SetTimer { .. }
            | Command::Interrupt { .. }
            | Command::Park { .. }
            | Command::Release { .. }
            | Command::ReleasePrefix { .. } => {}
        }
        Ok(())
    }

    #[inline]
    fn submitted(&mut self, now: Time, submission: &Submission, ops: &[Op]) {
        // A decoder's steps are counted when they are over, and its adapters' copies are no batches.
        if ops.iter().any(|op| op.kind.is_pass()) {
            self.passes(now, submission.shape);
        }
    }

    fn passes(&mut self, now: Time, shape: BatchShape) {
        let counts = now >= self.warm_up;
        self.batches(now, 1, counts.into(), shape.requests);
        if counts {
            self.record.input_tokens += u64::from(shape.input_tokens);
            self.record.padded_tokens += u64::from(shape.requests) * u64::from(shape.tokens);
        }
    }

    /// Counts batches of an encoder, or steps of a decoder, of which so many are after the warm-up.
    fn batches(&mut self, now: Time, batches: u32, counted: u32, requests: u32) {
        let (batches, counted, requests) = (u64::from(batches), u64::from(counted), u64::from(requests));
        let window = self.windows.at(now);
        window.batches += batches;
        window.batch_requests += batches * requests;
        self.record.batches += counted;
        self.record.batch_requests += counted * requests;
    }

    /// A route's models have answered a request that came at `arrival`, and it leaves.
    #[inline(never)]
    pub(crate) fn returned(&mut self, arrival: Time, returned: Returned, right: Option<bool>) {
        if arrival < self.warm_up {
            return;
        }
        let cascade = self.record.cascade.get_or_insert_default();
        let stage = usize::from(returned.stage);
        let stages = returned.asked_stages().last().map_or(0, |last| last + 1);
        if stages > cascade.returned.len() {
            cascade.resize(stages);
        }
        cascade.returned[stage] += 1;
        returned.asked_stages().for_each(|stage| cascade.asked[stage] += 1);
        cascade.judged[stage] += u64::from(right.is_some());
        cascade.right[stage] += u64::from(right == Some(true));
    }

    fn finish(&mut self, now: Time, finish: &Finish) -> Result<(), BrokenLaw> {
        self.in_flight = self
            .in_flight
            .checked_sub(1)
            .ok_or_else(|| BrokenLaw(format!("ticket {} leaves, but nobody is inside", finish.ticket)))?;
        let record = &mut self.record;
        match finish.verdict {
            Verdict::Served => record.counts.served += 1,
            Verdict::Cancelled => record.counts.cancelled += 1,
            Verdict::Rejected(reason) => {
                record.counts.rejected += 1;
                *record.rejected.entry(reason).or_default() += 1;
            }
            Verdict::Failed(reason) => {
                record.counts.failed += 1;
                *record.failed.entry(reason).or_default() += 1;
            }
        }
        if matches!(finish.verdict, Verdict::Rejected(_) | Verdict::Failed(_)) && finish.arrival >= self.warm_up {
            record.refused += 1;
        }
        let latency = now.since(finish.arrival);
        if finish.arrival >= self.warm_up {
            record.in_time.left(now, finish, self.target.as_ref());
        }
        let waits = finish.waits;
        let parts = waits.total();
        if parts != latency && !matches!(finish.verdict, Verdict::Rejected(_)) {
            return Err(BrokenLaw(format!(
                "ticket {} took {latency}, but its parts {waits:?} are {parts} in all",
                finish.ticket
            )));
        }
        if finish.verdict != Verdict::Served {
            return Ok(());
        }
        let window = self.windows.at(now);
        window.served += 1;
        window.latency_sum_ns += u128::from(latency.0);
        if now >= self.warm_up {
            record.served += 1;
            record.output_tokens += u64::from(made_since(self.warm_up, now, finish));
        }
        if finish.arrival >= self.warm_up {
            self.latency.record(latency);
            self.queue.record(waits.queue);
            self.of_batch.record([waits.lane, waits.stall, waits.compute, waits.tell]);
            if let Some(first_token) = finish.first_token {
                self.first_token.record(first_token.since(finish.arrival));
                if let Some(per_token) = finish.per_token(now) {
                    self.per_token.record(per_token);
                    self.longest_gap.record(finish.longest_gap);
                }
            }
        }
        Ok(())
    }

    /// Nobody is inside and nobody comes any more: what happens from now on, such as a load that nobody waits for, is
    /// in no figure but that of management requests.
    pub(crate) fn ended(&mut self, at: Time, server: &Server, machine: &impl Machine) {
        self.has_ended = true;
        let record = &mut self.record;
        record.end = at;
        record.duration = at.since(self.warm_up.min(at));
        record.in_flight_mean = self.in_flight_area as f64 / (at.0.max(1)) as f64;
        record.token_gap = server.token_gaps().unwrap_or_default();
        record.memory = server.memory();
        record.swaps = server.swaps();
        record.generation = server.generation();
        record.tasks = server.tasks().cloned();
        record.fleet = server.fleet(at);
        record.scaling = server.scaling(at);
        record.lookups = machine.lookups();
        record.lanes = machine.lanes(at);
        // A run that ended within its warm-up has nothing to show.
        let before = self.at_warm_up.get_or_insert_with(|| Before {
            lookups: machine.lookups(),
            ..Before::of(server)
        });
        let stages = server.stages();
        if !stages.is_empty() {
            let cascade = record.cascade.get_or_insert_default();
            cascade.resize(stages.len());
            cascade.stages = stages;
            for (now, before) in cascade.stages.iter_mut().zip(&before.stages) {
                now.answered -= before.answered;
                now.computed = Duration(now.computed.0 - before.computed.0);
            }
        }
        if let (Some(now), Some(before)) = (&mut record.swaps, before.swaps) {
            now.hits -= before.hits;
            now.misses -= before.misses;
            now.evictions -= before.evictions;
            now.bytes_in -= before.bytes_in;
        }
        if let (Some(now), Some(before)) = (&mut record.generation, before.generation) {
            *now = now.since(before);
        }
        if let Some(tasks) = &mut record.tasks {
            tasks.plans -= before.pools.0;
            tasks.groups -= before.pools.1;
        }
        if let (Some(now), Some(before)) = (&mut record.lookups, before.lookups) {
            now.tokens -= before.tokens;
            now.domain_hits -= before.domain_hits;
            now.root_hits -= before.root_hits;
            now.fallbacks -= before.fallbacks;
        }
    }

    /// The record of the run that has ended.
    ///
    /// # Errors
    /// When a request was lost or a lane was busier than there was time.
    pub fn close(mut self, end: RunEnd, server: &Server, machine: &impl Machine) -> Result<RunRecord, BrokenLaw> {
        if !self.has_ended {
            self.ended(end.at, server, machine);
        }
        let counts = &mut self.record.counts;
        counts.unfinished = server.in_flight();
        let accounted = counts.served + counts.rejected + counts.failed + counts.cancelled + counts.unfinished;
        if accounted != counts.offered {
            return Err(BrokenLaw(format!(
                "{} requests arrived and {accounted} are accounted for",
                counts.offered
            )));
        }
        let management = &mut self.record.management;
        let (offered, answered) = (management.offered, management.answered());
        let unfinished = offered.checked_sub(answered).filter(|&left| left == 0 || end.interrupted);
        management.unfinished = unfinished.ok_or_else(|| {
            BrokenLaw(format!(
                "{offered} management requests were made and {answered} answered"
            ))
        })?;
        let record = &mut self.record;
        record.series = self.windows.series;
        record.latency = self.latency.into_durations();
        record.queue = self.queue.into_durations();
        record.first_token = self.first_token.into_durations();
        record.per_token = self.per_token.into_durations();
        record.longest_gap = self.longest_gap.into_durations();
        [record.lane, record.stall, record.compute, record.tell] = self.of_batch.into_durations();
        record.interrupted = end.interrupted;
        record.memory.check().map_err(BrokenLaw)?;
        if end.interrupted {
            // It ends with the last event that was heard; lanes went on meanwhile.
            for lane in &mut record.lanes {
                lane.busy = lane.busy.min(record.duration);
            }
        }
        if let Some(lane) = record.lanes.iter().find(|lane| lane.busy > record.duration) {
            return Err(BrokenLaw(format!(
                "{} was busy {} of {}",
                lane.name, lane.busy, record.duration
            )));
        }
        Ok(self.record)
    }
}
