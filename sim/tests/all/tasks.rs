//! Tasks that share models: known answers, refusals, baselines, and the laws under all of their policies.

use crate::common::tasks::{
    BY_KIND, MEMORY, SHARED, alpha_us, another, beta_us, lane_busy, of, registration, shape, tasks, with_planning,
};
use crate::common::{cluster, log_of, request, run_checked_on, run_listed};
use proptest::prelude::*;
use tenantry_core::command::TaskFault;
use tenantry_core::log::replay;
use tenantry_core::pet::work::{PetSizes, activation_bytes, resident_bytes};
use tenantry_core::policy::coordinated::Batching;
use tenantry_core::server::ServerError;
use tenantry_core::spec::{
    EngineSpec, FineTuned, FullModels, PlaceSpec, PlanningSpec, Registration, StreamsSpec, SystemSpec, TaskFile,
};
use tenantry_core::{ClusterSpec, Server};
use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{Card, ConcurrentLayerRow, DType, ModelShape, PetKind, Stats};
use tenantry_sim::Jitter;
use tenantry_traces::{Duration, Entry, Time};

#[test]
fn a_pool_takes_its_shared_passes_and_its_tasks_operators() {
    let card = synthetic_card();
    let mut system = tasks(2);
    of(&mut system).engine = EngineSpec::Shared {
        batching: Batching::Fixed { size: 16 },
        streams: StreamsSpec::Fixed { count: 1 },
    };
    // Adapters and a mask, two queries each.
    let entries = (0..4).map(|i| request(i, 100, (i % 2) as u32, 32)).collect();
    let record = run_listed(&card, cluster(1, MEMORY), &system, 2, Jitter::None, entries).record;
    let expected_us = alpha_us(4, 32) + beta_us(0, 2, 32) + beta_us(1, 2, 32);
    assert_eq!(record.compute.mean_ns(), 1e3 * expected_us);
    assert_eq!((record.batches, record.counts.served), (1, 4));
    let counts = record.tasks.expect("it has tasks");
    assert_eq!((counts.plans, counts.groups, counts.loaded), (1, 2, 2));
}

#[test]
fn sequential_models_compute_one_after_another() {
    let card = synthetic_card();
    // Of adapters, a mask and a difference the last two are merged into their models, and adapters are computed behind
    // theirs.
    for (fine_tuned, beside_us) in [(FineTuned::AsAWhole, 0.0), (FineTuned::ByKind, beta_us(0, 2, 32))] {
        let mut system = tasks(3);
        of(&mut system).engine = EngineSpec::Sequential {
            models: FullModels { fine_tuned, ..BY_KIND },
        };
        of(&mut system).planning = PlanningSpec::Pool {
            size: 6,
            max_wait: None,
        };
        let entries = (0..6).map(|i| request(i, 100, (i % 3) as u32, 32)).collect();
        let record = run_listed(&card, cluster(1, MEMORY), &system, 3, Jitter::None, entries).record;
        assert_eq!((record.batches, record.counts.served), (3, 6));
        // The lane is busy with the three passes and nothing else.
        let busy_us = lane_busy(&record, "gpu0/compute0").0 as f64 / 1e3;
        assert_eq!(busy_us, 3.0 * alpha_us(2, 32) + beside_us);
    }
}

/// `streams` models side by side take `streams` times 0.8 as long as one.
fn with_concurrency(mut card: Card) -> Card {
    for streams in [1u32, 2, 4] {
        for batch in [1u32, 2, 16] {
            for tokens in [16u32, 32, 64] {
                let factor = if streams == 1 { 1.0 } else { 0.8 * f64::from(streams) };
                card.tables.concurrent_layer.push(ConcurrentLayerRow {
                    model: "tiny".into(),
                    dtype: DType::F32,
                    streams,
                    batch,
                    tokens,
                    stats: Stats::exact(100.0 * factor),
                });
            }
        }
    }
    card
}

