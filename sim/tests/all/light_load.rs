//! Cards that come and go with decoders' load: known answers on the synthetic card, on which a model of so many bytes
//! is loaded in 100 µs and a nanosecond for each ten of them, a command takes 5 µs to begin and 20 µs to be heard of
//! again, and the server notices arrivals and timers after 8 µs.

use crate::common::decoders::{generation, request, simulate, system};
use tenantry_core::spec::{ConsolidateSpec, GenerationSpec, JoinSpec, LightLoadSpec, LoraSpec, PlaceSpec, SystemSpec};
use tenantry_core::{Command, RunRecord};
use tenantry_sim::Jitter;
use tenantry_traces::{Duration, Entry, Time};

const START_UP: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_millis(20);

/// Four requests on a card, of which up to two are a light load.
fn scaled() -> SystemSpec {
    let light = 2;
    system(GenerationSpec {
        consolidate: Some(ConsolidateSpec {
            every: Duration::from_millis(5),
            light,
        }),
        scale: Some(LightLoadSpec {
            light,
            cards_at_start: 1,
            cards_min: 1,
            start_up: START_UP,
            patience: PATIENCE,
        }),
        lora: None,
        ..generation()
    })
}

fn us(at: Time) -> f64 {
    at.0 as f64 / 1e3
}

/// Cards by when there came to be so many, in microseconds.
fn cards(record: &RunRecord) -> Vec<(f64, u32)> {
    let scaling = record.scaling.as_ref().expect("cards come and go");
    scaling.cards.iter().map(|(at, cards)| (us(*at), cards[0])).collect()
}

/// Card time by the changes that are remembered.
fn card_time(record: &RunRecord) -> Duration {
    let cards = &record.scaling.as_ref().expect("cards come and go").cards;
    let ends = cards[1..].iter().map(|&(at, _)| at).chain([record.end]);
    let spans = cards.iter().zip(ends).map(|((from, cards), to)| to.since(*from).0 * u64::from(cards[0]));
    Duration(spans.sum())
}

#[test]
fn a_card_is_asked_for_when_none_is_lightly_loaded_and_returned_when_it_has_no_load() {
    // The third, 2 ms after the first, is one too many for a light load, and the fifth finds no room. The last comes
    // long after.
    let mut entries: Vec<Entry> = (0..5).map(|n| request(n, n * 1_000, 0, 20, 200)).collect();
    entries.push(request(5, 500_000, 0, 20, 2));
    let mut system = scaled();
    // Nobody is moved meanwhile.
    let generation = system.pool.generation.as_mut().expect("it generates");
    generation.consolidate.as_mut().expect("cards are emptied").every = Duration::from_secs(1);
    let (record, log) = simulate(&system, 3, 400, Jitter::None, entries, false);
    assert_eq!(record.counts.served, 6);
    let finish = |ticket: u64| {
        let mut finished = log.commands.iter().filter_map(|logged| match &logged.command {
            Command::Finish(finish) if finish.ticket == ticket => Some((us(logged.at), *finish)),
            _ => None,
        });
        finished.next().expect("all leave")
    };
    let model_bytes = system.pool.computed_parameters() * system.pool.dtype.bytes();
    let changes = cards(&record);
    let asked_us = 2_000.0 + 8.0;
    let loaded_us = asked_us + 10_000.0 + 8.0 + 5.0 + 100.0 + model_bytes as f64 / 10e3 + 20.0;
    assert_eq!(changes[..2], [(0.0, 1), (asked_us, 2)]);
    // The fifth waits for the new card, or for the first to end on the old one.
    let (first_end_us, _) = finish(0);
    assert!(first_end_us > loaded_us, "{first_end_us} and {loaded_us}");
    let (_, fifth) = finish(4);
    let queued_until_us = 4_000.0 + fifth.waits.queue.0 as f64 / 1e3;
    assert!(
        (queued_until_us - loaded_us).abs() < 0.1,
        "{queued_until_us}, not {loaded_us}"
    );
    // One card is empty first and is returned when that has lasted for its patience.
    let (returned_us, left) = changes[2];
    let empty_us = returned_us - 20_000.0;
    let ends_us: Vec<f64> = (0..5).map(|ticket| finish(ticket).0).collect();
    assert_eq!((changes.len(), left), (3, 1));
    assert!(
        ends_us.iter().any(|end_us| (end_us - empty_us).abs() < 0.1),
        "{empty_us} is not when anyone ended: {ends_us:?}"
    );
    let scaling = record.scaling.as_ref().expect("cards come and go");
    assert_eq!((scaling.added, scaling.released), (1, 1));
    assert_eq!(scaling.card_time, card_time(&record));
}

