//! What management requests do: new versions of tenants' parameters and of domains' tables come into host memory, and
//! deleted ones go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tch::{Device, Tensor};
use tenantry_core::command::FailureReason;
use tenantry_core::op::Manage;
use tenantry_traces::Subject;

use super::Batch;
use super::generating::Disk;
use super::serving::{fail_all, reason};
use crate::ParameterSets;
use crate::error::ExecutorError;
use crate::plot::Tables;
use crate::random::{INITIAL_STD, Part, fill, weights};
use crate::stored_blocks::StoredBlocks;

/// New versions that differ, where parameters are random. They are handed out in turns: what reading one costs is the
/// same for all.
const VERSIONS: u32 = 8;

/// New versions of tenants' parameters, on the disk. Of files there are none: a tenant's is what its file had when the
/// run began, of which this is a copy of all.
#[derive(Debug)]
pub(super) struct NewVersions {
    blocks: StoredBlocks,
    whose: Whose,
}

#[derive(Debug)]
enum Whose {
    /// Whoever asks next, of so many as were handed out.
    Anybodys(AtomicU32),
    /// Those of tenants, which take so many in turns.
    Own(u32),
}

impl NewVersions {
    /// Writes them for tenants with such parameters.
    fn write(
        sets: &ParameterSets,
        seed: u64,
        device: Device,
        interrupt: &AtomicBool,
    ) -> Result<NewVersions, ExecutorError> {
        if sets.are_given() {
            let count = sets.distinct();
            let own = |version| ExecutorError::if_set(interrupt).map(|()| sets.of(version));
            return Ok(NewVersions {
                blocks: StoredBlocks::write(count, sets.length(), sets.kind(), device, own)?,
                whose: Whose::Own(count),
            });
        }
        let mut numbers = vec![0.0; sets.length() as usize];
        let version = |version| {
            ExecutorError::if_set(interrupt)?;
            fill(
                &mut weights(seed, Part::NewVersion, u64::from(version)),
                INITIAL_STD,
                &mut numbers,
            );
            Ok(Tensor::f_from_slice(&numbers)?.f_to_kind(sets.kind())?)
        };
        Ok(NewVersions {
            blocks: StoredBlocks::write(VERSIONS, sets.length(), sets.kind(), device, version)?,
            whose: Whose::Anybodys(AtomicU32::new(0)),
        })
    }

