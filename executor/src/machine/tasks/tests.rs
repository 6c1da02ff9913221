//! Whole runs of tasks on real threads: batching, streams and engines do not change the answers, and what is refused is refused alone.

use std::sync::atomic::AtomicBool;

use tenantry_core::log::{Log, replay};
use tenantry_core::policy::coordinated::Batching;
use tenantry_core::policy::pet_work::PetSizes;
use tenantry_core::spec::{
    AdmitSpec, BatchSpec, HeadTask, Padding, PipelineSpec, PlaceSpec, PlanningSpec, SharedModel, StreamsSpec, SwapSpec,
    SystemSpec, TenantState,
};
use tenantry_core::{ClusterSpec, Ledger, RunRecord, Server, run};
use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{DType, ModelShape};
use tenantry_traces::{Entry, Listed, Request, Time};

use super::*;
use crate::machine::RealMachine;
use crate::machine::threads::Threads;

const TASKS: u32 = 64;
const QUERIES: u64 = 256;

fn registration(task: u32, kind: &str) -> Registration {
    Registration {
        at: format!("registrations[{task}]"),
        task,
        model: "tiny".into(),
        kind: kind.into(),
        trained_on: None,
        mask_elements: None,
        file: None,
    }
}

/// Task `t` is of kind `t % 5`.
fn system(engine: EngineSpec) -> SystemSpec {
    let kind = |task: u32| PetKind::ALL[task as usize % 5].name();
    SystemSpec {
        name: "test".into(),
        admit: AdmitSpec::Open,
        route: None,
        pool: PoolSpec {
            name: "pool".into(),
            model: ModelShape::builtin("tiny").unwrap(),
            dtype: DType::F32,
            classes: 7,
            heads: HeadTask::Classification,
            plot: None,
            tenant_state: TenantState::Head,
            padding: Padding::Longest,
            instances_per_gpu: 1,
            place: PlaceSpec::LeastLoaded,
            batch: BatchSpec::PerTenant { max_size: 1 },
            swap: SwapSpec::LeastRecentlyUsed,
            pipeline: PipelineSpec::SYNCHRONOUS,
            generation: None,
            tasks: Some(TasksSpec {
                model: "tiny".into(),
                more_models: Vec::new(),
                registrations: (0..TASKS).map(|task| registration(task, kind(task))).collect(),
                sizes: PetSizes::PAPER,
                engine,
                max_batch: 64,
                max_tokens: 24,
                planning: PlanningSpec::Pool {
                    size: QUERIES as u32,
                    max_wait: Some(tenantry_traces::Duration::from_millis(50)),
                },
            }),
            runtimes: None,
        },
    }
}

fn shared(batching: Batching, streams: u32) -> EngineSpec {
    EngineSpec::Shared {
        batching,
        streams: StreamsSpec::Fixed { count: streams },
    }
}

/// Runs a pool of queries.
fn serve(system: &SystemSpec, memory: u64) -> (RunRecord, Vec<Answer>, Vec<String>) {
    let card = synthetic_card();
    let cluster = ClusterSpec {
        gpus: 1,
        gpu_memory_bytes: memory,
        copy_lanes: 1,
        lookup_lanes: 1,
    };
    let server = || Server::on_card(&card, &cluster, system, TASKS).unwrap();
    let mut serving_server = server();
    let topology = serving_server.topology().clone();
    let Server::Tasks(tasks) = &serving_server else {
        unreachable!("it has tasks")
    };
    let spec = system.pool.tasks.as_ref().unwrap();
    let provision = TaskProvision {
        tenants: TASKS,
        seed: 3,
        device: Device::Cpu,
        max_bytes: memory,
    };
    let serving = TaskServing::new(&system.pool, spec, tasks, provision).unwrap();
    let answers = Arc::default();
    let threads = Threads::start(serving.lanes(&topology, &answers), Arc::new(AtomicBool::new(false))).unwrap();
    let mut machine = RealMachine::new(&topology, threads);
    let entries = (0..QUERIES).map(|ticket| {
        Entry::Request(Request {
            ticket,
            tenant: (ticket * 7 % u64::from(TASKS)) as u32,
            arrival: Time(ticket),
            input_tokens: 1 + (ticket % 24) as u32,
            output_tokens: 0,
            class: 0,
        })
    });
    let (mut ledger, mut log) = (Ledger::new(Time::ZERO), Log::default());
    let mut workload = Listed::new(entries.collect());
    let end = run(&mut serving_server, &mut workload, &mut machine, &mut ledger, &mut log).unwrap();
    // What a real machine said, told to a fresh server, leads to the same commands: the policies depend on nothing else.
    assert_eq!(replay(&mut server(), &log.events), log.commands);
    let record = ledger.close(end, &serving_server, &machine).unwrap();
    machine.into_workers().stop();
    let mut answers = std::mem::take(&mut *answers.lock().unwrap());
    answers.sort_unstable();
    (record, answers, serving.refused().to_vec())
}

