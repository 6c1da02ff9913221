//! Whole decoders per tenant: in host memory, and in slots on the device.

use tch::Device;
use tenantry_profiles::{DType, ModelShape};

use super::forward::Decoder;
use super::layout;
use crate::error::ExecutorError;
use crate::parameter_sets::ParameterSets;

/// Every tenant's own fine-tuned decoder in host memory, as flat blocks of parameters.
#[derive(Debug)]
pub struct DecoderStore {
    /// The blocks, each `[shape.parameters()]`, or the part of it that belongs to the layers that tenants have.
    pub sets: ParameterSets,
}

impl DecoderStore {
    /// Random decoders for `tenants` tenants, in at most `max_bytes` of host memory; `device` is where they will be copied to.
    ///
    /// # Errors
    /// A shape that is no decoder's, or memory for less than one model.
    pub fn random(
        shape: &ModelShape,
        tenants: u32,
        seed: u64,
        dtype: DType,
        device: Device,
        max_bytes: u64,
    ) -> Result<DecoderStore, ExecutorError> {
        DecoderStore::random_upper(shape, 0, tenants, seed, dtype, device, max_bytes)
    }

    /// Likewise, of the layers from `first_layer` on, with what comes after them.
    ///
    /// # Errors
    /// A shape that is no decoder's or has no such layer, or memory for less than one tenant's layers.
    pub fn random_upper(
        shape: &ModelShape,
        first_layer: u32,
        tenants: u32,
        seed: u64,
        dtype: DType,
        device: Device,
        max_bytes: u64,
    ) -> Result<DecoderStore, ExecutorError> {
        let length = layout::upper_parameters(shape, first_layer)?;
        let fill = |tenant: u32, block: &mut [f32]| {
            // Owner 0 is the shared backbone of `Decoder::random`; each tenant's model differs from it.
            let owner = u64::from(tenant) + 1;
            let write = |offset: usize, numbers: &[f32]| {
                block[offset..offset + numbers.len()].copy_from_slice(numbers);
                Ok(())
            };
            layout::initialise(shape, first_layer, seed, owner, write).expect("writing to memory does not fail");
        };
        let sets = ParameterSets::new(tenants, length, dtype, device, max_bytes, fill)?;
        Ok(DecoderStore { sets })
    }

    /// Another handle on the same memory, for another thread.
    pub fn share(&self) -> DecoderStore {
        DecoderStore {
            sets: self.sets.share(),
        }
    }
}

/// Slots on the device, each with room for one whole decoder.
#[derive(Debug)]
pub struct DecoderSlots {
    slots: Vec<Decoder>,
}

impl DecoderSlots {
    /// `slots` empty slots.
    ///
    /// # Errors
    /// A shape that is no decoder's, or no memory on the device.
    pub fn new(shape: &ModelShape, slots: u32, dtype: DType, device: Device) -> Result<DecoderSlots, ExecutorError> {
        DecoderSlots::upper(shape, 0, slots, dtype, device)
    }

    /// `slots` empty slots for the layers from `first_layer` on.
    ///
    /// # Errors
    /// A shape that is no decoder's or has no such layer, or no memory on the device.
    pub fn upper(
        shape: &ModelShape,
        first_layer: u32,
        slots: u32,
        dtype: DType,
        device: Device,
    ) -> Result<DecoderSlots, ExecutorError> {
        let slot = |_| Decoder::unloaded(shape, first_layer, dtype, device);
        Ok(DecoderSlots {
            slots: (0..slots).map(slot).collect::<Result<_, _>>()?,
        })
    }

    /// Copies a tenant's decoder into a slot, over whatever was there. No forward pass may run on that slot meanwhile.
    ///
    /// # Errors
    /// A store of another shape.
    ///
    /// # Panics
    /// If there is no such tenant or slot.
    pub fn load(&self, store: &DecoderStore, tenant: u32, slot: u32) -> Result<(), ExecutorError> {
        self.decoder(slot).load(&store.sets.of(tenant))
    }

    /// The decoder in a slot.
    ///
    /// # Panics
    /// If there is no such slot.
    pub fn decoder(&self, slot: u32) -> &Decoder {
        &self.slots[slot as usize]
    }

    /// Bytes that all slots take on the device.
    pub fn device_bytes(&self) -> u64 {
        self.slots.iter().map(Decoder::device_bytes).sum()
    }

    /// Another handle on the same memory, for another thread.
    pub fn share(&self) -> DecoderSlots {
        DecoderSlots {
            slots: self.slots.iter().map(Decoder::share).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoder::config::DecoderConfig;

    #[test]
    fn a_loaded_slot_computes_as_the_tenants_own_model() {
        for name in ["tiny-llama", "tiny-opt"] {
            let shape = ModelShape::builtin(name).unwrap();
            let store = DecoderStore::random(&shape, 3, 7, DType::F32, Device::Cpu, u64::MAX).unwrap();
            let slots = DecoderSlots::new(&shape, 2, DType::F32, Device::Cpu).unwrap();
            assert_eq!(slots.device_bytes(), 2 * 4 * shape.parameters());
            // The copy lane writes through a handle of its own.
            slots.share().load(&store, 0, 1).unwrap();
            slots.share().load(&store, 2, 1).unwrap();
            let config = DecoderConfig::new(&shape).unwrap();
            let own = |tenant| Decoder::from_parameters(&config, store.sets.of(tenant)).unwrap();
            let run = |decoder: &Decoder| decoder.lower_layers(&[[5i64, 9, 2, 77, 0, 3]], 2).unwrap();
            assert!(run(slots.decoder(1)).equal(&run(&own(2))));
            assert!(!run(slots.decoder(1)).equal(&run(&own(0))));
        }
    }
}
