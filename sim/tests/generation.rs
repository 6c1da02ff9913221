//! Decoders on the virtual machine: known answers, the server's laws, and leaping against stepping.

mod common;

use std::collections::BTreeMap;

use common::cluster;
use common::decoders::{
    TENANTS, card_of_whole_steps, entries, generation, hierarchical, memory, request, simulate, simulate_on, system,
    systems,
};
use proptest::prelude::*;
use tenantry_core::log::replay;
use tenantry_core::op::OpKind;
use tenantry_core::spec::{
    ConsolidateSpec, GenerationSpec, JoinSpec, LoraSpec, PipelineSpec, PlaceSpec, PrefillSpec, QueueSpec, StopSpec,
    SystemSpec, TenantState, Weights,
};
use tenantry_core::{Command, Commands, Event, RunRecord, Server};
use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{AdapterImplementation, Card};
use tenantry_sim::Jitter;
use tenantry_traces::{Duration, Entry, Time};

#[test]
fn one_request_takes_what_its_steps_take() {
    let mut generation = generation();
    generation.lora = None;
    let system = system(generation);
    let (record, _) = simulate(&system, 1, 64, Jitter::None, vec![request(0, 0, 0, 256, 3)], false);
    // Two layers. The prompt's 256 tokens: dense 30 + 128, attention 2 + 0.001 × 256 × 256; then the ends of one sequence.
    let prompt_us = 2.0 * (158.0 + 2.0 + 65.536) + (10.0 + 1.0 + 2.56);
    // A new token: dense 30.5; attention of 257 and 258 tokens; ends.
    let token_us = |context: f64| 2.0 * (30.5 + 2.0 + 0.01 * context) + (10.0 + 1.0 + 0.01);
    let (wake_us, tell_us) = (5.0, 20.0);
    let first_us = wake_us + prompt_us;
    let all_us = first_us + token_us(257.0) + token_us(258.0) + tell_us;
    assert!(
        (record.first_token.mean_ns() / 1e3 - first_us).abs() < 0.1,
        "{first_us}"
    );
    assert!((record.latency.mean_ns() / 1e3 - all_us).abs() < 0.1, "{all_us}");
    assert_eq!((record.output_tokens, record.batches), (3, 3));
}

#[test]
fn gaps_between_tokens_are_what_lies_between_them() {
    let run = |prefill, entries| {
        let system = system(GenerationSpec {
            lora: None,
            prefill,
            ..generation()
        });
        let (record, _) = simulate(&system, 1, 200, Jitter::None, entries, false);
        assert_eq!(record.token_gap.count(), record.output_tokens - record.served);
        assert_eq!(record.token_gap.max_ns(), record.longest_gap.max_ns());
        record
    };
    let longest_us = |record: RunRecord| record.longest_gap.max_ns() as f64 / 1e3;
    // As in `one_request_takes_what_its_steps_take`: two tokens after the first, each counted as the mean of both.
    let token_us = |context: f64| 2.0 * (30.5 + 2.0 + 0.01 * context) + (10.0 + 1.0 + 0.01);
    let mean_us = (token_us(257.0) + token_us(258.0)) / 2.0;
    let record = run(PrefillSpec::OnePerStep, vec![request(0, 0, 0, 256, 3)]);
    let gap_us = record.token_gap.mean_ns() / 1e3;
    assert!((gap_us - mean_us).abs() < 0.1, "{gap_us} instead of {mean_us}");

    // While the first generates, another's prompt comes in: as a whole, or in pieces beside its tokens.
    let (first, prompt) = (request(0, 0, 0, 16, 60), request(1, 2_000, 1, 1_024, 2));
    let alone = run(PrefillSpec::OnePerStep, vec![prompt]);
    let prompt_us = alone.first_token.mean_ns() / 1e3;
    let whole_us = longest_us(run(PrefillSpec::OnePerStep, vec![first, prompt]));
    // What the first one's token takes beside it, and to hear of one run and begin the next, is little.
    assert!(
        (prompt_us..1.1 * prompt_us).contains(&whole_us),
        "{whole_us}, a prompt takes {prompt_us}"
    );
    let pieces_us = longest_us(run(PrefillSpec::Chunked { max_tokens: 65 }, vec![first, prompt]));
    assert!(pieces_us < whole_us / 3.0, "{pieces_us} of {whole_us}");
}

