//! Users' own weights from end to end: a checkpoint, and adapters as PEFT saves them.

use std::fs;
use std::path::{Path, PathBuf};

use tch::{Kind, Tensor};

use super::*;
use crate::Files;
use crate::decoder::{DecoderConfig, read_decoder};

const CHECKPOINT: &str = "tiny_llama";
const ADAPTER: &str = "tiny_llama_lora";
const ADAPTER_WEIGHTS: &str = "adapter_model.safetensors";
const ADAPTER_CONFIG: &str = "adapter_config.json";
/// Tenants' folders, which they take in turns: the second's matrices are twice the first's, the last cannot be read.
const FOLDERS: u32 = 3;
const BROKEN: u32 = 2;
const OUTPUT_TOKENS: u32 = 9;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn tensors(path: &Path) -> BTreeMap<String, Tensor> {
    let all = Tensor::read_safetensors(path).unwrap();
    all.into_iter().map(|(name, tensor)| (name, tensor.to_kind(Kind::Float))).collect()
}

fn write(tensors: &BTreeMap<String, Tensor>, path: &Path) {
    let all: Vec<(&String, &Tensor)> = tensors.iter().collect();
    Tensor::write_safetensors(&all, path).unwrap();
}

/// Folders such as PEFT saves, one a tenant.
fn write_adapters(folder: &Path) {
    for number in 0..FOLDERS {
        let own = folder.join(format!("{number:04}"));
        fs::create_dir(&own).unwrap();
        fs::copy(fixture(ADAPTER).join(ADAPTER_CONFIG), own.join(ADAPTER_CONFIG)).unwrap();
        let mut of = tensors(&fixture(ADAPTER).join(ADAPTER_WEIGHTS));
        for (name, tensor) in &mut of {
            if name.contains("lora_B") {
                *tensor = &*tensor * f64::from(number + 1);
            }
        }
        write(&of, &own.join(ADAPTER_WEIGHTS));
    }
    let broken = folder.join(format!("{BROKEN:04}")).join(ADAPTER_WEIGHTS);
    let bytes = fs::read(&broken).unwrap();
    fs::write(&broken, &bytes[..bytes.len() / 2]).unwrap();
}

/// Writes the checkpoint with an adapter's products added to its weights, `W + lora_alpha / r · B · A`.
fn write_merged(adapter: Option<&Path>, folder: &Path) {
    let mut weights = tensors(&fixture(CHECKPOINT).join("model.safetensors"));
    if let Some(adapter) = adapter {
        let config: serde_json::Value =
            serde_json::from_slice(&fs::read(adapter.join(ADAPTER_CONFIG)).unwrap()).unwrap();
        let scale = config["lora_alpha"].as_f64().unwrap() / config["r"].as_f64().unwrap();
        let matrices = tensors(&adapter.join(ADAPTER_WEIGHTS));
        let mut added = 0;
        for (name, weight) in &mut weights {
            let module = name.trim_end_matches(".weight");
            let matrix = |which| matrices.get(&format!("base_model.model.{module}.lora_{which}.weight"));
            if let (Some(a), Some(b)) = (matrix('A'), matrix('B')) {
                *weight = &*weight + b.matmul(a) * scale;
                added += 2;
            }
        }
        assert_eq!(added, matrices.len(), "every matrix is some projection's");
    }
    write(&weights, &folder.join("model.safetensors"));
    fs::copy(fixture(CHECKPOINT).join("config.json"), folder.join("config.json")).unwrap();
}

fn config() -> DecoderConfig {
    DecoderConfig::read(&fixture(CHECKPOINT).join("config.json"), CHECKPOINT).unwrap()
}

fn checkpoint(folder: &Path) -> Decoder {
    let block = read_decoder(folder, &config().shape, DType::F32).unwrap();
    Decoder::from_parameters(&config(), block).unwrap()
}

fn merged(adapter: Option<&Path>) -> Decoder {
    let folder = tempfile::tempdir().unwrap();
    write_merged(adapter, folder.path());
    checkpoint(folder.path())
}

fn short_requests() -> Vec<Request> {
    let short = |ticket| Request {
        input_tokens: 3 + (ticket * 5 % 11) as u32,
        output_tokens: OUTPUT_TOKENS,
        ..request(ticket)
    };
    (0..REQUESTS).map(short).collect()
}

/// Serves them with the checkpoint as backbone, and what its tenants have in `folder`.
fn served(system: &SystemSpec, folder: &Path) -> (Served, Vec<String>) {
    let cluster = cluster(system, 1, 100);
    let server = Server::new(&cluster, system, TENANTS).unwrap();
    let Server::Generation(generating) = &server else {
        unreachable!()
    };
    let has_backbone = system.pool.tenant_state != TenantState::Model;
    let provision = Provision {
        files: Files {
            model: has_backbone.then(|| fixture(CHECKPOINT)),
            tenants: Some(folder.to_path_buf()),
            ..Files::NONE
        },
        ..provision(generating, None)
    };
    let spec = system.pool.generation.clone().unwrap();
    let serving = GenerationServing::new(&system.pool, &spec, generating, provision).unwrap();
    let missing = serving.missing();
    let entries = short_requests().into_iter().map(Entry::Request).collect();
    (executed(system, &cluster, server, serving, entries), missing)
}

