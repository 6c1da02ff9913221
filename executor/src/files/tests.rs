mod heads;

use std::collections::HashMap;
use std::sync::Arc;

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use tempfile::TempDir;
use tenantry_core::command::FailureReason;
use tenantry_core::spec::{BatchSpec, HeadTask, PipelineSpec, PoolSpec, SystemSpec, TenantState};
use tenantry_core::testing::{self, PLOT};
use tenantry_plot::Engine;
use tenantry_profiles::AdapterImplementation;
use tenantry_profiles::testing::synthetic_card;
use tenantry_traces::generate::Domains;
use tenantry_traces::{Entry, Listed, Request, Time};

use super::*;
use crate::adapters::{AdapterCache, AdapterStore, Adapters};
use crate::machine::execute::{ExecuteError, Executed, Run, execute};
use crate::machine::serving::Answer;
use crate::model::{Heads, Input};
use crate::plot::{Origin, Tables};
use crate::write_checkpoint;

const TENANTS: u32 = 7;
const REQUESTS: u64 = 40;
const CLASSES: u32 = 4;
const CLASSIFICATION: (u32, HeadTask) = (CLASSES, HeadTask::Classification);
const BOTTLENECK: u32 = 8;

fn model() -> ModelShape {
    ModelShape {
        name: "mine".into(),
        layers: 3,
        vocabulary: 60,
        ..ModelShape::builtin("tiny").unwrap()
    }
}

fn random(size: &[i64], std: f64) -> Tensor {
    Tensor::randn(size, (Kind::Float, Device::Cpu)) * std
}

fn write(path: &Path, tensors: &[(String, Tensor)]) {
    let bytes = |tensor: &Tensor| {
        let mut bytes = vec![0; 4 * tensor.numel()];
        tensor.contiguous().copy_data_u8(&mut bytes, tensor.numel());
        bytes
    };
    let data: Vec<Vec<u8>> = tensors.iter().map(|(_, tensor)| bytes(tensor)).collect();
    let views: HashMap<&str, TensorView<'_>> = tensors
        .iter()
        .zip(&data)
        .map(|((name, tensor), data)| {
            let size = tensor.size().iter().map(|&n| n as usize).collect();
            (name.as_str(), TensorView::new(Dtype::F32, size, data).unwrap())
        })
        .collect();
    safetensors::serialize_to_file(&views, None, path).unwrap();
}

/// A tenant's file as the `adapters` library and Hugging Face's classifiers call its tensors; large, so that they
/// count.
fn write_tenant(path: &Path) -> Vec<(String, Tensor)> {
    let (hidden, bottleneck) = (128, i64::from(BOTTLENECK));
    let mut tensors = Vec::new();
    for layer in 0..3 {
        let of = format!("bert.encoder.layer.{layer}.attention.output.adapters.mine.");
        tensors.push((format!("{of}adapter_down.0.weight"), random(&[bottleneck, hidden], 0.3)));
        tensors.push((format!("{of}adapter_down.0.bias"), random(&[bottleneck], 0.3)));
        tensors.push((format!("{of}adapter_up.weight"), random(&[hidden, bottleneck], 0.3)));
        tensors.push((format!("{of}adapter_up.bias"), random(&[hidden], 0.3)));
    }
    tensors.push(("classifier.weight".into(), random(&[CLASSES.into(), hidden], 1.0)));
    tensors.push(("classifier.bias".into(), random(&[CLASSES.into()], 1.0)));
    write(path, &tensors);
    tensors
}

