//! Tasks from the command line: what is refused is refused alone, and presets and scenarios are complete.

use std::collections::BTreeSet;

use crate::common::good;
use crate::common::requests::{rows, text, whole};
use serde_json::Value;

fn runs(summary: &str) -> Vec<Value> {
    let value: Value = serde_json::from_str(summary).unwrap();
    value["runs"].as_array().unwrap().clone()
}

#[test]
fn faulty_registrations_are_refused_alone() {
    let place = tempfile::tempdir().unwrap();
    good(place.path(), &["check", "pets/refusals"]);
    let printed = good(place.path(), &["simulate", "pets/refusals", "--json", "--out", "out"]);
    let run = &runs(&printed)[0];
    let refused = &run["tasks"]["refused"];
    for reason in [
        "task_of_unknown_kind",
        "task_of_wrong_shape",
        "task_with_wrong_mask",
        "task_of_unknown_model",
        "task_registered_twice",
        "task_out_of_memory",
    ] {
        assert_eq!(refused[reason], 1, "{reason}: {refused}");
    }
    let counts = &run["requests"];
    let count = |key: &str| counts[key].as_u64().unwrap();
    assert!(count("finished") > 0 && count("rejected") > 0);
    assert_eq!(count("finished") + count("rejected"), count("offered"));
    let rejected = run["rejected_by"].as_object().unwrap();
    let turned_away: u64 = rejected.values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(turned_away, count("rejected"));
    // Three shared models on one card, and tasks of each.
    assert_eq!(run["tasks"]["loaded"], 9);
    let manifest = std::fs::read_to_string(place.path().join("out/manifest.json")).unwrap();
    for (index, reason) in [
        "kind: must be one of adapters, mask-bert, diff-pruning, bit-fit, lora, got adaptors; did you mean adapters?",
        "trained_on: must be a model with the layers of backbone, got bert-large",
        "mask_elements: must be 84934656, the weights of backbone, got 1000000",
        "model: must be one of backbone, large, distilled, got bert-huge",
    ]
    .into_iter()
    .enumerate()
    {
        let reason = format!("refused: task {index}: pets/refusals: systems[0].tasks.registrations[{index}].{reason}");
        assert!(manifest.contains(&reason), "{reason}: {manifest}");
    }
    // The last but one finds no memory, and the last, which is smaller, does.
    let full = "refused: task 12: pets/refusals: systems[0].tasks.registrations[6]: must fit the ";
    assert!(manifest.contains(full), "{manifest}");
    assert_eq!(run["tasks"]["kinds"]["bit-fit"]["tasks"], 2);
}

#[test]
fn full_models_run_out_of_memory_where_tasks_do_not() {
    let place = tempfile::tempdir().unwrap();
    let set = [
        "tenants.count=32",
        "workload.arrivals.burst.threads=32",
        "systems[0].tasks.planning.pool.size=32",
    ];
    let mut args = vec!["simulate", "pets/fig-8", "--json", "--out", "out"];
    args.extend(set.iter().flat_map(|set| ["--set", *set]));
    let runs = runs(&good(place.path(), &args));
    let rejected = |system: &str| {
        let run = runs.iter().find(|run| run["system"] == system).unwrap();
        run["requests"]["rejected"].as_u64().unwrap()
    };
    assert_eq!(rejected("pets"), 0);
    assert!(rejected("seqs") > 0 && rejected("pars") > 0);
}

/// A task's file as any safetensors library writes it.
fn write_task(path: &std::path::Path, model: &str, kind: &str, tensors: &[(String, &str, Vec<usize>)]) {
    let mut header = serde_json::Map::new();
    header.insert(
        "__metadata__".into(),
        serde_json::json!({ "shared_model": model, "kind": kind }),
    );
    let mut end = 0;
    for (name, dtype, shape) in tensors {
        let begin = end;
        let bytes = match *dtype {
            "U8" => 1,
            "BF16" => 2,
            _ => 4,
        };
        end += shape.iter().product::<usize>() * bytes;
        let tensor = serde_json::json!({ "dtype": dtype, "shape": shape, "data_offsets": [begin, end] });
        header.insert(name.clone(), tensor);
    }
    let header = serde_json::to_vec(&header).unwrap();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header);
    bytes.resize(bytes.len() + end, 0);
    std::fs::write(path, bytes).unwrap();
}

