//! Points of copies to the device, and of whole models brought onto it.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use tch::{Device, Kind, Tensor};
use tenantry_profiles::{CopyRow, Direction, LoadSource, ModelLoadRow, Tables};

use super::Suite;
use super::compute::spread_out;
use super::held_out::{HoldOut, Spot};
use super::schedule::Point;
use super::timing::timed;
use crate::device::{Stream, copy_without_waiting, host_memory_for};
use crate::error::ExecutorError;
use crate::host::{available_host_bytes, forget_cached};
use crate::model::{Encoder, read_checkpoint, write_checkpoint};
use crate::stored_blocks::StoredBlocks;
use crate::whole_models::WholeModel;

/// Bytes of host memory that copies are spread over at least: far more than processors' caches hold.
const POOL_BYTES: u64 = 256 << 20;
/// Where the device is the host's own processor, over so many of the largest: tenants' parameters lie all over the
/// memory, of which on a virtual machine some parts are up to twice as far away as others.
const LARGEST_APART: u64 = 64;
/// Bytes of host memory that copies are spread over at most.
const POOL_MOST_BYTES: u64 = 4 << 30;
/// Part of the free memory that they are spread over at most: one over so much.
const MEMORY_SHARE: u64 = 4;
/// Bytes of the device's memory that they go to.
const SLOTS_BYTES: u64 = 64 << 20;
/// Bytes of a block at least: smaller copies have their places within blocks.
const BLOCK_BYTES: u64 = 16 << 20;

/// Blocks of each size that are read from the disk: so many of small ones, and of larger ones as many as this has room
/// for, but two.
const STORED_BLOCKS: u64 = 8;
const STORED_ROOM_BYTES: u64 = 64 << 20;

/// Memory in blocks of their own, as tenants' parameters and slots lie: a copy between places of one large block takes
/// up to a third longer. Of numbers, as parameters are: single bytes are copied a fifth more slowly.
struct Blocks(Vec<Tensor>);

impl Blocks {
    /// A power of two of `block_bytes`, at least two and as many as `bytes` has room for.
    fn new(block_bytes: u64, bytes: u64, device: Device) -> Result<Blocks, ExecutorError> {
        let numbers = block_bytes.div_ceil(NUMBER_BYTES) as i64;
        let block = |_| Ok(Tensor::f_ones([numbers], (NUMBER, device))?);
        let count = 1u64 << (bytes / block_bytes).max(2).ilog2();
        (0..count).map(block).collect::<Result<_, ExecutorError>>().map(Blocks)
    }

    fn share(&self) -> Blocks {
        Blocks(self.0.iter().map(Tensor::shallow_clone).collect())
    }

    /// Places for so many numbers: a power of two.
    fn places(&self, numbers: i64) -> u32 {
        (self.0.len() as u32) << (self.0[0].numel() as i64 / numbers).ilog2()
    }

    /// One place after the other lies in another block.
    fn place(&self, index: u32, numbers: i64) -> Result<Tensor, ExecutorError> {
        let blocks = self.0.len() as u32;
        let (block, place) = (index % blocks, index / blocks);
        Ok(self.0[block as usize].f_narrow(0, i64::from(place) * numbers, numbers)?)
    }
}

/// Largest copies of what is not page-locked that a quick suite measures.
const PAGEABLE_BYTES_MAX_QUICK: u64 = 16 << 20;
/// Copies to a GPU that are issued at once, as far as they are so many bytes together.
const AT_ONCE_MOST: u64 = 8;
const AT_ONCE_BYTES: u64 = 8 << 20;
const NUMBER: Kind = Kind::Float;
const NUMBER_BYTES: u64 = 4;

/// Host memory to copy from, and device memory to copy to.
pub(crate) struct Copies {
    /// Page-locked where the device is a GPU.
    pool: Blocks,
    /// Likewise and not page-locked; nothing where the device is the host's own processor, to which that makes no
    /// difference.
    pageable: Option<Blocks>,
    slots: Blocks,
    device: Device,
}

impl Copies {
    /// Memory for copies of up to `bytes_max`.
    pub fn new(device: Device, bytes_max: u64) -> Result<Copies, ExecutorError> {
        let block_bytes = bytes_max.max(BLOCK_BYTES);
        let pool_bytes = match device.is_cuda() {
            true => POOL_BYTES,
            false => (LARGEST_APART * bytes_max)
                .min(POOL_MOST_BYTES)
                .min(available_host_bytes() / MEMORY_SHARE)
                .max(POOL_BYTES),
        };
        let pageable = || Blocks::new(block_bytes, pool_bytes, Device::Cpu);
        let pinned = pageable()?.0.into_iter().map(|block| host_memory_for(device, block));
        Ok(Copies {
            pool: Blocks(pinned.collect::<Result<_, _>>()?),
            pageable: device.is_cuda().then(pageable).transpose()?,
            slots: Blocks::new(block_bytes, SLOTS_BYTES, device)?,
            device,
        })
    }