/// A card that has few requests may have no room for another: of pages, of tenants' adapters, or since its tenant is
/// another one.
#[test]
fn a_card_is_asked_for_when_who_is_next_finds_no_room_on_a_lightly_loaded_one() {
    let of_tenants = |system: &SystemSpec, pages: u32| {
        let entries = vec![request(0, 0, 0, 200, 20), request(1, 1_000, 1, 200, 20)];
        let (record, _) = simulate(system, 3, pages, Jitter::None, entries, false);
        assert_eq!(record.counts.served, 2);
        cards(&record)
    };
    let asked = |system: &SystemSpec, pages| of_tenants(system, pages)[..2] == [(0.0, 1), (1_008.0, 2)];
    let with = |change: &dyn Fn(&mut GenerationSpec)| {
        let mut system = scaled();
        change(system.pool.generation.as_mut().expect("it generates"));
        system
    };
    // 220 tokens are 14 pages.
    assert_eq!(of_tenants(&scaled(), 400), [(0.0, 1)], "there is room");
    assert!(asked(&scaled(), 14), "pages");
    let one_tenant = |slots| {
        let lora = generation().lora.map(|lora| LoraSpec { slots, ..lora });
        with(&|generation| generation.lora = lora)
    };
    assert_eq!(of_tenants(&one_tenant(2), 400), [(0.0, 1)], "there is room for two");
    assert!(asked(&one_tenant(1), 400), "adapters of one tenant");
    for join in [JoinSpec::HeadRun, JoinSpec::HeadRunStatic, JoinSpec::QueuePerTenant] {
        assert!(asked(&with(&|generation| generation.join = join), 400), "{join:?}");
    }
}

/// Those of a card that is emptied go to one that runs more, wherever new requests are placed.
#[test]
fn who_is_moved_does_not_come_back() {
    for place in [PlaceSpec::LeastLoaded, PlaceSpec::RoundRobin] {
        let mut system = scaled();
        system.pool.place = place;
        let generation = system.pool.generation.as_mut().expect("it generates");
        generation.scale = None;
        // One on each of two cards: the second joins the first, and both stay there.
        let entries = vec![request(0, 0, 0, 20, 400), request(1, 0, 1, 20, 400)];
        let (record, _) = simulate(&system, 2, 400, Jitter::None, entries, false);
        assert_eq!(record.counts.served, 2);
        assert_eq!(record.generation.expect("it generates").migrations, 1, "{place:?}");
    }
}

#[test]
fn the_least_are_kept_and_the_most_not_exceeded() {
    let mut system = scaled();
    let scale = system.pool.generation.as_mut().and_then(|generation| generation.scale.as_mut());
    let scale = scale.expect("cards come and go");
    (scale.cards_at_start, scale.cards_min) = (3, 2);
    // Twenty at once are five cards' load, and there are four.
    let burst = (0..20).map(|n| request(n, 100_000, 0, 20, 200));
    let entries: Vec<Entry> = [request(20, 50_000, 0, 20, 2)].into_iter().chain(burst).collect();
    let (record, _) = simulate(&system, 4, 400, Jitter::None, entries, false);
    assert_eq!(record.counts.served, 21);
    let counts: Vec<u32> = cards(&record).iter().map(|&(_, cards)| cards).collect();
    assert_eq!(counts[..4], [3, 2, 3, 4], "{counts:?}");
    assert!(counts.iter().all(|cards| (2..=4).contains(cards)), "{counts:?}");
    // Patience begins with the run.
    assert_eq!(cards(&record)[1].0, 20_000.0);
    assert_eq!(
        record.scaling.as_ref().expect("cards come and go").card_time,
        card_time(&record)
    );
}

