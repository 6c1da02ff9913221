//! Lower layers looked up in tables.

use super::*;

/// Adapters in the upper layers, every pipeline: the answers are those of the parts put together by hand, and every
/// fragment is accounted for.
#[test]
fn looked_up_representations_lead_to_the_same_answers_in_every_pipeline() {
    let tables = tables(&TABLES, &PLOT);
    // The whole model, of which a pool has the upper layers only.
    let encoder = Encoder::random(&looked_up(), SEED, DType::F32, Device::Cpu).unwrap();
    let shape = AdapterShape::upper(&looked_up(), 1, 16).unwrap();
    let store = AdapterStore::random(shape, TENANTS, SEED, DType::F32, Device::Cpu, 1 << 30).unwrap();
    let cache = AdapterCache::new(shape, TENANTS, DType::F32, Device::Cpu).unwrap();
    for tenant in 0..TENANTS {
        cache.load(&store, tenant, tenant, 1..3).unwrap();
    }
    let expected: Vec<Answer> = (0..REQUESTS)
        .map(|ticket| Answer {
            ticket,
            stage: 0,
            class: expected_class(&tables, &encoder, Some((&cache, tenant_of(ticket))), ticket),
        })
        .collect();
    let classes: BTreeSet<u32> = expected.iter().map(|answer| answer.class).collect();
    assert!(classes.len() > 1, "the heads tell inputs apart");
    let mut counted = BTreeSet::new();
    for pipeline in PIPELINES {
        for threads in [1, 2] {
            let plot = PlotSpec { threads, ..PLOT };
            let system = with_plot(
                system(adapters(AdapterImplementation::GatherBmm), BATCHED, pipeline),
                plot,
            );
            let (record, answers) = serve(&system, 9, |_| {});
            assert_eq!(record.counts.served, REQUESTS, "{pipeline:?}");
            assert!(record.batches < REQUESTS, "requests are batched");
            assert_eq!(answers, expected, "{pipeline:?}");
            let lookups = record.lookups.unwrap();
            assert!(
                lookups.domain_hits > 0 && lookups.root_hits > 0 && lookups.fallbacks > 0,
                "{lookups:?}"
            );
            counted.insert(format!("{lookups:?}"));
        }
    }
    assert_eq!(
        counted.len(),
        1,
        "what is found depends on the texts alone: {counted:?}"
    );
}

/// Eq. 3 matters: where a domain's version of the lower layers has learnt something else than the generic one, tenants
/// of the domain get answers that the root alone would not give, and exactly those that the domain's rows lead to.
#[test]
fn a_domains_own_representations_lead_to_answers_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let model = looked_up();
    let layers = |seed| LowerLayers::Encoder(Encoder::random(&model, seed, DType::F32, Device::Cpu).unwrap());
    let further = |domain, _| layers(100 + u64::from(domain));
    let tables = tables_of(&folder, "apart", &PLOT, &layers(SEED), &further, false);
    let system = with_plot(system(TenantState::Head, BATCHED, PipelineSpec::PREFETCH), PLOT);
    let encoder = Encoder::random(&model, SEED, DType::F32, Device::Cpu).unwrap();
    let expected = || -> Vec<Answer> {
        (0..REQUESTS)
            .map(|ticket| Answer {
                ticket,
                stage: 0,
                class: expected_class(&tables, &encoder, None, ticket),
            })
            .collect()
    };
    let by_domain = expected();
    let (record, answers) = serve_with(&system, 0, Some(tables.clone()), |_| {});
    assert!(record.lookups.unwrap().domain_hits > 0);
    assert_eq!(answers, by_domain);
    (0..PLOT.domains).for_each(|domain| tables.withdraw(domain));
    let by_root = expected();
    let (record, answers) = serve_with(&system, 0, Some(tables), |_| {});
    assert_eq!(record.lookups.unwrap().domain_hits, 0);
    assert_eq!(answers, by_root);
    let changed = by_domain.iter().zip(&by_root).filter(|(domain, root)| domain != root).count();
    assert!(changed > 0, "of {REQUESTS}");
}

/// hBERT-PLOT: each tenant has upper layers of its own.
#[test]
fn tenants_own_upper_layers_are_swapped_under_a_table() {
    let tables = tables(&TABLES, &PLOT);
    let store =
        ModelStore::random::<Encoder>(&looked_up(), 1, TENANTS, SEED, DType::F32, Device::Cpu, 1 << 30).unwrap();
    let expected: Vec<Answer> = (0..REQUESTS)
        .map(|ticket| {
            let upper = store.sets.of(tenant_of(ticket));
            let encoder = Encoder::from_upper_parameters(&looked_up(), 1, upper).unwrap();
            Answer {
                ticket,
                stage: 0,
                class: expected_class(&tables, &encoder, None, ticket),
            }
        })
        .collect();
    for pipeline in [PipelineSpec::SYNCHRONOUS, PipelineSpec::PREFETCH] {
        let own = system(TenantState::Model, BatchSpec::PerTenant { max_size: 4 }, pipeline);
        let (record, answers) = serve(&with_plot(own, PLOT), 3, |_| {});
        assert!(record.swaps.unwrap().evictions > 0);
        assert_eq!(answers, expected, "{pipeline:?}");
    }
}

/// The root table is cut under its reader: whose rows are gone fails with the reason, the others are served, and
/// nothing else stops.
#[test]
fn a_table_cut_under_its_reader_fails_the_batches_that_need_what_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let plot = PlotSpec {
        tier: Tier::Disk,
        ..PLOT
    };
    for pipeline in PIPELINES {
        let tables = tables(&folder, &plot);
        let path = tables.snapshot().root().tables()[0].path().to_path_buf();
        let whole = std::fs::read(&path).unwrap();
        let system = with_plot(
            system(adapters(AdapterImplementation::Loop), ONE_BY_ONE, pipeline),
            plot,
        );
        let (record, answers) = serve_with(&system, 9, Some(tables), |_| {
            // The most frequent fragments' rows lie at the beginning.
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(whole.len() as u64 / 3).unwrap();
        });
        std::fs::write(&path, &whole).unwrap();
        let failed = record.failed.get(&FailureReason::LookupFailed).copied();
        assert_eq!(failed, Some(record.counts.failed), "{:?}", record.failed);
        assert_eq!(record.counts.failed + record.counts.served, REQUESTS);
        assert!(
            record.counts.served > 0,
            "short texts and those of frequent fragments are still found"
        );
        assert_eq!(answers.len() as u64, record.counts.served);
    }
}