    /// The next one of a tenant.
    fn next(&self, tenant: u32) -> u32 {
        match &self.whose {
            Whose::Anybodys(handed_out) => handed_out.fetch_add(1, Ordering::Relaxed) % VERSIONS,
            Whose::Own(count) => tenant % count,
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// What the disk says, or that of a file which could not be read.
    pub fn read(&self, version: u32) -> Result<Tensor, ExecutorError> {
        self.blocks.read(version)
    }
}

/// Does management requests. Lanes have handles on the same memory.
pub(super) struct Manager {
    sets: Option<ParameterSets>,
    tables: Option<Tables>,
    /// Absent where the workload has no management requests, or tenants nothing of their own; and where all tenants'
    /// files are on the disk.
    versions: Option<Arc<NewVersions>>,
    /// Where host memory does not hold all tenants' parameters.
    disk: Option<Arc<Disk>>,
}

impl Manager {
    /// Of tenants' parameters and a pool's tables, as far as there are such.
    pub fn new(sets: Option<&ParameterSets>, tables: Option<Tables>) -> Manager {
        Manager {
            sets: sets.map(ParameterSets::share),
            tables,
            versions: None,
            disk: None,
        }
    }

    /// Tenants' parameters are on the disk: that is where new versions stay until they are used.
    pub fn put_on_disk(&mut self, disk: Option<Arc<Disk>>) {
        self.disk = disk;
    }

    /// Makes new versions to be read.
    ///
    /// # Errors
    /// No room for them in the folder for temporary files, or the user stopped it.
    pub fn make_versions(&mut self, seed: u64, device: Device, interrupt: &AtomicBool) -> Result<(), ExecutorError> {
        // The disk has what files had.
        let sets = self.sets.as_ref().filter(|sets| self.disk.is_none() || !sets.are_given());
        let versions = sets.map(|sets| NewVersions::write(sets, seed, device, interrupt));
        self.versions = versions.transpose()?.map(Arc::new);
        Ok(())
    }

    /// Whether there are new versions to be read from a file.
    pub fn has_versions(&self) -> bool {
        self.versions.is_some()
    }

    /// Another handle, for another thread.
    pub fn share(&self) -> Manager {
        Manager {
            sets: self.sets.as_ref().map(ParameterSets::share),
            tables: self.tables.clone(),
            versions: self.versions.clone(),
            disk: self.disk.clone(),
        }
    }

    /// Does what an op asks. What fails is told with the batch.
    pub fn perform(&self, manage: &Manage, batch: &Batch) {
        if let Err(error) = self.manage(manage) {
            fail_all(batch, reason(&error, FailureReason::LoadFailed));
        }
    }

    fn manage(&self, manage: &Manage) -> Result<(), ExecutorError> {
        match (*manage, &self.sets, &self.tables) {
            (
                Manage::Store {
                    subject: Subject::Tenant(tenant),
                    ..
                },
                Some(sets),
                _,
            ) => {
                let versions = match (&self.versions, &self.disk) {
                    (Some(versions), _) => versions,
                    (None, Some(disk)) => return disk.read(tenant).map(drop),
                    (None, None) => return Err(ExecutorError::input("new versions", "there", "none")),
                };
                let version = versions.next(tenant);
                // Also what stays on the disk is read once: only what is whole takes the old one's place.
                let parameters = versions.read(version)?;
                match &self.disk {
                    None => sets.replace(tenant, parameters),
                    Some(disk) => {
                        disk.renew(tenant, Arc::clone(versions), version);
                        Ok(())
                    }
                }
            }
            (
                Manage::Discard {
                    subject: Subject::Tenant(tenant),
                },
                Some(sets),
                _,
            ) => sets.discard(tenant),
            (
                Manage::Store {
                    subject: Subject::Domain(domain),
                    ..
                },
                _,
                Some(tables),
            ) => tables.reload(domain),
            (
                Manage::Discard {
                    subject: Subject::Domain(domain),
                },
                _,
                Some(tables),
            ) => {
                tables.withdraw(domain);
                Ok(())
            }
            // What all share stays as it is.
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tenantry_profiles::DType;

    use super::*;

    /// An update of a tenant whose parameters are a file's reads that file's again, whoever shares it; where it could
    /// not be read, the update fails.
    #[test]
    fn a_new_version_of_a_file_is_the_file() {
        let block = |first: f32| Tensor::from_slice(&[first, 1.0, 2.0]);
        let blocks = vec![
            Ok(block(5.0)),
            Err(ExecutorError::input("file", "there", "none")),
            Ok(block(7.0)),
        ];
        let sets = ParameterSets::of_blocks(7, 3, DType::F32, Device::Cpu, 1 << 20, blocks.into_iter()).unwrap();
        let mut manager = Manager::new(Some(&sets), None);
        manager.make_versions(3, Device::Cpu, &AtomicBool::default()).unwrap();
        let store_of = |manager: &Manager, tenant| {
            manager.manage(&Manage::Store {
                subject: Subject::Tenant(tenant),
                bytes: 12,
            })
        };
        let store = |tenant| store_of(&manager, tenant);
        let first = |tenant| sets.of(tenant).double_value(&[0]);
        for (tenant, own) in [(0, 5.0), (5, 7.0), (2, 7.0), (6, 5.0)] {
            let discard = Manage::Discard {
                subject: Subject::Tenant(tenant),
            };
            manager.manage(&discard).unwrap();
            assert_eq!(sets.of(tenant).numel(), 0);
            store(tenant).unwrap();
            assert_eq!(first(tenant), own, "{tenant}");
        }
        let error = store(4).unwrap_err().to_string();
        assert!(error.contains("must be in its file"), "{error}");

        // Likewise where all are on the disk, and host memory holds two.
        let blocks = [
            Ok(block(5.0)),
            Err(ExecutorError::input("file", "there", "none")),
            Ok(block(7.0)),
        ];
        let sets = ParameterSets::of_blocks(3, 3, DType::F32, Device::Cpu, 1 << 20, blocks.into_iter()).unwrap();
        let disk = Arc::new(Disk::write(&sets, 2, Device::Cpu, &AtomicBool::default()).unwrap());
        let mut manager = Manager::new(Some(&sets), None);
        manager.put_on_disk(Some(Arc::clone(&disk)));
        manager.make_versions(3, Device::Cpu, &AtomicBool::default()).unwrap();
        let store = |tenant| store_of(&manager, tenant);
        store(2).unwrap();
        disk.fetch(2, 0).unwrap();
        assert_eq!(sets.of(2).double_value(&[0]), 7.0);
        assert!(store(1).unwrap_err().to_string().contains("must be in its file"));
        assert!(disk.fetch(1, 1).unwrap_err().to_string().contains("must be in its file"));

        // Random ones have versions that are others.
        let fill = |_: u32, numbers: &mut [f32]| numbers.fill(9.0);
        let random = ParameterSets::new(2, 3, DType::F32, Device::Cpu, 1 << 20, fill).unwrap();
        let mut manager = Manager::new(Some(&random), None);
        manager.make_versions(3, Device::Cpu, &AtomicBool::default()).unwrap();
        store_of(&manager, 1).unwrap();
        assert_ne!(random.of(1).double_value(&[0]), 9.0);
    }
}
