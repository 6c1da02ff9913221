//! A run of steps under way in virtual time: where its step boundaries lie, without visiting them.
//!
//! A run is cut into segments that are slowed by the same factor: by what runs beside it, and by the jitter of its
//! block of steps. A new factor applies at once, to what is left of the step that is being made. What a segment's
//! rounding leaves at a boundary is carried into the next, so that it does not matter into how many segments the steps
//! are cut: leaping over many and taking them one by one agree to the nanosecond.

use tenantry_core::event::STEPS_ALIKE;
use tenantry_profiles::Drawn;
use tenantry_traces::{Duration, Time};

use crate::steps::{StepCosts, StepPrices};

/// Steps that share one draw of jitter.
pub(crate) const BLOCK_STEPS: u64 = 32;

/// One, as a factor.
const UNIT: u64 = MILLION * MILLION;

const MILLION: u64 = 1_000_000;

/// `(work_ns × factor + carry) / UNIT` and what that leaves, for a `carry` below `UNIT`.
#[inline]
fn scaled(work_ns: u64, factor: u64, carry: u64) -> (u64, u64) {
    match factor {
        // Nothing slows it, and its blocks do not vary.
        UNIT => (work_ns, carry),
        _ => divided(work_ns, factor, carry),
    }
}

fn divided(work_ns: u64, factor: u64, carry: u64) -> (u64, u64) {
    // Two divisions by a million in 64 bits, which compilers turn into multiplications, rather than one by their
    // product in 128.
    let (high, low) = (factor / MILLION, factor % MILLION);
    match work_ns.checked_mul(high) {
        // Far from where a sum would overflow.
        Some(millions) if millions < u64::MAX / 2 && work_ns < u64::MAX / (2 * MILLION) => {
            let ones = work_ns * low + carry;
            let millions = millions + ones / MILLION;
            (millions / MILLION, millions % MILLION * MILLION + ones % MILLION)
        }
        _ => {
            let product = u128::from(work_ns) * u128::from(factor) + u128::from(carry);
            let unit = u128::from(UNIT);
            ((product / unit) as u64, (product % unit) as u64)
        }
    }
}

/// `(ns × UNIT − carry) / factor` and what that leaves, for a `carry` below `UNIT` that is not more than the product.
#[inline]
fn worked(ns: u64, carry: u64, factor: u64) -> (u64, u64) {
    /// Up to here a quotient in floating point is off by no more than a few.
    const LARGE: u64 = 1 << 48;
    let is_usual = (UNIT / 4..=UNIT * 16).contains(&factor);
    if !is_usual || ns > LARGE {
        let product = u128::from(ns) * u128::from(UNIT) - u128::from(carry);
        return (
            (product / u128::from(factor)) as u64,
            (product % u128::from(factor)) as u64,
        );
    }
    let nearly = (ns as f64 * UNIT as f64 - carry as f64) / factor as f64;
    let mut quotient = nearly as u64;
    // What is left is small, so that it is right whatever overflows on the way.
    let product = ns.wrapping_mul(UNIT).wrapping_sub(carry);
    let mut left = product.wrapping_sub(quotient.wrapping_mul(factor)) as i64;
    while left < 0 {
        quotient -= 1;
        left += factor as i64;
    }
    while left >= factor as i64 {
        quotient += 1;
        left -= factor as i64;
    }
    (quotient, left as u64)
}

/// What is known of a run when it is submitted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunPlan {
    pub costs: StepCosts,
    /// By how much its blocks of steps vary; nothing where none does.
    pub typical: Option<Drawn>,
    pub requests: u32,
    /// Steps at which it ends, if nobody interrupts it.
    pub steps: u32,
}

/// A point of a run: mostly where a step ends.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    at: Time,
    /// What rounding has left up to here, in parts of 10^12 of a nanosecond.
    carry: u64,
    /// Work of the run that is done.
    worked_ns: u64,
}

/// Steps that are slowed alike.
#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    /// Where it begins, which may be in the middle of a step.
    from: Point,
    /// Steps of the run that are over.
    first: u32,
    /// Of this segment.
    steps: u32,
    /// Parts of 10^12.
    factor: u64,
    /// The end of its last step.
    end: Point,
}

