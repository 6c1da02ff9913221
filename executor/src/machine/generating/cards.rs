//! Cards that come and go: each instance's model has weights of its own there, which are loaded from host memory when
//! the server asks for it.

use tch::{Device, Tensor};
use tenantry_core::ids::InstanceId;

use crate::decoder::Decoder;
use crate::device::{copy_block, host_memory_for};
use crate::error::ExecutorError;

/// The models of all instances, where the cluster's cards come and go.
pub(super) struct Cards {
    /// Where they are loaded from.
    host: Tensor,
    /// By instance.
    models: Vec<Decoder>,
}

impl Cards {
    /// Room on all instances, and the model on the first so many.
    ///
    /// # Errors
    /// No memory.
    pub fn new(model: &Decoder, instances: usize, loaded: usize, device: Device) -> Result<Cards, ExecutorError> {
        let of_instance = |instance: usize| {
            let own = model.copy()?;
            if instance >= loaded {
                // What was never loaded must not look as if it had been.
                let _ = own.parameters().shallow_clone().f_zero_()?;
            }
            Ok(own)
        };
        Ok(Cards {
            host: host_memory_for(device, model.parameters().f_to(Device::Cpu)?)?,
            models: (0..instances).map(of_instance).collect::<Result<_, ExecutorError>>()?,
        })
    }

    /// The model that an instance computes with.
    pub fn model(&self, instance: usize) -> &Decoder {
        &self.models[instance]
    }

    /// Loads an instance's model. What it computed with before is gone.
    ///
    /// # Errors
    /// The device is lost.
    pub fn load(&self, instance: InstanceId) -> Result<(), ExecutorError> {
        let model = &self.models[instance.index()];
        copy_block(&mut model.parameters().shallow_clone(), &self.host)
    }

    /// A handle for a lane.
    pub fn share(&self) -> Cards {
        Cards {
            host: self.host.shallow_clone(),
            models: self.models.iter().map(Decoder::share).collect(),
        }
    }
}
