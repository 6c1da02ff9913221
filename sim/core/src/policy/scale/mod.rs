//! When to add a card and when to give one back: target tracking (Arlo, section 4, "Resource scaling") and headroom
//! (INFaaS).
//!
//! Both are told what happens, at a time that is passed in, and answer when they are asked. They count in whole
//! numbers, so that the same events give the same decisions anywhere.

mod headroom;
mod tracking;

use tenantry_traces::{Duration, Time};

use self::headroom::Headroom;
pub use self::headroom::HeadroomSpec;
use self::tracking::TargetTracking;
pub use self::tracking::TargetTrackingSpec;
use crate::spec::ScaleRule;

/// How often the tail of latencies is looked at, if not oftener: as often as INFaaS looks at the load.
const TRACKED_EVERY: Duration = Duration::from_secs(1);

/// What to do with the number of cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Add so many.
    Add(u32),
    /// Release the least busy one.
    Release,
}

/// How things are when a rule is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Cards that are there or starting.
    pub cards: u32,
    /// Whether anybody is inside, served or not.
    pub inside: bool,
    /// Requests that wait behind others that are served. Who waits for a batch to be filled waits for no card.
    pub waiting: u64,
}

/// Times one after the other when a rule was to be asked.
#[derive(Clone, Copy, Debug)]
struct Times {
    first: Time,
    every: Duration,
    count: u64,
}

impl Times {
    /// The one of this number, from 0.
    fn at(&self, number: u64) -> Time {
        Time(self.first.0 + number * self.every.0)
    }
}

/// Either rule, told of all that any rule goes by, and when it is to be asked.
#[derive(Clone, Debug)]
pub struct Scaler {
    rule: Rule,
    every: Duration,
    due: Time,
}

#[derive(Clone, Debug)]
enum Rule {
    /// By the tail of latencies.
    Tracking(Box<TargetTracking>),
    /// By the load.
    Headroom(Headroom),
}

impl Scaler {
    /// Having seen nothing.
    pub fn new(rule: ScaleRule) -> Scaler {
        let (rule, every) = match rule {
            ScaleRule::TargetTracking(spec) => (
                Rule::Tracking(Box::new(TargetTracking::new(spec))),
                spec.period.min(TRACKED_EVERY),
            ),
            ScaleRule::Headroom(spec) => (Rule::Headroom(Headroom::new(spec)), spec.interval),
        };
        Scaler {
            rule,
            every,
            due: Time::ZERO + every,
        }
    }

    /// A request arrived, and was let in.
    pub fn arrived(&mut self) {
        match &mut self.rule {
            Rule::Tracking(_) => {}
            Rule::Headroom(headroom) => headroom.arrived(),
        }
    }

    /// A request arrived, and was turned away since too many wait: it would have needed a card like any other, and met
    /// no target.
    pub fn turned_away(&mut self, now: Time) {
        self.arrived();
        self.gave_up(now);
    }

    /// A request that was let in left before anybody served it.
    pub fn gave_up(&mut self, now: Time) {
        match &mut self.rule {
            Rule::Tracking(tracking) => tracking.finished(now, Duration(u64::MAX)),
            Rule::Headroom(_) => {}
        }
    }

    /// A request ended after `latency`, of which it kept an instance busy for so long.
    pub fn served(&mut self, now: Time, latency: Duration, busy: Duration) {
        match &mut self.rule {
            Rule::Tracking(tracking) => tracking.finished(now, latency),
            Rule::Headroom(headroom) => headroom.served(busy),
        }
    }

    /// When it is to be asked next.
    pub fn due(&self) -> Time {
        self.due
    }

    /// What to do, if it is to be asked now. Somebody is inside.
    pub fn ask(&mut self, now: Time, asked: Asked) -> Option<Scale> {
        if now < self.due {
            return None;
        }
        self.due = Time(self.due.0 + (now.since(self.due).0 / self.every.0 + 1) * self.every.0);
        self.decide(now, asked, true)
    }

    /// When it was to be asked and was not. What was due last is decided with whoever comes, where somebody comes now.
    pub fn missed(&self, now: Time, somebody_comes: bool) -> Option<Time> {
        (self.missed_times(now, somebody_comes) > 0).then_some(self.due)
    }

    fn missed_times(&self, now: Time, somebody_comes: bool) -> u64 {
        let last = u64::from(somebody_comes);
        match now < self.due {
            true => 0,
            false => (now.since(self.due).0 / self.every.0 + 1).saturating_sub(last),
        }
    }

