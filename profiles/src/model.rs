//! The shape of a transformer: what its costs and its size in memory follow from.
//!
//! Shapes hold no weights. Two architectures are counted: BERT's block (biases, layer norms, learned positions) and,
//! with `gated`, Llama's (a gated feed-forward, RMS norms, rotary positions, no biases, an output matrix of its own).

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::card::ONE_LINE;
use crate::names::named;

/// What a model does with its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ModelKind {
    /// Reads the whole input at once and classifies it (BERT).
    Encoder,
    /// Generates token by token (OPT, Llama).
    Decoder,
}
named!(ModelKind { Encoder => "encoder", Decoder => "decoder" });

/// The number format of weights and activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DType {
    /// IEEE single precision.
    F32,
    /// bfloat16: single precision's range in two bytes.
    Bf16,
    /// IEEE half precision.
    F16,
}
named!(DType { F32 => "f32", Bf16 => "bf16", F16 => "f16" });

impl DType {
    /// Bytes of one number.
    pub fn bytes(self) -> u64 {
        match self {
            DType::F32 => 4,
            DType::Bf16 | DType::F16 => 2,
        }
    }
}

/// The shape of one transformer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelShape {
    /// The name that profiles list its costs under.
    pub name: String,
    /// Encoder or decoder.
    pub kind: ModelKind,
    /// Transformer layers.
    pub layers: u32,
    /// Width of the hidden state.
    pub hidden: u32,
    /// Attention heads; they share `hidden` evenly.
    pub heads: u32,
    /// Key and value heads: `heads`, or fewer where queries share them (grouped-query attention).
    pub kv_heads: u32,
    /// Width inside the feed-forward block.
    pub intermediate: u32,
    /// Whether the block is Llama's: a third feed-forward matrix as gate, RMS norms, rotary positions, no biases.
    pub gated: bool,
    /// Tokens in the vocabulary.
    pub vocabulary: u32,
    /// Longest input in tokens.
    pub positions: u32,
}

/// Layers of a model at most: ops count them in 16 bits.
const LAYERS_MAX: u32 = 65_535;

/// No dimension of a shape may exceed this, so that no count of parameters overflows 64 bits.
const DIMENSION_MAX: u32 = 1 << 20;

/// Token types in an encoder's segment embedding (sentence A and B).
const SEGMENTS: u64 = 2;

/// A shape that no transformer can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: must be {must}, got {got}")]
pub struct ModelError {
    /// The field of [`ModelShape`].
    pub field: &'static str,
    /// What the field must be.
    pub must: String,
    /// What it is.
    pub got: String,
}

impl ModelShape {
    /// Its dimensions:
    /// `decoder, 2 layers of 64, 4 heads (2 of keys and values), 256 between, 512 words, 128 positions`.
    pub fn in_words(&self) -> String {
        let ModelShape {
            kind,
            layers,
            hidden,
            heads,
            kv_heads,
            intermediate,
            vocabulary,
            positions,
            gated,
            name: _,
        } = self;
        let kind = match (kind, gated) {
            (ModelKind::Encoder, _) => "encoder",
            (ModelKind::Decoder, false) => "decoder",
            (ModelKind::Decoder, true) => "gated decoder",
        };
        format!(
            "{kind}, {layers} layers of {hidden}, {heads} heads ({kv_heads} of keys and values), {intermediate} \
             between, {vocabulary} words, {positions} positions"
        )
    }

    /// The built-in shape called `name`.
    pub fn builtin(name: &str) -> Option<ModelShape> {
        let row = BUILTINS.iter().find(|row| row.0 == name)?;
        let &(name, kind, layers, hidden, heads, kv_heads, intermediate, gated, vocabulary, positions) = row;
        Some(ModelShape {
            name: name.to_string(),
            kind,
            layers,
            hidden,
            heads,
            kv_heads,
            intermediate,
            gated,
            vocabulary,
            positions,
        })
    }

