//! Runs whose figures can be computed by hand, and queues whose theory is known.

mod common;

use common::{ADAPTERS, cluster, memory_for, request, run_listed, system};
use tenantry_core::spec::{BatchSpec, Met, PipelineSpec, PlotSpec, TenantState};
use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{
    Card, Changing, Contention, DeviceKind, Direction, DispatchOperation, HandOverRow, LookupOutcome, ModelShape,
    OtherCores, ResumeRow, Stats, Tier, TokensOf,
};
use tenantry_sim::Jitter;
use tenantry_traces::draw::{Draws, Purpose};
use tenantry_traces::{Duration, Entry};

fn median_ns(card: &Card, operation: DispatchOperation) -> u64 {
    card.dispatch(operation).unwrap().median_ns
}

/// What a forward pass of the tiny model takes on the synthetic card, and the copy of one tenant's adapters.
fn encode_and_copy_ns(card: &Card, requests: u32, tokens: u32, tenants: u32) -> (u64, u64) {
    let pool = system().pool;
    let layers = u64::from(pool.model.layers);
    let TenantState::Adapters {
        bottleneck,
        implementation,
    } = ADAPTERS
    else {
        unreachable!()
    };
    let adapter = card
        .adapter(&pool.model, pool.dtype, implementation, bottleneck)
        .unwrap();
    let encode = card
        .embedding(&pool.model, pool.dtype)
        .unwrap()
        .cost(requests, tokens)
        .median_ns
        + layers
            * card
                .encoder_layer(&pool.model, pool.dtype)
                .unwrap()
                .cost(requests, tokens)
                .median_ns
        + layers * adapter.cost(tenants, requests, tokens).median_ns
        + card
            .head(&pool.model, pool.dtype, pool.classes)
            .unwrap()
            .cost(requests.into())
            .median_ns;
    let chunk_bytes = pool.model.adapter_parameters_per_layer(bottleneck) * pool.dtype.bytes();
    let copy = card.copy(Direction::HostToDevice, false).unwrap();
    (encode, copy.cost(layers * chunk_bytes).median_ns)
}

#[test]
fn one_request_takes_what_its_ops_take() {
    let card = synthetic_card();
    let mut system = system();
    system.pool.pipeline = PipelineSpec::SYNCHRONOUS;
    let memory = memory_for(&system, 4, 4);
    let entries = vec![request(0, 100, 1, 32)];
    let record = run_listed(&card, cluster(1, memory), &system, 4, Jitter::None, entries).record;
    let (encode, copy) = encode_and_copy_ns(&card, 1, 32, 1);
    use DispatchOperation::{Alarm, Tell, Wake};
    let [alarm, wake, tell] = [Alarm, Wake, Tell].map(|operation| median_ns(&card, operation));
    // The loop wakes for the request; the copy is handed over and heard of, then the same for the forward pass.
    let parts = [alarm, wake, copy, tell, wake, encode, tell];
    assert_eq!(record.latency.mean_ns(), parts.iter().sum::<u64>() as f64);
    assert_eq!(record.stall.mean_ns(), (wake + copy + tell + wake) as f64);
    assert_eq!(record.compute.mean_ns(), encode as f64);
    assert_eq!(record.tell.mean_ns(), tell as f64);
    assert_eq!(record.queue.mean_ns(), alarm as f64);
    let swaps = record.swaps.expect("adapters are swapped");
    assert_eq!((swaps.hits, swaps.misses, swaps.evictions), (0, 1, 0));
}

#[test]
fn a_lane_that_was_idle_takes_longer() {
    let mut card = synthetic_card();
    let rows = [
        (100, 50, 10.0),
        (100, 1000, 30.0),
        (10_000, 50, 50.0),
        (10_000, 1000, 90.0),
    ];
    card.tables.resume = rows
        .map(|(idle_us, work_us, us)| ResumeRow {
            model: "another".into(),
            changing: Changing::Heads,
            from_layer: 1,
            idle_us,
            work_us,
            stats: Stats::exact(us),
        })
        .to_vec();
    let mut system = system();
    system.pool.tenant_state = TenantState::Head;
    system.pool.pipeline = PipelineSpec::SYNCHRONOUS;
    let memory = memory_for(&system, 1, 0);
    let compute_ns = |gap_us| {
        let entries = (0..11).map(|i| request(i, i * gap_us, 0, 32)).collect();
        let record = run_listed(&card, cluster(1, memory), &system, 1, Jitter::None, entries).record;
        record.compute.mean_ns()
    };
    // Rows of another model stand in. Back to back it costs nothing, and below the least measured idleness its part.
    let resume = card
        .resume(&system.pool.model, Changing::Heads, 0)
        .unwrap()
        .expect("it has rows");
    let extra_ns = |idle_us, work_us| resume.extra_ns(idle_us, work_us, |whole| whole.median_ns);
    assert_eq!(extra_ns(0, 50), 0);
    assert_eq!(extra_ns(50, 50), 5_000);
    // So is an op that is smaller than the least measured work: the next one pays the rest.
    assert_eq!(extra_ns(100, 20), 4_000);
    // Far beyond the measured idleness it costs no more than at its edge.
    let (short, long, longer) = (compute_ns(300), compute_ns(20_000), compute_ns(2_000_000));
    assert!(short + 30_000.0 < long, "{short} {long}");
    // The first request of each run finds the lane idle since the start, which is not long.
    assert!((longer - long).abs() < 1.0, "{long} {longer}");
}

