//! HMI's pipelines: what copies and look-ups hide behind what is computed.

use super::*;

#[test]
fn prefetching_hides_the_copy_of_the_next_batch() {
    let mut card = synthetic_card();
    card.contention.compute_beside_copy = 1.0;
    card.contention.copy_beside_compute = 1.0;
    let throughput = |pipeline| {
        let mut system = system();
        system.pool.pipeline = pipeline;
        system.pool.batch = BatchSpec::FixedSize { size: 4 };
        // Every request is of another tenant, and few fit: all must be copied in.
        let memory = memory_for(&system, 400, 12);
        let entries = (0..400).map(|i| request(i, 0, i as u32, 128)).collect();
        let record = run_listed(&card, cluster(1, memory), &system, 400, Jitter::None, entries).record;
        assert_eq!(record.counts.served, 400);
        assert_eq!(record.swaps.unwrap().misses, 400);
        record.duration.0
    };
    let (encode, copy) = encode_and_copy_ns(&card, 4, 128, 4);
    let hand_over = median_ns(&card, DispatchOperation::Wake) + median_ns(&card, DispatchOperation::Tell);
    let synchronous = throughput(PipelineSpec::SYNCHRONOUS);
    // All requests are there at time 0, when the loop is awake.
    assert_eq!(synchronous, 100 * (4 * copy + encode + 2 * hand_over));
    let prefetch = throughput(PipelineSpec::PREFETCH);
    // What is not hidden is at most the hand-over, since a batch's copies (4 × 2 × 22 µs) take less than its compute.
    assert!(
        4 * copy + hand_over < encode + hand_over,
        "the card makes copies shorter than compute"
    );
    assert!(prefetch < 100 * (encode + 2 * hand_over) + 4 * copy, "{prefetch} ns");
    assert!(throughput(PipelineSpec::LAYERWISE) < synchronous);
}

/// A card that was measured without the idleness of look-ups has that of copies, which is for look-ups on their lane
/// alone.
#[test]
fn a_look_up_on_a_lane_of_copies_that_was_idle_takes_longer() {
    let duration_ns = |lookup_lanes, copy_resume_us: Option<f64>, lookup_resume_us: Option<f64>| {
        let mut card = synthetic_card();
        card.tables.copy_resume = copy_resume_us
            .iter()
            .map(|&us| CopyResumeRow {
                idle_us: 1_000,
                work_us: 1,
                stats: Stats::exact(us),
            })
            .collect();
        card.tables.lookup_resume = lookup_resume_us
            .iter()
            .map(|&us| LookupResumeRow {
                threads: testing::PLOT.threads,
                idle_us: 1_000,
                work_us: 1,
                stats: Stats::exact(us),
            })
            .collect();
        let mut system = system();
        let pool = &mut system.pool;
        pool.pipeline = PipelineSpec::PREFETCH_RETRIEVAL;
        // So nothing is copied.
        pool.tenant_state = TenantState::Head;
        pool.plot = Some(PlotSpec {
            lower_layers: 1,
            ..testing::PLOT
        });
        let cluster = ClusterSpec {
            lookup_lanes,
            ..cluster(1, memory_for(&system, 1, 0))
        };
        let entries = vec![request(0, 1_000_000, 0, 128)];
        let record = run_listed(&card, cluster, &system, 1, Jitter::None, entries).record;
        assert_eq!(record.counts.served, 1);
        record.latency.mean_ns()
    };
    let longer_us = |lookup_lanes, copies, lookups| {
        (duration_ns(lookup_lanes, copies, lookups) - duration_ns(lookup_lanes, None, None)) / 1e3
    };
    // The look-up and, where its states are staged by the same lane right after it, not that once more.
    assert!((longer_us(0, Some(40.0), None) - 40.0).abs() < 0.01);
    assert!((longer_us(0, Some(40.0), Some(7.0)) - 7.0).abs() < 0.01);
    assert!((longer_us(1, None, Some(7.0)) - 7.0).abs() < 0.01);
}

