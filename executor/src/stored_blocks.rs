//! Blocks of parameters in a file, as training leaves them or host memory has no room for them.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;

use tch::{Device, Kind, Tensor};

use crate::device::{element_bytes, host_memory_for};
use crate::error::ExecutorError;
use crate::host::forget_synced;

/// A file of blocks of one length.
#[derive(Debug)]
pub(crate) struct StoredBlocks {
    /// It has no name, and is gone when it is closed.
    file: File,
    /// Which there are.
    there: Vec<bool>,
    numbers: u64,
    kind: Kind,
    device: Device,
}

/// Says what a file in that folder is for, and who names the folder: nobody asked for one by its path.
fn failed(source: std::io::Error) -> ExecutorError {
    let why = format!("{source} (parameters that are read from the disk are kept here; TMPDIR names another folder)");
    ExecutorError::file(std::env::temp_dir())(std::io::Error::new(source.kind(), why))
}

impl StoredBlocks {
    /// Writes `count` blocks of so many numbers each, or of none where there is none to be had; `device` is where they
    /// will be copied to.
    ///
    /// # Errors
    /// Those of `block`, or no room in the folder for temporary files.
    pub fn write(
        count: u32,
        numbers: u64,
        kind: Kind,
        device: Device,
        mut block: impl FnMut(u32) -> Result<Tensor, ExecutorError>,
    ) -> Result<StoredBlocks, ExecutorError> {
        let file = tempfile::tempfile().map_err(failed)?;
        let mut there = Vec::with_capacity(count as usize);
        let mut out = BufWriter::new(&file);
        let mut bytes = vec![0; (numbers * element_bytes(kind)) as usize];
        for index in 0..count {
            let block = block(index)?;
            there.push(block.numel() > 0);
            // What is not there has a place in the file all the same, and is not read.
            if block.numel() > 0 {
                block.f_copy_data_u8(&mut bytes, numbers as usize)?;
            }
            out.write_all(&bytes).map_err(failed)?;
        }
        out.flush().map_err(failed)?;
        drop(out);
        file.sync_all().map_err(failed)?;
        Ok(StoredBlocks {
            file,
            there,
            numbers,
            kind,
            device,
        })
    }

    /// Of each block.
    pub fn bytes(&self) -> u64 {
        self.numbers * element_bytes(self.kind)
    }

    /// Reads a block, not from the operating system's copy of the file, into memory from which the device copies
    /// fastest.
    ///
    /// # Errors
    /// What the disk says, no memory, or no such block.
    pub fn read(&self, index: u32) -> Result<Tensor, ExecutorError> {
        if !self.there[index as usize] {
            return Err(ExecutorError::input("a tenant's parameters", "in its file", "none"));
        }
        forget_synced(&self.file).map_err(failed)?;
        let mut bytes = vec![0; self.bytes() as usize];
        let from = u64::from(index) * self.bytes();
        self.file.read_exact_at(&mut bytes, from).map_err(failed)?;
        let block = Tensor::f_from_data_size(&bytes, &[self.numbers as i64], self.kind)?;
        host_memory_for(self.device, block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_no_room_is_told_of_another_folder() {
        let full = failed(std::io::Error::from(std::io::ErrorKind::StorageFull)).to_string();
        let folder = std::env::temp_dir();
        assert!(full.starts_with(&folder.display().to_string()), "{full}");
        assert!(
            full.contains("TMPDIR") && full.contains("parameters that are read from the disk"),
            "{full}"
        );
    }
}
