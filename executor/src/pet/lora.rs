//! LoRA: a product of low rank beside the weights of any linear layers (Hu et al., 2021): `Y = X·Wᵀ + b + (X·Aᵀ)·Bᵀ`.
//!
//! Stored, for each linear layer that has one: `layer.<i>.<linear>.lora_a`, `[rank, in]`, and `.lora_b`, `[out, rank]`,
//! floats, with the scale (α by rank) multiplied into `B`, or said by the file's header, which reading it multiplies
//! in.

use tch::Tensor;
use tenantry_core::pet::tensors::{Misfit, Resident};
use tenantry_core::pet::work::PetSizes;
use tenantry_profiles::{ModelShape, PetKind};

use super::kind::{Kind, Linear, Operators, parameter, rows};
use super::loaded::Constant;
use super::parameters::{Array, Parameters, Reader};
use crate::error::ExecutorError;
use crate::model::Encoder;
use crate::random::{INITIAL_STD, Part, fill, weights};

/// The kind.
#[derive(Debug)]
pub(crate) struct Lora;

/// `Aᵀ` and `Bᵀ`.
#[derive(Debug)]
struct Factors {
    down: Constant,
    up: Constant,
}

/// Each layer's factors, in the order of [`Linear::ALL`].
#[derive(Debug)]
struct Loaded(Vec<[Option<Factors>; 4]>);

fn names(layer: u32, linear: Linear) -> [String; 2] {
    ["lora_a", "lora_b"].map(|part| parameter(layer, linear.name(), part))
}

impl Kind for Lora {
    fn name(&self) -> &'static str {
        PetKind::Lora.name()
    }

    fn check(&self, parameters: &Reader<'_>, shape: &ModelShape) -> Result<Resident, Misfit> {
        parameters.check(PetKind::Lora, shape)
    }

    fn load(&self, parameters: &Reader<'_>, model: &Encoder) -> Result<Box<dyn Operators>, ExecutorError> {
        let factors = |layer, linear| -> Result<Option<Factors>, ExecutorError> {
            let [a, b] = names(layer, linear);
            if !parameters.has(&a) {
                return Ok(None);
            }
            Ok(Some(Factors {
                down: parameters.tensor(&a, model)?.f_transpose(0, 1)?.into(),
                up: parameters.tensor(&b, model)?.f_transpose(0, 1)?.into(),
            }))
        };
        let layer = |layer| {
            let [q, a, i, o] = Linear::ALL.map(|linear| factors(layer, linear));
            Ok([q?, a?, i?, o?])
        };
        let layers: Result<_, ExecutorError> = (0..model.shape().layers).map(layer).collect();
        Ok(Box::new(Loaded(layers?)))
    }

    fn random(&self, shape: &ModelShape, sizes: &PetSizes, seed: u64, task: u32) -> Parameters {
        let rank = sizes.rank as usize;
        let mut stream = weights(seed, Part::Adapter, task.into());
        let mut parameters = Parameters::default();
        for layer in 0..shape.layers {
            for linear in Linear::ALL {
                let (outputs, inputs) = linear.size(shape);
                for (name, size) in names(layer, linear).into_iter().zip([[rank, inputs], [outputs, rank]]) {
                    let mut numbers = vec![0.0; size[0] * size[1]];
                    fill(&mut stream, INITIAL_STD, &mut numbers);
                    parameters.insert(name, Array::floats(&size, &numbers));
                }
            }
        }
        parameters
    }
}

impl Operators for Loaded {
    fn delta(&self, layer: usize, linear: Linear, x: &Tensor, _: &Tensor) -> Result<Option<Tensor>, ExecutorError> {
        let product = |own: &Factors| Ok(rows(x)?.f_matmul(&own.down)?.f_matmul(&own.up)?);
        self.0[layer][linear as usize].as_ref().map(product).transpose()
    }

    fn weight_delta(&self, layer: usize, linear: Linear) -> Result<Option<Tensor>, ExecutorError> {
        let product = |own: &Factors| Ok(own.down.f_matmul(&own.up)?.f_transpose(0, 1)?);
        self.0[layer][linear as usize].as_ref().map(product).transpose()
    }

    fn has_delta(&self, layer: usize, linear: Linear) -> bool {
        self.0[layer][linear as usize].is_some()
    }
}