/// A run under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leap {
    pub plan: RunPlan,
    segment: Segment,
    /// Steps that the lane had made before this run.
    made_before: u64,
    pub first_step_ended: Time,
    /// When each [`STEPS_ALIKE`]th step was over, in the segments before this one.
    marks: Vec<Time>,
    /// Whether every step is a segment of its own.
    one_by_one: bool,
    /// The last of the run's blocks that was drawn, and how far it is from the median, in parts of a million.
    drawn: Option<(u64, u64)>,
}

impl Leap {
    /// The first step of the plan starts at `from`.
    pub fn start(&mut self, from: Time, made_before: u64, one_by_one: bool) {
        self.segment = Segment {
            end: Point {
                at: from,
                ..Point::default()
            },
            ..Segment::default()
        };
        self.made_before = made_before;
        self.first_step_ended = from;
        self.marks.clear();
        self.one_by_one = one_by_one;
        self.drawn = None;
    }

    /// How far a block of the run's steps is from the median, drawn once for all of its segments.
    #[inline]
    pub fn jitter_ppm(&mut self, block: u64, draw: impl FnOnce(&Drawn) -> Option<u64>) -> Option<u64> {
        let typical = self.plan.typical.as_ref()?;
        if self.drawn.is_none_or(|(drawn, _)| drawn != block) {
            self.drawn = draw(typical).map(|ppm| (block, ppm));
        }
        self.drawn.map(|(_, ppm)| ppm)
    }

    /// Begins the segment after the one that is over, with the factors that hold from here on: that of jitter up to the
    /// end of the block, where there is any.
    pub fn next_segment(&mut self, prices: &StepPrices, stretch_ppm: u64, jitter_ppm: Option<u64>) {
        let first = self.segment.first + self.segment.steps;
        self.begin_segment(prices, self.segment.end, first, stretch_ppm, jitter_ppm);
    }

    /// Begins a segment when so many steps of the run are over.
    fn begin_segment(
        &mut self,
        prices: &StepPrices,
        from: Point,
        first: u32,
        stretch_ppm: u64,
        jitter_ppm: Option<u64>,
    ) {
        self.mark(prices, first);
        let in_block = (self.made_before + u64::from(first)) % BLOCK_STEPS;
        let to_block_end = (BLOCK_STEPS - in_block) as u32;
        let left = self.plan.steps - first;
        let steps = match jitter_ppm {
            _ if self.one_by_one => 1,
            Some(_) => to_block_end.min(left),
            None => left,
        };
        self.segment = Segment {
            from,
            first,
            steps,
            factor: stretch_ppm * jitter_ppm.unwrap_or(MILLION),
            end: from,
        };
        self.segment.end = self.after(prices.worked_ns(&self.plan.costs, first + steps));
        if first == 0 {
            self.first_step_ended = self.after(self.plan.costs.first_ns).at;
        }
    }

    /// Notes when steps of the segment were over that others are told apart by, up to so many of the run.
    #[inline(always)]
    fn mark(&mut self, prices: &StepPrices, until: u32) {
        // Mostly there are none since the last.
        while self.next_mark() <= until {
            self.note_mark(prices);
        }
    }

    #[inline]
    fn next_mark(&self) -> u32 {
        (self.marks.len() as u32 + 1) * STEPS_ALIKE
    }

    #[inline(never)]
    fn note_mark(&mut self, prices: &StepPrices) {
        let at = self.after(prices.worked_ns(&self.plan.costs, self.next_mark())).at;
        self.marks.push(at);
    }

    /// The run is over: gives away its marks for a list that is no longer needed.
    pub fn take_marks(&mut self, prices: &StepPrices, marks: &mut Vec<Time>) {
        self.mark(prices, self.steps());
        std::mem::swap(&mut self.marks, marks);
    }

