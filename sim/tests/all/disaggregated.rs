//! Cards that only take prompts in, apart from those that go on from there: known answers, and what becomes of memory,
//! of those who give up and of those who are moved.

use crate::common;
use crate::common::decoders::{PAGE_TOKENS, generation, memory, request, simulate, simulate_on, system};
use tenantry_core::RunRecord;
use tenantry_core::command::{Command, FailureReason, Verdict};
use tenantry_core::log::Log;
use tenantry_core::op::{Op, OpKind, Transfer};
use tenantry_core::policy::fairness::Weights;
use tenantry_core::spec::{
    AdmitSpec, ConsolidateSpec, DisaggregatedSpec, GenerationSpec, LinkSpec, PlaceSpec, QueueSpec, SystemSpec,
};
use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{CollectiveOperation, CollectiveRow, Stats};
use tenantry_sim::Jitter;
use tenantry_traces::{Action, Duration, Entry, Time};

const LINK: LinkSpec = LinkSpec {
    bytes_per_s: 1_000_000_000,
    latency: Duration::from_micros(100),
};

/// The backbone alone, with so many cards for prompts.
fn apart(prefill_gpus: u32, link: LinkSpec) -> SystemSpec {
    system(GenerationSpec {
        lora: None,
        disaggregated: Some(DisaggregatedSpec {
            prefill_gpus,
            link: Some(link),
        }),
        ..generation()
    })
}

/// Likewise, on cards with so many pages.
fn run(system: &SystemSpec, gpus: u32, pages: u32, entries: Vec<Entry>) -> (RunRecord, Log) {
    simulate(system, gpus, pages, Jitter::None, entries, false)
}

fn page_bytes(system: &SystemSpec) -> u64 {
    memory(system, 1) - memory(system, 0)
}

fn transfers(log: &Log) -> Vec<(Time, Transfer)> {
    let commands = log.commands.iter();
    let transfer = |op: &Op| match op.kind {
        OpKind::Transfer(transfer) => Some(transfer),
        _ => None,
    };
    commands
        .flat_map(|logged| logged.ops.iter().filter_map(transfer).map(|op| (logged.at, op)))
        .collect()
}

fn finished(log: &Log) -> Vec<(u64, Time, Verdict)> {
    let finish = |logged: &tenantry_core::log::LoggedCommand| match &logged.command {
        Command::Finish(finish) => Some((finish.ticket, logged.at, finish.verdict)),
        _ => None,
    };
    log.commands.iter().filter_map(finish).collect()
}

/// How long the first link lane was busy.
fn link_busy(record: &RunRecord) -> Duration {
    links_busy(record)[0]
}

/// How long each link lane was busy.
fn links_busy(record: &RunRecord) -> Vec<Duration> {
    let links = record.lanes.iter().filter(|lane| lane.name.ends_with("/link"));
    links.map(|lane| lane.busy).collect()
}

#[test]
fn a_request_takes_its_prompt_its_transfer_and_its_tokens() {
    let system = apart(1, LINK);
    let (record, log) = run(&system, 2, 64, vec![request(0, 0, 0, 256, 3)]);
    // As `one_request_takes_what_its_steps_take` has it in `generation.rs`.
    let prompt_us = 2.0 * (158.0 + 2.0 + 65.536) + (10.0 + 1.0 + 2.56);
    let token_us = |context: f64| 2.0 * (30.5 + 2.0 + 0.01 * context) + (10.0 + 1.0 + 0.01);
    let (wake_us, tell_us) = (5.0, 20.0);
    let bytes = 256 / u64::from(PAGE_TOKENS) * page_bytes(&system);
    let first_us = wake_us + prompt_us;
    let transfer_us = wake_us + 100.0 + bytes as f64 / 1e3 + tell_us;
    let all_us = first_us + tell_us + transfer_us + wake_us + token_us(257.0) + token_us(258.0) + tell_us;
    let (got_first_us, got_all_us) = (record.first_token.mean_ns() / 1e3, record.latency.mean_ns() / 1e3);
    assert!((got_first_us - first_us).abs() < 0.1, "{got_first_us}, not {first_us}");
    assert!((got_all_us - all_us).abs() < 0.1, "{got_all_us}, not {all_us}");
    let counts = record.generation.expect("it generates");
    assert_eq!((counts.transfers, counts.transferred_bytes), (1, bytes));
    assert_eq!(transfers(&log).len(), 1);
    assert_eq!(link_busy(&record), Duration(100_000 + bytes));
}

