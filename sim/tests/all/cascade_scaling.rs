//! Cascades whose stages have as many cards as their load needs.

use crate::common::cascades::*;
use crate::common::{cluster, request};
use tenantry_core::Server;
use tenantry_core::log::Log;
use tenantry_core::op::OpKind;
use tenantry_core::policy::scale::HeadroomSpec;
use tenantry_core::spec::{BatchSpec, OrderSpec, ScaleRule, ScaleSpec};
use tenantry_traces::{Duration, Entry, Time};

/// As many cards as the load needs and a fifth more, which start up in 300 ms.
fn headroom(cards_max: u32) -> ScaleSpec {
    ScaleSpec {
        cards_at_start: 1,
        start_up: Duration::from_millis(300),
        rule: ScaleRule::Headroom(HeadroomSpec {
            instances_per_card: 1,
            headroom_ppm: 200_000,
            interval: Duration::from_secs(1),
            patience: 2,
            cards_min: 1,
            cards_max,
        }),
    }
}

/// Twice what one card does, for five seconds, and then hardly anything.
fn rush(service: Duration) -> Vec<Entry> {
    let gap_us = service.0 / 2_000;
    let rushing = 5_000_000 / gap_us;
    let rush = (0..rushing).map(|ticket| request(ticket, ticket * gap_us, 0, 40));
    let calm = (0..50).map(|n| request(rushing + n, 5_000_000 + (n + 1) * 200_000, 0, 40));
    rush.chain(calm).collect()
}

/// Cards are decided about each second, start up in 300 ms, then load the model, and are given back when they were not
/// needed twice.
#[test]
fn a_stage_has_the_cards_that_its_load_needs() {
    let service = latency(&alone(stage("bert-base", &[0], None)), 1);
    let mut system = alone(one_by_one(stage("bert-base", &[0, 1, 2], None)));
    let fixed = logged(&alone(one_by_one(stage("bert-base", &[0], None))), 1, rush(service)).0;
    system.route.as_mut().expect("it has one").stages[0].scale = Some(headroom(3));
    let (record, log) = logged(&system, 3, rush(service));
    let scaling = record.scaling.expect("its cards come and go");
    let counts: Vec<u32> = scaling.cards.iter().map(|(_, cards)| cards[0]).collect();
    // Twice a card's load and a fifth more are three cards; of these one goes after another.
    assert_eq!(counts, [1, 3, 2, 1], "{scaling:?}");
    assert_eq!((scaling.added, scaling.released), (2, 2));
    let at = |index: usize| scaling.cards[index].0;
    assert!(at(1).0.abs_diff(1_000_000_000) < 1_000_000, "{scaling:?}");
    let loads: Vec<Time> = log
        .commands
        .iter()
        .filter(|logged| logged.ops.iter().any(|op| matches!(op.kind, OpKind::LoadModel(_))))
        .map(|logged| logged.at)
        .collect();
    assert_eq!(loads.len(), 2);
    assert!(
        loads.iter().all(|load| load.since(at(1)).0.abs_diff(300_000_000) < 1_000_000),
        "{loads:?}"
    );
    // Nothing was in hand when cards were given up in the calm, so that each is counted from decision to decision.
    let seconds = |from: Time, to: Time| to.since(from).as_secs_f64();
    let expected = seconds(Time::ZERO, record.end) + seconds(at(1), at(2)) + seconds(at(1), at(3));
    assert!(
        (scaling.card_time.as_secs_f64() - expected).abs() < 0.1,
        "{scaling:?} {expected}"
    );
    // One card falls behind for five seconds.
    assert!(record.latency.max_ns() * 2 < fixed.latency.max_ns());
}

/// The same rush, and then nobody for a minute: cards are given back as if somebody had stayed, and not paid for
/// meanwhile.
#[test]
fn a_stage_gives_cards_back_while_nobody_is_inside() {
    let service = latency(&alone(stage("bert-base", &[0], None)), 1);
    let mut system = alone(one_by_one(stage("bert-base", &[0, 1, 2], None)));
    system.route.as_mut().expect("it has one").stages[0].scale = Some(headroom(3));
    let rushing: Vec<Entry> = rush(service)
        .into_iter()
        .filter(|entry| matches!(entry, Entry::Request(request) if request.arrival.0 <= 5_000_000_000))
        .collect();
    let late = request(rushing.len() as u64, 65_000_000, 0, 40);
    let record = logged(&system, 3, rushing.into_iter().chain([late]).collect()).0;
    let scaling = record.scaling.expect("its cards come and go");
    let counts: Vec<u32> = scaling.cards.iter().map(|(_, cards)| cards[0]).collect();
    assert_eq!(counts, [1, 3, 2, 1], "{scaling:?}");
    assert!(scaling.cards[3].0.as_secs_f64() < 12.0, "{scaling:?}");
    let card_s = scaling.card_time.as_secs_f64();
    assert!(card_s < record.end.as_secs_f64() + 2.0 * 11.0, "{card_s} s of cards");
}

