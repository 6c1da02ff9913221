//! Houlsby adapters after attention and after the feed-forward (Houlsby et al., 2019; PetS, Tables 1 and 4):
//! `Y = Y + relu(Y·W_down + b_down)·W_up + b_up`, with the biases and the activation of this crate's
//! [`AdapterShape`](crate::AdapterShape); PetS leaves both open.
//!
//! Stored, for attention output and output: `layer.<i>.<linear>.adapter.down`, `[hidden, bottleneck]`, `.down_bias`,
//! `.up`, `[bottleneck, hidden]`, and `.up_bias`, floats.

use tch::Tensor;
use tenantry_core::pet::tensors::{Misfit, Resident};
use tenantry_core::pet::work::{PetSizes, merges};
use tenantry_profiles::{ModelShape, PetKind};

use super::kind::{Kind, Linear, Operators, parameter, rows};
use super::loaded::Constant;
use super::parameters::{Array, Parameters, Reader};
use crate::error::ExecutorError;
use crate::model::Encoder;
use crate::random::{INITIAL_STD, Part, fill, weights};

/// The linear layers that are followed by an adapter.
const ADAPTED: [Linear; 2] = [Linear::AttentionOutput, Linear::Output];

/// The kind.
#[derive(Debug)]
pub(crate) struct Adapters;

#[derive(Debug)]
struct Adapter {
    down: Constant,
    down_bias: Constant,
    up: Constant,
    up_bias: Constant,
}

/// Each layer's adapters, in the order of [`ADAPTED`].
#[derive(Debug)]
struct Loaded(Vec<[Adapter; 2]>);

fn name(layer: u32, linear: Linear, part: &str) -> String {
    parameter(layer, linear.name(), &format!("adapter.{part}"))
}

impl Kind for Adapters {
    fn name(&self) -> &'static str {
        PetKind::Adapters.name()
    }

    fn check(&self, parameters: &Reader<'_>, shape: &ModelShape) -> Result<Resident, Misfit> {
        parameters.check(PetKind::Adapters, shape)
    }

    fn load(&self, parameters: &Reader<'_>, model: &Encoder) -> Result<Box<dyn Operators>, ExecutorError> {
        let adapter = |layer, linear| -> Result<Adapter, ExecutorError> {
            let tensor = |part| parameters.tensor(&name(layer, linear, part), model);
            Ok(Adapter {
                down: tensor("down")?.into(),
                down_bias: tensor("down_bias")?.into(),
                up: tensor("up")?.into(),
                up_bias: tensor("up_bias")?.into(),
            })
        };
        let layer = |layer| Ok([adapter(layer, ADAPTED[0])?, adapter(layer, ADAPTED[1])?]);
        let layers: Result<_, ExecutorError> = (0..model.shape().layers).map(layer).collect();
        Ok(Box::new(Loaded(layers?)))
    }

    fn merges(&self) -> bool {
        merges(PetKind::Adapters)
    }

    fn random(&self, shape: &ModelShape, sizes: &PetSizes, seed: u64, task: u32) -> Parameters {
        let (hidden, bottleneck) = (shape.hidden as usize, sizes.bottleneck as usize);
        let mut stream = weights(seed, Part::Adapter, task.into());
        let mut parameters = Parameters::default();
        for layer in 0..shape.layers {
            for linear in ADAPTED {
                let mut put = |part, shape: &[usize]| {
                    let mut numbers = vec![0.0; shape.iter().product()];
                    fill(&mut stream, INITIAL_STD, &mut numbers);
                    parameters.insert(name(layer, linear, part), Array::floats(shape, &numbers));
                };
                put("down", &[hidden, bottleneck]);
                put("down_bias", &[bottleneck]);
                put("up", &[bottleneck, hidden]);
                put("up_bias", &[hidden]);
            }
        }
        parameters
    }
}

impl Operators for Loaded {
    fn delta(&self, layer: usize, linear: Linear, _: &Tensor, y: &Tensor) -> Result<Option<Tensor>, ExecutorError> {
        let Some(index) = ADAPTED.iter().position(|adapted| *adapted == linear) else {
            return Ok(None);
        };
        let own = &self.0[layer][index];
        let inner = own.down_bias.f_addmm(&rows(y)?, &own.down)?.f_relu_()?;
        Ok(Some(own.up_bias.f_addmm(&inner, &own.up)?))
    }

    fn has_delta(&self, _: usize, linear: Linear) -> bool {
        ADAPTED.contains(&linear)
    }
}