#[test]
fn a_lane_warms_up_over_several_ops() {
    let mut card = synthetic_card();
    let mut system = system();
    system.pool.tenant_state = TenantState::Head;
    system.pool.pipeline = PipelineSpec::SYNCHRONOUS;
    system.pool.batch = BatchSpec::FixedSize { size: 1 };
    let memory = memory_for(&system, 1, 0);
    // After a second without anything, so many requests one after the other.
    let compute_ns = |card: &Card, requests: u64| {
        let entries = (0..requests).map(|i| request(i, 1_000_000, 0, 32)).collect();
        let record = run_listed(card, cluster(1, memory), &system, 1, Jitter::None, entries).record;
        assert_eq!(record.counts.served, requests);
        record.compute.mean_ns() * requests as f64
    };
    let warm_ns = compute_ns(&card, 1);
    let work_us = warm_ns / 1e3;
    let row = |of_work: f64, us| ResumeRow {
        model: system.pool.model.name.clone(),
        changing: Changing::Heads,
        from_layer: 1,
        idle_us: 500_000,
        work_us: (of_work * work_us) as u32,
        stats: Stats::exact(us),
    };
    card.tables.resume = vec![row(0.5, 300.0), row(1.0, 400.0), row(2.0, 460.0), row(3.0, 480.0)];
    let extra_us = |requests| (compute_ns(&card, requests) - requests as f64 * warm_ns) / 1e3;
    for (requests, us) in [(1, 400.0), (2, 460.0), (3, 480.0), (4, 480.0), (9, 480.0)] {
        let extra_us = extra_us(requests);
        // Hand-overs between the ops are some microseconds of idleness, of which a table from half a second on makes nothing.
        assert!((extra_us - us).abs() < 2.0, "{requests} requests: {extra_us} µs");
    }
}

#[test]
fn threads_that_sleep_are_woken_later() {
    let mut card = synthetic_card();
    let mut system = system();
    system.pool.tenant_state = TenantState::Head;
    system.pool.pipeline = PipelineSpec::SYNCHRONOUS;
    let memory = memory_for(&system, 1, 0);
    let latency_us = |card: &Card, gap_us: u64| {
        let entries = (1..=20).map(|i| request(i - 1, i * gap_us, 0, 32)).collect();
        let record = run_listed(card, cluster(1, memory), &system, 1, Jitter::None, entries).record;
        record.latency.mean_ns() / 1e3
    };
    let before_us = latency_us(&card, 30_000);
    use DispatchOperation::{Alarm, Tell, Wake};
    for (operation, pause_us, us) in [
        (Wake, 100, 6.0),
        (Wake, 10_000, 70.0),
        (Tell, 100, 21.0),
        (Tell, 10_000, 90.0),
        (Alarm, 100, 9.0),
        (Alarm, 10_000, 58.0),
    ] {
        card.tables.hand_over.push(HandOverRow {
            operation,
            other_cores: OtherCores::Idle,
            pause_us,
            work_us: 1,
            stats: Stats::exact(us),
        });
    }
    // The synthetic card has 5, 20 and 8 µs. 1 ms is what both idlenesses are as far from, in proportion.
    let added_us = latency_us(&card, 30_000) - before_us;
    assert!((added_us - (65.0 + 70.0 + 50.0)).abs() < 1e-6, "{added_us}");
    let compute_us = encode_and_copy_ns(&card, 1, 32, 1).0 as f64 / 1e3;
    let short_us = (compute_us + 500.0) as u64;
    let soon_us = latency_us(&card, short_us);
    assert!(
        (before_us + 1.0..before_us + 65.0).contains(&soon_us),
        "{before_us} {soon_us}"
    );
}