/// That each tenant's tokens are those of its model, and that who has the broken folder fails alone. Each request, its
/// prompt and tokens.
fn assert_own(served: &Served, models: &[Decoder]) -> Vec<(Request, Vec<i64>, Vec<i64>)> {
    let mut all = Vec::new();
    for request in short_requests() {
        let (ticket, own) = (request.ticket, request.tenant % FOLDERS);
        let verdict = served.finished[&ticket].verdict;
        if own == BROKEN {
            assert_eq!(verdict, Verdict::Failed(FailureReason::LoadFailed), "ticket {ticket}");
            continue;
        }
        assert_eq!(verdict, Verdict::Served, "ticket {ticket}");
        let vocabulary = u64::from(config().shape.vocabulary);
        let draws = Draws::new(SEED, Purpose::Tokens);
        let prompt = drawn_ids(draws, vocabulary, (ticket, request.tenant), (request.input_tokens, 0));
        let tokens = served.generated[&ticket].clone();
        assert_eq!(tokens.len(), OUTPUT_TOKENS as usize);
        let worst = regret(&models[own as usize], prompt.clone(), &tokens);
        assert!(worst < 1e-3, "ticket {ticket} of folder {own} is off by {worst}");
        all.push((request, prompt, tokens));
    }
    all
}

/// How far tokens are from being the most likely ones after `ids`, in logits, at worst.
fn regret(decoder: &Decoder, mut ids: Vec<i64>, tokens: &[i64]) -> f64 {
    let pages = Vec::from_iter(0..4);
    let kv = KvCache::new(decoder.shape(), 0..2, 4, PAGE_TOKENS, DType::F32, Device::Cpu).unwrap();
    let mut worst = 0.0_f64;
    for &token in tokens {
        let chunk = Chunk {
            ids: &ids,
            cached: 0,
            pages: &pages,
            slot: None,
            wants_token: true,
        };
        let step = decoder.step(&[chunk], &kv).unwrap();
        let logits: Tensor = decoder.forward(&step, &kv, None).unwrap();
        worst = worst.max(logits.max().double_value(&[]) - logits.double_value(&[0, token]));
        ids.push(token);
    }
    worst
}

#[test]
fn tenants_with_pefts_folders_get_the_tokens_of_their_merged_models() {
    let folder = tempfile::tempdir().unwrap();
    write_adapters(folder.path());
    let mut system = system(generation());
    system.pool.model = config().shape;
    let (served, missing) = served(&system, folder.path());
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert!(missing[0].contains("0002/adapter_model.safetensors"), "{missing:?}");

    let models = [0, 1].map(|number: u32| merged(Some(&folder.path().join(format!("{number:04}")))));
    let backbone = merged(None);
    let (mut without, mut anothers) = (0.0_f64, 0.0_f64);
    for (request, prompt, tokens) in assert_own(&served, &models) {
        let another = &models[1 - (request.tenant % FOLDERS) as usize];
        without = without.max(regret(&backbone, prompt.clone(), &tokens));
        anothers = anothers.max(regret(another, prompt, &tokens));
    }
    assert!(
        without > 0.05 && anothers > 0.05,
        "adapters change answers: {without}, {anothers}"
    );
}

/// The checkpoint's norms and positions are not what a decoder of that shape has by default: whole models compute with
/// theirs.
#[test]
fn tenants_with_whole_checkpoints_get_their_own_tokens() {
    let (adapters, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_adapters(adapters.path());
    let own = |number: u32| folder.path().join(format!("{number:04}"));
    for number in 0..FOLDERS {
        fs::create_dir(own(number)).unwrap();
        let adapter = (number != BROKEN).then(|| adapters.path().join(format!("{number:04}")));
        write_merged(adapter.as_deref(), &own(number));
    }
    let other = own(BROKEN).join("config.json");
    let text = fs::read_to_string(&other).unwrap();
    assert!(text.contains("\"rms_norm_eps\": 0.001"));
    fs::write(&other, text.replace("\"rms_norm_eps\": 0.001", "\"rms_norm_eps\": 0.1")).unwrap();

    let mut system = system(GenerationSpec {
        lora: None,
        slots: 2,
        join: JoinSpec::QueuePerTenant,
        ..generation()
    });
    system.pool.tenant_state = TenantState::Model;
    system.pool.model = config().shape;
    let (served, missing) = served(&system, folder.path());
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert!(missing[0].contains("as in the first tenant's"), "{missing:?}");
    let models = [0, 1].map(|number| checkpoint(&own(number)));
    let shape = config().shape;
    let defaults = [0, 1].map(|number| {
        let block = read_decoder(&own(number), &shape, DType::F32).unwrap();
        Decoder::from_parameters(&DecoderConfig::new(&shape).unwrap(), block).unwrap()
    });
    let mut by_default = 0.0_f64;
    for (request, prompt, tokens) in assert_own(&served, &models) {
        let default = &defaults[(request.tenant % FOLDERS) as usize];
        by_default = by_default.max(regret(default, prompt, &tokens));
    }
    assert!(by_default > 1e-2, "norms and positions change answers: {by_default}");
}
