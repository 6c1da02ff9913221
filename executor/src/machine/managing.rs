//! What management requests do: new versions of tenants' parameters and of domains' tables come into host memory, and deleted ones go.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tch::{Device, Kind, Tensor};
use tenantry_core::command::FailureReason;
use tenantry_core::event::MemberFailure;
use tenantry_core::op::Manage;
use tenantry_traces::Subject;

use super::Batch;
use super::serving::reason;
use crate::ParameterSets;
use crate::device::{element_bytes, host_memory_for};
use crate::error::ExecutorError;
use crate::host::forget_cached;
use crate::plot::Tables;
use crate::random::{INITIAL_STD, Part, fill, weights};

/// New versions that differ. They are handed out in turns: what reading one costs is the same for all.
const VERSIONS: u64 = 8;

/// New versions of tenants' parameters in a file, as training leaves them: read from the disk, and not from the operating system's
/// copy of it.
#[derive(Debug)]
struct NewVersions {
    /// It has no name, and is gone when it is closed.
    file: File,
    length: u64,
    kind: Kind,
    device: Device,
    handed_out: AtomicU64,
}

fn failed(source: std::io::Error) -> ExecutorError {
    ExecutorError::File {
        path: std::env::temp_dir(),
        source,
    }
}

impl NewVersions {
    /// Writes them for tenants with such parameters.
    fn write(sets: &ParameterSets, seed: u64, device: Device) -> Result<NewVersions, ExecutorError> {
        let (length, kind) = (sets.length(), sets.kind());
        let file = tempfile::tempfile().map_err(failed)?;
        let mut out = BufWriter::new(&file);
        let mut numbers = vec![0.0; length as usize];
        let mut bytes = vec![0; (length * element_bytes(kind)) as usize];
        for version in 0..VERSIONS {
            fill(&mut weights(seed, Part::NewVersion, version), INITIAL_STD, &mut numbers);
            let block = Tensor::f_from_slice(&numbers)?.f_to_kind(kind)?;
            block.f_copy_data_u8(&mut bytes, length as usize)?;
            out.write_all(&bytes).map_err(failed)?;
        }
        out.flush().map_err(failed)?;
        drop(out);
        Ok(NewVersions {
            file,
            length,
            kind,
            device,
            handed_out: AtomicU64::new(0),
        })
    }

    /// Reads the next one into memory from which the device copies fastest.
    fn read(&self) -> Result<Tensor, ExecutorError> {
        forget_cached(&self.file).map_err(failed)?;
        let version = self.handed_out.fetch_add(1, Ordering::Relaxed) % VERSIONS;
        let mut bytes = vec![0; (self.length * element_bytes(self.kind)) as usize];
        let from = version * bytes.len() as u64;
        self.file.read_exact_at(&mut bytes, from).map_err(failed)?;
        let block = Tensor::f_from_data_size(&bytes, &[self.length as i64], self.kind)?;
        host_memory_for(self.device, block)
    }
}

/// Does management requests. Lanes have handles on the same memory.
pub(super) struct Manager {
    sets: Option<ParameterSets>,
    tables: Option<Tables>,
    /// Absent where the workload has no management requests, or tenants nothing of their own.
    versions: Option<Arc<NewVersions>>,
}

impl Manager {
    /// Of tenants' parameters and a pool's tables, as far as there are such.
    pub fn new(sets: Option<&ParameterSets>, tables: Option<Tables>) -> Manager {
        Manager {
            sets: sets.map(ParameterSets::share),
            tables,
            versions: None,
        }
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
                sets.replace(tenant, versions.read()?)
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
