//! Every tenant's adapters, in host memory.

use std::path::PathBuf;

use tch::{Device, Tensor};
use tenantry_profiles::DType;

use super::shape::AdapterShape;
use crate::error::ExecutorError;
use crate::files::read_adapters;
use crate::parameter_sets::{ParameterSets, Room};
use crate::random::{INITIAL_STD, Part, fill, weights};

/// Every tenant's adapters in host memory: one block a tenant, its layers one after the other.
#[derive(Debug)]
pub struct AdapterStore {
    shape: AdapterShape,
    /// The blocks, each `[shape.parameters()]`.
    pub sets: ParameterSets,
}

impl AdapterStore {
    /// Random adapters for `tenants` tenants, in so much host memory at most; `device` is where they will be copied to.
    ///
    /// # Errors
    /// Memory for less than one tenant's adapters, or the user stopped it.
    pub fn random<'a>(
        shape: AdapterShape,
        tenants: u32,
        seed: u64,
        dtype: DType,
        device: Device,
        room: impl Into<Room<'a>>,
    ) -> Result<AdapterStore, ExecutorError> {
        let fill_block = |tenant: u32, block: &mut [f32]| {
            fill(&mut weights(seed, Part::Adapter, tenant.into()), INITIAL_STD, block);
        };
        let sets = ParameterSets::new(tenants, shape.parameters(), dtype, device, room, fill_block)?;
        Ok(AdapterStore { shape, sets })
    }

    /// The adapters in these files, each a tenant's, for `tenants` tenants in turns.
    ///
    /// # Errors
    /// Files that cannot be read or have no such adapters, memory for less than one tenant's, or the user stopped it.
    pub(crate) fn read<'a>(
        shape: AdapterShape,
        tenants: u32,
        files: &[PathBuf],
        dtype: DType,
        device: Device,
        room: impl Into<Room<'a>>,
    ) -> Result<AdapterStore, ExecutorError> {
        let blocks = files.iter().map(|file| read_adapters(file, &shape));
        let sets = ParameterSets::of_blocks(tenants, shape.parameters(), dtype, device, room, blocks)?;
        Ok(AdapterStore { shape, sets })
    }

    /// The shape of each tenant's adapters.
    pub fn shape(&self) -> AdapterShape {
        self.shape
    }

    /// A tenant's parameters, `[parameters]`, as they are now: whoever copies them in parts keeps this block, in whose
    /// place another may be put meanwhile.
    pub(crate) fn block(&self, tenant: u32) -> Tensor {
        self.sets.of(tenant)
    }

    /// Another handle on the same memory, for another thread.
    pub fn share(&self) -> AdapterStore {
        AdapterStore {
            shape: self.shape,
            sets: self.sets.share(),
        }
    }
}