/// Low-rank products at the inner linear layer of each of `tiny`'s two layers.
fn lora(hidden: usize) -> Vec<(String, &'static str, Vec<usize>)> {
    let of_layer = |layer| {
        let name = move |part| format!("layer.{layer}.intermediate.{part}");
        [
            (name("lora_a"), "F32", vec![4, hidden]),
            (name("lora_b"), "F32", vec![4 * hidden, 4]),
        ]
    };
    (0..2).flat_map(of_layer).collect()
}

/// A mask of each linear layer of `tiny`, which keeps everything or nothing; `columns` bytes a row where that is 16.
fn masks(columns: usize) -> Vec<(String, &'static str, Vec<usize>)> {
    let linears = [
        ("query_key_value", 384, columns),
        ("attention_output", 128, 16),
        ("intermediate", 512, 16),
        ("output", 128, 64),
    ];
    let of_layer =
        |layer| linears.map(|(of, rows, columns)| (format!("layer.{layer}.{of}.mask"), "U8", vec![rows, columns]));
    (0..2).flat_map(of_layer).collect()
}

/// A classification layer of so many classes over `tiny`.
fn classifier(classes: usize) -> Vec<(String, &'static str, Vec<usize>)> {
    vec![
        ("classifier.weight".into(), "F32", vec![classes, 128]),
        ("classifier.bias".into(), "F32", vec![classes]),
    ]
}

/// Ten tasks, of which the first seven are handed in as files: one is good, and each of the others is wrong in a way of
/// its own.
fn folder_with_tasks() -> tempfile::TempDir {
    let folder = crate::common::folder();
    let path = |name: &str| folder.path().join(name);
    write_task(
        &path("good.safetensors"),
        "tiny",
        "lora",
        &[lora(128), classifier(2)].concat(),
    );
    write_task(
        &path("many.safetensors"),
        "tiny",
        "lora",
        &[lora(128), classifier(99)].concat(),
    );
    write_task(&path("wide.safetensors"), "tiny", "lora", &lora(256));
    write_task(&path("kind.safetensors"), "tiny", "dora", &lora(128));
    write_task(&path("model.safetensors"), "tinny", "lora", &lora(128));
    write_task(&path("mask.safetensors"), "tiny", "mask-bert", &masks(15));
    // All bits are 0: a mask that takes everything away, which is 8 bytes for each of 393,216 weights.
    write_task(&path("huge.safetensors"), "tiny", "mask-bert", &masks(16));
    // One value that no row has: the header does not show it.
    let difference = |layer| {
        let linears = [
            ("query_key_value", 384),
            ("attention_output", 128),
            ("intermediate", 512),
            ("output", 128),
        ];
        linears.into_iter().flat_map(move |(of, rows)| {
            let name = move |part| format!("layer.{layer}.{of}.{part}");
            [
                (name("delta.starts"), "I32", vec![rows + 1]),
                (name("delta.columns"), "I32", vec![1]),
                (name("delta.values"), "F32", vec![1]),
                (name("bias_delta"), "F32", vec![rows]),
            ]
        })
    };
    let differences: Vec<_> = (0..2).flat_map(difference).collect();
    write_task(&path("rows.safetensors"), "tiny", "diff-pruning", &differences);
    std::fs::write(path("text.safetensors"), "no tensors").unwrap();
    let scenario = "\
name: files
seed: 1
card: ./card
cluster: { gpus: 1, gpu_memory: 5 MiB }
models: { backbone: tiny }
tenants: { count: 10, popularity: uniform, kinds: { bit-fit: 1 } }
workload:
  arrivals: { poisson: { rate: 200/s } }
  lengths: { input: { normal: { mean: 30, sd: 8, min: 4, max: 60 } } }
  stop: { requests: 200 }
systems:
  - preset: pets
    tasks:
      max_batch: 8
      max_tokens: 64
      registrations:
        - { task: 0, file: good.safetensors }
        - { task: 1, file: wide.safetensors }
        - { task: 2, file: kind.safetensors }
        - { task: 3, file: model.safetensors }
        - { task: 4, file: mask.safetensors }
        - { task: 5, file: text.safetensors }
        - { task: 0, file: good.safetensors }
";
    std::fs::write(path("files.yaml"), scenario).unwrap();
    folder
}

