//! Decoders and LoRA against Hugging Face's and PEFT's: same checkpoint, same input, same logits, and the same tokens
//! after.

use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use tch::{Device, Kind, Tensor};
use tenantry_executor::{
    Chunk, Decoder, DecoderConfig, KvCache, LoraCache, LoraShape, LoraStore, Loras, Sampling, TenantParameters,
    read_decoder, read_lora, sample,
};
use tenantry_profiles::{AdapterImplementation, DType};

/// As `fixtures/make_tiny_decoders.py` says.
const LOWER_LAYERS: usize = 1;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn checkpoint(name: &str) -> Decoder {
    decoder_of(name, name)
}

/// One's `config.json`, and another's weights.
fn decoder_of(config: &str, weights: &str) -> Decoder {
    let config = DecoderConfig::read(&fixture(config).join("config.json"), weights).unwrap();
    let parameters = read_decoder(&fixture(weights), &config.shape, DType::F32).unwrap();
    Decoder::from_parameters(&config, parameters).unwrap()
}

/// What the reference computed for some sequences.
struct Expected {
    sequences: Vec<Vec<i64>>,
    /// `[tokens of all, vocabulary]` and `[tokens of all, hidden]`.
    logits: Tensor,
    lower: Tensor,
    generated: Vec<Vec<i64>>,
}

impl Expected {
    fn read(folder: &str) -> Expected {
        let bytes = std::fs::read(fixture(folder).join("expected.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let whole = |name: &str| -> Vec<i64> {
            let number = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().unwrap());
            tensors.tensor(name).unwrap().data().chunks(8).map(number).collect()
        };
        let numbers = |name: &str| {
            let tensor = tensors.tensor(name).unwrap();
            let size: Vec<i64> = tensor.shape().iter().map(|&n| n as i64).collect();
            Tensor::from_data_size(tensor.data(), &size, Kind::Float)
        };
        let (ids, mut first) = (whole("ids"), 0);
        let lengths = whole("lengths");
        let sequence = |&length: &i64| {
            let own = ids[first..first + length as usize].to_vec();
            first += length as usize;
            own
        };
        let sequences: Vec<Vec<i64>> = lengths.iter().map(sequence).collect();
        let generated = whole("generated");
        let per_sequence = generated.len() / sequences.len();
        Expected {
            sequences,
            logits: numbers("logits"),
            lower: numbers("lower"),
            generated: generated.chunks(per_sequence).map(<[i64]>::to_vec).collect(),
        }
    }
}

fn assert_close(found: &Tensor, expected: &Tensor, what: &str) {
    assert_eq!(found.size(), expected.size(), "{what}");
    let difference = (found - expected).abs().max().double_value(&[]);
    assert!(difference < 2e-4, "{what}: off by {difference}");
}

/// All sequences prefilled in one step, then decoded together: last tokens' logits, and all tokens that follow.
fn generate(
    decoder: &Decoder,
    sequences: &[Vec<i64>],
    tokens: usize,
    lora: Option<(&LoraCache, AdapterImplementation)>,
) -> (Tensor, Vec<Vec<i64>>) {
    let layers = decoder.shape().layers as usize;
    let kv = KvCache::new(decoder.shape(), 0..layers, 32, 4, DType::F32, Device::Cpu).unwrap();
    // Sequence `i` has pages `i`, `i + n`, `i + 2n` …: next to no page is its neighbour.
    let count = sequences.len() as u32;
    let pages: Vec<Vec<u32>> = (0..count).map(|own| (own..32).step_by(count as usize).collect()).collect();
    let mut generated = vec![Vec::new(); sequences.len()];
    let mut first = None;
    for round in 0..tokens {
        let mut chunks = Vec::new();
        for (index, sequence) in sequences.iter().enumerate() {
            let (ids, cached): (&[i64], usize) = match round {
                0 => (sequence, 0),
                _ => (&generated[index][round - 1..], sequence.len() + round - 1),
            };
            chunks.push(Chunk {
                ids,
                cached: cached as u32,
                pages: &pages[index],
                slot: lora.is_some().then_some(1),
                wants_token: true,
            });
        }
        let step = decoder.step(&chunks, &kv).unwrap();
        let plan = lora.map(|(cache, implementation)| (cache, cache.plan(step.segments(), implementation).unwrap()));
        let tenants = plan.as_ref().map(|(cache, plan)| TenantParameters::Lora(Loras::new(cache, plan)));
        let logits = decoder.forward(&step, &kv, tenants).unwrap();
        let next = sample(&logits, &vec![Sampling::Greedy; sequences.len()]).unwrap();
        first.get_or_insert(logits);
        for (own, token) in generated.iter_mut().zip(next) {
            own.push(token);
        }
    }
    (first.unwrap(), generated)
}

