//! A run of steps under way in virtual time: where its step boundaries lie, without visiting them.
//!
//! A run is cut into segments within which every step is slowed by the same factor: by what runs beside it, and by the jitter of its
//! block of steps. A new factor applies from the next boundary. What a segment's rounding leaves is carried into the next, so that it
//! does not matter into how many segments the steps are cut: leaping over many and taking them one by one agree to the nanosecond.

use tenantry_core::event::EndedMember;
use tenantry_core::op::{Member, Run, Until};
use tenantry_traces::{Duration, Time};

use crate::steps::{StepCosts, StepPrices};

/// Steps that share one draw of jitter.
pub(crate) const BLOCK_STEPS: u64 = 32;

/// One, as a factor.
const UNIT: u128 = 1_000_000_000_000;

/// What is known of a run when it is submitted.
#[derive(Clone, Debug)]
pub(crate) struct RunPlan {
    pub costs: StepCosts,
    pub requests: u32,
    /// Steps at which it ends, if nobody interrupts it.
    pub steps: u32,
    /// Steps after which each member has its last token.
    last_token_after: Vec<u32>,
}

impl RunPlan {
    pub fn new(run: Run, members: &[Member], costs: StepCosts) -> RunPlan {
        let left = |member: &Member| match member.sequence {
            // Its prompt is not complete: this run, a single step, makes no token of it.
            sequence if sequence.chunk_tokens > 0 && !sequence.completes => u32::MAX,
            sequence => sequence.output_tokens.saturating_sub(sequence.generated_tokens).max(1),
        };
        let last_token_after: Vec<u32> = members.iter().map(left).collect();
        let end = match run.until {
            Until::FirstEnds => last_token_after.iter().min(),
            Until::AllEnd => last_token_after.iter().max(),
        };
        RunPlan {
            costs,
            requests: members.len() as u32,
            steps: run.max_steps.min(*end.expect("a run has members")).max(1),
            last_token_after,
        }
    }

    /// Members that have their last token after so many steps.
    pub fn ended(&self, steps: u32) -> impl Iterator<Item = EndedMember> + '_ {
        let members = self.last_token_after.iter().enumerate();
        members
            .filter(move |&(_, &step)| step <= steps)
            .map(|(member, &step)| EndedMember {
                member: member as u32,
                step,
            })
    }
}

/// Steps that are slowed alike.
#[derive(Clone, Copy, Debug)]
struct Segment {
    from: Time,
    /// Steps of the run that are over.
    first: u32,
    /// Of this segment.
    steps: u32,
    /// Parts of 10^12.
    factor: u64,
    /// What rounding left of the segments before, in parts of 10^12 of a nanosecond.
    carry: u64,
}

/// A run under way.
#[derive(Clone, Debug)]
pub(crate) struct Leap {
    pub plan: RunPlan,
    segment: Segment,
    /// Steps that the lane had made before this run.
    made_before: u64,
    pub first_step_ended: Time,
    /// Whether every step is a segment of its own.
    one_by_one: bool,
}

impl Leap {
    /// A run whose first step starts at `from`, slowed by `factor_ppm` of `stretch` and `jitter`.
    pub fn start(plan: RunPlan, from: Time, made_before: u64, one_by_one: bool) -> Leap {
        Leap {
            plan,
            segment: Segment {
                from,
                first: 0,
                steps: 0,
                factor: 0,
                carry: 0,
            },
            made_before,
            first_step_ended: from,
            one_by_one,
        }
    }

    /// Starts later than it was going to.
    pub fn delay(&mut self, by: Duration) {
        self.segment.from += by;
    }

    /// Begins the segment after the one that is over, with the factors that hold from here on.
    pub fn next_segment(&mut self, prices: &mut StepPrices, stretch_ppm: u64, jitter_ppm: u64) {
        let (from, carry) = self.boundary(prices, self.segment.steps);
        let first = self.segment.first + self.segment.steps;
        let in_block = (self.made_before + u64::from(first)) % BLOCK_STEPS;
        let to_block_end = (BLOCK_STEPS - in_block) as u32;
        let steps = if self.one_by_one {
            1
        } else {
            to_block_end.min(self.plan.steps - first)
        };
        self.segment = Segment {
            from,
            first,
            steps,
            factor: stretch_ppm * jitter_ppm,
            carry,
        };
        if first == 0 {
            self.first_step_ended = self.boundary(prices, 1).0;
        }
    }

    /// The block of steps that the next segment lies in.
    pub fn next_block(&self) -> u64 {
        (self.made_before + u64::from(self.segment.first + self.segment.steps)) / BLOCK_STEPS
    }

    /// When `steps` steps of the segment are over, and what rounding leaves.
    fn boundary(&self, prices: &mut StepPrices, steps: u32) -> (Time, u64) {
        let Segment {
            from,
            first,
            factor,
            carry,
            ..
        } = self.segment;
        let work_ns = prices.between(&self.plan.costs, first, first + steps);
        let scaled = u128::from(work_ns) * u128::from(factor) + u128::from(carry);
        (from + Duration((scaled / UNIT) as u64), (scaled % UNIT) as u64)
    }

    /// When the segment is over.
    pub fn segment_ends(&self, prices: &mut StepPrices) -> Time {
        self.boundary(prices, self.segment.steps).0
    }

    /// Whether the segment is the run's last.
    pub fn is_last(&self) -> bool {
        self.segment.first + self.segment.steps == self.plan.steps
    }

    /// Steps of the run up to the end of the segment.
    pub fn steps(&self) -> u32 {
        self.segment.first + self.segment.steps
    }

    /// Ends the segment at its first boundary that is not before `now`.
    pub fn cut(&mut self, prices: &mut StepPrices, now: Time) {
        let (mut before, mut after) = (0, self.segment.steps);
        while before + 1 < after {
            let middle = before + (after - before) / 2;
            if self.boundary(prices, middle).0 >= now {
                after = middle;
            } else {
                before = middle;
            }
        }
        self.segment.steps = after;
    }

    /// Ends the run at the segment's end.
    pub fn end_here(&mut self) {
        self.plan.steps = self.steps();
    }
}
