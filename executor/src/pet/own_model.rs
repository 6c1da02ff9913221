//! A task's full model, as systems serve it that know no tasks (PetS, section 6.2, SeqS and ParS): the shared model
//! with the task's parameters merged in.

use tch::Tensor;
use tenantry_core::spec::FineTuned;

use super::batch::{Member, PetBatch};
use super::kind::{Kind, Linear, Norm, Operators};
use super::loaded::LoadedOperators;
use super::parameters::Reader;
use super::streams::Streams;
use crate::error::ExecutorError;
use crate::model::{Encoder, Input};

/// A model of one task's own.
#[derive(Debug)]
pub struct OwnModel {
    encoder: Encoder,
    /// Of a kind that does not merge, where the model is fine-tuned by its kind.
    operators: Option<LoadedOperators>,
}

impl OwnModel {
    /// Makes a copy of a shared model one task's own, whose checked parameters these are. There are no weights that are
    /// fine-tuned as a whole: what does not merge is then left out, and the model computes as much as one that is.
    ///
    /// # Errors
    /// No memory, or an operator that this device does not have.
    pub(crate) fn new(
        encoder: Encoder,
        kind: &dyn Kind,
        parameters: &Reader<'_>,
        fine_tuned: FineTuned,
    ) -> Result<OwnModel, ExecutorError> {
        tch::no_grad(|| {
            let operators = kind.load(parameters, &encoder)?;
            let operators = match (kind.merges(), fine_tuned) {
                (true, _) => {
                    merge(&encoder, &*operators)?;
                    None
                }
                (false, FineTuned::ByKind) => Some(LoadedOperators::new(operators)),
                (false, FineTuned::AsAWhole) => None,
            };
            Ok(OwnModel { encoder, operators })
        })
    }

    /// The model. What does not merge is beside it: see [`layers`](Self::layers).
    pub fn encoder(&self) -> &Encoder {
        &self.encoder
    }

    /// All layers over `hidden`, `[n, l, hidden]` both in and out, where `input` is the batch that `hidden` came from.
    ///
    /// # Errors
    /// No memory on the device.
    pub fn layers(&self, hidden: Tensor, input: &Input, streams: &Streams) -> Result<Tensor, ExecutorError> {
        let layers = 0..self.encoder.shape().layers as usize;
        let Some(operators) = &self.operators else {
            return self.encoder.layers(hidden, layers, input, None);
        };
        let all = Member {
            operators: operators.clone(),
            first: 0,
            count: input.batch() as i64,
            tokens: input.tokens() as i64,
            stream: 0,
        };
        PetBatch::new(vec![all]).layers(&self.encoder, hidden, layers, input, streams)
    }

    /// Another handle on the same memory, for another thread.
    pub fn share(&self) -> OwnModel {
        OwnModel {
            encoder: self.encoder.share(),
            operators: self.operators.clone(),
        }
    }
}

/// Adds what operators add to results to the parameters that yield these.
fn merge(encoder: &Encoder, operators: &dyn Operators) -> Result<(), ExecutorError> {
    for layer in 0..encoder.shape().layers as usize {
        let parts = encoder.layer_parts(layer);
        for linear in Linear::ALL {
            let shared = linear.of(parts);
            if let Some(delta) = operators.bias_delta(layer, linear) {
                let _ = shared.bias.shallow_clone().f_add_(delta)?;
            }
            match operators.weight_delta(layer, linear)? {
                Some(delta) => drop(shared.weight.shallow_clone().f_add_(&delta)?),
                None if operators.has_delta(layer, linear) => {
                    let what = format!("operator at {} of layer {layer}", linear.name());
                    return Err(ExecutorError::input(what, "a matrix, since its kind merges", "none"));
                }
                None => {}
            }
        }
        for norm in Norm::ALL {
            if let Some(delta) = operators.norm_bias_delta(layer, norm) {
                let _ = norm.of(parts).bias.shallow_clone().f_add_(delta)?;
            }
        }
    }
    Ok(())
}
