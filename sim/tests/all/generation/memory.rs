//! What lies on cards and in host memory: tenants' own parameters, pages, and what nobody has.

use super::*;

/// A slot is given to another tenant while the copy that was begun for the one before is under way: that copy's end is
/// not its own's.
#[test]
fn a_slot_that_is_given_again_waits_for_its_own_copy() {
    let system = system(GenerationSpec {
        lora: Some(LoraSpec {
            rank: 8,
            implementation: AdapterImplementation::Grouped,
            slots: 1,
            host_slots: None,
        }),
        ..generation()
    });
    let first_token_us = |entries| {
        let (record, _) = simulate(&system, 1, 64, Jitter::None, entries, false);
        assert_eq!(record.counts.served, 1);
        record.first_token.mean_ns() / 1e3
    };
    let alone = first_token_us(vec![request(0, 10, 1, 20, 3)]);
    let cancelled = Entry::Cancel {
        at: Time(5_000),
        ticket: 0,
    };
    let behind = first_token_us(vec![request(0, 0, 0, 20, 3), cancelled, request(1, 10, 1, 20, 3)]);
    assert!(
        behind > alone,
        "{behind} µs behind a copy that nobody needs, and {alone} µs without it"
    );
}

/// Who comes finds pages while others run: where there are enough, neither how many there are nor how many positions
/// the model has changes a first token. What is copied or looked up for it begins to be at once.
#[test]
fn nobody_waits_for_pages_that_a_run_could_take() {
    let with_adapters = system(generation());
    let above_a_table = hierarchical(generation(), PipelineSpec::PREFETCH_RETRIEVAL);
    let link = LinkSpec {
        bytes_per_s: 1_000_000_000,
        latency: Duration::from_micros(100),
    };
    let apart = system(GenerationSpec {
        disaggregated: Some(DisaggregatedSpec {
            prefill_gpus: 1,
            link: Some(link),
        }),
        ..generation()
    });
    let entries: Vec<Entry> =
        (0..80).map(|n| request(n, 1_500 * n, n as u32 % TENANTS, 40, 5 + n as u32 * 7 % 60)).collect();
    for (what, system, cards) in [
        ("adapters", with_adapters, 1),
        ("look-ups", above_a_table, 1),
        ("keys and values", apart, 2),
    ] {
        let answers = |pages, positions| {
            let (mut system, mut card) = (system.clone(), synthetic_card());
            system.pool.model.positions = positions;
            card.models.push(system.pool.model.clone());
            let (record, log) = simulate_on(&card, &system, cards, pages, Jitter::None, entries.clone(), false);
            assert_eq!(record.counts.served, 80, "{what}");
            let answers = log.commands.iter().filter_map(|logged| match &logged.command {
                Command::Finish(finish) => Some((finish.ticket, finish.first_token, logged.at)),
                _ => None,
            });
            answers.collect::<Vec<_>>()
        };
        let plenty = answers(100_000, 128);
        for (pages, positions) in [(200, 128), (200, 100_000), (100_000, 100_000)] {
            assert_eq!(
                answers(pages, positions),
                plenty,
                "{what}: {pages} pages, {positions} positions"
            );
        }
    }
}

#[test]
fn dedicated_decoders_are_swapped() {
    // Three tenants in turns, and room for all or for two.
    let entries: Vec<Entry> = (0..9).map(|n| request(n, n * 100_000, (n % 3) as u32, 20, 10)).collect();
    let swaps = |slots| {
        let mut system = system(GenerationSpec {
            lora: None,
            slots,
            join: JoinSpec::QueuePerTenant,
            ..generation()
        });
        system.pool.tenant_state = TenantState::Model;
        let (record, _) = simulate(&system, 1, 200, Jitter::None, entries.clone(), false);
        assert_eq!(record.counts.served, 9);
        let swaps = record.swaps.expect("models are swapped");
        assert_eq!(swaps.bytes_in, swaps.misses * 4 * system.pool.model.parameters());
        (swaps.hits, swaps.misses)
    };
    // Cyclic: the one that is needed next has just left.
    assert_eq!((swaps(3), swaps(2)), ((6, 3), (0, 9)));
}

#[test]
fn tenants_cache_the_beginning_of_their_prompts_once() {
    // Four tenants; of their prompts of 100 tokens, 64 are the same. One card has room for six prompts of 100 and their
    // answers.
    let entries: Vec<Entry> = (0..40).map(|n| request(n, 300 * n, n as u32 % 4, 100, 60)).collect();
    let run = |shared_prefix_tokens| {
        let generation = GenerationSpec {
            shared_prefix_tokens,
            max_batch: 12,
            ..generation()
        };
        let (record, log) = simulate(&system(generation), 1, 64, Jitter::None, entries.clone(), false);
        assert_eq!((record.counts.served, record.output_tokens), (40, 2400));
        (
            record.generation.expect("it generates"),
            log.events.last().expect("there are").0,
        )
    };
    let ((shared, sooner), (alone, later)) = (run(64), run(0));
    assert!(
        shared.shared_tokens >= 30 * 64 && alone.shared_tokens == 0,
        "{shared:?}"
    );
    // More of them fit, and more have to go again, but less of it is computed again.
    assert!(
        shared.recomputed_tokens < alone.recomputed_tokens,
        "{shared:?} {alone:?}"
    );
    assert!(sooner < later, "{sooner} {later}");
}

