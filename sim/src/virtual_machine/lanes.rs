//! When an op of a lane starts, what it takes, and what its end sets off.

use tenantry_core::board::{OpRef, Started};
use tenantry_core::event::Ended;
use tenantry_core::ids::{BatchId, LaneId};
use tenantry_core::op::OpKind;
use tenantry_core::topology::LaneKind;
use tenantry_profiles::Rhythm;
use tenantry_traces::{Duration, Time};

use super::VirtualMachine;
use super::submitting::Owner;
use crate::ppm::scaled;
use crate::prices::{Before, ModelBefore, OpSpread, Warmth};

/// An op that runs, or is about to.
#[derive(Debug)]
pub struct Running {
    pub op: OpRef,
    /// Whose tables say what it takes beside others and after idleness: see [`working_as`].
    pub working_as: LaneKind,
    pub started: Time,
    pub work: Work,
    /// Time that a million nanoseconds of work take.
    pub stretch_ppm: u64,
    /// From hearing of the lane's last end until this was handed over.
    pub pause: Duration,
    /// For what is drawn when it has ended.
    pub spread: OpSpread,
}

/// What is left of a running op.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// At `since`, in nanoseconds on an undisturbed lane.
    Whole { left_ns: u64, since: Time },
    /// A decoder's steps: those of its batch's leap.
    Steps,
}

/// What came of a run, until the server hears of it.
#[derive(Debug, Default)]
pub struct Outcome {
    pub requests: u32,
    pub steps: u32,
    pub first_step_ended: Time,
    pub marks: Vec<Time>,
    pub ended: Vec<Ended>,
}

#[derive(Debug)]
pub struct Lane {
    pub kind: LaneKind,
    /// Where what runs beside it is counted: its card, or the first where all are threads of one processor.
    pub card: usize,
    pub running: Option<Running>,
    pub ops: u64,
    /// Whose whole model its last op was computed with, where tenants have such.
    pub model_of: Option<u32>,
    pub warmth: Warmth,
    /// Of decoders' runs.
    pub steps: u64,
    pub busy: Duration,
    /// When the end of its last op is heard of: no later op's end is heard of sooner, since a lane tells in order.
    pub heard: Time,
    /// What its last op took.
    pub last_work: Duration,
}

/// The kind of lane that an op is work for: the lane's own, but a look-up is one on a lane of copies too, where a card
/// has none for look-ups.
fn working_as(lane: LaneKind, op: &OpKind) -> LaneKind {
    match op {
        OpKind::Lookup(_) => LaneKind::Lookup,
        _ => lane,
    }
}

pub fn busy_between(start: Time, end: Time) -> Duration {
    if end > start { end.since(start) } else { Duration::ZERO }
}

