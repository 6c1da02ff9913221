//! Tenants' parameters in host memory: one contiguous block each, or shared round-robin where there is no room for all.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use tch::{Device, Kind, Tensor};
use tenantry_profiles::DType;

use crate::device::{element_bytes, empty_host_memory_for, host_memory_for, kind, prepare_lane_thread, slice_of};
use crate::error::ExecutorError;
use crate::tensors_file::converted;

/// Host memory that tenants' parameters may take, in bytes; and what stops them from being made, where something may.
#[derive(Clone, Copy, Debug)]
pub struct Room<'a> {
    max_bytes: u64,
    interrupt: Option<&'a AtomicBool>,
}

impl From<u64> for Room<'static> {
    fn from(max_bytes: u64) -> Room<'static> {
        Room {
            max_bytes,
            interrupt: None,
        }
    }
}

impl<'a> Room<'a> {
    /// So many bytes, filled until the flag is set.
    pub(crate) fn until(max_bytes: u64, interrupt: &'a AtomicBool) -> Room<'a> {
        Room {
            max_bytes,
            interrupt: Some(interrupt),
        }
    }

    fn check(&self) -> Result<(), ExecutorError> {
        self.interrupt.map_or(Ok(()), ExecutorError::if_set)
    }
}

/// Equally long blocks of parameters for a number of tenants, page-locked where they are copied to a GPU.
///
/// Where the host's memory does not hold a block for each tenant, tenant `t` uses block `t % distinct`. What is copied
/// and computed per request is the same; only fewer different bytes are read. Reports must say so:
/// [`distinct`](Self::distinct).
///
/// A tenant's block may be replaced while others, or even it, are copied: who copies keeps the block that it has begun
/// with. Who shared one has its own from then on.
#[derive(Debug)]
pub struct ParameterSets {
    blocks: Arc<[Mutex<Tensor>]>,
    /// Where tenants share the blocks of files: those of their own that were put in their place since, by tenant.
    /// Random blocks mean nothing, and stay shared.
    replaced: Option<Arc<Mutex<BTreeMap<u32, Tensor>>>>,
    max_bytes: u64,
    /// Whether they are somebody's own, and not random.
    given: bool,
    /// Blocks that could not be had, and why; they are empty.
    missing: Arc<[(usize, String)]>,
    tenants: u32,
    length: u64,
    kind: Kind,
}

impl ParameterSets {
    /// Makes blocks of `length` parameters for `tenants` tenants in so much host memory at most. `fill` writes tenant
    /// `t`'s block; `device` is where the blocks will be copied to.
    ///
    /// # Errors
    /// No tenants, memory that does not hold a single block, or the user stopped it.
    pub(crate) fn new<'a>(
        tenants: u32,
        length: u64,
        dtype: DType,
        device: Device,
        room: impl Into<Room<'a>>,
        fill: impl Fn(u32, &mut [f32]) + Sync,
    ) -> Result<ParameterSets, ExecutorError> {
        let (kind, room) = (kind(dtype), room.into());
        let max_bytes = room.max_bytes;
        let distinct = distinct_of(tenants, length * element_bytes(kind), max_bytes)?;
        let mut blocks = Vec::new();
        while blocks.len() < distinct as usize {
            blocks.extend(piece(distinct - blocks.len() as u32, length, kind, device)?);
        }
        fill_all(&mut blocks, length, room, &fill)?;
        Ok(ParameterSets {
            blocks: blocks.into_iter().map(Mutex::new).collect(),
            replaced: None,
            max_bytes,
            given: false,
            missing: Arc::default(),
            tenants,
            length,
            kind,
        })
    }