#[test]
fn a_tenants_tensors_come_to_their_places() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.safetensors");
    let tensors = write_tenant(&path);
    let stored = |name: &str| &tensors.iter().find(|(known, _)| known.ends_with(name)).unwrap().1;
    let shape = AdapterShape::upper(&model(), 1, BOTTLENECK).unwrap();
    let block = read_adapters(&path, &shape).unwrap();
    let own = shape.layer_blocks(2..3);
    let layer = block.narrow(0, own.start as i64, own.len() as i64);
    let at = |index: i64| layer.double_value(&[index]);
    let of = "layer.2.attention.output.adapters.mine.";
    for (row, column) in [(0, 0), (100, 3), (127, 7)] {
        // `W_down [hidden, bottleneck]`, and then its bias, `W_up [bottleneck, hidden]` and its bias.
        let down = stored(&format!("{of}adapter_down.0.weight"));
        assert_eq!(at(row * 8 + column), down.double_value(&[column, row]));
        let up = stored(&format!("{of}adapter_up.weight"));
        assert_eq!(at(128 * 8 + 8 + column * 128 + row), up.double_value(&[row, column]));
    }
    assert_eq!(
        at(128 * 8 + 5),
        stored(&format!("{of}adapter_down.0.bias")).double_value(&[5])
    );
    assert_eq!(
        at(2 * 128 * 8 + 8 + 99),
        stored(&format!("{of}adapter_up.bias")).double_value(&[99])
    );
    let head = read_head(&path, 128, CLASSES, HeadTask::Classification).unwrap().linear;
    assert_eq!(
        head.double_value(&[50 * 4 + 3]),
        stored("classifier.weight").double_value(&[3, 50])
    );
    assert_eq!(
        head.double_value(&[128 * 4 + 2]),
        stored("classifier.bias").double_value(&[2])
    );

    for (message, error) in [
        ("adapter_down.0.weight: must be of shape [9, 128], got [8, 128]", {
            let wider = AdapterShape { bottleneck: 9, ..shape };
            read_adapters(&path, &wider).unwrap_err()
        }),
        (
            "layer.3.attention.*.adapter_down.*weight: must be a tensor [8, 128], got no such tensor",
            {
                let more = AdapterShape { layers: 3, ..shape };
                read_adapters(&path, &more).unwrap_err()
            },
        ),
        (
            "classifier.weight: must be of shape [5, 128], got [4, 128]",
            read_head(&path, 128, 5, HeadTask::Classification).unwrap_err(),
        ),
    ] {
        assert!(error.to_string().ends_with(message), "{error}");
    }
    let empty = tempfile::tempdir().unwrap();
    fs::create_dir(empty.path().join(".cache")).unwrap();
    let error = tenants_files(empty.path()).unwrap_err().to_string();
    assert!(
        error.ends_with("must be a folder with tenants' *.safetensors, or with folders of theirs, got none"),
        "{error}"
    );
}

/// Houlsby's own adapters are two a layer: an answer with one of them alone would be wrong.
#[test]
fn adapters_that_are_not_computed_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.safetensors");
    let shape = AdapterShape::upper(&model(), 1, BOTTLENECK).unwrap();
    for name in [
        "bert.encoder.layer.2.output.adapters.mine.adapter_down.0.weight",
        "bert.encoder.layer.3.attention.output.adapters.mine.adapter_up.bias",
        "bert.encoder.layer.2.output.adapters.my-attention.adapter_down.0.weight",
        "bert.encoder.layer.2.attention.output.adapters.mine.adapter_norm_after.weight",
        "bert.invertible_adapters.mine.F.0.weight",
    ] {
        let mut tensors = write_tenant(&path);
        tensors.push((name.into(), random(&[8], 0.3)));
        write(&path, &tensors);
        let error = read_adapters(&path, &shape).unwrap_err().to_string();
        let message = "must be of adapter_down or adapter_up after attention in one of the 3 layers, where alone \
                       adapters are computed, got another";
        assert!(error.ends_with(&format!("{name}: {message}")), "{error}");
    }
}

/// What no tensor tells is not guessed.
#[test]
fn a_llama_without_its_config_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    for (name, is_read) in [("tiny-llama", false), ("tiny-opt", true)] {
        let shape = ModelShape::builtin(name).unwrap();
        let decoder = crate::Decoder::random(&shape, 5, DType::F32, Device::Cpu).unwrap();
        crate::decoder::write_decoder(&path, &shape, decoder.parameters()).unwrap();
        match read_decoder_block(&path, &shape, DType::F32) {
            Ok(_) => assert!(is_read, "{name}"),
            Err(error) => {
                let message = "config.json: rope_theta and rms_norm_eps: must be said for a Llama's weights, which do \
                               not tell them, got no such file";
                assert!(!is_read && error.to_string().ends_with(message), "{error}");
            }
        }
    }
}