#[test]
fn parallel_models_compute_side_by_side() {
    let card = with_concurrency(synthetic_card());
    let mut system = tasks(2);
    of(&mut system).engine = EngineSpec::Parallel {
        models: BY_KIND,
        streams: 8,
    };
    of(&mut system).planning = PlanningSpec::Pool {
        size: 2,
        max_wait: None,
    };
    let entries = (0..4).map(|i| request(i, 100, (i % 2) as u32, 32)).collect();
    let record = run_listed(&card, cluster(1, MEMORY), &system, 2, Jitter::None, entries).record;
    assert_eq!((record.batches, record.counts.served), (2, 4));
    let computing: Vec<_> = record.lanes.iter().filter(|lane| lane.name.contains("compute")).collect();
    assert_eq!(computing.len(), 2, "a stream for each task");
    // Both start at once (to the nanosecond) and slow each other down, until one has only its adapters left to compute.
    let expected_us = 1.6 * alpha_us(2, 32) + beta_us(0, 2, 32) / 2.0;
    let found_us = record.compute.mean_ns() / 1e3;
    assert!((found_us / expected_us - 1.0).abs() < 1e-3, "{found_us} {expected_us}");
}

/// Full models beyond the cores take turns: all compute lanes together are busy for no longer than the cores.
#[test]
fn models_side_by_side_compute_on_the_cores_that_there_are() {
    let card = with_concurrency(synthetic_card());
    let busy = |streams: u32| {
        let mut system = tasks(16);
        of(&mut system).engine = EngineSpec::Parallel {
            models: BY_KIND,
            streams,
        };
        // As many batches whatever the streams, which have pools of their own.
        of(&mut system).max_batch = 1;
        of(&mut system).planning = PlanningSpec::Pool {
            size: 4,
            max_wait: None,
        };
        let entries = (0..64).map(|i| request(i, 100, (i % 16) as u32, 32)).collect();
        let record = run_listed(&card, cluster(1, MEMORY), &system, 16, Jitter::None, entries).record;
        assert_eq!(record.counts.served, 64);
        record.end.0
    };
    let cores = u64::from(card.device.host.cores);
    assert_eq!(cores, 4);
    let [alone, as_cores, twice, fourfold] = [1, 4, 8, 16].map(busy);
    assert!(as_cores < alone, "{as_cores} {alone}");
    assert!(
        twice as f64 > 0.99 * as_cores as f64 && fourfold as f64 > 0.99 * as_cores as f64,
        "{as_cores} {twice} {fourfold}"
    );
}

#[test]
fn each_faulty_registration_is_refused_alone() {
    let card = synthetic_card();
    let mut system = tasks(0);
    let registrations = &mut of(&mut system).registrations;
    let mut push = |task, kind: &str, change: &dyn Fn(&mut Registration)| {
        let mut of = registration(task, kind);
        change(&mut of);
        registrations.push(of);
    };
    push(0, "adapters", &|_| ());
    push(1, "adaptors", &|_| ());
    push(2, "lora", &|of| of.model = "tinny".into());
    push(3, "lora", &|of| of.trained_on = Some(shape("bert-base")));
    push(4, "mask-bert", &|of| of.mask_elements = Some(17));
    push(0, "bit-fit", &|_| ());
    push(5, "mask-bert", &|of| {
        of.mask_elements = Some(2 * (4 * 128 * 128 + 2 * 128 * 512))
    });
    // What was refused may come again, mended.
    push(4, "mask-bert", &|_| ());
    let entries = (0..7).map(|i| request(i, 100, i as u32, 32)).collect();
    of(&mut system).planning = PlanningSpec::Online {
        window: 16,
        targets: vec![Duration::from_millis(10)],
    };
    let record = run_listed(&card, cluster(1, MEMORY), &system, 7, Jitter::None, entries).record;
    assert_eq!((record.counts.served, record.counts.rejected), (3, 4));
    let refused = |reason: &str| record.rejected.iter().find(|(of, _)| of.name() == reason).map(|(_, count)| *count);
    assert_eq!(refused("task_of_unknown_kind"), Some(1));
    assert_eq!(refused("task_of_unknown_model"), Some(1));
    assert_eq!(refused("task_of_wrong_shape"), Some(1));
    assert_eq!(refused("unknown_tenant"), Some(1));
    let counts = record.tasks.expect("it has tasks");
    assert_eq!((counts.registrations, counts.loaded), (8, 3));
    let expected = [
        (TaskFault::UnknownModel, 1),
        (TaskFault::UnknownKind, 1),
        (TaskFault::WrongShape, 1),
        (TaskFault::WrongMask, 1),
        (TaskFault::RegisteredTwice, 1),
    ];
    assert_eq!(counts.refused, expected);
}

