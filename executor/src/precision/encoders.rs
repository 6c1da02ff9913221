//! Encoder layers, alone, with adapters, and with tasks of every kind.

use std::ops::Range;

use tch::{Kind, Tensor};
use tenantry_core::pet::work::PetSizes;
use tenantry_profiles::{AdapterImplementation, DType, ModelShape};

use super::reference::{EncoderReference, as_it_is, double};
use super::{Place, SEED};
use crate::adapters::{AdapterCache, AdapterShape, AdapterStore, Adapters};
use crate::cascade::layers_with_importance;
use crate::device::{Stream, synchronize};
use crate::error::ExecutorError;
use crate::model::{self, CompiledModel, Encoder, Heads, Input};
use crate::pet::{self, KINDS, Linear, LoadedOperators, Member, Norm, Parameters, PetBatch, Reader, Streams};

/// By how much weights are larger than BERT's first ones, which leave what layers are given nearly as it is.
const WEIGHTS: f64 = 4.0;
/// By how much tenants' parameters are, likewise.
const TENANTS: f64 = 8.0;
/// Lengths of the batch's sequences, which is padded to the first.
const LENGTHS: [usize; 4] = [24, 7, 16, 1];
const ALL_LAYERS: Range<usize> = 0..2;
/// Whose each is.
const SLOTS: [u32; 4] = [1, 1, 3, 0];
/// Shares of a model that tasks change: larger than the paper's, so that each matters in a small one.
const SIZES: PetSizes = PetSizes {
    bottleneck: 16,
    rank: 8,
    masked_share: 0.2,
    difference_share: 0.1,
};

/// Small, with heads as wide as BERT's.
pub(super) fn shape() -> ModelShape {
    ModelShape {
        name: "checked encoder".into(),
        layers: ALL_LAYERS.end as u32,
        hidden: 128,
        heads: 2,
        kv_heads: 2,
        intermediate: 512,
        vocabulary: 512,
        positions: 64,
        ..ModelShape::builtin("tiny").expect("it is built in")
    }
}

/// Such an encoder with weights that matter.
pub(super) fn encoder(place: &Place<'_>) -> Result<Encoder, ExecutorError> {
    let shape = shape();
    let first = Encoder::random(&shape, SEED, DType::F32, tch::Device::Cpu)?;
    for of in model::places(&shape).into_iter().filter(|of| of.shape.len() == 2) {
        let mut matrix = first.parameters().f_narrow(0, of.offset as i64, of.length() as i64)?;
        let _ = matrix.f_mul_scalar_(WEIGHTS)?;
    }
    Encoder::from_parameters(&shape, place.there(first.parameters())?)
}

fn texts() -> Vec<Vec<i64>> {
    let text = |(row, length): (i64, usize)| (0..length as i64).map(|at| (row * 101 + at * 37 + 5) % 512).collect();
    (0..).zip(LENGTHS).map(text).collect()
}

/// The tokens of a padded batch's `hidden`, `[n, l, hidden]`, that are no padding: one below the other.
fn tokens(hidden: &Tensor) -> Result<Tensor, ExecutorError> {
    let row = |(row, length): (i64, usize)| hidden.f_get(row)?.f_narrow(0, 0, length as i64);
    let rows = (0..).zip(LENGTHS).map(row).collect::<Result<Vec<_>, _>>()?;
    Ok(Tensor::f_cat(&rows, 0)?)
}

/// What the reference makes of each text, one below the other.
fn expected(texts: &[Vec<i64>], forward: impl Fn(usize, &[i64]) -> Tensor) -> Tensor {
    let rows = texts.iter().enumerate().map(|(row, ids)| forward(row, ids));
    Tensor::cat(&rows.collect::<Vec<_>>(), 0)
}

/// A batch, and what each kind of layers makes of it alone.
struct Case {
    encoder: Encoder,
    texts: Vec<Vec<i64>>,
    input: Input,
    embedded: Tensor,
    reference: EncoderReference,
    /// What the reference's layers make of it.
    alone: Tensor,
}