/// A model, three tenants' files, a domain's version and a corpus, all of one's own.
fn files(folder: &TempDir) -> Files {
    let checkpoint = |name: &str, seed| {
        let path = folder.path().join(name);
        fs::create_dir(&path).unwrap();
        let encoder = Encoder::random(&model(), seed, DType::F32, Device::Cpu).unwrap();
        write_checkpoint(&path.join(WEIGHTS), &model(), encoder.parameters()).unwrap();
        path
    };
    let tenants = folder.path().join("tenants");
    fs::create_dir(&tenants).unwrap();
    for tenant in 0..3 {
        write_tenant(&tenants.join(format!("{tenant}.safetensors")));
    }
    let corpus = folder.path().join("corpus.txt");
    // Few different ones, so that those that are kept for requests are among the others.
    let token = |first: usize, index: usize| ((first % 7) * index + index * index) % 59;
    let line = |first| (0..30).map(|index| token(first, index).to_string()).collect::<Vec<_>>().join(" ");
    fs::write(&corpus, (1..60).map(|first| line(first) + "\n").collect::<String>()).unwrap();
    Files {
        model: Some(checkpoint("model", 71)),
        domains: vec![checkpoint("domain-0", 72)],
        tenants: Some(tenants),
        corpus: vec![corpus],
        ..Files::NONE
    }
}

fn system() -> SystemSpec {
    testing::system(PoolSpec {
        model: model(),
        classes: CLASSES,
        plot: Some(PLOT),
        tenant_state: TenantState::Adapters {
            bottleneck: BOTTLENECK,
            implementation: AdapterImplementation::GatherBmm,
        },
        pipeline: PipelineSpec::LAYERWISE,
        ..testing::pool("mine")
    })
}

fn request(ticket: u64) -> Request {
    Request {
        ticket,
        tenant: (ticket * 3 % u64::from(TENANTS)) as u32,
        arrival: Time(ticket * 100_000),
        input_tokens: 2 + (ticket % 17) as u32,
        output_tokens: 0,
        class: 0,
    }
}

fn served(folder: &TempDir, files: &Files) -> Vec<u32> {
    let done = executed(folder, files).unwrap();
    assert_eq!(done.shared_sets, files.tenants.as_ref().map(|_| 3));
    let lookups = done.record.lookups.unwrap();
    assert!(lookups.domain_hits > 0 && lookups.root_hits > 0, "{lookups:?}");
    done.answers.iter().map(|answer| answer.class).collect()
}

fn executed(folder: &TempDir, files: &Files) -> Result<Executed, ExecuteError> {
    executed_by(&system(), folder, files)
}

fn executed_by(system: &SystemSpec, folder: &TempDir, files: &Files) -> Result<Executed, ExecuteError> {
    let card = synthetic_card();
    let spec = Run {
        seed: 3,
        files: files.clone(),
        tables: folder.path().join("plot"),
        ..Run::new(Device::Cpu, &card, testing::cluster(1, 1 << 30), system, TENANTS)
    };
    let mut requests = Listed::new((0..REQUESTS).map(|ticket| Entry::Request(request(ticket))).collect());
    execute(&spec, &mut requests, Arc::default(), ())
}

/// One tenant's file is cut short: requests of those who have it fail with the reason, and the others are answered as
/// ever.
#[test]
fn only_tenants_whose_file_cannot_be_read_fail() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(&folder);
    let expected = executed(&folder, &files).unwrap().answers;
    let paths = files.of_tenants().unwrap().unwrap();
    let cut = |path: &Path| {
        let bytes = std::fs::read(path).unwrap();
        std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    };
    cut(&paths[1]);
    let done = executed(&folder, &files).unwrap();
    let is_of_it = |ticket: u64| request(ticket).tenant as usize % paths.len() == 1;
    let failing = (0..REQUESTS).filter(|&ticket| is_of_it(ticket)).count() as u64;
    assert!(failing > 0);
    assert_eq!(done.record.failed.get(&FailureReason::LoadFailed), Some(&failing));
    assert_eq!(done.record.counts.served, REQUESTS - failing);
    let [reason] = &done.refused[..] else {
        panic!("{:?}", done.refused)
    };
    assert!(reason.contains(paths[1].to_str().unwrap()), "{reason}");
    let [of_copies] = &done.errors[..] else {
        panic!("{:?}", done.errors)
    };
    assert_eq!(of_copies.lane, "gpu0/copy");
    assert!(
        of_copies.first.contains("must be in host memory, got none: they could not be read"),
        "{of_copies:?}"
    );
    let of_others = |answers: &[Answer]| -> Vec<(u64, u32)> {
        let answers = answers.iter().map(|answer| (answer.ticket, answer.class));
        answers.filter(|&(ticket, _)| !is_of_it(ticket)).collect()
    };
    assert_eq!(of_others(&done.answers), of_others(&expected));

    cut(&paths[0]);
    cut(&paths[2]);
    assert!(executed(&folder, &files).is_err(), "no tenant is left to serve");
}

