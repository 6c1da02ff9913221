//! Which parameter lies where in an encoder's flat block: Hugging Face's tensors, in the order of the forward pass.
//!
//! Query, key and value lie next to each other, so that one view over the three is one matrix product. Every offset is
//! a multiple of the hidden width, which keeps the alignment that fast kernels ask for.

use std::ops::Range;

use tenantry_profiles::{ModelKind, ModelShape};

use super::variant::Variant;
use crate::error::ExecutorError;
use crate::random::{INITIAL_STD, Part, fill, weights};

/// Token types of the segment embedding (sentence A and B).
const SEGMENTS: u32 = 2;

/// One tensor of a checkpoint and its place in the flat block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its name in Hugging Face's layout, without the `bert.` prefix that some checkpoints have.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Index of its first number in the block.
    pub offset: usize,
}

impl Place {
    /// How many numbers it has.
    pub fn length(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Refuses what is not a BERT-like encoder.
pub(crate) fn check(shape: &ModelShape) -> Result<(), ExecutorError> {
    shape.validate().map_err(|error| ExecutorError::Shape {
        model: shape.name.clone(),
        error,
    })?;
    let refuse = |field: &str, must: &str, got: &dyn std::fmt::Display| {
        Err(ExecutorError::input(
            format!("model {}: {field}", shape.name),
            must,
            got,
        ))
    };
    if shape.kind != ModelKind::Encoder {
        return refuse("kind", "encoder", &shape.kind);
    }
    if shape.gated {
        return refuse("gated", "false for an encoder", &shape.gated);
    }
    if shape.kv_heads != shape.heads {
        return refuse(
            "kv_heads",
            &format!("heads ({}) for an encoder", shape.heads),
            &shape.kv_heads,
        );
    }
    Ok(())
}

/// All tensors of an encoder, in the order of its flat block and without gaps.
pub(crate) fn places(shape: &ModelShape) -> Vec<Place> {
    places_of(shape, &Variant::BERT)
}

/// Likewise of a variant: a projection of the embedding has its name behind `embeddings.projection`, and one layer that
/// stands for all is the first; the embedding of distances comes last.
pub(crate) fn places_of(shape: &ModelShape, variant: &Variant) -> Vec<Place> {
    let (hidden, intermediate) = (shape.hidden, shape.intermediate);
    let width = variant.embedding.unwrap_or(hidden);
    let mut tensors = vec![
        (
            "embeddings.word_embeddings.weight".to_string(),
            vec![shape.vocabulary, width],
        ),
        (
            "embeddings.position_embeddings.weight".to_string(),
            vec![shape.positions, width],
        ),
        (
            "embeddings.token_type_embeddings.weight".to_string(),
            vec![SEGMENTS, width],
        ),
        ("embeddings.LayerNorm.weight".to_string(), vec![width]),
        ("embeddings.LayerNorm.bias".to_string(), vec![width]),
    ];
    if variant.embedding.is_some() {
        tensors.extend([
            ("embeddings.projection.weight".to_string(), vec![hidden, width]),
            ("embeddings.projection.bias".to_string(), vec![hidden]),
        ]);
    }
    let of_layer = [
        ("attention.self.query.weight", vec![hidden, hidden]),
        ("attention.self.key.weight", vec![hidden, hidden]),
        ("attention.self.value.weight", vec![hidden, hidden]),
        ("attention.self.query.bias", vec![hidden]),
        ("attention.self.key.bias", vec![hidden]),
        ("attention.self.value.bias", vec![hidden]),
        ("attention.output.dense.weight", vec![hidden, hidden]),
        ("attention.output.dense.bias", vec![hidden]),
        ("attention.output.LayerNorm.weight", vec![hidden]),
        ("attention.output.LayerNorm.bias", vec![hidden]),
        ("intermediate.dense.weight", vec![intermediate, hidden]),
        ("intermediate.dense.bias", vec![intermediate]),
        ("output.dense.weight", vec![hidden, intermediate]),
        ("output.dense.bias", vec![hidden]),
        ("output.LayerNorm.weight", vec![hidden]),
        ("output.LayerNorm.bias", vec![hidden]),
    ];
    let layers = if variant.one_layer { 1 } else { shape.layers };
    for layer in 0..layers {
        let named = |(name, shape): &(&str, Vec<u32>)| (format!("encoder.layer.{layer}.{name}"), shape.clone());
        tensors.extend(of_layer.iter().map(named));
    }
    if let Some(distances) = variant.relative {
        tensors.extend([
            (
                "encoder.rel_embeddings.weight".to_string(),
                vec![distances.rows(), hidden],
            ),
            ("encoder.LayerNorm.weight".to_string(), vec![hidden]),
            ("encoder.LayerNorm.bias".to_string(), vec![hidden]),
        ]);
    }
    let mut offset = 0;
    let place = |(name, shape): (String, Vec<u32>)| {
        let place = Place {
            name,
            shape: shape.into_iter().map(|n| n as usize).collect(),
            offset,
        };
        offset += place.length();
        place
    };
    tensors.into_iter().map(place).collect()
}

/// Where the weight matrices of the layers below `layers` lie in a flat block: what further pretraining changes of
/// them, biases and norms apart.
pub(crate) fn lower_matrices(shape: &ModelShape, layers: u32) -> Vec<Range<usize>> {
    let below = |place: &Place| {
        let layer = place.name.strip_prefix("encoder.layer.")?.split('.').next()?;
        Some(layer.parse::<u32>().ok()? < layers && place.shape.len() == 2)
    };
    let places = places(shape).into_iter().filter(|place| below(place) == Some(true));
    places.map(|place| place.offset..place.offset + place.length()).collect()
}

/// How many numbers of a flat block belong to the layers from `first_layer` on, which lie at its end; all, with the
/// embedding, from 0 on.
pub(crate) fn upper_parameters(shape: &ModelShape, first_layer: u32) -> Result<u64, ExecutorError> {
    check(shape)?;
    match first_layer {
        0 => Ok(shape.parameters()),
        first if first < shape.layers => Ok(u64::from(shape.layers - first) * shape.layer_parameters()),
        _ => {
            let what = format!("first layer of {}", shape.name);
            Err(ExecutorError::input(
                what,
                format!("below {}, its layers", shape.layers),
                first_layer,
            ))
        }
    }
}

/// Fills a flat block, or the last part of one, as BERT is initialised: small weights, no biases, norms that change
/// nothing.
pub(crate) fn initialise(shape: &ModelShape, seed: u64, owner: u64, block: &mut [f32]) {
    let mut stream = weights(seed, Part::Model, owner);
    let left_out = shape.parameters() as usize - block.len();
    for place in places(shape).into_iter().filter(|place| place.offset >= left_out) {
        let numbers = &mut block[place.offset - left_out..][..place.length()];
        match place.name.as_str() {
            name if name.ends_with("LayerNorm.weight") => numbers.fill(1.0),
            name if name.ends_with("bias") => numbers.fill(0.0),
            _ => fill(&mut stream, INITIAL_STD, numbers),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_as_long_as_the_shape_has_parameters() {
        for name in ["tiny", "bert-base", "tinybert-4"] {
            let shape = ModelShape::builtin(name).unwrap();
            let last = places(&shape).pop().unwrap();
            assert_eq!((last.offset + last.length()) as u64, shape.parameters(), "{name}");
        }
    }

    #[test]
    fn offsets_keep_the_alignment_of_rows() {
        let shape = ModelShape::builtin("bert-base").unwrap();
        assert!(places(&shape).iter().all(|place| place.offset.is_multiple_of(shape.hidden as usize)));
    }

    #[test]
    fn decoders_are_refused() {
        let decoder = ModelShape::builtin("opt-125m").unwrap();
        assert_eq!(
            check(&decoder).unwrap_err().to_string(),
            "model opt-125m: kind: must be encoder, got decoder"
        );
    }
}
