//! Whole runs of tasks on real threads: batching, streams and engines do not change the answers, and what is refused is refused alone.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use tenantry_core::command::TaskFault;
use tenantry_core::log::{Log, replay};
use tenantry_core::policy::coordinated::Batching;
use tenantry_core::policy::pet_header::PoolerActivation;
use tenantry_core::policy::pet_tensors::{HEAD, POOLER};
use tenantry_core::policy::pet_work::PetSizes;
use tenantry_core::server::ServerError;
use tenantry_core::spec::{
    AdmitSpec, BatchSpec, FineTuned, FullModels, HeadTask, Padding, PipelineSpec, PlaceSpec, PlanningSpec, SharedModel,
    StreamsSpec, SwapSpec, SystemSpec, TenantState,
};
use tenantry_core::{ClusterSpec, Ledger, RunRecord, Server, run};
use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{Card, ConcurrentPetRow, DType, ModelShape, PetKind, Stats};
use tenantry_traces::{Entry, Listed, Request, Time};

use super::*;
use crate::cascade::ClassifierConfig;
use crate::files::read_encoder_block;
use crate::machine::RealMachine;
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
    let (record, answers, refused, _) = serve_on(&synthetic_card(), system, memory, &KINDS, &Files::NONE);
    (record, answers, refused)
}

fn new_server(card: &Card, system: &SystemSpec, memory: u64) -> Result<Server, ServerError> {
    let cluster = ClusterSpec {
        gpus: 1,
        gpu_memory_bytes: memory,
        shares_host_memory: false,
        copy_lanes: 1,
        lookup_lanes: 1,
    };
    Server::on_card(card, &cluster, system, TASKS)
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
    // What a real machine said, told to a fresh server, leads to the same commands: the policies depend on nothing else.
    assert_eq!(replay(&mut loaded().0, &log.events), log.commands);
    let record = ledger.close(end, &serving_server, &machine).unwrap();
    machine.into_workers().stop();
    let mut answers = std::mem::take(&mut *answers.lock().unwrap());
    answers.sort_unstable();
    let groups = log.commands.iter().flat_map(|command| &command.groups);
    let streams = groups.map(|group| group.stream + 1).max().unwrap_or(0);
    (record, answers, refused, streams)
}

/// A task whose head makes no numbers: its queries fail, and those that share batches with them are answered as without.
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

/// The rules that choose the number of streams by themselves: one for each mini-batch, and as many as the card's tables make worth it, which are all
/// four of its cores where threads do not slow each other down.
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

/// Biases for which there is never memory: libtorch is asked for more than a process can address.
#[derive(Debug)]
struct Vast;

impl Kind for Vast {
    fn name(&self) -> &'static str {
        PetKind::BitFit.name()
    }

    fn check(&self, parameters: &Reader<'_>, shape: &ModelShape) -> Result<Resident, Misfit> {
        parameters.check(PetKind::BitFit, shape)
    }

    fn load(&self, _: &Reader<'_>, _: &Encoder) -> Result<Box<dyn Operators>, ExecutorError> {
        let _ = Tensor::f_zeros([1 << 48], (tch::Kind::Float, Device::Cpu))?;
        unreachable!("no computer has a pebibyte")
    }

    fn random(&self, _: &ModelShape, _: &PetSizes, _: u64, _: u32) -> Parameters {
        unreachable!("the kind that it stands for makes them up")
    }
}

/// The sizes promise room, and there is none: what libtorch refuses to load is refused alone, and leaves the others' answers as they are.
#[test]
fn a_task_for_which_the_device_has_no_memory_is_refused_alone() {
    static WITH_VAST: [&dyn Kind; 5] = [KINDS[0], KINDS[1], KINDS[2], &Vast, KINDS[4]];
    assert_eq!(KINDS[3].name(), Vast.name());
    let sound = system(shared(Batching::Coordinated, 1));
    let (_, expected, _) = serve(&sound, 1 << 30);
    let (record, answers, refused, _) = serve_on(&synthetic_card(), &sound, 1 << 30, &WITH_VAST, &Files::NONE);
    let of_vast = |answer: &Answer| answer.ticket * 7 % u64::from(TASKS) % 5 == 3;
    let expected: Vec<Answer> = expected.into_iter().filter(|answer| !of_vast(answer)).collect();
    assert_eq!(answers, expected);
    assert_eq!((record.counts.served, record.counts.rejected), (QUERIES - 52, 52));
    let counts = record.tasks.unwrap();
    assert_eq!((counts.loaded, counts.loaded_until_full), (51, 3));
    assert_eq!(counts.refused, [(TaskFault::OutOfMemory, 13)]);
    assert!(counts.by_kind.iter().all(|(kind, ..)| *kind != PetKind::BitFit));
    let why = "task 3: registrations[3]: must fit the memory that there is, got libtorch: ";
    assert!(refused.len() == 1 && refused[0].starts_with(why), "{refused:?}");
    assert!(refused[0].contains("can't allocate memory"), "{refused:?}");
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

fn fixture(name: &str) -> std::path::PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny_classifiers");
    fixtures.join(name)
}