#[test]
fn without_a_link_pages_are_copied_as_the_card_copies_them() {
    let mut system = apart(1, LINK);
    let generation = system.pool.generation.as_mut().expect("it generates");
    generation.disaggregated = Some(DisaggregatedSpec {
        prefill_gpus: 1,
        link: None,
    });
    let (record, _) = run(&system, 2, 64, vec![request(0, 0, 0, 40, 3)]);
    // The synthetic card copies 20 µs + bytes at 10 GB/s; three pages.
    let page_us = 20.0 + page_bytes(&system) as f64 / 10e3;
    let busy_us = link_busy(&record).0 as f64 / 1e3;
    assert!(
        (busy_us - 3.0 * page_us).abs() < 0.01 * busy_us,
        "{busy_us}, not {}",
        3.0 * page_us
    );
}

#[test]
fn where_cards_exchange_messages_a_transfer_is_one() {
    let mut system = apart(1, LINK);
    let generation = system.pool.generation.as_mut().expect("it generates");
    generation.disaggregated = Some(DisaggregatedSpec {
        prefill_gpus: 1,
        link: None,
    });
    let mut card = synthetic_card();
    // 50 µs and a microsecond for 2,000 bytes.
    for bytes in [2_000_u64, 1_000_000] {
        let us = 50.0 + bytes as f64 / 2e3;
        card.tables.collective.push(CollectiveRow {
            operation: CollectiveOperation::SendReceive,
            workers: 2,
            bytes,
            stats: Stats::exact(us),
        });
    }
    let entries = vec![request(0, 0, 0, 40, 3)];
    let (record, _) = simulate_on(&card, &system, 2, 64, Jitter::None, entries, false);
    let message_us = 50.0 + 3.0 * page_bytes(&system) as f64 / 2e3;
    let busy_us = link_busy(&record).0 as f64 / 1e3;
    assert!(
        (busy_us - message_us).abs() < 0.01 * busy_us,
        "{busy_us}, not {message_us}"
    );
}

/// A prompt that fills the cache but for a token is parked with its first, and computed anew with that, since its
/// tenant's adapters are others: it makes a second token, which no cache has room for.
#[test]
fn who_is_parked_with_more_than_a_cache_holds_fails_and_holds_nobody_back() {
    let mut system = apart(1, LINK);
    let generation = system.pool.generation.as_mut().expect("it generates");
    generation.lora = common::decoders::generation().lora;
    generation.page_tokens = 1;
    let entries = vec![
        request(0, 0, 0, 20, 30),
        request(1, 0, 1, 63, 40),
        common::manage(1_500, 1, Action::Update),
        request(2, 10_000, 2, 20, 3),
    ];
    let (_, log) = run(&system, 2, 64, entries);
    let mut verdicts: Vec<(u64, Verdict)> =
        finished(&log).into_iter().map(|(ticket, _, verdict)| (ticket, verdict)).collect();
    verdicts.sort_by_key(|&(ticket, _)| ticket);
    let no_room = Verdict::Failed(FailureReason::OutOfMemory);
    assert_eq!(verdicts, [(0, Verdict::Served), (1, no_room), (2, Verdict::Served)]);
}

/// Its keys and values are of the old adapters, and it would go on with the new ones.
#[test]
fn whose_adapters_change_in_mid_copy_is_taken_in_anew() {
    let slow = LinkSpec {
        bytes_per_s: 1_000_000,
        ..LINK
    };
    let mut system = apart(1, slow);
    let generation = system.pool.generation.as_mut().expect("it generates");
    generation.lora = common::decoders::generation().lora;
    let transfers_of = |changed: u32| {
        let entries = vec![request(0, 0, 1, 40, 3), common::manage(20_000, changed, Action::Update)];
        let (record, log) = run(&system, 2, 64, entries);
        assert_eq!(record.counts.served, 1);
        // The first copy is under way when the adapters change.
        let link_us = log.commands.iter().find(|logged| matches!(logged.command, Command::Finish(_)));
        assert!(link_us.is_some_and(|logged| logged.at > Time(40_000_000)));
        transfers(&log).len()
    };
    assert_eq!((transfers_of(2), transfers_of(1)), (1, 2));
}

#[test]
fn who_ends_with_its_first_token_is_copied_nowhere() {
    let (record, log) = run(
        &apart(1, LINK),
        2,
        64,
        vec![request(0, 0, 0, 20, 1), request(1, 5, 0, 20, 2)],
    );
    assert_eq!(record.counts.served, 2);
    assert_eq!(transfers(&log).len(), 1);
}

