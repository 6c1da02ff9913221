//! Whole runs of tasks on real threads: batching, streams and engines do not change the answers, and what is refused is
//! refused alone.

mod refused;
mod trained;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use tenantry_core::command::TaskFault;
use tenantry_core::log::{Log, replay};
use tenantry_core::pet::header::PoolerActivation;
use tenantry_core::pet::tensors::{HEAD, POOLER};
use tenantry_core::pet::work::PetSizes;
use tenantry_core::policy::coordinated::Batching;
use tenantry_core::server::ServerError;
use tenantry_core::spec::{FineTuned, FullModels, PlanningSpec, SharedModel, StreamsSpec, SystemSpec};
use tenantry_core::testing;
use tenantry_core::{Ledger, RunRecord, Server, run};
use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{Card, ConcurrentPetRow, DType, ModelShape, PetKind, Stats};
use tenantry_traces::{Entry, Listed, Request, Time};

use super::*;
use crate::cascade::ClassifierConfig;
use crate::files::read_encoder_block;
use crate::machine::RealMachine;
use crate::machine::serving::Answer;
use crate::machine::threads::Threads;
use crate::pet::tests::Alone;
use crate::pet::{Array, KINDS, Misfit, Operators, Parameters, Reader, Resident, kind_named};
use crate::random::{Part, fill, weights};

const TASKS: u32 = 64;
const QUERIES: u64 = 256;

const BY_KIND: FullModels = FullModels {
    own_embeddings: true,
    fine_tuned: FineTuned::ByKind,
};

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
    testing::system(PoolSpec {
        classes: 7,
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
        ..testing::pool("pool")
    })
}

fn shared(batching: Batching, streams: u32) -> EngineSpec {
    EngineSpec::Shared {
        batching,
        streams: StreamsSpec::Fixed { count: streams },
    }
}

/// Runs a pool of queries.
fn serve(system: &SystemSpec, memory: u64) -> (RunRecord, Vec<Answer>, Vec<String>) {
    let (record, answers, refused, _) = serve_on(&synthetic_card(), system, memory, &KINDS, &Files::NONE);
    (record, answers, refused)
}

fn new_server(card: &Card, system: &SystemSpec, memory: u64) -> Result<Server, ServerError> {
    Server::on_card(card, &testing::cluster(1, memory), system, TASKS)
}

/// The same on another card, of tasks of these kinds on models from files; and the most streams that a batch had.
fn serve_on(
    card: &Card,
    system: &SystemSpec,
    memory: u64,
    kinds: &'static [&'static dyn Kind],
    files: &Files,
) -> (RunRecord, Vec<Answer>, Vec<String>, u16) {
    serve_prepared(card, system, memory, (kinds, files), |_| {})
}

/// The same, with parameters that are changed before the first query.
fn serve_prepared(
    card: &Card,
    system: &SystemSpec,
    memory: u64,
    (kinds, files): (&'static [&'static dyn Kind], &Files),
    prepare: impl Fn(&TaskServing),
) -> (RunRecord, Vec<Answer>, Vec<String>, u16) {
    let loaded = || {
        let mut server = new_server(card, system, memory).unwrap();
        let Server::Tasks(tasks) = &mut server else {
            unreachable!("it has tasks")
        };
        let spec = system.pool.tasks.as_ref().unwrap();
        let provision = TaskProvision {
            tenants: TASKS,
            seed: 3,
            device: Device::Cpu,
            max_bytes: memory,
            kinds,
            files: files.clone(),
            interrupt: Arc::default(),
        };
        let serving = TaskServing::new(&system.pool, spec, tasks, provision).unwrap();
        let refused = tasks.refusals().to_vec();
        (server, serving, refused)
    };
    let (mut serving_server, serving, refused) = loaded();
    prepare(&serving);
    let topology = serving_server.topology().clone();
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
    // What a real machine said, told to a fresh server, leads to the same commands: the policies depend on nothing
    // else.
    assert_eq!(replay(&mut loaded().0, &log.events), log.commands);
    let record = ledger.close(end, &serving_server, &machine).unwrap();
    machine.into_workers().stop();
    let mut answers = std::mem::take(&mut *answers.lock().unwrap());
    answers.sort_unstable();
    let groups = log.commands.iter().flat_map(|command| &command.groups);
    let streams = groups.map(|group| group.stream + 1).max().unwrap_or(0);
    (record, answers, refused, streams)
}