    /// Whether to release a card, when it was to be asked and nothing happened: nobody was inside, or who was waited
    /// for a batch to be filled. No card is added then.
    pub fn releases_in_silence(&mut self, asked: Asked) -> bool {
        let at = self.due;
        self.due += self.every;
        self.decide(at, asked, false) == Some(Scale::Release)
    }

    /// The same for all times that were missed, of which none can release a card: in one step, however long the
    /// silence.
    pub fn pass_silence(&mut self, now: Time, asked: Asked, somebody_comes: bool) {
        if self.missed_times(now, somebody_comes) > 0 {
            self.releases_in_silence(asked);
            self.pass(self.missed_times(now, somebody_comes), asked);
        }
    }

    /// The same for those of them, after one that released none, that come before the next that may: in one step,
    /// however patient the rule.
    pub fn pass_until_release(&mut self, now: Time, asked: Asked, somebody_comes: bool) {
        let before = match &self.rule {
            Rule::Tracking(tracking) => tracking.times_before_release(self.due, self.every),
            Rule::Headroom(headroom) => headroom.times_before_release(),
        };
        self.pass(before.min(self.missed_times(now, somebody_comes)), asked);
    }

    /// So many times in a row release no card.
    fn pass(&mut self, count: u64, asked: Asked) {
        let times = Times {
            first: self.due,
            every: self.every,
            count,
        };
        self.due = times.at(count);
        match &mut self.rule {
            Rule::Tracking(tracking) => tracking.pass(times),
            Rule::Headroom(headroom) => headroom.pass(times, asked),
        }
    }

    /// Whether the cards may come to be fewer while nothing more ends: by the load, which is what waits, or by the tail
    /// of who has ended.
    pub fn may_release(&self, asked: Asked) -> bool {
        match &self.rule {
            Rule::Tracking(tracking) => tracking.may_release(asked),
            Rule::Headroom(headroom) => headroom.may_release(asked),
        }
    }