/// Steps take longer as contexts grow; of each thirty-two the mean is counted, however long nobody disturbs them.
#[test]
fn a_long_run_s_last_gaps_are_longer_than_its_first() {
    let system = system(GenerationSpec {
        lora: None,
        ..generation()
    });
    let (record, _) = simulate(&system, 1, 200, Jitter::None, vec![request(0, 0, 0, 256, 1_000)], false);
    let token_us = |context: f64| 2.0 * (30.5 + 2.0 + 0.01 * context) + (10.0 + 1.0 + 0.01);
    // The second token reads 257 tokens, and the thousandth 1,255; the first part has 31 steps, and the last the eight after the 992nd.
    let (least_us, most_us) = (token_us(257.0 + 15.0), token_us(1_255.0 - 3.5));
    let of = |ns: u64| ns as f64 / 1e3;
    let (first_us, last_us) = (of(record.token_gap.quantile_ns(0.001)), of(record.token_gap.max_ns()));
    assert!((first_us / least_us - 1.0).abs() < 0.01, "{first_us}, not {least_us}");
    assert!((last_us / most_us - 1.0).abs() < 0.001, "{last_us}, not {most_us}");
}

/// Who waits for others to end waits for no token.
#[test]
fn steps_after_a_request_s_last_are_no_gaps_of_its() {
    let system = system(GenerationSpec {
        lora: None,
        join: JoinSpec::HeadRunStatic,
        ..generation()
    });
    let longest = |others: u32| {
        let entries = vec![request(0, 0, 0, 16, 10), request(1, 0, 0, 16, others)];
        let (record, _) = simulate(&system, 1, 200, Jitter::None, entries, false);
        assert_eq!(record.token_gap.count(), record.output_tokens - record.served);
        [record.longest_gap.quantile_ns(0.0), record.longest_gap.max_ns()]
    };
    let (alike, beside) = (longest(10), longest(900));
    assert!(beside[1] as f64 > 1.1 * alike[1] as f64, "{beside:?} {alike:?}");
    // It makes its tokens in the first ten of thirty-two steps that are taken to be alike.
    assert!(
        (beside[0] as f64 / alike[0] as f64 - 1.0).abs() < 0.01,
        "{beside:?} {alike:?}"
    );
}

#[test]
fn the_time_away_from_a_card_is_a_gap() {
    let system = system(GenerationSpec {
        lora: None,
        ..generation()
    });
    // As in `who_runs_out_of_pages_is_computed_again`: the second leaves, and comes back when the first has ended.
    let entries = vec![request(0, 0, 0, 30, 60), request(1, 10, 1, 30, 60)];
    let (record, _) = simulate(&system, 1, 9, Jitter::None, entries, false);
    assert_eq!(record.generation.expect("it generates").evictions, 1);
    assert_eq!(record.token_gap.count(), 2 * 59);
    let (longest, others) = (record.longest_gap.max_ns(), record.token_gap.quantile_ns(0.98));
    assert!(longest > 5 * others, "{longest} ns away, {others} ns between others");
}

/// What the synthetic card says of looking so many tokens of 512 bytes up, and of bringing what was found to the card.
fn retrieval_us(tokens: f64) -> f64 {
    (2.0 + 0.5 * tokens) + (20.0 + tokens * 512.0 / 10e3)
}

#[test]
fn above_a_table_a_step_looks_up_what_it_computes() {
    let mut system = hierarchical(generation(), PipelineSpec::SYNCHRONOUS);
    system.pool.tenant_state = TenantState::Head;
    let (record, _) = simulate(&system, 1, 64, Jitter::None, vec![request(0, 0, 0, 256, 3)], false);
    // One layer where `one_request_takes_what_its_steps_take` has two; and before it the look-up and the copy of the tokens that a step has.
    let prompt_us = retrieval_us(256.0) + (158.0 + 2.0 + 65.536) + (10.0 + 1.0 + 2.56);
    let token_us = |context: f64| retrieval_us(1.0) + (30.5 + 2.0 + 0.01 * context) + (10.0 + 1.0 + 0.01);
    let (wake_us, tell_us) = (5.0, 20.0);
    let all_us = wake_us + prompt_us + token_us(257.0) + token_us(258.0) + tell_us;
    let measured_us = record.latency.mean_ns() / 1e3;
    assert!((measured_us - all_us).abs() < 1.0, "{measured_us}, not {all_us}");
    // Each token of the prompt, and the two that were made before the last.
    let lookups = record.lookups.expect("it looks up");
    assert_eq!((lookups.tokens, lookups.domain_hits, lookups.fallbacks), (258, 129, 25));
}

