//! Tasks that are registered, and those that are refused.

use super::*;

#[test]
fn the_core_counts_the_bytes_that_are_resident() {
    let shape = ModelShape::builtin("tiny").unwrap();
    let mut registry = Registry::new(&KINDS, u64::MAX);
    registry
        .add_model(
            &shape.name,
            Encoder::random(&shape, 7, DType::F32, Device::Cpu).unwrap(),
        )
        .unwrap();
    for (task, kind) in PetKind::ALL.iter().enumerate() {
        let parameters = kind_named(kind.name()).unwrap().random(&shape, &PetSizes::PAPER, 1, 0);
        let compressed = parameters.bytes();
        registry.register(task as u32, "tiny", kind.name(), parameters).unwrap();
        let (resident, stored) = registry.task_bytes(task as u32).unwrap();
        assert_eq!(resident, resident_bytes(*kind, &shape, &PetSizes::PAPER), "{kind}");
        assert_eq!(stored, compressed);
        if *kind == PetKind::MaskBert {
            // A bit for each weight: 12 · hidden² a layer.
            assert_eq!(stored, 2 * 12 * 128 * 128 / 8);
            assert!(resident > stored);
        } else {
            assert_eq!(resident, stored, "{kind} is stored as it is computed");
        }
    }
}

#[test]
fn what_was_saved_is_registered_from_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut registry = registry(0);
    for (task, kind) in KINDS.iter().enumerate() {
        let path = folder.path().join(format!("{}.safetensors", kind.name()));
        let parameters = random(kind.name(), task as u32);
        parameters.save(&path, "small", kind.name()).unwrap();
        let read = Parameters::read(&path).unwrap();
        assert_eq!(read, ("small".to_string(), kind.name().to_string(), parameters));
        registry.register_file(task as u32, &path).unwrap();
        assert_eq!(
            registry.triplet(task as u32).unwrap().to_string(),
            format!("{} of small", kind.name())
        );
    }
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        5,
        "no partial files are left"
    );
    // Another program says LoRA's scale beside its factors, and an activation that nobody computes.
    let path = folder.path().join("lora.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    let foreign = |kind: &str, [key, value]: [&str; 2]| {
        let entries = [("shared_model", "small"), ("kind", kind), (key, value)];
        let header = entries.map(|(key, value)| (key.to_string(), value.to_string()));
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap().tensors();
        let file = safetensors::serialize(tensors, Some(header.into())).unwrap();
        std::fs::write(folder.path().join("foreign"), file).unwrap();
        Parameters::read(&folder.path().join("foreign"))
    };
    let (plain, (.., scaled)) = (
        Parameters::read(&path).unwrap().2,
        foreign("lora", ["scale", "2"]).unwrap(),
    );
    let [a, b] = ["layer.0.output.lora_a", "layer.0.output.lora_b"];
    assert_eq!(scaled.get(a), plain.get(a));
    assert_eq!(scaled.get(b), plain.scaled(2.0).get(b));
    let refused = foreign("adapters", ["activation", "gelu"]).unwrap_err().to_string();
    assert!(
        refused.ends_with("header: must be one whose entry activation is relu, got gelu"),
        "{refused}"
    );
    std::fs::remove_file(folder.path().join("foreign")).unwrap();
    std::fs::write(folder.path().join("text"), b"no tensors").unwrap();
    let refused = registry.register_file(9, &folder.path().join("text")).unwrap_err().to_string();
    assert!(
        refused.contains("text: header: must be that of a safetensors file, got "),
        "{refused}"
    );
    let refused = registry.register_file(9, &folder.path().join("none")).unwrap_err().to_string();
    assert!(
        refused.ends_with("none: No such file or directory (os error 2)"),
        "{refused}"
    );
}

