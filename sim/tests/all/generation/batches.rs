//! Who runs together, and until when.

use super::*;

#[test]
fn sequences_end_at_their_token_or_at_their_length() {
    let entries = || (0..300).map(|n| request(n, 10 * n, n as u32 % TENANTS, 20, 40)).collect::<Vec<_>>();
    let output = |stop, slots| {
        let generation = GenerationSpec { stop, ..generation() };
        let mut system = system(generation);
        system.pool.generation.as_mut().unwrap().lora.as_mut().unwrap().slots = slots;
        let (record, log) = simulate(&system, 2, 200, Jitter::None, entries(), false);
        assert_eq!(record.counts.served, 300);
        let finishes = log.commands.into_iter().filter_map(|logged| match logged.command {
            tenantry_core::Command::Finish(finish) => Some((finish.ticket, finish.output_tokens)),
            _ => None,
        });
        finishes.collect::<std::collections::BTreeMap<_, _>>()
    };
    let by_token = StopSpec::EndOfSequence {
        token: 2,
        chance_ppm: 50_000,
    };
    let (drawn, other_policy) = (output(by_token, 4), output(by_token, 2));
    assert_eq!(drawn, other_policy, "no policy moves where a sequence ends");
    // A geometric draw cut at 40: 17.4 tokens on average, a seventh of all by length.
    let mean = drawn.values().map(|&tokens| f64::from(tokens)).sum::<f64>() / 300.0;
    assert!((15.0..20.0).contains(&mean), "{mean}");
    assert!(drawn.values().any(|&tokens| tokens == 40) && drawn.values().all(|&tokens| tokens <= 40));
    assert!(output(StopSpec::Length, 4).values().all(|&tokens| tokens == 40));
}

#[test]
fn a_tenant_that_floods_the_queue_does_not_hold_up_the_others() {
    // Tenant 0 sends forty at once, and then tenant 1 sends four.
    let entries: Vec<Entry> = (0..44).map(|n| request(n, n, u32::from(n >= 40), 20, 40)).collect();
    let last_of = |queue, tenant| {
        let generation = GenerationSpec { queue, ..generation() };
        let (record, log) = simulate(&system(generation), 1, 200, Jitter::None, entries.clone(), false);
        assert_eq!(record.counts.served, 44);
        let ends = log.commands.iter().filter_map(|logged| match &logged.command {
            tenantry_core::Command::Finish(finish) if finish.tenant == tenant => Some(logged.at),
            _ => None,
        });
        ends.max().expect("it is served")
    };
    let (waited, shared) = (last_of(QueueSpec::Arrival, 1), last_of(FAIR, 1));
    assert!(shared.0 * 2 < waited.0, "{shared} instead of {waited}");
    assert!(
        last_of(FAIR, 0) >= last_of(QueueSpec::Arrival, 0),
        "the work is the same"
    );
}

/// By arrival the newest goes when pages run out; by turns whoever's tenant was served most, also where it came first.
#[test]
fn who_is_preferred_is_not_evicted_for_those_who_had_their_turn() {
    // Of 30 tokens that grow to 90: twelve pages, and there are nine.
    let entries = || vec![request(0, 0, 0, 30, 60), request(1, 2_000, 1, 30, 60)];
    let first_to_end = |queue| {
        let generation = GenerationSpec { queue, ..generation() };
        let (record, log) = simulate(&system(generation), 1, 9, Jitter::None, entries(), false);
        assert_eq!((record.counts.served, record.output_tokens), (2, 120));
        assert_eq!(record.generation.expect("it generates").evictions, 1);
        log.commands.iter().find_map(|logged| match &logged.command {
            tenantry_core::Command::Finish(finish) => Some(finish.ticket),
            _ => None,
        })
    };
    assert_eq!(
        (first_to_end(QueueSpec::Arrival), first_to_end(FAIR)),
        (Some(0), Some(1))
    );
}

#[test]
fn baselines_run_one_tenant_at_a_time() {
    // Tenants alternate in the queue: a run of the same one is never longer than one request.
    let entries: Vec<Entry> = (0..16).map(|n| request(n, n, (n % 2) as u32, 20, 40)).collect();
    let batch_of = |join: JoinSpec, queue| {
        let generation = GenerationSpec {
            join,
            queue,
            ..generation()
        };
        let (record, _) = simulate(&system(generation), 1, 200, Jitter::None, entries.clone(), false);
        assert_eq!(record.counts.served, 16);
        record.batch_requests as f64 / record.batches as f64
    };
    let batch = |join| batch_of(join, QueueSpec::Arrival);
    assert_eq!(batch(JoinSpec::HeadRun), 1.0);
    assert_eq!(batch(JoinSpec::HeadRunStatic), 1.0);
    assert!(batch(JoinSpec::QueuePerTenant) > 2.5);
    assert!(batch(JoinSpec::AnyTenant) > 2.5);
    // Whose turn it is goes on with its own, though it has been served more by then.
    assert!(batch_of(JoinSpec::QueuePerTenant, FAIR) > 2.5);
}

#[test]
fn a_static_batch_waits_for_its_longest() {
    let generation = GenerationSpec {
        join: JoinSpec::HeadRunStatic,
        prefill: PrefillSpec::Chunked { max_tokens: 4096 },
        lora: None,
        ..generation()
    };
    let system = system(generation);
    // The first arrives alone and is served alone; the next two form a batch.
    let entries = vec![
        request(0, 0, 0, 20, 2),
        request(1, 1, 0, 20, 5),
        request(2, 2, 0, 20, 50),
    ];
    let (_, log) = simulate(&system, 1, 200, Jitter::None, entries, false);
    let finished: Vec<(u64, u64)> = log
        .commands
        .iter()
        .filter_map(|logged| match &logged.command {
            tenantry_core::Command::Finish(finish) => Some((finish.ticket, logged.at.0)),
            _ => None,
        })
        .collect();
    assert_eq!(finished[1].1, finished[2].1, "both leave when the longer has ended");
    assert!(finished[0].1 < finished[1].1);
}

