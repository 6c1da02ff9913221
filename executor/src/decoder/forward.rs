//! The decoder: views into one flat block of parameters, and the forward pass in pieces.

use std::ops::Range;

use tch::{Device, Kind, Tensor};
use tenantry_profiles::{DType, ModelShape};

use super::attention::Heads;
use super::config::DecoderConfig;
use super::kv::KvCache;
use super::layout;
use super::parts::{Angles, Linear, Norm, Rotary, Views};
use super::step::{Chunk, Step};
use crate::adapters::Adapters;
use crate::device::{copy_block, kind};
use crate::error::ExecutorError;
use crate::lora::{Input, Loras};
use crate::whole_models::WholeModel;

/// A decoder on a device: Llama's block (Touvron et al., 2023: root mean square norms before each sub-layer, rotary
/// positions, grouped-query attention, a gated feed-forward) or OPT's (Zhang et al., 2022: layer norms before each
/// sub-layer, learned positions, ReLU, biases).
///
/// All parameters lie in one block and the layers are views into it, as in [`Encoder`](crate::Encoder).
#[derive(Debug)]
pub struct Decoder {
    config: DecoderConfig,
    parameters: Tensor,
    /// The lowest layer that there is: above 0 where a PLOT table stands for those below.
    first_layer: usize,
    /// `[vocabulary, hidden]`; absent, with `positions`, where nothing is embedded.
    words: Option<Tensor>,
    /// `[positions, hidden]`; OPT's.
    positions: Option<Tensor>,
    rotary: Option<Rotary>,
    layers: Vec<Layer>,
    norm: Norm,
    /// `[vocabulary, hidden]`; OPT's is `words`.
    output: Tensor,
}

#[derive(Debug)]
struct Layer {
    attention_norm: Norm,
    /// Queries, keys and values of all heads.
    query_key_value: Linear,
    attention_output: Linear,
    feed_forward_norm: Norm,
    /// Llama's gate and up, one below the other, or OPT's first matrix.
    up: Linear,
    down: Linear,
}

/// What the step's tenants add to the backbone.
#[derive(Clone, Copy, Debug)]
pub enum TenantParameters<'a> {
    /// Low-rank products beside every dense projection.
    Lora(Loras<'a>),
    /// Houlsby adapters after attention (hGPT); planned by [`Step::plan_adapters`].
    Adapters(Adapters<'a>),
}

impl<'a> TenantParameters<'a> {
    fn lora(self) -> Option<Loras<'a>> {
        match self {
            TenantParameters::Lora(loras) => Some(loras),
            TenantParameters::Adapters(_) => None,
        }
    }
}

impl Decoder {
    /// A decoder with random weights, the same for the same seed on every device.
    ///
    /// # Errors
    /// A shape that is no decoder's, or no memory on the device.
    pub fn random(shape: &ModelShape, seed: u64, dtype: DType, device: Device) -> Result<Decoder, ExecutorError> {
        Decoder::random_upper(shape, 0, seed, dtype, device)
    }

    /// Likewise, only the layers from `first_layer` on and what comes after them, with the same weights as in the whole
    /// model: what begins with hidden states that a PLOT table gave for the lower layers.
    ///
    /// # Errors
    /// A shape that is no decoder's or has no such layer, or no memory on the device.
    pub fn random_upper(
        shape: &ModelShape,
        first_layer: u32,
        seed: u64,
        dtype: DType,
        device: Device,
    ) -> Result<Decoder, ExecutorError> {
        let config = DecoderConfig::new(shape)?;
        let length = layout::upper_parameters(shape, first_layer)? as i64;
        let decoder = Decoder::upper(&config, first_layer, Tensor::f_empty([length], (kind(dtype), device))?)?;
        // Tensor by tensor: a model that fills a card need not fit the host's memory in single precision. The device
        // rounds them, which takes a core of the host longer than it takes to copy them.
        layout::initialise(shape, first_layer, seed, 0, device, |offset, numbers| {
            let mut place = decoder.parameters.f_narrow(0, offset as i64, numbers.numel() as i64)?;
            copy_block(&mut place, &numbers.f_to(device)?)
        })?;
        Ok(decoder)
    }

    /// A decoder over a flat block of parameters, `[shape.parameters()]`, such as [`read_decoder`](super::read_decoder)
    /// reads. It shares the block and does not copy it.
    ///
    /// # Errors
    /// A shape that is no decoder's, or a block of another length.
    pub fn from_parameters(config: &DecoderConfig, parameters: Tensor) -> Result<Decoder, ExecutorError> {
        Decoder::upper(config, 0, parameters)
    }

