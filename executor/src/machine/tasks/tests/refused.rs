//! What is refused is refused alone, and by both sides alike.

use super::*;

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

/// The sizes promise room, and there is none: what libtorch refuses to load is refused alone, and leaves the others'
/// answers as they are.
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
        "task 0: registrations[0].kind: must be one of adapters, mask-bert, diff-pruning, bit-fit, lora, got adaptors; \
         did you mean adapters?",
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
