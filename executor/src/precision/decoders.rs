//! Decoders that go on from a paged cache, alone, with LoRA and with adapters, against the same tokens all at once.

use std::ops::Range;

use tch::Tensor;
use tenantry_profiles::{AdapterImplementation, DType, ModelShape};

use super::encoders::adapt;
use super::reference::{DecoderReference, Tenant, double};
use super::{Place, SEED};
use crate::adapters::{AdapterCache, AdapterShape, AdapterStore, Adapters};
use crate::decoder::{self, Chunk, Decoder, DecoderConfig, KvCache, Step, TenantParameters};
use crate::error::ExecutorError;
use crate::lora::{self, LoraCache, LoraShape, LoraStore, Loras};

/// By how much weights are larger than a decoder's first ones.
const WEIGHTS: f64 = 3.0;
/// By how much tenants' are.
const TENANTS: f64 = 6.0;
const PAGE_TOKENS: u32 = 16;
/// Tokens of each sequence in the end, and its pages, which lie apart.
const SEQUENCES: [(usize, &[u32]); 3] = [(35, &[6, 1, 4]), (8, &[3]), (20, &[0, 5])];
/// Whose each is.
const OF_TENANTS: [u32; 3] = [1, 0, 1];
/// Where the two tenants' parameters lie, of more slots, as where requests are served: products over all of them have
/// groups without rows.
const SLOTS: [u32; 2] = [1, 4];
const ALL_SLOTS: u32 = 6;

/// What each step takes of which sequence: prompts in pieces, beside others' new tokens, and then new tokens alone.
const STEPS: [&[(usize, Range<usize>)]; 4] = [
    &[(0, 0..20), (1, 0..5)],
    &[(0, 20..33), (1, 5..6), (2, 0..18)],
    &[(0, 33..34), (1, 6..7), (2, 18..19)],
    &[(0, 34..35), (1, 7..8), (2, 19..20)],
];
/// The step whose logits are compared.
const LAST: usize = STEPS.len() - 1;

fn shape() -> ModelShape {
    ModelShape {
        name: "checked decoder".into(),
        layers: 2,
        hidden: 128,
        heads: 4,
        kv_heads: 2,
        intermediate: 256,
        vocabulary: 512,
        positions: 64,
        ..ModelShape::builtin("tiny-llama").expect("it is built in")
    }
}

fn decoder(place: &Place<'_>) -> Result<Decoder, ExecutorError> {
    let shape = shape();
    let first = Decoder::random(&shape, SEED, DType::F32, tch::Device::Cpu)?;
    for of in decoder::places(&shape).into_iter().filter(|of| of.shape.len() == 2) {
        let mut matrix = first.parameters().f_narrow(0, of.offset as i64, of.length() as i64)?;
        let _ = matrix.f_mul_scalar_(WEIGHTS)?;
    }
    Decoder::from_parameters(&DecoderConfig::new(&shape)?, place.there(first.parameters())?)
}

fn sequences() -> Vec<Vec<i64>> {
    let sequence = |(row, (length, _)): (i64, (usize, &[u32]))| {
        (0..length as i64).map(|at| (row * 211 + at * 53 + 3) % 512).collect()
    };
    (0..).zip(SEQUENCES).map(sequence).collect()
}

/// Makes all steps, each by `forward`; the logits of the last, one sequence below the other.
fn serve(
    place: &Place<'_>,
    decoder: &Decoder,
    forward: impl Fn(&Step, &KvCache) -> Result<Tensor, ExecutorError>,
) -> Result<Tensor, ExecutorError> {
    let kv = cache(place)?;
    let mut logits = None;
    for step in STEPS {
        let step = step_of(step, decoder, &kv, |sequence| SEQUENCES[sequence].1)?;
        logits = Some(forward(&step, &kv)?);
    }
    Ok(logits.expect("there are steps"))
}

/// The same, but for the last step, which is made from copies of the pages in another cache, where they lie elsewhere.
fn serve_moved(place: &Place<'_>, decoder: &Decoder) -> Result<Tensor, ExecutorError> {
    const THERE: [&[u32]; 3] = [&[2, 0, 6], &[5], &[1, 3]];
    let (kv, other) = (cache(place)?, cache(place)?);
    for step in &STEPS[..LAST] {
        let step = step_of(step, decoder, &kv, |sequence| SEQUENCES[sequence].1)?;
        let _ = decoder.forward(&step, &kv, None)?;
    }
    for ((_, pages), there) in SEQUENCES.into_iter().zip(THERE) {
        other.copy_pages(there, &kv, pages)?;
    }
    decoder.forward(
        &step_of(STEPS[LAST], decoder, &other, |sequence| THERE[sequence])?,
        &other,
        None,
    )
}

fn cache(place: &Place<'_>) -> Result<KvCache, ExecutorError> {
    KvCache::new(&shape(), 0..2, 7, PAGE_TOKENS, place.dtype, place.device)
}

/// A step of pieces of the sequences, whose pages are these.
fn step_of(
    pieces: &[(usize, Range<usize>)],
    decoder: &Decoder,
    kv: &KvCache,
    pages: impl Fn(usize) -> &'static [u32],
) -> Result<Step, ExecutorError> {
    let sequences = sequences();
    let chunk = |(sequence, range): &(usize, Range<usize>)| Chunk {
        ids: &sequences[*sequence][range.clone()],
        cached: range.start as u32,
        pages: pages(*sequence),
        slot: Some(SLOTS[OF_TENANTS[*sequence] as usize]),
        wants_token: true,
    };
    decoder.step(&pieces.iter().map(chunk).collect::<Vec<_>>(), kv)
}

