//! The encoder: views into one flat block of parameters, and the forward pass in pieces.

use std::ops::Range;

use tch::{Device, Kind, Tensor};
use tenantry_profiles::{DType, ModelShape};

use super::input::Input;
use super::layout;
use super::parts::{Linear, Norm, Views};
use super::relative::{Distances, Relative};
use super::variant::{Gelu, Variant};
use crate::adapters::Adapters;
use crate::device::{kind, slice_of};
use crate::error::ExecutorError;
use crate::whole_models::WholeModel;

/// A BERT-like encoder on a device (Devlin et al., 2019): layers that normalise after each sub-layer, no pooler.
///
/// All parameters lie in one block and the layers are views into it, so that a whole model is swapped by one copy:
/// [`load`](Self::load).
#[derive(Debug)]
pub struct Encoder {
    shape: ModelShape,
    /// The lowest layer that is here.
    first_layer: u32,
    variant: Variant,
    parameters: Tensor,
    /// Absent where the lower layers are.
    embedding: Option<Embedding>,
    /// From `first_layer` on.
    layers: Vec<Layer>,
    distances: Option<DistanceEmbedding>,
    /// What the layers make of it.
    relative: Option<Relative>,
}

#[derive(Debug)]
struct DistanceEmbedding {
    /// `[rows, hidden]`.
    rows: Tensor,
    norm: Norm,
}

#[derive(Debug)]
struct Embedding {
    words: Tensor,
    positions: Tensor,
    segments: Tensor,
    norm: Norm,
    /// From embeddings of another width.
    projection: Option<Linear>,
}

/// One layer's parameters, as views.
#[derive(Debug)]
pub(crate) struct Layer {
    pub query_key_value: Linear,
    pub attention_output: Linear,
    pub attention_norm: Norm,
    pub intermediate: Linear,
    pub output: Linear,
    pub output_norm: Norm,
    gelu: Gelu,
}

impl Encoder {
    /// An encoder with random weights, the same for the same seed on every device.
    ///
    /// # Errors
    /// A shape that is no BERT-like encoder's, or no memory on the device.
    pub fn random(shape: &ModelShape, seed: u64, dtype: DType, device: Device) -> Result<Encoder, ExecutorError> {
        layout::check(shape)?;
        let length = shape.parameters();
        // By libtorch's allocator, which says so where there is no memory for it.
        let mut host = Tensor::f_zeros([length as i64], (Kind::Float, Device::Cpu))?;
        layout::initialise(shape, seed, 0, slice_of(&mut host));
        let parameters = host.f_to_kind(kind(dtype))?.f_to(device)?;
        Encoder::from_parameters(shape, parameters)
    }

    /// The layers from `first_layer` on of [`random`](Self::random) of the same seed; all, with the embedding, from 0 on. The rest
    /// takes no memory on the device.
    ///
    /// # Errors
    /// A shape that is no BERT-like encoder's or has no such layer, or no memory on the device.
    pub fn random_upper(
        shape: &ModelShape,
        first_layer: u32,
        seed: u64,
        dtype: DType,
        device: Device,
    ) -> Result<Encoder, ExecutorError> {
        let length = layout::upper_parameters(shape, first_layer)?;
        let mut numbers = vec![0.0; shape.parameters() as usize];
        layout::initialise(shape, seed, 0, &mut numbers);
        let upper = &numbers[numbers.len() - length as usize..];
        let parameters = Tensor::f_from_slice(upper)?.f_to_kind(kind(dtype))?.f_to(device)?;
        Encoder::from_upper_parameters(shape, first_layer, parameters)
    }

    /// An encoder over a flat block of parameters, `[shape.parameters()]`, which it shares and does not copy.
    ///
    /// # Errors
    /// A shape that is no BERT-like encoder's, or a block of another length.
    pub fn from_parameters(shape: &ModelShape, parameters: Tensor) -> Result<Encoder, ExecutorError> {
        Encoder::from_upper_parameters(shape, 0, parameters)
    }