#[test]
fn hand_overs_go_by_the_rhythm_and_by_what_other_cores_do() {
    let mut card = synthetic_card();
    let mut system = system();
    system.pool.tenant_state = TenantState::Head;
    system.pool.pipeline = PipelineSpec::SYNCHRONOUS;
    system.pool.batch = BatchSpec::FixedSize { size: 1 };
    let compute_us = (encode_and_copy_ns(&card, 1, 32, 1).0 / 1_000) as u32;
    let row = |operation, other_cores, pause_us, work_us, us| HandOverRow {
        operation,
        other_cores,
        pause_us,
        work_us,
        stats: Stats::exact(us),
    };
    use DispatchOperation::{Alarm, Tell, Wake};
    use OtherCores::{Busy, Idle};
    card.tables.hand_over = vec![row(Alarm, Idle, 100, 1, 8.0)];
    for (operation, others, at_once_us, later_us) in [
        (Wake, Idle, 45.0, 4.0),
        (Tell, Idle, 60.0, 3.0),
        (Wake, Busy, 7.0, 2.0),
        (Tell, Busy, 9.0, 1.0),
    ] {
        // Work of a quarter of a pass costs something else again, which nothing here takes.
        for (work_us, more_us) in [(compute_us / 16, 500.0), (compute_us, 0.0)] {
            card.tables.hand_over.extend([
                row(operation, others, 1, work_us, at_once_us + more_us),
                row(operation, others, 10 * compute_us, work_us, later_us + more_us),
            ]);
        }
    }
    let took_us = |cores: u32, gap_us: u64| {
        let mut card = card.clone();
        card.device.host.cores = cores;
        // The first finds a lane that has never worked.
        let entries = (0..101).map(|i| request(i, i * gap_us, 0, 32)).collect();
        let record = run_listed(
            &card,
            cluster(1, memory_for(&system, 1, 0)),
            &system,
            1,
            Jitter::None,
            entries,
        )
        .record;
        (record.duration.0 as f64 / 1e3, record.latency.mean_ns() / 1e3)
    };
    // Without a second core there is none to be woken on. A hundred requests are handed over at once after the one before; the first and last see
    // what a lane costs that has never worked, and one that nobody asks anything any more.
    let saturated_us = took_us(2, 0).0 - took_us(1, 0).0;
    assert!(
        (saturated_us - 100.0 * (45.0 + 60.0 - 7.0 - 9.0)).abs() < 100.0,
        "{saturated_us}"
    );
    let gap_us = 20 * u64::from(compute_us);
    let calm_us = took_us(2, gap_us).1 - took_us(1, gap_us).1;
    assert!((calm_us - (4.0 + 3.0 - 2.0 - 1.0)).abs() < 1.0, "{calm_us}");
}

#[test]
fn another_tenants_whole_model_is_not_in_the_caches() {
    let mut card = synthetic_card();
    let mut system = system();
    system.pool.tenant_state = TenantState::Model;
    system.pool.pipeline = PipelineSpec::SYNCHRONOUS;
    let compute_ns = |card: &Card, tenants: u32| {
        // All have room, and come long after one another.
        let entries = (0..40)
            .map(|i| request(i, i * 50_000, i as u32 % tenants, 32))
            .collect();
        let memory = memory_for(&system, tenants, tenants);
        let record = run_listed(card, cluster(1, memory), &system, tenants, Jitter::None, entries).record;
        record.compute.mean_ns()
    };
    assert_eq!(compute_ns(&card, 1), compute_ns(&card, 2));
    let row = |changing, idle_us, work_us, us| ResumeRow {
        model: system.pool.model.name.clone(),
        changing,
        from_layer: 1,
        idle_us,
        work_us,
        stats: Stats::exact(us),
    };
    card.tables.resume = vec![
        row(Changing::Heads, 100, 50, 20.0),
        row(Changing::Model, 1, 50, 70.0),
        row(Changing::Model, 10_000, 50, 90.0),
    ];
    let (own, others) = (compute_ns(&card, 1), compute_ns(&card, 2));
    // But for the first request of all, which comes at once and finds no model either way.
    let per_request = (others - own) / (39.0 / 40.0);
    assert!((per_request - 70_000.0).abs() < 1.0, "{own} {others} {per_request}");
    // Where one model has room, each is copied before it computes, and is found in the caches.
    let copied_ns = |card: &Card| {
        let entries = (0..40).map(|i| request(i, i * 50_000, i as u32 % 2, 32)).collect();
        let memory = memory_for(&system, 2, 1);
        let record = run_listed(card, cluster(1, memory), &system, 2, Jitter::None, entries).record;
        assert_eq!(record.swaps.unwrap().misses, 40);
        record.compute.mean_ns()
    };
    assert_eq!(copied_ns(&card), others, "not measured, a copy changes nothing");
    card.tables.resume.extend([
        row(Changing::CopiedModel, 1, 50, 30.0),
        row(Changing::CopiedModel, 10_000, 50, 50.0),
    ]);
    let gained = others - copied_ns(&card);
    assert!((gained - 40_000.0).abs() < 1.0, "{gained}");
    // What is measured of models from a later layer on is for those that begin there.
    card.tables.resume.push(ResumeRow {
        from_layer: 2,
        ..row(Changing::CopiedModel, 1, 50, 5.0)
    });
    assert_eq!(others - copied_ns(&card), gained);
    let of_copy_us = |first_layer| {
        let model = &system.pool.model;
        let resume = card.resume(model, Changing::CopiedModel, first_layer).unwrap().unwrap();
        resume.extra_ns(1, 50, |whole| whole.median_ns)
    };
    assert_eq!([0, 1, 2].map(of_copy_us), [30_000, 5_000, 30_000]);
}

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