impl VirtualMachine {
    /// Starts the next op of an idle lane, if it is ready. Whether it was.
    pub(super) fn try_start(&mut self, lane: LaneId) -> bool {
        let Some(Started {
            op,
            kind,
            shape,
            instance,
            free_since,
        }) = self.board.start(lane)
        else {
            return false;
        };
        let state = &mut self.lanes[lane.index()];
        let (working_as, card, made_before) = (working_as(state.kind, kind), state.card, state.steps);
        let cools_as = self.prices.cools_as(state.kind, working_as);
        let mut spread = self.prices.spread(lane.0, state.ops);
        // A lane that has just ended an op takes the next from its queue; an idle one must be woken.
        let idle = self.now.since(free_since);
        let just_freed = state.ops > 0 && idle == Duration::ZERO;
        state.ops += 1;
        let (wake, pause) = if just_freed {
            (0, Duration::ZERO)
        } else {
            let pause = busy_between(state.heard, self.now);
            let rhythm = Rhythm {
                pause_ns: pause.0,
                work_ns: state.last_work.0,
                others_busy: self.prices.fills_cores(self.running),
            };
            (self.prices.wake_ns(rhythm, &mut spread), pause)
        };
        self.running += 1;
        let pool = self.topology.instances[instance.index()].pool;
        let started = self.now + Duration(wake);
        let others = self.beside[card].computing;
        if others > 0 && working_as == LaneKind::Compute {
            self.prices.note_side_by_side(pool, kind, others + 1, shape);
        }
        let mut work = match kind {
            OpKind::Run(_) => {
                self.leaps[op.batch.slot as usize].start(started, made_before, self.one_by_one);
                Work::Steps
            }
            OpKind::Pet(pet) => Work::Whole {
                left_ns: self.prices.tasks_ns(
                    pet,
                    self.groups.get(op.batch.slot as usize).map_or(&[], Vec::as_slice),
                    shape,
                    &mut spread,
                ),
                since: started,
            },
            OpKind::Inspect => {
                let pruned = self.answers.as_ref().map_or(0, |answers| answers.pruned(op.batch, pool.index()));
                Work::Whole {
                    left_ns: self.prices.look_ns(pool, shape, pruned, &mut spread),
                    since: started,
                }
            }
            _ => Work::Whole {
                left_ns: self.prices.work_ns(pool, kind, shape, &mut spread),
                since: started,
            },
        };
        if let OpKind::Lookup(lookup) = kind {
            let fragments = lookup.fragments;
            self.count_lookup(fragments.into());
        }
        let model = match working_as {
            LaneKind::Compute => self.takes_up_model(lane, op.batch),
            _ => ModelBefore::Same,
        };
        let before = Before { idle, model };
        if self.prices.cools_down(cools_as, pool, before) {
            let work_ns = match &work {
                Work::Whole { left_ns, .. } => *left_ns,
                Work::Steps => {
                    let plan = &self.leaps[op.batch.slot as usize].plan;
                    self.prices.steps().worked_ns(&plan.costs, plan.steps)
                }
            };
            let warmth = &mut self.lanes[lane.index()].warmth;
            let prices = &self.prices;
            let resume_ns = prices.resume_ns(cools_as, pool, before, work_ns, warmth, &mut spread);
            match &mut work {
                Work::Whole { left_ns, .. } => *left_ns += resume_ns,
                // The whole run's in its first step: most of it is the first steps'. So it is slowed by what runs
                // beside it, and varies with its block.
                Work::Steps => self.leaps[op.batch.slot as usize].plan.costs.first_ns += resume_ns,
            }
        }
        self.beside[card].starts(working_as);
        let far_end = self.far_end(working_as, op);
        if let Some(far_end) = far_end {
            self.on_link[far_end.index()] += 1;
        }
        let stretch_ppm = self.stretch(working_as, card, op);
        self.lanes[lane.index()].running = Some(Running {
            op,
            working_as,
            started,
            work,
            stretch_ppm,
            pause,
            spread,
        });
        match work {
            Work::Whole { left_ns, since } => {
                let at = since + Duration(scaled(left_ns, stretch_ppm));
                self.pending.lane_ends(at, lane);
            }
            Work::Steps => self.next_segment(lane, op, stretch_ppm),
        }
        self.restretch_neighbours(lane, card, 1);
        if far_end.is_some() {
            self.restretch_links();
        }
        true
    }

    /// Notes whose whole model the lane computes with from now on, and says whose it was until now.
    fn takes_up_model(&mut self, lane: LaneId, batch: BatchId) -> ModelBefore {
        let Some(&Some(Owner { tenant, copied })) = self.owners.get(batch.slot as usize) else {
            return ModelBefore::Same;
        };
        match self.lanes[lane.index()].model_of.replace(tenant) {
            Some(last) if last == tenant => ModelBefore::Same,
            _ if copied => ModelBefore::Copied,
            _ => ModelBefore::Other,
        }
    }

    /// A segment of a lane's steps has ended: the next goes at the pace that what runs beside it leaves.
    pub(super) fn segment_ends(&mut self, lane: LaneId) {
        let Lane { card, running, .. } = &self.lanes[lane.index()];
        let Running { op, working_as, .. } = running.as_ref().expect("an op runs");
        let (op, stretch_ppm) = (*op, self.stretch(*working_as, *card, *op));
        let running = self.lanes[lane.index()].running.as_mut().expect("an op runs");
        running.stretch_ppm = stretch_ppm;
        self.next_segment(lane, op, stretch_ppm);
    }