    /// The layers from `first_layer` on and what comes after them, of a whole decoder, in memory of their own on a
    /// device.
    ///
    /// # Errors
    /// No such layer, or no memory on the device.
    pub(crate) fn upper_of(&self, first_layer: u32, device: Device) -> Result<Decoder, ExecutorError> {
        layout::upper_parameters(self.shape(), first_layer)?;
        let own = layout::upper_ranges(self.shape(), first_layer).into_iter();
        let own = own.map(|place| self.parameters.f_narrow(0, place.start as i64, place.len() as i64));
        let own = Tensor::f_cat(&own.collect::<Result<Vec<_>, _>>()?, 0)?.f_to(device)?;
        Decoder::upper(&self.config, first_layer, own)
    }

    pub(crate) fn upper(
        config: &DecoderConfig,
        first_layer: u32,
        parameters: Tensor,
    ) -> Result<Decoder, ExecutorError> {
        let shape = &config.shape;
        let (found, must) = (
            parameters.size(),
            [layout::upper_parameters(shape, first_layer)? as i64],
        );
        if found != must || !parameters.is_contiguous() {
            let what = format!("parameters of {}", shape.name);
            let must = format!("a contiguous block of {must:?}");
            return Err(ExecutorError::input(what, must, format!("{found:?}")));
        }
        let rotary = shape.gated.then(|| {
            let (kind, device) = (parameters.kind(), parameters.device());
            Rotary::new(shape.positions, shape.hidden / shape.heads, &config.rope, kind, device)
        });
        let rotary = rotary.transpose()?;
        Decoder::with_views(config, first_layer as usize, parameters, rotary)
    }

    fn with_views(
        config: &DecoderConfig,
        first_layer: usize,
        parameters: Tensor,
        rotary: Option<Rotary>,
    ) -> Result<Decoder, ExecutorError> {
        let shape = &config.shape;
        let (hidden, intermediate) = (i64::from(shape.hidden), i64::from(shape.intermediate));
        let projected = hidden + 2 * i64::from(layout::kv_width(shape));
        let up = if shape.gated { 2 * intermediate } else { intermediate };
        let mut views = Views {
            block: &parameters,
            offset: 0,
            biases: !shape.gated,
            epsilon: config.norm_epsilon,
        };
        let embeds = first_layer == 0;
        let words = (embeds || !shape.gated).then(|| views.matrix(shape.vocabulary.into(), hidden));
        let words = words.transpose()?;
        let positions = (embeds && !shape.gated).then(|| views.matrix(shape.positions.into(), hidden));
        let positions = positions.transpose()?;
        let mut layer = || -> Result<Layer, ExecutorError> {
            Ok(Layer {
                attention_norm: views.norm(hidden)?,
                query_key_value: views.linear(projected, hidden)?,
                attention_output: views.linear(hidden, hidden)?,
                feed_forward_norm: views.norm(hidden)?,
                up: views.linear(up, hidden)?,
                down: views.linear(hidden, intermediate)?,
            })
        };
        let layers = (first_layer..shape.layers as usize).map(|_| layer()).collect::<Result<_, _>>()?;
        let norm = views.norm(hidden)?;
        let output = match &words {
            Some(words) if !shape.gated => words.shallow_clone(),
            _ => views.matrix(shape.vocabulary.into(), hidden)?,
        };
        Ok(Decoder {
            config: config.clone(),
            parameters,
            first_layer,
            words: words.filter(|_| embeds),
            positions,
            rotary,
            layers,
            norm,
            output,
        })
    }

    /// Another handle on the same memory, for another thread.
    pub fn share(&self) -> Decoder {
        let rotary = self.rotary.as_ref().map(Rotary::share);
        let shared = Decoder::with_views(&self.config, self.first_layer, self.parameters.shallow_clone(), rotary);
        shared.expect("the same block fits again")
    }