    /// Takes blocks of `length` parameters for `tenants` tenants, in turns where there are fewer. One that cannot be
    /// had is [`missing`](Self::missing), as if it had been let go of; the others are served.
    ///
    /// # Errors
    /// No tenants, no blocks, none that can be had, host memory that does not hold them all, since nobody is to be
    /// answered by another's, or the user stopped it.
    pub(crate) fn of_blocks<'a>(
        tenants: u32,
        length: u64,
        dtype: DType,
        device: Device,
        room: impl Into<Room<'a>>,
        blocks: impl ExactSizeIterator<Item = Result<Tensor, ExecutorError>>,
    ) -> Result<ParameterSets, ExecutorError> {
        let (kind, room) = (kind(dtype), room.into());
        let max_bytes = room.max_bytes;
        let distinct = distinct_of(tenants, length * element_bytes(kind), max_bytes)?;
        if blocks.len() == 0 {
            return Err(ExecutorError::input("tenants' parameters", "of at least one", 0));
        }
        let count = blocks.len().min(tenants as usize);
        if (distinct as usize) < count {
            let bytes = length * element_bytes(kind);
            let must = format!("enough for {count} tenants' own ({} bytes)", count as u64 * bytes);
            return Err(ExecutorError::input(
                "host memory for tenants' parameters",
                must,
                format!("{max_bytes} bytes"),
            ));
        }
        let own = |block: Result<Tensor, ExecutorError>| {
            let block = block?;
            if block.size() != [length as i64] {
                let must = format!("{length} numbers");
                return Err(ExecutorError::input(
                    "a tenant's parameters",
                    must,
                    format!("{:?}", block.size()),
                ));
            }
            host_memory_for(device, converted("a tenant's parameters", &block, kind)?)
        };
        let mut missing = Vec::new();
        let mut own_blocks = Vec::new();
        for (index, block) in blocks.take(count).enumerate() {
            room.check()?;
            own_blocks.push(Mutex::new(match own(block) {
                Ok(block) => block,
                Err(error) if missing.len() + 1 == count => return Err(error),
                Err(error) => {
                    missing.push((index, error.to_string()));
                    nothing(kind)?
                }
            }));
        }
        Ok(ParameterSets {
            blocks: own_blocks.into(),
            replaced: (count < tenants as usize).then(Arc::default),
            max_bytes,
            given: true,
            missing: missing.into(),
            tenants,
            length,
            kind,
        })
    }

    /// Why blocks could not be had.
    pub(crate) fn missing_why(&self) -> Vec<String> {
        self.missing.iter().map(|(_, reason)| reason.clone()).collect()
    }

    /// Blocks that could not be had, by their number, and why. What copies one fails.
    pub(crate) fn missing(&self) -> &[(usize, String)] {
        &self.missing
    }

    /// A tenant's block, of shape `[length]`.
    ///
    /// # Panics
    /// If there is no such tenant.
    pub fn of(&self, tenant: u32) -> Tensor {
        let own = self.replaced.as_ref().and_then(|replaced| {
            let replaced = replaced.lock().expect(UNBROKEN);
            replaced.get(&tenant).map(Tensor::shallow_clone)
        });
        own.unwrap_or_else(|| self.block(tenant).lock().expect(UNBROKEN).shallow_clone())
    }

    fn block(&self, tenant: u32) -> &Mutex<Tensor> {
        assert!(tenant < self.tenants, "tenant {tenant} of {}", self.tenants);
        &self.blocks[tenant as usize % self.blocks.len()]
    }

    /// Puts another block in the place of a tenant's, from where whoever asks next is given it. Who shared a file's
    /// block with it keeps that; random blocks stay shared.
    ///
    /// # Errors
    /// A block of another length, or no host memory for one more.
    ///
    /// # Panics
    /// If there is no such tenant.
    pub(crate) fn replace(&self, tenant: u32, block: Tensor) -> Result<(), ExecutorError> {
        let must = [self.length as i64];
        if block.size() != must {
            let got = format!("{:?}", block.size());
            return Err(ExecutorError::input(
                "a tenant's new parameters",
                format!("{must:?} numbers"),
                got,
            ));
        }
        self.put(tenant, block)
    }

    fn put(&self, tenant: u32, block: Tensor) -> Result<(), ExecutorError> {
        let of_all = self.block(tenant);
        let Some(replaced) = &self.replaced else {
            *of_all.lock().expect(UNBROKEN) = block;
            return Ok(());
        };
        let mut replaced = replaced.lock().expect(UNBROKEN);
        let room = self.max_bytes / self.bytes_per_tenant() - u64::from(self.distinct());
        // Of those who were deleted nothing is held.
        let others = replaced.iter().filter(|(of, block)| **of != tenant && block.numel() > 0);
        if block.numel() > 0 && others.count() as u64 >= room {
            return Err(ExecutorError::input(
                "host memory for tenants' parameters",
                "enough for another tenant's own",
                format!("{} bytes", self.max_bytes),
            ));
        }
        replaced.insert(tenant, block);
        Ok(())
    }

    /// Lets go of a tenant's block; others that share it keep it. What copies it for the tenant fails from now on,
    /// unless it is a random one that others share.
    ///
    /// # Errors
    /// None that is known: libtorch's.
    ///
    /// # Panics
    /// If there is no such tenant.
    pub(crate) fn discard(&self, tenant: u32) -> Result<(), ExecutorError> {
        match self.shared().is_some() && self.replaced.is_none() {
            true => Ok(()),
            false => self.put(tenant, nothing(self.kind)?),
        }
    }

    /// Whether blocks are somebody's own, and not random.
    pub(crate) fn are_given(&self) -> bool {
        self.given
    }

    /// Numbers in a block.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Their format.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Tenants served.
    pub fn tenants(&self) -> u32 {
        self.tenants
    }

    /// Blocks that differ; `tenants` where each has its own.
    pub fn distinct(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// Blocks that differ, where tenants must share some.
    pub(crate) fn shared(&self) -> Option<u32> {
        (self.distinct() < self.tenants).then(|| self.distinct())
    }

    /// Bytes of one tenant's parameters.
    pub fn bytes_per_tenant(&self) -> u64 {
        self.length * element_bytes(self.kind)
    }

    /// Bytes of host memory that all blocks take.
    pub fn host_bytes(&self) -> u64 {
        let replaced = self.replaced.as_ref().map_or(0, |replaced| {
            let replaced = replaced.lock().expect(UNBROKEN);
            replaced.values().filter(|block| block.numel() > 0).count() as u64
        });
        (u64::from(self.distinct()) + replaced) * self.bytes_per_tenant()
    }

    /// Another handle on the same memory, for another thread.
    pub fn share(&self) -> ParameterSets {
        ParameterSets {
            blocks: Arc::clone(&self.blocks),
            replaced: self.replaced.clone(),
            missing: Arc::clone(&self.missing),
            ..*self
        }
    }
}

