//! Diff-pruning: a sparse difference from each weight, and one from each bias (Guo et al., 2020; PetS, Table 1:
//! `Y = X·(W + δ_t) + (b + b_t)`), computed as `X·W + X·δ_t` (section 3.1).
//!
//! Stored, for each linear layer: δ in CSR as `layer.<i>.<linear>.delta.starts`, `[out + 1]`, `.delta.columns` and
//! `.delta.values`, and `.bias_delta`, `[out]`. Resident: δ in CSR, and the sum of both biases.

use tch::Tensor;
use tenantry_core::pet::tensors::{Misfit, Resident};
use tenantry_core::pet::work::PetSizes;
use tenantry_profiles::{ModelShape, PetKind};

use super::kind::{Kind, Linear, Operators, parameter, rows};
use super::loaded::Constant;
use super::parameters::{Array, Parameters, Reader};
use super::sparse::{Sparse, csr_names, scattered};
use crate::error::ExecutorError;
use crate::model::Encoder;
use crate::random::{INITIAL_STD, Part, fill, weights};

/// The kind.
#[derive(Debug)]
pub(crate) struct DiffPruning;

#[derive(Debug)]
struct Difference {
    delta: Sparse,
    bias_delta: Constant,
}

/// Each layer's differences, in the order of [`Linear::ALL`].
#[derive(Debug)]
struct Loaded(Vec<[Difference; 4]>);

impl Kind for DiffPruning {
    fn name(&self) -> &'static str {
        PetKind::DiffPruning.name()
    }

    fn check(&self, parameters: &Reader<'_>, shape: &ModelShape) -> Result<Resident, Misfit> {
        parameters.check(PetKind::DiffPruning, shape)
    }

    fn load(&self, parameters: &Reader<'_>, model: &Encoder) -> Result<Box<dyn Operators>, ExecutorError> {
        let difference = |layer: u32, linear: Linear| -> Result<Difference, ExecutorError> {
            let csr = csr_names(&parameter(layer, linear.name(), "delta"));
            let [starts, columns, values] = csr.map(|name| parameters.host_tensor(&name));
            let delta = Sparse::new(&starts?, &columns?, &values?, linear.size(model.shape()), model)?;
            let bias_delta = parameters.tensor(&parameter(layer, linear.name(), "bias_delta"), model)?;
            Ok(Difference {
                delta,
                bias_delta: bias_delta.into(),
            })
        };
        let layer = |layer| {
            let [q, a, i, o] = Linear::ALL.map(|linear| difference(layer, linear));
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
                let count = PetSizes::elements(sizes.difference_share, outputs as u64, inputs as u64) as usize;
                let elements = scattered(&mut stream, outputs * inputs, count);
                let starts =
                    (0..=outputs).map(|row| elements.partition_point(|&element| element < row * inputs) as i32);
                let columns: Vec<i32> = elements.iter().map(|element| (element % inputs) as i32).collect();
                let mut values = vec![0.0; count];
                fill(&mut stream, INITIAL_STD, &mut values);
                let mut bias = vec![0.0; outputs];
                fill(&mut stream, INITIAL_STD, &mut bias);
                let names = csr_names(&parameter(layer, linear.name(), "delta"));
                let arrays = [
                    Array::integers(&[outputs + 1], &starts.collect::<Vec<_>>()),
                    Array::integers(&[count], &columns),
                    Array::floats(&[count], &values),
                ];
                for (name, array) in names.into_iter().zip(arrays) {
                    parameters.insert(name, array);
                }
                let name = parameter(layer, linear.name(), "bias_delta");
                parameters.insert(name, Array::floats(&[outputs], &bias));
            }
        }
        parameters
    }
}

impl Operators for Loaded {
    fn bias_delta(&self, layer: usize, linear: Linear) -> Option<&Tensor> {
        Some(&self.0[layer][linear as usize].bias_delta)
    }

    fn delta(&self, layer: usize, linear: Linear, x: &Tensor, _: &Tensor) -> Result<Option<Tensor>, ExecutorError> {
        Ok(Some(self.0[layer][linear as usize].delta.product(&rows(x)?)?))
    }

    fn weight_delta(&self, layer: usize, linear: Linear) -> Result<Option<Tensor>, ExecutorError> {
        Ok(Some(self.0[layer][linear as usize].delta.dense()?))
    }

    fn has_delta(&self, _: usize, _: Linear) -> bool {
        true
    }
}
