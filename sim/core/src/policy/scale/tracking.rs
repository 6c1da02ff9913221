//! Target tracking: a card more when the tail of latencies nears what was promised, one less when it stays far below
//! (Arlo, section 4, "Resource scaling").

use tenantry_traces::{Duration, Time};

use super::{Asked, Scale, Times};

/// Target tracking's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetTrackingSpec {
    /// The latency promised.
    pub slo: Duration,
    /// Which percentile of the latency is tracked. The paper has 98.
    pub percentile: u32,
    /// A card is added when it reaches this share of the SLO, in parts per million. The paper has 95 %.
    pub add_ppm: u32,
    /// A card is released when it is below this share of the SLO for a whole period, in parts per million. The paper
    /// has 50 %.
    pub release_ppm: u32,
    /// How far back "recently executed requests" go, for adding. The paper does not say.
    pub recent: Duration,
    /// How long the latency must stay low before a release. The paper has 60 s.
    pub period: Duration,
    /// After a card was added, how long nothing is decided or observed: its start-up, and the time for its effect to be
    /// seen.
    pub settle: Duration,
    /// Never fewer cards.
    pub cards_min: u32,
    /// Never more cards.
    pub cards_max: u32,
}

/// Adds a card when the tail of recent latencies nears the SLO, and releases one when it has stayed far below for a
/// period.
///
/// A percentile is compared with two bounds and never told, so three classes of latency are all the histogram there is,
/// and the comparison is exact. Recent requests are kept in [`SLICES`] slices: the window slides by one slice at a
/// time.
#[derive(Clone, Debug)]
pub(super) struct TargetTracking {
    spec: TargetTrackingSpec,
    recent: [Classes; SLICES as usize],
    /// The slice, counted from time zero, that latencies go to now.
    slice: u64,
    period: Classes,
    period_end: Time,
    deaf_until: Time,
}

/// Pieces of the recent window.
const SLICES: u64 = 10;

/// Latencies by where they lie.
#[derive(Clone, Copy, Debug, Default)]
struct Classes {
    all: u64,
    /// Below the bound for adding.
    below_add: u64,
    /// Below the bound for releasing.
    below_release: u64,
}

impl Classes {
    fn add(&mut self, other: Classes) {
        self.all += other.all;
        self.below_add += other.below_add;
        self.below_release += other.below_release;
    }
}

impl TargetTracking {
    /// Having seen nothing; the first period begins at time zero.
    ///
    /// # Panics
    /// When the recent window or the period is nothing, or the percentile is not 1 to 100.
    pub fn new(spec: TargetTrackingSpec) -> TargetTracking {
        assert!(
            spec.recent.0 >= SLICES && spec.period > Duration::ZERO,
            "windows have a length"
        );
        assert!((1..=100).contains(&spec.percentile), "a percentile is 1 to 100");
        TargetTracking {
            spec,
            recent: [Classes::default(); SLICES as usize],
            slice: 0,
            period: Classes::default(),
            period_end: Time::ZERO + spec.period,
            deaf_until: Time::ZERO,
        }
    }

    /// A request ended now, after `latency`.
    pub fn finished(&mut self, now: Time, latency: Duration) {
        if now < self.deaf_until {
            return;
        }
        self.slide(now);
        let below =
            |ppm: u32| u64::from(u128::from(latency.0) * 1_000_000 < u128::from(self.spec.slo.0) * u128::from(ppm));
        let one = Classes {
            all: 1,
            below_add: below(self.spec.add_ppm),
            below_release: below(self.spec.release_ppm),
        };
        self.recent[(self.slice % SLICES) as usize].add(one);
        self.period.add(one);
    }

    /// Whether one may be released at a period's end, if nothing more ends: at this one's, or where nobody is inside at
    /// the next.
    pub fn may_release(&self, asked: Asked) -> bool {
        asked.cards > self.spec.cards_min && (!asked.inside || self.is_low(asked))
    }

    /// Whether the period's tail is far below the target. A period in which nothing ended says nothing of it: whoever
    /// is inside may have waited for all of it.
    fn is_low(&self, asked: Asked) -> bool {
        match self.period.all {
            0 => !asked.inside,
            all => self.is_below(self.period.below_release, all),
        }
    }

