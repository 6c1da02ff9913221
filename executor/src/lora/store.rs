//! Every tenant's low-rank matrices, in host memory.

use std::ops::Range;
use std::path::PathBuf;

use tch::{Device, Tensor};
use tenantry_profiles::DType;

use super::peft::read_lora;
use super::shape::LoraShape;
use crate::device::copy_block;
use crate::error::ExecutorError;
use crate::parameter_sets::{ParameterSets, Room, is_there};
use crate::random::{INITIAL_STD, Part, fill, weights};

/// Every tenant's low-rank matrices in host memory: one block a tenant, its layers one after the other.
#[derive(Debug)]
pub struct LoraStore {
    shape: LoraShape,
    /// The blocks, each `[shape.parameters()]`.
    pub sets: ParameterSets,
}

impl LoraStore {
    /// Random matrices for `tenants` tenants, in so much host memory at most; `device` is where they will be copied to.
    /// `B` is random too, unlike at the start of training, so that every tenant's model differs.
    ///
    /// # Errors
    /// No tenants, memory for less than one tenant's matrices, or the user stopped it.
    pub fn random<'a>(
        shape: LoraShape,
        tenants: u32,
        seed: u64,
        dtype: DType,
        device: Device,
        room: impl Into<Room<'a>>,
    ) -> Result<LoraStore, ExecutorError> {
        let fill_block = |tenant: u32, block: &mut [f32]| {
            fill(&mut weights(seed, Part::Lora, tenant.into()), INITIAL_STD, block);
        };
        let sets = ParameterSets::new(tenants, shape.parameters(), dtype, device, room, fill_block)?;
        Ok(LoraStore { shape, sets })
    }

    /// The matrices in these folders of PEFT's, each a tenant's, for `tenants` tenants in turns.
    ///
    /// # Errors
    /// Files that cannot be read or have no such matrices, memory for less than one tenant's, or the user stopped it.
    pub(crate) fn read<'a>(
        shape: LoraShape,
        tenants: u32,
        folders: &[PathBuf],
        dtype: DType,
        device: Device,
        room: impl Into<Room<'a>>,
    ) -> Result<LoraStore, ExecutorError> {
        let blocks = folders.iter().map(|folder| read_lora(folder, &shape));
        let sets = ParameterSets::of_blocks(tenants, shape.parameters(), dtype, device, room, blocks)?;
        Ok(LoraStore { shape, sets })
    }

    /// Replaces a tenant's matrices by such as [`read_lora`] reads. No copy of them may run
    /// meanwhile.
    ///
    /// # Errors
    /// A block of another length, or a store whose memory does not hold a block for each tenant.
    ///
    /// # Panics
    /// If there is no such tenant.
    pub fn set(&self, tenant: u32, block: &Tensor) -> Result<(), ExecutorError> {
        let (must, found) = ([self.shape.parameters() as i64], block.size());
        if found != must {
            return Err(ExecutorError::input(
                "LoRA to be set",
                format!("{must:?} numbers"),
                format!("{found:?}"),
            ));
        }
        if self.sets.distinct() < self.sets.tenants() {
            let must = format!("a block for each of {} tenants", self.sets.tenants());
            let got = format!("{} blocks that tenants share", self.sets.distinct());
            return Err(ExecutorError::input("host memory for tenants' LoRA", must, got));
        }
        copy_block(&mut self.sets.of(tenant), block)
    }

    /// The shape of each tenant's matrices.
    pub fn shape(&self) -> LoraShape {
        self.shape
    }

    /// Some layers' matrices of a tenant, as one block.
    pub(crate) fn layers(&self, tenant: u32, layers: Range<usize>) -> Result<Tensor, ExecutorError> {
        let block = self.shape.layer_blocks(layers);
        let all = self.sets.of(tenant);
        is_there(&all)?;
        Ok(all.f_narrow(0, block.start as i64, block.len() as i64)?)
    }

    /// Another handle on the same memory, for another thread.
    pub fn share(&self) -> LoraStore {
        LoraStore {
            shape: self.shape,
            sets: self.sets.share(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tenantry_profiles::ModelShape;

    use super::*;

    #[test]
    fn a_tenants_matrices_are_replaced_where_they_are_its_own() {
        let shape = LoraShape::new(&ModelShape::builtin("tiny-opt").unwrap(), 8).unwrap();
        let bytes = 4 * shape.parameters();
        let store = |max| LoraStore::random(shape, 3, 1, DType::F32, Device::Cpu, max).unwrap();
        let (own, shared) = (store(3 * bytes), store(2 * bytes));
        let other = store(3 * bytes).sets.of(2).copy();
        own.set(0, &other).unwrap();
        assert!(own.sets.of(0).equal(&other) && !own.sets.of(1).equal(&other));
        assert_eq!(
            shared.set(0, &other).unwrap_err().to_string(),
            "host memory for tenants' LoRA: must be a block for each of 3 tenants, got 2 blocks that tenants share"
        );
    }
}
