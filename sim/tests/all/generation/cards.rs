//! Several cards: models that they share, and requests that go from one to another.

use super::*;

/// Each of an instance's cards has its part of a tenant's adapters, over a link of its own.
#[test]
fn cards_that_share_a_model_load_their_parts_at_once() {
    let copied = |tensor_parallel| {
        let system = system(GenerationSpec {
            tensor_parallel,
            ..generation()
        });
        let cluster = cluster(tensor_parallel, memory(&system, 200));
        let mut server = Server::new(&cluster, &system, TENANTS).unwrap();
        let Entry::Request(ref first) = request(0, 0, 0, 20, 2) else {
            unreachable!("it is a request")
        };
        let mut commands = Commands::default();
        server.handle(Time::ZERO, &Event::Arrived(*first), &mut commands);
        let bytes = commands.ops.iter().filter_map(|op| match op.kind {
            OpKind::CopyIn(copy) => Some(u64::from(copy.chunks) * copy.chunk_bytes),
            _ => None,
        });
        (
            bytes.sum::<u64>(),
            server.swaps().expect("adapters are swapped").bytes_in,
        )
    };
    let of = |cards| {
        let pool = system(generation()).pool;
        let layers = u64::from(pool.model.layers);
        layers * pool.model.lora_parameters_per_card(8, cards) * pool.dtype.bytes()
    };
    assert_eq!(copied(1), (of(1), of(1)));
    // More than a half, since each has some of it whole.
    assert_eq!(copied(2), (of(2), 2 * of(2)));
    assert!(2 * of(2) > of(1) && of(2) < of(1));
}

/// However many cards share a model, the disk has a tenant's adapters once.
#[test]
fn cards_that_share_a_model_read_adapters_once() {
    let read = |tensor_parallel| {
        let mut spec = GenerationSpec {
            tensor_parallel,
            ..generation()
        };
        spec.lora = spec.lora.map(|lora| LoraSpec {
            host_slots: Some(4),
            ..lora
        });
        let system = system(spec);
        let cluster = cluster(tensor_parallel, memory(&system, 200));
        let mut server = Server::new(&cluster, &system, TENANTS).unwrap();
        let Entry::Request(ref first) = request(0, 0, 0, 20, 2) else {
            unreachable!("it is a request")
        };
        let mut commands = Commands::default();
        server.handle(Time::ZERO, &Event::Arrived(*first), &mut commands);
        let mut reads = commands.ops.iter().filter_map(|op| match op.kind {
            OpKind::Fetch(fetch) => Some(fetch.bytes),
            _ => None,
        });
        reads.next().expect("the host has no adapters yet")
    };
    assert_eq!(read(1), read(2));
}

#[test]
fn lightly_loaded_cards_are_emptied() {
    let generation = GenerationSpec {
        max_batch: 8,
        consolidate: Some(ConsolidateSpec {
            every: Duration::from_millis(5),
            light: 2,
        }),
        ..generation()
    };
    let mut system = system(generation);
    // The first four fill a card and the next four another; one of each is left when the others have ended.
    system.pool.generation.as_mut().expect("it generates").max_batch = 4;
    let output = |n: u64| if n.is_multiple_of(4) { 400 } else { 5 };
    let entries: Vec<Entry> = (0..8).map(|n| request(n, n, n as u32 % 4, 20, output(n))).collect();
    let counts = |system: &SystemSpec| {
        let (record, _) = simulate(system, 4, 400, Jitter::None, entries.clone(), false);
        assert_eq!(record.counts.served, 8);
        record.generation.expect("it generates")
    };
    let consolidated = counts(&system);
    system.pool.generation.as_mut().expect("it generates").consolidate = None;
    let spread = counts(&system);
    assert_eq!((consolidated.migrations, spread.migrations), (1, 0));
    assert!(
        consolidated.occupied.0 * 4 < spread.occupied.0 * 3,
        "{consolidated:?} {spread:?}"
    );
}

/// A card whose run was promised the pages that are wanted says at its next step whether it has room. Others are placed
/// meanwhile: on many cards nobody waits longer than on two, nor where tenants have turns.
#[test]
fn nobody_waits_for_a_step_of_a_card_that_others_go_to() {
    for (queue, place) in [
        (QueueSpec::Arrival, PlaceSpec::LargestWorkingSet),
        (QueueSpec::Arrival, PlaceSpec::LeastLoaded),
        (QueueSpec::Arrival, PlaceSpec::RoundRobin),
        (FAIR, PlaceSpec::LargestWorkingSet),
        (FAIR, PlaceSpec::LeastLoaded),
    ] {
        let mut system = system(GenerationSpec {
            lora: None,
            max_batch: 8,
            queue,
            ..generation()
        });
        system.pool.place = place;
        // Some three on each card, of 100 steps of a tenth of a millisecond each.
        let run = |cards: u32| {
            let entries = (0..20 * u64::from(cards))
                .map(|n| request(n, n * 3_000 / u64::from(cards), n as u32 % TENANTS, 20, 100))
                .collect();
            let (record, _) = simulate(&system, cards, 60, Jitter::None, entries, false);
            assert_eq!(record.counts.served, 20 * u64::from(cards));
            (record.queue.mean_ns() / 1e3, record.latency.mean_ns() / 1e3)
        };
        let ((few_us, _), (many_us, latency_us)) = (run(2), run(128));
        assert!(
            many_us < 1.5 * few_us + 50.0 && many_us < 0.05 * latency_us,
            "{queue:?}, {place:?}: {few_us} µs on two cards, {many_us} of {latency_us} on many"
        );
    }
}

/// Whenever a tenant is deleted, also while the card that runs its request is being emptied: what runs goes on.
#[test]
fn a_request_that_runs_is_answered_though_its_tenant_is_deleted_while_its_card_is_emptied() {
    let mut system = system(GenerationSpec {
        max_batch: 4,
        consolidate: Some(ConsolidateSpec {
            every: Duration::from_millis(5),
            light: 2,
        }),
        ..generation()
    });
    system.pool.generation.as_mut().expect("it generates").scale = None;
    let output = |n: u64| if n.is_multiple_of(4) { 400 } else { 5 };
    let mut moved = BTreeSet::new();
    for period in 1..20 {
        let at = Time(period * 5_000_000 + 20_000);
        let change = Change::tenant(0, Action::Delete);
        let mut entries: Vec<Entry> = (0..8).map(|n| request(n, n, n as u32 % 4, 20, output(n))).collect();
        entries.push(Entry::Manage(ManageRequest { at, change }));
        let (record, _) = simulate(&system, 4, 400, Jitter::None, entries, false);
        assert_eq!(record.counts.served, 8, "deleted at {at}: {:?}", record.failed);
        moved.insert(record.generation.expect("it generates").migrations);
    }
    assert_eq!(
        moved,
        BTreeSet::from([0, 1]),
        "before it would have been moved, and after"
    );
}