#[test]
fn memory_that_is_exhausted_refuses_what_does_not_fit() {
    let card = synthetic_card();
    let mut system = tasks(40);
    let model = shape("tiny");
    let head = model.head_parameters(2) * 4;
    let shared = model.parameters() * 4 + 16 * activation_bytes(&model, 64);
    let of_task = |task: usize| resident_bytes(PetKind::ALL[task % 5], &model, &PetSizes::PAPER) + head;
    let first_seven: u64 = (0..7).map(of_task).sum();
    let plan = |memory| {
        let server = Server::on_card(&card, &cluster(1, memory), &system, 40).unwrap();
        (server.tasks().unwrap().clone(), server.memory())
    };
    let (counts, memory) = plan(shared + first_seven);
    assert_eq!(counts.loaded_until_full, 7);
    assert!(counts.loaded >= 7 && memory.total_bytes() <= memory.capacity_bytes);
    let (all, _) = plan(MEMORY);
    assert_eq!((all.loaded, all.loaded_until_full, all.max_batch), (40, 40, 16));
    let bytes: u64 = all.by_kind.iter().map(|(_, _, bytes)| bytes).sum();
    assert_eq!(bytes, (0..40).map(|task| of_task(task) - head).sum::<u64>());
    // Activations for three queries fit, for sixteen they don't: batches are smaller, and nothing is left for tasks.
    let (tight, _) = plan(model.parameters() * 4 + 3 * activation_bytes(&model, 64));
    assert_eq!((tight.max_batch, tight.loaded), (3, 0));
    let none = Server::on_card(&card, &cluster(1, model.parameters() * 4), &system, 40);
    assert!(matches!(none.err(), Some(ServerError::BackboneDoesNotFit { .. })));

    // A full model of each task takes the card far sooner; adapters lie beside theirs, unless it is fine-tuned as a
    // whole.
    let three = 3 * (model.parameters() * 4 + head) + 16 * activation_bytes(&model, 64);
    let adapters = resident_bytes(PetKind::Adapters, &model, &PetSizes::PAPER);
    for (fine_tuned, memory) in [(FineTuned::AsAWhole, three), (FineTuned::ByKind, three + adapters)] {
        of(&mut system).engine = EngineSpec::Sequential {
            models: FullModels { fine_tuned, ..BY_KIND },
        };
        for (memory, loaded) in [(memory, 3), (memory - 1, 2)] {
            let server = Server::on_card(&card, &cluster(1, memory), &system, 40).unwrap();
            assert_eq!(server.tasks().unwrap().loaded, loaded);
        }
    }
    let memory = three + adapters;
    let entries = (0..4).map(|i| request(i, 100, i as u32, 32)).collect();
    of(&mut system).planning = PlanningSpec::Online {
        window: 16,
        targets: Vec::new(),
    };
    let record = run_listed(&card, cluster(1, memory), &system, 40, Jitter::None, entries).record;
    assert_eq!(
        (record.counts.served, record.counts.rejected),
        (3, 1),
        "out of memory is an outcome"
    );
}