const FAULTS: [&str; 6] = [
    "task_of_wrong_shape",
    "task_of_unknown_kind",
    "task_of_unknown_model",
    "task_with_wrong_mask",
    "task_of_unreadable_file",
    "task_registered_twice",
];

/// Each faulty file is refused alone, and all others are served.
fn assert_refused_alone(run: &Value) {
    let tasks = &run["tasks"];
    for fault in FAULTS {
        assert_eq!(tasks["refused"][fault], 1, "{fault}: {tasks}");
    }
    assert_eq!(
        (&tasks["registrations"], &tasks["loaded"]),
        (&Value::from(11), &Value::from(5))
    );
    // 4 × (128 + 512) numbers of 4 bytes in each of two layers.
    assert_eq!(tasks["kinds"]["lora"]["bytes"], 2 * 4 * (128 + 512) * 4);
    let count = |key: &str| run["requests"][key].as_u64().unwrap();
    assert!(count("finished") > 0 && count("rejected") > 0);
    assert_eq!(count("finished") + count("rejected"), count("offered"));
}

#[test]
fn tasks_are_handed_in_as_files_and_faulty_ones_refused_alone() {
    let folder = folder_with_tasks();
    good(folder.path(), &["check", "files.yaml"]);
    let printed = good(folder.path(), &["simulate", "files.yaml", "--json", "--out", "out"]);
    assert_refused_alone(&runs(&printed)[0]);
    let manifest = std::fs::read_to_string(folder.path().join("out/manifest.json")).unwrap();
    for reason in [
        "pets: refused: task 1: wide.safetensors: layer.0.intermediate.lora_a: must be F32 of shape [1 or more, 128], got F32 of shape [4, 256]",
        "pets: refused: task 4: mask.safetensors: layer.0.query_key_value.mask: must be U8 of shape [384, 16], got U8 of shape [384, 15]",
        "pets: refused: task 5: text.safetensors: header: must be that of a safetensors file",
        "pets: refused: task 2: kind.safetensors: __metadata__.kind: must be one of adapters, mask-bert, diff-pruning, bit-fit, lora, got dora; did you mean lora?",
        "pets: refused: task 3: model.safetensors: __metadata__.shared_model: must be one of backbone, got tinny",
        "pets: refused: task 0: files.yaml: systems[0].tasks.registrations[6].task: must be registered once, got a second registration (it is lora of backbone)",
    ] {
        assert!(manifest.contains(reason), "{reason}: {manifest}");
    }

    // A classification layer that does not fit is its task's fault like any other.
    let set = "systems[0].tasks.registrations[1].file=many.safetensors";
    good(
        folder.path(),
        &["simulate", "files.yaml", "--out", "many", "--set", set],
    );
    let manifest = std::fs::read_to_string(folder.path().join("many/manifest.json")).unwrap();
    let reason = "pets: refused: task 1: many.safetensors: classifier.weight: must be F32 of shape [2, 128], got F32 of shape [99, 128]";
    assert!(manifest.contains(reason), "{manifest}");

    // A file that is not there is a mistake in the scenario.
    let absent = [
        "check",
        "files.yaml",
        "--set",
        "systems[0].tasks.registrations[0].file=absent.safetensors",
    ];
    let output = crate::common::tenantry(folder.path(), &absent);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{error}");
    let expected = "registrations[0].file: must be a file that can be read, got absent.safetensors";
    assert!(error.contains(expected), "{error}");
}