/// Whether a tenant's block is there to be copied.
///
/// # Errors
/// It is none: libtorch would speak of its dimensions.
pub(crate) fn is_there(block: &Tensor) -> Result<(), ExecutorError> {
    match block.numel() {
        0 => Err(ExecutorError::input(
            "a tenant's parameters",
            "in host memory",
            "none: they could not be read, or the tenant was deleted",
        )),
        _ => Ok(()),
    }
}

/// Room for at most so many blocks of `length` numbers, cut from one piece of memory.
fn piece(blocks: u32, length: u64, kind: Kind, device: Device) -> Result<Vec<Tensor>, ExecutorError> {
    let bytes = element_bytes(kind);
    let stride = (length * bytes).next_multiple_of(ALIGNED_BYTES) / bytes;
    let blocks = i64::from(blocks).min((PIECE_BYTES / (stride * bytes)).max(1) as i64);
    let piece = empty_host_memory_for(device, &[blocks, stride as i64], kind)?.f_narrow(1, 0, length as i64)?;
    Ok(piece.f_unbind(0)?)
}

/// Fills blocks of `length` numbers on all cores: ten thousand tenants' have as many as a large model.
fn fill_all(
    blocks: &mut [Tensor],
    length: u64,
    room: Room<'_>,
    fill: &(impl Fn(u32, &mut [f32]) + Sync),
) -> Result<(), ExecutorError> {
    let length = usize::try_from(length).expect("blocks fit the address space");
    let cores = tenantry_profiles::cores() as usize;
    let share = blocks.len().div_ceil(cores);
    let fill_share = |(first, blocks): (usize, &mut [Tensor])| {
        prepare_lane_thread();
        // One for all, whose pages are there after the first.
        let mut numbers = Tensor::f_empty([length as i64], (Kind::Float, Device::Cpu))?;
        for (tenant, block) in (first as u32..).zip(blocks) {
            room.check()?;
            fill(tenant, slice_of(&mut numbers));
            tch::no_grad(|| block.f_copy_(&numbers))?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let firsts = (0..).step_by(share);
        let shares = firsts.zip(blocks.chunks_mut(share));
        let threads: Vec<_> = shares.map(|of| scope.spawn(move || fill_share(of))).collect();
        let mut done = threads.into_iter().map(|thread| thread.join().expect("filling does not panic"));
        done.try_for_each(|done: Result<(), ExecutorError>| done)
    })
}