#[test]
fn prompts_do_not_hold_up_those_who_go_on() {
    // One goes on for long; every two milliseconds somebody comes with a prompt that takes most of one.
    let mut entries = vec![request(0, 0, 0, 20, 400)];
    entries.extend((1..20).map(|n| request(n, n * 2_000, 0, 600, 1)));
    let together = system(GenerationSpec {
        lora: None,
        ..generation()
    });
    let latency_of_first = |system: &SystemSpec, gpus| {
        let (record, log) = run(system, gpus, 200, entries.clone());
        assert_eq!(record.counts.served, 20);
        let all = finished(&log);
        all.iter().find(|(ticket, ..)| *ticket == 0).expect("it is served").1
    };
    let (held_up, alone) = (latency_of_first(&together, 1), latency_of_first(&apart(1, LINK), 2));
    assert!(held_up.0 * 4 > alone.0 * 5, "{held_up} and {alone}");
    // Without any beside it, it would take as long.
    let (by_itself, _) = run(&apart(1, LINK), 2, 200, vec![request(0, 0, 0, 20, 400)]);
    assert!(by_itself.end.0 * 21 > alone.0 * 20, "{} and {alone}", by_itself.end);
}

#[test]
fn who_finds_no_room_waits_where_its_prompt_is() {
    // Each wants five pages in the end and three at first; the second card has room for one of them.
    let entries = vec![request(0, 0, 0, 40, 40), request(1, 10, 0, 40, 40)];
    let (record, log) = run(&apart(1, LINK), 2, 6, entries);
    let counts = record.generation.expect("it generates");
    assert_eq!((record.counts.served, counts.evictions, counts.transfers), (2, 0, 2));
    let (first, second) = (finished(&log)[0], transfers(&log)[1]);
    assert!(second.0 >= first.1, "{} is before {}", second.0, first.1);
    // Both have their first token long before.
    assert!(record.first_token.max_ns() < first.1.0 / 2);
    // That is a wait for a card, as before a prompt: only the copy holds up a lane that is free.
    let parked: Vec<Time> = log
        .commands
        .iter()
        .filter(|logged| matches!(logged.command, Command::Park { .. }))
        .map(|logged| logged.at)
        .collect();
    let waits = log.commands.iter().find_map(|logged| match &logged.command {
        Command::Finish(finish) if finish.ticket == 1 => Some(finish.waits),
        _ => None,
    });
    let waits = waits.expect("it is served");
    assert!(waits.queue >= second.0.since(parked[1]), "{waits:?}");
    assert!(waits.stall.0 < waits.queue.0 / 10, "{waits:?}");
}

/// Four that ask one after the other, of two tenants, on a card for prompts and one that goes on with one at a time.
fn one_at_a_time() -> SystemSpec {
    let mut system = apart(1, LINK);
    system.pool.generation.as_mut().expect("it generates").max_batch = 1;
    system
}

#[test]
fn who_is_parked_is_in_no_batch() {
    let entries = (0..4).map(|n| request(n, n, 0, 20, 200)).collect();
    let (record, log) = run(&one_at_a_time(), 2, 64, entries);
    assert_eq!(record.counts.served, 4);
    // Their pages are there, so that all prompts are taken in while the first goes on.
    let first_ends = finished(&log)[0].1;
    assert!(
        record.first_token.max_ns() < first_ends.0 / 2,
        "{} and {first_ends}",
        record.first_token.max_ns()
    );
}

#[test]
fn who_is_parked_waits_as_a_bounded_queue_counts() {
    let entries = (0..6).map(|n| request(n, n * 5_000, 0, 20, 1_000)).collect();
    let mut system = one_at_a_time();
    system.admit = AdmitSpec::BoundedQueue { max_waiting: 2 };
    let (record, _) = run(&system, 2, 128, entries);
    assert_eq!((record.counts.served, record.counts.rejected), (3, 3));
}

/// Prompts are taken in by turns, and whose was not the first to come has its tokens in its turn too.
#[test]
fn turns_between_tenants_are_kept_by_those_who_are_parked() {
    let ended = |queue| {
        let mut system = one_at_a_time();
        system.pool.generation.as_mut().expect("it generates").queue = queue;
        let mut entries: Vec<Entry> = (0..5).map(|n| request(n, n, 0, 20, 100)).collect();
        entries.push(request(5, 10, 1, 20, 100));
        let (_, log) = run(&system, 2, 64, entries);
        finished(&log).into_iter().map(|(ticket, ..)| ticket).collect::<Vec<_>>()
    };
    let fair = QueueSpec::VirtualTokenCounter(Weights { input: 1, output: 2 });
    assert_eq!(ended(QueueSpec::Arrival), [0, 1, 2, 3, 4, 5]);
    assert_eq!(ended(fair), [0, 5, 1, 2, 3, 4]);
}

#[test]
fn what_two_cards_send_to_one_shares_its_link() {
    // Both prompts are over at the same time, each on a card of its own.
    let entries = || vec![request(0, 0, 0, 256, 9), request(1, 0, 1, 256, 9)];
    let busy = |place| {
        let mut system = apart(2, LINK);
        system.pool.place = place;
        let (record, log) = run(&system, 4, 64, entries());
        assert_eq!((record.counts.served, transfers(&log).len()), (2, 2));
        links_busy(&record)
    };
    let bytes = 256 / u64::from(PAGE_TOKENS) * page_bytes(&apart(2, LINK));
    let alone = Duration(100_000 + bytes);
    assert_eq!(busy(PlaceSpec::LeastLoaded), [alone; 2], "to two cards");
    for together in busy(PlaceSpec::LargestWorkingSet) {
        let times = together.0 as f64 / alone.0 as f64;
        assert!((1.9..=2.0).contains(&times), "{together} for {alone}");
    }
}

