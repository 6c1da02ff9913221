//! Pools of queries of which some are turned away: nobody waits for those who do not come.

use crate::common::tasks::{MEMORY, of, tasks};
use crate::common::{cluster, request, run_listed};
use tenantry_core::spec::{AdmitSpec, PlaceSpec, PlanningSpec};
use tenantry_profiles::testing::synthetic_card;
use tenantry_sim::Jitter;
use tenantry_traces::Duration;

#[test]
fn a_refused_task_keeps_nobody_waiting_for_a_full_pool() {
    let card = synthetic_card();
    let mut system = tasks(2);
    of(&mut system).registrations[0].kind = "adaptors".into();
    // Three pools of four queries, of which the refused task's half never come.
    let entries = (0..12).map(|i| request(i, 100, (i % 2) as u32, 32)).collect();
    let record = run_listed(&card, cluster(1, MEMORY), &system, 2, Jitter::None, entries).record;
    assert_eq!((record.counts.served, record.counts.unfinished), (6, 0));
    // While the first pool is planned the other ten come: the second is planned of the four that wait, and nobody is
    // left for the third.
    assert_eq!(record.tasks.expect("it has tasks").plans, 2);
}

/// Whoever is turned away takes the place that it would have had, on whichever card: nobody waits for it on another.
#[test]
fn a_refused_task_keeps_nobody_waiting_on_several_cards() {
    let card = synthetic_card();
    for place in [PlaceSpec::RoundRobin, PlaceSpec::LeastLoaded] {
        for cards in 1..=4 {
            let mut system = tasks(2);
            system.pool.place = place;
            of(&mut system).registrations[0].kind = "adaptors".into();
            // Ten pools of four queries a card, in none of which more than one is the refused task's.
            let entries = (0..40 * cards).map(|i| request(i, 100 * (i + 1), u32::from(i % 5 != 1), 32));
            let run = run_listed(
                &card,
                cluster(cards as u32, MEMORY),
                &system,
                2,
                Jitter::None,
                entries.collect(),
            );
            let counts = run.record.counts;
            let plans = run.record.tasks.expect("it has tasks").plans;
            assert_eq!(counts.served + counts.unfinished, 32 * cards);
            if place == PlaceSpec::RoundRobin {
                assert_eq!((counts.unfinished, plans), (0, 10 * cards), "{cards} cards");
            } else {
                // By load a place that nobody takes is not another's: each card may be left with a pool begun.
                assert!(
                    (9 * cards..=10 * cards).contains(&plans),
                    "{plans} plans of {cards} cards"
                );
            }
        }
    }
}

/// Where fewer may wait than pools have places, those who find the queue full fill the pools of those who wait, and not
/// of nobody.
#[test]
fn a_full_queue_keeps_nobody_waiting_on_many_cards() {
    let card = synthetic_card();
    for place in [PlaceSpec::RoundRobin, PlaceSpec::LeastLoaded] {
        for cards in [2, 3, 8, 16] {
            let mut system = tasks(2);
            system.pool.place = place;
            system.admit = AdmitSpec::BoundedQueue { max_waiting: 8 };
            let entries = (0..400).map(|i| request(i, 10_000 * (i + 1), (i % 2) as u32, 32));
            let record = run_listed(
                &card,
                cluster(cards, MEMORY),
                &system,
                2,
                Jitter::None,
                entries.collect(),
            );
            let counts = record.record.counts;
            // Each pool of four has somebody in it.
            assert!(counts.served >= 100 - 8, "{place:?}, {cards} cards: {counts:?}");
        }
    }
}

/// Of a thousand queries at once nearly all find the queue full. Whoever comes later waits for a full pool as before:
/// pools of nobody but those who were turned away are none.
#[test]
fn who_is_turned_away_from_full_pools_fills_no_later_one() {
    let card = synthetic_card();
    let mut system = tasks(2);
    system.admit = AdmitSpec::BoundedQueue { max_waiting: 8 };
    of(&mut system).planning = PlanningSpec::Pool {
        size: 4,
        max_wait: Some(Duration::from_secs(20)),
    };
    let plans = |later: u64| {
        let storm = (0..1000).map(|i| request(i, 100, (i % 2) as u32, 32));
        let later = (0..later).map(|i| request(1000 + i, 1_000_000 * (i + 1), (i % 2) as u32, 32));
        let record = run_listed(
            &card,
            cluster(1, MEMORY),
            &system,
            2,
            Jitter::None,
            storm.chain(later).collect(),
        )
        .record;
        assert!(record.counts.unfinished == 0 && record.counts.rejected > 900);
        record.tasks.expect("it has tasks").plans
    };
    // Twelve in pools of four, where the first may be begun by some who left and the last may stay unfilled.
    let later = plans(12) - plans(0);
    assert!((3..=4).contains(&later), "{later}");
}
