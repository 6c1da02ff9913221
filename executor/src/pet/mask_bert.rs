//! MaskBert: a binary mask over each weight (Zhao et al., 2020; PetS, Table 1: `Y = X·(W ⊙ M_t) + b`), computed as
//! `X·W − X·(W ⊙ ¬M_t)` (section 3.1).
//!
//! Stored, for each linear layer: `layer.<i>.<linear>.mask`, a bit for each weight, `[out, ⌈in / 8⌉]` bytes; the first
//! column is a byte's lowest bit, and 1 keeps the weight. Resident: `−W ⊙ ¬M_t` in CSR, made from the shared weights
//! when the task is loaded; a shared model that is overwritten afterwards must load its tasks again.

use tch::{Device, Kind as Number, Tensor};
use tenantry_core::pet::tensors::{Misfit, Resident};
use tenantry_core::pet::work::PetSizes;
use tenantry_profiles::{ModelShape, PetKind};

use super::kind::{Kind, Linear, Operators, parameter, rows};
use super::parameters::{Array, Parameters, Reader};
use super::sparse::{Sparse, row_bytes, scattered, zeros};
use crate::error::ExecutorError;
use crate::model::Encoder;
use crate::random::{Part, weights};

/// The kind.
#[derive(Debug)]
pub(crate) struct MaskBert;

/// What each layer's masks take away, in the order of [`Linear::ALL`].
#[derive(Debug)]
struct Loaded(Vec<[Sparse; 4]>);

/// A linear layer's mask, checked.
fn mask<'a>(parameters: &Reader<'a>, layer: u32, linear: Linear) -> &'a Array {
    parameters.checked(&parameter(layer, linear.name(), "mask"))
}

impl Kind for MaskBert {
    fn name(&self) -> &'static str {
        PetKind::MaskBert.name()
    }

    fn check(&self, parameters: &Reader<'_>, shape: &ModelShape) -> Result<Resident, Misfit> {
        parameters.check(PetKind::MaskBert, shape)
    }

    fn load(&self, parameters: &Reader<'_>, model: &Encoder) -> Result<Box<dyn Operators>, ExecutorError> {
        let taken_away = |layer: u32, linear: Linear| -> Result<Sparse, ExecutorError> {
            let (outputs, inputs) = linear.size(model.shape());
            let mask = mask(parameters, layer, linear);
            let weight = &linear.of(model.layer_parts(layer as usize)).weight;
            let weight = weight.f_to_kind(Number::Float)?.f_to(Device::Cpu)?.f_view([-1])?;
            let weight = Vec::<f32>::try_from(&weight)?;
            let (mut starts, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
            for (mask, weights) in mask.data.chunks_exact(row_bytes(inputs)).zip(weight.chunks_exact(inputs)) {
                for column in zeros(mask, inputs) {
                    columns.push(column as i32);
                    values.push(-weights[column]);
                }
                starts.push(columns.len() as i32);
            }
            let tensors = (
                Tensor::f_from_slice(&starts)?,
                Tensor::f_from_slice(&columns)?,
                Tensor::f_from_slice(&values)?,
            );
            Sparse::new(&tensors.0, &tensors.1, &tensors.2, (outputs, inputs), model)
        };
        let layer = |layer| {
            let [q, a, i, o] = Linear::ALL.map(|linear| taken_away(layer, linear));
            Ok([q?, a?, i?, o?])
        };
        let layers: Result<_, ExecutorError> = (0..model.shape().layers).map(layer).collect();
        Ok(Box::new(Loaded(layers?)))
    }

    fn random(&self, shape: &ModelShape, sizes: &PetSizes, seed: u64, task: u32) -> Parameters {
        let mut stream = weights(seed, Part::Adapter, task.into());
        let mut parameters = Parameters::default();
        for layer in 0..shape.layers {
            for linear in Linear::ALL {
                let (outputs, inputs) = linear.size(shape);
                let count = PetSizes::elements(sizes.masked_share, outputs as u64, inputs as u64) as usize;
                let width = row_bytes(inputs);
                let mut bits = vec![u8::MAX; outputs * width];
                for element in scattered(&mut stream, outputs * inputs, count) {
                    let (row, column) = (element / inputs, element % inputs);
                    bits[row * width + column / 8] &= !(1 << (column % 8));
                }
                let name = parameter(layer, linear.name(), "mask");
                parameters.insert(name, Array::bytes(&[outputs, width], bits));
            }
        }
        parameters
    }
}

impl Operators for Loaded {
    fn delta(&self, layer: usize, linear: Linear, x: &Tensor, _: &Tensor) -> Result<Option<Tensor>, ExecutorError> {
        Ok(Some(self.0[layer][linear as usize].product(&rows(x)?)?))
    }

    fn weight_delta(&self, layer: usize, linear: Linear) -> Result<Option<Tensor>, ExecutorError> {
        Ok(Some(self.0[layer][linear as usize].dense()?))
    }

    fn has_delta(&self, _: usize, _: Linear) -> bool {
        true
    }
}
