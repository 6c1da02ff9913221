//! Pools of tasks' queries: the streams that their operators take, and what planning them takes.

use crate::common::tasks::{
    BY_KIND, MEMORY, alpha_us, beta_us, lane_busy, of, registration, shape, tasks, with_planning,
};
use crate::common::{cluster, request, run_listed, run_watched};
use tenantry_core::log::Log;
use tenantry_core::op::PetGroup;
use tenantry_core::policy::coordinated::Batching;
use tenantry_core::policy::stream_prices::StreamPrices;
use tenantry_core::spec::{EngineSpec, PlanningSpec, Registration, StreamsSpec, SystemSpec};
use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{Card, ConcurrentPetRow, DType, DeviceKind, PetKind, Stats};
use tenantry_sim::Jitter;
use tenantry_traces::{Duration, Entry, Time};

#[test]
fn streams_overlap_what_needs_different_things_and_cost_their_meeting() {
    let mut card = synthetic_card();
    card.device.kind = DeviceKind::Cuda;
    for row in &mut card.tables.copy {
        row.pinned = true;
    }
    card.tables.copy.dedup_by_key(|row| row.bytes);
    let computed_ns = |streams| {
        let mut system = tasks(10);
        of(&mut system).engine = EngineSpec::Shared {
            batching: Batching::Fixed { size: 16 },
            streams,
        };
        of(&mut system).planning = PlanningSpec::Pool {
            size: 10,
            max_wait: None,
        };
        let entries = (0..10).map(|i| request(i, 100, i as u32, 64)).collect();
        let record = run_listed(&card, cluster(1, MEMORY), &system, 10, Jitter::None, entries).record;
        record.compute.mean_ns()
    };
    let one = computed_ns(StreamsSpec::Fixed { count: 1 });
    let expected: f64 = alpha_us(10, 64) + (0..10).map(|task| beta_us(task % 5, 1, 64)).sum::<f64>();
    assert_eq!(one, (1e3 * expected).round());
    // Two layers, four meetings each, of 25 µs for each further stream; what overlaps is less than 0.64 µs a layer
    // times the sum from 1 to 5.
    let two = computed_ns(StreamsSpec::Fixed { count: 2 });
    assert!(two < one + 2.0 * 4.0 * 25e3 && two > one + 2.0 * 4.0 * 25e3 - 2.0 * 2.0 * 0.128 * 15.0 * 1e3);
    // Short operators stay on one stream by the profile's rule; one stream each is the worst.
    assert_eq!(computed_ns(StreamsSpec::ByProfile { many: 8 }), one);
    assert!(computed_ns(StreamsSpec::OneEach) > two);
}

/// By a table of evenly filled streams: two take 1.5 times as long as one, four 2.5 times.
#[test]
fn a_gpus_streams_slow_each_other_down_as_evenly_filled_ones_were_measured() {
    let mut card = synthetic_card();
    card.device.kind = DeviceKind::Cuda;
    for (streams, times) in [(1, 1.0), (2, 1.5), (4, 2.5)] {
        for (batch, tokens) in [(1, 1), (1, 64), (8, 1), (8, 64)] {
            card.tables.concurrent_pet.push(ConcurrentPetRow {
                model: "tiny".into(),
                dtype: DType::F32,
                streams,
                batch,
                tokens,
                stats: Stats::exact(100.0 * times),
            });
        }
    }
    let mut system = tasks(4);
    let pool = system.pool.clone();
    let mut prices = StreamPrices::new(&card, &pool, of(&mut system), &[PetKind::Adapters]).unwrap();
    assert_eq!(prices.most(), 4, "more were not measured");
    let mut layer_ns = |stream_of: [u16; 4], streams| {
        let group = |(task, stream): (u32, u16)| PetGroup {
            task,
            kind: PetKind::Adapters,
            count: 1,
            tokens: 64,
            stream,
        };
        let groups: Vec<PetGroup> = (0..).zip(stream_of).map(group).collect();
        prices.layer_ns(0, &groups, &[1_000; 4], streams)
    };
    assert_eq!(layer_ns([0; 4], 1), 4_000);
    assert_eq!(layer_ns([0, 1, 2, 3], 4), 2_500);
    assert_eq!(layer_ns([0, 0, 1, 1], 2), 3_000);
    // A third of the way from one to two at once.
    assert!(layer_ns([0, 0, 0, 1], 2).abs_diff(3_500) <= 1);
    // A stream that has nothing to do is met all the same.
    assert!(layer_ns([0; 4], 2) > 4_000);
}

#[test]
fn operators_of_like_intensity_on_one_stream_take_less_than_tasks_in_turn() {
    let card = Card::find("paper-gtx1080ti", &[]).unwrap();
    let computed_ns = |streams| {
        let mut system = tasks(0);
        system.pool.model = shape("bert-base");
        let spec = of(&mut system);
        spec.model = "bert-base".into();
        // Biases only move bytes, adapters compute. Two tasks of a kind follow each other, so that dealing them to two
        // streams in turn puts a task of the same kind beside each.
        let kind = |task: u32| {
            if (task / 2).is_multiple_of(2) {
                "bit-fit"
            } else {
                "adapters"
            }
        };
        spec.registrations = (0..16)
            .map(|task| Registration {
                model: "bert-base".into(),
                ..registration(task, kind(task))
            })
            .collect();
        spec.engine = EngineSpec::Shared {
            batching: Batching::Fixed { size: 64 },
            streams,
        };
        (spec.max_batch, spec.max_tokens) = (64, 128);
        spec.planning = PlanningSpec::Pool {
            size: 64,
            max_wait: None,
        };
        let entries = (0..64).map(|i| request(i, 100, (i % 16) as u32, 128)).collect();
        let record = run_listed(&card, cluster(1, 8 * MEMORY), &system, 16, Jitter::None, entries).record;
        record.compute.mean_ns()
    };
    let one = computed_ns(StreamsSpec::Fixed { count: 1 });
    let by_intensity = computed_ns(StreamsSpec::Fixed { count: 2 });
    let in_turn = computed_ns(StreamsSpec::InTurn { count: 2 });
    assert!(
        by_intensity < in_turn,
        "{by_intensity} of {in_turn}, {one} on one stream"
    );
    assert!(by_intensity < one, "{by_intensity} of {one}");
}

