//! Encoders and decoders in double precision on the CPU, one sequence at a time, with nothing fused, cached or batched.
//!
//! Operators on tensors stand for themselves here, since formulas are to be seen: they panic where a shape is wrong,
//! which only a mistake in this folder makes.

use std::collections::BTreeMap;

use tch::{Device, Kind, Tensor};
use tenantry_profiles::ModelShape;

use crate::decoder::{self, Decoder, DecoderConfig};
use crate::error::ExecutorError;
use crate::lora;
use crate::model::{self, Encoder, LAYER_NORM_EPSILON};
use crate::pet::Linear;

/// A tensor's numbers on the CPU.
pub(super) fn double(tensor: &Tensor) -> Result<Tensor, ExecutorError> {
    Ok(tensor.f_to(Device::Cpu)?.f_to_kind(Kind::Double)?)
}

/// A model's tensors by their names in checkpoints.
struct Named(BTreeMap<String, Tensor>);

impl Named {
    fn new(block: &Tensor, places: impl Iterator<Item = (String, Vec<usize>, usize)>) -> Result<Named, ExecutorError> {
        let block = double(block)?;
        let tensor = |(name, shape, offset): (String, Vec<usize>, usize)| {
            let shape: Vec<i64> = shape.into_iter().map(|size| size as i64).collect();
            let own = block.f_narrow(0, offset as i64, shape.iter().product())?;
            Ok((name, own.f_view(shape.as_slice())?))
        };
        places.map(tensor).collect::<Result<_, ExecutorError>>().map(Named)
    }

    fn get(&self, name: &str) -> Tensor {
        self.0[name].shallow_clone()
    }

    /// Several, one below the other.
    fn stacked(&self, names: &[String]) -> Tensor {
        Tensor::cat(&names.iter().map(|name| self.get(name)).collect::<Vec<_>>(), 0)
    }
}

/// Weights of attention of `query`, `[l, width]`, over `key`; with `causal`, of each token over itself and those
/// before.
fn attention(query: &Tensor, key: &Tensor, causal: bool) -> Tensor {
    let mut scores = query.matmul(&key.tr()) / (query.size()[1] as f64).sqrt();
    if causal {
        let later = Tensor::ones_like(&scores).triu(1).to_kind(Kind::Bool);
        scores = scores.masked_fill(&later, f64::NEG_INFINITY);
    }
    scores.softmax(-1, Kind::Double)
}

/// What attention makes of `value`.
fn attend(query: &Tensor, key: &Tensor, value: &Tensor, causal: bool) -> Tensor {
    attention(query, key, causal).matmul(value)
}

/// A norm's weight and bias, `[hidden]` each.
struct Norm(Tensor, Tensor);

impl Norm {
    fn of(&self, x: &Tensor) -> Tensor {
        let centred = x - x.mean_dim(-1, true, Kind::Double);
        let variance = (&centred * &centred).mean_dim(-1, true, Kind::Double);
        centred / (variance + LAYER_NORM_EPSILON).sqrt() * &self.0 + &self.1
    }
}

/// What a task changes of a linear layer's result, by layer.
pub(super) type Changes<'a> = &'a dyn Fn(usize, Linear, Tensor) -> Tensor;

/// Changes nothing.
pub(super) fn as_it_is(_: usize, _: Linear, y: Tensor) -> Tensor {
    y
}

/// An encoder.
pub(super) struct EncoderReference {
    heads: i64,
    words: Tensor,
    positions: Tensor,
    segment: Tensor,
    norm: Norm,
    pub layers: Vec<EncoderLayer>,
}

/// One layer's parameters, the linear layers' in the order of [`Linear::ALL`].
pub(super) struct EncoderLayer {
    /// `[out, in]` each.
    pub weights: [Tensor; 4],
    /// `[out]` each.
    pub biases: [Tensor; 4],
    attention_norm: Norm,
    output_norm: Norm,
}

impl EncoderLayer {
    /// The biases of the norms, in the order of [`Norm::ALL`](crate::pet::Norm::ALL).
    pub fn norm_biases(&mut self) -> [&mut Tensor; 2] {
        [&mut self.attention_norm.1, &mut self.output_norm.1]
    }

    fn linear(&self, linear: Linear, x: &Tensor) -> Tensor {
        let index = Linear::ALL.iter().position(|of| *of == linear).expect("all are there");
        x.matmul(&self.weights[index].tr()) + &self.biases[index]
    }
}