impl Case {
    fn new(place: &Place<'_>) -> Result<Case, ExecutorError> {
        let (encoder, texts) = (encoder(place)?, texts());
        let reference = EncoderReference::of(&encoder)?;
        let input = encoder.input(&texts, LENGTHS[0])?;
        Ok(Case {
            embedded: encoder.embed(&input)?,
            alone: expected(&texts, |_, ids| reference.forward(ids, &as_it_is)),
            encoder,
            texts,
            input,
            reference,
        })
    }

    fn layers(&self, adapters: Option<&Adapters<'_>>) -> Result<Tensor, ExecutorError> {
        let embedded = self.embedded.shallow_clone();
        let found = self.encoder.layers(embedded, ALL_LAYERS, &self.input, adapters)?;
        tokens(&found)
    }
}

/// Compares layers alone, with adapters, and with tasks.
pub(super) fn check(place: &mut Place<'_>) -> Result<(), ExecutorError> {
    let case = Case::new(place)?;
    let without = expected(&case.texts, |_, ids| case.reference.embed(ids));
    place.part("encoder layers", |place, what| {
        place.compare(what, &case.layers(None)?, &case.alone, &without)
    });
    place.part("labels of tokens", |place, what| labels(place, &case, what));
    place.part("attention received", |place, what| importance(place, &case, what));
    adapters(place, &case)?;
    for kind in KINDS {
        let what = format!("task, {}", kind.name());
        place.part(&what, |place, what| task(place, &case, kind, what));
    }
    Ok(())
}

/// What tenants' heads say of each token.
fn labels(place: &mut Place<'_>, case: &Case, what: &str) -> Result<(), ExecutorError> {
    let (classes, tenants) = (3, 4);
    let heads = Heads::random(&shape(), tenants, classes, SEED, place.dtype, place.device)?;
    let embedded = case.embedded.shallow_clone();
    let hidden = case.encoder.layers(embedded, ALL_LAYERS, &case.input, None)?;
    let found = tokens(&heads.tag(&hidden, &SLOTS)?)?;
    let said = |states: &dyn Fn(&[i64]) -> Tensor| {
        let own = double(heads.parameters())?;
        Ok::<_, ExecutorError>(expected(&case.texts, |row, ids| {
            head(&own, SLOTS[row], classes, &states(ids))
        }))
    };
    let there = said(&|ids| case.reference.forward(ids, &as_it_is))?;
    let without = said(&|ids| case.reference.embed(ids))?;
    place.compare(what, &found, &there, &without)
}

/// The attention that words are pruned by, beside what each token would be paid were all paid alike.
fn importance(place: &mut Place<'_>, case: &Case, what: &str) -> Result<(), ExecutorError> {
    let embedded = case.embedded.shallow_clone();
    let (_, found) = layers_with_importance(&case.encoder, ALL_LAYERS, embedded, &case.input)?;
    let there = expected(&case.texts, |_, ids| case.reference.importance(ids));
    let alike = there.full_like(f64::from(shape().layers * shape().heads));
    place.compare(what, &tokens(&found)?, &there, &alike)
}

/// What a tenant's head, of the block of all tenants', makes of hidden states, `[l, hidden]`: `[l, classes]`.
fn head(heads: &Tensor, tenant: u32, classes: u32, states: &Tensor) -> Tensor {
    let (hidden, classes, own) = (i64::from(shape().hidden), i64::from(classes), heads.get(tenant.into()));
    let weight = own.narrow(0, 0, hidden * classes).view([hidden, classes]);
    states.matmul(&weight) + own.narrow(0, hidden * classes, classes)
}

fn adapters(place: &mut Place<'_>, case: &Case) -> Result<(), ExecutorError> {
    let shape = AdapterShape::new(&shape(), 16)?;
    let store = AdapterStore::random(shape, 4, SEED, place.dtype, place.device, u64::MAX)?;
    let cache = AdapterCache::new(shape, 4, place.dtype, place.device)?;
    for slot in 0..4 {
        let _ = store.sets.of(slot).f_mul_scalar_(TENANTS)?;
        cache.load(&store, slot, slot, ALL_LAYERS)?;
    }
    let blocks = SLOTS.map(|slot| double(&store.sets.of(slot)));
    let blocks = blocks.into_iter().collect::<Result<Vec<_>, _>>()?;
    let adapted = expected(&case.texts, |row, ids| {
        case.reference.forward(ids, &|layer, linear, y| match linear {
            Linear::AttentionOutput => adapt(&blocks[row], &shape, layer, &y),
            _ => y,
        })
    });
    for &implementation in AdapterImplementation::ALL {
        let what = format!("adapters, {implementation}");
        place.part(&what, |place, what| {
            let plan = match cache.plan(&SLOTS, LENGTHS[0], implementation) {
                Err(ExecutorError::Unavailable { reason, .. }) => {
                    place.does_not_run(what, &reason);
                    return Ok(());
                }
                plan => plan?,
            };
            let found = case.layers(Some(&Adapters::new(&cache, &plan)))?;
            place.compare(what, &found, &adapted, &case.alone)
        });
    }
    Ok(())
}