    /// The layers from `first_layer` on over the last part of such a block, which begins with that layer; all, with the embedding, from
    /// 0 on.
    ///
    /// # Errors
    /// A shape that is no BERT-like encoder's or has no such layer, or a block of another length.
    pub fn from_upper_parameters(
        shape: &ModelShape,
        first_layer: u32,
        parameters: Tensor,
    ) -> Result<Encoder, ExecutorError> {
        Encoder::of_variant(shape, Variant::BERT, first_layer, parameters)
    }

    /// The same of a variant of BERT. Upper layers are BERT's in their size.
    pub(crate) fn of_variant(
        shape: &ModelShape,
        variant: Variant,
        first_layer: u32,
        parameters: Tensor,
    ) -> Result<Encoder, ExecutorError> {
        let mut encoder = Encoder::views(shape, variant, first_layer, parameters)?;
        encoder.relative = tch::no_grad(|| encoder.relative())?;
        Ok(encoder)
    }

    /// Queries and keys that the layers make of distances, where tokens attend by these.
    fn relative(&self) -> Result<Option<Relative>, ExecutorError> {
        let (Some(distances), Some(embedding)) = (self.variant.relative, &self.distances) else {
            return Ok(None);
        };
        let rows = embedding.norm.forward(&embedding.rows)?.f_unsqueeze(0)?;
        let layer = |layer: &Layer| {
            let [query, key, _] = self.by_head(&layer.query_key_value.forward(&rows)?)?;
            Ok([query, key])
        };
        let layers = self.layers.iter().map(layer).collect::<Result<_, ExecutorError>>()?;
        Ok(Some(Relative::new(distances, layers)?))
    }

    /// An encoder that does not know yet what its layers make of distances.
    fn views(
        shape: &ModelShape,
        variant: Variant,
        first_layer: u32,
        parameters: Tensor,
    ) -> Result<Encoder, ExecutorError> {
        let upper = layout::upper_parameters(shape, first_layer)? as i64;
        let all = layout::places_of(shape, &variant);
        let all = all.iter().map(layout::Place::length).sum::<usize>() as i64;
        let (found, must) = (parameters.size(), [if first_layer == 0 { all } else { upper }]);
        if found != must || !parameters.is_contiguous() {
            let what = format!("parameters of {}", shape.name);
            return Err(ExecutorError::input(
                what,
                format!("a contiguous block of {must:?}"),
                format!("{found:?}"),
            ));
        }
        let (hidden, intermediate) = (i64::from(shape.hidden), i64::from(shape.intermediate));
        let mut views = Views::new(&parameters, variant.norm_epsilon);
        let mut embedding = || -> Result<Embedding, ExecutorError> {
            let width = variant.embedding.map_or(hidden, i64::from);
            Ok(Embedding {
                words: views.matrix(shape.vocabulary.into(), width)?,
                positions: views.matrix(shape.positions.into(), width)?,
                segments: views.matrix(2, width)?,
                norm: views.norm(width)?,
                projection: { variant.embedding }.map(|_| views.linear(hidden, width)).transpose()?,
            })
        };
        let embedding = (first_layer == 0).then(&mut embedding).transpose()?;
        let of_layers = views.offset();
        let mut layer = || -> Result<Layer, ExecutorError> {
            if variant.one_layer {
                views.go_back_to(of_layers);
            }
            Ok(Layer {
                query_key_value: views.linear(3 * hidden, hidden)?,
                attention_output: views.linear(hidden, hidden)?,
                attention_norm: views.norm(hidden)?,
                intermediate: views.linear(intermediate, hidden)?,
                output: views.linear(hidden, intermediate)?,
                output_norm: views.norm(hidden)?,
                gelu: variant.gelu,
            })
        };
        let layers = (first_layer..shape.layers).map(|_| layer()).collect::<Result<_, _>>()?;
        let mut distances = |rows: u32| -> Result<DistanceEmbedding, ExecutorError> {
            Ok(DistanceEmbedding {
                rows: views.matrix(rows.into(), hidden)?,
                norm: views.norm(hidden)?,
            })
        };
        let distances = { variant.relative }.map(|of| distances(of.rows())).transpose()?;
        Ok(Encoder {
            shape: shape.clone(),
            first_layer,
            variant,
            parameters,
            embedding,
            layers,
            distances,
            relative: None,
        })
    }

