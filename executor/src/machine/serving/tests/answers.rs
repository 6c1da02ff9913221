//! What comes of a run does not depend on how it was served.

use super::*;

/// The answer depends on the tenant and the input, never on the batch, the pipeline, the swapping or the
/// implementation.
#[test]
fn batching_and_swapping_do_not_change_an_answer() {
    let alone = system(
        adapters(AdapterImplementation::Loop),
        ONE_BY_ONE,
        PipelineSpec::SYNCHRONOUS,
    );
    let (record, expected) = serve(&alone, u64::from(TENANTS), |_| {});
    assert_eq!((record.counts.served, expected.len() as u64), (REQUESTS, REQUESTS));
    let classes: BTreeSet<u32> = expected.iter().map(|answer| answer.class).collect();
    assert!(classes.len() > 1, "the heads tell inputs apart");
    for implementation in [AdapterImplementation::Loop, AdapterImplementation::GatherBmm] {
        for pipeline in [
            PipelineSpec::SYNCHRONOUS,
            PipelineSpec::PREFETCH,
            PipelineSpec::LAYERWISE,
        ] {
            let batched = system(adapters(implementation), BATCHED, pipeline);
            let (record, answers) = serve(&batched, 9, |_| {});
            assert_eq!(record.counts.served, REQUESTS);
            assert!(record.batches < REQUESTS, "requests are batched");
            assert!(
                record.swaps.unwrap().evictions > 0,
                "9 slots are too few for 12 tenants"
            );
            assert_eq!(answers, expected, "{implementation} {pipeline:?}");
        }
    }
}

/// Tagging heads: each token of each request gets the label that its tenant's head gives it, whatever the batch and its
/// padding.
#[test]
fn heads_label_every_token() {
    let mut alone = system(TenantState::Head, ONE_BY_ONE, PipelineSpec::SYNCHRONOUS);
    alone.pool.heads = HeadTask::Tagging;
    let model = &alone.pool.model;
    let encoder = Encoder::random(model, SEED, DType::F32, Device::Cpu).unwrap();
    let heads = Heads::random(model, TENANTS, 5, SEED, DType::F32, Device::Cpu).unwrap();
    let draws = tenantry_traces::draw::Draws::new(SEED, tenantry_traces::draw::Purpose::Tokens);
    let expected: Vec<Tagged> = (0..REQUESTS)
        .map(|ticket| {
            let tokens = tokens_of(ticket) as usize;
            let mut stream = draws.about(ticket);
            let ids: Vec<i64> = (0..tokens).map(|_| stream.below(model.vocabulary.into()) as i64).collect();
            let input = encoder.input(&[ids], tokens).unwrap();
            let hidden = encoder.embed(&input).unwrap();
            let hidden = encoder.layers(hidden, 0..model.layers as usize, &input, None).unwrap();
            let labels = heads.tag(&hidden, &[tenant_of(ticket)]).unwrap().argmax(2, false).get(0);
            Tagged {
                ticket,
                labels: (0..tokens as i64).map(|token| labels.int64_value(&[token]) as u32).collect(),
            }
        })
        .collect();
    let labels: BTreeSet<u32> = expected.iter().flat_map(|tagged| tagged.labels.clone()).collect();
    assert!(labels.len() > 1, "the heads tell tokens apart");
    let batched = {
        let mut batched = system(TenantState::Head, BATCHED, PipelineSpec::SYNCHRONOUS);
        batched.pool.heads = HeadTask::Tagging;
        batched
    };
    for system in [alone.clone(), batched] {
        let mut tagged = None;
        let (record, answers) = serve(&system, 0, |serving| tagged = Some(Arc::clone(&serving.tagged)));
        assert_eq!((record.counts.served, answers.len()), (REQUESTS, 0));
        let mut tagged = std::mem::take(&mut *tagged.unwrap().lock().unwrap());
        tagged.sort_unstable();
        assert_eq!(tagged, expected);
    }
}

#[test]
fn whole_models_are_swapped_and_answer_for_their_own_tenant() {
    let synchronous = system(
        TenantState::Model,
        BatchSpec::PerTenant { max_size: 4 },
        PipelineSpec::SYNCHRONOUS,
    );
    let (record, expected) = serve(&synchronous, u64::from(TENANTS), |_| {});
    assert_eq!(record.counts.served, REQUESTS);
    let prefetch = system(
        TenantState::Model,
        BatchSpec::PerTenant { max_size: 2 },
        PipelineSpec::PREFETCH,
    );
    let (record, answers) = serve(&prefetch, 3, |_| {});
    assert!(record.swaps.unwrap().evictions > 0);
    assert_eq!(answers, expected);
}

/// One tenant's parameters are missing: its requests fail with the reason, in every batch, and all others are served.
#[test]
fn only_the_requests_of_a_tenant_that_cannot_be_loaded_fail() {
    for pipeline in PIPELINES {
        let whole = system(adapters(AdapterImplementation::GatherBmm), BATCHED, pipeline);
        for system in [whole.clone(), with_plot(whole, PLOT)] {
            let (record, _) = serve(&system, 9, |serving| {
                let shape = AdapterShape::upper(&system.pool.model, system.pool.first_layer(), 16).unwrap();
                let store = AdapterStore::random(shape, TENANTS - 1, SEED, DType::F32, Device::Cpu, 1 << 30);
                serving.store = Store::Adapters(store.unwrap());
            });
            let of_last = (0..REQUESTS).filter(|&ticket| tenant_of(ticket) == TENANTS - 1).count() as u64;
            assert_eq!(record.counts.failed, of_last, "{pipeline:?}");
            assert_eq!(record.failed.get(&FailureReason::LoadFailed), Some(&of_last));
            assert_eq!(record.counts.served, REQUESTS - of_last);
        }
    }
}

/// A tenant's adapters make logits that are no numbers: its requests fail, and who shares batches with them is answered
/// as without.
#[test]
fn only_who_has_no_finite_logits_fails() {
    for heads in [HeadTask::Classification, HeadTask::Tagging] {
        let mut system = system(
            adapters(AdapterImplementation::GatherBmm),
            BATCHED,
            PipelineSpec::SYNCHRONOUS,
        );
        system.pool.heads = heads;
        let answered = |break_one: bool| {
            let mut tagged = None;
            let (record, answers) = serve(&system, 9, |serving| {
                tagged = Some(Arc::clone(&serving.tagged));
                let sets = serving.store.sets().unwrap();
                let broken = Tensor::full([sets.length() as i64], f64::NAN, (Kind::Float, Device::Cpu));
                if break_one {
                    sets.replace(TENANTS - 1, broken).unwrap();
                }
            });
            let mut tagged = std::mem::take(&mut *tagged.unwrap().lock().unwrap());
            tagged.sort_unstable();
            (record, answers, tagged)
        };
        let ((_, mut answers, mut tagged), (record, some, some_tagged)) = (answered(false), answered(true));
        let of_last = (0..REQUESTS).filter(|&ticket| tenant_of(ticket) == TENANTS - 1).count() as u64;
        assert_eq!(
            (record.counts.failed, record.counts.served),
            (of_last, REQUESTS - of_last)
        );
        assert_eq!(record.failed.get(&FailureReason::ComputeFailed), Some(&of_last));
        answers.retain(|answer| tenant_of(answer.ticket) < TENANTS - 1);
        tagged.retain(|tagged| tenant_of(tagged.ticket) < TENANTS - 1);
        assert_eq!((some, some_tagged), (answers, tagged));
    }
}
