//! LoRA of many tenants in one step: three implementations that agree, and equal the merged weights.

use proptest::prelude::*;
use tch::{Device, Kind, Tensor};
use tenantry_executor::{
    Chunk, Decoder, DecoderConfig, KvCache, LoraCache, LoraShape, LoraStore, Loras, Segment, TenantParameters,
    WholeModel,
};
use tenantry_profiles::{AdapterImplementation, DType, ModelShape};

const LAYERS: usize = 2;
const RANK: u32 = 8;
const TENANTS: u32 = 5;
const PAGES_EACH: u32 = 8;

/// A decoder, and a cache whose slot `s` holds tenant `TENANTS - 1 - s`, with the store.
struct Subject {
    decoder: Decoder,
    store: LoraStore,
    cache: LoraCache,
}

fn subject(name: &str) -> Subject {
    let shape = ModelShape {
        hidden: 48,
        heads: 6,
        kv_heads: if name == "tiny-llama" { 2 } else { 6 },
        intermediate: 40,
        vocabulary: 97,
        positions: 64,
        ..ModelShape::builtin(name).unwrap()
    };
    let decoder = Decoder::random(&shape, 3, DType::F32, Device::Cpu).unwrap();
    decoder.load(&(decoder.parameters() * 5.0)).unwrap();
    let lora = LoraShape::new(&shape, RANK).unwrap();
    let store = LoraStore::random(lora, TENANTS, 5, DType::F32, Device::Cpu, u64::MAX).unwrap();
    for tenant in 0..TENANTS {
        // Large enough to change what comes out.
        store.set(tenant, &(store.sets.of(tenant) * 10.0)).unwrap();
    }
    let cache = LoraCache::new(lora, TENANTS, DType::F32, Device::Cpu).unwrap();
    for slot in 0..TENANTS {
        cache.share().load(&store, TENANTS - 1 - slot, slot, 0..LAYERS).unwrap();
    }
    Subject { decoder, store, cache }
}

impl Subject {
    /// The tenant's model as one of its own: `W + (A · B)ᵀ` for every projection, written out from the layout that
    /// [`LoraShape`] documents.
    fn merged(&self, tenant: u32) -> Decoder {
        let shape = self.decoder.shape();
        let (hidden, intermediate, rank) = (i64::from(shape.hidden), i64::from(shape.intermediate), i64::from(RANK));
        let kv = i64::from(shape.hidden / shape.heads * shape.kv_heads);
        let vocabulary = i64::from(shape.vocabulary);
        let (inputs, before): (Vec<(i64, Vec<i64>)>, _) = if shape.gated {
            let inner = vec![intermediate, intermediate];
            let inputs = vec![
                (hidden, vec![hidden, kv, kv]),
                (hidden, vec![hidden]),
                (hidden, inner),
                (intermediate, vec![hidden]),
            ];
            (inputs, vocabulary * hidden)
        } else {
            let inputs = vec![
                (hidden, vec![hidden, kv, kv]),
                (hidden, vec![hidden]),
                (hidden, vec![intermediate]),
                (intermediate, vec![hidden]),
            ];
            (inputs, (vocabulary + i64::from(shape.positions)) * hidden)
        };
        let parameters = self.decoder.parameters().copy();
        let block = self.store.sets.of(tenant);
        let (mut from, mut to) = (0, before);
        for _ in 0..LAYERS {
            for (index, (width, outputs)) in inputs.iter().enumerate() {
                // A norm before attention and one before the feed-forward.
                if index % 2 == 0 {
                    to += if shape.gated { hidden } else { 2 * hidden };
                }
                let down = block.narrow(0, from, width * rank * outputs.len() as i64).view([*width, -1]);
                from += down.numel() as i64;
                for (part, output) in outputs.iter().enumerate() {
                    let up = block.narrow(0, from, rank * output).view([rank, *output]);
                    from += rank * output;
                    let product = down.narrow(1, part as i64 * rank, rank).matmul(&up);
                    let mut weight = parameters.narrow(0, to, output * width).view([*output, *width]);
                    let _ = weight.g_add_(&product.transpose(0, 1));
                    to += output * width;
                }
                if !shape.gated {
                    to += outputs.iter().sum::<i64>();
                }
            }
        }
        assert_eq!(from, block.numel() as i64);
        Decoder::from_parameters(&DecoderConfig::new(shape).unwrap(), parameters).unwrap()
    }