/// A repository keeps what is added to a shared model, and so half as many find room; a full model is not kept.
#[test]
fn tasks_lie_twice_in_memory_that_the_host_shares() {
    let card = synthetic_card();
    let mut system = tasks(40);
    let loaded = |system: &SystemSpec, shares_host_memory, memory| {
        let cluster = ClusterSpec {
            shares_host_memory,
            ..cluster(1, memory)
        };
        let server = Server::on_card(&card, &cluster, system, 40).unwrap();
        let used = server.memory();
        assert!(used.total_bytes() <= used.capacity_bytes);
        server.tasks().unwrap().loaded_until_full
    };
    let model = shape("tiny");
    let head = model.head_parameters(2) * 4;
    let of_task = |task: usize| resident_bytes(PetKind::ALL[task % 5], &model, &PetSizes::PAPER) + head;
    let models = model.parameters() * 4 + 16 * activation_bytes(&model, 64);
    let twice = models + 2 * (0..10).map(of_task).sum::<u64>();
    assert_eq!(loaded(&system, true, twice), 10);
    assert_eq!(loaded(&system, true, twice - 1), 9);
    assert_eq!(loaded(&system, false, twice), 20);

    of(&mut system).engine = EngineSpec::Sequential {
        models: FullModels {
            fine_tuned: FineTuned::AsAWhole,
            ..BY_KIND
        },
    };
    let three = 3 * (model.parameters() * 4 + 2 * head) + 16 * activation_bytes(&model, 64);
    assert_eq!(loaded(&system, true, three), 3);
}

#[test]
fn a_pooler_in_a_tasks_file_takes_memory_beside_its_head() {
    let card = synthetic_card();
    let bytes = |engine: EngineSpec, pooled: bool| {
        let mut system = tasks(1);
        of(&mut system).engine = engine;
        of(&mut system).registrations[0].file = Some(TaskFile {
            path: "task.safetensors".into(),
            resident_bytes: Some(1_000),
            pooled,
            fault: None,
        });
        let server = Server::on_card(&card, &cluster(1, MEMORY), &system, 1).unwrap();
        server.memory().tenant_bytes
    };
    for engine in [SHARED, EngineSpec::Sequential { models: BY_KIND }] {
        assert_eq!(bytes(engine, true) - bytes(engine, false), 4 * (128 * 128 + 128));
    }
}

#[test]
fn tasks_of_several_models_are_served_by_one_card() {
    let card = synthetic_card();
    let mut system = tasks(0);
    let spec = of(&mut system);
    spec.more_models = vec![another("bert-base", shape("bert-base"))];
    for (task, model) in [(0, "tiny"), (1, "bert-base"), (2, "tiny")] {
        spec.registrations.push(Registration {
            model: model.into(),
            ..registration(task, "bit-fit")
        });
    }
    spec.planning = PlanningSpec::Pool {
        size: 6,
        max_wait: None,
    };
    let entries = (0..6).map(|i| request(i, 100, (i % 3) as u32, 32)).collect();
    let record = run_listed(&card, cluster(1, 2 * MEMORY), &system, 3, Jitter::None, entries).record;
    assert_eq!(
        (record.counts.served, record.batches),
        (6, 2),
        "a batch is of one model"
    );
}

#[test]
fn two_models_of_one_shape_are_two_models() {
    let card = synthetic_card();
    let serve = |more: &[&str]| {
        let mut system = tasks(6);
        let spec = of(&mut system);
        spec.more_models = more.iter().map(|name| another(name, shape("tiny"))).collect();
        for registration in &mut spec.registrations {
            let models = [&["tiny"], more].concat();
            registration.model = models[registration.task as usize % models.len()].into();
        }
        spec.planning = PlanningSpec::Pool {
            size: 6,
            max_wait: None,
        };
        let entries = (0..6).map(|i| request(i, 100, i as u32, 32)).collect();
        run_listed(&card, cluster(1, MEMORY), &system, 6, Jitter::None, entries).record
    };
    let (one, two) = (serve(&[]), serve(&["cased"]));
    assert_eq!(
        two.memory.shared_bytes - one.memory.shared_bytes,
        4 * shape("tiny").parameters()
    );
    assert_eq!((one.counts.served, one.batches), (6, 1));
    assert_eq!((two.counts.served, two.batches), (6, 2), "a batch is of one model");
}