    /// The same decoder in memory of its own.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn copy(&self) -> Result<Decoder, ExecutorError> {
        let rotary = self.rotary.as_ref().map(Rotary::share);
        let mut parameters = self.parameters.f_empty_like()?;
        parameters.f_copy_(&self.parameters)?;
        Decoder::with_views(&self.config, self.first_layer, parameters, rotary)
    }

    /// Lays out a forward pass over `chunks`, whose keys and values are in `kv`.
    ///
    /// # Errors
    /// No chunks, an empty one, an id outside the vocabulary, a sequence longer than the model has positions, pages
    /// that there are not, too few of them, or one that two chunks write to.
    pub fn step(&self, chunks: &[Chunk<'_>], kv: &KvCache) -> Result<Step, ExecutorError> {
        tch::no_grad(|| Step::new(self.shape(), self.rotary.as_ref(), kv, chunks))
    }

    /// The whole forward pass over a step: logits `[n, vocabulary]` of the chunks that want a token, in the order
    /// given.
    ///
    /// # Errors
    /// A cache that does not hold all layers or is of another shape, a decoder without its lower layers, or no memory
    /// on the device.
    pub fn forward(
        &self,
        step: &Step,
        kv: &KvCache,
        tenants: Option<TenantParameters<'_>>,
    ) -> Result<Tensor, ExecutorError> {
        let hidden = self.layers(self.embed(step)?, 0..self.layers.len(), step, kv, tenants)?;
        self.logits(&hidden, step)
    }

    /// What [`forward`](Self::forward) does above the lower layers: from `looked_up`, the hidden states
    /// `[tokens, hidden]` that a PLOT table gave for the step's tokens, in the order of the chunks given.
    ///
    /// # Errors
    /// As for [`layers`](Self::layers).
    pub fn forward_upper(
        &self,
        looked_up: Tensor,
        step: &Step,
        kv: &KvCache,
        tenants: Option<TenantParameters<'_>>,
    ) -> Result<Tensor, ExecutorError> {
        let layers = self.first_layer..self.shape().layers as usize;
        let hidden = self.layers(step.arrange(looked_up)?, layers, step, kv, tenants)?;
        self.logits(&hidden, step)
    }

    /// The first hidden state of a step's tokens, `[tokens, hidden]`.
    ///
    /// # Errors
    /// A decoder without its lower layers, or no memory on the device.
    pub fn embed(&self, step: &Step) -> Result<Tensor, ExecutorError> {
        tch::no_grad(|| self.embedded(&step.ids, &step.positions))
    }

    fn embedded(&self, ids: &Tensor, positions: &Tensor) -> Result<Tensor, ExecutorError> {
        let none = || {
            ExecutorError::input(
                "embedding of the decoder",
                "there",
                "none: its lower layers are looked up",
            )
        };
        let mut words = self.words.as_ref().ok_or_else(none)?.f_index_select(0, ids)?;
        Ok(match &self.positions {
            None => words,
            Some(table) => words.f_add_(&table.f_index_select(0, positions)?)?,
        })
    }

    /// Layers `range` over `hidden`, `[tokens, hidden]` both in and out. A range that begins above 0 goes on from
    /// hidden states that a PLOT table gave for the lower layers, put in the step's order by [`Step::arrange`].
    ///
    /// # Errors
    /// Parameters or a cache of another shape, or no memory on the device.
    ///
    /// # Panics
    /// If the model or the cache has no such layers.
    pub fn layers(
        &self,
        mut hidden: Tensor,
        range: Range<usize>,
        step: &Step,
        kv: &KvCache,
        tenants: Option<TenantParameters<'_>>,
    ) -> Result<Tensor, ExecutorError> {
        for layer in range {
            let projected = self.before_attention(layer, &hidden, step, tenants)?;
            let attended = self.attend(layer, &projected, step, kv)?;
            hidden = self.after_attention(layer, hidden, &attended, tenants)?;
        }
        Ok(hidden)
    }

    /// A layer's queries, keys and values, rotated: `[tokens, heads, width]`.
    ///
    /// # Errors
    /// As for [`layers`](Self::layers).
    pub fn before_attention(
        &self,
        layer: usize,
        hidden: &Tensor,
        step: &Step,
        tenants: Option<TenantParameters<'_>>,
    ) -> Result<Tensor, ExecutorError> {
        tch::no_grad(|| self.project(layer, hidden, step.angles.as_ref(), tenants))
    }

    /// A layer's self-attention up to, and without, its output projection: writes keys and values to the cache,
    /// `[tokens, hidden]`.
    ///
    /// # Errors
    /// As for [`layers`](Self::layers).
    pub fn attend(&self, layer: usize, projected: &Tensor, step: &Step, kv: &KvCache) -> Result<Tensor, ExecutorError> {
        tch::no_grad(|| self.heads().attend(projected, layer, step, kv))
    }

    /// What a layer does after attention, from `hidden` before it: `[tokens, hidden]`.
    ///
    /// # Errors
    /// As for [`layers`](Self::layers).
    pub fn after_attention(
        &self,
        layer: usize,
        hidden: Tensor,
        attended: &Tensor,
        tenants: Option<TenantParameters<'_>>,
    ) -> Result<Tensor, ExecutorError> {
        tch::no_grad(|| self.finish(layer, &hidden, attended, tenants))
    }

    fn project(
        &self,
        index: usize,
        hidden: &Tensor,
        angles: Option<&Angles>,
        tenants: Option<TenantParameters<'_>>,
    ) -> Result<Tensor, ExecutorError> {
        let (layer, heads) = (self.layer(index), self.heads());
        let normed = layer.attention_norm.forward(hidden)?;
        let mut projected = layer.query_key_value.forward(&normed)?;
        if let Some(loras) = tenants.and_then(TenantParameters::lora) {
            loras.add(index, Input::Attention, &normed, &mut projected)?;
        }
        let projected = projected.f_view([-1, heads.all(), heads.width])?;
        if let Some(angles) = angles {
            angles.rotate(&projected, heads.query + heads.kv)?;
        }
        Ok(projected)
    }

    fn finish(
        &self,
        index: usize,
        hidden: &Tensor,
        attended: &Tensor,
        tenants: Option<TenantParameters<'_>>,
    ) -> Result<Tensor, ExecutorError> {
        let layer = self.layer(index);
        let loras = tenants.and_then(TenantParameters::lora);
        let add = |input, x: &Tensor, y: &mut Tensor| loras.map_or(Ok(()), |loras| loras.add(index, input, x, y));

        let mut attention = layer.attention_output.forward(attended)?;
        add(Input::AttentionOutput, attended, &mut attention)?;
        if let Some(TenantParameters::Adapters(adapters)) = tenants {
            // To the adapters, each token is a sequence.
            attention = adapters.apply(index, attention.f_unsqueeze(1)?)?.f_squeeze_dim(1)?;
        }
        let hidden = attention.f_add_(hidden)?;
        let normed = layer.feed_forward_norm.forward(&hidden)?;
        let mut up = layer.up.forward(&normed)?;
        add(Input::FeedForward, &normed, &mut up)?;
        let inner = match self.shape().gated {
            true => {
                let halves = up.f_chunk(2, 1)?;
                halves[0].f_silu()?.f_mul_(&halves[1])?
            }
            false => up.f_relu_()?,
        };
        let mut output = layer.down.forward(&inner)?;
        add(Input::FeedForwardOutput, &inner, &mut output)?;
        Ok(output.f_add_(&hidden)?)
    }

    /// Logits `[n, vocabulary]` after the last token of each chunk that wants one, in the order of the chunks given.
    ///
    /// # Errors
    /// No memory on the device.
    pub fn logits(&self, hidden: &Tensor, step: &Step) -> Result<Tensor, ExecutorError> {
        tch::no_grad(|| self.logits_of(&step.last_rows(hidden)?))
    }

    /// Logits `[…, vocabulary]` of every state in `hidden`, `[…, hidden]`.
    ///
    /// # Errors
    /// No memory on the device.
    pub fn logits_of(&self, hidden: &Tensor) -> Result<Tensor, ExecutorError> {
        tch::no_grad(|| Ok(self.norm.forward(hidden)?.f_linear::<&Tensor>(&self.output, None)?))
    }

    /// Hidden states `[n, l, hidden]` after the first `layers` layers of equally long token sequences, without a cache:
    /// what a PLOT table holds of each fragment (HMI, section 3.2). With all layers it is the whole model.
    ///
    /// # Errors
    /// No sequences, an empty one, several lengths, more tokens than positions, an id outside the vocabulary, or no
    /// memory.
    ///
    /// # Panics
    /// If the model has fewer layers.
    pub fn lower_layers(&self, sequences: &[impl AsRef<[i64]>], layers: usize) -> Result<Tensor, ExecutorError> {
        let (ids, length) = self.equally_long(sequences)?;
        tch::no_grad(|| {
            let (n, length, heads) = (sequences.len() as i64, length as i64, self.heads());
            let device = self.device();
            let ids = Tensor::f_from_slice(&ids)?.f_to(device)?;
            let positions = Tensor::f_arange(length, (Kind::Int64, device))?.f_repeat([n])?;
            let angles = self.rotary.as_ref().map(|rotary| rotary.angles(&positions));
            let angles = angles.transpose()?;
            let mut hidden = self.embedded(&ids, &positions)?;
            for layer in 0..layers {
                let projected = self.project(layer, &hidden, angles.as_ref(), None)?;
                let projected = projected.f_view([n, length, heads.all(), heads.width])?;
                let parts = projected.f_split_with_sizes([heads.query, heads.kv, heads.kv], 2)?;
                let attended = heads.causal(&parts[0], &parts[1], &parts[2])?;
                let attended = attended.f_reshape([n * length, heads.query * heads.width])?;
                hidden = self.finish(layer, &hidden, &attended, None)?;
            }
            Ok(hidden.f_view([n, length, -1])?)
        })
    }

    fn equally_long(&self, sequences: &[impl AsRef<[i64]>]) -> Result<(Vec<i64>, usize), ExecutorError> {
        let Some(first) = sequences.first() else {
            return Err(ExecutorError::input("sequences", "at least one", "none"));
        };
        let (length, most) = (first.as_ref().len(), self.shape().positions as usize);
        if !(1..=most).contains(&length) {
            return Err(ExecutorError::input(
                "tokens of sequence 0",
                format!("from 1 to {most}"),
                length,
            ));
        }
        let mut ids = Vec::with_capacity(sequences.len() * length);
        for (index, sequence) in sequences.iter().enumerate() {
            let sequence = sequence.as_ref();
            if sequence.len() != length {
                let must = format!("{length}, as those of sequence 0");
                return Err(ExecutorError::input(
                    format!("tokens of sequence {index}"),
                    must,
                    sequence.len(),
                ));
            }
            let vocabulary = i64::from(self.shape().vocabulary);
            if let Some(id) = sequence.iter().find(|id| !(0..vocabulary).contains(*id)) {
                let must = format!("token ids from 0 to {}", vocabulary - 1);
                return Err(ExecutorError::input(format!("sequence {index}"), must, id));
            }
            ids.extend(sequence);
        }
        Ok((ids, length))
    }

    /// A layer, counted from the model's first.
    fn layer(&self, index: usize) -> &Layer {
        let own = index.checked_sub(self.first_layer);
        own.and_then(|own| self.layers.get(own))
            .unwrap_or_else(|| panic!("layer {index} of a decoder that has those from {} on", self.first_layer))
    }

    fn heads(&self) -> Heads {
        let shape = self.shape();
        Heads {
            query: shape.heads.into(),
            kv: shape.kv_heads.into(),
            width: (shape.hidden / shape.heads).into(),
        }
    }

    /// The model's shape.
    pub fn shape(&self) -> &ModelShape {
        &self.config.shape
    }

    /// The flat block, `[shape.parameters()]`, or the part of it that belongs to the layers that there are.
    pub fn parameters(&self) -> &Tensor {
        &self.parameters
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

impl WholeModel for Decoder {
    fn numbers(shape: &ModelShape, first_layer: u32) -> Result<u64, ExecutorError> {
        layout::upper_parameters(shape, first_layer)
    }

    fn initialise(shape: &ModelShape, first_layer: u32, seed: u64, owner: u64, block: &mut [f32]) {
        let write = |offset: usize, numbers: &Tensor| {
            let count = numbers.numel();
            Ok(numbers.f_copy_data(&mut block[offset..offset + count], count)?)
        };
        layout::initialise(shape, first_layer, seed, owner, Device::Cpu, write).expect("the host has memory");
    }

    /// Zeros and not garbage: who computes with it before a model has come leaves no infinities in a key-value cache.
    fn unloaded(shape: &ModelShape, first_layer: u32, dtype: DType, device: Device) -> Result<Decoder, ExecutorError> {
        let config = DecoderConfig::new(shape)?;
        let length = layout::upper_parameters(shape, first_layer)? as i64;
        Decoder::upper(&config, first_layer, Tensor::f_zeros([length], (kind(dtype), device))?)
    }

    fn shape(&self) -> &ModelShape {
        Decoder::shape(self)
    }

    fn parameters(&self) -> &Tensor {
        Decoder::parameters(self)
    }

    fn share(&self) -> Decoder {
        Decoder::share(self)
    }
}