    /// One of the device's streams for copies beside what else runs there.
    pub fn stream(&self) -> Result<Stream, ExecutorError> {
        Stream::new(self.device)
    }

    /// Another handle on the same memory, for another thread.
    pub fn share(&self) -> Copies {
        Copies {
            pool: self.pool.share(),
            pageable: self.pageable.as_ref().map(Blocks::share),
            slots: self.slots.share(),
            device: self.device,
        }
    }

    /// Measures a copy of `bytes`, at each call from another place in the pool to another slot: as tenants' parameters
    /// come in, which nobody has touched for a while.
    pub fn measure(&self, bytes: u64) -> impl FnMut() -> Result<Duration, ExecutorError> + '_ {
        self.measure_from(&self.pool, bytes)
    }

    /// A GPU's copy lane issues the copies of an op one after the other and waits for all: there several small ones are
    /// measured so, and each takes its share.
    fn measure_from<'a>(
        &'a self,
        pool: &'a Blocks,
        bytes: u64,
    ) -> impl FnMut() -> Result<Duration, ExecutorError> + 'a {
        let (mut op, at_once) = (self.op_from(pool, bytes), self.at_once(bytes));
        move || Ok(op()? / at_once)
    }

    /// Measures an op of several such copies as they are issued at once; of one on a CPU.
    pub fn op(&self, bytes: u64) -> impl FnMut() -> Result<Duration, ExecutorError> + '_ {
        self.op_from(&self.pool, bytes)
    }

    fn at_once(&self, bytes: u64) -> u32 {
        match self.device.is_cuda() {
            true => (AT_ONCE_BYTES / bytes.max(1)).clamp(1, AT_ONCE_MOST) as u32,
            false => 1,
        }
    }

    fn op_from<'a>(&'a self, pool: &'a Blocks, bytes: u64) -> impl FnMut() -> Result<Duration, ExecutorError> + 'a {
        let numbers = bytes.div_ceil(NUMBER_BYTES) as i64;
        let (sources, targets) = (pool.places(numbers), self.slots.places(numbers));
        let at_once = self.at_once(bytes);
        let mut calls = 0u32;
        move || {
            timed(self.device, || {
                for _ in 0..at_once {
                    let (from, to) = (spread_out(calls, sources), spread_out(calls, targets));
                    calls = calls.wrapping_add(1);
                    let source = pool.place(from, numbers)?;
                    copy_without_waiting(&mut self.slots.place(to, numbers)?, &source)?;
                }
                Ok(())
            })
        }
    }

    /// Points of copies of these sizes.
    pub fn points(&self, sizes: &[u64], suite: Suite, hold_out: HoldOut) -> Vec<Point<'_>> {
        let pinned = self.device.is_cuda();
        let spots = spots(sizes, hold_out);
        let point = |pool, pinned, table: &str, (bytes, held_out)| {
            let row = move |stats| CopyRow {
                direction: Direction::HostToDevice,
                pinned,
                bytes,
                stats,
            };
            let record = move |tables: &mut Tables, stats| tables.copy.push(row(stats));
            Point::new(table.to_string(), self.measure_from(pool, bytes), record).held_out(held_out)
        };
        let of_pool = spots.iter().map(|&spot| point(&self.pool, pinned, "copy", spot));
        let pageable = self.pageable.iter();
        // Lanes copy none, and large ones take long.
        let is_short = |&&(bytes, _): &&(u64, bool)| suite == Suite::Full || bytes <= PAGEABLE_BYTES_MAX_QUICK;
        let of_pageable = pageable.flat_map(|pool| spots.iter().filter(is_short).map(move |&spot| (pool, spot)));
        let of_pageable = of_pageable.map(|(pool, spot)| point(pool, false, "copy, not page-locked", spot));
        of_pool.chain(of_pageable).collect()
    }

    /// Points of whole models of these sizes brought in from host memory: one copy each.
    pub fn model_points(&self, sizes: &[u64]) -> Vec<Point<'_>> {
        let point = |&bytes: &u64| {
            Point::new(
                "model_load from host".to_string(),
                self.measure(bytes),
                record(LoadSource::Host, bytes),
            )
        };
        sizes.iter().map(point).collect()
    }
}

/// Tenants' parameters on the disk, of one size.
pub(crate) struct Stored {
    blocks: StoredBlocks,
    count: u32,
}

