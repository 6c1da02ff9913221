//! When to add a card and when to give one back: target tracking (Arlo, section 4, "Resource scaling") and headroom (INFaaS).
//!
//! Both are told what happens, at a time that is passed in, and answer when they are asked. They count in whole numbers, so that
//! the same events give the same decisions anywhere.

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

    /// A request arrived, and was turned away since too many wait: it would have needed a card like any other, and met no target.
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

    /// What to do, with so many cards there or starting, if it is to be asked now. Somebody is inside.
    pub fn ask(&mut self, now: Time, cards: u32) -> Option<Scale> {
        if now < self.due {
            return None;
        }
        while self.due <= now {
            self.due += self.every;
        }
        self.decide(now, cards, false)
    }

    /// When it was to be asked, if by now it was to be asked once more since.
    pub fn missed(&self, now: Time) -> Option<Time> {
        (self.due + self.every <= now).then_some(self.due)
    }

    /// Whether to release a card, when it was to be asked and nothing happened: nobody was inside, or who was waited for a batch to be filled.
    pub fn releases_in_silence(&mut self, cards: u32, nobody_inside: bool) -> bool {
        let at = self.due;
        self.due += self.every;
        self.decide(at, cards, nobody_inside) == Some(Scale::Release)
    }

    /// Whether so many cards may come to be fewer while somebody is inside and nothing ends: by the load, which is none, and not by the tail.
    pub fn may_release(&self, cards: u32) -> bool {
        match &self.rule {
            Rule::Tracking(_) => false,
            Rule::Headroom(headroom) => headroom.may_release(cards),
        }
    }

    fn decide(&mut self, now: Time, cards: u32, nobody_inside: bool) -> Option<Scale> {
        match &mut self.rule {
            Rule::Tracking(tracking) => tracking.decide(now, cards, nobody_inside),
            Rule::Headroom(headroom) => headroom.decide(now, cards, nobody_inside),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody is inside: a card that would be added then is not, and no time is given it to take effect.
    #[test]
    fn nothing_settles_after_a_card_that_is_not_added() {
        let mut tracking = Scaler::new(ScaleRule::TargetTracking(tracking::tests::arlo()));
        for _ in 0..10 {
            tracking.served(tracking::tests::at(1000), Duration::from_millis(500), Duration::ZERO);
        }
        assert_eq!(
            (
                tracking.missed(tracking::tests::at(1999)),
                tracking.missed(tracking::tests::at(2000))
            ),
            (None, Some(tracking::tests::at(1000)))
        );
        assert!(!tracking.releases_in_silence(5, true));
        assert_eq!(tracking.ask(tracking::tests::at(2000), 5), Some(Scale::Add(1)));
    }
}