/// One runs at a time, and there are pages for no more: the other comes in as soon as the first has given up, and not
/// when it would have ended.
#[test]
fn a_request_that_is_cancelled_in_mid_stream_gives_its_pages_back() {
    let system = system(GenerationSpec {
        max_batch: 1,
        ..generation()
    });
    let end_us = |entries: Vec<Entry>, stepping| {
        let (record, _) = simulate(&system, 1, 30, Jitter::None, entries, stepping);
        (record.end.0 as f64 / 1e3, record.counts.served, record.counts.cancelled)
    };
    let [first, second] = [request(0, 0, 0, 20, 400), request(1, 1, 1, 20, 400)];
    for stepping in [false, true] {
        let (alone, ..) = end_us(vec![first], stepping);
        let (both, ..) = end_us(vec![first, second], stepping);
        assert!(
            both > 1.9 * alone,
            "{both} µs for both, {alone} µs for one: they are not apart"
        );
        let given_up_us = (alone / 4.0).round();
        let cancel = Entry::Cancel {
            at: Time(given_up_us as u64 * 1_000),
            ticket: 0,
        };
        let (end, served, cancelled) = end_us(vec![first, second, cancel], stepping);
        assert_eq!((served, cancelled), (1, 1));
        // It leaves at the next step's boundary, of some four hundred.
        assert!(
            (end - given_up_us - alone).abs() < 0.01 * alone,
            "{end} µs, given up at {given_up_us}, {alone} µs for one"
        );
    }
}

#[test]
fn nobody_runs_on_what_another_tenants_copy_brought() {
    let mut generation = generation();
    generation.lora.as_mut().expect("it has some").slots = 1;
    let system = system(generation);
    // The first gives up while its tenant's adapters are on their way; the second's come behind them, into the same
    // slot.
    let cancel = Entry::Cancel {
        at: Time(2_000),
        ticket: 0,
    };
    let first_token = |entries| {
        let (record, _) = simulate(&system, 1, 64, Jitter::None, entries, false);
        (record.counts.served, record.first_token.mean_ns())
    };
    let beside = first_token(vec![request(0, 0, 0, 20, 3), cancel, request(1, 3, 1, 20, 3)]);
    let alone = first_token(vec![request(1, 3, 1, 20, 3)]);
    assert_eq!((beside.0, alone.0), (1, 1));
    // Copies take tens of microseconds, one after the other.
    assert!(beside.1 > alone.1 + 15_000.0, "{beside:?} {alone:?}");
}

#[test]
fn adapters_that_host_memory_does_not_hold_are_read_from_the_disk() {
    // Twelve tenants in turn, room for four on the card.
    let entries: Vec<Entry> = (0..60).map(|n| request(n, 3_000 * n, n as u32 % TENANTS, 20, 5)).collect();
    let run = |host_slots| {
        let mut generation = generation();
        generation.lora.as_mut().expect("it has some").host_slots = host_slots;
        let (record, _) = simulate(&system(generation), 1, 200, Jitter::None, entries.clone(), false);
        assert_eq!(record.counts.served, 60);
        (
            record.generation.expect("it generates").reads,
            record.first_token.mean_ns() / 1e3,
        )
    };
    let (all, some, few) = (run(None), run(Some(12)), run(Some(4)));
    // The card's least recently used and the host's miss together: with four slots each, every time.
    assert_eq!((all.0, some.0, few.0), (0, 12, 60));
    // A read takes a millisecond.
    assert!(
        few.1 > all.1 + 1_000.0 && some.1 < few.1 - 700.0,
        "{all:?} {some:?} {few:?}"
    );
}

/// Slots beyond the tenants that there are take no page.
#[test]
fn no_room_is_kept_for_adapters_that_nobody_has() {
    let of_slots = |slots| {
        let lora = generation().lora.map(|lora| LoraSpec { slots, ..lora });
        system(GenerationSpec { lora, ..generation() })
    };
    let cluster = cluster(1, memory(&of_slots(64), 100));
    let pages = |slots, tenants| match Server::new(&cluster, &of_slots(slots), tenants).unwrap() {
        Server::Generation(server) => server.pages_per_instance(),
        _ => unreachable!("it generates"),
    };
    assert_eq!(pages(64, 64), 100);
    assert_eq!(pages(64, 1), pages(1, 1));
    assert!(pages(1, 1) > 100);
}
