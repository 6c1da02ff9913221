//! Decoders whose memory is scarce: who leaves for want of pages, and what becomes of what it had cached.

use crate::common::decoders::{generation, request, simulate, system};
use tenantry_core::spec::{ConsolidateSpec, GenerationSpec, PlaceSpec};
use tenantry_sim::Jitter;
use tenantry_traces::{Action, Change, Duration, Entry, ManageRequest, Time};

/// Two requests fill their pages at the same step, with three left. Who comes then has room for its prompt, but for
/// theirs and its own there is none: it waits, whenever it comes, and is not taken in to be sent away.
#[test]
fn who_comes_leaves_the_others_their_next_step() {
    let system = system(GenerationSpec {
        lora: None,
        ..generation()
    });
    for at in (0..9_000).step_by(40) {
        // The prompt of the second is taken in a step later. In the end they have nine pages each, and the third has
        // two.
        let pair = |n| request(n, 0, 0, 32 + n as u32, 100);
        let entries = vec![pair(0), pair(1), request(2, at, 1, 32, 1)];
        let (record, _) = simulate(&system, 1, 19, Jitter::None, entries, false);
        assert_eq!(record.counts.served, 3);
        let evictions = record.generation.expect("it generates").evictions;
        assert_eq!(evictions, 0, "who comes at {at} µs");
    }
}

#[test]
fn who_runs_out_of_pages_is_computed_again() {
    let mut generation = generation();
    generation.lora = None;
    let system = system(generation);
    // Two requests of 30 tokens that grow to 90 each: 12 pages, and there are 9.
    let entries = vec![request(0, 0, 0, 30, 60), request(1, 10, 1, 30, 60)];
    let (record, _) = simulate(&system, 1, 9, Jitter::None, entries, false);
    let counts = record.generation.expect("it generates");
    assert_eq!((record.counts.served, record.output_tokens), (2, 120));
    assert_eq!(counts.evictions, 1);
    assert!(
        counts.recomputed_tokens > 30,
        "the prompt and what was generated: {counts:?}"
    );
}

#[test]
fn what_was_not_overwritten_is_not_computed_again() {
    let entries = || vec![request(0, 0, 0, 30, 60), request(1, 10, 1, 30, 60)];
    let recomputed = |prefix_caching| {
        let generation = GenerationSpec {
            lora: None,
            prefix_caching,
            ..generation()
        };
        let (record, _) = simulate(&system(generation), 1, 9, Jitter::None, entries(), false);
        assert_eq!((record.counts.served, record.output_tokens), (2, 120));
        record.generation.expect("it generates").recomputed_tokens
    };
    // The one that stays takes a page or two of those that the other left, the last first; the rest is there when it
    // returns.
    let (with, without) = (recomputed(true), recomputed(false));
    assert!(with > 0 && with < without, "{with} of {without}");
}

/// A tenant is updated while a request of it waits to go on: what it left was computed with parameters that are gone.
#[test]
fn what_parameters_computed_that_were_renewed_is_computed_again() {
    let recomputed = |prefix_caching, update_us: Option<u64>| {
        let generation = GenerationSpec {
            prefix_caching,
            ..generation()
        };
        let mut entries = vec![request(0, 0, 0, 30, 60), request(1, 10, 1, 30, 60)];
        entries.extend(update_us.map(|at_us| {
            Entry::Manage(ManageRequest {
                at: Time(at_us * 1_000),
                change: Change::tenant(1, Action::Update),
            })
        }));
        let (record, _) = simulate(&system(generation), 1, 9, Jitter::None, entries, false);
        assert_eq!((record.counts.served, record.output_tokens), (2, 120));
        record.generation.expect("it generates").recomputed_tokens
    };
    let (with, without) = (recomputed(true, None), recomputed(false, None));
    assert!(with > 0 && with < without, "{with} of {without}");
    // Some of these find it between its eviction and its return.
    let updated = (1..60).map(|n| recomputed(true, Some(n * 200))).max();
    assert_eq!(updated, Some(without));
}

