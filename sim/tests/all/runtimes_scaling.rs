//! Runtimes on as many cards as their load needs.

use crate::common::runtimes::*;
use tenantry_core::policy::levels::Rule;
use tenantry_core::policy::scale::{HeadroomSpec, TargetTrackingSpec};
use tenantry_core::spec::{AdmitSpec, AllocateSpec, ScaleRule, ScaleSpec, ShapeKind, SystemSpec};
use tenantry_traces::{Duration, Entry};

/// Every instance is for long requests, each of which takes 24 ms.
fn of_long_ones(scale: ScaleSpec) -> SystemSpec {
    let mut spec = runtimes(Rule::LeastPadding, AllocateSpec::Even);
    spec.streams = vec![stream("all", &[512], ShapeKind::Static)];
    spec.scale = Some(scale);
    of(&spec, 1)
}

/// 100 long requests a second are 2.4 cards of work: three cards with 5 % to spare; then 20 a second, for which one is
/// enough.
#[test]
fn cards_come_with_the_load_and_go_with_it() {
    let system = of_long_ones(headroom(1, 5));
    let busy = (0..400).map(|n| at(n, 10 * n, 500));
    let calm = (0..200).map(|n| at(400 + n, 4000 + 50 * n, 500));
    let record = record(5, &system, busy.chain(calm).collect());
    let fleet = record.fleet.clone().unwrap();
    assert_eq!(record.counts.served, 600);
    assert_eq!((fleet.added, fleet.released), (2, 2), "{fleet:?}");
    let mean = fleet.card_time.as_secs_f64() / record.end.as_secs_f64();
    // Two more from 1 s until after two intervals of 20 in a row each, at 6 s or 7 s and two seconds later.
    let end = record.end.as_secs_f64();
    assert!(
        (mean - (end + 5.0 + 7.0) / end).abs() < 0.2,
        "{mean} cards over {end} s"
    );
    // They start up for half a second, and load for 10 ms: some wait long meanwhile.
    assert!(record.latency.max_ns() > 500_000_000);
}

/// Three cards of work for four seconds, nobody for a minute and a half, and then somebody: cards go as they would if
/// somebody had stayed, and are not paid for meanwhile.
#[test]
fn cards_go_while_nobody_is_inside() {
    let system = of_long_ones(headroom(1, 5));
    let busy = (0..400).map(|n| at(n, 10 * n, 500));
    let late = (0..5).map(|n| at(400 + n, 94_000 + 100 * n, 500));
    let record = record(5, &system, busy.chain(late).collect());
    let fleet = record.fleet.clone().unwrap();
    assert_eq!((fleet.added, fleet.released), (2, 2), "{fleet:?}");
    // One card all the time, and two more from 1 s until after two intervals each that needed fewer, at 6 s or 7 s and
    // two seconds later.
    let more_s = fleet.card_time.as_secs_f64() - record.end.as_secs_f64();
    assert!((11.9..14.1).contains(&more_s), "{more_s} s of further cards");
}

/// A card that ends what it has in hand does not count any more: no second one goes, though the least is two.
#[test]
fn a_card_that_leaves_is_none_that_stays() {
    let scale = headroom(3, 3);
    let ScaleRule::Headroom(rule) = scale.rule else {
        unreachable!("it goes by headroom")
    };
    let rule = HeadroomSpec {
        interval: Duration::from_millis(10),
        patience: 1,
        cards_min: 2,
        ..rule
    };
    let system = of_long_ones(ScaleSpec {
        rule: ScaleRule::Headroom(rule),
        ..scale
    });
    // Two on each card, of 24 ms each: what goes at 30 ms has one in hand until 49 ms.
    let record = record(3, &system, (0..6).map(|n| at(n, 1, 500)).collect());
    let fleet = record.fleet.clone().unwrap();
    assert_eq!((record.counts.served, fleet.released), (6, 1), "{fleet:?}");
}

/// Two cards at the start and three at most, by the tail of what is to be answered within `slo_ms`.
fn tracking(slo_ms: u64, start_up_ms: u64) -> ScaleSpec {
    ScaleSpec {
        cards_at_start: 2,
        start_up: Duration::from_millis(start_up_ms),
        rule: ScaleRule::TargetTracking(TargetTrackingSpec {
            slo: Duration::from_millis(slo_ms),
            percentile: 98,
            add_ppm: 950_000,
            release_ppm: 500_000,
            recent: Duration::from_secs(10),
            period: Duration::from_secs(60),
            settle: Duration::from_secs(1),
            cards_min: 2,
            cards_max: 3,
        }),
    }
}

#[test]
fn tracking_the_tail_adds_the_longest_runtime() {
    let mut spec = runtimes(PAPER, fixed(&[1, 0, 1]));
    spec.scale = Some(tracking(480, 100));
    let system = of(&spec, 1);
    let entries = (0..300).map(|n| at(n, 15 * n, 500)).collect();
    let record = record(3, &system, entries);
    let fleet = record.fleet.clone().unwrap();
    assert_eq!((fleet.added, fleet.released), (1, 0), "{fleet:?}");
    // Only the longest runtime takes these, each in 24 ms: one alone would be 300 times 9 ms behind at the end. What
    // has queued there when the second comes, after 1.5 s or so, waits on, and what comes then does not.
    assert!(
        record.latency.max_ns() < 1_500_000_000,
        "{} ns",
        record.latency.max_ns()
    );
}

