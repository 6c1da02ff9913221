//! Trained models serve labelled texts as a cascade: what is executed is what was profiled, so that the virtual
//! machine, which reads the saved outputs, returns the same requests from the same models with as many right answers.

mod levels;
mod profiles;
mod regressions;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use tch::{Device, Tensor};
use tenantry_cascade::Reroute;
use tenantry_cascade::ensemble::{average, likeliest, weights_of_route};
use tenantry_core::RunRecord;
use tenantry_core::answers::{Answers, described};
use tenantry_core::event::Event;
use tenantry_core::op::Layers;
use tenantry_core::policy::scale::TargetTrackingSpec;
use tenantry_core::run::Observer;
use tenantry_core::spec::{
    AdmitSpec, AnswerJoin, BatchSpec, ClusterSpec, DispatchSpec, OrderSpec, PlaceSpec, PoolSpec, RouteSpec, ScaleRule,
    ScaleSpec, StageSpec, SystemSpec,
};
use tenantry_core::testing;
use tenantry_executor::cascade::{
    Answer, CalibrationMethod, ClassifierConfig, ExampleFiles, ExampleModel, ExampleSize, Label, PassHeard,
    ProfileItems, ProfileRoute, TextModel, hash_items, make_example, profile, read_items, write_items,
};
use tenantry_executor::machine::execute::{self, ExecuteError, execute};
use tenantry_executor::profiler::{Ops, Plan, Progress, Served, ServedRoute, Suite};
use tenantry_executor::{describe_cpu, use_one_core};
use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{Card, DType, ModelShape, Stats, TextPassRow};
use tenantry_sim::simulate;
use tenantry_traces::outcome::{AnswersSpec, ProfiledModels};
use tenantry_traces::{Duration, Entry, Listed, Request, Time};

const SEED: u64 = 9;
const REQUESTS: u64 = 150;

/// The example, trained for seconds, and what was profiled of it.
struct Trained {
    _folder: tempfile::TempDir,
    files: ExampleFiles,
    answers: AnswersSpec,
    profiled: ProfiledModels,
}

const MODELS: [(&str, [u32; 3]); 3] = [("small", [1, 16, 2]), ("middle", [1, 24, 2]), ("large", [2, 32, 4])];

/// The first and the last of the models, or all; profiled on what a route leaves too.
fn trained(levels: usize, routes: &[&[(&str, f64)]]) -> Trained {
    use_one_core();
    let folder = tempfile::tempdir().unwrap();
    let files = match levels {
        2 => trained_once(folder.path()),
        _ => train(folder.path(), levels),
    };
    // Both are served.
    let method = match levels {
        3 => CalibrationMethod::Dirichlet,
        _ => CalibrationMethod::Temperature,
    };
    profiled(folder, files, method, routes)
}

/// The two models that most tests ask for, written there; they are trained for the first of these.
fn trained_once(folder: &Path) -> ExampleFiles {
    static TRAINED: OnceLock<Vec<(PathBuf, Vec<u8>)>> = OnceLock::new();
    let trained = TRAINED.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let files = train(folder.path(), 2);
        let of_model =
            |model: &PathBuf| ["config.json", "model.safetensors", "tokenizer.json"].map(|name| model.join(name));
        let files = files.models.iter().flat_map(of_model).chain([files.profile, files.test]);
        let read = |file: PathBuf| {
            let bytes = std::fs::read(&file).unwrap();
            (file.strip_prefix(folder.path()).unwrap().to_owned(), bytes)
        };
        files.map(read).collect()
    });
    for (file, bytes) in trained {
        let file = folder.join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, bytes).unwrap();
    }
    ExampleFiles {
        models: ["small", "large"].map(|name| folder.join(name)).into(),
        profile: folder.join("profile.csv"),
        test: folder.join("test.csv"),
    }
}