/// What the reference says after all tokens of each sequence.
fn expected(forward: impl Fn(usize, &[i64]) -> Tensor) -> Tensor {
    let sequences = sequences();
    let rows = STEPS[LAST].iter().map(|(sequence, _)| forward(*sequence, &sequences[*sequence]));
    Tensor::stack(&rows.collect::<Vec<_>>(), 0)
}

/// Compares all of them.
pub(super) fn check(place: &mut Place<'_>) -> Result<(), ExecutorError> {
    let decoder = decoder(place)?;
    let reference = DecoderReference::of(&decoder)?;
    let alone = expected(|_, ids| reference.logits(ids, &Tenant::NOBODY));
    // Had the cache nothing of what came before, the last token would stand alone.
    let forgetful = expected(|_, ids| reference.logits(&ids[ids.len() - 1..], &Tenant::NOBODY));
    place.part("decoding from the cache", |place, what| {
        let found = serve(place, &decoder, |step, kv| decoder.forward(step, kv, None))?;
        place.compare(what, &found, &alone, &forgetful)
    });
    place.part("decoding from pages of another cache", |place, what| {
        let found = serve_moved(place, &decoder)?;
        place.compare(what, &found, &alone, &forgetful)
    });
    place.part("lora", |place, _| lora(place, &decoder, &reference, &alone));
    place.part("adapters of a decoder", |place, _| {
        adapters(place, &decoder, &reference, &alone)
    });
    Ok(())
}

fn lora(
    place: &mut Place<'_>,
    decoder: &Decoder,
    reference: &DecoderReference,
    alone: &Tensor,
) -> Result<(), ExecutorError> {
    let shape = LoraShape::new(&shape(), 8)?;
    let store = LoraStore::random(shape, 2, SEED, place.dtype, place.device, u64::MAX)?;
    let cache = LoraCache::new(shape, ALL_SLOTS, place.dtype, place.device)?;
    for (tenant, slot) in (0..).zip(SLOTS) {
        let _ = store.sets.of(tenant).f_mul_scalar_(TENANTS)?;
        cache.load(&store, tenant, slot, 0..2)?;
    }
    let blocks = OF_TENANTS.map(|tenant| double(&store.sets.of(tenant)));
    let blocks = blocks.into_iter().collect::<Result<Vec<_>, _>>()?;
    let with_lora = expected(|sequence, ids| {
        let adds = |layer, input, x: &Tensor| Some(low_rank(&blocks[sequence], &shape, layer, input, x));
        let tenant = Tenant {
            adds: &adds,
            ..Tenant::NOBODY
        };
        reference.logits(ids, &tenant)
    });
    for &implementation in AdapterImplementation::ALL {
        let what = format!("lora, {implementation}");
        if let Some(reason) = cache.grouped_fails().filter(|_| implementation == AdapterImplementation::Grouped) {
            place.does_not_run(&what, reason);
            continue;
        }
        place.part(&what, |place, what| {
            let found = serve(place, decoder, |step, kv| {
                let plan = cache.plan(step.segments(), implementation)?;
                decoder.forward(step, kv, Some(TenantParameters::Lora(Loras::new(&cache, &plan))))
            })?;
            place.compare(what, &found, &with_lora, alone)
        });
    }
    Ok(())
}

fn adapters(
    place: &mut Place<'_>,
    decoder: &Decoder,
    reference: &DecoderReference,
    alone: &Tensor,
) -> Result<(), ExecutorError> {
    let shape = AdapterShape::new(&self::shape(), 16)?;
    let store = AdapterStore::random(shape, 2, SEED, place.dtype, place.device, u64::MAX)?;
    let cache = AdapterCache::new(shape, ALL_SLOTS, place.dtype, place.device)?;
    for (tenant, slot) in (0..).zip(SLOTS) {
        let _ = store.sets.of(tenant).f_mul_scalar_(TENANTS)?;
        cache.load(&store, tenant, slot, 0..2)?;
    }
    let blocks = OF_TENANTS.map(|tenant| double(&store.sets.of(tenant)));
    let blocks = blocks.into_iter().collect::<Result<Vec<_>, _>>()?;
    let adapted = expected(|sequence, ids| {
        let adapts = |layer, attention: Tensor| adapt(&blocks[sequence], &shape, layer, &attention);
        let tenant = Tenant {
            adapts: &adapts,
            ..Tenant::NOBODY
        };
        reference.logits(ids, &tenant)
    });
    for &implementation in AdapterImplementation::ALL {
        let what = format!("adapters of a decoder, {implementation}");
        if let Some(reason) = cache.grouped_fails().filter(|_| implementation == AdapterImplementation::Grouped) {
            place.does_not_run(&what, reason);
            continue;
        }
        place.part(&what, |place, what| {
            let found = serve(place, decoder, |step, kv| {
                let plan = step.plan_adapters(&cache, implementation)?;
                decoder.forward(step, kv, Some(TenantParameters::Adapters(Adapters::new(&cache, &plan))))
            })?;
            place.compare(what, &found, &adapted, alone)
        });
    }
    Ok(())
}

/// What a tenant's pairs of an input make of it: `x · A · B` of each projection, side by side.
fn low_rank(block: &Tensor, shape: &LoraShape, layer: usize, input: lora::Input, x: &Tensor) -> Tensor {
    let own = block.view([i64::from(shape.layers), -1]).narrow(0, layer as i64, 1);
    let pairs = shape.views(&own, input).expect("a block is as long as its shape says");
    let downs = pairs.down.get(0).chunk(pairs.ups.len() as i64, -1);
    let products = downs.iter().zip(&pairs.ups).map(|(down, up)| x.matmul(down).matmul(&up.get(0)));
    Tensor::cat(&products.collect::<Vec<_>>(), -1)
}