#[test]
fn prompts_are_looked_up_beside_what_runs() {
    // The second comes while the first generates, and has a long prompt.
    let entries = || vec![request(0, 0, 0, 16, 400), request(1, 2_000, 1, 1_024, 2)];
    let busy_us = |pipeline| {
        let system = hierarchical(generation(), pipeline);
        let (record, _) = simulate(&system, 1, 200, Jitter::None, entries(), false);
        let lookups = record.lookups.expect("it looks up");
        assert_eq!((record.counts.served, lookups.tokens), (2, 16 + 399 + 1_024 + 1));
        ["lookup", "compute"].map(|kind| {
            let mut lanes = record.lanes.iter();
            lanes.find(|lane| lane.name.contains(kind)).expect("it is there").busy.0 as f64 / 1e3
        })
    };
    let ([none, all], [hidden, left]) = (
        busy_us(PipelineSpec::SYNCHRONOUS),
        busy_us(PipelineSpec::PREFETCH_RETRIEVAL),
    );
    let looked_up_us = 2.0 * 2.0 + 0.5 * f64::from(16 + 1_024);
    assert_eq!(none, 0.0, "the compute lane looks up itself");
    assert!(
        (hidden - looked_up_us).abs() < 0.05 * looked_up_us,
        "{hidden}, not {looked_up_us}"
    );
    assert!(
        all - left > 0.5 * hidden,
        "the compute lane is spared them: {all} less {left}"
    );
}

/// A slot is given to another tenant while the copy that was begun for the one before is under way: that copy's end is not its own's.
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