/// What is executed of users' files is what their parts come to one by one: texts, the domain's or the root's rows, the
/// model's upper layers, the tenant's adapters and its head.
#[test]
fn users_own_models_are_served() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(&folder);
    let answers = served(&folder, &files);

    let origin = Origin {
        seed: 3,
        files: &files,
        domains: &Domains::IN_TURNS,
        updates: false,
    };
    let open = Tables::open_or_build;
    let tables = open(
        &folder.path().join("plot"),
        &model(),
        &PLOT,
        origin,
        Device::Cpu,
        &mut |_| panic!("they were built when they were served"),
    )
    .unwrap();
    let encoder = Encoder::random(&model(), 71, DType::F32, Device::Cpu).unwrap();
    let shape = AdapterShape::upper(&model(), 1, BOTTLENECK).unwrap();
    let paths = files.of_tenants().unwrap().unwrap();
    let store = AdapterStore::read(shape, TENANTS, &paths, DType::F32, Device::Cpu, 1 << 30).unwrap();
    let cache = AdapterCache::new(shape, 1, DType::F32, Device::Cpu).unwrap();
    let heads = Heads::read(&model(), TENANTS, CLASSIFICATION, &paths, DType::F32, Device::Cpu).unwrap();
    let expected: Vec<u32> = (0..REQUESTS)
        .map(|ticket| {
            let Request {
                tenant, input_tokens, ..
            } = request(ticket);
            let tokens = input_tokens as usize;
            let mut found = vec![0.0; tokens * 128];
            let engine = Engine::new(1).unwrap();
            let one = [(ticket, tenant, input_tokens)];
            tables.retrieve(&engine, one.into_iter(), tokens, &mut found).unwrap();
            let hidden = Tensor::from_slice(&found).view([1, tokens as i64, 128]);
            let input = Input::of_lengths(&[tokens], tokens, Kind::Float, Device::Cpu).unwrap();
            cache.load(&store, tenant, 0, 1..3).unwrap();
            let plan = cache.plan(&[0], tokens, AdapterImplementation::Loop).unwrap();
            let adapters = Adapters::new(&cache, &plan);
            let hidden = encoder.layers(hidden, 1..3, &input, Some(&adapters)).unwrap();
            let logits = heads.forward(&hidden, &[tenant]).unwrap();
            logits.argmax(1, false).int64_value(&[0]) as u32
        })
        .collect();
    assert_eq!(answers, expected);
    assert_ne!(
        answers,
        served(
            &folder,
            &Files {
                corpus: files.corpus.clone(),
                ..Files::NONE
            }
        )
    );

    // The domain's rows are its own version's, the others' the model's.
    let version = |seed| Encoder::random(&model(), seed, DType::F32, Device::Cpu).unwrap();
    let snapshot = tables.snapshot();
    for (name, seed) in [("domain-0", 72), ("domain-1", 71)] {
        let domain = snapshot.domain(name).unwrap();
        let table = &snapshot.branch(domain).unwrap().tables()[0];
        let (key, _) = table.fragments().next().unwrap();
        let ids: Vec<i64> = key.iter().map(|&token| token.into()).collect();
        let encoder = version(seed);
        let input = encoder.input(&[ids], 3).unwrap();
        let expected = encoder.layers(encoder.embed(&input).unwrap(), 0..1, &input, None).unwrap();
        let row: Vec<f32> = table.get(key).unwrap().unwrap().iter().map(|value| value.to_f32()).collect();
        let found = Tensor::from_slice(&row).view([1, 3, 128]);
        assert!((found - expected).abs().max().double_value(&[]) < 4e-3, "{name}");
    }
}

#[test]
fn a_checkpoint_of_another_shape_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = files(&folder).model.unwrap();
    let other = ModelShape {
        heads: 4,
        kv_heads: 4,
        ..model()
    };
    let config = ClassifierConfig::new(&model(), crate::cascade::Answer::Class(vec!["a".into(), "b".into()])).unwrap();
    fs::write(path.join(CONFIG), config.to_json()).unwrap();
    assert!(read_encoder_block(&path, &model(), DType::F32).is_ok());
    // The file alone has the config beside it.
    for path in [&path, &path.join(WEIGHTS)] {
        let error = read_encoder_block(path, &other, DType::F32).err().unwrap().to_string();
        assert!(
            error.ends_with(
                "config.json: config: must be of mine's shape, got another (heads 4, not 2; kv_heads 4, not 2)"
            ),
            "{error}"
        );
    }
}