    /// Another handle on the same memory, for another thread.
    pub fn share(&self) -> Encoder {
        let shared = self.over(self.parameters.shallow_clone());
        shared.expect("the same block fits again")
    }

    /// What this encoder is in other memory, once its parameters are [loaded](WholeModel::load) there; until then its weights are whatever lies there.
    ///
    /// # Errors
    /// A block of another length.
    pub(crate) fn over(&self, block: Tensor) -> Result<Encoder, ExecutorError> {
        Ok(Encoder {
            relative: self.relative.as_ref().map(Relative::share),
            ..Encoder::views(&self.shape, self.variant, self.first_layer, block)?
        })
    }

    /// The same encoder in memory of its own.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn copy(&self) -> Result<Encoder, ExecutorError> {
        self.copy_to(self.device())
    }

    /// The same encoder in memory of its own on a device.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn copy_to(&self, device: Device) -> Result<Encoder, ExecutorError> {
        let mut parameters = Tensor::f_empty(self.parameters.size(), (self.kind(), device))?;
        parameters.f_copy_(&self.parameters)?;
        Encoder::of_variant(&self.shape, self.variant, self.first_layer, parameters)
    }

    /// A padded batch of token ids, ready for [`embed`](Self::embed): each of `sequences` is padded to `tokens`.
    ///
    /// # Errors
    /// More tokens than the model has positions, an empty batch or sequence, or an id outside the vocabulary.
    pub fn input(&self, sequences: &[impl AsRef<[i64]>], tokens: usize) -> Result<Input, ExecutorError> {
        if tokens > self.shape.positions as usize {
            let must = format!(
                "at most {} tokens, the positions of {}",
                self.shape.positions, self.shape.name
            );
            return Err(ExecutorError::input("padded length of the batch", must, tokens));
        }
        Input::pad(
            sequences,
            tokens,
            self.shape.vocabulary.into(),
            self.kind(),
            self.device(),
        )
    }

    /// The sum of token, position and segment embeddings, normalised: `[n, l, hidden]`.
    ///
    /// # Errors
    /// Only upper layers are here, the batch has no token ids, or no memory on the device.
    pub fn embed(&self, input: &Input) -> Result<Tensor, ExecutorError> {
        tch::no_grad(|| self.embedded(input))
    }

    /// As [`embed`](Self::embed), and kept in mind for gradients where a parameter asks for one.
    pub(crate) fn embedded(&self, input: &Input) -> Result<Tensor, ExecutorError> {
        let (Some(embedding), Some(ids)) = (&self.embedding, &input.ids) else {
            let what = format!("embedding of {}", self.shape.name);
            return Err(ExecutorError::input(what, "here, with token ids", "looked up instead"));
        };
        let Embedding {
            words,
            positions,
            segments,
            norm,
            projection,
        } = embedding;
        let segment = match &input.segments {
            Some(ids) => Tensor::f_embedding(segments, ids, -1, false, false)?,
            None => segments.f_select(0, 0)?,
        };
        let position = positions.f_narrow(0, 0, input.tokens() as i64)?.f_add(&segment)?;
        let mut sum = Tensor::f_embedding(words, ids, -1, false, false)?;
        let embedded = norm.forward(&sum.f_add_(&position)?)?;
        match projection {
            None => Ok(embedded),
            Some(projection) => projection.forward(&embedded),
        }
    }

    /// Layers `range` over `hidden`, `[n, l, hidden]` both in and out, where `input` is the batch that `hidden` came from.
    /// With `adapters`, each layer adapts what its attention yields.
    ///
    /// # Errors
    /// Adapters of another width, or no memory on the device.
    ///
    /// # Panics
    /// If there are no such layers here.
    pub fn layers(
        &self,
        mut hidden: Tensor,
        range: Range<usize>,
        input: &Input,
        adapters: Option<&Adapters<'_>>,
    ) -> Result<Tensor, ExecutorError> {
        tch::no_grad(|| {
            for index in range {
                hidden = self.layer(index, &hidden, input, adapters)?;
            }
            Ok(hidden)
        })
    }

    /// One layer, kept in mind for gradients where a parameter asks for one.
    pub(crate) fn layer(
        &self,
        index: usize,
        hidden: &Tensor,
        input: &Input,
        adapters: Option<&Adapters<'_>>,
    ) -> Result<Tensor, ExecutorError> {
        let layer = self.layer_parts(index);
        let attended = self.attend_projected(index, &layer.query_key_value.forward(hidden)?, input)?;
        let mut attention = layer.attention_output.forward(&attended)?;
        if let Some(adapters) = adapters {
            attention = adapters.apply(index, attention)?;
        }
        layer.after_attention(attention, hidden)
    }

    /// A layer's attention over queries, keys and values that are already there, `[n, l, 3 · hidden]`.
    pub(crate) fn attend_projected(
        &self,
        index: usize,
        projected: &Tensor,
        input: &Input,
    ) -> Result<Tensor, ExecutorError> {
        let [query, key, value] = self.by_head(projected)?;
        let by_distance = self.scores_by_distance(index, &query, &key)?;
        let scale = by_distance.as_ref().map(|_| self.score_scale());
        let mask = match (by_distance, &input.mask) {
            (Some(scores), Some(mask)) => Some(scores.f_add(mask)?),
            (scores, mask) => scores.or_else(|| mask.as_ref().map(Tensor::shallow_clone)),
        };
        let attended = Tensor::f_scaled_dot_product_attention(&query, &key, &value, mask, 0.0, false, scale, false)?;
        self.rejoined(&attended)
    }

    /// What products of queries with keys are multiplied by.
    pub(crate) fn score_scale(&self) -> f64 {
        let width = self.shape.hidden / self.shape.heads;
        match self.variant.relative {
            None => 1.0 / f64::from(width).sqrt(),
            Some(_) => Distances::scale(width.into()),
        }
    }

    /// What is added to a layer's scores, `[n, heads, l, l]`, where tokens attend by how far apart they are.
    pub(crate) fn scores_by_distance(
        &self,
        index: usize,
        query: &Tensor,
        key: &Tensor,
    ) -> Result<Option<Tensor>, ExecutorError> {
        let relative = self.relative.as_ref();
        relative.map(|of| of.scores(index, query, key)).transpose()
    }

    /// Queries, keys and values of `projected`, `[n, l, 3 · hidden]`: each `[n, heads, l, width]`.
    pub(crate) fn by_head(&self, projected: &Tensor) -> Result<[Tensor; 3], ExecutorError> {
        let size = projected.size();
        let (heads, width) = (
            i64::from(self.shape.heads),
            i64::from(self.shape.hidden / self.shape.heads),
        );
        let by_head = projected
            .f_view([size[0], size[1], 3, heads, width])?
            .f_permute([2, 0, 3, 1, 4])?;
        let parts = by_head.f_unbind(0)?;
        Ok(parts.try_into().expect("there are three"))
    }

    /// What the heads attended to, `[n, heads, l, width]`, side by side: `[n, l, hidden]`.
    pub(crate) fn rejoined(&self, attended: &Tensor) -> Result<Tensor, ExecutorError> {
        let size = attended.size();
        let size = [size[0], size[2], size[1] * size[3]];
        Ok(attended.f_transpose(1, 2)?.f_reshape(size)?)
    }

    /// A layer's parameters.
    ///
    /// # Panics
    /// If there is no such layer here.
    pub(crate) fn layer_parts(&self, index: usize) -> &Layer {
        &self.layers[index - self.first_layer as usize]
    }

    /// The lowest layer that is here.
    pub fn first_layer(&self) -> u32 {
        self.first_layer
    }

    /// The model's shape.
    pub fn shape(&self) -> &ModelShape {
        &self.shape
    }

    /// The flat block: `[shape.parameters()]`, or its last part where only upper layers are here.
    pub fn parameters(&self) -> &Tensor {
        &self.parameters
    }

    /// The views into the block, in its order and without gaps.
    pub(crate) fn pieces(&self) -> Vec<&Tensor> {
        let embedding = self.embedding.iter().flat_map(|part| {
            let [weight, bias] = part.norm.pieces();
            let projection = part.projection.iter().flat_map(Linear::pieces);
            [&part.words, &part.positions, &part.segments, weight, bias]
                .into_iter()
                .chain(projection)
        });
        let distinct = if self.variant.one_layer { 1 } else { self.layers.len() };
        let layers = self.layers.iter().take(distinct).flat_map(|layer| {
            let pieces = [
                layer.query_key_value.pieces(),
                layer.attention_output.pieces(),
                layer.attention_norm.pieces(),
                layer.intermediate.pieces(),
                layer.output.pieces(),
                layer.output_norm.pieces(),
            ];
            pieces.into_iter().flatten()
        });
        let distances = self.distances.iter().flat_map(|part| {
            let [weight, bias] = part.norm.pieces();
            [&part.rows, weight, bias]
        });
        embedding.chain(layers).chain(distances).collect()
    }

    /// Where it computes.
    pub fn device(&self) -> Device {
        self.parameters.device()
    }

    /// Its number format.
    pub fn kind(&self) -> Kind {
        self.parameters.kind()
    }
}

