//! Which parameter lies where in a decoder's flat block: Hugging Face's tensors, in the order of the forward pass.
//!
//! Query, key and value lie next to each other, and so do Llama's gate and up: one view over them is one matrix
//! product.

use std::ops::Range;

use tch::{Device, Kind, Tensor};
use tenantry_profiles::{ModelKind, ModelShape};

use crate::device::{empty_host_memory_for, slice_of};
use crate::error::ExecutorError;
use crate::random::{INITIAL_STD, Part, fill_on_all_cores, weights};

/// The first rows of OPT's position table belong to no position: position 0 is row 2.
const OPT_POSITION_OFFSET: usize = 2;

/// One tensor of a checkpoint and its place in the flat block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its name in Hugging Face's layout.
    pub name: String,
    /// Its shape in the block.
    pub shape: Vec<usize>,
    /// Index of its first number in the block.
    pub offset: usize,
    /// Rows that the checkpoint's tensor has before those in the block.
    pub skipped_rows: usize,
}

impl Place {
    /// How many numbers it has in the block.
    pub fn length(&self) -> usize {
        self.shape.iter().product()
    }

    /// Its shape in the checkpoint.
    pub fn stored_shape(&self) -> Vec<usize> {
        let mut shape = self.shape.clone();
        shape[0] += self.skipped_rows;
        shape
    }
}

/// Refuses what is not a Llama- or OPT-like decoder.
pub(crate) fn check(shape: &ModelShape) -> Result<(), ExecutorError> {
    shape.validate().map_err(|error| ExecutorError::Shape {
        model: shape.name.clone(),
        error,
    })?;
    let refuse = |field: &str, must: String, got: &dyn std::fmt::Display| {
        let what = format!("model {}: {field}", shape.name);
        Err(ExecutorError::input(what, must, got))
    };
    if shape.kind != ModelKind::Decoder {
        return refuse("kind", "decoder".into(), &shape.kind);
    }
    if !shape.gated && shape.kv_heads != shape.heads {
        let must = format!("heads ({}) for an OPT-like decoder", shape.heads);
        return refuse("kv_heads", must, &shape.kv_heads);
    }
    if shape.gated && !(shape.hidden / shape.heads).is_multiple_of(2) {
        let must = "heads of an even width for rotary positions".to_string();
        return refuse("hidden / heads", must, &(shape.hidden / shape.heads));
    }
    Ok(())
}

/// Width of all key heads together.
pub(crate) fn kv_width(shape: &ModelShape) -> u32 {
    shape.hidden / shape.heads * shape.kv_heads
}

/// All tensors of a decoder, in the order of its flat block and without gaps.
pub(crate) fn places(shape: &ModelShape) -> Vec<Place> {
    let tensors = if shape.gated { llama(shape) } else { opt(shape) };
    let mut offset = 0;
    let place = |(name, shape): (String, Vec<u32>)| {
        let skipped_rows = if name.ends_with("embed_positions.weight") {
            OPT_POSITION_OFFSET
        } else {
            0
        };
        let place = Place {
            name,
            shape: shape.into_iter().map(|n| n as usize).collect(),
            offset,
            skipped_rows,
        };
        offset += place.length();
        place
    };
    tensors.into_iter().map(place).collect()
}

/// Which layer a tensor belongs to; nothing for what comes before and after the layers.
fn layer_of(name: &str) -> Option<u32> {
    let (_, rest) = name.split_once(".layers.")?;
    rest.split('.').next()?.parse().ok()
}

/// Where the weight matrices of the layers below `layers` lie in a flat block: what further pretraining changes of
/// them, biases and norms apart.
pub(crate) fn lower_matrices(shape: &ModelShape, layers: u32) -> Vec<Range<usize>> {
    let is_below = |place: &Place| place.shape.len() == 2 && layer_of(&place.name).is_some_and(|layer| layer < layers);
    let places = places(shape).into_iter().filter(is_below);
    places.map(|place| place.offset..place.offset + place.length()).collect()
}