/// A card without lanes for look-ups makes them on the lane of copies, as look-ups.
#[test]
fn on_a_lane_of_copies_a_look_up_is_slowed_and_slows_as_a_look_up() {
    let duration_ns = |lookup_lanes, contention: &Contention| {
        let mut card = synthetic_card();
        card.contention = contention.clone();
        let mut system = system();
        let pool = &mut system.pool;
        pool.pipeline = PipelineSpec::PREFETCH_RETRIEVAL;
        // So nothing is copied.
        pool.tenant_state = TenantState::Head;
        pool.batch = BatchSpec::FixedSize { size: 4 };
        pool.plot = Some(PlotSpec {
            lower_layers: 1,
            tier: Tier::Disk,
            ..testing::PLOT
        });
        let memory = memory_for(&system, 1, 0);
        let cluster = ClusterSpec {
            lookup_lanes,
            ..cluster(1, memory)
        };
        let entries = (0..40).map(|i| request(i, 0, 0, 128)).collect();
        let record = run_listed(&card, cluster, &system, 1, Jitter::None, entries).record;
        assert_eq!(record.counts.served, 40);
        record.duration.0
    };
    let of_lookups = Contention {
        compute_beside_lookup: 1.5,
        lookup_beside_compute: 2.0,
        ..Contention::NONE
    };
    let of_copies = Contention {
        compute_beside_copy: 3.0,
        copy_beside_compute: 3.0,
        ..Contention::NONE
    };
    let slower_ns = [0, 1].map(|lookup_lanes| {
        let [undisturbed, copying, looking_up] =
            [&Contention::NONE, &of_copies, &of_lookups].map(|contention| duration_ns(lookup_lanes, contention));
        assert_eq!(copying, undisturbed);
        looking_up - undisturbed
    });
    assert!(slower_ns[0] > 0);
    assert_eq!(slower_ns[0], slower_ns[1]);
}

/// What the parts of a batch take on a card on which lanes neither slow each other down nor take time to be handed over
/// to.
#[derive(Clone, Copy, Debug)]
struct Parts {
    lookup: u64,
    /// One a tenant.
    copies: u64,
    /// One a tenant and layer.
    copies_by_layer: u64,
    stage: u64,
    encode: u64,
    /// Of those, one layer's.
    layer_copies: u64,
    /// What of the encoding comes after the last layer's adapters: this layer and the heads.
    last_layer: u64,
}

/// How much slower than the synthetic card another is at some of a batch's parts.
#[derive(Clone, Copy)]
struct Slower {
    lookups: f64,
    copies: f64,
}

const AS_IT_IS: Slower = Slower {
    lookups: 1.0,
    copies: 1.0,
};

/// Batches of four requests of 128 tokens, each of another tenant, above half of a model's layers: how long so many
/// take in a pipeline, and what each takes.
fn hierarchical(
    model: &str,
    tenant_state: TenantState,
    tier: Tier,
    slower: Slower,
    pipeline: PipelineSpec,
    batches: u64,
) -> (u64, Parts) {
    const TOKENS: u32 = 4 * 128;
    let mut card = synthetic_card();
    card.contention = Contention::NONE;
    for row in &mut card.tables.dispatch {
        row.stats = Stats::exact(0.0);
    }
    for row in &mut card.tables.copy {
        row.stats = Stats::exact(slower.copies * row.stats.median_us);
    }
    for row in &mut card.tables.plot_lookup {
        row.stats = Stats::exact(slower.lookups * row.stats.median_us);
    }
    let mut system = system();
    let pool = &mut system.pool;
    pool.model = ModelShape::builtin(model).unwrap();
    pool.pipeline = pipeline;
    pool.tenant_state = tenant_state;
    pool.batch = BatchSpec::FixedSize { size: 4 };
    pool.plot = Some(PlotSpec {
        lower_layers: pool.model.layers / 2,
        tier,
        domain_hits_ppm: 0,
        ..testing::PLOT
    });
    let (model, dtype) = (&pool.model, pool.dtype);
    let layers = u64::from(model.layers / 2);
    let copy = card.copy(Direction::HostToDevice, false).unwrap();
    let (layer_copies, copies, adapters) = match tenant_state {
        TenantState::Adapters {
            bottleneck,
            implementation,
        } => {
            let bytes = model.adapter_parameters_per_layer(bottleneck) * dtype.bytes();
            let adapter = card.adapter(model, dtype, implementation, bottleneck).unwrap();
            let copies = |bytes| 4 * copy.cost(bytes).median_ns;
            (copies(bytes), copies(layers * bytes), adapter.cost(4, 4, 128).median_ns)
        }
        _ => (0, 0, 0),
    };
    let lookup = card.plot_lookup(model, tier, LookupOutcome::RootHit, TokensOf::Texts).unwrap();
    let layer = card.encoder_layer(model, dtype).unwrap().cost(4, 128).median_ns + adapters;
    let heads = card.head(model, dtype, pool.classes).unwrap().cost(4).median_ns;
    let parts = Parts {
        lookup: lookup.cost(1, TOKENS, 3).median_ns,
        copies,
        copies_by_layer: layers * layer_copies,
        stage: copy.cost(u64::from(TOKENS) * PlotSpec::row_bytes(model.hidden)).median_ns,
        encode: layers * layer + heads,
        layer_copies,
        last_layer: layer + heads,
    };
    let tenants = 4 * batches as u32;
    let memory = memory_for(&system, tenants, 12);
    let entries = (0..4 * batches).map(|i| request(i, 0, i as u32, 128)).collect();
    let record = run_listed(&card, cluster(1, memory), &system, tenants, Jitter::None, entries).record;
    assert_eq!(record.counts.served, 4 * batches);
    (record.duration.0, parts)
}