/// A task whose head makes no numbers: its queries fail, and those that share batches with them are answered as
/// without.
#[test]
fn only_the_task_without_finite_logits_fails() {
    let system = system(shared(Batching::Fixed { size: 64 }, 1));
    let (_, mut answers, _) = serve(&system, 1 << 30);
    let (record, some, ..) = serve_prepared(&synthetic_card(), &system, 1 << 30, (&KINDS, &Files::NONE), |serving| {
        let (_, heads) = &serving.models[0];
        let hidden = i64::from(system.pool.model.hidden);
        let broken = Tensor::full([7, hidden], f64::NAN, (tch::Kind::Float, Device::Cpu));
        heads.put(5, &broken, &broken.select(1, 0)).unwrap();
    });
    let of_5 = |ticket: u64| ticket * 7 % u64::from(TASKS) == 5;
    let failed = (0..QUERIES).filter(|&ticket| of_5(ticket)).count() as u64;
    assert_eq!((record.counts.failed, record.counts.served), (failed, QUERIES - failed));
    assert_eq!(record.failed.get(&FailureReason::ComputeFailed), Some(&failed));
    answers.retain(|answer| !of_5(answer.ticket));
    assert_eq!(some, answers);
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

/// The rules that choose the number of streams by themselves: one for each mini-batch, and as many as the card's tables
/// make worth it, which are all four of its cores where threads do not slow each other down.
#[test]
fn a_stream_for_each_task_and_as_many_as_the_profile_says_do_not_change_the_answers() {
    let mut card = synthetic_card();
    for (streams, batch, tokens) in [(1, 1, 16), (1, 16, 16), (8, 1, 16), (8, 16, 16)] {
        card.tables.concurrent_pet.push(ConcurrentPetRow {
            model: "tiny".into(),
            dtype: DType::F32,
            streams,
            batch,
            tokens,
            stats: Stats::exact(100.0),
        });
    }
    let (_, expected, _) = serve(&system(shared(Batching::Coordinated, 1)), 1 << 30);
    let of = |card: &Card, streams| {
        let engine = EngineSpec::Shared {
            batching: Batching::Coordinated,
            streams,
        };
        serve_on(card, &system(engine), 1 << 30, &KINDS, &Files::NONE)
    };
    let (one_each, answers, _, streams) = of(&card, StreamsSpec::OneEach);
    assert_eq!(answers, expected);
    let groups = one_each.tasks.as_ref().unwrap().groups;
    assert!(
        streams > 8 && u64::from(streams) >= groups / one_each.batches,
        "{streams} for {groups}"
    );
    let (_, answers, _, streams) = of(&card, StreamsSpec::ByProfile { many: 32 });
    assert_eq!(answers, expected);
    assert_eq!(streams, 4);
    // A card whose hand-overs cost more than they gain keeps to one.
    let (.., streams) = of(&synthetic_card(), StreamsSpec::ByProfile { many: 32 });
    assert_eq!(streams, 1);
}

/// Three models, two of them of one shape: what a task computes depends on its own model alone, and models of one shape
/// have different weights.
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
    let sequential = EngineSpec::Sequential { models: BY_KIND };
    let parallel = EngineSpec::Parallel {
        models: BY_KIND,
        streams: 4,
    };
    let (one, expected, _) = serve(&system(sequential), 1 << 30);
    let (side, answers, _) = serve(&system(parallel), 1 << 30);
    assert_eq!((one.counts.served, side.counts.served), (QUERIES, QUERIES));
    assert_eq!(answers, expected);
    // Both serve the very tasks that they are compared with.
    assert_eq!(serve(&system(shared(Batching::Coordinated, 1)), 1 << 30).1, expected);
    // With one embedding for all as well.
    let models = FullModels {
        own_embeddings: false,
        ..BY_KIND
    };
    assert_eq!(serve(&system(EngineSpec::Sequential { models }), 1 << 30).1, expected);
    let computing = side.lanes.iter().filter(|lane| lane.name.contains("compute"));
    assert_eq!(computing.count(), 4);

    // With room for some, the others' queries are turned away and those are answered as before.
    for engine in [sequential, parallel] {
        let (few, answers, refused) = serve(&system(engine), 80 << 20);
        let loaded = few.tasks.as_ref().unwrap().loaded;
        assert!(loaded > 1 && loaded < TASKS, "{loaded}");
        let each = QUERIES / u64::from(TASKS);
        assert_eq!(few.counts.served, each * u64::from(loaded));
        assert_eq!(few.counts.rejected, QUERIES - few.counts.served);
        assert!(answers.iter().all(|answer| expected.contains(answer)));
        assert_eq!(refused.len(), 1);
        assert!(refused[0].contains(": must fit the "), "{refused:?}");
    }
}

/// A card that knows another model too, which costs as much as `tiny`.
fn card_with(shape: &ModelShape) -> Card {
    let mut card = synthetic_card();
    card.models.push(shape.clone());
    let tables = &mut card.tables;
    for mut row in tables.embedding.clone() {
        row.model.clone_from(&shape.name);
        tables.embedding.push(row);
    }
    for mut row in tables.encoder_layer.clone() {
        row.model.clone_from(&shape.name);
        tables.encoder_layer.push(row);
    }
    for mut row in tables.head.clone() {
        row.model.clone_from(&shape.name);
        tables.head.push(row);
    }
    for mut row in tables.pet.clone() {
        row.model.clone_from(&shape.name);
        tables.pet.push(row);
    }
    card
}