fn train(folder: &Path, levels: usize) -> ExampleFiles {
    let model = |(name, [layers, hidden, heads]): (&'static str, [u32; 3])| ExampleModel {
        name,
        layers,
        hidden,
        heads,
        epochs: 3,
    };
    let size = ExampleSize {
        train_items: 1600,
        held_out_items: 120,
        models: MODELS.into_iter().filter(|(name, _)| levels == 3 || *name != "middle").map(model).collect(),
    };
    make_example(
        folder,
        &size,
        7,
        Device::Cpu,
        &AtomicBool::new(false),
        &mut |_, _, _| {},
    )
    .unwrap()
}

/// What these models put out for the test items, saved in the folder.
fn profiled(
    folder: tempfile::TempDir,
    files: ExampleFiles,
    method: CalibrationMethod,
    routes: &[&[(&str, f64)]],
) -> Trained {
    let read = |folder| TextModel::read(folder, DType::F32, Device::Cpu).unwrap();
    let models: Vec<TextModel> = files.models.iter().map(|folder| read(folder)).collect();
    let named = |&(name, alpha): &(&str, f64)| (name.to_owned(), alpha);
    let route = |route: &&[(&str, f64)]| ProfileRoute {
        levels: route.iter().map(named).collect(),
    };
    let routes: Vec<ProfileRoute> = routes.iter().map(route).collect();
    let asked = ProfileItems {
        items: &read_items(&files.test, models[0].answer()).unwrap(),
        path: &files.test,
        hash: &hash_items(&files.test).unwrap(),
        method,
        tolerance: 0.5,
        calibrations: None,
        routes: &routes,
        kept: &[],
    };
    let heard = PassHeard {
        begins: &mut |_, _| {},
        ends: &mut |_| Ok(()),
        fits: &mut |_| {},
    };
    let profiled = folder.path().join("profiled");
    std::fs::create_dir(&profiled).unwrap();
    for model in profile(&models, asked, &AtomicBool::new(false), heard).unwrap() {
        for outputs in std::iter::once(&model.whole).chain(&model.pruned) {
            outputs.write(&profiled.join(outputs.file_name())).unwrap();
        }
    }
    Trained {
        files,
        profiled: ProfiledModels::read(&profiled).unwrap(),
        answers: AnswersSpec::Profiled(profiled),
        _folder: folder,
    }
}

fn shape(folder: &Path, name: &str) -> ModelShape {
    ClassifierConfig::read(&folder.join("config.json"), name).unwrap().shape
}

fn system(trained: &Trained, names: &[&str], reroute: Reroute, alpha: Option<f64>, join: AnswerJoin) -> SystemSpec {
    pruning(trained, names, reroute, &[alpha, alpha], join)
}

fn pruning(
    trained: &Trained,
    names: &[&str],
    reroute: Reroute,
    alphas: &[Option<f64>],
    join: AnswerJoin,
) -> SystemSpec {
    let stage = |(index, name): (usize, &&str)| {
        let folder = trained.files.models.iter().find(|folder| folder.ends_with(name));
        let model = shape(folder.unwrap(), name);
        StageSpec {
            layers: Layers::all(model.layers),
            pool: PoolSpec {
                model,
                batch: BatchSpec::SizeOrTimeout {
                    max_size: 4,
                    max_wait: Duration::ZERO,
                },
                ..testing::pool(name)
            },
            gpus: vec![0],
            dispatch: (index + 1 < names.len()).then(|| DispatchSpec {
                reroute,
                prune_alpha: alphas[index],
            }),
            scale: None,
            packing: None,
        }
    };
    let stages: Vec<StageSpec> = names.iter().enumerate().map(stage).collect();
    SystemSpec {
        name: names.join("-"),
        admit: AdmitSpec::Open,
        pool: stages[0].pool.clone(),
        route: Some(RouteSpec {
            stages,
            order: OrderSpec::OneByOne,
            join,
            seed: SEED,
        }),
    }
}

fn entries() -> Vec<Entry> {
    every(Duration::from_micros(100))
}