/// Three tasks of a kind, of which the first has two sequences and the others one each, on two streams that meet at
/// each shared product.
fn task(place: &mut Place<'_>, case: &Case, kind: &dyn pet::Kind, what: &str) -> Result<(), ExecutorError> {
    let of_row = [0, 0, 1, 2];
    let parameters = [0, 1, 2].map(|task| kind.random(&shape(), &SIZES, SEED, task).scaled(TENANTS as f32));
    let load = |parameters| kind.load(&Reader::new(parameters), &case.encoder);
    let loaded = match parameters.iter().map(load).collect::<Result<Vec<_>, _>>() {
        Err(error @ ExecutorError::NoSparseProduct { .. }) => {
            place.does_not_run(what, &error.to_string());
            return Ok(());
        }
        loaded => loaded?,
    };
    let member = |(task, operators)| {
        let rows = (0..of_row.len()).filter(|&row| of_row[row] == task);
        Member {
            operators: LoadedOperators::new(operators),
            first: rows.clone().next().expect("each task has a sequence") as i64,
            count: rows.clone().count() as i64,
            tokens: rows.map(|row| LENGTHS[row] as i64).max().expect("each task has a sequence"),
            stream: (task % 2) as u32,
        }
    };
    let batch = PetBatch::new(loaded.into_iter().enumerate().map(member).collect());
    let embedded = case.embedded.shallow_clone();
    let streams = Streams::on(place.device, 2)?;
    let found = batch.layers(&case.encoder, embedded, ALL_LAYERS, &case.input, &streams)?;
    let merged = parameters
        .iter()
        .map(|parameters| merged(&case.encoder, kind.name(), parameters))
        .collect::<Result<Vec<_>, _>>()?;
    let with_tasks = expected(&case.texts, |row, ids| {
        let task = of_row[row];
        merged[task].forward(ids, &|layer, linear, y| {
            with_adapter(&parameters[task], layer, linear, y)
        })
    });
    place.compare(what, &tokens(&found)?, &with_tasks, &case.alone)
}

/// A model compiled for one shape, which is a captured graph on a GPU: what its heads make of the second batch that it
/// is given, of which the first one's numbers must have left nothing.
pub(super) fn check_compiled(place: &mut Place<'_>) -> Result<(), ExecutorError> {
    let Case {
        encoder,
        texts,
        reference,
        ..
    } = &Case::new(place)?;
    // The weights were copied on the stream that was current; nothing is captured on a GPU's default one.
    synchronize(place.device)?;
    let _entered = Stream::new(place.device)?.enter()?;
    let (classes, tenants) = (3, 4);
    let heads = Heads::random(&shape(), tenants, classes, SEED, place.dtype, place.device)?;
    synchronize(place.device)?;
    let mut compiled = CompiledModel::new(encoder, &heads, false, texts.len(), LENGTHS[0])?.captured()?;
    let others: Vec<_> = texts.iter().rev().collect();
    compiled.run(&others, &[0; LENGTHS.len()])?;
    compiled.run(texts, &SLOTS)?;

    let own = double(heads.parameters())?;
    let logits = |states: &dyn Fn(&[i64]) -> Tensor| {
        expected(texts, |row, ids| {
            head(&own, SLOTS[row], classes, &states(ids).narrow(0, 0, 1))
        })
    };
    let there = logits(&|ids| reference.forward(ids, &as_it_is));
    let without = logits(&|ids| reference.embed(ids));
    place.compare("compiled model", compiled.logits(), &there, &without)
}