impl WholeModel for Encoder {
    fn numbers(shape: &ModelShape, first_layer: u32) -> Result<u64, ExecutorError> {
        layout::upper_parameters(shape, first_layer)
    }

    fn initialise(shape: &ModelShape, _first_layer: u32, seed: u64, owner: u64, block: &mut [f32]) {
        layout::initialise(shape, seed, owner, block);
    }

    /// Until a model is loaded, its parameters are whatever the memory held.
    fn unloaded(
        shape: &ModelShape,
        first_layer: u32,
        dtype: DType,
        device: tch::Device,
    ) -> Result<Encoder, ExecutorError> {
        let length = layout::upper_parameters(shape, first_layer)?;
        let parameters = Tensor::f_empty([length as i64], (kind(dtype), device))?;
        Encoder::from_upper_parameters(shape, first_layer, parameters)
    }

    fn shape(&self) -> &ModelShape {
        Encoder::shape(self)
    }

    fn parameters(&self) -> &Tensor {
        Encoder::parameters(self)
    }

    fn share(&self) -> Encoder {
        Encoder::share(self)
    }
}

impl Layer {
    /// What stands between the two products of the feed-forward block.
    pub(crate) fn activate(&self, mut inner: Tensor) -> Result<Tensor, ExecutorError> {
        Ok(inner.f_gelu_(self.gelu.name())?)
    }