fn last_rows(expected: &Expected) -> Tensor {
    let mut end = 0;
    let last = |sequence: &Vec<i64>| {
        end += sequence.len() as i64;
        end - 1
    };
    let rows: Vec<i64> = expected.sequences.iter().map(last).collect();
    expected.logits.index_select(0, &Tensor::from_slice(&rows))
}

fn check_backbone(name: &str) {
    check(&checkpoint(name), &Expected::read(name));
}

fn check(decoder: &Decoder, expected: &Expected) {
    let mut first = 0;
    for sequence in &expected.sequences {
        let length = sequence.len() as i64;
        let rows = |all: &Tensor| all.narrow(0, first, length);
        let lower = decoder.lower_layers(&[sequence], LOWER_LAYERS).unwrap();
        assert_close(&lower.get(0), &rows(&expected.lower), "after the lower layers");
        let whole = decoder.lower_layers(&[sequence], decoder.shape().layers as usize).unwrap();
        let logits = decoder.logits_of(&whole.get(0)).unwrap();
        assert_close(&logits, &rows(&expected.logits), "logits at every token");
        first += length;
    }
    let (logits, generated) = generate(decoder, &expected.sequences, expected.generated[0].len(), None);
    assert_close(&logits, &last_rows(expected), "logits after the prompts");
    assert_eq!(generated, expected.generated);
}

#[test]
fn a_llama_checkpoint_computes_what_the_reference_does() {
    check_backbone("tiny_llama");
}

/// Llama 2's longer descendants, and Llama 3.1: the same weights, whose positions turn slower.
#[test]
fn stretched_positions_are_computed_as_the_reference_does() {
    for stretched in ["tiny_llama_linear", "tiny_llama_llama3"] {
        let decoder = decoder_of(stretched, "tiny_llama");
        check(&decoder, &Expected::read(stretched));
    }
}

#[test]
fn an_opt_checkpoint_computes_what_the_reference_does() {
    check_backbone("tiny_opt");
}

#[test]
fn a_peft_adapter_computes_what_the_reference_does() {
    let (decoder, expected) = (checkpoint("tiny_llama"), Expected::read("tiny_llama_lora"));
    // The adapter has rank 4: what is left of the slot's 8 is zeros.
    let shape = LoraShape::new(decoder.shape(), 8).unwrap();
    let store = LoraStore::random(shape, 2, 7, DType::F32, Device::Cpu, u64::MAX).unwrap();
    store.set(1, &read_lora(&fixture("tiny_llama_lora"), &shape).unwrap()).unwrap();
    let cache = LoraCache::new(shape, 3, DType::F32, Device::Cpu).unwrap();
    cache.load(&store, 0, 0, 0..2).unwrap();
    cache.load(&store, 1, 1, 0..2).unwrap();
    for implementation in cache.implementations() {
        let lora = Some((&cache, implementation));
        let (logits, generated) = generate(&decoder, &expected.sequences, expected.generated[0].len(), lora);
        assert_close(&logits, &last_rows(&expected), &format!("{implementation}"));
        assert_eq!(generated, expected.generated, "{implementation}");
    }
}