    fn next_segment(&mut self, lane: LaneId, op: OpRef, stretch_ppm: u64) {
        let leap = &mut self.leaps[op.batch.slot as usize];
        let block = leap.next_block();
        let jitter_ppm = leap.jitter_ppm(block, |typical| self.prices.block_ppm(lane.0, block, typical));
        leap.next_segment(self.prices.steps(), stretch_ppm, jitter_ppm);
        self.pending.segment_of(lane, leap);
    }

    /// Shares of the specification, since no tokens are there to be found in any table.
    fn count_lookup(&mut self, fragments: u64) {
        let (Some(counts), Some(plot)) = (&mut self.looked_up, &self.plot) else {
            return;
        };
        // Of all together, so that small batches round nothing away, and fallbacks of what no domain has, so that no
        // count falls as others rise.
        counts.tokens += fragments;
        let share = |of: u64, ppm: u32, whole_ppm: u32| {
            (u128::from(of) * u128::from(ppm) / u128::from(whole_ppm.max(1))) as u64
        };
        let (domain_hits_ppm, fallbacks_ppm) = plot.met_ppm();
        counts.domain_hits = share(counts.tokens, domain_hits_ppm, 1_000_000);
        let of_no_domain = counts.tokens - counts.domain_hits;
        counts.fallbacks = share(of_no_domain, fallbacks_ppm, 1_000_000 - domain_hits_ppm);
        counts.root_hits = of_no_domain - counts.fallbacks;
    }

    pub(super) fn lane_ends(&mut self, lane: LaneId) {
        let state = &mut self.lanes[lane.index()];
        let Running {
            op: ended,
            working_as,
            started,
            work,
            pause,
            mut spread,
            ..
        } = state.running.take().expect("an op runs");
        let batch = ended.batch;
        let mut looked_up = 0;
        if let Work::Steps = work {
            let slot = batch.slot as usize;
            let leap = &mut self.leaps[slot];
            let steps = leap.steps();
            state.steps += u64::from(steps);
            if slot >= self.outcomes.len() {
                self.outcomes.resize_with(slot + 1, Outcome::default);
            }
            let outcome = &mut self.outcomes[slot];
            outcome.requests = leap.plan.requests;
            outcome.steps = steps;
            outcome.first_step_ended = leap.first_step_ended;
            leap.take_marks(self.prices.steps(), &mut outcome.marks);
            let instance = self.board.instance(batch);
            self.last_tokens[instance.index()].ran(steps, &mut outcome.ended);
            looked_up = leap.plan.costs.looked_up(steps);
        }
        state.busy += busy_between(started.max(self.count_from), self.now);
        state.last_work = busy_between(started, self.now);
        self.running -= 1;
        let rhythm = Rhythm {
            pause_ns: pause.0,
            work_ns: state.last_work.0,
            others_busy: self.prices.fills_cores(self.running),
        };
        let tell = Duration(self.prices.tell_ns(rhythm, &mut spread));
        let card = state.card;
        self.beside[card].ends(working_as);
        let far_end = self.far_end(working_as, ended);
        if let Some(far_end) = far_end {
            self.on_link[far_end.index()] -= 1;
        }
        if looked_up > 0 {
            self.count_lookup(looked_up);
        }
        let op = self.board.ran(lane, started, self.now);
        // Whoever waits on this lane needs no telling; other lanes and the server do.
        let goes_on = self.board.is_waited_for(lane) && self.try_start(lane);
        // Where the next has started, that has been done.
        if !goes_on {
            self.restretch_neighbours(lane, card, 0);
        }
        if far_end.is_some() {
            self.restretch_links();
        }
        let heard = &mut self.lanes[lane.index()].heard;
        *heard = (*heard).max(self.now + tell);
        let at = *heard;
        self.pending.will_be_heard(at, op);
    }
}