/// Two cards have the two longer runtimes, and the one that is added has the shortest, so that each has one: what is
/// short takes 6 ms then, and not 12.
#[test]
fn an_even_allocation_stays_even_when_a_card_is_added() {
    let mut spec = runtimes(Rule::LeastPadding, AllocateSpec::Even);
    spec.scale = Some(ScaleSpec {
        cards_at_start: 2,
        start_up: Duration::from_millis(500),
        rule: ScaleRule::Headroom(HeadroomSpec {
            instances_per_card: 1,
            headroom_ppm: 300_000,
            interval: Duration::from_secs(1),
            patience: 1000,
            cards_min: 2,
            cards_max: 3,
        }),
    });
    let system = of(&spec, 1);
    // 143 a second of 12 ms are 1.7 cards of work, and three with the headroom.
    let record = record(3, &system, (0..600).map(|n| at(n, 7 * n, 100)).collect());
    assert_eq!(record.fleet.as_ref().unwrap().added, 1, "{:?}", record.fleet);
    // More than half come when all three are there, and none of these waits.
    let median_ms = record.latency.quantile_ns(0.5) as f64 / 1e6;
    assert!((median_ms - 6.0).abs() < 0.1, "{median_ms} ms");
}

/// A card is added at 1 s and loads the longest runtime from 1,095 to 1,105 ms, when an answer comes: it is one of
/// three instances, and whoever serves the longest goes on until it does.
#[test]
fn an_instance_that_loads_is_part_of_the_next_allocation() {
    let mut spec = runtimes(PAPER, periodic(100));
    spec.scale = Some(tracking(1, 95));
    let system = of(&spec, 1);
    // Short ones but for a few, so that the solver wants most instances short, and the one that comes is long.
    let entries = (0..300).map(|n| at(n, 5 * n, if n % 50 == 0 { 500 } else { 100 })).collect();
    let fleet = record(3, &system, entries).fleet.unwrap();
    assert_eq!(fleet.added, 1, "{fleet:?}");
    let since = |ms: u64| fleet.allocations.iter().skip_while(move |(at, _)| at.0 < ms * 1_000_000);
    let (at, counts) = since(1_095).next().unwrap();
    assert!(at.0 < 1_100_000_000 && *counts == [1, 0, 2], "{fleet:?}");
    // What the answer that comes meanwhile wants is done by the next, when the added card serves.
    let (at, counts) = since(1_100).next().unwrap();
    assert!(at.0 > 1_200_000_000 && *counts == [2, 0, 1], "{fleet:?}");
    assert_eq!(
        fleet.allocations.last().map(|(_, counts)| counts.clone()),
        Some(vec![2, 0, 1]),
        "{fleet:?}"
    );
}

/// One card serves 41 of the 100 long requests a second, and lets no more than four wait: the others are turned away,
/// not late, and need cards as well.
#[test]
fn who_is_turned_away_needs_cards_too() {
    let load = |system: &_| record(3, system, (0..1_000).map(|n| at(n, 10 * n, 500)).collect());
    let bounded = |scale: ScaleSpec| {
        let mut system = of_long_ones(scale);
        system.admit = AdmitSpec::BoundedQueue { max_waiting: 4 };
        system
    };
    let by_load = load(&bounded(headroom(1, 3)));
    assert_eq!(by_load.fleet.as_ref().unwrap().added, 2, "{:?}", by_load.fleet);
    // No one who is served waits for as long as 480 ms, so that only who is turned away tells that a card is missing.
    let mut tracked = tracking(480, 100);
    tracked.cards_at_start = 1;
    let by_tail = load(&bounded(tracked));
    assert!(by_tail.latency.max_ns() < 400_000_000);
    assert_eq!(by_tail.fleet.as_ref().unwrap().added, 2, "{:?}", by_tail.fleet);
    for record in [by_load, by_tail] {
        // Of the second or two in which a card or two were missing.
        assert!((50..200).contains(&record.counts.rejected), "{:?}", record.counts);
    }
}

/// Two long requests at once, then nothing ends for a period: whoever waits is not given a card less.
#[test]
fn a_period_in_which_nothing_ends_is_not_low_while_somebody_waits() {
    let mut scale = tracking(480, 100);
    let ScaleRule::TargetTracking(rule) = &mut scale.rule else {
        panic!("it tracks the tail")
    };
    // Requests take 24 ms.
    rule.period = Duration::from_millis(5);
    rule.cards_min = 1;
    let system = of_long_ones(scale);
    let released = |entries: Vec<Entry>| {
        let fleet = record(3, &system, entries).fleet.unwrap();
        (fleet.released, fleet.allocations.last().unwrap().0)
    };
    assert_eq!(released(vec![at(0, 1, 500), at(1, 1, 500)]).0, 0);
    // Nor is one missing once they are gone: it goes at the first end of a period in the silence.
    let (cards, last) = released(vec![at(0, 1, 500), at(1, 1, 500), at(2, 3_000, 500)]);
    assert!(
        cards == 1 && (25..50).contains(&(last.0 / 1_000_000)),
        "{cards} at {last:?}"
    );
}

/// Hardly any load on three cards: one goes after two intervals, however long these are.
#[test]
fn the_load_is_looked_at_as_often_as_is_said() {
    for interval_ms in [200, 1_500] {
        let mut scale = headroom(3, 3);
        let ScaleRule::Headroom(rule) = &mut scale.rule else {
            panic!("it goes by the load")
        };
        rule.interval = Duration::from_millis(interval_ms);
        let entries = (0..100).map(|n| at(n, 50 * n + 1, 500)).collect();
        let allocations = record(3, &of_long_ones(scale), entries).fleet.unwrap().allocations;
        let released: Vec<u64> = allocations.iter().skip(1).map(|(at, _)| at.0 / 1_000_000).collect();
        // Nobody is inside half of the time: it is decided when somebody comes.
        assert!(released[0].abs_diff(2 * interval_ms) <= 1, "{allocations:?}");
    }
}