    /// Goes on at another pace from `now` on, within a block of steps.
    pub fn change_pace(&mut self, prices: &StepPrices, now: Time, stretch_ppm: u64, jitter_ppm: Option<u64>) {
        let Segment {
            from,
            first,
            steps,
            factor,
            end,
        } = self.segment;
        if now >= end.at {
            // Over, though nobody has been told: the next segment asks for its pace.
            return;
        }
        if now <= from.at {
            return self.begin_segment(prices, from, first, stretch_ppm, jitter_ppm);
        }
        let factor = factor.max(1);
        let (since_ns, left) = worked(now.since(from.at).0, from.carry, factor);
        let worked_ns = from.worked_ns + since_ns;
        // Exact times are `at` and `carry` together, and a step is over when its boundary's `at` has come: it may end
        // at any time before the next nanosecond.
        let more_than_over_ns = worked_ns + (left + (UNIT - 1)) / factor + 1;
        let next = prices.steps_of(&self.plan.costs, first, first + steps, more_than_over_ns) - 1;
        let of_steps_ns = prices.worked_ns(&self.plan.costs, next);
        let middle = match next > first && of_steps_ns >= worked_ns + u64::from(left > 0) {
            // A step is over right now.
            true => self.after(of_steps_ns),
            false => Point {
                at: now,
                carry: 0,
                worked_ns,
            },
        };
        self.begin_segment(prices, middle, next, stretch_ppm, jitter_ppm);
    }

    /// The block of steps that the step being made lies in.
    pub fn block(&self) -> u64 {
        (self.made_before + u64::from(self.segment.first)) / BLOCK_STEPS
    }

    /// The block of steps that the next segment lies in.
    pub fn next_block(&self) -> u64 {
        (self.made_before + u64::from(self.segment.first + self.segment.steps)) / BLOCK_STEPS
    }

    /// When so much work of the run is done, at the pace of the segment.
    #[inline]
    fn after(&self, worked_ns: u64) -> Point {
        let Segment { from, factor, .. } = self.segment;
        let (ns, carry) = scaled(worked_ns - from.worked_ns, factor, from.carry);
        Point {
            at: from.at + Duration(ns),
            carry,
            worked_ns,
        }
    }

    /// When the segment is over.
    pub fn segment_ends(&self) -> Time {
        self.segment.end.at
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
    pub fn cut(&mut self, prices: &StepPrices, now: Time) {
        let Segment {
            from,
            first,
            steps,
            factor,
            ..
        } = self.segment;
        // Work after which a boundary is not before `now`: at this factor, with what was left before.
        let until_ns = now.0.saturating_sub(from.at.0);
        let work_ns = match (until_ns, factor) {
            // What was left is less than a nanosecond.
            (_, UNIT) | (0, _) => until_ns,
            _ => {
                let (ns, left) = worked(until_ns, from.carry, factor.max(1));
                ns + u64::from(left > 0)
            }
        };
        let worked_ns = from.worked_ns.saturating_add(work_ns);
        let over = prices.steps_of(&self.plan.costs, first, first + steps, worked_ns);
        self.segment.steps = over - first;
        self.segment.end = self.after(prices.worked_ns(&self.plan.costs, over));
    }

    /// Ends the run at the segment's end.
    pub fn end_here(&mut self) {
        self.plan.steps = self.steps();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_worked_is_a_division_in_128_bits(
            ns in prop_oneof![1..1_u64 << 30, 1..1_u64 << 49],
            factor in prop_oneof![UNIT / 8..20 * UNIT, 1..u64::MAX],
            carry in 0..UNIT,
        ) {
            let exact = u128::from(ns) * u128::from(UNIT) - u128::from(carry);
            prop_assume!(exact / u128::from(factor) <= u128::from(u64::MAX));
            let (quotient, left) = worked(ns, carry, factor);
            prop_assert_eq!(u128::from(quotient) * u128::from(factor) + u128::from(left), exact);
            prop_assert!(left < factor);
        }

        #[test]
        fn scaling_is_a_division_in_128_bits(
            work_ns in prop_oneof![0..1_u64 << 40, any::<u64>()],
            factor in prop_oneof![UNIT / 2..4 * UNIT, any::<u64>()],
            carry in 0..UNIT,
        ) {
            let exact = u128::from(work_ns) * u128::from(factor) + u128::from(carry);
            // More than time can hold is beyond what either says.
            prop_assume!(exact / u128::from(UNIT) <= u128::from(u64::MAX));
            let (ns, left) = scaled(work_ns, factor, carry);
            prop_assert_eq!(u128::from(ns) * u128::from(UNIT) + u128::from(left), exact);
            prop_assert!(left < UNIT);
        }
    }
}