impl EncoderReference {
    /// Of the same weights.
    pub fn of(encoder: &Encoder) -> Result<EncoderReference, ExecutorError> {
        let shape = encoder.shape();
        let places = model::places(shape).into_iter();
        let all = Named::new(
            encoder.parameters(),
            places.map(|place| (place.name, place.shape, place.offset)),
        )?;
        let norm = |name: &str| Norm(all.get(&format!("{name}.weight")), all.get(&format!("{name}.bias")));
        let layer = |layer| {
            let of = |name: &str| format!("encoder.layer.{layer}.{name}");
            let parts = |part: &str| {
                let projections = ["query", "key", "value"].map(|name| of(&format!("attention.self.{name}.{part}")));
                let one = |name: &str| all.get(&of(&format!("{name}.dense.{part}")));
                [
                    all.stacked(&projections),
                    one("attention.output"),
                    one("intermediate"),
                    one("output"),
                ]
            };
            EncoderLayer {
                weights: parts("weight"),
                biases: parts("bias"),
                attention_norm: norm(&of("attention.output.LayerNorm")),
                output_norm: norm(&of("output.LayerNorm")),
            }
        };
        Ok(EncoderReference {
            heads: shape.heads.into(),
            words: all.get("embeddings.word_embeddings.weight"),
            positions: all.get("embeddings.position_embeddings.weight"),
            segment: all.get("embeddings.token_type_embeddings.weight").get(0),
            norm: norm("embeddings.LayerNorm"),
            layers: (0..shape.layers).map(layer).collect(),
        })
    }

    /// The first hidden states of a sequence, `[l, hidden]`.
    pub fn embed(&self, ids: &[i64]) -> Tensor {
        let words = self.words.index_select(0, &Tensor::from_slice(ids));
        self.norm.of(&(words + self.positions.narrow(0, 0, ids.len() as i64) + &self.segment))
    }

    /// What layers make of a sequence's hidden states, `[l, hidden]`.
    pub fn run(&self, mut hidden: Tensor, range: std::ops::Range<usize>, changes: Changes<'_>) -> Tensor {
        for index in range {
            let layer = &self.layers[index];
            let linear = |of, x: &Tensor| changes(index, of, layer.linear(of, x));
            let projected = linear(Linear::QueryKeyValue, &hidden).chunk(3, -1);
            let [query, key, value] = [0, 1, 2].map(|part: usize| projected[part].chunk(self.heads, -1));
            let heads = (0..self.heads as usize).map(|head| attend(&query[head], &key[head], &value[head], false));
            let attended = Tensor::cat(&heads.collect::<Vec<_>>(), -1);
            let middle = layer.attention_norm.of(&(linear(Linear::AttentionOutput, &attended) + &hidden));
            let inner = linear(Linear::Intermediate, &middle).gelu("none");
            hidden = layer.output_norm.of(&(linear(Linear::Output, &inner) + &middle));
        }
        hidden
    }

    /// All layers over a sequence's ids.
    pub fn forward(&self, ids: &[i64], changes: Changes<'_>) -> Tensor {
        self.run(self.embed(ids), 0..self.layers.len(), changes)
    }

    /// The attention that each of a sequence's tokens is paid by all of them, in all heads and layers, `[l]`.
    pub fn importance(&self, ids: &[i64]) -> Tensor {
        let mut hidden = self.embed(ids);
        let mut paid = Tensor::zeros([ids.len() as i64], (Kind::Double, Device::Cpu));
        for (index, layer) in self.layers.iter().enumerate() {
            let projected = layer.linear(Linear::QueryKeyValue, &hidden).chunk(3, -1);
            let [query, key] = [0, 1].map(|part: usize| projected[part].chunk(self.heads, -1));
            for (query, key) in query.iter().zip(&key) {
                paid += attention(query, key, false).sum_dim_intlist([0i64].as_slice(), false, Kind::Double);
            }
            hidden = self.run(hidden, index..index + 1, &as_it_is);
        }
        paid
    }
}

/// What a tenant adds to a decoder: to the results of what has an input in common, given that input, and to attention's
/// result.
pub(super) struct Tenant<'a> {
    pub adds: &'a dyn Fn(usize, lora::Input, &Tensor) -> Option<Tensor>,
    pub adapts: &'a dyn Fn(usize, Tensor) -> Tensor,
}