fn every(gap: Duration) -> Vec<Entry> {
    let entry = |ticket: u64| {
        Entry::Request(Request {
            ticket,
            tenant: 0,
            arrival: Time(ticket * gap.0),
            // Texts have their own lengths.
            input_tokens: 1,
            output_tokens: 0,
            class: 0,
        })
    };
    (0..REQUESTS).map(entry).collect()
}

fn cluster() -> ClusterSpec {
    cards(1)
}

fn cards(gpus: u32) -> ClusterSpec {
    ClusterSpec {
        copy_lanes: 1,
        ..testing::cluster(gpus, 1 << 30)
    }
}

/// The synthetic card, on which both models cost what its small one does.
fn card() -> Card {
    let mut card = synthetic_card();
    for (name, _) in MODELS {
        macro_rules! renamed {
            ($table:ident) => {
                let rows: Vec<_> = card.tables.$table.iter().filter(|row| row.model == "tiny").cloned().collect();
                card.tables.$table.extend(rows.into_iter().map(|mut row| {
                    row.model = name.into();
                    row
                }));
            };
        }
        renamed!(encoder_layer);
        renamed!(embedding);
        renamed!(head);
    }
    card
}

fn simulated(system: &SystemSpec, answers: &AnswersSpec) -> RunRecord {
    simulated_on(&card(), system, answers)
}

fn simulated_on(card: &Card, system: &SystemSpec, answers: &AnswersSpec) -> RunRecord {
    let spec = tenantry_sim::Run {
        answers: Some((answers, SEED)),
        ..tenantry_sim::Run::new(card, cluster(), system, 1)
    };
    let mut heard = Heard(Vec::new());
    let done = simulate(&spec, &mut Listed::new(entries()), Default::default(), Some(&mut heard));
    let lengths = Answers::of_system(system, Some((answers, SEED))).unwrap();
    let lengths = lengths.unwrap().text_lengths().unwrap();
    let of_texts: Vec<u32> = (0..REQUESTS).map(|ticket| lengths.of(ticket, 0)).collect();
    assert_eq!(heard.0, of_texts, "all are told what the first model reads");
    done.unwrap().record
}

/// How long requests are said to be, in the order of their arrivals.
struct Heard(Vec<u32>);

impl Observer for Heard {
    fn event(&mut self, _: Time, event: &Event<'_>) {
        if let Event::Arrived(request) = event {
            self.0.push(request.input_tokens);
        }
    }
}

fn executed(system: &SystemSpec, answers: &AnswersSpec) -> Result<execute::Executed, ExecuteError> {
    executed_on(cluster(), system, answers, entries())
}

fn executed_on(
    cluster: ClusterSpec,
    system: &SystemSpec,
    answers: &AnswersSpec,
    entries: Vec<Entry>,
) -> Result<execute::Executed, ExecuteError> {
    let card = card();
    let spec = execute::Run {
        seed: SEED,
        outcomes: Some((answers, SEED)),
        ..execute::Run::new(Device::Cpu, &card, cluster, system, 1)
    };
    execute(&spec, &mut Listed::new(entries), Default::default(), ())
}