#[test]
fn each_bad_task_is_refused_alone() {
    let mut registry = registry(5);
    let change = |kind: &str, name: &str, array: Option<Array>| {
        let mut parameters = random(kind, 1);
        match array {
            Some(array) => parameters.insert(name, array),
            None => drop(parameters.remove(name).unwrap()),
        }
        parameters
    };
    let bytes = |shape: &[usize]| Some(Array::bytes(shape, vec![255; shape.iter().product()]));
    let numbers = |shape: &[usize]| Some(Array::floats(shape, &vec![0.0; shape.iter().product()]));
    let whole = |numbers: &[i32]| Some(Array::integers(&[numbers.len()], numbers));
    let mask = "layer.1.output.mask";
    for (task, model, kind, parameters, message) in [
        (
            1,
            "small",
            "bit-fit",
            random("bit-fit", 1),
            "task 1: must be registered once, got a second registration (it is mask-bert of small)",
        ),
        (
            9,
            "smal",
            "bit-fit",
            random("bit-fit", 1),
            "task 9: shared model: must be one of small, got smal; did you mean small?",
        ),
        (
            9,
            "small",
            "mask-brt",
            random("mask-bert", 1),
            "task 9: kind: must be one of adapters, mask-bert, diff-pruning, bit-fit, lora, got mask-brt; did you mean \
             mask-bert?",
        ),
        (
            9,
            "small",
            "mask-bert",
            change("mask-bert", mask, bytes(&[20, 4])),
            "task 9: layer.1.output.mask: must be U8 of shape [20, 5], got U8 of shape [20, 4]",
        ),
        (
            9,
            "small",
            "mask-bert",
            change("mask-bert", mask, None),
            "task 9: layer.1.output.mask: must be U8 of shape [20, 5], got no such tensor",
        ),
        (
            9,
            "small",
            "adapters",
            change("adapters", "layer.0.output.adapter.up", numbers(&[5, 20])),
            "task 9: layer.0.output.adapter.up: must be F32 of shape [6, 20], got F32 of shape [5, 20]",
        ),
        (
            9,
            "small",
            "lora",
            change("lora", "layer.0.intermediate.lora_b", numbers(&[36, 4])),
            "task 9: layer.0.intermediate.lora_b: must be F32 of shape [36, 3], got F32 of shape [36, 4]",
        ),
        (
            9,
            "small",
            "lora",
            Parameters::default(),
            "task 9: layer.0.query_key_value.lora_a: must be there, or another linear layer's, got no such tensor",
        ),
        (
            9,
            "small",
            "bit-fit",
            change("bit-fit", "layer.2.output.bias", numbers(&[20])),
            "task 9: layer.2.output.bias: must be a tensor of this kind and shared model, got one that neither kind \
             nor shared model has",
        ),
        (
            9,
            "small",
            "diff-pruning",
            change(
                "diff-pruning",
                "layer.0.attention_output.delta.columns",
                whole(&[20; 40]),
            ),
            "task 9: layer.0.attention_output.delta.columns: must be from 0 to 19, rising within a row, got 20",
        ),
        (
            9,
            "small",
            "diff-pruning",
            change("diff-pruning", "layer.0.attention_output.delta.starts", whole(&[0; 21])),
            "task 9: layer.0.attention_output.delta.starts: must be rising from 0 to 40, the number of values, got \
             from 0 to 0",
        ),
    ] {
        assert_eq!(
            registry.register(task, model, kind, parameters).unwrap_err().to_string(),
            message
        );
    }
    // The others are served as if nothing had happened.
    let tasks = with_ids(&[(1, vec![5]), (3, vec![7, 2])]);
    let found = together(&registry, "small", &tasks, &[0, 0], &Streams::new(1).unwrap());
    let expected = Alone::new(registry.model("small").unwrap(), 1).run(&tasks[0].1[0]);
    assert!(difference(&found.get(0).narrow(0, 0, 5), &expected) < 2e-5);
}

#[test]
fn memory_that_is_exhausted_is_told_and_freed_again() {
    let encoder = encoder("small");
    let small = encoder.device_bytes();
    let bytes = |kind: &str| {
        let kind = kind_named(kind).unwrap();
        let parameters = random(kind.name(), 0);
        let resident = kind.check(&Reader::new(&parameters), &shape("small")).unwrap();
        4 * (resident.numbers + resident.indices)
    };
    // Room for the model, one task of adapters, and a byte less than one of LoRA.
    let mut registry = Registry::new(&KINDS, small + bytes("adapters") + bytes("lora") - 1);
    registry.add_model("small", encoder).unwrap();
    for (task, kind) in [(0, "adapters"), (1, "lora"), (2, "bit-fit")] {
        registry.register(task, "small", kind, random(kind, task)).unwrap();
    }
    registry.load(0).unwrap();
    let refused = registry.load(1).unwrap_err();
    let (needs, free) = (bytes("lora"), bytes("lora") - 1);
    assert!(
        matches!(refused, PetError::OutOfMemory { bytes, free_bytes, .. } if (bytes, free_bytes) == (needs, free)),
        "{refused}"
    );
    assert!(
        refused.to_string().starts_with("task 1 (lora of small): must fit the "),
        "{refused}"
    );
    registry.load(2).unwrap();
    registry.load(2).unwrap();
    assert_eq!(registry.used_bytes(), small + bytes("adapters") + bytes("bit-fit"));
    let group = |task| Group {
        task,
        count: 1,
        tokens: 1,
    };
    let refused =
        |registry: &Registry, model: &str, group: Group| registry.batch(model, &[group]).unwrap_err().to_string();
    assert_eq!(
        refused(&registry, "small", group(1)),
        "task 1: must be loaded before it is batched, got a task in the repository only"
    );
    assert_eq!(
        refused(&registry, "small", group(7)),
        "task 7: must be registered, got no registration"
    );
    assert_eq!(
        refused(&registry, "other", group(0)),
        "task 0: must be of shared model other in this batch, got one of small"
    );
    assert_eq!(
        refused(&registry, "small", Group { count: 0, ..group(0) }),
        "sequences of the mini-batch of task 0: must be at least 1, got 0"
    );
    registry.remove(0).unwrap();
    registry.load(1).unwrap();
    assert!(registry.batch("small", &[group(1), group(2), group(1)]).is_ok());
    let refused = registry.add_model("second", self::encoder("second")).unwrap_err().to_string();
    assert!(refused.starts_with("shared model second: must fit the "), "{refused}");
}
