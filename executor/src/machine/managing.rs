//! What management requests do: new versions of tenants' parameters and of domains' tables come into host memory, and deleted ones go.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tch::{Device, Tensor};
use tenantry_core::command::FailureReason;
use tenantry_core::event::MemberFailure;
use tenantry_core::op::Manage;
use tenantry_traces::Subject;

use super::Batch;
use super::generating::Disk;
use super::serving::reason;
use crate::ParameterSets;
use crate::error::ExecutorError;
use crate::plot::Tables;
use crate::random::{INITIAL_STD, Part, fill, weights};
use crate::stored_blocks::StoredBlocks;

/// New versions that differ. They are handed out in turns: what reading one costs is the same for all.
const VERSIONS: u32 = 8;

/// New versions of tenants' parameters, on the disk.
#[derive(Debug)]
pub(super) struct NewVersions {
    blocks: StoredBlocks,
    handed_out: AtomicU32,
}

impl NewVersions {
    /// Writes them for tenants with such parameters.
    fn write(sets: &ParameterSets, seed: u64, device: Device) -> Result<NewVersions, ExecutorError> {
        let mut numbers = vec![0.0; sets.length() as usize];
        let version = |version| {
            fill(
                &mut weights(seed, Part::NewVersion, u64::from(version)),
                INITIAL_STD,
                &mut numbers,
            );
            Ok(Tensor::f_from_slice(&numbers)?.f_to_kind(sets.kind())?)
        };
        Ok(NewVersions {
            blocks: StoredBlocks::write(VERSIONS, sets.length(), sets.kind(), device, version)?,
            handed_out: AtomicU32::new(0),
        })
    }

    /// Hands out the next one.
    fn next(&self) -> u32 {
        self.handed_out.fetch_add(1, Ordering::Relaxed) % VERSIONS
    }

    /// Reads one.
    pub fn read(&self, version: u32) -> Result<Tensor, ExecutorError> {
        self.blocks.read(version)
    }
}

/// Does management requests. Lanes have handles on the same memory.
pub(super) struct Manager {
    sets: Option<ParameterSets>,
    tables: Option<Tables>,
    /// Absent where the workload has no management requests, or tenants nothing of their own.
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

    /// With tenants' parameters on the disk: that is where new versions stay until they are used.
    pub fn on_disk(self, disk: Option<Arc<Disk>>) -> Manager {
        Manager { disk, ..self }
    }

    /// With new versions to be read.
    ///
    /// # Errors
    /// No room for them in the folder for temporary files.
    pub fn with_versions(mut self, seed: u64, device: Device) -> Result<Manager, ExecutorError> {
        let versions = self.sets.as_ref().map(|sets| NewVersions::write(sets, seed, device));
        self.versions = versions.transpose()?.map(Arc::new);
        Ok(self)
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
            let reason = reason(&error, FailureReason::LoadFailed);
            let mut failures = batch.failures.lock().expect("no lane panics with the list");
            failures.push(MemberFailure { member: 0, reason });
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
                let versions = self.versions.as_ref();
                let versions = versions.ok_or_else(|| ExecutorError::input("new versions", "there", "none"))?;
                let version = versions.next();
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
