//! Some tenants' adapters, on the device.

use std::ops::Range;

use tch::{Device, Kind, Tensor};
use tenantry_profiles::{AdapterImplementation, DType};

use super::apply::Adapters;
use super::grouped::GroupedProduct;
use super::plan::AdapterPlan;
use super::shape::AdapterShape;
use super::store::AdapterStore;
use crate::device::{copy_without_waiting, kind, synchronize};
use crate::error::ExecutorError;
use crate::parameter_sets::is_there;

/// Slots on the device, each with room for one tenant's adapters in all layers, which one copy fills.
///
/// A layer's parameters of all slots are one view, so that a batch of several tenants is computed on it without first
/// putting their parameters together.
#[derive(Debug)]
pub struct AdapterCache {
    shape: AdapterShape,
    /// `[slots, layers, parameters_per_layer]`.
    slots: Tensor,
    /// `[slots, parameters_per_layer]` of each layer.
    layers: Vec<Tensor>,
    grouped: GroupedProduct,
}

impl AdapterCache {
    /// `slots` empty slots. Tries out once whether libtorch's grouped product works here, for these shapes.
    ///
    /// # Errors
    /// No slots, or no memory on the device.
    pub fn new(shape: AdapterShape, slots: u32, dtype: DType, device: Device) -> Result<AdapterCache, ExecutorError> {
        if slots == 0 {
            return Err(ExecutorError::input("slots for adapters", "at least 1", 0));
        }
        let size = [
            i64::from(slots),
            shape.layers.into(),
            shape.parameters_per_layer() as i64,
        ];
        // Zeros and not garbage: an adapter of zeros passes on what it is given.
        let slots = Tensor::f_zeros(size, (kind(dtype), device))?;
        let layers = (0..shape.layers).map(|layer| slots.f_select(1, layer.into()));
        let mut cache = AdapterCache {
            shape,
            layers: layers.collect::<Result<_, _>>()?,
            slots,
            grouped: GroupedProduct::tried(Ok(())),
        };
        cache.grouped = GroupedProduct::tried(cache.try_grouped());
        Ok(cache)
    }

    fn try_grouped(&self) -> Result<(), ExecutorError> {
        let plan = AdapterPlan::new(&[0, 0], 8, AdapterImplementation::Grouped, self.device())?;
        let ones = Tensor::f_ones([2, 8, self.shape.hidden.into()], (self.kind(), self.device()))?;
        let adapters = Adapters::new(self, &plan);
        let adapted = adapters.apply(self.shape.first_layer as usize, ones)?;
        let difference = adapted.f_sub_scalar(1.0)?.f_abs()?.f_max()?.f_double_value(&[])?;
        GroupedProduct::must_change_nothing(difference, "its input where the adapter is zero")?;
        Ok(())
    }

    /// Copies the adapters of `layers` of a tenant into a slot, as [`issue_load`](Self::issue_load) does, and waits for
    /// that.
    ///
    /// # Errors
    /// A store of another shape.
    ///
    /// # Panics
    /// If there is no such tenant or layer.
    pub fn load(
        &self,
        store: &AdapterStore,
        tenant: u32,
        slot: u32,
        layers: Range<usize>,
    ) -> Result<(), ExecutorError> {
        if store.shape() != self.shape {
            let must = format!("{:?}", self.shape);
            return Err(ExecutorError::input(
                "adapters to load",
                must,
                format!("{:?}", store.shape()),
            ));
        }
        self.issue_load(&store.block(tenant), slot, layers)?;
        synchronize(self.device())
    }

    /// Issues the copy of the adapters of `layers` of a tenant's [`block`](AdapterStore::block) into a slot, over
    /// whatever was there. Until the current stream has come past it, no forward pass may use that slot's adapters of
    /// these layers; of other layers and slots it may.
    ///
    /// # Errors
    /// A block of another shape.
    ///
    /// # Panics
    /// If there are no such layers.
    pub(crate) fn issue_load(&self, block: &Tensor, slot: u32, layers: Range<usize>) -> Result<(), ExecutorError> {
        is_there(block)?;
        let own = self.shape.layer_blocks(layers);
        let mut to =
            self.slots
                .f_select(0, slot.into())?
                .f_view([-1])?
                .f_narrow(0, own.start as i64, own.len() as i64)?;
        copy_without_waiting(&mut to, &block.f_narrow(0, own.start as i64, own.len() as i64)?)
    }

    /// Plans a batch of padded sequences of `tokens` tokens, where sequence `i` uses slot `slots[i]`.
    ///
    /// Sequences of one slot should stand next to each other: each stretch of equal slots is one group, and the fewer
    /// groups, the less work for `Loop` and `Grouped`.
    ///
    /// # Errors
    /// An implementation that this device does not have, an empty batch, or a slot that there is not.
    pub fn plan(
        &self,
        slots: &[u32],
        tokens: usize,
        implementation: AdapterImplementation,
    ) -> Result<AdapterPlan, ExecutorError> {
        self.grouped.check(implementation)?;
        if let Some(slot) = slots.iter().find(|slot| **slot >= self.slots()) {
            return Err(ExecutorError::input(
                "slot of a sequence",
                format!("below {}", self.slots()),
                slot,
            ));
        }
        AdapterPlan::new(slots, tokens, implementation, self.device())
    }

    /// Implementations that work on this device, for adapters of this shape.
    pub fn implementations(&self) -> Vec<AdapterImplementation> {
        self.grouped.implementations()
    }

    /// Why [`AdapterImplementation::Grouped`] does not work here, if it does not.
    pub fn grouped_fails(&self) -> Option<&str> {
        self.grouped.fails()
    }

    /// The shape of each tenant's adapters.
    pub fn shape(&self) -> AdapterShape {
        self.shape
    }

    /// How many tenants' adapters have room.
    pub fn slots(&self) -> u32 {
        self.slots.size()[0] as u32
    }

    /// Another handle on the same memory, for another thread.
    pub fn share(&self) -> AdapterCache {
        AdapterCache {
            shape: self.shape,
            slots: self.slots.shallow_clone(),
            layers: self.layers.iter().map(Tensor::shallow_clone).collect(),
            grouped: self.grouped.clone(),
        }
    }

    /// One layer's slots, `[slots, parameters_per_layer]`.
    pub(crate) fn layer(&self, layer: usize) -> &Tensor {
        &self.layers[self.shape.index(layer)]
    }

    fn device(&self) -> Device {
        self.slots.device()
    }

    fn kind(&self) -> Kind {
        self.slots.kind()
    }
}
