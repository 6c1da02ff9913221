//! Tasks, models and heads from files.

use super::*;

fn fixture(name: &str) -> std::path::PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny_classifiers");
    fixtures.join(name)
}

/// Hugging Face's heads, handed in as a task's file, put out what its own classes do
/// (`fixtures/make_tiny_classifiers.py`).
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
            Tensor::read_safetensors(folder.join(file)).unwrap().into_iter().collect()
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
            rows.iter_mut().zip(&lengths).for_each(|(row, &length)| row.truncate(length as usize));
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
        let logits = |poolers: &Poolers| heads.forward(&poolers.forward(&hidden, &tenants).unwrap(), &tenants).unwrap();
        let off = |logits: Tensor| (logits - &expected["logits"]).abs().max().double_value(&[]);
        assert!(off(logits(&poolers)) < 2e-5, "{name}: {}", off(logits(&poolers)));
        assert!(off(logits(&Poolers::default())) > 1e-2, "{name}: the pooler matters");
    }
}

/// Two checkpoints of Hugging Face's as shared models, and a file for each task, with a classification layer of its own
/// for six in seven, every other one over a pooler; a second registration of task 5 finds a first one that was refused.
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
        let resident = kind_named(&kind).unwrap().check(&Reader::new(&parameters), shape).unwrap();
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
        let ids: Vec<i64> = (0..1 + ticket % 24).map(|_| draws.below(shape.vocabulary.into()) as i64).collect();
        let hidden = hidden_of(task as usize, &ids).get(0);
        let parameters = Parameters::read(&folder.path().join(format!("{task}.safetensors"))).unwrap().2;
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