/// However its steps fall into runs: a run ends when the pages are used up, when a client gives up, and with each piece
/// of a prompt.
#[test]
fn a_static_batch_that_is_cut_waits_for_its_longest() {
    let ends = |max_tokens, pages, entries: Vec<Entry>| {
        let system = system(GenerationSpec {
            join: JoinSpec::HeadRunStatic,
            prefill: PrefillSpec::Chunked { max_tokens },
            lora: None,
            ..generation()
        });
        let (record, log) = simulate(&system, 1, pages, Jitter::None, entries, false);
        let finished = log.commands.iter().filter_map(|logged| match &logged.command {
            Command::Finish(finish) => Some((finish.ticket, (logged.at, finish.output_tokens))),
            _ => None,
        });
        (finished.collect::<BTreeMap<_, _>>(), record)
    };
    // The first is served alone; the others form a batch.
    let of = |outputs: &[u32]| {
        let requests = (0..).zip(outputs).map(|(n, &output)| request(n, n, 0, 20, output));
        requests.collect::<Vec<Entry>>()
    };

    let gives_up = Entry::Cancel {
        at: Time(2_000_000),
        ticket: 3,
    };
    let mut given_up = of(&[2, 5, 50, 200]);
    given_up.push(gives_up);
    let (ends_at, record) = ends(4_096, 200, given_up);
    assert_eq!((ends_at[&1].1, ends_at[&2].1, record.counts.served), (5, 50, 3));
    assert!(ends_at[&3].0 < ends_at[&1].0, "who has given up does not wait");
    assert_eq!(ends_at[&1].0, ends_at[&2].0);

    // Each prompt comes in two pieces, and the first has its only token before the other prompts are there.
    let (ends_at, record) = ends(16, 200, of(&[2, 1, 50, 3]));
    assert_eq!(record.output_tokens, 2 + 1 + 50 + 3);
    // What is made while others are waited for is no token, and makes no gap.
    assert_eq!(record.token_gap.count(), record.output_tokens - record.served);
    assert_eq!([1, 3].map(|ticket| ends_at[&ticket].0), [ends_at[&2].0; 2]);

    // Each prompt takes two pages, and after 44 steps all twelve are used up: the newest of those that have tokens left
    // to make goes, and when it alone is left with one that has none, the batch is over.
    let (ends_at, record) = ends(4_096, 12, of(&[2, 60, 60, 5]));
    assert_eq!(
        (record.generation.expect("it generates").evictions, record.output_tokens),
        (1, 127)
    );
    assert_eq!(ends_at[&3].0, ends_at[&1].0);
    assert!(ends_at[&1].0 < ends_at[&2].0);
    let (ends_at, record) = ends(4_096, 8, of(&[2, 5, 60]));
    assert_eq!(
        (record.generation.expect("it generates").evictions, record.output_tokens),
        (1, 67)
    );
    assert!(ends_at[&1].0 < ends_at[&2].0);

    // Positions end, too: who has none left for what it would make does not wait.
    let most = system(generation()).pool.model.positions;
    let entries = vec![
        request(0, 0, 0, 20, 2),
        request(1, 1, 0, most - 10, 10),
        request(2, 1, 0, 20, 40),
    ];
    let (ends_at, _) = ends(4_096, 4 * most / 16, entries);
    assert_eq!((ends_at[&1].1, ends_at[&2].1), (10, 40));
    assert!(ends_at[&1].0 < ends_at[&2].0);
}

/// A queue for each tenant: one that always has somebody waiting keeps a card for those who came before its turn began,
/// and no longer.
#[test]
fn a_tenants_turn_ends() {
    let system = system(GenerationSpec {
        join: JoinSpec::QueuePerTenant,
        ..generation()
    });
    // Each takes a millisecond, and one comes each: somebody of tenant 0 is always there.
    let mut entries: Vec<Entry> = (0..100).map(|n| request(n, 200 * n, 0, 20, 12)).collect();
    entries.push(request(100, 5_000, 1, 20, 12));
    entries.sort_by_key(Entry::at);
    let (record, log) = simulate(&system, 1, 64, Jitter::None, entries, false);
    assert_eq!(record.counts.served, 101);
    let finish = |logged: &tenantry_core::log::LoggedCommand| match &logged.command {
        Command::Finish(finish) => Some(finish.ticket),
        _ => None,
    };
    let order: Vec<u64> = log.commands.iter().filter_map(finish).collect();
    let place = order.iter().position(|&ticket| ticket == 100).expect("it is served");
    assert!(place < 60, "{place} of tenant 0 were served before: {order:?}");
}

/// A real machine hears of a request after it came: it belongs to a turn that has begun meanwhile.
#[test]
fn who_is_heard_of_late_belongs_to_the_turn() {
    let system = system(GenerationSpec {
        join: JoinSpec::QueuePerTenant,
        ..generation()
    });
    let mut server = Server::new(&cluster(1, memory(&system, 200)), &system, TENANTS).unwrap();
    // Heard of at 10, 11 and 12 ms.
    for (ticket, came_us, tenant) in [(0, 10_000, 0), (1, 9_000, 1), (2, 9_500, 0)] {
        let Entry::Request(request) = request(ticket, came_us, tenant, 20, 12) else {
            unreachable!("it is a request")
        };
        let now = Time::ZERO + Duration::from_millis(10 + ticket);
        server.handle(now, &Event::Arrived(request), &mut Commands::default());
        assert_eq!(server.check_laws(now), Ok(()));
    }
}