/// What only the content of files shows: a mask that takes away so much that it does not fit, and a difference whose
/// rows do not add up.
fn assert_content_refused(folder: &std::path::Path, run: &[&str]) {
    let set = ["huge", "rows"].map(|name| format!("file={name}.safetensors"));
    let set = [
        format!("systems[0].tasks.registrations[1].{}", set[0]),
        format!("systems[0].tasks.registrations[2].{}", set[1]),
    ];
    let printed = good(folder, &[run, &["--set", &set[0], "--set", &set[1]]].concat());
    let tasks = &runs(&printed)[0]["tasks"];
    assert_eq!(tasks["refused"]["task_out_of_memory"], 1, "{tasks}");
    assert_eq!(tasks["refused"]["task_of_wrong_shape"], 1, "{tasks}");
    assert_eq!(tasks["loaded"], 5);
    let manifest = std::fs::read_to_string(folder.join("out/manifest.json")).unwrap();
    for reason in [
        "pets: refused: task 1: huge.safetensors: must fit the ",
        "pets: refused: task 2: rows.safetensors: layer.0.query_key_value.delta.starts: must be rising from 0 to 1, the number of values, got from 0 to 0",
    ] {
        assert!(manifest.contains(reason), "{reason}: {manifest}");
    }
}

#[test]
fn content_that_does_not_fit_is_refused_alone() {
    let folder = folder_with_tasks();
    assert_content_refused(folder.path(), &["simulate", "files.yaml", "--json", "--out", "out"]);
}

/// Cards know operators of one size, and a run with others says so.
#[test]
fn operators_of_other_sizes_are_said_to_be_priced_as_measured() {
    let folder = folder_with_tasks();
    let caveats = |set: &[&str]| {
        let simulate = ["simulate", "files.yaml", "--json", "--out", "sizes"];
        good(folder.path(), &[&simulate[..], set].concat());
        std::fs::read_to_string(folder.path().join("sizes/manifest.json")).unwrap()
    };
    let said =
        "tasks' operators take the time of adapters 64 wide, LoRA of rank 16, masks of 5 % and differences of 0.5 %";
    let manifest = caveats(&[]);
    assert!(
        manifest.contains(said) && manifest.contains("as cards know them; the file of task 0 has others."),
        "{manifest}"
    );
    let of_layer = |layer| {
        let linears = [
            ("query_key_value", 384, 128),
            ("attention_output", 128, 128),
            ("intermediate", 512, 128),
            ("output", 128, 512),
        ];
        linears.into_iter().flat_map(move |(of, outputs, inputs)| {
            let name = move |part| format!("layer.{layer}.{of}.{part}");
            [
                (name("lora_a"), "F32", vec![16, inputs]),
                (name("lora_b"), "F32", vec![outputs, 16]),
            ]
        })
    };
    let of_the_cards_size: Vec<_> = (0..2).flat_map(of_layer).collect();
    write_task(
        &folder.path().join("good.safetensors"),
        "tiny",
        "lora",
        &of_the_cards_size,
    );
    assert!(!caveats(&[]).contains(said));
    let manifest = caveats(&["--set", "systems[0].tasks.sizes.bottleneck=256"]);
    assert!(
        manifest.contains(said) && manifest.contains("this system's are adapters 256 wide"),
        "{manifest}"
    );
}

/// Small enough to be executed: two shared models at once, by each rule for the number of streams.
#[cfg(feature = "libtorch")]
#[test]
fn two_shared_models_are_simulated_and_executed_from_a_shipped_card() {
    let place = tempfile::tempdir().unwrap();
    for args in [&["simulate"][..], &["execute", "--device", "cpu"]] {
        let args = [args, &["pets/two-models", "--json", "--out", "out"]].concat();
        let runs = runs(&good(place.path(), &args));
        assert_eq!(runs.len(), 3);
        for run in runs {
            assert_eq!(run["tasks"]["loaded"], 16, "{run}");
            assert_eq!(run["requests"]["finished"], 64, "{run}");
        }
    }
    // Each model has a checkpoint of its own: one that is none ends the execution, and simulations read none.
    write_task(&place.path().join("none.safetensors"), "tiny", "lora", &lora(128));
    for model in ["model", "models.small"] {
        let set = format!("systems[0].files.{model}=none.safetensors");
        let run = |machine: &[&str]| {
            let args = [machine, &["pets/two-models", "--out", "none", "--set", &set]].concat();
            crate::common::tenantry(place.path(), &args)
        };
        assert!(run(&["simulate"]).status.success());
        let error = String::from_utf8_lossy(&run(&["execute", "--device", "cpu"]).stderr).into_owned();
        let expected = "none.safetensors: embeddings.word_embeddings.weight: must be a tensor [";
        assert!(error.contains(expected), "{model}: {error}");
    }
}