    /// Logits after each of `parts`: tokens of a sequence, how many are cached, and whose they are.
    fn logits(&self, parts: &[(usize, usize, Option<u32>)], implementation: AdapterImplementation) -> Tensor {
        let all = ids(parts.iter().map(|part| part.0).max().unwrap());
        let pages = Vec::from_iter(0..parts.len() as u32 * PAGES_EACH);
        let kv = KvCache::new(
            self.decoder.shape(),
            0..LAYERS,
            pages.len() as u32,
            8,
            DType::F32,
            Device::Cpu,
        )
        .unwrap();
        let mut logits = None;
        // First what is cached, then the step in question.
        for prefill in [true, false] {
            let of = |(own, &(length, cached, slot)): (&[u32], &(usize, usize, Option<u32>))| {
                let (ids, cached) = if prefill {
                    (0..cached, 0)
                } else {
                    (cached..length, cached)
                };
                (ids, cached, own.to_vec(), slot)
            };
            let parts: Vec<_> = pages.chunks(PAGES_EACH as usize).zip(parts).map(of).collect();
            let chunks: Vec<Chunk<'_>> = parts
                .iter()
                .filter(|part| !part.0.is_empty())
                .map(|(range, cached, pages, slot)| Chunk {
                    ids: &all[range.clone()],
                    cached: *cached as u32,
                    pages,
                    slot: *slot,
                    wants_token: !prefill,
                })
                .collect();
            if chunks.is_empty() {
                continue;
            }
            let step = self.decoder.step(&chunks, &kv).unwrap();
            let plan = self.cache.plan(step.segments(), implementation).unwrap();
            let tenants = Some(TenantParameters::Lora(Loras::new(&self.cache, &plan)));
            logits = Some(self.decoder.forward(&step, &kv, tenants).unwrap());
        }
        logits.unwrap()
    }
}

fn ids(count: usize) -> Vec<i64> {
    (0..count as i64).map(|index| (index * 37 + 11) % 97).collect()
}

fn last_logits(decoder: &Decoder, length: usize) -> Tensor {
    let hidden = decoder.lower_layers(&[ids(length)], LAYERS).unwrap();
    decoder.logits_of(&hidden.get(0).get(length as i64 - 1)).unwrap()
}

fn difference(one: &Tensor, other: &Tensor) -> f64 {
    (one - other).abs().max().double_value(&[])
}

#[test]
fn every_implementation_equals_the_merged_weights() {
    for name in ["tiny-llama", "tiny-opt"] {
        let subject = subject(name);
        // A prompt, a piece of another, three running sequences of which two are one tenant's, and one of nobody's.
        let parts = [
            (9, 0, Some(1)),
            (20, 12, Some(3)),
            (6, 5, Some(4)),
            (11, 10, None),
            (30, 29, Some(1)),
            (1, 0, Some(4)),
        ];
        for implementation in subject.cache.implementations() {
            let logits = subject.logits(&parts, implementation);
            for (row, &(length, _, slot)) in parts.iter().enumerate() {
                let own = slot.map(|slot| subject.merged(TENANTS - 1 - slot));
                let expected = last_logits(own.as_ref().unwrap_or(&subject.decoder), length);
                let off = difference(&logits.get(row as i64), &expected);
                assert!(off < 2e-4, "{name}, {implementation}, part {row}: off by {off}");
                if slot.is_some() {
                    let backbone = last_logits(&subject.decoder, length);
                    assert!(
                        difference(&expected, &backbone) > 0.05,
                        "{name}: LoRA makes a difference"
                    );
                }
            }
        }
    }
}