/// Whether a decoder whose layers below `first_layer` are looked up has a tensor: those of the upper layers, and of
/// what comes after them, to which OPT's token matrix belongs.
fn is_upper(shape: &ModelShape, first_layer: u32, name: &str) -> bool {
    match layer_of(name) {
        Some(layer) => layer >= first_layer,
        None if first_layer == 0 => true,
        None if name.ends_with("embed_positions.weight") => false,
        None => !(shape.gated && name.ends_with("embed_tokens.weight")),
    }
}

/// Where what a decoder has whose layers below `first_layer` are looked up lies in the whole one's block, in order.
pub(crate) fn upper_ranges(shape: &ModelShape, first_layer: u32) -> Vec<Range<usize>> {
    let own = places(shape).into_iter().filter(|place| is_upper(shape, first_layer, &place.name));
    own.map(|place| place.offset..place.offset + place.length()).collect()
}

/// Parameters of a decoder's layers from `first_layer` on, with what comes before the first and after the last.
pub(crate) fn upper_parameters(shape: &ModelShape, first_layer: u32) -> Result<u64, ExecutorError> {
    check(shape)?;
    if first_layer >= shape.layers {
        let must = format!("below {}, the layers of {}", shape.layers, shape.name);
        return Err(ExecutorError::input("first layer that is computed", must, first_layer));
    }
    Ok(match first_layer {
        0 => shape.parameters(),
        _ => u64::from(shape.layers - first_layer) * shape.layer_parameters() + shape.output_parameters(),
    })
}

type Named = (String, Vec<u32>);

fn llama(shape: &ModelShape) -> Vec<Named> {
    let (hidden, kv, intermediate) = (shape.hidden, kv_width(shape), shape.intermediate);
    let of_layer = [
        ("input_layernorm.weight", vec![hidden]),
        ("self_attn.q_proj.weight", vec![hidden, hidden]),
        ("self_attn.k_proj.weight", vec![kv, hidden]),
        ("self_attn.v_proj.weight", vec![kv, hidden]),
        ("self_attn.o_proj.weight", vec![hidden, hidden]),
        ("post_attention_layernorm.weight", vec![hidden]),
        ("mlp.gate_proj.weight", vec![intermediate, hidden]),
        ("mlp.up_proj.weight", vec![intermediate, hidden]),
        ("mlp.down_proj.weight", vec![hidden, intermediate]),
    ];
    let mut tensors = vec![("model.embed_tokens.weight".to_string(), vec![shape.vocabulary, hidden])];
    for layer in 0..shape.layers {
        let named = |(name, shape): &(&str, Vec<u32>)| (format!("model.layers.{layer}.{name}"), shape.clone());
        tensors.extend(of_layer.iter().map(named));
    }
    tensors.push(("model.norm.weight".to_string(), vec![hidden]));
    tensors.push(("lm_head.weight".to_string(), vec![shape.vocabulary, hidden]));
    tensors
}

fn opt(shape: &ModelShape) -> Vec<Named> {
    let (hidden, intermediate) = (shape.hidden, shape.intermediate);
    let of_layer = [
        ("self_attn_layer_norm.weight", vec![hidden]),
        ("self_attn_layer_norm.bias", vec![hidden]),
        ("self_attn.q_proj.weight", vec![hidden, hidden]),
        ("self_attn.k_proj.weight", vec![hidden, hidden]),
        ("self_attn.v_proj.weight", vec![hidden, hidden]),
        ("self_attn.q_proj.bias", vec![hidden]),
        ("self_attn.k_proj.bias", vec![hidden]),
        ("self_attn.v_proj.bias", vec![hidden]),
        ("self_attn.out_proj.weight", vec![hidden, hidden]),
        ("self_attn.out_proj.bias", vec![hidden]),
        ("final_layer_norm.weight", vec![hidden]),
        ("final_layer_norm.bias", vec![hidden]),
        ("fc1.weight", vec![intermediate, hidden]),
        ("fc1.bias", vec![intermediate]),
        ("fc2.weight", vec![hidden, intermediate]),
        ("fc2.bias", vec![hidden]),
    ];
    let mut tensors = vec![
        (
            "model.decoder.embed_tokens.weight".to_string(),
            vec![shape.vocabulary, hidden],
        ),
        (
            "model.decoder.embed_positions.weight".to_string(),
            vec![shape.positions, hidden],
        ),
    ];
    for layer in 0..shape.layers {
        let named = |(name, shape): &(&str, Vec<u32>)| (format!("model.decoder.layers.{layer}.{name}"), shape.clone());
        tensors.extend(of_layer.iter().map(named));
    }
    tensors.push(("model.decoder.final_layer_norm.weight".to_string(), vec![hidden]));
    tensors.push(("model.decoder.final_layer_norm.bias".to_string(), vec![hidden]));
    tensors
}