/// Two tenants of one batch, by every implementation, as the `adapters` library computes each for itself: after each
/// layer, and the logits.
#[test]
fn adapters_compute_what_their_library_does() {
    // As `make_tiny_houlsby.py` says.
    let shape = ModelShape {
        name: "fixture".into(),
        layers: 3,
        hidden: 32,
        heads: 4,
        kv_heads: 4,
        intermediate: 64,
        vocabulary: 64,
        positions: 16,
        ..ModelShape::builtin("tiny").unwrap()
    };
    let fixture = |name: &str| {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures/tiny_houlsby")
            .join(format!("{name}.safetensors"))
    };
    let bytes = std::fs::read(fixture("expected")).unwrap();
    let expected = SafeTensors::deserialize(&bytes).unwrap();
    let whole = |name: &str| -> Vec<i64> {
        let numbers = expected.tensor(name).unwrap().data().chunks(8);
        numbers.map(|number| i64::from_le_bytes(number.try_into().unwrap())).collect()
    };
    let (ids, lengths) = (whole("ids"), whole("lengths"));
    let tokens = ids.len() / lengths.len();
    let texts = lengths.len();
    let tenants = ["first", "second"];
    // Each text for each tenant.
    let sequences: Vec<&[i64]> = ids
        .chunks(tokens)
        .zip(&lengths)
        .map(|(text, &length)| &text[..length as usize])
        .cycle()
        .take(texts * tenants.len())
        .collect();
    let of_sequence: Vec<u32> =
        (0..tenants.len() as u32).flat_map(|tenant| std::iter::repeat_n(tenant, texts)).collect();

    let (dtype, device) = (DType::F32, Device::Cpu);
    let model = read_encoder_block(&fixture("model"), &shape, dtype).unwrap();
    let encoder = model.encoder(&shape, 0, device).unwrap();
    let adapter = AdapterShape::upper(&shape, 1, 8).unwrap();
    let files = tenants.map(fixture);
    let store = AdapterStore::read(adapter, 2, &files, dtype, device, 1 << 20).unwrap();
    let cache = AdapterCache::new(adapter, 2, dtype, device).unwrap();
    (0..2).for_each(|tenant| cache.load(&store, tenant, tenant, 1..3).unwrap());
    let heads = Heads::read(&shape, 2, (3, HeadTask::Classification), &files, dtype, device).unwrap();
    let input = encoder.input(&sequences, tokens).unwrap();
    for implementation in cache.implementations() {
        let plan = cache.plan(&of_sequence, tokens, implementation).unwrap();
        let adapters = Adapters::new(&cache, &plan);
        let close = |name: &str, found: &Tensor, is_of_tokens: bool| {
            for (row, (length, &tenant)) in lengths.iter().cycle().zip(&of_sequence).enumerate() {
                let name = format!("{}.{name}", tenants[tenant as usize]);
                let stored = expected.tensor(&name).unwrap();
                let size: Vec<i64> = stored.shape().iter().map(|&n| n as i64).collect();
                let stored = Tensor::from_data_size(stored.data(), &size, Kind::Float).get((row % texts) as i64);
                let found = found.get(row as i64);
                // What stands at padded positions means nothing, and nothing reads it.
                let (found, stored) = match is_of_tokens {
                    true => (found.narrow(0, 0, *length), stored.narrow(0, 0, *length)),
                    false => (found, stored),
                };
                let difference = (found - stored).abs().max().double_value(&[]);
                assert!(
                    difference < 1e-5,
                    "{implementation}, {name}, text {row}: off by {difference}"
                );
            }
        };
        let mut hidden = encoder.layers(encoder.embed(&input).unwrap(), 0..1, &input, None).unwrap();
        close("after_layer_0", &hidden, true);
        for layer in 1..3 {
            hidden = encoder.layers(hidden, layer..layer + 1, &input, Some(&adapters)).unwrap();
            close(&format!("after_layer_{layer}"), &hidden, true);
        }
        close("logits", &heads.forward(&hidden, &of_sequence).unwrap(), false);
    }
}