#[test]
fn all_three_run_here() {
    let subject = subject("tiny-llama");
    let runs = subject.cache.implementations();
    if let Some(reason) = subject.cache.grouped_fails() {
        println!("skipped: libtorch's grouped product does not run here: {reason}");
        let segments = [Segment {
            slot: Some(0),
            tokens: 1,
        }];
        let refused = subject.cache.plan(&segments, AdapterImplementation::Grouped).unwrap_err();
        assert!(refused.to_string().contains(reason), "{refused}");
    } else {
        assert_eq!(runs, AdapterImplementation::ALL);
    }
}

#[test]
fn layers_are_loaded_by_range_and_empty_slots_add_nothing() {
    let subject = subject("tiny-opt");
    let empty = LoraCache::new(subject.cache.shape(), 2, DType::F32, Device::Cpu).unwrap();
    let same = Subject {
        cache: empty,
        ..self::subject("tiny-opt")
    };
    let parts = [(9, 0, Some(1)), (4, 3, Some(0))];
    for implementation in same.cache.implementations() {
        let logits = same.logits(&parts, implementation);
        assert!(difference(&logits.get(0), &last_logits(&same.decoder, 9)) < 1e-4);
    }
    // Layer by layer is the same as all at once.
    same.cache.load(&same.store, 3, 1, 0..1).unwrap();
    same.cache.load(&same.store, 3, 1, 1..2).unwrap();
    let logits = same.logits(&parts, AdapterImplementation::Loop);
    assert!(difference(&logits.get(0), &last_logits(&same.merged(3), 9)) < 2e-4);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn implementations_agree_however_tenants_are_mixed(
        parts in proptest::collection::vec((1usize..20, 0usize..20, proptest::option::of(0..TENANTS)), 1..8),
    ) {
        let parts: Vec<_> = parts.into_iter().map(|(new, cached, slot)| (new + cached, cached, slot)).collect();
        let subject = subject("tiny-llama");
        let mut all = subject.cache.implementations().into_iter().map(|how| (how, subject.logits(&parts, how)));
        let (_, one) = all.next().unwrap();
        let largest = one.abs().max().double_value(&[]);
        for (how, other) in all {
            let off = difference(&one, &other);
            prop_assert!(off < 1e-4 * largest, "{}: off by {} of {}", how, off, largest);
        }
    }

    /// A tenant's tokens are the same whoever shares the step.
    #[test]
    fn half_precision_agrees_too(rank in prop::sample::select(vec![8u32, 16, 64]), slots in proptest::collection::vec(0..4u32, 1..6)) {
        let shape = LoraShape::new(&ModelShape::builtin("tiny-llama").unwrap(), rank).unwrap();
        let store = LoraStore::random(shape, 4, 5, DType::Bf16, Device::Cpu, u64::MAX).unwrap();
        let cache = LoraCache::new(shape, 4, DType::Bf16, Device::Cpu).unwrap();
        let decoder = Decoder::random(&ModelShape::builtin("tiny-llama").unwrap(), 1, DType::Bf16, Device::Cpu).unwrap();
        for slot in 0..4 {
            cache.load(&store, slot, slot, 0..LAYERS).unwrap();
        }
        let pages: Vec<[u32; 1]> = (0..slots.len() as u32).map(|page| [page]).collect();
        let chunks: Vec<Chunk<'_>> = slots.iter().zip(&pages).map(|(&slot, pages)| Chunk {
            ids: &[5, 6, 7], cached: 0, pages, slot: Some(slot), wants_token: true,
        }).collect();
        let logits = |how| {
            let kv = KvCache::new(decoder.shape(), 0..LAYERS, 8, 4, DType::Bf16, Device::Cpu).unwrap();
            let step = decoder.step(&chunks, &kv).unwrap();
            let plan = cache.plan(step.segments(), how).unwrap();
            let tenants = Some(TenantParameters::Lora(Loras::new(&cache, &plan)));
            decoder.forward(&step, &kv, tenants).unwrap().to_kind(Kind::Float)
        };
        let one = logits(AdapterImplementation::Loop);
        for how in cache.implementations() {
            let off = difference(&one, &logits(how));
            prop_assert!(off < 0.02 * one.abs().max().double_value(&[]), "{}: off by {}", how, off);
        }
    }
}