/// Makes each tensor of a flat block as both are initialised, small weights, no biases, norms that change nothing, and
/// gives it to `write` with its offset; of the layers from `first_layer` on, with the same weights as in the whole
/// model. `device` is where they will be copied to: all are made in the same place, from which it copies fastest.
pub(crate) fn initialise(
    shape: &ModelShape,
    first_layer: u32,
    seed: u64,
    owner: u64,
    device: Device,
    mut write: impl FnMut(usize, &Tensor) -> Result<(), ExecutorError>,
) -> Result<(), ExecutorError> {
    let mut stream = weights(seed, Part::Model, owner);
    let places = places(shape);
    let largest = places.iter().map(Place::length).max().unwrap_or(0);
    let room = empty_host_memory_for(device, &[largest as i64], Kind::Float)?;
    let mut offset = 0;
    for place in places {
        let mut numbers = room.f_narrow(0, 0, place.length() as i64)?;
        let slice = slice_of(&mut numbers);
        match place.name.as_str() {
            name if name.ends_with("norm.weight") => slice.fill(1.0),
            name if name.ends_with("bias") => slice.fill(0.0),
            _ => fill_on_all_cores(&mut stream, INITIAL_STD, slice),
        }
        if is_upper(shape, first_layer, &place.name) {
            write(offset, &numbers)?;
            offset += place.length();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_as_long_as_the_shape_has_parameters() {
        for name in ["tiny-llama", "tiny-opt", "opt-125m", "llama-7b", "llama-70b"] {
            let shape = ModelShape::builtin(name).unwrap();
            let last = places(&shape).pop().unwrap();
            assert_eq!((last.offset + last.length()) as u64, shape.parameters(), "{name}");
        }
    }

    #[test]
    fn upper_layers_are_those_of_the_whole_model() {
        for name in ["tiny-llama", "tiny-opt"] {
            let shape = ModelShape {
                layers: 3,
                ..ModelShape::builtin(name).unwrap()
            };
            let block = |first_layer| {
                let mut block = Vec::new();
                initialise(&shape, first_layer, 5, 0, Device::Cpu, |offset, numbers| {
                    assert_eq!(offset, block.len(), "without gaps");
                    block.extend(Vec::<f32>::try_from(numbers)?);
                    Ok(())
                })
                .unwrap();
                block
            };
            let (whole, upper) = (block(0), block(2));
            assert_eq!(upper.len() as u64, upper_parameters(&shape, 2).unwrap());
            let end = (shape.layer_parameters()
                + if shape.gated {
                    shape.output_parameters()
                } else {
                    2 * 128
                }) as usize;
            assert_eq!(
                upper[upper.len() - end..],
                whole[whole.len() - end..],
                "{name}: the layer and what follows"
            );
            let words = upper.len() - end;
            assert_eq!(
                upper[..words],
                whole[..words],
                "{name}: what comes first is OPT's token matrix"
            );
            assert!(upper_parameters(&shape, 3).is_err());
        }
    }

    #[test]
    fn what_is_no_decoder_is_refused() {
        let refused = |shape: ModelShape| check(&shape).unwrap_err().to_string();
        let builtin = |name| ModelShape::builtin(name).unwrap();
        assert_eq!(
            refused(builtin("tiny")),
            "model tiny: kind: must be decoder, got encoder"
        );
        assert_eq!(
            refused(ModelShape {
                kv_heads: 1,
                ..builtin("tiny-opt")
            }),
            "model tiny-opt: kv_heads: must be heads (2) for an OPT-like decoder, got 1"
        );
        assert_eq!(
            refused(ModelShape {
                hidden: 12,
                ..builtin("tiny-llama")
            }),
            "model tiny-llama: hidden / heads: must be heads of an even width for rotary positions, got 3"
        );
    }
}