    /// What comes after attention: the sum with what the layer was given, and the feed-forward block.
    pub(crate) fn after_attention(&self, mut attention: Tensor, hidden: &Tensor) -> Result<Tensor, ExecutorError> {
        let hidden = self.attention_norm.forward(&attention.f_add_(hidden)?)?;
        let mut output = self
            .output
            .forward(&self.activate(self.intermediate.forward(&hidden)?)?)?;
        self.output_norm.forward(&output.f_add_(&hidden)?)
    }
}

#[cfg(test)]
mod tests {
    use tenantry_profiles::AdapterImplementation;

    use super::*;
    use crate::adapters::{AdapterCache, AdapterShape, AdapterStore};

    fn tiny() -> Encoder {
        Encoder::random(&ModelShape::builtin("tiny").unwrap(), 7, DType::F32, Device::Cpu).unwrap()
    }

    /// The last hidden state of each sequence's first token, which is what heads read.
    fn run(encoder: &Encoder, sequences: &[Vec<i64>], tokens: usize, adapters: Option<&Adapters<'_>>) -> Tensor {
        let input = encoder.input(sequences, tokens).unwrap();
        let hidden = encoder.embed(&input).unwrap();
        encoder.layers(hidden, 0..2, &input, adapters).unwrap().select(1, 0)
    }

