//! Headroom: as many cards as the last interval's requests need, and some more (INFaaS).

use tenantry_traces::{Duration, Time};

use super::{Asked, Scale, Times};

/// Headroom's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadroomSpec {
    /// Instances on each card: requests that it serves at once.
    pub instances_per_card: u32,
    /// Capacity kept free beyond the load, in parts per million of the load. INFaaS has 5 %.
    pub headroom_ppm: u32,
    /// How often the load is looked at. INFaaS: 1 s.
    pub interval: Duration,
    /// Intervals in a row for which fewer cards must suffice before one is released.
    pub patience: u32,
    /// Never fewer cards.
    pub cards_min: u32,
    /// Never more cards.
    pub cards_max: u32,
}

/// Keeps as many cards as the last interval's requests need with some headroom: adds what is missing at once, and releases one when
/// fewer have been enough for a while.
#[derive(Clone, Debug)]
pub(super) struct Headroom {
    spec: HeadroomSpec,
    arrived: u64,
    /// Requests that ended since the start, and how long instances were busy with them.
    served: u64,
    busy_ns: u128,
    /// Arrivals are counted from here on.
    interval_begin: Time,
    /// Intervals in a row that needed fewer cards.
    idle: u32,
}

impl Headroom {
    /// Having seen nothing; the first interval begins at time zero.
    ///
    /// # Panics
    /// When a card serves nothing, or the interval is nothing.
    pub fn new(spec: HeadroomSpec) -> Headroom {
        assert!(
            spec.instances_per_card > 0 && spec.interval > Duration::ZERO,
            "a card serves something in an interval"
        );
        Headroom {
            spec,
            arrived: 0,
            served: 0,
            busy_ns: 0,
            interval_begin: Time::ZERO,
            idle: 0,
        }
    }

    /// Whether fewer cards would do for those who wait.
    pub fn may_release(&self, asked: Asked) -> bool {
        self.kept(asked, 0, self.spec.interval) < asked.cards
    }

    /// A request arrived.
    pub fn arrived(&mut self) {
        self.arrived += 1;
    }

    /// A request ended that kept an instance busy for so long.
    pub fn served(&mut self, busy: Duration) {
        self.served += 1;
        self.busy_ns += u128::from(busy.0);
    }

    /// What to do now. To be asked once an interval.
    pub fn decide(&mut self, now: Time, asked: Asked, may_add: bool) -> Option<Scale> {
        // Who asks may be late.
        let counted = now.since(self.interval_begin);
        let needed = self.needed(self.arrived, counted);
        let kept = self.kept(asked, self.arrived, counted);
        self.arrived = 0;
        self.interval_begin = now;
        self.idle = if kept < asked.cards { self.idle + 1 } else { 0 };
        if may_add && needed > asked.cards {
            return Some(Scale::Add(needed - asked.cards));
        }
        if self.idle > 0 && self.idle >= self.spec.patience {
            self.idle = 0;
            return Some(Scale::Release);
        }
        None
    }

    /// How many times of a silence release no card, before one that may.
    pub fn times_before_release(&self) -> u64 {
        self.spec.patience.saturating_sub(self.idle + 1).into()
    }

    /// The same as being asked at all these times, while nobody comes and no card can be released.
    pub fn pass(&mut self, times: Times, asked: Asked) {
        let Some(last) = times.count.checked_sub(1) else {
            return;
        };
        self.interval_begin = times.at(last);
        self.idle = match self.may_release(asked) {
            // It begins anew whenever a card was to be released.
            true => ((u64::from(self.idle) + times.count) % u64::from(self.spec.patience.max(1))) as u32,
            false => 0,
        };
    }

    /// Cards that so many requests in so long a time need: the time that they keep instances busy, by the mean of all so far, against what a card has.
    fn needed(&self, requests: u64, counted: Duration) -> u32 {
        let work = u128::from(requests) * self.busy_ns / u128::from(self.served.max(1));
        let load = work * (1_000_000 + u128::from(self.spec.headroom_ppm));
        let card = u128::from(counted.0) * u128::from(self.spec.instances_per_card);
        let (least, most) = (self.spec.cards_min.into(), self.spec.cards_max.into());
        load.div_ceil(card * 1_000_000).min(most).max(least) as u32
    }

    /// Cards below which none is given back: for what is to come, if as many come again, and those who wait, of whom nobody knows what they need
    /// before the first was served.
    fn kept(&self, asked: Asked, arrived: u64, counted: Duration) -> u32 {
        match asked.waiting > 0 && self.served == 0 {
            true => asked.cards,
            false => self.needed(arrived + asked.waiting, counted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tracking::tests::with;
    use super::*;

    fn infaas() -> HeadroomSpec {
        HeadroomSpec {
            instances_per_card: 2,
            headroom_ppm: 50_000,
            interval: Duration::from_secs(1),
            patience: 3,
            cards_min: 1,
            cards_max: 10,
        }
    }

    fn ask(headroom: &mut Headroom, arrivals: u64, cards: u32) -> Option<Scale> {
        // 20 ms a request: two instances serve 100 in a second.
        headroom.served(Duration::from_millis(20));
        (0..arrivals).for_each(|_| headroom.arrived());
        headroom.decide(headroom.interval_begin + headroom.spec.interval, with(cards), true)
    }

    #[test]
    fn headroom_adds_what_is_missing_at_once() {
        let mut headroom = Headroom::new(infaas());
        // 190 requests need 199.5; 191 need 200.55.
        assert_eq!(ask(&mut headroom, 190, 2), None);
        assert_eq!(ask(&mut headroom, 191, 2), Some(Scale::Add(1)));
        assert_eq!(ask(&mut headroom, 500, 2), Some(Scale::Add(4)));
        assert_eq!(ask(&mut headroom, 5_000, 9), Some(Scale::Add(1)));
        assert_eq!(ask(&mut headroom, 5_000, 10), None);
    }

    #[test]
    fn headroom_releases_one_after_some_patience() {
        let mut headroom = Headroom::new(infaas());
        assert_eq!(ask(&mut headroom, 50, 3), None);
        assert_eq!(ask(&mut headroom, 50, 3), None);
        assert_eq!(
            ask(&mut headroom, 250, 3),
            None,
            "all three were needed: the count begins anew"
        );
        assert_eq!(ask(&mut headroom, 50, 3), None);
        assert_eq!(ask(&mut headroom, 50, 3), None);
        assert_eq!(ask(&mut headroom, 50, 3), Some(Scale::Release));
        assert_eq!(ask(&mut headroom, 0, 1), None);
    }

    /// Three cards serve 300 requests in a second.
    #[test]
    fn no_card_is_released_from_those_who_wait_for_it() {
        let mut headroom = Headroom::new(infaas());
        headroom.served(Duration::from_millis(20));
        let mut next = |waiting| {
            let asked = Asked { waiting, ..with(3) };
            headroom.decide(headroom.interval_begin + headroom.spec.interval, asked, true)
        };
        for _ in 0..10 {
            assert_eq!(next(200), None);
        }
        // For 190 two cards are enough.
        assert_eq!([next(190), next(190), next(190)], [None, None, Some(Scale::Release)]);

        let mut headroom = Headroom::new(infaas());
        let asked = Asked { waiting: 1, ..with(3) };
        for second in 1..10 {
            let now = Time::ZERO + Duration::from_secs(second);
            assert_eq!(headroom.decide(now, asked, true), None, "nobody knows what they need");
        }
    }
}