/// Hugging Face's heads, handed in as a task's file, put out what its own classes do (`fixtures/make_tiny_classifiers.py`).
#[test]
fn a_head_over_a_pooler_answers_as_the_reference_does() {
    for (name, [pooler, classifier], activation) in [
        ("bert", ["bert.pooler.dense", "classifier"], PoolerActivation::Tanh),
        (
            "roberta",
            ["classifier.dense", "classifier.out_proj"],
            PoolerActivation::Tanh,
        ),
        ("distilbert", ["pre_classifier", "classifier"], PoolerActivation::Relu),
    ] {
        let folder = fixture(name);
        let shape = ClassifierConfig::read(&folder.join("config.json"), name).unwrap().shape;
        let read = |file: &str| -> BTreeMap<String, Tensor> {
            Tensor::read_safetensors(folder.join(file))
                .unwrap()
                .into_iter()
                .collect()
        };
        let checkpoint = read("model.safetensors");
        let mut parameters = Parameters::default();
        parameters.set_pooler_activation(activation);
        for (theirs, ours) in [(pooler, POOLER), (classifier, HEAD)] {
            for (part, own) in ["weight", "bias"].into_iter().zip(ours) {
                let tensor = &checkpoint[&format!("{theirs}.{part}")];
                let size: Vec<usize> = tensor.size().iter().map(|&size| size as usize).collect();
                let numbers = Vec::<f32>::try_from(tensor.flatten(0, -1)).unwrap();
                parameters.insert(own, Array::floats(&size, &numbers));
            }
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        parameters.save(file.path(), "backbone", "bit-fit").unwrap();
        let (_, _, parameters) = Parameters::read(file.path()).unwrap();
        let classes = parameters.get(HEAD[1]).unwrap().shape[0] as u32;
        let stored = parameters.head(&shape, classes).unwrap().unwrap();
        let head = Head::read(stored).unwrap();
        let heads = Heads::random(&shape, 3, classes, 3, DType::F32, Device::Cpu).unwrap();
        heads.put(1, &head.linear.weight, &head.linear.bias).unwrap();
        let mut poolers = Poolers::default();
        poolers.put(1, head.pooler.unwrap());

        let expected = read("expected.safetensors");
        let whole = |name: &str| Vec::<Vec<i64>>::try_from(&expected[name]).unwrap();
        let lengths = Vec::<i64>::try_from(&expected["lengths"]).unwrap();
        let cut = |mut rows: Vec<Vec<i64>>| {
            rows.iter_mut()
                .zip(&lengths)
                .for_each(|(row, &length)| row.truncate(length as usize));
            rows
        };
        let (ids, segments) = (cut(whole("ids")), cut(whole("segments")));
        let encoder = read_encoder_block(&folder, &shape, DType::F32).unwrap();
        let encoder = encoder.encoder(&shape, 0, Device::Cpu).unwrap();
        let longest = lengths.iter().max().unwrap();
        let input = encoder.input(&ids, *longest as usize).unwrap();
        let input = input.with_segments(&segments).unwrap();
        let hidden = encoder.embed(&input).unwrap();
        let hidden = encoder.layers(hidden, 0..shape.layers as usize, &input, None).unwrap();
        let tenants = vec![1; ids.len()];
        let logits = |poolers: &Poolers| {
            heads
                .forward(&poolers.forward(&hidden, &tenants).unwrap(), &tenants)
                .unwrap()
        };
        let off = |logits: Tensor| (logits - &expected["logits"]).abs().max().double_value(&[]);
        assert!(off(logits(&poolers)) < 2e-5, "{name}: {}", off(logits(&poolers)));
        assert!(off(logits(&Poolers::default())) > 1e-2, "{name}: the pooler matters");
    }
}

/// Two checkpoints of Hugging Face's as shared models, and a file for each task, with a classification layer of its own for six in seven, every other one over a
/// pooler; a second registration of task 5 finds a first one that was refused.
#[test]
fn trained_tasks_are_answered_by_the_models_and_heads_in_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let config = ClassifierConfig::read(&fixture("bert").join("config.json"), "fixture").unwrap();
    let shape = &config.shape;
    let files = Files {
        model: Some(fixture("bert")),
        models: [("second".to_string(), fixture("bert_regression"))].into(),
        ..Files::NONE
    };
    let checkpoint = |path: &Path| {
        let block = read_encoder_block(path, shape, DType::F32).unwrap();
        block.encoder(shape, 0, Device::Cpu).unwrap()
    };
    let shared_models = [checkpoint(&fixture("bert")), checkpoint(&fixture("bert_regression"))];

    let mut trained = system(shared(Batching::Coordinated, 2));
    trained.pool.model = shape.clone();
    let tasks = trained.pool.tasks.as_mut().unwrap();
    (tasks.model, tasks.max_tokens) = ("first".into(), shape.positions);
    tasks.more_models = vec![SharedModel {
        name: "second".into(),
        shape: shape.clone(),
    }];
    let sizes = PetSizes {
        bottleneck: 4,
        rank: 2,
        masked_share: 0.2,
        difference_share: 0.1,
    };
    let mut alone = Vec::new();
    for registration in &mut tasks.registrations {
        let task = registration.task;
        let (model, kind) = (task as usize / 5 % 2, registration.kind.clone());
        registration.model = ["first", "second"][model].into();
        let mut parameters = kind_named(&kind).unwrap().random(shape, &sizes, 11, task);
        let resident = kind_named(&kind)
            .unwrap()
            .check(&Reader::new(&parameters), shape)
            .unwrap();
        alone.push(Alone::of(&shared_models[model], &kind, parameters.clone()));
        if task % 7 > 0 {
            let classes = 1 + task as usize % 7;
            let numbers = |count: usize| {
                let mut numbers = vec![0.0; count];
                fill(&mut weights(13, Part::Head, task.into()), 1.0, &mut numbers);
                numbers
            };
            let width = shape.hidden as usize;
            for (name, size) in HEAD.into_iter().zip([vec![classes, width], vec![classes]]) {
                parameters.insert(name, Array::floats(&size, &numbers(size.iter().product())));
            }
            if task % 2 == 1 {
                for (name, size) in POOLER.into_iter().zip([vec![width, width], vec![width]]) {
                    parameters.insert(name, Array::floats(&size, &numbers(size.iter().product())));
                }
                parameters.set_pooler_activation(PoolerActivation::ALL[task as usize % 3]);
            }
        }
        let path = folder.path().join(format!("{task}.safetensors"));
        parameters.save(&path, &registration.model, &kind).unwrap();
        registration.file = Some(TaskFile {
            path: path.display().to_string(),
            pooled: parameters.get(POOLER[0]).is_some(),
            resident_bytes: Some(4 * (resident.numbers + resident.indices)),
            fault: None,
        });
    }
    let bad = Registration {
        kind: "adaptors".into(),
        ..tasks.registrations[5].clone()
    };
    tasks.registrations.insert(5, bad);

    let random_heads = Heads::random(shape, TASKS, 7, 3, DType::F32, Device::Cpu).unwrap();
    let class_of = |ticket: u64, hidden_of: &dyn Fn(usize, &[i64]) -> Tensor| {
        let task = (ticket * 7 % u64::from(TASKS)) as u32;
        let mut draws = Draws::new(3, Purpose::Tokens).about(ticket);
        let ids: Vec<i64> = (0..1 + ticket % 24)
            .map(|_| draws.below(shape.vocabulary.into()) as i64)
            .collect();
        let hidden = hidden_of(task as usize, &ids).get(0);
        let parameters = Parameters::read(&folder.path().join(format!("{task}.safetensors")))
            .unwrap()
            .2;
        let linear = |[weight, bias]: [&str; 2], hidden: &Tensor| {
            let tensor = |name| parameters.get(name).unwrap().tensor().unwrap();
            tensor(weight).mv(hidden) + tensor(bias)
        };
        let hidden = match (parameters.get(POOLER[0]), task % 3) {
            (None, _) => hidden,
            (Some(_), 0) => linear(POOLER, &hidden).tanh(),
            (Some(_), 1) => linear(POOLER, &hidden).relu(),
            (Some(_), _) => linear(POOLER, &hidden).gelu("none"),
        };
        let logits = match parameters.get(HEAD[0]) {
            Some(_) => linear(HEAD, &hidden),
            None => random_heads.forward(&hidden.view([1, 1, -1]), &[task]).unwrap().get(0),
        };
        logits.argmax(0, false).int64_value(&[]) as u32
    };
    let answers_by = |hidden_of: &dyn Fn(usize, &[i64]) -> Tensor| -> Vec<Answer> {
        (0..QUERIES)
            .filter(|ticket| ticket % 24 < shape.positions.into())
            .map(|ticket| Answer {
                ticket,
                stage: 0,
                class: class_of(ticket, hidden_of),
            })
            .collect()
    };
    let expected = answers_by(&|task, ids| alone[task].run(ids));
    let differ = |other: &[Answer]| other.iter().zip(&expected).filter(|(other, own)| other != own).count();
    let without_tasks = answers_by(&|task, ids| {
        let model = &shared_models[task / 5 % 2];
        let input = model.input(&[ids], ids.len()).unwrap();
        let hidden = model.embed(&input).unwrap();
        model.layers(hidden, 0..2, &input, None).unwrap().get(0)
    });
    assert!(differ(&without_tasks) > 20, "{}", differ(&without_tasks));
    let classes: std::collections::BTreeSet<u32> = expected.iter().map(|answer| answer.class).collect();
    assert_eq!(classes.len(), 7);
    let card = card_with(shape);
    for engine in [
        shared(Batching::Coordinated, 2),
        EngineSpec::Sequential { models: BY_KIND },
        EngineSpec::Parallel {
            models: BY_KIND,
            streams: 2,
        },
    ] {
        trained.pool.tasks.as_mut().unwrap().engine = engine;
        let (record, answers, refused, _) = serve_on(&card, &trained, 1 << 30, &KINDS, &files);
        assert_eq!(record.counts.served, expected.len() as u64);
        assert_eq!(answers, expected, "{engine:?}");
        assert_eq!(refused.len(), 1, "{refused:?}");
    }
    // Another checkpoint answers otherwise.
    let swapped = Files {
        model: Some(fixture("bert_regression")),
        ..files
    };
    let (_, answers, ..) = serve_on(&card, &trained, 1 << 30, &KINDS, &swapped);
    assert!(differ(&answers) > 20, "{}", differ(&answers));
}

