//! Steps of a decoder: however prompts are cut, batched, paged, evicted and recomputed, what comes out is the same.

use proptest::prelude::*;
use tch::{Device, Kind, Tensor};
use tenantry_executor::{
    AdapterCache, AdapterShape, AdapterStore, Adapters, Chunk, Decoder, KvCache, Sampling, TenantParameters,
    WholeModel, sample,
};
use tenantry_profiles::{AdapterImplementation, DType, ModelShape};

const LAYERS: usize = 2;
const VOCABULARY: u32 = 97;
const PAGES: u32 = 64;

/// A decoder whose weights are large enough that every part of it shows in the output: ten times the usual, with biases
/// and norms that do something.
fn decoder(name: &str) -> Decoder {
    let shape = ModelShape {
        layers: LAYERS as u32,
        hidden: 48,
        heads: 6,
        kv_heads: if name == "tiny-llama" { 2 } else { 6 },
        intermediate: 40,
        vocabulary: VOCABULARY,
        positions: 128,
        ..ModelShape::builtin(name).unwrap()
    };
    let decoder = Decoder::random(&shape, 3, DType::F32, Device::Cpu).unwrap();
    tch::manual_seed(11);
    let noise = Tensor::randn(decoder.parameters().size(), (Kind::Float, Device::Cpu)) * 0.1;
    decoder.load(&(decoder.parameters() * 4.0 + noise)).unwrap();
    decoder
}

fn both() -> [Decoder; 2] {
    [decoder("tiny-llama"), decoder("tiny-opt")]
}

fn kv(decoder: &Decoder, page_tokens: u32) -> KvCache {
    KvCache::new(decoder.shape(), 0..LAYERS, PAGES, page_tokens, DType::F32, Device::Cpu).unwrap()
}

fn ids(seed: u64, count: usize) -> Vec<i64> {
    let id = |index: u64| ((seed * 7919 + index * 104_729 + index * index * 31) % u64::from(VOCABULARY)) as i64;
    (0..count as u64).map(id).collect()
}

fn chunk<'a>(ids: &'a [i64], cached: usize, pages: &'a [u32]) -> Chunk<'a> {
    Chunk {
        ids,
        cached: cached as u32,
        pages,
        slot: None,
        wants_token: true,
    }
}