impl Stored {
    /// Writes as many as are read in turns.
    pub fn write(bytes: u64, device: Device) -> Result<Stored, ExecutorError> {
        let block = |_| Ok(Tensor::f_ones([bytes as i64], (Kind::Uint8, Device::Cpu))?);
        let count = (STORED_ROOM_BYTES / bytes).clamp(2, STORED_BLOCKS) as u32;
        let blocks = StoredBlocks::write(count, bytes, Kind::Uint8, device, block)?;
        Ok(Stored { blocks, count })
    }

    /// The point of reading one into host memory.
    pub fn point(&self) -> Point<'_> {
        let mut calls = 0;
        let measure = move || {
            calls = (calls + 1) % self.count;
            timed(Device::Cpu, || self.blocks.read(calls))
        };
        let record = record(LoadSource::Disk, self.blocks.bytes());
        Point::new("model_load from disk".to_string(), measure, record)
    }
}

/// Sizes, and whether they are held out: none of those from 4 GiB on, where a copy takes as long a byte as any other.
fn spots(sizes: &[u64], hold_out: HoldOut) -> Vec<(u64, bool)> {
    let (mut grid, mut largest) = (Vec::new(), Vec::new());
    for &bytes in sizes {
        match u32::try_from(bytes) {
            Ok(bytes) => grid.push([bytes]),
            Err(_) => largest.push((bytes, false)),
        }
    }
    // Tensors begin and end at cache lines; other numbers of bytes take longer, and nobody copies them.
    let spots = hold_out.spots(grid, |[bytes]| Some([bytes - bytes % 64]));
    let spots = spots.into_iter().map(|spot: Spot<1>| (u64::from(spot.at[0]), spot.held_out));
    spots.chain(largest).collect()
}

fn record(source: LoadSource, bytes: u64) -> impl Fn(&mut Tables, tenantry_profiles::Stats) {
    move |tables, stats| tables.model_load.push(ModelLoadRow { source, bytes, stats })
}

/// A checkpoint on disk.
pub(crate) struct Checkpoint<'a> {
    path: PathBuf,
    encoder: &'a Encoder,
}

impl<'a> Checkpoint<'a> {
    /// Writes a model into a file.
    pub fn write(encoder: &'a Encoder, path: PathBuf) -> Result<Checkpoint<'a>, ExecutorError> {
        write_checkpoint(&path, encoder.shape(), &encoder.parameters().f_to_kind(Kind::Float)?)?;
        Ok(Checkpoint { path, encoder })
    }

    /// The point of loading it: from the disk, not from the operating system's cache of it.
    pub fn point(&self, dtype: tenantry_profiles::DType) -> Point<'_> {
        let measure = move || {
            let failed = ExecutorError::file(&self.path);
            File::open(&self.path).and_then(|file| forget_cached(&file)).map_err(failed)?;
            timed(self.encoder.device(), || {
                self.encoder.load(&read_checkpoint(&self.path, self.encoder.shape(), dtype)?)
            })
        };
        let record = record(LoadSource::Checkpoint, self.encoder.device_bytes());
        Point::new("model_load from a checkpoint".to_string(), measure, record)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Suite;
    use super::*;

    #[test]
    fn places_cover_their_blocks_without_meeting() {
        let blocks = Blocks::new(1 << 10, 15 << 10, Device::Cpu).unwrap();
        assert_eq!(blocks.0.len(), 8);
        assert_eq!(
            (blocks.places(256), blocks.places(100), blocks.places(1)),
            (8, 16, 2048)
        );
        for index in 0..16 {
            let _ = blocks.place(index, 100).unwrap().f_fill_(f64::from(index) + 2.0).unwrap();
        }
        for index in 0..16 {
            let place = blocks.place(index, 100).unwrap();
            assert!(Vec::<f32>::try_from(place).unwrap().iter().all(|&number| number == index as f32 + 2.0));
        }
        assert!(blocks.place(16, 100).is_err(), "beyond the blocks");
    }

    #[test]
    fn models_of_more_than_4_gib_are_copied_too() {
        let sizes = [1 << 8, 1 << 20, (1 << 32) - 64, 1 << 32, 13_476_839_424];
        let spots = spots(&sizes, HoldOut::new(Suite::Full, 7));
        let (held_out, grid): (Vec<_>, Vec<_>) = spots.into_iter().partition(|&(_, held_out)| held_out);
        assert_eq!(grid.iter().map(|&(bytes, _)| bytes).collect::<Vec<_>>(), sizes);
        assert_eq!(held_out.len(), 16);
        assert!(held_out.iter().all(|(bytes, _)| bytes % 64 == 0 && !sizes.contains(bytes)));
    }
}