/// Likewise of full models, one after another and side by side.
#[test]
fn a_full_model_for_which_the_device_has_no_memory_is_refused_alone() {
    let vast = ModelShape {
        name: "vast".into(),
        layers: 65_535,
        hidden: 1024,
        intermediate: 1 << 20,
        ..ModelShape::builtin("tiny").unwrap()
    };
    let card = card_with(&vast);
    for engine in [
        EngineSpec::Sequential { models: BY_KIND },
        EngineSpec::Parallel {
            models: BY_KIND,
            streams: 4,
        },
    ] {
        let mut system = system(engine);
        let (_, expected, _) = serve(&system, 1 << 30);
        let tasks = system.pool.tasks.as_mut().unwrap();
        tasks.more_models = vec![SharedModel {
            name: "vast".into(),
            shape: vast.clone(),
        }];
        tasks.registrations[5].model = "vast".into();
        // More than a process can address, and all of it promised.
        let (record, answers, refused, _) = serve_on(&card, &system, 1 << 60, &KINDS, &Files::NONE);
        let other = |answer: &Answer| answer.ticket * 7 % u64::from(TASKS) != 5;
        let expected: Vec<Answer> = expected.into_iter().filter(other).collect();
        assert_eq!(answers, expected);
        assert_eq!((record.counts.served, record.counts.rejected), (QUERIES - 4, 4));
        assert_eq!(record.tasks.unwrap().refused, [(TaskFault::OutOfMemory, 1)]);
        assert!(refused[0].starts_with("task 5: registrations[5]: must fit the memory that there is, got "));
    }
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

/// A task for which there was no memory comes again as another that fits: that one answers, in every engine.
#[test]
fn what_is_served_is_the_registration_that_was_loaded() {
    let large = ModelShape {
        name: "large".into(),
        layers: 1 << 12,
        ..ModelShape::builtin("tiny").unwrap()
    };
    let card = card_with(&large);
    let engines = [
        shared(Batching::Coordinated, 1),
        EngineSpec::Sequential { models: BY_KIND },
    ];
    for engine in engines {
        let of = |registrations: &[Registration]| {
            let mut system = system(engine);
            let tasks = system.pool.tasks.as_mut().unwrap();
            if engine.full_models().is_some() {
                tasks.more_models = vec![SharedModel {
                    name: "large".into(),
                    shape: large.clone(),
                }];
            }
            tasks.registrations = registrations.to_vec();
            system
        };
        let second = registration(0, "bit-fit");
        let mut first = registration(0, "mask-bert");
        if engine.full_models().is_some() {
            first.model = "large".into();
        }
        let both = of(&[first, second.clone()]);
        let loads_second = |memory: &u64| {
            let server = new_server(&card, &both, *memory);
            server.is_ok_and(|server| matches!(&server, Server::Tasks(tasks) if tasks.loaded_by(0) == Some(1)))
        };
        // There is room for one of them somewhere, whatever activations take.
        let memory = (1 << 20..64 << 20).step_by(8 << 10).find(loads_second);
        let memory = memory.expect("the second needs less");
        let (record, answers, refused, _) = serve_on(&card, &both, memory, &KINDS, &Files::NONE);
        assert_eq!(record.tasks.unwrap().refused, [(TaskFault::OutOfMemory, 1)]);
        assert_eq!((answers.len(), refused.len()), (4, 1), "{refused:?}");
        assert_eq!(
            answers,
            serve_on(&card, &of(&[second]), 1 << 30, &KINDS, &Files::NONE).1
        );
    }
}