#[test]
fn what_models_answer_under_load_is_what_was_saved_of_them() {
    let trained = trained(2, &[]);
    let Trained { answers, profiled, .. } = &trained;
    let reroute = Reroute::new(0.6, 10.0).unwrap();
    let both = ["small", "large"];
    // The degree at which most words go: profiles go on to the first at which the large model loses too much.
    let most = profiled.find("large").unwrap().prunings().last().map(|steps| steps[0].alpha);
    let average = AnswerJoin::Average(vec![0.4, 0.6]);
    let mut tokens = Vec::new();
    for (names, alpha, join) in [
        (&both[..1], None, AnswerJoin::Last),
        (&both[1..], None, AnswerJoin::Last),
        (&both[..], None, AnswerJoin::Last),
        (&both[..], most, AnswerJoin::Last),
        (&both[..], most, average),
    ] {
        let system = system(&trained, names, reroute, alpha, join);
        let what = format!("{names:?}, pruned {alpha:?}");
        let (read, returned) = served_alike(&system, answers, &what);
        assert!(returned.iter().all(|&requests| requests > 0), "{what}: {returned:?}");
        tokens.push(read);
    }
    // The two models' tokenizers make different numbers of tokens of the same texts, and pruning leaves fewer.
    assert_ne!(tokens[0], tokens[1]);
    assert!(tokens[3] < tokens[2] && tokens[3] == tokens[4], "{tokens:?}");

    // One model alone is right as often as it was when it was profiled, item by item.
    let alone = system(&trained, &both[..1], reroute, None, AnswerJoin::Last);
    let real = executed(&alone, answers).unwrap();
    let small = profiled.find("small").unwrap();
    let draws = tenantry_traces::outcome::ItemDraws::new(SEED, profiled.labels().len());
    for answer in &real.answers {
        let saved = &small.whole.softmax[draws.of(answer.ticket)];
        assert_eq!(
            answer.class,
            u32::from(saved[1] > saved[0]),
            "request {}",
            answer.ticket
        );
    }

    // Onto a card that comes the model is loaded with its head: every other request is answered there, and as on the
    // first.
    let mut scaled = alone;
    let stage = &mut scaled.route.as_mut().unwrap().stages[0];
    stage.gpus = vec![0, 1];
    stage.pool.place = PlaceSpec::RoundRobin;
    stage.scale = Some(ScaleSpec {
        cards_at_start: 1,
        start_up: Duration::ZERO,
        // No request is so fast, so that a card comes as soon as anybody asks.
        rule: ScaleRule::TargetTracking(TargetTrackingSpec {
            slo: Duration(1),
            percentile: 98,
            add_ppm: 950_000,
            release_ppm: 500_000,
            recent: Duration::from_secs(10),
            period: Duration::from_secs(60),
            settle: Duration::from_secs(60),
            cards_min: 1,
            cards_max: 2,
        }),
    });
    let on_two = executed_on(cards(2), &scaled, answers, every(Duration::from_millis(20))).unwrap();
    assert_eq!(on_two.record.scaling.unwrap().added, 1);
    let second = on_two.record.lanes.iter().find(|lane| lane.name == "gpu1/compute0");
    assert!(second.unwrap().busy > Duration::ZERO);
    assert_eq!(on_two.answers, real.answers);
}

/// What is simulated is what is executed: returned by the same models, with as many right answers, and as many tokens
/// read. How many these are, and how many requests each stage returned.
fn served_alike(system: &SystemSpec, answers: &AnswersSpec, what: &str) -> (u64, Vec<u64>) {
    let (simulated, executed) = (simulated(system, answers), executed(system, answers).unwrap());
    let (virtual_one, real) = (simulated.cascade.unwrap(), executed.record.cascade.unwrap());
    assert_eq!(real.returned, virtual_one.returned, "{what}");
    assert_eq!(
        (&real.judged, &real.right),
        (&virtual_one.judged, &virtual_one.right),
        "{what}"
    );
    assert_eq!(
        executed.record.input_tokens, simulated.input_tokens,
        "{what}: texts have their lengths"
    );
    assert_eq!(real.judged.iter().sum::<u64>(), REQUESTS, "{what}");
    // A class for each pass, from the real heads.
    let asked: u64 = real.stages.iter().map(|stage| stage.answered).sum();
    assert_eq!(executed.answers.len() as u64, asked, "{what}");
    (executed.record.input_tokens, real.returned)
}

