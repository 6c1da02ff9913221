//! Tenants' adapters on the disk, where host memory does not hold all of them.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use tch::{Device, Tensor};

use crate::ParameterSets;
use crate::error::ExecutorError;
use crate::machine::managing::NewVersions;
use crate::stored_blocks::StoredBlocks;

/// Every tenant's block, and whose host memory holds: nobody's at first.
#[derive(Debug)]
pub(in crate::machine) struct Disk {
    sets: ParameterSets,
    /// By tenant.
    blocks: StoredBlocks,
    /// By tenant that has changed: where its parameters lie now.
    renewed: Mutex<HashMap<u32, (Arc<NewVersions>, u32)>>,
    /// By slot of host memory.
    held: Mutex<Vec<Option<u32>>>,
}

impl Disk {
    /// Writes all tenants' blocks to a file and lets go of them.
    ///
    /// # Errors
    /// Blocks that tenants share, no room in the folder for temporary files, or the user stopped it.
    pub fn write(
        sets: &ParameterSets,
        slots: u32,
        device: Device,
        interrupt: &AtomicBool,
    ) -> Result<Disk, ExecutorError> {
        if sets.distinct() < sets.tenants() {
            let must = "left out where tenants share adapters: where files.tenants has fewer folders than there are \
                        tenants, or memory holds fewer while the file is written";
            let got = format!("adapters of {} for {} tenants", sets.distinct(), sets.tenants());
            return Err(ExecutorError::input("lora.host_slots", must, got));
        }
        let take = |tenant| {
            ExecutorError::if_set(interrupt)?;
            let block = sets.of(tenant);
            sets.discard(tenant)?;
            Ok(block)
        };
        Ok(Disk {
            sets: sets.share(),
            blocks: StoredBlocks::write(sets.tenants(), sets.length(), sets.kind(), device, take)?,
            renewed: Mutex::default(),
            held: Mutex::new(vec![None; slots as usize]),
        })
    }

    /// Slots of host memory.
    pub fn slots(&self) -> u32 {
        self.held.lock().expect("nobody panics with the slots").len() as u32
    }

    /// A tenant's parameters are others from now on. What host memory and cards hold of them stays as it is.
    pub fn renew(&self, tenant: u32, versions: Arc<NewVersions>, version: u32) {
        let mut renewed = self.renewed.lock().expect("nobody panics with the versions");
        renewed.insert(tenant, (versions, version));
    }

    /// Reads a tenant's block.
    ///
    /// # Errors
    /// What the disk says, or that of a file which could not be read.
    pub fn read(&self, tenant: u32) -> Result<Tensor, ExecutorError> {
        let renewed = self.renewed.lock().expect("nobody panics with the versions");
        let at = renewed.get(&tenant).cloned();
        drop(renewed);
        match at {
            None => self.blocks.read(tenant),
            Some((versions, version)) => versions.read(version),
        }
    }

    /// Reads a tenant's block, not from the operating system's copy of the file, in the place of whatever the slot
    /// held.
    pub fn fetch(&self, tenant: u32, slot: u32) -> Result<(), ExecutorError> {
        let mut held = self.held.lock().expect("nobody panics with the slots");
        // What is read again, since it failed or is another now, is held where it is read to.
        held.iter_mut().filter(|held| **held == Some(tenant)).for_each(|held| *held = None);
        if let Some(other) = held[slot as usize].replace(tenant) {
            self.sets.discard(other)?;
        }
        drop(held);
        self.sets.replace(tenant, self.read(tenant)?)
    }
}

#[cfg(test)]
mod tests {
    use tenantry_profiles::DType;

    use super::*;

    #[test]
    fn tenants_that_share_are_refused() {
        let blocks = [1.0_f32, 2.0].map(|number| Ok(Tensor::from_slice(&[number])));
        let sets = ParameterSets::of_blocks(7, 1, DType::F32, Device::Cpu, 1 << 10, blocks.into_iter()).unwrap();
        assert_eq!(
            Disk::write(&sets, 1, Device::Cpu, &AtomicBool::default()).unwrap_err().to_string(),
            "lora.host_slots: must be left out where tenants share adapters: where files.tenants has fewer folders \
             than there are tenants, or memory holds fewer while the file is written, got adapters of 2 for 7 tenants"
        );
    }
}