    /// The names of all built-in shapes, smallest family first.
    pub fn builtin_names() -> &'static [&'static str] {
        &BUILTIN_NAMES
    }

    /// Parameters of one transformer layer: attention, feed-forward and their norms, with biases where the block has
    /// them.
    pub fn layer_parameters(&self) -> u64 {
        let (hidden, intermediate) = (u64::from(self.hidden), u64::from(self.intermediate));
        let kv_width = hidden / u64::from(self.heads) * u64::from(self.kv_heads);
        let attention = 2 * hidden * hidden + 2 * hidden * kv_width;
        if self.gated {
            let norms = 2 * hidden;
            attention + 3 * hidden * intermediate + norms
        } else {
            let attention_biases = 2 * hidden + 2 * kv_width;
            let feed_forward = 2 * hidden * intermediate + intermediate + hidden;
            let norms = 2 * 2 * hidden;
            attention + attention_biases + feed_forward + norms
        }
    }

    /// Parameters before and after the layers: token embeddings and, by architecture, positions, two segments and a
    /// norm (encoder); positions and the final norm (decoder, whose output shares the token matrix); the final norm and
    /// an output matrix of its own (gated decoder).
    pub fn embedding_parameters(&self) -> u64 {
        let (hidden, vocabulary, positions) = (
            u64::from(self.hidden),
            u64::from(self.vocabulary),
            u64::from(self.positions),
        );
        match (self.gated, self.kind) {
            (false, ModelKind::Encoder) => (vocabulary + positions + SEGMENTS) * hidden + 2 * hidden,
            (false, ModelKind::Decoder) => (vocabulary + positions) * hidden + 2 * hidden,
            (true, ModelKind::Encoder) => vocabulary * hidden + hidden,
            (true, ModelKind::Decoder) => 2 * vocabulary * hidden + hidden,
        }
    }

    /// All parameters of the shared model. An encoder's pooler is not among them: classification heads are counted by
    /// [`head_parameters`](Self::head_parameters), since each tenant has its own.
    pub fn parameters(&self) -> u64 {
        u64::from(self.layers) * self.layer_parameters() + self.embedding_parameters()
    }

    /// Parameters of one layer's Houlsby adapter after attention: down- and up-projection with their biases (HMI, Eq.
    /// 1).
    pub fn adapter_parameters_per_layer(&self, bottleneck: u32) -> u64 {
        let (hidden, bottleneck) = (u64::from(self.hidden), u64::from(bottleneck));
        2 * hidden * bottleneck + bottleneck + hidden
    }

    /// Parameters of one layer's low-rank products of this rank on all dense projections: queries, keys, values,
    /// output, and the feed-forward's two or, with a gate, three (Punica, section 7).
    pub fn lora_parameters_per_layer(&self, rank: u32) -> u64 {
        let (hidden, intermediate) = (u64::from(self.hidden), u64::from(self.intermediate));
        let kv_width = hidden / u64::from(self.heads) * u64::from(self.kv_heads);
        let attention = 2 * (hidden + hidden) + 2 * (hidden + kv_width);
        let matrices = if self.gated { 3 } else { 2 };
        u64::from(rank) * (attention + matrices * (hidden + intermediate))
    }

    /// Of these, what each of `cards` has that share the layer as Megatron's do (Shoeybi et al., 2019, section 3).
    /// Where a product's outputs are split, every card needs all of what comes first and its part of what comes second;
    /// where its inputs are, its part of what comes first and all of what comes second, and what it adds meets the
    /// others' in the layer's own all-reduce.
    pub fn lora_parameters_per_card(&self, rank: u32, cards: u32) -> u64 {
        let (hidden, intermediate, cards) = (u64::from(self.hidden), u64::from(self.intermediate), u64::from(cards));
        let kv_width = hidden / u64::from(self.heads) * u64::from(self.kv_heads);
        let widening = if self.gated { 2 } else { 1 };
        // Queries, keys, values and the feed-forward's first matrices; then attention's output and the feed-forward's
        // last.
        let by_outputs = (3 + widening) * hidden + (hidden + 2 * kv_width + widening * intermediate) / cards;
        let by_inputs = (hidden + intermediate) / cards + 2 * hidden;
        u64::from(rank) * (by_outputs + by_inputs)
    }

    /// Numbers that the cache keeps of one token: a key and a value in each layer.
    pub fn cached_per_token(&self) -> u64 {
        u64::from(self.layers) * self.cached_per_token_and_layer()
    }

    /// Likewise, in one layer.
    pub fn cached_per_token_and_layer(&self) -> u64 {
        2 * u64::from(self.hidden / self.heads * self.kv_heads)
    }

    /// Parameters of a decoder that come after its layers: the final norm and the output matrix, which without a gate
    /// is the token matrix.
    pub fn output_parameters(&self) -> u64 {
        let (hidden, vocabulary) = (u64::from(self.hidden), u64::from(self.vocabulary));
        let norm = if self.gated { hidden } else { 2 * hidden };
        vocabulary * hidden + norm
    }

    /// Parameters of a tenant's classification head: one linear layer with bias.
    pub fn head_parameters(&self, classes: u32) -> u64 {
        (u64::from(self.hidden) + 1) * u64::from(classes)
    }

    /// Parameters of a dense layer before a head: as many outputs as inputs, with bias.
    pub fn pooler_parameters(&self) -> u64 {
        (u64::from(self.hidden) + 1) * u64::from(self.hidden)
    }

    /// Refuses shapes that no transformer can have.
    ///
    /// # Errors
    /// Names the first field at fault.
    pub fn validate(&self) -> Result<(), ModelError> {
        let fail = |field, must: String, got: &dyn fmt::Display| {
            Err(ModelError {
                field,
                must,
                got: got.to_string(),
            })
        };
        if self.name.trim().is_empty() {
            return fail("name", "a name".into(), &"nothing");
        }
        if self.name.contains(char::is_control) {
            return fail("name", ONE_LINE.into(), &format_args!("{:?}", self.name));
        }
        for (field, value) in self.dimensions() {
            if !(1..=DIMENSION_MAX).contains(&value) {
                return fail(field, format!("from 1 to {DIMENSION_MAX}"), &value);
            }
        }
        if self.layers > LAYERS_MAX {
            return fail("layers", format!("from 1 to {LAYERS_MAX}"), &self.layers);
        }
        if !self.hidden.is_multiple_of(self.heads) {
            return fail("heads", format!("a divisor of hidden ({})", self.hidden), &self.heads);
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return fail(
                "kv_heads",
                format!("a divisor of heads ({})", self.heads),
                &self.kv_heads,
            );
        }
        Ok(())
    }

    fn dimensions(&self) -> [(&'static str, u32); 7] {
        [
            ("layers", self.layers),
            ("hidden", self.hidden),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("intermediate", self.intermediate),
            ("vocabulary", self.vocabulary),
            ("positions", self.positions),
        ]
    }

    /// Whether a layer of one does what a layer of another does: how many there are, the words before and after them
    /// and the longest input may differ.
    pub fn has_layers_of(&self, other: &ModelShape) -> bool {
        *self
            == ModelShape {
                name: self.name.clone(),
                layers: self.layers,
                vocabulary: self.vocabulary,
                positions: self.positions,
                ..other.clone()
            }
    }

    /// Where two shapes differ, names apart: `hidden 768, not 512`.
    pub fn differences(&self, other: &ModelShape) -> String {
        let dimensions = self.dimensions().into_iter().zip(other.dimensions());
        let dimensions = dimensions.map(|((field, ours), (_, theirs))| (field, ours.to_string(), theirs.to_string()));
        let rest = [
            ("kind", self.kind.to_string(), other.kind.to_string()),
            ("gated", self.gated.to_string(), other.gated.to_string()),
        ];
        let differing = dimensions.chain(rest).filter(|(_, ours, theirs)| ours != theirs);
        differing
            .map(|(field, ours, theirs)| format!("{field} {ours}, not {theirs}"))
            .collect::<Vec<_>>()
            .join("; ")
    }
}