    fn decide(&mut self, now: Time, asked: Asked, may_add: bool) -> Option<Scale> {
        match &mut self.rule {
            Rule::Tracking(tracking) => tracking.decide(now, asked, may_add),
            Rule::Headroom(headroom) => headroom.decide(now, asked, may_add),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::tracking::tests::{arlo, at, with};
    use super::*;

    /// Nobody is inside, or who is waits for others: a card that would be added then is not, and no time is given it to
    /// take effect.
    #[test]
    fn nothing_settles_after_a_card_that_is_not_added() {
        for inside in [false, true] {
            let mut tracking = Scaler::new(ScaleRule::TargetTracking(arlo()));
            for _ in 0..10 {
                tracking.served(at(1000), Duration::from_millis(500), Duration::ZERO);
            }
            assert_eq!(
                (tracking.missed(at(1999), true), tracking.missed(at(2000), true)),
                (None, Some(at(1000)))
            );
            let asked = Asked { inside, ..with(5) };
            assert!(!tracking.releases_in_silence(asked));
            assert_eq!(tracking.ask(at(2000), with(5)), Some(Scale::Add(1)));
        }
    }

    /// Where nobody comes, all times up to now are those of the silence.
    #[test]
    fn what_was_due_last_is_decided_with_whoever_comes() {
        let tracking = Scaler::new(ScaleRule::TargetTracking(arlo()));
        assert_eq!(tracking.missed(at(999), false), None);
        assert_eq!(tracking.missed(at(1000), false), Some(at(1000)));
        assert_eq!(tracking.missed(at(1999), true), None);
    }

    /// Nobody asks once a request that ended late has left: what was due before is decided after it.
    #[test]
    fn what_was_due_is_decided_after_what_ended_since() {
        let mut tracking = Scaler::new(ScaleRule::TargetTracking(arlo()));
        tracking.served(at(8_500), Duration::from_millis(500), Duration::ZERO);
        assert!(!tracking.releases_in_silence(Asked {
            inside: false,
            ..with(5)
        }));
        assert_eq!(tracking.ask(at(9_000), with(5)), Some(Scale::Add(1)));
    }

    /// What ended before a silence began is low enough for a card less at the period's end, though somebody waits for a
    /// batch to be filled.
    #[test]
    fn a_low_period_releases_in_silence_too() {
        let mut tracking = Scaler::new(ScaleRule::TargetTracking(arlo()));
        tracking.served(at(500), Duration::from_millis(10), Duration::ZERO);
        assert!(tracking.may_release(with(5)));
        let released = (0..60).filter(|_| tracking.releases_in_silence(with(5))).count();
        assert_eq!((released, tracking.may_release(with(5))), (1, false));
    }

    fn headroom() -> HeadroomSpec {
        HeadroomSpec {
            instances_per_card: 1,
            headroom_ppm: 50_000,
            interval: Duration::from_millis(300),
            patience: 4,
            cards_min: 2,
            cards_max: 6,
        }
    }

    /// After so many requests, each of that latency, and the first decision.
    fn before_a_silence(rule: ScaleRule, arrived: usize, latency_ms: u64, first_asked_ms: u64) -> Scaler {
        let mut scaler = Scaler::new(rule);
        for _ in 0..arrived {
            scaler.arrived();
            scaler.served(
                at(10),
                Duration::from_millis(latency_ms),
                Duration::from_millis(latency_ms),
            );
        }
        scaler.ask(at(first_asked_ms), with(5));
        scaler
    }

    proptest! {
        /// A silence in which no card can go is passed as if each time had been decided.
        #[test]
        fn a_silence_passed_at_once_is_one_passed_step_by_step(
            by_load in any::<bool>(),
            cards in 1u32..6,
            waiting in 0u64..100,
            inside in any::<bool>(),
            latency_ms in 1u64..900,
            arrived in 0usize..50,
            silence_ms in 0u64..400_000,
            somebody_comes in any::<bool>(),
            first_asked_ms in 0u64..70_000,
        ) {
            let rule = match by_load {
                true => ScaleRule::Headroom(headroom()),
                false => ScaleRule::TargetTracking(TargetTrackingSpec { period: Duration::from_millis(2_700), ..arlo() }),
            };
            let mut whole = before_a_silence(rule, arrived, latency_ms, first_asked_ms);
            let asked = Asked { cards, inside, waiting: if inside { waiting } else { 0 } };
            let (mut stepped, now) = (whole.clone(), at(first_asked_ms + silence_ms));
            let mut released = 0;
            while stepped.missed(now, somebody_comes).is_some() {
                released += u32::from(stepped.releases_in_silence(asked));
            }
            // Where none may be released, none was to be; where one might, there was none that could go.
            prop_assert!(whole.may_release(asked) || released == 0);
            whole.pass_silence(now, asked, somebody_comes);
            prop_assert_eq!(format!("{whole:?}"), format!("{stepped:?}"));
        }

        /// A silence in which cards go is passed as if each time had been decided, in two steps a card and one more.
        #[test]
        fn what_comes_before_a_release_is_passed_at_once(
            by_load in any::<bool>(),
            cards in 1u32..7,
            arrived in 0usize..50,
            latency_ms in 1u64..900,
            silence_ms in 0u64..400_000,
            somebody_comes in any::<bool>(),
            first_asked_ms in 0u64..70_000,
        ) {
            let rule = match by_load {
                true => ScaleRule::Headroom(HeadroomSpec { patience: 30, ..headroom() }),
                false => ScaleRule::TargetTracking(arlo()),
            };
            let whole = before_a_silence(rule, arrived, latency_ms, first_asked_ms);
            let now = at(first_asked_ms + silence_ms);
            // Cards go as they are released, and the silence is over when none may go any more.
            let passed = |mut scaler: Scaler, at_once: bool| {
                let (mut asked, mut steps) = (Asked { cards, inside: false, waiting: 0 }, 0);
                let mut released = Vec::new();
                while let Some(due) = scaler.missed(now, somebody_comes).filter(|_| scaler.may_release(asked)) {
                    steps += 1;
                    if scaler.releases_in_silence(asked) {
                        released.push(due);
                        asked.cards -= 1;
                    } else if at_once {
                        scaler.pass_until_release(now, asked, somebody_comes);
                    }
                }
                (format!("{scaler:?}"), released, steps)
            };
            let (stepped, at_once) = (passed(whole.clone(), false), passed(whole, true));
            prop_assert_eq!((&at_once.0, &at_once.1), (&stepped.0, &stepped.1));
            prop_assert!(at_once.2 <= 2 * at_once.1.len() + 2, "{} steps for {:?}", at_once.2, at_once.1);
        }
    }
}
