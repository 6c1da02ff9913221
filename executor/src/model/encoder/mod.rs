//! The encoder: views into one flat block of parameters, and the forward pass in pieces.

mod forward;

use tch::{Device, Kind, Tensor};
use tenantry_profiles::{DType, ModelShape};

use super::layout;
use super::parts::{Linear, Norm, Views};
use super::relative::Relative;
use super::variant::{Gelu, Variant};
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
    /// The embedding's block, where it is another model's too: the parameters are the layers' then.
    shared_embedding: Option<Tensor>,
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

impl Embedding {
    fn new(views: &mut Views<'_>, shape: &ModelShape, variant: &Variant) -> Result<Embedding, ExecutorError> {
        let hidden = i64::from(shape.hidden);
        let width = variant.embedding.map_or(hidden, i64::from);
        Ok(Embedding {
            words: views.matrix(shape.vocabulary.into(), width)?,
            positions: views.matrix(shape.positions.into(), width)?,
            segments: views.matrix(2, width)?,
            norm: views.norm(width)?,
            projection: variant.embedding.map(|_| views.linear(hidden, width)).transpose()?,
        })
    }
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

    /// The layers from `first_layer` on of [`random`](Self::random) of the same seed; all, with the embedding, from 0
    /// on. The rest takes no memory on the device.
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

    /// The layers from `first_layer` on over the last part of such a block, which begins with that layer; all, with the
    /// embedding, from 0 on.
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
        Encoder::views(shape, variant, first_layer, parameters, None)?.with_relative()
    }

    fn with_relative(mut self) -> Result<Encoder, ExecutorError> {
        self.relative = tch::no_grad(|| self.relative())?;
        Ok(self)
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
        shared_embedding: Option<Tensor>,
    ) -> Result<Encoder, ExecutorError> {
        let upper = layout::upper_parameters(shape, first_layer)? as i64;
        let all = layout::places_of(shape, &variant);
        let all = all.iter().map(layout::Place::length).sum::<usize>() as i64;
        let shared = shared_embedding.as_ref().map_or(0, |block| block.numel() as i64);
        let (found, must) = (parameters.size(), [if first_layer == 0 { all - shared } else { upper }]);
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
        let mut of_shared = shared_embedding.as_ref().map(|block| Views::new(block, variant.norm_epsilon));
        let of_embedding = of_shared.as_mut().unwrap_or(&mut views);
        let embedding = (first_layer == 0).then(|| Embedding::new(of_embedding, shape, &variant));
        let embedding = embedding.transpose()?;
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
        let distances = variant.relative.map(|of| distances(of.rows())).transpose()?;
        Ok(Encoder {
            shape: shape.clone(),
            first_layer,
            variant,
            parameters,
            shared_embedding,
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

    /// What this encoder is in other memory, once its parameters are [loaded](WholeModel::load) there; until then its
    /// weights are whatever lies there.
    ///
    /// # Errors
    /// A block of another length.
    pub(crate) fn over(&self, block: Tensor) -> Result<Encoder, ExecutorError> {
        let embedding = self.shared_embedding.as_ref().map(Tensor::shallow_clone);
        Ok(Encoder {
            relative: self.relative.as_ref().map(Relative::share),
            ..Encoder::views(&self.shape, self.variant, self.first_layer, block, embedding)?
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

    /// The same encoder with layers in memory of its own, on the device of another of its kind, whose embedding it
    /// computes with.
    ///
    /// # Errors
    /// No memory, or an encoder of another shape or without an embedding.
    pub(crate) fn copy_beside(&self, other: &Encoder) -> Result<Encoder, ExecutorError> {
        let embedding = other.embedding_block()?;
        let length = embedding.numel() as i64;
        let own = self.parameters.f_narrow(0, length, self.parameters.numel() as i64 - length)?;
        let mut parameters = Tensor::f_empty(own.size(), (self.kind(), other.device()))?;
        parameters.f_copy_(&own)?;
        Encoder::views(&self.shape, self.variant, self.first_layer, parameters, Some(embedding))?.with_relative()
    }

    /// The embedding's parameters, wherever they lie.
    fn embedding_block(&self) -> Result<Tensor, ExecutorError> {
        if let Some(shared) = &self.shared_embedding {
            return Ok(shared.shallow_clone());
        }
        let places = layout::places_of(&self.shape, &self.variant);
        let of_embedding = places.iter().take_while(|place| place.name.starts_with("embeddings."));
        let length: usize = of_embedding.map(layout::Place::length).sum();
        Ok(self.parameters.f_narrow(0, 0, length as i64)?)
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

    /// The flat block: `[shape.parameters()]`, or its last part where only upper layers are here, or only layers are
    /// its own.
    pub fn parameters(&self) -> &Tensor {
        &self.parameters
    }

    /// The views into the block, in its order and without gaps.
    pub(crate) fn pieces(&self) -> Vec<&Tensor> {
        let own = self.embedding.iter().filter(|_| self.shared_embedding.is_none());
        let embedding = own.flat_map(|part| {
            let [weight, bias] = part.norm.pieces();
            let projection = part.projection.iter().flat_map(Linear::pieces);
            [&part.words, &part.positions, &part.segments, weight, bias].into_iter().chain(projection)
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
