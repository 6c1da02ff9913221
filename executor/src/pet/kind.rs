//! What a kind of parameter-efficient task is: how its parameters are checked, loaded and computed.

use std::fmt::Debug;

use tch::Tensor;
use tenantry_core::pet::tensors::{Misfit, Resident};
use tenantry_core::pet::work::PetSizes;
use tenantry_profiles::ModelShape;

use super::adapters::Adapters;
use super::bit_fit::BitFit;
use super::diff_pruning::DiffPruning;
use super::lora::Lora;
use super::mask_bert::MaskBert;
use super::parameters::{Parameters, Reader};
use crate::error::ExecutorError;
use crate::model::{Encoder, Layer, LinearParameters, NormParameters};

/// The linear layers of an encoder layer. Query, key and value are one, stacked in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linear {
    /// `[3 · hidden, hidden]`.
    QueryKeyValue,
    /// `[hidden, hidden]`.
    AttentionOutput,
    /// `[intermediate, hidden]`.
    Intermediate,
    /// `[hidden, intermediate]`.
    Output,
}

impl Linear {
    /// All, in the order of the forward pass.
    pub const ALL: [Linear; 4] = [
        Linear::QueryKeyValue,
        Linear::AttentionOutput,
        Linear::Intermediate,
        Linear::Output,
    ];

    /// Its part of a parameter's name.
    pub fn name(self) -> &'static str {
        match self {
            Linear::QueryKeyValue => "query_key_value",
            Linear::AttentionOutput => "attention_output",
            Linear::Intermediate => "intermediate",
            Linear::Output => "output",
        }
    }

    /// Its outputs and inputs in a model.
    pub fn size(self, shape: &ModelShape) -> (usize, usize) {
        let (hidden, intermediate) = (shape.hidden as usize, shape.intermediate as usize);
        match self {
            Linear::QueryKeyValue => (3 * hidden, hidden),
            Linear::AttentionOutput => (hidden, hidden),
            Linear::Intermediate => (intermediate, hidden),
            Linear::Output => (hidden, intermediate),
        }
    }

    pub(crate) fn of(self, layer: &Layer) -> &LinearParameters {
        match self {
            Linear::QueryKeyValue => &layer.query_key_value,
            Linear::AttentionOutput => &layer.attention_output,
            Linear::Intermediate => &layer.intermediate,
            Linear::Output => &layer.output,
        }
    }
}

/// The norms of an encoder layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// After attention.
    Attention,
    /// After the feed-forward.
    Output,
}

impl Norm {
    /// All, in the order of the forward pass.
    pub const ALL: [Norm; 2] = [Norm::Attention, Norm::Output];

    /// Its part of a parameter's name.
    pub fn name(self) -> &'static str {
        match self {
            Norm::Attention => "attention_norm",
            Norm::Output => "output_norm",
        }
    }

    pub(crate) fn of(self, layer: &Layer) -> &NormParameters {
        match self {
            Norm::Attention => &layer.attention_norm,
            Norm::Output => &layer.output_norm,
        }
    }
}

/// A kind of parameter-efficient task.
pub trait Kind: Debug + Sync {
    /// As registrations, files and profiles call it.
    fn name(&self) -> &'static str;

    /// Looks at every tensor that the kind has for a model of this shape: by [`Reader::check`] where the core has rules
    /// for them, by [`Reader::array`] otherwise. The registry refuses tensors that were not looked at.
    ///
    /// # Errors
    /// The first tensor that does not fit.
    fn check(&self, parameters: &Reader<'_>, shape: &ModelShape) -> Result<Resident, Misfit>;

    /// Brings checked parameters onto the shared model's device, in the form in which they are computed.
    ///
    /// # Errors
    /// No memory, or an operator that this device does not have.
    fn load(&self, parameters: &Reader<'_>, model: &Encoder) -> Result<Box<dyn Operators>, ExecutorError>;

    /// Whether its operators can be added to the shared model's parameters, so that the task's full model is of the
    /// shared one's shape: then they have [`weight_delta`](Operators::weight_delta) wherever they have
    /// [`delta`](Operators::delta).
    fn merges(&self) -> bool {
        true
    }

    /// Random parameters of the given sizes, the same for the same seed and task on every device.
    fn random(&self, shape: &ModelShape, sizes: &PetSizes, seed: u64, task: u32) -> Parameters;
}

/// A task's parameters on the device, and what they compute, on several threads at once. Layers count from 0.
pub trait Operators: Debug + Send + Sync {
    /// What is added to the shared bias, `[out]`: the shared product has added that one for the whole batch by the way.
    fn bias_delta(&self, _layer: usize, _linear: Linear) -> Option<&Tensor> {
        None
    }

    /// What is added to the shared bias of a norm, `[hidden]`.
    fn norm_bias_delta(&self, _layer: usize, _norm: Norm) -> Option<&Tensor> {
        None
    }

    /// What is to be added to a linear layer's result, as many rows of `out` numbers: of inputs `x`, `[n, l, in]`, and
    /// the result `y`, `[n, l, out]`, bias included. None where there is nothing to add.
    ///
    /// # Errors
    /// No memory.
    fn delta(&self, _layer: usize, _linear: Linear, _x: &Tensor, _y: &Tensor) -> Result<Option<Tensor>, ExecutorError> {
        Ok(None)
    }

    /// [`delta`](Self::delta) as a matrix to add to the shared weight, `[out, in]`, of kinds that merge.
    ///
    /// # Errors
    /// No memory.
    fn weight_delta(&self, _layer: usize, _linear: Linear) -> Result<Option<Tensor>, ExecutorError> {
        Ok(None)
    }

    /// Whether [`delta`](Self::delta) adds anything there.
    fn has_delta(&self, _layer: usize, _linear: Linear) -> bool {
        false
    }
}

/// A mini-batch's tokens, `[n · l, width]`: copied where they do not lie one after the other, so only what is computed
/// with.
pub(crate) fn rows(of: &Tensor) -> Result<Tensor, ExecutorError> {
    Ok(of.f_flatten(0, 1)?)
}

/// All kinds: the paper's four (PetS, Table 1), then LoRA.
pub static KINDS: [&dyn Kind; 5] = [&Adapters, &MaskBert, &DiffPruning, &BitFit, &Lora];

/// The kind of this name.
pub fn kind_named(name: &str) -> Option<&'static dyn Kind> {
    KINDS.into_iter().find(|kind| kind.name() == name)
}

/// The name of a layer's parameter: `layer.3.output.bias`.
pub(crate) fn parameter(layer: u32, of: &str, part: &str) -> String {
    format!("layer.{layer}.{of}.{part}")
}
