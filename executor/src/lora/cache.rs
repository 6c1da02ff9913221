//! Some tenants' low-rank matrices, on the device.

use std::ops::Range;

use tch::{Device, Kind, Tensor};
use tenantry_profiles::{AdapterImplementation, DType};

use super::apply::Loras;
use super::plan::{LoraPlan, Segment};
use super::shape::{Input, LoraShape, LoraViews};
use super::store::LoraStore;
use crate::adapters::grouped::GroupedProduct;
use crate::device::{copy_block, kind};
use crate::error::ExecutorError;

/// Slots on the device, each with room for one tenant's matrices of all layers, which one copy fills.
#[derive(Debug)]
pub struct LoraCache {
    shape: LoraShape,
    /// `[slots, layers, parameters_per_layer]`.
    slots: Tensor,
    /// Of each layer, for each input: made once, since a step asks for all of them.
    views: Vec<Vec<LoraViews>>,
    grouped: GroupedProduct,
}

fn views(shape: LoraShape, slots: &Tensor) -> Result<Vec<Vec<LoraViews>>, ExecutorError> {
    let of_layer = |layer: u32| {
        let blocks = slots.f_select(1, layer.into())?;
        Input::ALL.into_iter().map(|input| shape.views(&blocks, input)).collect()
    };
    (0..shape.layers).map(of_layer).collect()
}

impl LoraCache {
    /// `slots` empty slots, which add nothing to the backbone. Tries out once whether libtorch's grouped product works
    /// here, for these shapes.
    ///
    /// # Errors
    /// No slots, or no memory on the device.
    pub fn new(shape: LoraShape, slots: u32, dtype: DType, device: Device) -> Result<LoraCache, ExecutorError> {
        if slots == 0 {
            return Err(ExecutorError::input("slots for LoRA", "at least 1", 0));
        }
        let size = [
            i64::from(slots),
            shape.layers.into(),
            shape.parameters_per_layer() as i64,
        ];
        let slots = Tensor::f_zeros(size, (kind(dtype), device))?;
        let mut cache = LoraCache {
            shape,
            views: views(shape, &slots)?,
            slots,
            grouped: GroupedProduct::tried(Ok(())),
        };
        cache.grouped = GroupedProduct::tried(cache.try_grouped());
        Ok(cache)
    }

    fn try_grouped(&self) -> Result<(), ExecutorError> {
        let segment = |slot| Segment {
            slot: Some(slot),
            tokens: 3,
        };
        let segments = [segment(self.slots() - 1), segment(0)];
        let plan = self.planned(&segments, AdapterImplementation::Grouped)?;
        let ones = |widths: Vec<i64>| -> Result<Vec<Tensor>, ExecutorError> {
            let ones = |width| Tensor::f_ones([6, width], (self.kind(), self.device()));
            Ok(widths.into_iter().map(ones).collect::<Result<_, _>>()?)
        };
        let (inputs, outputs) = self.shape.widths();
        let mut sums = ones(outputs)?;
        Loras::new(self, &plan).layer(0, &ones(inputs)?, &mut sums)?;
        for sum in sums {
            let difference = sum.f_sub_scalar(1.0)?.f_abs()?.f_max()?.f_double_value(&[])?;
            GroupedProduct::must_change_nothing(difference, "what was there where the matrices are zero")?;
        }
        Ok(())
    }

    /// Copies the matrices of `layers` of a tenant into a slot, over whatever was there, by one copy. No forward pass
    /// may use that slot's matrices of these layers meanwhile; of other layers and slots it may.
    ///
    /// # Errors
    /// A store of another shape.
    ///
    /// # Panics
    /// If there is no such tenant, slot or layer.
    pub fn load(&self, store: &LoraStore, tenant: u32, slot: u32, layers: Range<usize>) -> Result<(), ExecutorError> {
        if store.shape() != self.shape {
            let must = format!("{:?}", self.shape);
            return Err(ExecutorError::input(
                "LoRA to load",
                must,
                format!("{:?}", store.shape()),
            ));
        }
        let own = self.slots.f_select(0, slot.into())?;
        let mut to = own.f_narrow(0, layers.start as i64, layers.len() as i64)?.f_view([-1])?;
        copy_block(&mut to, &store.layers(tenant, layers)?)
    }

    /// Plans a step whose tokens fall on slots as `segments` say: [`Step::segments`](crate::Step::segments).
    ///
    /// # Errors
    /// An implementation that this device does not have, an empty step, or a slot that there is not.
    pub fn plan(&self, segments: &[Segment], implementation: AdapterImplementation) -> Result<LoraPlan, ExecutorError> {
        self.grouped.check(implementation)?;
        self.planned(segments, implementation)
    }

    fn planned(&self, segments: &[Segment], implementation: AdapterImplementation) -> Result<LoraPlan, ExecutorError> {
        LoraPlan::new(segments, self.slots(), implementation, self.device(), self.kind())
    }

    /// Implementations that work on this device, for matrices of this shape.
    pub fn implementations(&self) -> Vec<AdapterImplementation> {
        self.grouped.implementations()
    }

    /// Why [`AdapterImplementation::Grouped`] does not work here, if it does not.
    pub fn grouped_fails(&self) -> Option<&str> {
        self.grouped.fails()
    }

    /// The shape of each tenant's matrices.
    pub fn shape(&self) -> LoraShape {
        self.shape
    }

    /// How many tenants' matrices have room.
    pub fn slots(&self) -> u32 {
        self.slots.size()[0] as u32
    }

    /// Another handle on the same memory, for another thread.
    pub fn share(&self) -> LoraCache {
        LoraCache {
            shape: self.shape,
            slots: self.slots.shallow_clone(),
            views: views(self.shape, &self.slots).expect("they were made of the same memory before"),
            grouped: self.grouped.clone(),
        }
    }

    /// The pairs of one layer's input in all slots.
    pub(crate) fn views(&self, layer: usize, input: Input) -> &LoraViews {
        &self.views[layer][input as usize]
    }

    fn device(&self) -> Device {
        self.slots.device()
    }

    fn kind(&self) -> Kind {
        self.slots.kind()
    }
}
