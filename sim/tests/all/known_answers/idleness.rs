//! What an op takes after a lane or a thread has rested, or has served somebody else.

use super::*;

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
    let resume = card.resume(&system.pool.model, Changing::Heads, 0).unwrap().expect("it has rows");
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

/// What an op takes longer may vary by many times what a small one takes, and hardly beside a large one.
#[test]
fn between_two_works_the_spread_of_what_they_take_longer_lies_between_theirs() {
    let mut card = synthetic_card();
    let row = |idle_us, work_us, us, p95_us| ResumeRow {
        model: "tiny".into(),
        changing: Changing::Heads,
        from_layer: 1,
        idle_us,
        work_us,
        stats: Stats {
            p95_us,
            p99_us: p95_us,
            ..Stats::exact(us)
        },
    };
    card.tables.resume = vec![
        row(100, 10, 20.0, 90.0),
        row(100, 1_000, 30.0, 40.0),
        row(300, 10, 40.0, 190.0),
        row(300, 1_000, 50.0, 60.0),
    ];
    let tiny = ModelShape::builtin("tiny").unwrap();
    let resume = card.resume(&tiny, Changing::Heads, 1).unwrap().expect("it has rows");
    let p95_us = |idle_us, work_us| {
        let of = |whole: Cost| whole.median_ns * u64::from(whole.spread.p95_ppm) / 1_000_000;
        resume.extra_ns(idle_us, work_us, of) as f64 / 1e3
    };
    for (idle_us, work_us, us) in [
        (100, 10, 90.0),
        (100, 505, 65.0),
        (300, 505, 125.0),
        (200, 10, 140.0),
        (200, 505, 95.0),
        (200, 1_000, 50.0),
    ] {
        // Spreads are kept to a millionth of the op.
        let ours = p95_us(idle_us, work_us);
        assert!((ours - us).abs() < 0.01, "{idle_us} and {work_us} µs: {ours}");
    }
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
        // Hand-overs between the ops are some microseconds of idleness, of which a table from half a second on makes
        // nothing.
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
    // Without a second core there is none to be woken on. A hundred requests are handed over at once after the one
    // before; the first and last see what a lane costs that has never worked, and one that nobody asks anything any
    // more.
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
        let entries = (0..40).map(|i| request(i, i * 50_000, i as u32 % tenants, 32)).collect();
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