#[test]
fn dedicated_decoders_are_swapped() {
    // Three tenants in turns, and room for all or for two.
    let entries: Vec<Entry> = (0..9)
        .map(|n| request(n, n * 100_000, (n % 3) as u32, 20, 10))
        .collect();
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
fn a_measured_step_costs_what_was_measured() {
    let generation = GenerationSpec {
        lora: None,
        ..generation()
    };
    let system = system(generation);
    let latency_us = |entries: Vec<Entry>, gpus| {
        let (record, _) = simulate_on(&card_of_whole_steps(), &system, gpus, 64, Jitter::None, entries, false);
        record.latency.mean_ns() / 1e3
    };
    // A prompt of 128 tokens alone, and then new tokens at contexts of 129 to 131: chunk and context are measured, one sequence is.
    let prompt_us = 100.0 + 0.8 * 128.0 + (9.0 + 0.05 * 128.0);
    let token_us = |context: f64| 100.0 + 0.8 + (9.0 + 0.05 * context);
    let alone_us = 25.0 + prompt_us + token_us(129.0) + token_us(130.0) + token_us(131.0);
    let alone = latency_us(vec![request(0, 0, 0, 128, 4)], 1);
    // The scale is kept in millionths.
    assert!((alone - alone_us).abs() < 0.2, "{alone} instead of {alone_us}");

    // Two instances on one processor slow each other by half, but for the hand-overs.
    let mut spread = system.clone();
    spread.pool.place = PlaceSpec::LeastLoaded;
    let both = vec![request(0, 0, 0, 128, 400), request(1, 0, 1, 128, 400)];
    let latency_us = |system: &SystemSpec, card: &Card| {
        let (record, _) = simulate_on(card, system, 2, 64, Jitter::None, both.clone(), false);
        record.latency.mean_ns() / 1e3
    };
    let beside = latency_us(&spread, &card_of_whole_steps());
    let mut apart = card_of_whole_steps();
    apart.tables.concurrent_step.clear();
    let ratio = beside / latency_us(&spread, &apart);
    assert!((1.49..1.501).contains(&ratio), "{ratio}");
    // With a single core they take turns on top.
    let mut one_core = card_of_whole_steps();
    one_core.device.host.cores = 1;
    let ratio = latency_us(&spread, &one_core) / beside;
    assert!((1.98..2.001).contains(&ratio), "{ratio}");
}

#[test]
fn tenants_cache_the_beginning_of_their_prompts_once() {
    // Four tenants; of their prompts of 100 tokens, 64 are the same. One card has room for six prompts of 100 and their answers.
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

/// One runs at a time, and there are pages for no more: the other comes in as soon as the first has given up, and not when it would have
/// ended.
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
    // The first gives up while its tenant's adapters are on their way; the second's come behind them, into the same slot.
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
fn adapters_that_host_memory_does_not_hold_are_read_from_the_disk() {
    // Twelve tenants in turn, room for four on the card.
    let entries: Vec<Entry> = (0..60)
        .map(|n| request(n, 3_000 * n, n as u32 % TENANTS, 20, 5))
        .collect();
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

#[test]
fn sequences_end_at_their_token_or_at_their_length() {
    let entries = || {
        (0..300)
            .map(|n| request(n, 10 * n, n as u32 % TENANTS, 20, 40))
            .collect::<Vec<_>>()
    };
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

/// Tenants have turns.
const FAIR: QueueSpec = QueueSpec::VirtualTokenCounter(Weights { input: 1, output: 2 });

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

#[test]
fn baselines_run_one_tenant_at_a_time() {
    // Tenants alternate in the queue: a run of the same one is never longer than one request.
    let entries: Vec<Entry> = (0..16).map(|n| request(n, n, (n % 2) as u32, 20, 40)).collect();
    let batch = |join: JoinSpec| {
        let generation = GenerationSpec { join, ..generation() };
        let (record, _) = simulate(&system(generation), 1, 200, Jitter::None, entries.clone(), false);
        assert_eq!(record.counts.served, 16);
        record.batch_requests as f64 / record.batches as f64
    };
    assert_eq!(batch(JoinSpec::HeadRun), 1.0);
    assert_eq!(batch(JoinSpec::HeadRunStatic), 1.0);
    assert!(batch(JoinSpec::QueuePerTenant) > 2.5);
    assert!(batch(JoinSpec::AnyTenant) > 2.5);
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

/// However its steps fall into runs: a run ends when the pages are used up, when a client gives up, and with each piece of a prompt.
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

    // Each prompt takes two pages, and after 44 steps all twelve are used up: the newest of those that have tokens left to make goes, and when
    // it alone is left with one that has none, the batch is over.
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

/// Each run is promised all pages, so that a card that is busy says at its next step whether it has room. Others are placed meanwhile: on many cards
/// nobody waits longer than on two, nor where tenants have turns.
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

fn jitters() -> impl Strategy<Value = Jitter> {
    prop_oneof![
        Just(Jitter::None),
        any::<u64>().prop_map(|seed| Jitter::Measured { seed })
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Leaping over steps and visiting each give the same events at the same instants, and so the same of everything.
    #[test]
    fn leaping_is_stepping(
        (system, gpus, pages) in systems(),
        entries in entries(40),
        jitter in jitters(),
        whole_steps: bool,
    ) {
        let card = if whole_steps { card_of_whole_steps() } else { synthetic_card() };
        let (leapt, leaps) = simulate_on(&card, &system, gpus, pages, jitter, entries.clone(), false);
        let (stepped, steps) = simulate_on(&card, &system, gpus, pages, jitter, entries, true);
        prop_assert_eq!(leaps, steps);
        prop_assert_eq!(format!("{leapt:?}"), format!("{stepped:?}"));
        // Every token but a request's first comes after a gap, and the longest is somebody's.
        if leapt.counts.cancelled + leapt.counts.failed == 0 {
            prop_assert_eq!(leapt.token_gap.count(), leapt.output_tokens - leapt.served);
            prop_assert_eq!(leapt.token_gap.max_ns(), leapt.longest_gap.max_ns());
        }
    }

    /// A server told the same events gives the same commands.
    #[test]
    fn runs_replay((system, gpus, pages) in systems(), entries in entries(40)) {
        let (_, log) = simulate(&system, gpus, pages, Jitter::None, entries, false);
        let mut fresh = Server::new(&cluster(gpus, memory(&system, pages)), &system, TENANTS).unwrap();
        prop_assert_eq!(replay(&mut fresh, &log.events), log.commands);
    }
}

/// A queue for each tenant: one that always has somebody waiting keeps a card for those who came before its turn began, and no longer.
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
