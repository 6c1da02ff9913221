//! What fills a table: a model's embedding and lower layers, over each fragment for itself.

use std::ops::Range;
use std::path::Path;

use tch::{Device, Kind, Tensor};
use tenantry_profiles::{DType, ModelKind, ModelShape};

use crate::decoder::{self, Decoder};
use crate::error::ExecutorError;
use crate::files::{read_decoder_block, read_encoder_block};
use crate::model::{self, Encoder};
use crate::random::{INITIAL_STD, Part, fill, weights};

/// How far further pretraining moves a weight, as a part of the standard deviation that it was initialised with.
const FURTHER_PRETRAINING: f32 = 0.1;

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

    /// The model of a checkpoint.
    ///
    /// # Errors
    /// Files that cannot be read or are of another model, or no memory on the device.
    pub fn read(path: &Path, shape: &ModelShape, dtype: DType, device: Device) -> Result<LowerLayers, ExecutorError> {
        Ok(match shape.kind {
            ModelKind::Encoder => {
                let stored = read_encoder_block(path, shape, dtype)?;
                LowerLayers::Encoder(stored.encoder(shape, 0, device)?)
            }
            ModelKind::Decoder => {
                let (config, block) = read_decoder_block(path, shape, dtype)?;
                LowerLayers::Decoder(Decoder::from_parameters(&config, block.f_to(device)?)?)
            }
        })
    }

    /// Another handle on the same weights.
    pub fn share(&self) -> LowerLayers {
        match self {
            LowerLayers::Encoder(encoder) => LowerLayers::Encoder(encoder.share()),
            LowerLayers::Decoder(decoder) => LowerLayers::Decoder(decoder.share()),
        }
    }

    /// The layers that further pretraining on a domain's texts would make of these, below `layers` (HMI, section 5.1:
    /// the rest stays as it is). Nobody has trained random weights: their matrices are moved by a tenth of what they
    /// were initialised with, in a direction of the domain's own, so that a domain's representations are near the
    /// root's and not the same. Each update of the domain has another direction.
    ///
    /// # Errors
    /// No memory.
    pub fn of_domain(&self, domain: u32, update: u32, layers: u32, seed: u64) -> Result<LowerLayers, ExecutorError> {
        let mut stream = weights(
            seed,
            Part::FurtherPretraining,
            u64::from(update) << 32 | u64::from(domain),
        );
        let mut change = |block: &Tensor, matrices: Vec<Range<usize>>| -> Result<(), ExecutorError> {
            for place in matrices {
                let mut numbers = vec![0.0; place.len()];
                fill(&mut stream, FURTHER_PRETRAINING * INITIAL_STD, &mut numbers);
                let moved = Tensor::f_from_slice(&numbers)?.f_to_kind(block.kind())?.f_to(block.device())?;
                let mut matrix = block.f_narrow(0, place.start as i64, place.len() as i64)?;
                let _ = matrix.f_add_(&moved)?;
            }
            Ok(())
        };
        Ok(match self {
            LowerLayers::Encoder(encoder) => {
                let own = encoder.copy()?;
                change(own.parameters(), model::lower_matrices(own.shape(), layers))?;
                LowerLayers::Encoder(own)
            }
            LowerLayers::Decoder(decoder) => {
                let own = decoder.copy()?;
                change(own.parameters(), decoder::lower_matrices(own.shape(), layers))?;
                LowerLayers::Decoder(own)
            }
        })
    }

    /// Runs the layers below `layers` over `fragments`, `[count, fragment_tokens]`: fills `rows` with what they make of
    /// every token, or a decoder's of the last.
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