/// What the parts of a batch take on a card on which lanes neither slow each other down nor take time to be handed over to.
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

/// Batches of four requests of 128 tokens, each of another tenant, above half of a model's layers: how long so many take in a pipeline, and
/// what each takes.
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
        fragment_tokens: 3,
        threads: 1,
        tier,
        domain_hits_ppm: 0,
        fallbacks_ppm: 0,
        met: Met::AsBuilt,
        domains: 8,
        domain_bytes: None,
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
    let lookup = card
        .plot_lookup(model, tier, LookupOutcome::RootHit, TokensOf::Texts)
        .unwrap();
    let layer = card.encoder_layer(model, dtype).unwrap().cost(4, 128).median_ns + adapters;
    let heads = card.head(model, dtype, pool.classes).unwrap().cost(4).median_ns;
    let parts = Parts {
        lookup: lookup.cost(1, TOKENS, 3).median_ns,
        copies,
        copies_by_layer: layers * layer_copies,
        stage: copy
            .cost(u64::from(TOKENS) * PlotSpec::row_bytes(model.hidden))
            .median_ns,
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

/// Fig. 10 by arithmetic: one after the other, all parts add up; with retrieval ahead, a batch takes its look-up or all else, whichever is
/// longer; with adapters ahead too, it takes what the longest lane has to do for it, and the others' work shows once, before or after; layer by
/// layer, that once is a layer's.
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
        run_listed(&card, cluster(1, memory), &system, 8, Jitter::None, entries)
            .record
            .stall
            .max_ns()
    };
    assert!(latency(PipelineSpec::LAYERWISE) < latency(PipelineSpec::PREFETCH));
}

#[test]
fn lanes_of_a_card_slow_each_other_down_by_the_measured_factors() {
    let run = |beside: f64| {
        let mut card = synthetic_card();
        card.contention.compute_beside_copy = beside;
        card.contention.copy_beside_compute = beside;
        let system = system();
        let memory = memory_for(&system, 400, 20);
        let entries = (0..400).map(|i| request(i, 0, i as u32, 128)).collect();
        run_listed(&card, cluster(1, memory), &system, 400, Jitter::None, entries).record
    };
    let (alone, beside) = (run(1.0), run(1.5));
    let busy = |record: &tenantry_core::RunRecord, name: &str| {
        record
            .lanes
            .iter()
            .find(|lane| lane.name == name)
            .expect("the lane")
            .busy
            .0 as f64
    };
    // Nearly every copy runs beside a forward pass; forward passes are longer, so that only a part of each is slowed.
    let copies = busy(&beside, "gpu0/copy") / busy(&alone, "gpu0/copy");
    assert!((1.4..=1.5).contains(&copies), "{copies}");
    let compute = busy(&beside, "gpu0/compute0") / busy(&alone, "gpu0/compute0");
    assert!(compute > 1.02 && compute < 1.5, "{compute}");
}