#[test]
fn who_runs_out_of_pages_is_taken_in_anew_and_copied_again() {
    // Two requests of 30 tokens that grow to 90 each: 12 pages, and there are 9.
    let entries = vec![request(0, 0, 0, 30, 60), request(1, 10, 1, 30, 60)];
    let (record, log) = run(&apart(1, LINK), 2, 9, entries);
    let counts = record.generation.expect("it generates");
    assert_eq!((record.counts.served, record.output_tokens), (2, 120));
    assert_eq!((counts.evictions, counts.transfers), (1, 3));
    assert!(counts.recomputed_tokens > 30, "{counts:?}");
    let sizes: Vec<u32> = transfers(&log).iter().map(|(_, transfer)| transfer.pages).collect();
    assert!(sizes[2] > sizes[1], "with what it had generated: {sizes:?}");
}

#[test]
fn who_gives_up_in_mid_copy_leaves_when_it_is_over() {
    // 20 tokens are two pages; the copy takes a tenth of a second.
    let slow = LinkSpec {
        bytes_per_s: 20 * page_bytes(&apart(1, LINK)),
        latency: Duration::ZERO,
    };
    let cancel = Entry::Cancel {
        at: Time(50_000_000),
        ticket: 0,
    };
    let entries = vec![request(0, 0, 0, 20, 9), cancel, request(1, 60_000, 0, 20, 9)];
    let (record, log) = run(&apart(1, slow), 2, 9, entries);
    assert_eq!((record.counts.cancelled, record.counts.served), (1, 1));
    let [(0, at, Verdict::Cancelled), (1, _, Verdict::Served)] = finished(&log)[..] else {
        panic!("{:?}", finished(&log));
    };
    assert!((100..102).contains(&(at.0 / 1_000_000)), "{at}");
}

#[test]
fn what_a_tenants_prompts_begin_with_is_copied_once() {
    // Four pages of each prompt of seven are its tenant's.
    let entries: Vec<Entry> = (0..6).map(|n| request(n, n * 3_000, 0, 100, 60)).collect();
    let bytes = |shared_prefix_tokens| {
        let mut system = apart(1, LINK);
        let generation = system.pool.generation.as_mut().expect("it generates");
        generation.shared_prefix_tokens = shared_prefix_tokens;
        let (record, _) = run(&system, 2, 100, entries.clone());
        assert_eq!(record.counts.served, 6);
        record.generation.expect("it generates").transferred_bytes / page_bytes(&system)
    };
    assert_eq!((bytes(0), bytes(64)), (6 * 7, 7 + 5 * 3));
}

#[test]
fn cards_that_go_on_are_emptied_and_those_for_prompts_are_not() {
    // As `lightly_loaded_cards_are_emptied`, with one card more for prompts.
    let consolidate = ConsolidateSpec {
        every: Duration::from_millis(5),
        light: 2,
    };
    let mut system = apart(1, LINK);
    let generation = system.pool.generation.as_mut().expect("it generates");
    (generation.max_batch, generation.consolidate) = (4, Some(consolidate));
    let output = |n: u64| if n.is_multiple_of(4) { 400 } else { 20 };
    let entries: Vec<Entry> = (0..8).map(|n| request(n, n, n as u32 % 4, 20, output(n))).collect();
    let (record, log) = run(&system, 5, 400, entries);
    let counts = record.generation.expect("it generates");
    assert_eq!(record.counts.served, 8);
    assert_eq!((counts.migrations, counts.transfers), (1, 9), "{:?}", transfers(&log));
}

/// Who is moved goes to the decoder that runs more, and not back to the one that was emptied and is now the least
/// loaded.
#[test]
fn who_is_moved_does_not_come_back() {
    for place in [PlaceSpec::LeastLoaded, PlaceSpec::RoundRobin] {
        let mut system = apart(1, LINK);
        system.pool.place = place;
        let generation = system.pool.generation.as_mut().expect("it generates");
        generation.consolidate = Some(ConsolidateSpec {
            every: Duration::from_millis(5),
            light: 2,
        });
        let entries = vec![request(0, 0, 0, 20, 400), request(1, 0, 1, 20, 400)];
        let (record, _) = run(&system, 3, 400, entries);
        assert_eq!(record.counts.served, 2);
        let counts = record.generation.expect("it generates");
        assert_eq!((counts.migrations, counts.transfers), (1, 3), "{place:?}");
    }
}
