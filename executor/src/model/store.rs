//! Whole models per tenant: in host memory, and in slots on the device.

use tch::Device;
use tenantry_profiles::{DType, ModelShape};

use super::encoder::Encoder;
use super::layout;
use crate::error::ExecutorError;
use crate::parameter_sets::ParameterSets;

/// Every tenant's own fine-tuned model in host memory, as flat blocks of parameters.
#[derive(Debug)]
pub struct ModelStore {
    /// The blocks, each `[shape.parameters()]`, or the last part of it that belongs to the layers that tenants have.
    pub sets: ParameterSets,
}

impl ModelStore {
    /// Random models for `tenants` tenants, in at most `max_bytes` of host memory; `device` is where they will be copied to.
    ///
    /// # Errors
    /// A shape that is no BERT-like encoder's, or memory for less than one model.
    pub fn random(
        shape: &ModelShape,
        tenants: u32,
        seed: u64,
        dtype: DType,
        device: Device,
        max_bytes: u64,
    ) -> Result<ModelStore, ExecutorError> {
        ModelStore::random_upper(shape, 0, tenants, seed, dtype, device, max_bytes)
    }

    /// Likewise, of the layers from `first_layer` on.
    ///
    /// # Errors
    /// A shape that is no BERT-like encoder's or has no such layer, or memory for less than one tenant's layers.
    pub fn random_upper(
        shape: &ModelShape,
        first_layer: u32,
        tenants: u32,
        seed: u64,
        dtype: DType,
        device: Device,
        max_bytes: u64,
    ) -> Result<ModelStore, ExecutorError> {
        let length = layout::upper_parameters(shape, first_layer)?;
        // Owner 0 is the shared backbone of `Encoder::random`; each tenant's model differs from it.
        let fill = |tenant: u32, block: &mut [f32]| layout::initialise(shape, seed, u64::from(tenant) + 1, block);
        Ok(ModelStore {
            sets: ParameterSets::new(tenants, length, dtype, device, max_bytes, fill)?,
        })
    }

    /// Another handle on the same memory, for another thread.
    pub fn share(&self) -> ModelStore {
        ModelStore {
            sets: self.sets.share(),
        }
    }
}

/// Slots on the device, each with room for one whole model.
#[derive(Debug)]
pub struct ModelSlots {
    slots: Vec<Encoder>,
}

impl ModelSlots {
    /// `slots` empty slots.
    ///
    /// # Errors
    /// A shape that is no BERT-like encoder's, or no memory on the device.
    pub fn new(shape: &ModelShape, slots: u32, dtype: DType, device: Device) -> Result<ModelSlots, ExecutorError> {
        ModelSlots::upper(shape, 0, slots, dtype, device)
    }

    /// `slots` empty slots for the layers from `first_layer` on.
    ///
    /// # Errors
    /// A shape that is no BERT-like encoder's or has no such layer, or no memory on the device.
    pub fn upper(
        shape: &ModelShape,
        first_layer: u32,
        slots: u32,
        dtype: DType,
        device: Device,
    ) -> Result<ModelSlots, ExecutorError> {
        let slots = (0..slots)
            .map(|_| Encoder::unloaded(shape, first_layer, dtype, device))
            .collect::<Result<_, _>>()?;
        Ok(ModelSlots { slots })
    }

    /// Copies a tenant's model into a slot, over whatever was there. No forward pass may run on that slot meanwhile.
    ///
    /// # Errors
    /// A store of another shape.
    ///
    /// # Panics
    /// If there is no such tenant or slot.
    pub fn load(&self, store: &ModelStore, tenant: u32, slot: u32) -> Result<(), ExecutorError> {
        self.encoder(slot).load(&store.sets.of(tenant))
    }

    /// The model in a slot.
    ///
    /// # Panics
    /// If there is no such slot.
    pub fn encoder(&self, slot: u32) -> &Encoder {
        &self.slots[slot as usize]
    }

    /// Bytes that all slots take on the device.
    pub fn device_bytes(&self) -> u64 {
        self.slots.iter().map(Encoder::device_bytes).sum()
    }

    /// Another handle on the same memory, for another thread.
    pub fn share(&self) -> ModelSlots {
        ModelSlots {
            slots: self.slots.iter().map(Encoder::share).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loaded_slot_computes_as_the_tenants_own_model() {
        let shape = ModelShape {
            layers: 2,
            ..ModelShape::builtin("tiny").unwrap()
        };
        let store = ModelStore::random(&shape, 3, 7, DType::F32, Device::Cpu, u64::MAX).unwrap();
        let slots = ModelSlots::new(&shape, 2, DType::F32, Device::Cpu).unwrap();
        assert_eq!(slots.device_bytes(), 2 * 4 * shape.parameters());
        // The copy lane writes through a handle of its own.
        slots.share().load(&store, 0, 1).unwrap();
        slots.share().load(&store, 2, 1).unwrap();
        let own = Encoder::from_parameters(&shape, store.sets.of(2)).unwrap();

        let ids = [[5i64, 9, 2, 77, 0, 3]];
        let run = |encoder: &Encoder| {
            let input = encoder.input(&ids, 8).unwrap();
            encoder
                .layers(encoder.embed(&input).unwrap(), 0..2, &input, None)
                .unwrap()
        };
        assert!(run(slots.encoder(1)).equal(&run(&own)));
        let first = Encoder::from_parameters(&shape, store.sets.of(0)).unwrap();
        assert!(!run(slots.encoder(1)).equal(&run(&first)));
    }
}