fn systems() -> impl Strategy<Value = SystemSpec> {
    let batching = prop_oneof![
        (1u32..6).prop_map(|size| Batching::Fixed { size }),
        Just(Batching::AlphaOnly),
        Just(Batching::BetaOnly),
        Just(Batching::Coordinated),
        Just(Batching::ByVariance { std_tokens_max: 8.0 }),
        Just(Batching::Cheaper),
    ];
    let streams = prop_oneof![
        Just(StreamsSpec::ByProfile { many: 4 }),
        (1u32..5).prop_map(|count| StreamsSpec::Fixed { count }),
        (1u32..5).prop_map(|count| StreamsSpec::Even { count }),
        (1u32..5).prop_map(|count| StreamsSpec::InTurn { count }),
        Just(StreamsSpec::OneEach),
    ];
    let engine = prop_oneof![
        4 => (batching, streams).prop_map(|(batching, streams)| EngineSpec::Shared { batching, streams }),
        1 => (any::<bool>(), prop_oneof![Just(FineTuned::ByKind), Just(FineTuned::AsAWhole)])
            .prop_map(|(own_embeddings, fine_tuned)| EngineSpec::Sequential { models: FullModels { own_embeddings, fine_tuned } }),
        1 => (1u32..4).prop_map(|streams| EngineSpec::Parallel { models: BY_KIND, streams }),
    ];
    let planning = prop_oneof![
        (1u32..9, 0u64..20).prop_map(|(size, ms)| PlanningSpec::Pool {
            size,
            max_wait: Some(Duration::from_millis(ms))
        }),
        (1u32..20, 1u64..50).prop_map(|(window, ms)| PlanningSpec::Online {
            window,
            targets: vec![Duration::from_millis(ms), Duration::from_millis(4 * ms)]
        }),
    ];
    (engine, planning, 1u32..9).prop_map(|(engine, planning, max_batch)| {
        let mut system = tasks(12);
        let spec = of(&mut system);
        let shallow = ModelShape {
            layers: 1,
            ..shape("tiny")
        };
        spec.more_models = vec![another("shallow", shallow)];
        spec.registrations[5].model = "shallow".into();
        // One is unknown, one refused.
        spec.registrations[3].kind = "dora".into();
        spec.registrations.remove(7);
        (spec.engine, spec.planning, spec.max_batch) = (engine, planning, max_batch);
        spec.max_tokens = 48;
        system
    })
}