/// Logits after each chunk, in one step.
fn step(decoder: &Decoder, kv: &KvCache, chunks: &[Chunk<'_>]) -> Tensor {
    let step = decoder.step(chunks, kv).unwrap();
    decoder.forward(&step, kv, None).unwrap()
}

/// Logits after a whole sequence, computed at once and without a cache.
fn recomputed(decoder: &Decoder, sequence: &[i64]) -> Tensor {
    let hidden = decoder.lower_layers(&[sequence], LAYERS).unwrap();
    decoder.logits_of(&hidden.get(0).get(sequence.len() as i64 - 1)).unwrap()
}

fn assert_close(found: &Tensor, expected: &Tensor, what: &str) {
    let difference = (found - expected).abs().max().double_value(&[]);
    assert!(difference < 2e-4, "{what}: off by {difference}");
    assert!(
        expected.abs().max().double_value(&[]) > 0.5,
        "{what}: nothing to compare"
    );
}

#[test]
fn decoding_with_the_cache_equals_full_recomputation() {
    for decoder in both() {
        let (kv, all, pages) = (kv(&decoder, 8), ids(1, 40), Vec::from_iter(0..5));
        let prefilled = step(&decoder, &kv, &[chunk(&all[..9], 0, &pages)]);
        assert_close(&prefilled.get(0), &recomputed(&decoder, &all[..9]), "the prompt");
        for length in 10..=40 {
            let decoded = step(&decoder, &kv, &[chunk(&all[length - 1..length], length - 1, &pages)]);
            assert_close(
                &decoded.get(0),
                &recomputed(&decoder, &all[..length]),
                &format!("token {length}"),
            );
        }
    }
}

#[test]
fn a_mixed_step_equals_separate_steps() {
    for decoder in both() {
        let (together, apart) = (kv(&decoder, 4), kv(&decoder, 4));
        let sequences: Vec<Vec<i64>> = [17, 5, 1, 30].iter().map(|&length| ids(length as u64, length)).collect();
        let pages: Vec<Vec<u32>> = (0..4).map(|own| (own * 10..own * 10 + 10).collect()).collect();
        // Two sequences are running, with all but their last token cached.
        for running in [1, 3] {
            let (last, pages) = (sequences[running].len() - 1, &pages[running]);
            for kv in [&together, &apart] {
                let _ = step(&decoder, kv, &[chunk(&sequences[running][..last], 0, pages)]);
            }
        }
        // The others join: a long prompt, and one of a single token.
        let chunks: Vec<Chunk<'_>> = sequences
            .iter()
            .zip(&pages)
            .enumerate()
            .map(|(index, (sequence, pages))| {
                let cached = if index % 2 == 1 { sequence.len() - 1 } else { 0 };
                chunk(&sequence[cached..], cached, pages)
            })
            .collect();
        let mixed = step(&decoder, &together, &chunks);
        for (row, own) in chunks.iter().enumerate() {
            let alone = step(&decoder, &apart, &[*own]);
            assert_close(&mixed.get(row as i64), &alone.get(0), &format!("sequence {row}"));
            assert_close(
                &alone.get(0),
                &recomputed(&decoder, &sequences[row]),
                &format!("sequence {row} alone"),
            );
        }
    }
}

/// Pages go from holder to holder, and what a former one left is beyond the end of the next: masked, but `NaN + -inf`
/// and `0 · NaN` are NaN.
#[test]
fn what_is_no_number_stays_with_its_holder() {
    for (decoder, broken) in both().into_iter().zip(both()) {
        broken.load(&(broken.parameters() * f64::NAN)).unwrap();
        let (kv, pages) = (kv(&decoder, 8), [3, 5, 9, 2]);
        let (all, other) = (ids(3, 32), ids(5, 32));
        let left = step(&broken, &kv, &[chunk(&other, 0, &pages)]);
        assert!(bool::try_from(left.isnan().all()).unwrap(), "it computes no numbers");

        // A prompt in pieces that begin and end within pages, and then one by one.
        let ends = [0, 3, 8, 13, 24].into_iter().chain(25..=32);
        for (cached, end) in ends.clone().zip(ends.skip(1)) {
            let logits = step(&decoder, &kv, &[chunk(&all[cached..end], cached, &pages)]);
            let what = format!("tokens {cached}..{end}");
            assert_close(&logits.get(0), &recomputed(&decoder, &all[..end]), &what);
        }
    }
}

#[test]
fn only_chunks_that_want_a_token_get_logits() {
    let [decoder, _] = both();
    let (kv, all, pages) = (kv(&decoder, 8), ids(4, 20), Vec::from_iter(0..8));
    let piece = Chunk {
        wants_token: false,
        ..chunk(&all, 0, &pages[..4])
    };
    let step = decoder.step(&[piece, chunk(&all[..3], 0, &pages[4..])], &kv).unwrap();
    assert_eq!((step.tokens(), step.wanted()), (23, 1));
    let logits = decoder.forward(&step, &kv, None).unwrap();
    assert_close(&logits.get(0), &recomputed(&decoder, &all[..3]), "the other");
    let none = decoder.step(&[piece], &kv).unwrap();
    assert_eq!(
        decoder.forward(&none, &kv, None).unwrap().size(),
        [0, i64::from(VOCABULARY)]
    );
}

/// Greedy tokens of a sequence, its pages evicted after so many of them and computed again in others.
fn generated(
    decoder: &Decoder,
    prompt: &[i64],
    tokens: usize,
    evicted_after: Option<usize>,
    how: Sampling,
) -> Vec<i64> {
    let kv = kv(decoder, 4);
    let (mut all, mut pages, mut cached) = (prompt.to_vec(), Vec::from_iter(0..16u32), 0);
    while all.len() < prompt.len() + tokens {
        if evicted_after == Some(all.len() - prompt.len()) {
            // Elsewhere: prompt and generated tokens are one prompt now (Punica, section 5.3).
            (pages, cached) = (Vec::from_iter((16..32u32).rev()), 0);
        }
        let logits = step(decoder, &kv, &[chunk(&all[cached..], cached, &pages)]);
        cached = all.len();
        let how = match how {
            Sampling::Temperature {
                temperature,
                seed,
                ticket,
                ..
            } => Sampling::Temperature {
                temperature,
                seed,
                ticket,
                position: all.len() as u32,
            },
            greedy => greedy,
        };
        all.extend(sample(&logits, &[how]).unwrap());
    }
    all.split_off(prompt.len())
}

#[test]
fn eviction_and_recomputation_do_not_change_the_tokens() {
    let drawn = Sampling::Temperature {
        temperature: 0.8,
        seed: 9,
        ticket: 3,
        position: 0,
    };
    for decoder in both() {
        let prompt = ids(6, 11);
        for how in [Sampling::Greedy, drawn] {
            let undisturbed = generated(&decoder, &prompt, 24, None, how);
            let distinct = std::collections::BTreeSet::from_iter(&undisturbed).len();
            assert!(distinct > 3, "tokens that vary: {undisturbed:?}");
            for after in [1, 7, 23] {
                assert_eq!(
                    generated(&decoder, &prompt, 24, Some(after), how),
                    undisturbed,
                    "evicted after {after}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// However a prompt is cut, and whichever pages hold it, the logits after it are those of the whole in order.
    #[test]
    fn chunked_prefill_in_shuffled_pages_equals_the_whole(
        llama: bool,
        cuts in proptest::collection::btree_set(1usize..50, 0..6),
        page_tokens in 1u32..9,
        shuffled in Just(Vec::from_iter(0..PAGES)).prop_shuffle(),
    ) {
        let decoder = decoder(if llama { "tiny-llama" } else { "tiny-opt" });
        let (kv, all) = (kv(&decoder, page_tokens), ids(2, 50));
        let mut ends = Vec::from_iter(cuts);
        ends.push(50);
        let (mut first, mut last) = (0, None);
        for end in ends {
            last = Some(step(&decoder, &kv, &[chunk(&all[first..end], first, &shuffled)]));
            first = end;
        }
        assert_close(&last.unwrap().get(0), &recomputed(&decoder, &all), "the last piece");
    }
}

#[test]
fn upper_layers_go_on_from_given_hidden_states() {
    for decoder in both() {
        let upper = KvCache::new(decoder.shape(), 1..2, 16, 4, DType::F32, Device::Cpu).unwrap();
        let (one, other) = (ids(1, 7), ids(2, 12));
        let lower = |sequence: &[i64]| decoder.lower_layers(&[sequence], 1).unwrap().get(0);
        // As from a PLOT table whose fragments are as long as the input.
        let given = Tensor::cat(&[lower(&one).narrow(0, 6, 1), lower(&other)], 0);
        let (a, b) = ([0, 1], [2, 3, 4]);
        let first = decoder.step(&[chunk(&one[..6], 0, &a)], &upper).unwrap();
        let _ = decoder.layers(lower(&one[..6]), 1..2, &first, &upper, None).unwrap();

        // Inside, the longer chunk comes first.
        let mixed = decoder.step(&[chunk(&one[6..], 6, &a), chunk(&other, 0, &b)], &upper).unwrap();
        let hidden = decoder.layers(mixed.arrange(given).unwrap(), 1..2, &mixed, &upper, None).unwrap();
        let logits = decoder.logits(&hidden, &mixed).unwrap();
        assert_close(&logits.get(0), &recomputed(&decoder, &one), "decoded");
        assert_close(&logits.get(1), &recomputed(&decoder, &other), "prefilled");
    }
}

#[test]
fn tenants_adapters_serve_decoders_too() {
    let [_, decoder] = both();
    let shape = AdapterShape::new(decoder.shape(), 8).unwrap();
    let store = AdapterStore::random(shape, 3, 1, DType::F32, Device::Cpu, u64::MAX).unwrap();
    let cache = AdapterCache::new(shape, 3, DType::F32, Device::Cpu).unwrap();
    for slot in 0..3 {
        cache.load(&store, slot, slot, 0..LAYERS).unwrap();
    }
    let all = ids(5, 9);
    let pages: Vec<Vec<u32>> = (0..3).map(|own| (own * 4..own * 4 + 4).collect()).collect();
    let logits = |kv: &KvCache, chunks: &[Chunk<'_>]| {
        let step = decoder.step(chunks, kv).unwrap();
        let plan = step.plan_adapters(&cache, AdapterImplementation::GatherBmm).unwrap();
        let tenants = Some(TenantParameters::Adapters(Adapters::new(&cache, &plan)));
        decoder.forward(&step, kv, tenants).unwrap()
    };
    let of = |slot: u32, length: usize| Chunk {
        slot: Some(slot),
        ..chunk(&all[..length], 0, &pages[slot as usize])
    };
    let together = logits(&kv(&decoder, 4), &[of(2, 9), of(0, 1), of(1, 9)]);
    for (row, own) in [of(2, 9), of(0, 1), of(1, 9)].into_iter().enumerate() {
        let alone = logits(&kv(&decoder, 4), &[own]);
        assert_close(&together.get(row as i64), &alone.get(0), &format!("chunk {row}"));
    }
    assert!(
        !together.get(0).allclose(&together.get(2), 1e-3, 1e-3, false),
        "tenants differ"
    );
    let backbone = Chunk { slot: None, ..of(0, 3) };
    let refused = decoder.step(&[backbone], &kv(&decoder, 4)).unwrap();
    let refused = refused.plan_adapters(&cache, AdapterImplementation::Loop).unwrap_err();
    assert_eq!(refused.to_string(), "slot of a chunk: must be an adapter's, got none");
}

#[test]
fn half_precision_stays_near_single() {
    for (dtype, tolerance) in [(DType::Bf16, 0.05), (DType::F16, 0.01)] {
        for large in both() {
            // As small as weights usually are: large ones make chaos of the smallest difference.
            let single = Decoder::random(large.shape(), 3, DType::F32, Device::Cpu).unwrap();
            let parameters = single.parameters().to_kind(tenantry_executor::kind(dtype));
            let config = tenantry_executor::DecoderConfig::new(single.shape()).unwrap();
            let half = Decoder::from_parameters(&config, parameters).unwrap();
            let all = ids(8, 21);
            let run = |decoder: &Decoder, dtype| {
                let kv = KvCache::new(decoder.shape(), 0..LAYERS, 16, 8, dtype, Device::Cpu).unwrap();
                let pages = Vec::from_iter(0..16);
                let _ = step(decoder, &kv, &[chunk(&all[..9], 0, &pages)]);
                let _ = step(decoder, &kv, &[chunk(&all[9..20], 9, &pages)]);
                step(decoder, &kv, &[chunk(&all[20..], 20, &pages)]).to_kind(Kind::Float)
            };
            let (expected, found) = (run(&single, DType::F32), run(&half, dtype));
            let spread = expected.std(false).double_value(&[]);
            let difference = (found - expected).std(false).double_value(&[]);
            assert!(difference < tolerance * spread, "{dtype}: {difference} of {spread}");
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let [decoder, _] = both();
    let kv = kv(&decoder, 4);
    let (long, short) = (ids(1, 129), ids(1, 6));
    let refused = |chunks: &[Chunk<'_>]| decoder.step(chunks, &kv).unwrap_err().to_string();
    let pages = Vec::from_iter(0..40);
    for (chunks, message) in [
        (vec![], "step: must be at least one chunk, got none"),
        (
            vec![chunk(&[], 3, &pages)],
            "chunk 0 of the step: ids: must be at least one token, got none",
        ),
        (
            vec![chunk(&short, 0, &pages), chunk(&[97], 0, &pages)],
            "chunk 1 of the step: ids: must be from 0 to 96, got 97",
        ),
        (
            vec![chunk(&long, 0, &pages)],
            "chunk 0 of the step: ids: must be at most 128 tokens with those cached, the positions of tiny-llama, got \
             129",
        ),
        (
            vec![chunk(&short, 3, &pages[..2])],
            "chunk 0 of the step: pages: must be pages for 9 tokens, 3 of 4, got 2",
        ),
        (
            vec![chunk(&short, 0, &[3, 64])],
            "chunk 0 of the step: pages: must be below 64, got 64",
        ),
        (
            vec![chunk(&short, 0, &[3, 5]), chunk(&short, 8, &[1, 2, 5, 6])],
            "pages that the step writes to: must be each one chunk's, got 5 twice",
        ),
    ] {
        assert_eq!(refused(&chunks), message);
    }
    // Pages that are only read may be shared: a common prefix.
    let shared = [chunk(&short, 8, &[1, 2, 5, 6]), chunk(&short, 8, &[1, 2, 7, 8])];
    assert!(decoder.step(&shared, &kv).is_ok());
}
