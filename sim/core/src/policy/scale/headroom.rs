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

/// What a request needs is known from the last so many intervals in which any ended. What was before is forgotten,
/// since lengths and batches change. With four, chance in who ended adds little to the chance in who came, and a need
/// that has changed is known in full after four intervals.
const RECENT: usize = 4;

/// Requests that ended in an interval.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    requests: u64,
    /// How long instances were busy with them.
    busy_ns: u128,
}

/// Keeps as many cards as the last interval's requests need with some headroom: adds what is missing at once, and
/// releases one when fewer have been enough for a while.
#[derive(Clone, Debug)]
pub(super) struct Headroom {
    spec: HeadroomSpec,
    arrived: u64,
    /// The last intervals in which any request ended, the latest first.
    ended: [Ended; RECENT],
    /// Whether the latest of them is over.
    is_over: bool,
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
            ended: [Ended::default(); RECENT],
            is_over: false,
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
        // An interval in which none ends says nothing, and takes no other's place.
        if std::mem::take(&mut self.is_over) {
            self.ended.rotate_right(1);
            self.ended[0] = Ended::default();
        }
        let Ended { requests, busy_ns } = &mut self.ended[0];
        *requests += 1;
        *busy_ns += u128::from(busy.0);
    }

    /// What to do now. To be asked once an interval.
    pub fn decide(&mut self, now: Time, asked: Asked, may_add: bool) -> Option<Scale> {
        // Who asks may be late.
        let counted = now.since(self.interval_begin);
        let needed = self.needed(self.arrived, counted);
        let kept = self.kept(asked, self.arrived, counted);
        self.arrived = 0;
        self.is_over = true;
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

    /// In all of these intervals.
    fn recent(&self) -> Ended {
        self.ended.iter().fold(Ended::default(), |all, one| Ended {
            requests: all.requests + one.requests,
            busy_ns: all.busy_ns + one.busy_ns,
        })
    }

    /// Cards that so many requests in so long a time need: the time that they keep instances busy, if each does as
    /// those who ended lately, against what a card has.
    fn needed(&self, requests: u64, counted: Duration) -> u32 {
        let recent = self.recent();
        let work = u128::from(requests) * recent.busy_ns / u128::from(recent.requests.max(1));
        let load = work * (1_000_000 + u128::from(self.spec.headroom_ppm));
        let card = u128::from(counted.0) * u128::from(self.spec.instances_per_card);
        let (least, most) = (self.spec.cards_min.into(), self.spec.cards_max.into());
        load.div_ceil(card * 1_000_000).min(most).max(least) as u32
    }

    /// Cards below which none is given back: for what is to come, if as many come again, and those who wait, of whom
    /// nobody knows what they need before the first was served.
    fn kept(&self, asked: Asked, arrived: u64, counted: Duration) -> u32 {
        match asked.waiting > 0 && self.recent().requests == 0 {
            true => asked.cards,
            false => self.needed(arrived + asked.waiting, counted),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
        next(headroom, arrivals, cards)
    }

    /// An interval later.
    fn next(headroom: &mut Headroom, arrivals: u64, cards: u32) -> Option<Scale> {
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

    /// Asked for one card an interval after the last time, when so many ended that took so long, and 100 came: how many
    /// it wants.
    fn wanted(headroom: &mut Headroom, ended: u32, busy_ms: u64) -> u32 {
        (0..ended).for_each(|_| headroom.served(Duration::from_millis(busy_ms)));
        match next(headroom, 100, 1) {
            Some(Scale::Add(more)) => 1 + more,
            _ => 1,
        }
    }

    /// 100 requests of 20 ms need a card and 5 % of another, of 100 ms five and a quarter of another.
    #[test]
    fn what_requests_need_is_what_they_needed_lately() {
        let mut headroom = Headroom::new(infaas());
        assert_eq!([0; 100].map(|_| wanted(&mut headroom, 100, 20)), [2; 100]);
        assert_eq!([0; 5].map(|_| wanted(&mut headroom, 100, 100)), [3, 4, 5, 6, 6]);
        // Nothing that ends says nothing new.
        assert_eq!([0; 9].map(|_| wanted(&mut headroom, 0, 0)), [6; 9]);
        assert_eq!([0; 5].map(|_| wanted(&mut headroom, 100, 20)), [5, 4, 3, 2, 2]);
    }

    proptest! {
        /// Whatever requests needed before, a few intervals later so many cards are wanted as if they had always needed
        /// what they need now.
        #[test]
        fn a_need_that_has_changed_is_soon_all_that_is_known(
            before in prop::collection::vec((0u32..40, 1u64..190), 0..30),
            busy_ms in 1u64..190,
            after in prop::collection::vec(1u32..40, RECENT),
            silent in 0usize..5,
        ) {
            let mut headroom = Headroom::new(infaas());
            for (ended, busy_ms) in before {
                wanted(&mut headroom, ended, busy_ms);
            }
            for ended in after {
                wanted(&mut headroom, ended, busy_ms);
                for _ in 0..silent {
                    wanted(&mut headroom, 0, 0);
                }
            }
            let of_these_alone = wanted(&mut Headroom::new(infaas()), 1, busy_ms);
            prop_assert_eq!(wanted(&mut headroom, 0, 0), of_these_alone);
            prop_assert_eq!(wanted(&mut headroom, 7, busy_ms), of_these_alone);
        }
    }
}
