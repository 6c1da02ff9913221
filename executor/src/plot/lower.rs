//! What fills a table: a model's embedding and lower layers, over each fragment for itself.

use tch::{Device, Kind, Tensor};
use tenantry_profiles::{DType, ModelKind, ModelShape};

use crate::decoder::Decoder;
use crate::error::ExecutorError;
use crate::model::Encoder;

/// A model of which the lower layers are run.
pub(crate) enum LowerLayers {
    Encoder(Encoder),
    Decoder(Decoder),
}

impl LowerLayers {
    /// The model that `seed` initialises.
    ///
    /// # Errors
    /// A shape that cannot be built, or no memory on the device.
    pub fn random(shape: &ModelShape, seed: u64, dtype: DType, device: Device) -> Result<LowerLayers, ExecutorError> {
        Ok(match shape.kind {
            ModelKind::Encoder => LowerLayers::Encoder(Encoder::random(shape, seed, dtype, device)?),
            ModelKind::Decoder => LowerLayers::Decoder(Decoder::random(shape, seed, dtype, device)?),
        })
    }

    /// Runs the layers below `layers` over `fragments`, `[count, fragment_tokens]`: fills `rows` with what they make of every token, or a
    /// decoder's of the last.
    ///
    /// # Errors
    /// Ids outside the vocabulary, or no memory.
    pub fn encode(
        &self,
        layers: u32,
        fragment_tokens: usize,
        fragments: &[u32],
        rows: &mut [f32],
    ) -> Result<(), ExecutorError> {
        match self {
            LowerLayers::Encoder(encoder) => encoder_layers(encoder, layers, fragment_tokens, fragments, rows),
            LowerLayers::Decoder(decoder) => {
                let sequences = sequences(fragment_tokens, fragments);
                let hidden = decoder.lower_layers(&sequences, layers as usize)?;
                copy_rows(&hidden.f_select(1, fragment_tokens as i64 - 1)?, rows)
            }
        }
    }
}

/// Those of an encoder.
pub(crate) fn encoder_layers(
    encoder: &Encoder,
    layers: u32,
    fragment_tokens: usize,
    fragments: &[u32],
    rows: &mut [f32],
) -> Result<(), ExecutorError> {
    let input = encoder.input(&sequences(fragment_tokens, fragments), fragment_tokens)?;
    let hidden = encoder.layers(encoder.embed(&input)?, 0..layers as usize, &input, None)?;
    copy_rows(&hidden, rows)
}

fn sequences(fragment_tokens: usize, fragments: &[u32]) -> Vec<Vec<i64>> {
    fragments
        .chunks_exact(fragment_tokens)
        .map(|fragment| fragment.iter().map(|&token| token.into()).collect())
        .collect()
}

fn copy_rows(hidden: &Tensor, rows: &mut [f32]) -> Result<(), ExecutorError> {
    let hidden = hidden.f_to_kind(Kind::Float)?.f_to(Device::Cpu)?.f_contiguous()?;
    hidden.f_copy_data(rows, rows.len())?;
    Ok(())
}