#[test]
fn a_request_larger_than_the_cache_fails_alone() {
    let mut generation = generation();
    generation.lora = None;
    let system = system(generation);
    let entries = vec![
        request(0, 0, 0, 30, 600),
        request(1, 10, 1, 30, 6),
        request(2, 20, 2, 600, 6),
    ];
    let (record, _) = simulate(&system, 1, 9, Jitter::None, entries, false);
    assert_eq!(
        (record.counts.served, record.counts.failed, record.counts.rejected),
        (1, 1, 1)
    );
}

#[test]
fn a_prompt_of_the_whole_cache_is_served() {
    let system = system(GenerationSpec {
        lora: None,
        ..generation()
    });
    // Nine pages of 16: what is made last need not be cached.
    for (pages, fits, beyond) in [(9, 144, 145), (1, 16, 17)] {
        let entries = vec![request(0, 0, 0, fits, 1), request(1, 10, 1, beyond, 1)];
        let (record, _) = simulate(&system, 1, pages, Jitter::None, entries, false);
        assert_eq!((record.counts.served, record.counts.rejected), (1, 1), "{pages} pages");
    }
}

/// Four requests fill a card and four another; soon one of each is left, whose run is promised half of the pages and
/// uses few of them. Whoever is alone on a card goes to the other all the same.
#[test]
fn pages_that_are_promised_and_not_used_are_no_reason_to_stay() {
    let system = system(GenerationSpec {
        lora: None,
        consolidate: Some(ConsolidateSpec {
            every: Duration::from_millis(5),
            light: 2,
        }),
        ..generation()
    });
    let output = |n: u64| if n.is_multiple_of(4) { 300 } else { 5 };
    let entries = || (0..8).map(|n| request(n, n, n as u32 % 4, 20, output(n))).collect();
    for pages in [100, 1_000] {
        let (record, _) = simulate(&system, 2, pages, Jitter::None, entries(), false);
        let counts = record.generation.expect("it generates");
        assert_eq!((counts.migrations, counts.evictions), (1, 0), "{pages} pages");
    }
}

/// Host memory holds the adapters of enough tenants, but none is there yet: cards that want four at once have one disk,
/// whose reads take turns beside the copies.
#[test]
fn cards_share_one_disk() {
    let mut generation = generation();
    generation.lora.as_mut().expect("it has some").host_slots = Some(8);
    let mut system = system(generation);
    system.pool.place = PlaceSpec::LeastLoaded;
    let reads_us = |gpus| {
        let entries = (0..4).map(|n| request(n, 0, n as u32, 16, 2)).collect();
        let (record, _) = simulate(&system, gpus, 64, Jitter::None, entries, false);
        let busy = |name: &str| {
            let lanes = record.lanes.iter().filter(|lane| lane.name.ends_with(name));
            lanes.map(|lane| lane.busy.0 as f64 / 1e3).sum::<f64>()
        };
        (busy("host/disk"), busy("/copy"), record.end.0 as f64 / 1e3)
    };
    for gpus in [1, 4] {
        let (read, copied, end) = reads_us(gpus);
        assert!(read > copied && copied > 0.0, "{read} {copied}");
        assert!(end > read, "{end} µs, of which the disk reads for {read}");
    }
    let ((read, ..), (of_four, ..)) = (reads_us(1), reads_us(4));
    assert!((read - of_four).abs() < 0.01 * read, "{read} {of_four}");
}

/// A prompt of one page that comes first leaves its tenant's others no less to find.
#[test]
fn a_short_prompt_does_not_cut_what_others_have_in_common() {
    let system = system(GenerationSpec {
        lora: None,
        shared_prefix_tokens: 64,
        ..generation()
    });
    let found = |prompts: &[u32]| {
        let prompts = (0..).zip(prompts);
        let entries = prompts.map(|(n, &tokens)| request(n, 100_000 * n, 0, tokens, 2)).collect();
        let (record, _) = simulate(&system, 1, 64, Jitter::None, entries, false);
        record.generation.expect("it generates").shared_tokens
    };
    // The first of those that are long computes it.
    assert_eq!(found(&[20, 200, 200, 200]), 2 * 64);
    assert_eq!(found(&[200, 200, 200, 20]), 2 * 64);
    assert_eq!(found(&[20, 40, 200, 200]), 64);
}