/// Requests of known and unknown tenants, too long ones, and cancellations before, during and after service.
fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let one = (
        0u64..400,
        0u32..13,
        1u32..56,
        proptest::option::weighted(0.2, 0u64..3_000),
    );
    proptest::collection::vec(one, 1..100).prop_map(|requests| {
        let mut at_us = 0;
        let mut entries = Vec::new();
        for (ticket, (gap_us, tenant, tokens, cancel_after_us)) in requests.into_iter().enumerate() {
            at_us += gap_us;
            entries.push(request(ticket as u64, at_us, tenant, tokens));
            if let Some(after_us) = cancel_after_us {
                entries.push(Entry::Cancel {
                    at: Time((at_us + after_us) * 1_000),
                    ticket: ticket as u64,
                });
            }
        }
        entries
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Nobody is lost between queue, plan and batch, nobody idles while there is a batch, memory suffices.
    #[test]
    fn the_servers_laws_hold_after_every_event(system in systems(), entries in entries(), gpus in 1u32..3) {
        // Long enough that queries come and leave meanwhile.
        let card = with_planning(synthetic_card(), 0.7);
        prop_assert!(run_checked_on(&card, &cluster(gpus, MEMORY), &system, 12, entries) > 0);
    }

    /// All are accounted for, and all that were let in are answered: no pool waits for ever that has a longest wait.
    #[test]
    fn nothing_is_lost(system in systems(), entries in entries()) {
        let offered = entries.iter().filter(|e| matches!(e, Entry::Request(_))).count() as u64;
        let card = with_planning(synthetic_card(), 0.7);
        let record = run_listed(&card, cluster(1, MEMORY), &system, 12, Jitter::None, entries).record;
        prop_assert_eq!((record.counts.offered, record.counts.unfinished), (offered, 0));
    }

    /// A machine that is told the same events gives the same commands, groups included.
    #[test]
    fn runs_repeat_and_replay(system in systems(), entries in entries()) {
        let card = with_planning(synthetic_card(), 0.7);
        let log = |seed| {
            log_of(&card, cluster(1, MEMORY), &system, 12, Jitter::Measured { seed }, entries.clone())
        };
        let first = log(5);
        prop_assert_eq!(&first, &log(5));
        let mut fresh = Server::on_card(&card, &cluster(1, MEMORY), &system, 12).unwrap();
        prop_assert_eq!(replay(&mut fresh, &first.events), first.commands);
    }

    /// Groups cover a batch's members in order, each of one task, no longer than the batch.
    #[test]
    fn groups_are_stretches_of_members(system in systems(), entries in entries()) {
        let log = log_of(&synthetic_card(), cluster(1, MEMORY), &system, 12, Jitter::None, entries);
        for command in log.commands.iter().filter(|command| !command.members.is_empty()) {
            let mut members = command.members.iter();
            for group in &command.groups {
                let own: Vec<_> = members.by_ref().take(group.count as usize).collect();
                prop_assert!(own.len() == group.count as usize && own.iter().all(|m| m.tenant == group.task));
                prop_assert_eq!(own.iter().map(|m| m.input_tokens).max(), Some(group.tokens));
                prop_assert_eq!(PetKind::ALL[group.task as usize % 5], group.kind);
            }
            prop_assert!(command.groups.is_empty() || members.next().is_none());
        }
    }
}

/// Room for activations is kept for as many batches as can compute at once, and of each task one does.
#[test]
fn streams_beyond_the_tasks_take_no_memory() {
    let card = synthetic_card();
    let counts = |streams: u32| {
        let mut system = tasks(2);
        of(&mut system).engine = EngineSpec::Parallel {
            models: BY_KIND,
            streams,
        };
        let tasks = of(&mut system).clone();
        let server = tenantry_core::server::tasks::TaskServer::new(&card, &cluster(1, MEMORY), &system, &tasks, 2);
        server.expect("it fits").counts().clone()
    };
    let [two, many] = [2, 64].map(counts);
    assert_eq!(two, many);
    assert_eq!(two.activation_bytes, 2 * counts(1).activation_bytes);
}

/// Of the cards on which a task's stream could compute, the least loaded, or each in turn.
#[test]
fn parallel_models_are_placed_as_the_pool_says() {
    let card = synthetic_card();
    let mean = |place| {
        let mut system = tasks(1);
        system.pool.place = place;
        of(&mut system).engine = EngineSpec::Parallel {
            models: BY_KIND,
            streams: 4,
        };
        of(&mut system).planning = PlanningSpec::Pool {
            size: 1,
            max_wait: None,
        };
        // In turns, all the long ones come to one card.
        let entries = (0..400).map(|i| request(i, 46 * i, 0, if i % 2 == 0 { 64 } else { 8 })).collect();
        let record = run_listed(&card, cluster(2, MEMORY), &system, 1, Jitter::None, entries).record;
        assert_eq!(record.counts.served, 400);
        record.latency.mean_ns()
    };
    let [least, turns] = [PlaceSpec::LeastLoaded, PlaceSpec::RoundRobin].map(mean);
    assert_ne!(least, turns);
}