/// Poisson arrivals of one length served one by one are an M/D/1 queue: the mean wait is ρ / (2 (1 − ρ)) services.
#[test]
fn single_service_is_an_m_d_1_queue() {
    let mut card = synthetic_card();
    // Theory knows no hand-overs.
    for row in &mut card.tables.dispatch {
        let ns = 1e-3;
        row.stats = Stats {
            count: 1,
            mean_us: ns,
            median_us: ns,
            p05_us: ns,
            p95_us: ns,
            p99_us: ns,
        };
    }
    let mut system = system();
    system.pool.tenant_state = TenantState::Head;
    system.pool.pipeline = PipelineSpec::SYNCHRONOUS;
    system.pool.batch = BatchSpec::SizeOrTimeout {
        max_size: 1,
        max_wait: Duration::ZERO,
    };
    let memory = memory_for(&system, 1, 0);
    let alone = run_listed(
        &card,
        cluster(1, memory),
        &system,
        1,
        Jitter::None,
        vec![request(0, 0, 0, 32)],
    )
    .record;
    let service_ns = alone.latency.mean_ns();
    for load in [0.3, 0.6, 0.85] {
        let mut arrivals = Draws::new(11, Purpose::Arrival).about(0);
        let mut at_ns = 0.0;
        let entries: Vec<Entry> = (0..200_000)
            .map(|ticket| {
                at_ns += arrivals.exponential() * service_ns / load;
                request(ticket, (at_ns / 1e3) as u64, 0, 32)
            })
            .collect();
        let record = run_listed(&card, cluster(1, memory), &system, 1, Jitter::None, entries).record;
        let expected = load / (2.0 * (1.0 - load));
        let wait = record.queue.mean_ns() / service_ns;
        assert!(
            (wait / expected - 1.0).abs() < 0.03,
            "at load {load}: {wait} services, theory says {expected}"
        );
    }
}

/// Uniform draws over N tenants with C slots hit C/N of the time under LRU (HMI, Fig. 3: 35 of 1,000).
#[test]
fn uniform_tenants_hit_in_proportion_to_the_slots() {
    let card = synthetic_card();
    let mut system = system();
    system.pool.tenant_state = TenantState::Model;
    system.pool.batch = BatchSpec::PerTenant { max_size: 1 };
    system.pool.pipeline = PipelineSpec::SYNCHRONOUS;
    let memory = memory_for(&system, 1000, 35);
    let tenants = Draws::new(5, Purpose::Tenant);
    let entries: Vec<Entry> = (0..50_000)
        .map(|t| request(t, t * 10_000, tenants.about(t).below(1000) as u32, 32))
        .collect();
    let record = run_listed(&card, cluster(1, memory), &system, 1000, Jitter::None, entries).record;
    let swaps = record.swaps.unwrap();
    let hit_rate = swaps.hits as f64 / (swaps.hits + swaps.misses) as f64;
    assert!((hit_rate - 0.035).abs() < 0.004, "{hit_rate}");
    assert_eq!(record.memory.tenant_bytes, 35 * record.memory.per_tenant_bytes);
}

/// Instances of encoders beyond a processor's cores take turns, as threads do: they finish no more than the cores compute.
#[test]
fn instances_beyond_the_cores_take_turns() {
    let mut card = synthetic_card();
    card.tables.concurrent_layer.clear();
    let end = |card: &Card, instances_per_gpu: u32| {
        let mut system = system();
        system.pool.instances_per_gpu = instances_per_gpu;
        system.pool.tenant_state = TenantState::Head;
        system.pool.batch = BatchSpec::SizeOrTimeout {
            max_size: 1,
            max_wait: Duration::ZERO,
        };
        let entries = (0..64).map(|i| request(i, 100, 0, 32)).collect();
        let gpu = cluster(1, memory_for(&system, 4, 4));
        let record = run_listed(card, gpu, &system, 4, Jitter::None, entries).record;
        assert_eq!(record.counts.served, 64);
        record.end.0 as f64
    };
    assert_eq!(card.device.host.cores, 4);
    let [alone, as_cores, fourfold] = [1, 4, 16].map(|instances| end(&card, instances));
    assert!((3.5..4.1).contains(&(alone / as_cores)), "{alone} {as_cores}");
    assert!(fourfold > 0.97 * as_cores, "{as_cores} {fourfold}");
    // A GPU's instances have kernels of their own.
    card.device.kind = DeviceKind::Cuda;
    let copies = card.tables.copy.clone();
    card.tables.copy.extend(copies.into_iter().map(|mut row| {
        row.pinned = true;
        row
    }));
    assert!(end(&card, 16) < 0.5 * end(&card, 4));
}