/// Cards that start up when nobody is left make no run longer. Where somebody comes much later, they have loaded and
/// gone meanwhile.
#[test]
fn a_card_that_starts_up_in_a_silence_loads_and_goes_like_any_other() {
    let service = latency(&alone(stage("bert-base", &[0], None)), 1);
    let mut system = alone(one_by_one(stage("bert-base", &[0, 1, 2], None)));
    let scale = ScaleSpec {
        start_up: Duration::from_secs(60),
        ..headroom(3)
    };
    system.route.as_mut().expect("it has one").stages[0].scale = Some(scale);
    let rushing: Vec<Entry> = rush(service)
        .into_iter()
        .filter(|entry| matches!(entry, Entry::Request(request) if request.arrival.0 <= 2_000_000_000))
        .collect();
    let run = |late: Option<Entry>| logged(&system, 3, rushing.iter().cloned().chain(late).collect());
    let loads = |log: &Log| {
        let ops = log.commands.iter().flat_map(|logged| &logged.ops);
        ops.filter(|op| matches!(op.kind, OpKind::LoadModel(_))).count()
    };
    let (record, log) = run(None);
    assert_eq!(
        (record.scaling.expect("its cards come and go").added, loads(&log)),
        (2, 2)
    );
    assert_eq!(record.counts.unfinished, 0);
    assert!(record.end.as_secs_f64() < 10.0, "{}", record.end);
    let late = request(rushing.len() as u64, 600_000_000, 0, 40);
    let (record, log) = run(Some(late));
    let scaling = record.scaling.expect("its cards come and go");
    assert_eq!((scaling.added, scaling.released, loads(&log)), (2, 2, 2));
    let of_two_s = scaling.card_time.as_secs_f64() - record.end.as_secs_f64();
    assert!((120.0..150.0).contains(&of_two_s), "{of_two_s} s");
}

/// Of a cascade only so much comes to the large model, which is yet the first to have too little.
#[test]
fn each_stage_scales_by_its_own_load_on_cards_that_it_may_share() {
    let service = latency(&alone(stage("bert-base", &[0], None)), 1);
    let all = Some((1.0, 1.0, None));
    let mut stages = vec![
        one_by_one(stage("tiny", &[0, 1, 2], all)),
        one_by_one(stage("bert-base", &[0, 1, 2], None)),
    ];
    stages.iter_mut().for_each(|stage| stage.scale = Some(headroom(3)));
    let system = routed(OrderSpec::OneByOne, stages);
    let record = logged(&system, 3, rush(service)).0;
    let scaling = record.scaling.expect("its cards come and go");
    assert!(
        scaling.cards.iter().all(|(_, cards)| cards[0] == 1),
        "the small model has enough: {scaling:?}"
    );
    assert!(scaling.cards.iter().any(|(_, cards)| cards[1] == 3), "{scaling:?}");
    assert_eq!(record.cascade.expect("there is a route").returned[0], 0);
    // Both models begin on one card, which is one card's time and not two.
    assert!(scaling.card_time < Duration(3 * record.end.0));
    let together = Server::new(&cluster(3, MEMORY), &system, TENANTS).expect("it fits");
    assert!(together.memory().shared_bytes < record.memory.shared_bytes);
    assert_eq!(scaling.cards[0].1, [1, 1]);
}

/// Who waits for a batch that nobody fills any more keeps no timer going: the run ends, and says who waits. Where
/// somebody comes much later, cards have been given back meanwhile.
#[test]
fn a_run_ends_though_some_wait_for_a_full_batch() {
    let mut system = alone(stage("bert-base", &[0, 1], None));
    let stage = &mut system.route.as_mut().expect("it has one").stages[0];
    stage.pool.batch = BatchSpec::FixedSize { size: 8 };
    stage.scale = Some(ScaleSpec {
        cards_at_start: 2,
        ..headroom(2)
    });
    // Ten come to each card.
    let early = (0..20).map(|ticket| request(ticket, ticket * 100, 0, 40));
    let record = logged(&system, 2, early.clone().collect()).0;
    assert_eq!((record.counts.served, record.counts.unfinished), (16, 4));
    // Twelve each: who waits on a card that is given back fills the batch of the other.
    let more = (0..24).map(|ticket| request(ticket, ticket * 100, 0, 40));
    let record = logged(&system, 2, more.collect()).0;
    assert_eq!((record.counts.served, record.counts.unfinished), (24, 0));
    let late = (20..24).map(|ticket| request(ticket, 60_000_000 + ticket * 100, 0, 40));
    let record = logged(&system, 2, early.chain(late).collect()).0;
    let scaling = record.scaling.expect("its cards come and go");
    assert_eq!((record.counts.served, scaling.released), (24, 1), "{scaling:?}");
    assert!(scaling.card_time.as_secs_f64() < 70.0, "{scaling:?}");
}
