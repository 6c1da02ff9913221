//! Tenants' adapters on the disk, where host memory does not hold all of them.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

use tch::{Device, Tensor};

use crate::ParameterSets;
use crate::device::{element_bytes, host_memory_for};
use crate::error::ExecutorError;
use crate::host::forget_cached;

/// A file with every tenant's block, and whose blocks host memory holds: nobody's at first.
#[derive(Debug)]
pub(super) struct Disk {
    sets: ParameterSets,
    /// It has no name, and is gone when it is closed.
    file: File,
    device: Device,
    /// By slot of host memory.
    held: Mutex<Vec<Option<u32>>>,
}

fn failed(source: std::io::Error) -> ExecutorError {
    ExecutorError::File {
        path: std::env::temp_dir(),
        source,
    }
}

impl Disk {
    /// Writes all tenants' blocks to a file and lets go of them.
    ///
    /// # Errors
    /// Blocks that tenants share, or no room in the folder for temporary files.
    pub fn write(sets: &ParameterSets, slots: u32, device: Device) -> Result<Disk, ExecutorError> {
        if sets.distinct() < sets.tenants() {
            let must = format!(
                "memory for each of {} tenants while the file is written",
                sets.tenants()
            );
            return Err(ExecutorError::input(
                "lora.host_slots",
                must,
                format!("for {}", sets.distinct()),
            ));
        }
        let file = tempfile::tempfile().map_err(failed)?;
        let mut out = BufWriter::new(&file);
        let numbers = sets.length() as usize;
        let mut bytes = vec![0; numbers * element_bytes(sets.kind()) as usize];
        for tenant in 0..sets.tenants() {
            sets.of(tenant).f_copy_data_u8(&mut bytes, numbers)?;
            out.write_all(&bytes).map_err(failed)?;
            sets.discard(tenant)?;
        }
        out.flush().map_err(failed)?;
        drop(out);
        Ok(Disk {
            sets: sets.share(),
            file,
            device,
            held: Mutex::new(vec![None; slots as usize]),
        })
    }

    /// Slots of host memory.
    pub fn slots(&self) -> u32 {
        self.held.lock().expect("nobody panics with the slots").len() as u32
    }

    /// Reads a tenant's block, not from the operating system's copy of the file, in the place of whatever the slot held.
    pub fn fetch(&self, tenant: u32, slot: u32) -> Result<(), ExecutorError> {
        let mut held = self.held.lock().expect("nobody panics with the slots");
        // What is read again, since it failed or is another now, is held where it is read to.
        held.iter_mut()
            .filter(|held| **held == Some(tenant))
            .for_each(|held| *held = None);
        if let Some(other) = held[slot as usize].replace(tenant) {
            self.sets.discard(other)?;
        }
        drop(held);
        forget_cached(&self.file).map_err(failed)?;
        let mut bytes = vec![0; self.sets.bytes_per_tenant() as usize];
        let from = u64::from(tenant) * bytes.len() as u64;
        self.file.read_exact_at(&mut bytes, from).map_err(failed)?;
        let block = Tensor::f_from_data_size(&bytes, &[self.sets.length() as i64], self.sets.kind())?;
        self.sets.replace(tenant, host_memory_for(self.device, block)?)
    }
}
