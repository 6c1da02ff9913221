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
    all.into_iter()
        .map(|(name, tensor)| (name, tensor.to_kind(Kind::Float)))
        .collect()
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

/// The checkpoint with an adapter's products added to its weights, `W + lora_alpha / r · B · A`, read as any other checkpoint is.
fn merged(adapter: Option<&Path>) -> Decoder {
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
    let folder = tempfile::tempdir().unwrap();
    write(&weights, &folder.path().join("model.safetensors"));
    let config = DecoderConfig::read(&fixture(CHECKPOINT).join("config.json"), CHECKPOINT).unwrap();
    let block = read_decoder(folder.path(), &config.shape, DType::F32).unwrap();
    Decoder::from_parameters(&config, block).unwrap()
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
    let config = DecoderConfig::read(&fixture(CHECKPOINT).join("config.json"), CHECKPOINT).unwrap();
    let mut system = system(generation());
    system.pool.model = config.shape.clone();
    let vocabulary = u64::from(config.shape.vocabulary);
    let entries = (0..REQUESTS).map(|ticket| Request {
        input_tokens: 3 + (ticket * 5 % 11) as u32,
        output_tokens: OUTPUT_TOKENS,
        ..request(ticket)
    });
    let requests: Vec<Request> = entries.collect();

    let cluster = cluster(&system, 1, 100);
    let server = Server::new(&cluster, &system, TENANTS).unwrap();
    let Server::Generation(generating) = &server else {
        unreachable!()
    };
    let provision = Provision {
        files: Files {
            model: Some(fixture(CHECKPOINT)),
            tenants: Some(folder.path().to_path_buf()),
            ..Files::NONE
        },
        ..provision(generating, None)
    };
    let spec = system.pool.generation.clone().unwrap();
    let serving = GenerationServing::new(&system.pool, &spec, generating, provision).unwrap();
    let missing = serving.missing();
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert!(missing[0].contains("0002/adapter_model.safetensors"), "{missing:?}");
    let entries = requests.iter().map(|request| Entry::Request(request.clone())).collect();
    let served = executed(&system, &cluster, server, serving, entries);

    let models = [0, 1].map(|number: u32| merged(Some(&folder.path().join(format!("{number:04}")))));
    let backbone = merged(None);
    let (mut without, mut anothers) = (0.0_f64, 0.0_f64);
    for request in &requests {
        let (ticket, own) = (request.ticket, request.tenant % FOLDERS);
        if own == BROKEN {
            let verdict = served.finished[&ticket].verdict;
            assert_eq!(verdict, Verdict::Failed(FailureReason::LoadFailed), "ticket {ticket}");
            continue;
        }
        assert_eq!(served.finished[&ticket].verdict, Verdict::Served, "ticket {ticket}");
        let draws = Draws::new(SEED, Purpose::Tokens);
        let prompt = || lane::prompt(draws, vocabulary, (ticket, request.tenant), (request.input_tokens, 0));
        let tokens = &served.generated[&ticket];
        assert_eq!(tokens.len(), OUTPUT_TOKENS as usize);
        let worst = regret(&models[own as usize], prompt(), tokens);
        assert!(worst < 1e-3, "ticket {ticket} of folder {own} is off by {worst}");
        without = without.max(regret(&backbone, prompt(), tokens));
        anothers = anothers.max(regret(&models[1 - own as usize], prompt(), tokens));
    }
    assert!(
        without > 0.05 && anothers > 0.05,
        "adapters change answers: {without}, {anothers}"
    );
}