/// The real machine computes with the good file, and refuses the others alone, for the same reasons.
#[cfg(feature = "libtorch")]
#[test]
fn tasks_in_files_are_executed_and_faulty_ones_refused_alone() {
    let folder = folder_with_tasks();
    let run = ["execute", "files.yaml", "--device", "cpu", "--json", "--out", "out"];
    let output = crate::common::tenantry(folder.path(), &run);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    // libtorch's own words on sparse matrices are for its developers.
    assert!(!errors.contains("beta"), "{errors}");
    assert_refused_alone(&runs(&String::from_utf8(output.stdout).unwrap())[0]);

    assert_content_refused(folder.path(), &run);
}

/// Whatever a file's header shows, both machines refuse for the same reason in the same words.
#[cfg(feature = "libtorch")]
#[test]
fn both_machines_refuse_the_same_headers() {
    let folder = folder_with_tasks();
    type Tensors = Vec<(String, &'static str, Vec<usize>)>;
    let change = |mut tensors: Tensors, index: usize, change: fn(&mut (String, &'static str, Vec<usize>))| {
        change(&mut tensors[index]);
        tensors
    };
    let without = |mut tensors: Tensors, index: usize| {
        tensors.remove(index);
        tensors
    };
    let biases: Tensors = (0..2).map(|layer| (format!("layer.{layer}.output.bias"), "F32", vec![128])).collect();
    let (shape, mask) = ("task_of_wrong_shape", "task_with_wrong_mask");
    let cases: [(&str, Tensors, &str, &str); 12] = [
        (
            "lora",
            [lora(128), classifier(9)].concat(),
            shape,
            "classifier.weight: must be F32 of shape [2, 128], got F32 of shape [9, 128]",
        ),
        (
            "lora",
            without([lora(128), classifier(2)].concat(), 5),
            shape,
            "classifier.bias: must be F32 of shape [2], got no such tensor",
        ),
        (
            "lora",
            change(lora(128), 0, |tensor| tensor.1 = "BF16"),
            shape,
            "layer.0.intermediate.lora_a: must be F32 of shape [1 or more, 128], got BF16 of shape [4, 128]",
        ),
        (
            "lora",
            change(lora(128), 0, |tensor| tensor.2[0] = 0),
            shape,
            "layer.0.intermediate.lora_a: must be F32 of shape [1 or more, 128], got F32 of shape [0, 128]",
        ),
        (
            "lora",
            change(lora(128), 3, |tensor| tensor.2[1] = 5),
            shape,
            "layer.1.intermediate.lora_b: must be F32 of shape [512, 4], got F32 of shape [512, 5]",
        ),
        (
            "lora",
            without(lora(128), 1),
            shape,
            "layer.0.intermediate.lora_b: must be F32 of shape [512, 4], got no such tensor",
        ),
        (
            "lora",
            Vec::new(),
            shape,
            "layer.0.query_key_value.lora_a: must be there, or another linear layer's, got no such tensor",
        ),
        (
            "adapters",
            lora(128),
            shape,
            "layer.0.attention_output.adapter.down: must be F32 of shape [128, 1 or more], got no such tensor",
        ),
        (
            "bit-fit",
            biases,
            shape,
            "layer.0.query_key_value.bias: must be F32 of shape [384], got no such tensor",
        ),
        (
            "mask-bert",
            change(masks(16), 0, |tensor| tensor.1 = "F32"),
            mask,
            "layer.0.query_key_value.mask: must be U8 of shape [384, 16], got F32 of shape [384, 16]",
        ),
        (
            "mask-bert",
            without(masks(16), 7),
            mask,
            "layer.1.output.mask: must be U8 of shape [128, 64], got no such tensor",
        ),
        (
            "lora",
            change(lora(128), 2, |tensor| tensor.0 = "layer.2.output.bias".into()),
            shape,
            "layer.1.intermediate.lora_a: must be F32 of shape [1 or more, 128], got no such tensor",
        ),
    ];
    let mut listed = String::new();
    for (task, (kind, tensors, ..)) in cases.iter().enumerate() {
        let name = format!("case{task}.safetensors");
        write_task(&folder.path().join(&name), "backbone", kind, tensors);
        listed += &format!("        - {{ task: {task}, file: {name} }}\n");
    }
    // A file that ends before its header says it does.
    let whole = std::fs::read(folder.path().join("good.safetensors")).unwrap();
    std::fs::write(folder.path().join("cut.safetensors"), &whole[..whole.len() - 1]).unwrap();
    listed += "        - { task: 12, file: cut.safetensors }\n";
    let yaml = std::fs::read_to_string(folder.path().join("files.yaml")).unwrap();
    let first = yaml.find("        - {").unwrap();
    let yaml = yaml[..first].replace("count: 10", "count: 14") + &listed;
    std::fs::write(folder.path().join("cases.yaml"), yaml).unwrap();
    for (out, args) in [
        ("simulated", &["simulate"][..]),
        ("executed", &["execute", "--device", "cpu"]),
    ] {
        let printed = good(folder.path(), &[args, &["cases.yaml", "--json", "--out", out]].concat());
        let refused = &runs(&printed)[0]["tasks"]["refused"];
        for (fault, count) in [(shape, 10), (mask, 2), ("task_of_unreadable_file", 1)] {
            assert_eq!(refused[fault], count, "{out}: {refused}");
        }
        assert_eq!(runs(&printed)[0]["tasks"]["loaded"], 1, "{out}");
        let manifest = std::fs::read_to_string(folder.path().join(out).join("manifest.json")).unwrap();
        for (task, (.., reason)) in cases.iter().enumerate() {
            let reason = format!("task {task}: case{task}.safetensors: {reason}");
            assert!(manifest.contains(&reason), "{out}: {reason}: {manifest}");
        }
        let cut = "task 12: cut.safetensors: header: must be that of a safetensors file";
        assert!(manifest.contains(cut), "{out}: {manifest}");
        // By number, task 10 after task 9.
        let places = (0..cases.len()).map(|task| manifest.find(&format!("pets: refused: task {task}: ")).unwrap());
        assert!(places.is_sorted(), "{out}: {manifest}");
    }
}

/// A planner's pools are no batches, and pools and mini-batches are counted as batches are.
#[test]
fn batches_are_numbered_and_counted_without_what_is_none() {
    let place = tempfile::tempdir().unwrap();
    let simulated = |warm_up: &str| {
        let warm_up = format!("workload.warm_up={warm_up}");
        let few = "workload.stop={requests: 400}";
        let args = [
            "simulate",
            "pets/online",
            "--set",
            few,
            "--set",
            "sweep={}",
            "--set",
            &warm_up,
        ];
        let out = ["--requests", "--json", "--out", "out"];
        let runs = runs(&good(place.path(), &[&args[..], &out[..]].concat()));
        (runs, rows(&place.path().join("out/requests.parquet")))
    };
    let (whole_runs, cells) = simulated("0s");
    for run in &whole_runs {
        let of_run = cells.iter().filter(|row| text(row, "system") == run["system"].as_str());
        let batches: BTreeSet<u64> = of_run.filter_map(|row| whole(row, "batch")).collect();
        let all: BTreeSet<u64> = (0..batches.len() as u64).collect();
        assert_eq!(batches, all, "{run}");
        assert!(batches.len() > 10, "{run}");
    }
    let warm = whole_runs[0]["duration_s"].as_f64().unwrap() / 2.0;
    let (later_runs, _) = simulated(&format!("{warm}s"));
    let (never_runs, _) = simulated("1h");
    for ((all, later), never) in whole_runs.iter().zip(&later_runs).zip(&never_runs) {
        for key in ["plans", "mini_batches"] {
            let of = |run: &Value| run["tasks"][key].as_u64();
            if all["system"] == "seqs" && key == "mini_batches" {
                assert_eq!([all, later, never].map(of), [None; 3], "{all}");
                continue;
            }
            let share = of(later).unwrap() as f64 / of(all).unwrap() as f64;
            assert!((0.2..0.8).contains(&share), "{key}: {share} of {all}");
            assert_eq!(of(never), Some(0), "{key}: {never}");
        }
    }
}