impl Tenant<'_> {
    /// Adds nothing.
    pub const NOBODY: Tenant<'static> = Tenant {
        adds: &|_, _, _| None,
        adapts: &|_, attention| attention,
    };
}

/// A decoder like Llama.
pub(super) struct DecoderReference {
    config: DecoderConfig,
    all: Named,
}

impl DecoderReference {
    /// Of the same weights.
    pub fn of(decoder: &Decoder) -> Result<DecoderReference, ExecutorError> {
        let config = DecoderConfig::new(decoder.shape())?;
        let places = decoder::places(decoder.shape()).into_iter();
        let places = places.map(|place| (place.name, place.shape, place.offset));
        Ok(DecoderReference {
            config,
            all: Named::new(decoder.parameters(), places)?,
        })
    }

    fn shape(&self) -> &ModelShape {
        &self.config.shape
    }

    fn norm(&self, name: &str, x: &Tensor) -> Tensor {
        let square = (x * x).mean_dim(-1, true, Kind::Double);
        x / (square + self.config.norm_epsilon).sqrt() * self.all.get(name)
    }

    /// Rotates a head, `[l, width]`, by its tokens' positions.
    fn rotate(&self, head: &Tensor) -> Tensor {
        let (length, width) = (head.size()[0], head.size()[1]);
        let exponents = Tensor::arange(width / 2, (Kind::Double, Device::Cpu)) * (-2.0 / width as f64);
        let frequencies = (exponents * self.config.rope.theta.ln()).exp();
        let angles = Tensor::arange(length, (Kind::Double, Device::Cpu)).unsqueeze(1) * frequencies;
        let halves = head.chunk(2, -1);
        let (cosine, sine) = (angles.cos(), angles.sin());
        let first = &halves[0] * &cosine - &halves[1] * &sine;
        let second = &halves[1] * &cosine + &halves[0] * &sine;
        Tensor::cat(&[first, second], -1)
    }

    /// Logits after the last token of a sequence, `[vocabulary]`.
    pub fn logits(&self, ids: &[i64], tenant: &Tenant<'_>) -> Tensor {
        let shape = self.shape();
        let (heads, kv_heads) = (shape.heads as usize, shape.kv_heads as usize);
        let mut hidden = { self.all.get("model.embed_tokens.weight") }.index_select(0, &Tensor::from_slice(ids));
        for layer in 0..shape.layers as usize {
            let name = |of: &str| format!("model.layers.{layer}.{of}.weight");
            let linear = |names: &[&str], input, x: &Tensor| {
                let names: Vec<String> = names.iter().map(|of| name(of)).collect();
                let y = x.matmul(&self.all.stacked(&names).tr());
                match (tenant.adds)(layer, input, x) {
                    Some(added) => y + added,
                    None => y,
                }
            };
            let normed = self.norm(&name("input_layernorm"), &hidden);
            let names = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"];
            let projected = linear(&names, lora::Input::Attention, &normed);
            let width = i64::from(shape.hidden / shape.heads);
            let head = |index: usize| projected.narrow(-1, index as i64 * width, width);
            let attended = (0..heads).map(|query| {
                let kv = query / (heads / kv_heads);
                let (key, value) = (head(heads + kv), head(heads + kv_heads + kv));
                attend(&self.rotate(&head(query)), &self.rotate(&key), &value, true)
            });
            let attended = Tensor::cat(&attended.collect::<Vec<_>>(), -1);
            let attention = linear(&["self_attn.o_proj"], lora::Input::AttentionOutput, &attended);
            hidden = (tenant.adapts)(layer, attention) + hidden;
            let normed = self.norm(&name("post_attention_layernorm"), &hidden);
            let up = linear(&["mlp.gate_proj", "mlp.up_proj"], lora::Input::FeedForward, &normed);
            let halves = up.chunk(2, -1);
            let inner = &halves[0] * halves[0].sigmoid() * &halves[1];
            hidden = linear(&["mlp.down_proj"], lora::Input::FeedForwardOutput, &inner) + hidden;
        }
        let last = hidden.get(ids.len() as i64 - 1).unsqueeze(0);
        let normed = self.norm("model.norm.weight", &last);
        normed.matmul(&self.all.get("lm_head.weight").tr()).squeeze_dim(0)
    }
}
