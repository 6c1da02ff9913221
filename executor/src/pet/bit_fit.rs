//! BitFit: biases of its own in every linear layer and norm (Ben Zaken et al., 2021; PetS, Table 1: `Y = X·W + b_t`).
//!
//! Stored: `layer.<i>.<linear>.bias` and `layer.<i>.<norm>.bias`, floats. The biases of the embedding's norm are the
//! shared model's.

use tch::Tensor;
use tenantry_core::pet::tensors::{Misfit, Resident};
use tenantry_core::pet::work::PetSizes;
use tenantry_profiles::{ModelShape, PetKind};

use super::kind::{Kind, Linear, Norm, Operators, parameter};
use super::loaded::Constant;
use super::parameters::{Array, Parameters, Reader};
use crate::error::ExecutorError;
use crate::model::Encoder;
use crate::random::{INITIAL_STD, Part, fill, weights};

/// The kind.
#[derive(Debug)]
pub(crate) struct BitFit;

/// What a layer's biases differ by from the shared ones, in the order of [`Linear::ALL`] and [`Norm::ALL`].
#[derive(Debug)]
struct Differences {
    linears: [Constant; 4],
    norms: [Constant; 2],
}

#[derive(Debug)]
struct Loaded(Vec<Differences>);

/// The names and lengths of a layer's biases.
fn biases(layer: u32, shape: &ModelShape) -> impl Iterator<Item = (String, usize)> {
    let hidden = shape.hidden as usize;
    let outputs = Linear::ALL.map(|linear| (linear.name(), linear.size(shape).0));
    let norms = Norm::ALL.map(|norm| (norm.name(), hidden));
    let name = move |(of, length)| (parameter(layer, of, "bias"), length);
    outputs.into_iter().chain(norms).map(name)
}

impl Kind for BitFit {
    fn name(&self) -> &'static str {
        PetKind::BitFit.name()
    }

    fn check(&self, parameters: &Reader<'_>, shape: &ModelShape) -> Result<Resident, Misfit> {
        parameters.check(PetKind::BitFit, shape)
    }

    fn load(&self, parameters: &Reader<'_>, model: &Encoder) -> Result<Box<dyn Operators>, ExecutorError> {
        let layer = |layer| -> Result<Differences, ExecutorError> {
            let shared = model.layer_parts(layer as usize);
            let difference = |of, shared: &Tensor| -> Result<Constant, ExecutorError> {
                let own = parameters.tensor(&parameter(layer, of, "bias"), model)?;
                Ok(own.f_sub(shared)?.into())
            };
            let [q, a, i, o] = Linear::ALL.map(|linear| difference(linear.name(), &linear.of(shared).bias));
            let [first, second] = Norm::ALL.map(|norm| difference(norm.name(), &norm.of(shared).bias));
            Ok(Differences {
                linears: [q?, a?, i?, o?],
                norms: [first?, second?],
            })
        };
        let layers = (0..model.shape().layers).map(layer).collect::<Result<_, _>>()?;
        Ok(Box::new(Loaded(layers)))
    }

    fn random(&self, shape: &ModelShape, _: &PetSizes, seed: u64, task: u32) -> Parameters {
        let mut stream = weights(seed, Part::Adapter, task.into());
        let mut parameters = Parameters::default();
        for (name, length) in (0..shape.layers).flat_map(|layer| biases(layer, shape)) {
            let mut numbers = vec![0.0; length];
            fill(&mut stream, INITIAL_STD, &mut numbers);
            parameters.insert(name, Array::floats(&[length], &numbers));
        }
        parameters
    }
}

impl Operators for Loaded {
    fn bias_delta(&self, layer: usize, linear: Linear) -> Option<&Tensor> {
        Some(&self.0[layer].linears[linear as usize])
    }

    fn norm_bias_delta(&self, layer: usize, norm: Norm) -> Option<&Tensor> {
        Some(&self.0[layer].norms[norm as usize])
    }
}