/// HMI's Eq. 1 for the attention of one sequence, `[l, hidden]`, with a tenant's block of all layers.
pub(super) fn adapt(block: &Tensor, shape: &AdapterShape, layer: usize, attention: &Tensor) -> Tensor {
    let (hidden, bottleneck) = (i64::from(shape.hidden), i64::from(shape.bottleneck));
    let own = block.view([i64::from(shape.layers), -1]).get(layer as i64);
    let parts = own.split_with_sizes([hidden * bottleneck, bottleneck, hidden * bottleneck, hidden], 0);
    let (down, up) = (parts[0].view([hidden, bottleneck]), parts[2].view([bottleneck, hidden]));
    let inner = (attention.matmul(&down) + &parts[1]).clamp_min(0.0);
    inner.matmul(&up) + &parts[3] + attention
}

/// A task's stored array in double precision; nothing where it has none of this name.
fn stored(parameters: &Parameters, name: &str) -> Option<Tensor> {
    parameters.get(name)?;
    let tensor = Reader::new(parameters).host_tensor(name).expect("host memory suffices");
    Some(tensor.to_kind(Kind::Double))
}

/// A task that adds adapters, at one linear layer's result `y`; others have nothing to add there.
fn with_adapter(parameters: &Parameters, layer: usize, linear: Linear, y: Tensor) -> Tensor {
    let own = |part: &str| stored(parameters, &format!("layer.{layer}.{}.adapter.{part}", linear.name()));
    let all = ["down", "down_bias", "up", "up_bias"].map(own);
    let [Some(down), Some(down_bias), Some(up), Some(up_bias)] = all else {
        return y;
    };
    let inner = (y.matmul(&down) + down_bias).clamp_min(0.0);
    inner.matmul(&up) + up_bias + y
}

/// The shared model with a task's parameters merged into its weights, as far as its kind merges.
fn merged(encoder: &Encoder, kind: &str, parameters: &Parameters) -> Result<EncoderReference, ExecutorError> {
    let mut merged = EncoderReference::of(encoder)?;
    for (index, layer) in merged.layers.iter_mut().enumerate() {
        let own = |of: &str, part: &str| stored(parameters, &format!("layer.{index}.{of}.{part}"));
        for (at, linear) in Linear::ALL.into_iter().enumerate() {
            let own = |part: &str| own(linear.name(), part);
            let weight = &mut layer.weights[at];
            if let Some(bytes) = own("mask") {
                *weight = &*weight * bits(&bytes, weight.size()[1]);
            }
            if let Some(values) = own("delta.values") {
                let whole = |part: &str| own(part).map(|of| of.to_kind(Kind::Int64));
                let (starts, columns) = (whole("delta.starts"), whole("delta.columns"));
                let (starts, columns) = (
                    starts.expect("rows begin somewhere"),
                    columns.expect("values lie somewhere"),
                );
                let dense = Tensor::sparse_csr_tensor_crow_col_value_size(
                    &starts,
                    &columns,
                    &values,
                    weight.size(),
                    (Kind::Double, tch::Device::Cpu),
                );
                *weight = &*weight + dense.to_dense(None, false);
            }
            if let (Some(b), Some(a)) = (own("lora_b"), own("lora_a")) {
                *weight = &*weight + b.matmul(&a);
            }
            if let Some(delta) = own("bias_delta") {
                layer.biases[at] = &layer.biases[at] + delta;
            }
            if let Some(bias) = own("bias").filter(|_| kind == "bit-fit") {
                layer.biases[at] = bias;
            }
        }
        for (norm, of_layer) in Norm::ALL.into_iter().zip(layer.norm_biases()) {
            if let Some(bias) = own(norm.name(), "bias") {
                *of_layer = bias;
            }
        }
    }
    Ok(merged)
}

/// Rows of bits, eight to a byte and the lowest first, as ones and zeros: `[rows, columns]`.
fn bits(bytes: &Tensor, columns: i64) -> Tensor {
    let bytes = bytes.to_kind(Kind::Int64);
    let bit = |bit: i64| bytes.bitwise_right_shift_tensor_scalar(bit).bitwise_and(1);
    let all = Tensor::stack(&(0..8).map(bit).collect::<Vec<_>>(), 2);
    let rows = bytes.size()[0];
    all.view([rows, -1]).narrow(1, 0, columns).to_kind(Kind::Double)
}