#[test]
fn planning_takes_its_time_on_the_host() {
    let card = with_planning(synthetic_card(), 3.0);
    let mut system = tasks(4);
    let run = |system: &SystemSpec, requests: u64| {
        let entries = (0..requests).map(|i| request(i, 100, (i % 4) as u32, 32)).collect();
        run_listed(&card, cluster(1, MEMORY), system, 4, Jitter::None, entries).record
    };
    // A pool of four: planned in 3 ms, once the loop has noticed its arrival, after the planner's wake and before its
    // answer is heard.
    let pooled = run(&system, 4);
    assert_eq!(lane_busy(&pooled, "host/planner"), Duration::from_millis(3));
    assert_eq!(pooled.queue.max_ns(), 8_000 + 5_000 + 3_000_000 + 20_000);
    // Planned by two rules, it takes both times.
    let mut twice = system.clone();
    of(&mut twice).engine = EngineSpec::Shared {
        batching: Batching::Cheaper,
        streams: StreamsSpec::Fixed { count: 1 },
    };
    assert_eq!(lane_busy(&run(&twice, 4), "host/planner"), Duration::from_millis(6));
    // Planned online, every batch after the first waits for its plan; a query that is alone needs none.
    of(&mut system).planning = PlanningSpec::Online {
        window: 16,
        targets: vec![Duration::from_millis(10)],
    };
    let online = run(&system, 4);
    assert_eq!((online.batches, online.counts.served), (2, 4));
    assert_eq!(lane_busy(&online, "host/planner"), Duration::from_millis(3));
    assert_eq!(lane_busy(&run(&system, 1), "host/planner"), Duration::ZERO);
    // The baselines only take what each task has: they have no planner.
    of(&mut system).engine = EngineSpec::Sequential { models: BY_KIND };
    assert!(run(&system, 4).lanes.iter().all(|lane| lane.name != "host/planner"));
}

#[test]
fn queries_that_come_while_a_pool_is_planned_wait_for_the_next_and_those_that_leave_are_left_out() {
    let card = with_planning(synthetic_card(), 3.0);
    let system = tasks(4);
    let mut entries: Vec<Entry> = (0..4).map(|i| request(i, 100, i as u32, 32)).collect();
    // While the first pool is planned: one of it leaves, and a whole further pool comes.
    entries.push(Entry::Cancel {
        at: Time(1_000_000),
        ticket: 2,
    });
    entries.extend((4..8).map(|i| request(i, 1_500, (i - 4) as u32, 32)));
    let (cluster, mut log) = (cluster(1, MEMORY), Log::default());
    let record = run_watched(&card, cluster, &system, 4, Jitter::None, entries, &mut log).record;
    assert_eq!((record.counts.served, record.counts.cancelled), (7, 1));
    let batches: Vec<Vec<u64>> = log
        .commands
        .iter()
        .filter(|command| !command.members.is_empty())
        .map(|command| command.members.iter().map(|member| member.ticket).collect())
        .collect();
    let mut first = batches[0].clone();
    first.sort_unstable();
    assert_eq!((first, batches.concat().len()), (vec![0, 1, 3], 7));
}

/// Of a pool's two batches the second is planned while the first runs: one of it leaves, or all of it.
#[test]
fn who_leaves_a_plan_is_passed_over_and_a_batch_that_all_have_left_is_none() {
    let card = with_planning(synthetic_card(), 3.0);
    let mut system = tasks(4);
    of(&mut system).engine = EngineSpec::Shared {
        batching: Batching::Fixed { size: 2 },
        streams: StreamsSpec::Fixed { count: 1 },
    };
    of(&mut system).planning = PlanningSpec::Pool {
        size: 8,
        max_wait: None,
    };
    let batches = |leaving: &[u64]| {
        let mut entries: Vec<Entry> = (0..8).map(|i| request(i, 100, (i % 4) as u32, 32)).collect();
        // Planned, with two batches started.
        entries.extend(leaving.iter().map(|&ticket| Entry::Cancel {
            at: Time(3_200_000),
            ticket,
        }));
        let mut log = Log::default();
        let done = run_watched(&card, cluster(1, MEMORY), &system, 4, Jitter::None, entries, &mut log);
        assert_eq!(done.record.counts.cancelled, leaving.len() as u64);
        let submitted = log.commands.iter().filter(|command| !command.members.is_empty());
        let tickets = submitted.map(|command| command.members.iter().map(|member| member.ticket).collect());
        tickets.collect::<Vec<Vec<u64>>>()
    };
    let all = batches(&[]);
    assert_eq!(all.len(), 4);
    let (third, fourth) = (&all[2], &all[3]);
    let one = batches(&third[..1]);
    assert_eq!(one, [&all[..2], &[third[1..].to_vec(), fourth.clone()]].concat());
    let none = batches(third);
    assert_eq!(none, [&all[..2], std::slice::from_ref(fourth)].concat());
}
