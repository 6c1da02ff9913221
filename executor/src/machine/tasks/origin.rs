//! Where shared models and tasks' parameters come from: files, or random numbers.

use std::path::Path;

use tch::Device;
use tenantry_core::pet::work::linear_weights;
use tenantry_core::spec::{PoolSpec, Registration, TasksSpec};
use tenantry_profiles::{ModelShape, PetKind};

use crate::error::ExecutorError;
use crate::files::{Files, read_encoder_block};
use crate::model::Encoder;
use crate::pet::{Array, Parameters, kind_named};

/// Of one pool.
pub(super) struct Origin<'a> {
    pub pool: &'a PoolSpec,
    pub tasks: &'a TasksSpec,
    /// The shared models', where they are not random.
    pub files: &'a Files,
    /// Of all that is.
    pub seed: u64,
}

impl Origin<'_> {
    /// The place of the shared model of that name among the pool's, and its shape.
    pub fn find(&self, name: &str) -> Option<(usize, &ModelShape)> {
        let mut models = self.tasks.named_models(&self.pool.model).enumerate();
        models.find_map(|(index, (known, shape))| (known == name).then_some((index, shape)))
    }

    /// A shared model.
    ///
    /// # Errors
    /// A shape that cannot be built, a file that cannot be read or is of another shape, or no memory.
    pub fn model(&self, name: &str, device: Device) -> Result<Encoder, ExecutorError> {
        let (index, shape) = self.find(name).expect("one of the pool's models");
        let file = match index {
            0 => self.files.model.as_ref(),
            _ => self.files.models.get(name),
        };
        match file {
            None => Encoder::random(shape, seed_of(self.seed, index as u64), self.pool.dtype, device),
            Some(path) => read_encoder_block(path, shape, self.pool.dtype)?.encoder(shape, 0, device),
        }
    }

    /// What a registration hands in.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn parameters(&self, registration: &Registration) -> Result<Parameters, ExecutorError> {
        match &registration.file {
            None => Ok(self.made_up(registration)),
            Some(file) => Ok(Parameters::read(Path::new(&file.path))?.2),
        }
    }

    /// Random parameters, with the faults that the registration says they have.
    fn made_up(&self, registration: &Registration) -> Parameters {
        let model = self.find(&registration.model).map(|(_, shape)| shape);
        let shape = registration.trained_on.as_ref().or(model);
        let mut parameters = match (kind_named(&registration.kind), shape) {
            (Some(kind), Some(shape)) => kind.random(shape, &self.tasks.sizes, self.seed, registration.task),
            _ => Parameters::default(),
        };
        if let Some(elements) = registration.mask_elements
            && registration.kind == PetKind::MaskBert.name()
            && model.is_some_and(|shape| elements != linear_weights(shape))
        {
            // One row of so many bits, which is the size of no mask.
            let bytes = elements.div_ceil(8).min(1 << 20) as usize;
            let mask = Array::bytes(&[1, bytes], vec![0; bytes]);
            parameters.insert("layer.0.query_key_value.mask", mask);
        }
        parameters
    }
}

/// Of the weights of one among several models, the first of them by the run's own seed: neighbours' have nothing in
/// common, whether or not they are of one shape.
fn seed_of(seed: u64, index: u64) -> u64 {
    seed.wrapping_add(index << 32)
}