/// Which of a batch's parts takes longest.
#[derive(Debug)]
enum Longest {
    Compute,
    Copies,
    LookUp,
}

/// Fig. 10 by arithmetic: one after the other, all parts add up; with retrieval ahead, a batch takes its look-up or all
/// else, whichever is longer; with adapters ahead too, it takes what the longest lane has to do for it, and the others'
/// work shows once, before or after; layer by layer, that once is a layer's.
#[test]
fn each_pipeline_takes_what_its_lanes_leave_open() {
    let slower = |lookups, copies| Slower { lookups, copies };
    for (longest, slower) in [
        (Longest::Compute, AS_IT_IS),
        (Longest::Compute, slower(3.0, 2.0)),
        (Longest::Copies, slower(1.0, 60.0)),
        (Longest::Copies, slower(8.0, 200.0)),
        (Longest::LookUp, slower(300.0, 1.0)),
        (Longest::LookUp, slower(900.0, 40.0)),
    ] {
        for batches in [1, 2, 3, 50] {
            let run = |pipeline| hierarchical("bert-base", ADAPTERS, Tier::Memory, slower, pipeline, batches);
            let (synchronous, parts) = run(PipelineSpec::SYNCHRONOUS);
            let Parts {
                lookup,
                copies,
                copies_by_layer,
                stage,
                encode,
                layer_copies,
                last_layer,
            } = parts;
            let others = batches - 1;
            // The first batch's look-up and its adapters come in side by side.
            let (before, before_first_layer) = (lookup.max(copies), lookup.max(layer_copies));
            let (retrieval_ahead, both_ahead, layer_by_layer) = match longest {
                Longest::Compute => {
                    assert!(before + stage <= encode, "{parts:?}");
                    (
                        before + stage + encode + others * (copies + encode),
                        before + stage + batches * encode,
                        before_first_layer + stage + batches * encode,
                    )
                }
                Longest::Copies => {
                    assert!(encode <= copies + stage && lookup <= copies, "{parts:?}");
                    // Layers wait for their adapters, and not these for them.
                    assert!(
                        encode - last_layer < layer_copies && last_layer + lookup <= copies_by_layer,
                        "{parts:?}"
                    );
                    (
                        batches * copies + stage + others * encode.max(stage) + encode,
                        batches * (copies + stage) + encode,
                        before_first_layer - layer_copies + batches * (copies_by_layer + stage) + last_layer,
                    )
                }
                Longest::LookUp => {
                    assert!(lookup >= copies + stage + encode, "{parts:?}");
                    let until_staged = batches * lookup + stage;
                    // A lane keeps its order: all but the first layer's adapters come in behind what was looked up.
                    let others_copied = copies_by_layer - layer_copies + last_layer;
                    // Adapters that wait for the batch before come in after what was looked up ahead.
                    let last_copies = if batches > 1 { copies } else { 0 };
                    (
                        until_staged + last_copies + encode,
                        until_staged + encode,
                        until_staged + encode.max(others_copied),
                    )
                }
            };
            let what = format!("{longest:?} takes longest of {parts:?}, {batches} batches");
            assert_eq!(synchronous, batches * (lookup + copies + stage + encode), "{what}");
            for (pipeline, expected) in [
                (PipelineSpec::PREFETCH_RETRIEVAL, retrieval_ahead),
                (PipelineSpec::PREFETCH, both_ahead),
                (PipelineSpec::LAYERWISE, layer_by_layer),
            ] {
                assert_eq!(run(pipeline).0, expected, "{pipeline:?}: {what}");
            }
        }
    }
}

/// Where nothing is copied but what was looked up, the longer of both lanes is what a batch takes.
#[test]
fn look_ups_ahead_take_the_longer_of_both_lanes() {
    const BATCHES: u64 = 50;
    let run = |pipeline| hierarchical("tiny", TenantState::Head, Tier::Disk, AS_IT_IS, pipeline, BATCHES);
    let (synchronous, parts) = run(PipelineSpec::SYNCHRONOUS);
    let Parts {
        lookup, stage, encode, ..
    } = parts;
    assert!(lookup > stage + encode, "the look-up lane is the longest");
    assert_eq!(synchronous, BATCHES * (lookup + stage + encode));
    let (ahead, _) = run(PipelineSpec::PREFETCH_RETRIEVAL);
    assert_eq!(ahead, BATCHES * lookup + stage + encode);
}

#[test]
fn layers_start_as_soon_as_their_own_adapters_are_there() {
    let card = synthetic_card();
    let latency = |pipeline| {
        let mut system = system();
        system.pool.pipeline = pipeline;
        let memory = memory_for(&system, 8, 8);
        let entries = (0..8).map(|i| request(i, 10, i as u32, 128)).collect();
        run_listed(&card, cluster(1, memory), &system, 8, Jitter::None, entries).record.stall.max_ns()
    };
    assert!(latency(PipelineSpec::LAYERWISE) < latency(PipelineSpec::PREFETCH));
}
