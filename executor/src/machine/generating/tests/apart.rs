//! Workers that only take prompts in, and workers that go on from there: keys and values are copied for real, and the
//! tokens are those of each request alone.

use tenantry_core::spec::DisaggregatedSpec;

use super::*;

fn apart(prefill_gpus: u32) -> GenerationSpec {
    GenerationSpec {
        disaggregated: Some(DisaggregatedSpec {
            prefill_gpus,
            link: None,
        }),
        ..generation()
    }
}

/// Requests that make more than one token.
fn copied() -> u64 {
    (0..REQUESTS).filter(|&ticket| request(ticket).output_tokens > 1).count() as u64
}

#[test]
fn tokens_are_the_same_where_prompts_are_taken_in_apart() {
    let one = serve(generation(), 1, 100, requests(), |serving| serving);
    for (gpus, prefill_gpus) in [(2, 1), (3, 1), (3, 2)] {
        let what = format!("{prefill_gpus} of {gpus} workers for prompts");
        let served = serve(apart(prefill_gpus), gpus, 100, requests(), |serving| serving);
        served.assert_greedy(&what);
        assert_eq!(served.generated, one.generated, "{what}");
        let counts = served.record.generation.expect("it generates");
        assert_eq!(counts.transfers, copied(), "{what}");
        let links = served.record.lanes.iter().filter(|lane| lane.name.ends_with("/link"));
        let busy: u64 = links.map(|lane| lane.busy.0).sum();
        assert!(busy > 0, "{what}");
    }
    let chunked = GenerationSpec {
        prefill: PrefillSpec::Chunked { max_tokens: 8 },
        ..apart(1)
    };
    serve(chunked, 2, 100, requests(), |serving| serving).assert_greedy("pieces");
    let backbone = GenerationSpec { lora: None, ..apart(1) };
    serve(backbone, 2, 100, requests(), |serving| serving).assert_greedy("the backbone alone");
}

#[test]
fn who_is_evicted_is_taken_in_anew_elsewhere() {
    let served = serve(apart(1), 2, 11, requests(), |serving| serving);
    let counts = served.record.generation.expect("it generates");
    assert!(counts.evictions > 0 && counts.transfers > copied(), "{counts:?}");
    served.assert_greedy("evictions");
}

#[test]
fn prefixes_are_shared_on_both_sides() {
    let all = serve(apart(1), 2, 60, requests(), |serving| serving);
    let sizes = |served: &Served| served.record.generation.expect("it generates").transferred_bytes;
    // Which of a tenant's requests meet is a matter of real time.
    let mut fewer = false;
    for pages in [60, 24] {
        let shared = GenerationSpec {
            shared_prefix_tokens: 19,
            ..apart(1)
        };
        let served = serve(shared, 2, pages, requests(), |serving| serving);
        served.assert_greedy("shared prefixes");
        fewer |= sizes(&served) < sizes(&all);
    }
    assert!(fewer);
}

#[test]
fn who_gives_up_at_any_time_leaves_the_others_alone() {
    // One after the other gives up, from the first prompt on: in the queue, while prompts run, are copied, or tokens
    // are made.
    let mut entries = requests();
    let cancelled = |ticket: u64| ticket.is_multiple_of(3);
    let cancels = (0..REQUESTS).filter(|&ticket| cancelled(ticket)).map(|ticket| Entry::Cancel {
        at: request(ticket).arrival + Duration(ticket * 40_000),
        ticket,
    });
    entries.extend(cancels);
    entries.sort_by_key(Entry::at);
    let served = serve(apart(1), 2, 14, entries, |serving| serving);
    assert_eq!(served.finished.len() as u64, REQUESTS);
    for (&ticket, finish) in &served.finished {
        assert!(cancelled(ticket) || finish.verdict == Verdict::Served, "{finish:?}");
        if served.generated.contains_key(&ticket) {
            let regret = served.regret(ticket, finish.tenant);
            assert!(regret < 1e-3, "ticket {ticket} is off by {regret}");
        }
    }
}

/// What is computed with one version of a tenant's adapters is never gone on from with another.
#[test]
fn tenants_change_and_go_between_prompts_and_tokens() {
    let manage = |ms, tenant, action| {
        Entry::Manage(ManageRequest {
            at: Time::ZERO + Duration::from_millis(ms),
            change: Change::tenant(tenant, action),
        })
    };
    let mut entries = vec![manage(1, 4, Action::Update), manage(2, 2, Action::Delete)];
    entries.extend(requests());
    entries.sort_by_key(Entry::at);
    let served = serve(apart(1), 2, 20, entries, |mut serving| {
        serving.make_versions(&AtomicBool::default()).unwrap();
        serving
    });
    for (&ticket, finish) in &served.finished {
        assert!(finish.verdict == Verdict::Served || finish.tenant == 2, "{finish:?}");
        if ![2, 4].contains(&finish.tenant) {
            let regret = served.regret(ticket, finish.tenant);
            assert!(regret < 1e-3, "ticket {ticket} is off by {regret}");
        }
    }
}

#[test]
fn who_cannot_be_loaded_where_it_goes_on_fails_alone() {
    let served = serve(apart(1), 2, 60, requests(), |mut serving| {
        // The second worker's slots are of adapters that are smaller.
        let shape = crate::LoraShape::new(&model(), 2).unwrap();
        let cache = LoraCache::new(shape, 4, DType::F32, Device::Cpu).unwrap();
        let Slots::Loras(_, implementation) = &serving.slots[1] else {
            unreachable!()
        };
        serving.slots[1] = Slots::Loras(cache, *implementation);
        serving
    });
    for finish in served.finished.values() {
        let ends_at_once = request(finish.ticket).output_tokens == 1;
        let failed = Verdict::Failed(FailureReason::LoadFailed);
        assert_eq!(
            finish.verdict,
            if ends_at_once { Verdict::Served } else { failed },
            "{finish:?}"
        );
    }
}