type Builtin = (&'static str, ModelKind, u32, u32, u32, u32, u32, bool, u32, u32);

/// Name, kind, layers, hidden, heads, kv_heads, intermediate, gated, vocabulary, positions.
#[rustfmt::skip]
const BUILTINS: [Builtin; 19] = [
    ("tiny",       ModelKind::Encoder,  2,  128,  2,  2,   512, false,  1024,  128),
    ("bert-tiny",  ModelKind::Encoder,  2,  128,  2,  2,   512, false, 30522,  512),
    ("bert-mini",  ModelKind::Encoder,  4,  256,  4,  4,  1024, false, 30522,  512),
    ("bert-small", ModelKind::Encoder,  4,  512,  8,  8,  2048, false, 30522,  512),
    ("bert-base",  ModelKind::Encoder, 12,  768, 12, 12,  3072, false, 30522,  512),
    ("bert-large", ModelKind::Encoder, 24, 1024, 16, 16,  4096, false, 30522,  512),
    ("distilbert", ModelKind::Encoder,  6,  768, 12, 12,  3072, false, 30522,  512),
    ("tinybert-4", ModelKind::Encoder,  4,  312, 12, 12,  1200, false, 30522,  512),
    ("tinybert-6", ModelKind::Encoder,  6,  768, 12, 12,  3072, false, 30522,  512),
    ("tiny-opt",   ModelKind::Decoder,  2,  128,  2,  2,   512, false,  1024, 2048),
    ("opt-125m",   ModelKind::Decoder, 12,  768, 12, 12,  3072, false, 50272, 2048),
    ("distilgpt2", ModelKind::Decoder,  6,  768, 12, 12,  3072, false, 50257, 1024),
    ("tiny-llama", ModelKind::Decoder,  2,  128,  4,  2,   352, true,   1024, 2048),
    ("phi-2",      ModelKind::Decoder, 32, 2560, 32, 32, 10240, false, 51200, 2048),
    ("llama-7b",   ModelKind::Decoder, 32, 4096, 32, 32, 11008, true,  32000, 4096),
    ("llama3-8b",  ModelKind::Decoder, 32, 4096, 32,  8, 14336, true, 128256, 8192),
    ("llama3.1-8b", ModelKind::Decoder, 32, 4096, 32, 8, 14336, true, 128256, 131072),
    ("llama-13b",  ModelKind::Decoder, 40, 5120, 40, 40, 13824, true,  32000, 4096),
    ("llama-70b",  ModelKind::Decoder, 80, 8192, 64,  8, 28672, true,  32000, 4096),
];

const BUILTIN_NAMES: [&str; BUILTINS.len()] = {
    let mut names = [""; BUILTINS.len()];
    let mut index = 0;
    while index < BUILTINS.len() {
        names[index] = BUILTINS[index].0;
        index += 1;
    }
    names
};

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(name: &str) -> ModelShape {
        ModelShape::builtin(name).unwrap()
    }

    /// Hugging Face's encoders count a pooler (one hidden × hidden layer with bias), ours do not.
    fn with_pooler(name: &str) -> u64 {
        let shape = shape(name);
        shape.parameters() + u64::from(shape.hidden) * (u64::from(shape.hidden) + 1)
    }

    #[test]
    fn counts_are_the_published_ones() {
        assert_eq!(with_pooler("bert-tiny"), 4_385_920);
        assert_eq!(with_pooler("bert-mini"), 11_170_560);
        assert_eq!(with_pooler("bert-small"), 28_763_648);
        assert_eq!(with_pooler("bert-base"), 109_482_240);
        assert_eq!(with_pooler("bert-large"), 335_141_888);
        assert_eq!(with_pooler("tinybert-4"), 14_350_248);
        // DistilBERT drops the segment embeddings, which our encoders keep.
        assert_eq!(shape("distilbert").parameters() - 2 * 768, 66_362_880);
        // OPT's position table has two rows that no position uses.
        assert_eq!(shape("opt-125m").parameters() + 2 * 768, 125_239_296);
        assert_eq!(shape("distilgpt2").parameters(), 81_912_576);
        assert_eq!(shape("llama-7b").parameters(), 6_738_415_616);
        assert_eq!(shape("llama-13b").parameters(), 13_015_864_320);
        assert_eq!(shape("llama-70b").parameters(), 68_976_648_192);
    }

    #[test]
    fn tenants_parameters() {
        // HMI, section 2: an adapter of bottleneck 64 in BERT-base is 2 × 768 × 64 weights and the biases.
        assert_eq!(shape("bert-base").adapter_parameters_per_layer(64), 98_304 + 64 + 768);
        assert_eq!(shape("bert-base").head_parameters(2), 1_538);
        // 80 MB of rank 16 at two bytes each, and 512 KiB a cached token (reproduction of Punica, section 7).
        assert_eq!(32 * shape("llama-7b").lora_parameters_per_layer(16) * 2, 79_953_920);
        // One card has all, and more of them keep less each and more together.
        for model in [shape("llama-7b"), shape("llama-70b"), shape("tiny-opt")] {
            let on = |cards| model.lora_parameters_per_card(16, cards);
            assert_eq!(on(1), model.lora_parameters_per_layer(16), "{}", model.name);
            assert!(on(2) < on(1) && 2 * on(2) > on(1), "{}", model.name);
        }
        // By hand, of what comes first and second: 8,192 whole for five products, then an eighth of 67,584; an eighth
        // of 36,864, then 8,192 twice.
        let by_hand = 5 * 8_192 + 67_584 / 8 + 36_864 / 8 + 2 * 8_192;
        assert_eq!(shape("llama-70b").lora_parameters_per_card(1, 8), by_hand);
        assert_eq!(shape("llama-7b").cached_per_token() * 2, 512 << 10);
    }

    #[test]
    fn what_comes_after_the_layers() {
        // OPT shares the token matrix; of the embedding only the positions are left out.
        let opt = shape("opt-125m");
        assert_eq!(opt.embedding_parameters() - opt.output_parameters(), 2048 * 768);
        let llama = shape("tiny-llama");
        assert_eq!(llama.embedding_parameters() - llama.output_parameters(), 1024 * 128);
    }

    #[test]
    fn every_builtin_is_valid_and_found_by_its_name() {
        for &name in ModelShape::builtin_names() {
            let shape = shape(name);
            assert_eq!(shape.name, name);
            assert_eq!(shape.validate(), Ok(()));
        }
        assert_eq!(ModelShape::builtin("bert-huge"), None);
    }

    #[test]
    fn impossible_shapes_are_refused() {
        let tiny = shape("tiny");
        for (broken, message) in [
            (
                ModelShape {
                    name: " ".into(),
                    ..tiny.clone()
                },
                "name: must be a name, got nothing",
            ),
            (
                ModelShape {
                    layers: 0,
                    ..tiny.clone()
                },
                "layers: must be from 1 to 1048576, got 0",
            ),
            (
                ModelShape {
                    vocabulary: u32::MAX,
                    ..tiny.clone()
                },
                "vocabulary: must be from 1 to 1048576, got 4294967295",
            ),
            (
                ModelShape {
                    heads: 3,
                    ..tiny.clone()
                },
                "heads: must be a divisor of hidden (128), got 3",
            ),
            (
                ModelShape {
                    kv_heads: 4,
                    ..tiny.clone()
                },
                "kv_heads: must be a divisor of heads (2), got 4",
            ),
        ] {
            assert_eq!(broken.validate().unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn the_largest_shape_does_not_overflow() {
        let most = DIMENSION_MAX;
        for gated in [false, true] {
            let kind = ModelKind::Decoder;
            let largest = ModelShape {
                name: "largest".into(),
                kind,
                layers: LAYERS_MAX,
                hidden: most,
                heads: most,
                kv_heads: most,
                intermediate: most,
                gated,
                vocabulary: most,
                positions: most,
            };
            assert_eq!(largest.validate(), Ok(()));
            assert!(largest.parameters() > 1 << 57);
        }
    }
}