#[test]
fn batching_and_streams_do_not_change_the_answers_of_64_tasks_of_five_kinds() {
    let mut alone = system(shared(Batching::Fixed { size: 1 }, 1));
    alone.pool.tasks.as_mut().unwrap().max_batch = 1;
    let (record, expected, _) = serve(&alone, 1 << 30);
    assert_eq!((record.counts.served, record.batches), (QUERIES, QUERIES));
    let classes: std::collections::BTreeSet<u32> = expected.iter().map(|answer| answer.class).collect();
    assert!(classes.len() > 1, "the heads tell tasks and queries apart");
    for (batching, streams) in [
        (Batching::Fixed { size: 64 }, 1),
        (Batching::AlphaOnly, 2),
        (Batching::BetaOnly, 1),
        (Batching::Coordinated, 3),
    ] {
        let (record, answers, _) = serve(&system(shared(batching, streams)), 1 << 30);
        assert_eq!(
            (record.counts.served, record.counts.failed),
            (QUERIES, 0),
            "{batching:?}"
        );
        assert!(record.batches < QUERIES);
        assert_eq!(answers, expected, "{batching:?}");
    }
}

/// Three models, two of them of one shape: what a task computes depends on its own model alone, and models of one shape have different
/// weights.
#[test]
fn tasks_of_several_shared_models_are_each_answered_by_their_own() {
    let tiny = ModelShape::builtin("tiny").unwrap();
    let named = |name: &str, shape: &ModelShape| SharedModel {
        name: name.into(),
        shape: shape.clone(),
    };
    // `model_of` says of which model a task is.
    let served = |batching, model_of: fn(u32) -> &'static str| {
        let mut system = system(shared(batching, 1));
        let tasks = system.pool.tasks.as_mut().unwrap();
        let shallow = ModelShape {
            layers: 1,
            ..tiny.clone()
        };
        tasks.more_models = vec![named("second", &tiny), named("shallow", &shallow)];
        for registration in &mut tasks.registrations {
            registration.model = model_of(registration.task).into();
        }
        let (record, answers, refused) = serve(&system, 1 << 30);
        assert_eq!((record.counts.served, refused), (QUERIES, Vec::<String>::new()));
        answers
    };
    let mixed = |task: u32| ["tiny", "second", "shallow"][task as usize % 3];
    let found = served(Batching::Coordinated, mixed);
    assert_eq!(served(Batching::Fixed { size: 1 }, mixed), found);
    for (model, others) in [
        (0, served(Batching::AlphaOnly, |_| "tiny")),
        (1, served(Batching::AlphaOnly, |_| "second")),
    ] {
        let (mut own, mut different) = (0, 0);
        for (found, other) in found.iter().zip(&others) {
            let task = found.ticket * 7 % u64::from(TASKS);
            match task % 3 == model {
                true => {
                    assert_eq!(found, other, "task {task} is answered by its own model");
                    own += 1;
                }
                false => different += u32::from(found != other),
            }
        }
        assert!(own > 80 && different > 20, "{own} {different}");
    }
}

#[test]
fn a_full_model_of_each_task_one_after_another_and_side_by_side() {
    let sequential = EngineSpec::Sequential { own_embeddings: true };
    let parallel = EngineSpec::Parallel {
        own_embeddings: true,
        streams: 4,
    };
    let (one, expected, _) = serve(&system(sequential), 1 << 30);
    let (side, answers, _) = serve(&system(parallel), 1 << 30);
    assert_eq!((one.counts.served, side.counts.served), (QUERIES, QUERIES));
    assert_eq!(answers, expected);
    let computing = side.lanes.iter().filter(|lane| lane.name.contains("compute"));
    assert_eq!(computing.count(), 4);

    // With room for some, the others' queries are turned away and those are answered as before.
    let (few, answers, _) = serve(&system(sequential), 40 << 20);
    let loaded = few.tasks.as_ref().unwrap().loaded;
    assert!(loaded > 0 && loaded < TASKS, "{loaded}");
    assert_eq!(few.counts.served + few.counts.rejected, QUERIES);
    assert!(few.counts.rejected > 0 && answers.iter().all(|answer| expected.contains(answer)));
}

#[test]
fn the_registry_refuses_alone_what_the_server_refuses() {
    let mut faulty = system(shared(Batching::Coordinated, 1));
    let registrations = &mut faulty.pool.tasks.as_mut().unwrap().registrations;
    registrations[0].kind = "adaptors".into();
    registrations[1].trained_on = Some(ModelShape {
        hidden: 64,
        ..ModelShape::builtin("tiny").unwrap()
    });
    registrations[2].model = "tinny".into();
    registrations[6].mask_elements = Some(80);
    registrations.push(registration(4, "bit-fit"));
    let (record, _, refused) = serve(&faulty, 1 << 30);
    assert_eq!((record.counts.served, record.counts.rejected), (QUERIES - 16, 16));
    let expected = [
        "task 0: registrations[0].kind: must be one of adapters, mask-bert, diff-pruning, bit-fit, lora, got adaptors; did you mean adapters?",
        "task 1: registrations[1].trained_on: must be a model with the layers of tiny, got tiny",
        "task 2: registrations[2].model: must be one of tiny, got tinny; did you mean tiny?",
        "task 6: registrations[6].mask_elements: must be 393216, the weights of tiny, got 80",
        "task 4: registrations[4].task: must be registered once, got a second registration (it is lora of tiny)",
    ];
    assert_eq!(refused.len(), expected.len(), "{refused:?}");
    for (refused, expected) in refused.iter().zip(expected) {
        assert!(refused.starts_with(expected), "{refused}");
    }
}