    /// What to do now. To be asked regularly, at least once a period.
    pub fn decide(&mut self, now: Time, asked: Asked, may_add: bool) -> Option<Scale> {
        if now < self.deaf_until {
            return None;
        }
        self.slide(now);
        let mut recent = Classes::default();
        self.recent.iter().for_each(|slice| recent.add(*slice));
        let is_high = recent.all > 0 && !self.is_below(recent.below_add, recent.all);
        let mut decision = None;
        if is_high && may_add && asked.cards < self.spec.cards_max {
            decision = Some(Scale::Add(1));
        } else if now >= self.period_end {
            // Also where none can be added: a period that was calm until its last seconds says nothing of those to come.
            if !is_high && asked.cards > self.spec.cards_min && self.is_low(asked) {
                decision = Some(Scale::Release);
            }
            self.begin_period(now);
        }
        // A card that is released is gone at once: only one that is added must be waited for.
        if decision == Some(Scale::Add(1)) {
            self.deaf_until = now + self.spec.settle;
            self.recent = [Classes::default(); SLICES as usize];
            self.begin_period(self.deaf_until);
        }
        decision
    }

    /// How many times of a silence release no card, before one that may: those before the period's end.
    pub fn times_before_release(&self, first: Time, every: Duration) -> u64 {
        self.period_end.0.saturating_sub(first.0).div_ceil(every.0)
    }

    /// The same as being asked at all these times, while nothing ends and no card can be released.
    pub fn pass(&mut self, times: Times) {
        let Some(last) = times.count.checked_sub(1) else {
            return;
        };
        if times.at(last) >= self.deaf_until {
            self.slide(times.at(last));
        }
        // Periods end at the first of these times that is late enough, and each as many later as a period has.
        let steps = |span: Duration| span.0.div_ceil(times.every.0);
        let first = steps(Duration(self.period_end.0.saturating_sub(times.first.0)));
        if first <= last {
            let each = steps(self.spec.period);
            self.begin_period(times.at(first + (last - first) / each * each));
        }
    }

    /// Whether the percentile is below a bound that `below` of `all` are below. By nearest rank it is the ⌈p all /
    /// 100⌉-th lowest.
    fn is_below(&self, below: u64, all: u64) -> bool {
        u128::from(below) * 100 >= u128::from(all) * u128::from(self.spec.percentile)
    }

    fn begin_period(&mut self, now: Time) {
        self.period = Classes::default();
        self.period_end = now + self.spec.period;
    }

