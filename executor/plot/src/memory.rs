//! Anonymous memory for what is looked up at random: indexes and the rows of the memory tier.

use std::io;
use std::ops::{Deref, DerefMut};

use bytemuck::AnyBitPattern;
use memmap2::{Advice, MmapMut};

/// Zeroed anonymous pages, huge ones where the system gives them: random reads over gigabytes otherwise miss the TLB at
/// each.
pub(crate) struct Memory {
    map: MmapMut,
    bytes: usize,
}

impl Memory {
    pub(crate) fn zeroed(bytes: usize) -> io::Result<Memory> {
        let map = MmapMut::map_anon(bytes.max(1))?;
        // A kernel without huge pages refuses the advice: small ones are slower, not wrong.
        let _ = map.advise(Advice::HugePage);
        Ok(Memory { map, bytes })
    }

    /// Keeps the pages from being swapped out. Fails where the limit on locked memory (`ulimit -l`) is lower.
    pub(crate) fn lock(&self) -> io::Result<()> {
        self.map.lock()
    }

    /// The content as numbers. A map begins at a page, so that the alignment fits.
    pub(crate) fn numbers<T: AnyBitPattern>(&self) -> &[T] {
        bytemuck::cast_slice(self)
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map[..self.bytes]
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.map[..self.bytes]
    }
}

/// Asks the processor to fetch what will be read soon.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and cannot fault.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