#[test]
fn what_nobody_waits_for_does_not_make_a_run_longer() {
    // A card that is asked for in the run's last moments would come after a minute.
    let mut system = scaled();
    let entries: Vec<Entry> = (0..3).map(|n| request(n, 0, 0, 20, 20)).collect();
    let (kept, _) = simulate(&system, 2, 400, Jitter::None, entries.clone(), false);
    let scale = system.pool.generation.as_mut().and_then(|generation| generation.scale.as_mut());
    scale.expect("cards come and go").start_up = Duration::from_secs(60);
    let (record, _) = simulate(&system, 2, 400, Jitter::None, entries, false);
    assert!(record.end < Time(100_000_000), "{:?}", record.end);
    assert_eq!(cards(&record), [(0.0, 1), (0.0, 2)]);
    assert_eq!(
        record.scaling.as_ref().expect("cards come and go").card_time.0,
        2 * record.end.0
    );
    assert_eq!(kept.counts.served, 3);
}

/// Nobody is inside while it starts up and loads. Then the other one, idle for a minute, is given back at once: there
/// are two for that minute, and not for the whole silence.
#[test]
fn a_card_that_starts_up_in_a_silence_takes_the_place_of_the_idle_one() {
    let mut system = scaled();
    let scale = system.pool.generation.as_mut().and_then(|generation| generation.scale.as_mut());
    let scale = scale.expect("cards come and go");
    scale.start_up = Duration::from_secs(60);
    let late = request(3, 3_600_000_000, 0, 20, 20);
    let entries = (0..3).map(|n| request(n, 0, 0, 20, 20)).chain([late]).collect();
    let (record, _) = simulate(&system, 2, 400, Jitter::None, entries, false);
    let scaling = record.scaling.as_ref().expect("cards come and go");
    assert_eq!((record.counts.served, scaling.added, scaling.released), (4, 1, 1));
    let of_second_s = scaling.card_time.as_secs_f64() - record.end.as_secs_f64();
    assert!((60.0..60.1).contains(&of_second_s), "{of_second_s} s");
}

#[test]
fn adapters_are_gone_with_their_card() {
    let mut system = scaled();
    system.pool.generation.as_mut().expect("it generates").lora = generation().lora;
    // Three of one tenant, so that a second card comes, and three again when it has gone: what lay there is loaded
    // anew.
    let burst = |first: u64, at_us: u64| (first..first + 5).map(move |n| request(n, at_us, 1, 20, 200));
    let entries: Vec<Entry> = burst(0, 0).chain(burst(5, 500_000)).collect();
    let (record, _) = simulate(&system, 2, 400, Jitter::None, entries, false);
    assert_eq!(record.counts.served, 10);
    let counts: Vec<u32> = cards(&record).iter().map(|&(_, cards)| cards).collect();
    assert_eq!(counts[..4], [1, 2, 1, 2], "{counts:?}");
    let swaps = record.swaps.expect("adapters are swapped");
    assert_eq!(
        swaps.misses, 3,
        "on the card that stays once, on the other each time that it comes"
    );
}

/// A request that waits for room in host memory, which all cards share, would wait on another card too: none is asked
/// for.
#[test]
fn no_card_is_asked_for_where_host_memory_has_no_room() {
    let with = |host_slots| {
        let mut system = scaled();
        let lora = generation().lora.map(|lora| LoraSpec {
            slots: 8,
            host_slots,
            ..lora
        });
        system.pool.generation.as_mut().expect("it generates").lora = lora;
        let entries = vec![request(0, 0, 0, 20, 20), request(1, 10, 1, 20, 20)];
        let (record, log) = simulate(&system, 3, 400, Jitter::None, entries, false);
        assert_eq!(record.counts.served, 2);
        let mut waits = log.commands.iter().filter_map(|logged| match &logged.command {
            Command::Finish(finish) if finish.ticket == 1 => Some(finish.waits.queue),
            _ => None,
        });
        (cards(&record), waits.next().expect("it was served"))
    };
    let (all_in_memory, at_once) = with(None);
    let (one_in_memory, later) = with(Some(1));
    assert!(
        later > at_once,
        "it waits for the first one's adapters: {later:?} and {at_once:?}"
    );
    assert_eq!((all_in_memory, one_in_memory), (vec![(0.0, 1)], vec![(0.0, 1)]));
}
