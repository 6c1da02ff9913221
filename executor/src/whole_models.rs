//! Whole models per tenant: in host memory, and in slots on the device.

use tch::{Device, Tensor};
use tenantry_profiles::{DType, ModelShape};

use crate::device::{copy_block, element_bytes};
use crate::error::ExecutorError;
use crate::parameter_sets::{ParameterSets, Room, is_there};

/// A model, or its upper layers, whose parameters are one flat block, so that one copy swaps it.
pub trait WholeModel: Sized {
    /// Numbers in the block of the layers from `first_layer` on, with what comes after them and, from layer 0, before.
    ///
    /// # Errors
    /// A shape that is none of this kind's, or has no such layer.
    fn numbers(shape: &ModelShape, first_layer: u32) -> Result<u64, ExecutorError>;

    /// Fills such a block with random weights, the same for the same seed and owner: 0 is the shared backbone.
    fn initialise(shape: &ModelShape, first_layer: u32, seed: u64, owner: u64, block: &mut [f32]);

    /// Room on the device for such a block.
    ///
    /// # Errors
    /// As [`numbers`](Self::numbers), or no memory.
    fn unloaded(shape: &ModelShape, first_layer: u32, dtype: DType, device: Device) -> Result<Self, ExecutorError>;

    /// Its shape, lower layers included.
    fn shape(&self) -> &ModelShape;

    /// The block.
    fn parameters(&self) -> &Tensor;

    /// Another handle on the same memory, for another thread.
    fn share(&self) -> Self;

    /// Swaps the whole model: copies a block of parameters, such as a tenant's in a [`ModelStore`], over this one's. No
    /// forward pass may run on it meanwhile.
    ///
    /// # Errors
    /// A block of another length.
    fn load(&self, parameters: &Tensor) -> Result<(), ExecutorError> {
        let own = self.parameters();
        if parameters.size() != own.size() {
            let must = format!("{:?} numbers", own.size());
            let what = format!("parameters of {}", self.shape().name);
            return Err(ExecutorError::input(what, must, format!("{:?}", parameters.size())));
        }
        copy_block(&mut own.shallow_clone(), parameters)
    }

    /// Bytes that the parameters take on the device.
    fn device_bytes(&self) -> u64 {
        let own = self.parameters();
        own.numel() as u64 * element_bytes(own.kind())
    }
}

/// Every tenant's own fine-tuned model in host memory, as flat blocks of parameters.
#[derive(Debug)]
pub struct ModelStore {
    /// The blocks, each of the layers that tenants have.
    pub sets: ParameterSets,
}

impl ModelStore {
    /// Random models of kind `M`, from `first_layer` on, for `tenants` tenants, in so much host memory at most;
    /// `device` is where they will be copied to.
    ///
    /// # Errors
    /// As [`WholeModel::numbers`], memory for less than one tenant's, or the user stopped it.
    pub fn random<'a, M: WholeModel>(
        shape: &ModelShape,
        first_layer: u32,
        tenants: u32,
        seed: u64,
        dtype: DType,
        device: Device,
        room: impl Into<Room<'a>>,
    ) -> Result<ModelStore, ExecutorError> {
        let numbers = M::numbers(shape, first_layer)?;
        // Each tenant's model differs from the backbone.
        let fill =
            |tenant: u32, block: &mut [f32]| M::initialise(shape, first_layer, seed, u64::from(tenant) + 1, block);
        Ok(ModelStore {
            sets: ParameterSets::new(tenants, numbers, dtype, device, room, fill)?,
        })
    }

    /// Models in these blocks, each of the layers from `first_layer` on, for `tenants` tenants in turns.
    ///
    /// # Errors
    /// Blocks that cannot be had or are of another length, memory for less than one tenant's, or the user stopped it.
    pub(crate) fn of_blocks<'a, M: WholeModel>(
        shape: &ModelShape,
        first_layer: u32,
        tenants: u32,
        dtype: DType,
        device: Device,
        room: impl Into<Room<'a>>,
        blocks: impl ExactSizeIterator<Item = Result<Tensor, ExecutorError>>,
    ) -> Result<ModelStore, ExecutorError> {
        let numbers = M::numbers(shape, first_layer)?;
        Ok(ModelStore {
            sets: ParameterSets::of_blocks(tenants, numbers, dtype, device, room, blocks)?,
        })
    }

    /// Another handle on the same memory, for another thread.
    pub fn share(&self) -> ModelStore {
        ModelStore {
            sets: self.sets.share(),
        }
    }
}

/// Slots on the device, each with room for one tenant's whole model.
#[derive(Debug)]
pub struct ModelSlots<M>(Vec<M>);

impl<M: WholeModel> ModelSlots<M> {
    /// `slots` slots, each a model with room for another's parameters that is otherwise as tenants' are.
    pub(crate) fn of(slots: u32, slot: impl Fn() -> Result<M, ExecutorError>) -> Result<ModelSlots<M>, ExecutorError> {
        Ok(ModelSlots((0..slots).map(|_| slot()).collect::<Result<_, _>>()?))
    }

    /// Copies a tenant's model into a slot, over whatever was there. No forward pass may run on that slot meanwhile.
    ///
    /// # Errors
    /// A store of another shape.
    ///
    /// # Panics
    /// If there is no such tenant or slot.
    pub fn load(&self, store: &ModelStore, tenant: u32, slot: u32) -> Result<(), ExecutorError> {
        let block = store.sets.of(tenant);
        is_there(&block)?;
        self.model(slot).load(&block)
    }

    /// The model in a slot.
    ///
    /// # Panics
    /// If there is no such slot.
    pub fn model(&self, slot: u32) -> &M {
        &self.0[slot as usize]
    }

    /// Another handle on the same memory, for another thread.
    pub fn share(&self) -> ModelSlots<M> {
        ModelSlots(self.0.iter().map(M::share).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoder::Decoder;
    use crate::model::Encoder;

    fn a_slot_computes_as_its_tenants_own_model<M: WholeModel>(name: &str, run: impl Fn(&M) -> Tensor) {
        let (shape, device) = (ModelShape::builtin(name).unwrap(), Device::Cpu);
        let store = ModelStore::random::<M>(&shape, 0, 3, 7, DType::F32, device, u64::MAX).unwrap();
        let slots = ModelSlots::of(2, || M::unloaded(&shape, 0, DType::F32, device)).unwrap();
        assert_eq!(slots.model(1).device_bytes(), 4 * shape.parameters());
        // The copy lane writes through a handle of its own.
        slots.share().load(&store, 0, 1).unwrap();
        slots.share().load(&store, 2, 1).unwrap();
        let own = |tenant| {
            let own = M::unloaded(&shape, 0, DType::F32, device).unwrap();
            own.load(&store.sets.of(tenant)).unwrap();
            run(&own)
        };
        assert!(run(slots.model(1)).equal(&own(2)));
        assert!(!run(slots.model(1)).equal(&own(0)));
    }

    const IDS: [[i64; 6]; 1] = [[5, 9, 2, 77, 0, 3]];

    #[test]
    fn encoders_are_swapped() {
        a_slot_computes_as_its_tenants_own_model("tiny", |encoder: &Encoder| {
            let input = encoder.input(&IDS, 8).unwrap();
            let hidden = encoder.embed(&input).unwrap();
            encoder.layers(hidden, 0..2, &input, None).unwrap()
        });
    }

    #[test]
    fn decoders_are_swapped() {
        for name in ["tiny-llama", "tiny-opt"] {
            a_slot_computes_as_its_tenants_own_model(name, |decoder: &Decoder| decoder.lower_layers(&IDS, 2).unwrap());
        }
    }
}