    fn slide(&mut self, now: Time) {
        let slice = now.0 / (self.spec.recent.0 / SLICES);
        // What was to be decided before something ended may be decided after it.
        if slice <= self.slice {
            return;
        }
        // Slices that have passed by hold what is too old.
        for passed in 1..=(slice - self.slice).min(SLICES) {
            self.recent[((self.slice + passed) % SLICES) as usize] = Classes::default();
        }
        self.slice = slice;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    /// Arlo's settings for Bert-Large, and ten seconds where it says nothing.
    pub fn arlo() -> TargetTrackingSpec {
        TargetTrackingSpec {
            slo: Duration::from_millis(450),
            percentile: 98,
            add_ppm: 950_000,
            release_ppm: 500_000,
            recent: Duration::from_secs(10),
            period: Duration::from_secs(60),
            settle: Duration::from_secs(5),
            cards_min: 1,
            cards_max: 8,
        }
    }

    /// Somebody is inside, and served.
    pub fn with(cards: u32) -> Asked {
        Asked {
            cards,
            inside: true,
            waiting: 0,
        }
    }

    fn feed(tracking: &mut TargetTracking, now: Time, latency_ms: u64, times: usize) {
        for _ in 0..times {
            tracking.finished(now, Duration::from_millis(latency_ms));
        }
    }

    #[test]
    fn a_card_is_added_at_95_percent_of_the_slo() {
        // 427.5 ms is the bound: 2 of 100 at it leave the 98th below, 3 do not.
        for (late, decision) in [(2, None), (3, Some(Scale::Add(1)))] {
            let mut tracking = TargetTracking::new(arlo());
            feed(&mut tracking, at(1000), 427, 100 - late);
            feed(&mut tracking, at(1000), 428, late);
            assert_eq!(tracking.decide(at(1001), with(5), true), decision, "{late} late");
        }
    }

    /// A burst in a calm period's last second: all the cards that may be had are kept.
    #[test]
    fn no_card_is_released_while_requests_are_late() {
        for (burst_ms, decision) in [(500, None), (100, Some(Scale::Release))] {
            let mut tracking = TargetTracking::new(arlo());
            feed(&mut tracking, at(1_000), 100, 100_000);
            feed(&mut tracking, at(59_500), burst_ms, 1_000);
            assert_eq!(
                tracking.decide(at(60_000), with(8), true),
                decision,
                "{burst_ms} ms at the end"
            );
        }
    }

    #[test]
    fn a_decision_has_time_to_take_effect() {
        let mut tracking = TargetTracking::new(arlo());
        feed(&mut tracking, at(1000), 500, 10);
        assert_eq!(tracking.decide(at(1000), with(5), true), Some(Scale::Add(1)));
        feed(&mut tracking, at(2000), 500, 10);
        assert_eq!(tracking.decide(at(5999), with(6), true), None);
        assert_eq!(
            tracking.decide(at(6000), with(6), true),
            None,
            "what ended while it settled is not held against it"
        );
        feed(&mut tracking, at(6001), 500, 10);
        assert_eq!(tracking.decide(at(6001), with(6), true), Some(Scale::Add(1)));
    }

    #[test]
    fn old_latencies_are_forgotten_and_the_most_cards_kept() {
        let mut tracking = TargetTracking::new(arlo());
        feed(&mut tracking, at(1000), 500, 10);
        assert_eq!(
            tracking.decide(at(2000), with(8), true),
            None,
            "there are no more than eight"
        );
        assert_eq!(
            tracking.decide(at(12_000), with(5), true),
            None,
            "ten seconds have passed"
        );
    }

    #[test]
    fn a_card_is_released_after_a_minute_below_half_of_the_slo() {
        for (latency_ms, decision) in [(224, Some(Scale::Release)), (225, None)] {
            let mut tracking = TargetTracking::new(arlo());
            for second in 0..60 {
                feed(&mut tracking, at(second * 1000), latency_ms, 5);
                assert_eq!(tracking.decide(at(second * 1000), with(5), true), None);
            }
            assert_eq!(tracking.period_end, at(60_000));
            assert_eq!(tracking.decide(at(60_000), with(5), true), decision);
            assert_eq!(tracking.period_end, at(120_000));
            // Whom it leaves too few cards is heard at once.
            feed(&mut tracking, at(60_500), 500, 100);
            assert_eq!(tracking.decide(at(60_500), with(4), true), Some(Scale::Add(1)));
        }
        let mut tracking = TargetTracking::new(arlo());
        assert_eq!(tracking.decide(at(60_000), with(1), true), None, "one card stays");
    }

    #[test]
    fn one_bad_stretch_keeps_the_period_from_being_low() {
        let mut tracking = TargetTracking::new(arlo());
        feed(&mut tracking, at(1000), 300, 3);
        for second in 20..60 {
            feed(&mut tracking, at(second * 1000), 10, 2);
        }
        assert_eq!(tracking.decide(at(60_000), with(5), true), None);
        for second in 61..120 {
            feed(&mut tracking, at(second * 1000), 10, 2);
        }
        assert_eq!(tracking.decide(at(120_000), with(5), true), Some(Scale::Release));
    }

    proptest! {
        #[test]
        fn the_bounds_are_those_of_the_sorted_latencies(
            latencies_ms in prop::collection::vec(0u64..900, 1..300),
            percentile in 1u32..=100,
        ) {
            let spec = TargetTrackingSpec { percentile, ..arlo() };
            let mut tracking = TargetTracking::new(spec);
            for &latency_ms in &latencies_ms {
                tracking.finished(at(59_999), Duration::from_millis(latency_ms));
            }
            let mut sorted = latencies_ms.clone();
            sorted.sort_unstable();
            let rank = (sorted.len() * percentile as usize).div_ceil(100);
            let tracked_ms = sorted[rank - 1] as f64;
            let expected = match tracked_ms {
                high if high >= 427.5 => Some(Scale::Add(1)),
                low if low < 225.0 => Some(Scale::Release),
                _ => None,
            };
            prop_assert_eq!(tracking.decide(at(60_000), with(5), true), expected);
        }
    }
}