#[test]
fn what_does_not_go_together_is_refused() {
    let trained = trained(2, &[]);
    let answers = &trained.answers;
    let reroute = Reroute::new(0.7, 10.0).unwrap();
    let both = || system(&trained, &["small", "large"], reroute, None, AnswerJoin::Last);
    let refused = |change: &dyn Fn(&mut StageSpec)| {
        let mut system = both();
        change(&mut system.route.as_mut().unwrap().stages[1]);
        executed(&system, answers).unwrap_err().to_string()
    };
    let error = refused(&|stage| stage.pool.model.hidden = 64);
    assert!(
        error.starts_with("models.large: must be { layers: 2, hidden: 32, "),
        "{error}"
    );
    assert!(
        error.contains("large/config.json has it, got { layers: 2, hidden: 64, "),
        "{error}"
    );
    let error = refused(&|stage| stage.pool.classes = 3);
    assert_eq!(error, "stage large: classes: must be 2, got 3");
    let error = refused(&|stage| stage.pool.name = "larger".into());
    assert!(
        error.ends_with("must have the route's model larger, got large, small"),
        "{error}"
    );
    let error = refused(&|stage| stage.layers = Layers { first: 1, count: 1 });
    assert_eq!(
        error,
        "stage large: layers: must be all of a trained model's, got a part of them"
    );

    // Items that changed since are not what was profiled.
    let mut text = std::fs::read_to_string(&trained.files.test).unwrap();
    text.push_str("one more,positive\n");
    std::fs::write(&trained.files.test, text).unwrap();
    let error = executed(&both(), answers).unwrap_err().to_string();
    assert!(
        error.ends_with("test.csv: items: must be those that small was profiled on, got others")
            || error.ends_with("test.csv: items: must be those that large was profiled on, got others"),
        "{error}"
    );

    // So are weights that changed since, though name, shape and classes are the same; and what is not there any more is
    // told by who was there.
    let weights = trained.files.models[1].join("model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&weights, bytes).unwrap();
    let error = executed(&both(), answers).unwrap_err().to_string();
    assert!(
        error.contains("large: config.json, model.safetensors, tokenizer.json: must be those that ")
            && error.contains("profiled/large.safetensors is of (BLAKE3 "),
        "{error}"
    );
    let system = both();
    std::fs::remove_dir_all(&trained.files.models[1]).unwrap();
    let error = executed(&system, answers).unwrap_err().to_string();
    assert!(
        error.contains("profiled/large.safetensors: folder: must be where it was when it was profiled"),
        "{error}"
    );
}

/// Weights that half precision holds, but not what they are summed up to: the profile, in single precision, does not
/// show it.
#[test]
fn answers_that_are_no_numbers_fail_their_requests() {
    let folder = tempfile::tempdir().unwrap();
    let trained = trained(2, &[]);
    let model = trained.files.models.iter().find(|model| model.ends_with("small")).unwrap();
    let weights = model.join("model.safetensors");
    let mut tensors = Tensor::read_safetensors(&weights).unwrap();
    for (name, tensor) in &mut tensors {
        // Of the pooler's too, so that what it puts out is near one.
        if ["classifier.weight", "pooler.dense.weight"].iter().any(|end| name.ends_with(end)) {
            *tensor = &*tensor * (6e4 / tensor.abs().max().double_value(&[]));
        }
    }
    Tensor::write_safetensors(&tensors, &weights).unwrap();
    let trained = profiled(folder, trained.files.clone(), CalibrationMethod::Temperature, &[]);
    let reroute = Reroute::new(0.6, 10.0).unwrap();
    let mut alone = system(&trained, &["small"], reroute, None, AnswerJoin::Last);
    let served = |system: &SystemSpec| {
        let real = executed(system, &trained.answers).unwrap();
        let counts = real.record.counts;
        assert_eq!(real.answers.len() as u64, counts.served);
        (counts.served, counts.failed)
    };
    assert_eq!(served(&alone), (REQUESTS, 0));
    alone.route.as_mut().unwrap().stages[0].pool.dtype = DType::F16;
    let (answered, failed) = served(&alone);
    assert!(failed > 0 && answered + failed == REQUESTS, "{answered} and {failed}");
}