/// No block.
fn nothing(kind: Kind) -> Result<Tensor, ExecutorError> {
    Ok(Tensor::f_empty([0], (kind, Device::Cpu))?)
}

/// How many tenants' blocks fit.
fn distinct_of(tenants: u32, block_bytes: u64, max_bytes: u64) -> Result<u32, ExecutorError> {
    if tenants == 0 {
        return Err(ExecutorError::input("tenants", "at least 1", 0));
    }
    let distinct = (max_bytes / block_bytes).min(u64::from(tenants)) as u32;
    if distinct == 0 {
        let must = format!("at least one tenant's parameters ({block_bytes} bytes)");
        return Err(ExecutorError::input(
            "host memory for tenants' parameters",
            must,
            format!("{max_bytes} bytes"),
        ));
    }
    Ok(distinct)
}

/// Bytes that are page-locked at once: each time takes the driver long, and PyTorch rounds them up to a power of two.
/// What is let go of of a piece is free when all of it is.
const PIECE_BYTES: u64 = 256 << 20;
/// Blocks begin at multiples of so many bytes, so that copies do.
const ALIGNED_BYTES: u64 = 256;

/// Why a lock can be had.
const UNBROKEN: &str = "nobody panics while it holds a block";

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn sets(tenants: u32, max_bytes: u64) -> Result<ParameterSets, ExecutorError> {
        let tenant_everywhere = |tenant: u32, out: &mut [f32]| out.fill(tenant as f32);
        ParameterSets::new(tenants, 10, DType::F32, Device::Cpu, max_bytes, tenant_everywhere)
    }

    #[test]
    fn tenants_share_round_robin_where_memory_is_short() {
        let sets = sets(5, 3 * 40 + 39).unwrap();
        assert_eq!(
            (
                sets.distinct(),
                sets.tenants(),
                sets.bytes_per_tenant(),
                sets.host_bytes()
            ),
            (3, 5, 40, 120)
        );
        let first: Vec<f64> = (0..5).map(|tenant| sets.of(tenant).double_value(&[9])).collect();
        assert_eq!(first, [0.0, 1.0, 2.0, 0.0, 1.0]);
        assert_eq!(sets.share().of(4).data_ptr(), sets.of(4).data_ptr());
    }

    /// Who stops a run while a thousand models are drawn need not wait for them.
    #[test]
    fn filling_ends_when_it_is_stopped() {
        let (stopped, filled) = (AtomicBool::new(false), AtomicU32::new(0));
        let stop = |_: u32, _: &mut [f32]| {
            filled.fetch_add(1, Ordering::Relaxed);
            stopped.store(true, Ordering::Relaxed);
        };
        let room = Room::until(u64::MAX, &stopped);
        let refused = ParameterSets::new(1_000, 10, DType::F32, Device::Cpu, room, stop).unwrap_err();
        assert!(matches!(refused, ExecutorError::Interrupted));
        // Each core may have been at one.
        assert!(filled.load(Ordering::Relaxed) <= tenantry_profiles::cores());
        let blocks = [1.0_f32, 2.0].map(|number| Ok(Tensor::from_slice(&[number])));
        let refused = ParameterSets::of_blocks(2, 1, DType::F32, Device::Cpu, room, blocks.into_iter()).unwrap_err();
        assert!(matches!(refused, ExecutorError::Interrupted), "and no file is missing");
    }

    #[test]
    fn blocks_are_cut_from_pieces() {
        let cut = |blocks, length| piece(blocks, length, Kind::BFloat16, Device::Cpu).unwrap();
        let small = cut(3, 130);
        let place = |block: &Tensor| block.data_ptr() as usize;
        assert_eq!(small.len(), 3);
        assert!(small.iter().all(|block| block.size() == [130] && block.is_contiguous()));
        let apart: Vec<usize> = small.windows(2).map(|pair| place(&pair[1]) - place(&pair[0])).collect();
        assert_eq!(apart, [512, 512]);
        // Of two bytes each.
        let two_fifths = PIECE_BYTES / 5;
        assert_eq!(cut(7, two_fifths).len(), 2, "as many as a piece holds");
        assert_eq!(cut(7, PIECE_BYTES).len(), 1, "and one at least");
    }

    #[test]
    fn a_block_is_replaced_under_who_copies_it() {
        let own = sets(3, u64::MAX).unwrap();
        let (copied, other) = (own.of(1), own.share());
        other.replace(1, Tensor::full([10], 7.0, (Kind::Float, Device::Cpu))).unwrap();
        assert_eq!((copied.double_value(&[9]), own.of(1).double_value(&[9])), (1.0, 7.0));
        other.discard(1).unwrap();
        assert_eq!((own.of(1).numel(), own.of(2).double_value(&[0])), (0, 2.0));
        assert!(is_there(&own.of(2)).is_ok());
        let missing = is_there(&own.of(1)).unwrap_err().to_string();
        assert!(
            missing.starts_with("a tenant's parameters: must be in host memory, got none"),
            "{missing}"
        );
        // Random blocks mean nothing, and stay shared.
        let shared = sets(3, 2 * 40).unwrap();
        shared.discard(2).unwrap();
        assert_eq!(shared.of(0).numel(), 10, "others need it");
        let message = own.replace(0, Tensor::zeros([9], (Kind::Float, Device::Cpu))).unwrap_err();
        assert_eq!(
            message.to_string(),
            "a tenant's new parameters: must be [10] numbers, got [9]"
        );
    }

    /// Files are tenants' own: memory for fewer is none.
    #[test]
    fn nobody_is_given_the_file_of_another() {
        let of = |files: i64, max_bytes| {
            let blocks = (0..files).map(|file| Ok(Tensor::full([10], file, (Kind::Float, Device::Cpu))));
            let blocks = blocks.collect::<Vec<_>>().into_iter();
            ParameterSets::of_blocks(4, 10, DType::F32, Device::Cpu, max_bytes, blocks)
        };
        let message = of(3, 2 * 40).unwrap_err().to_string();
        let must = "must be enough for 3 tenants' own (120 bytes), got 80 bytes";
        assert_eq!(message, format!("host memory for tenants' parameters: {must}"));
        let first = |sets: &ParameterSets| [0, 1, 2, 3].map(|tenant| sets.of(tenant).double_value(&[0]));
        assert_eq!(
            first(&of(3, 3 * 40).unwrap()),
            [0.0, 1.0, 2.0, 0.0],
            "in turns where there are fewer"
        );
        assert_eq!(
            first(&of(9, 4 * 40).unwrap()),
            [0.0, 1.0, 2.0, 3.0],
            "as many as there are tenants"
        );
    }

    /// Who shares a file with others and is updated has its own from then on, as far as there is memory.
    #[test]
    fn an_update_is_one_tenants_alone() {
        let blocks = (0..2).map(|file| Ok(Tensor::full([10], file, (Kind::Float, Device::Cpu))));
        let blocks = blocks.collect::<Vec<_>>().into_iter();
        let sets = ParameterSets::of_blocks(6, 10, DType::F32, Device::Cpu, 3 * 40 + 39, blocks).unwrap();
        let other = sets.share();
        let new = |value: i64| Tensor::full([10], value, (Kind::Float, Device::Cpu));
        other.replace(2, new(7)).unwrap();
        let first = |tenant: u32| sets.of(tenant).double_value(&[0]);
        assert_eq!([0, 2, 4].map(first), [0.0, 7.0, 0.0]);
        assert_eq!(sets.host_bytes(), 3 * 40);
        let message = sets.replace(4, new(8)).unwrap_err().to_string();
        let must = "must be enough for another tenant's own, got 159 bytes";
        assert_eq!(message, format!("host memory for tenants' parameters: {must}"));
        sets.replace(2, new(9)).unwrap();
        sets.discard(2).unwrap();
        assert_eq!([0, 2, 4].map(|tenant| other.of(tenant).numel()), [10, 0, 10]);
        // Of who was deleted nothing is held, and who comes back needs memory like anybody.
        sets.replace(4, new(8)).unwrap();
        let message = sets.replace(2, new(7)).unwrap_err().to_string();
        assert_eq!(message, format!("host memory for tenants' parameters: {must}"));
        assert_eq!(sets.host_bytes(), 3 * 40);
    }

    #[test]
    fn memory_for_less_than_one_block_is_refused() {
        assert_eq!(
            sets(5, 39).unwrap_err().to_string(),
            "host memory for tenants' parameters: must be at least one tenant's parameters (40 bytes), got 39 bytes"
        );
        assert_eq!(
            sets(0, 400).unwrap_err().to_string(),
            "tenants: must be at least 1, got 0"
        );
    }
}