    fn assert_close(found: &Tensor, expected: &Tensor) {
        let difference = (found - expected).abs().max().double_value(&[]);
        assert!(difference < 1e-5, "off by {difference}");
    }

    #[test]
    fn a_batch_of_tenants_equals_each_request_alone() {
        let encoder = tiny();
        let shape = AdapterShape::new(encoder.shape(), 16).unwrap();
        let store = AdapterStore::random(shape, 4, 3, DType::F32, Device::Cpu, u64::MAX).unwrap();
        let cache = AdapterCache::new(shape, 4, DType::F32, Device::Cpu).unwrap();
        for slot in 0..4 {
            cache.load(&store, slot, slot, 0..2).unwrap();
        }
        let sequences: Vec<Vec<i64>> = vec![vec![3; 9], vec![1, 2, 3], (0..16).collect(), vec![8]];
        let slots = [1, 1, 3, 0];
        for implementation in cache.implementations() {
            let adapted = |sequences: &[Vec<i64>], slots: &[u32], tokens| {
                let plan = cache.plan(slots, tokens, implementation).unwrap();
                run(&encoder, sequences, tokens, Some(&Adapters::new(&cache, &plan)))
            };
            let together = adapted(&sequences, &slots, 24);
            for (row, slot) in slots.into_iter().enumerate() {
                let alone = adapted(&sequences[row..=row], &[slot], sequences[row].len());
                assert_close(&together.get(row as i64), &alone.get(0));
            }
        }
        let plan = cache.plan(&[2], 3, AdapterImplementation::Loop).unwrap();
        let adapted = run(&encoder, &sequences[1..2], 3, Some(&Adapters::new(&cache, &plan)));
        assert!(
            !adapted.equal(&run(&encoder, &sequences[1..2], 3, None)),
            "adapters make a difference"
        );
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let encoder = tiny();
        let refused = |sequences: &[Vec<i64>], tokens| encoder.input(sequences, tokens).unwrap_err().to_string();
        for (sequences, tokens, message) in [
            (
                vec![vec![1]],
                129,
                "padded length of the batch: must be at most 128 tokens, the positions of tiny, got 129",
            ),
            (vec![], 8, "batch: must be at least one sequence, got none"),
            (
                vec![vec![1], vec![]],
                8,
                "sequence 1 of the batch: must be from 1 to 8 tokens, got 0",
            ),
            (
                vec![vec![1; 9]],
                8,
                "sequence 0 of the batch: must be from 1 to 8 tokens, got 9",
            ),
            (
                vec![vec![1024]],
                8,
                "sequence 0 of the batch: must be token ids from 0 to 1023, got 1024",
            ),
        ] {
            assert_eq!(refused(&sequences, tokens), message);
        }
        let short = Tensor::zeros([5], (Kind::Float, Device::Cpu));
        let message = format!(
            "parameters of tiny: must be [{}] numbers, got [5]",
            encoder.shape().parameters()
        );
        assert_eq!(encoder.load(&short).unwrap_err().to_string(), message);
    }
}
