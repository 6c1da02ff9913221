//! The open-addressed index: from a fragment's token ids to its ordinal.
//!
//! A slot is the key itself, a `u32` a token, and the fragment's ordinal plus one; zero is an empty slot. Keys lie in
//! the slot and not beside the row, so that a miss (the common case in a domain's table) touches neither rows nor disk.
//! Collisions go to the next slot. The home slot is the high half of `hash × slots`, so that the number of slots need
//! not be a power of two.

use std::io;

use crate::memory::{Memory, prefetch};

/// Ordinals are `u32`, and one more than the last must be one too.
pub(crate) const FRAGMENTS_MAX: u64 = u32::MAX as u64 - 1;

/// Slots for so many fragments: three quarters are filled, where a hit probes 2.5 slots in the mean and a miss 8.5
/// (Knuth, The Art of Computer Programming 3, 6.4), nearly all on the line already fetched.
pub(crate) fn slots_for(fragments: u64) -> u64 {
    fragments + fragments / 3 + 1
}

/// The hash of a key: part of the format, so never changed without a new version.
#[inline]
pub(crate) fn hash(key: &[u32]) -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ key.len() as u64;
    for &token in key {
        state = (state ^ u64::from(token)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state ^= state >> 29;
    }
    state = state.wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 32)
}

pub(crate) struct Slots {
    memory: Memory,
    fragment_tokens: usize,
    slots: u64,
}

impl Slots {
    /// Empty slots.
    pub(crate) fn new(fragment_tokens: usize, slots: u64) -> io::Result<Slots> {
        let bytes = slots as usize * Self::slot_bytes(fragment_tokens) as usize;
        Ok(Slots {
            memory: Memory::zeroed(bytes)?,
            fragment_tokens,
            slots,
        })
    }

    pub(crate) fn slot_bytes(fragment_tokens: usize) -> u64 {
        4 * (fragment_tokens as u64 + 1)
    }

    /// What is written to the file and read from it.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    /// Fails if an ordinal is out of range or the number of filled slots is not that of the fragments: what
    /// [`Slots::find`] relies on to end and to stay within the rows.
    pub(crate) fn consistent(&self, fragments: u64) -> bool {
        let mut filled = 0;
        for slot in self.slots() {
            let ordinal = slot[self.fragment_tokens];
            if u64::from(ordinal) > fragments {
                return false;
            }
            filled += u64::from(ordinal != 0);
        }
        filled == fragments && filled < self.slots
    }

    fn slots(&self) -> std::slice::ChunksExact<'_, u32> {
        self.memory.numbers().chunks_exact(self.fragment_tokens + 1)
    }

    /// Every key with its ordinal, in the order of the slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u32], u32)> {
        self.slots().filter_map(|slot| {
            let (&ordinal, key) = slot.split_last()?;
            (ordinal != 0).then(|| (key, ordinal - 1))
        })
    }

    #[inline]
    fn home(&self, hash: u64) -> u64 {
        ((u128::from(hash) * u128::from(self.slots)) >> 64) as u64
    }

    /// Fetches the slot at which a search for the key of this hash begins.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        let words: &[u32] = self.memory.numbers();
        prefetch(&words[self.home(hash) as usize * (self.fragment_tokens + 1)]);
    }

    /// The key's ordinal, or the position in the memory of the empty slot where it would be.
    #[inline]
    fn search(&self, hash: u64, key: &[u32]) -> Result<u32, usize> {
        let width = self.fragment_tokens + 1;
        assert_eq!(key.len(), self.fragment_tokens);
        let words: &[u32] = self.memory.numbers();
        let mut at = self.home(hash) as usize;
        loop {
            let slot = &words[at * width..][..width];
            match slot[width - 1] {
                0 => return Err(at * width),
                ordinal if &slot[..width - 1] == key => return Ok(ordinal - 1),
                _ => at += 1,
            }
            if at as u64 == self.slots {
                at = 0;
            }
        }
    }

    /// The ordinal of a key with its [`hash`].
    #[inline]
    pub(crate) fn find(&self, hash: u64, key: &[u32]) -> Option<u32> {
        self.search(hash, key).ok()
    }

    /// The key's ordinal; a new key gets `ordinal`. There must be an empty slot left beside the new key's.
    pub(crate) fn find_or_insert(&mut self, key: &[u32], ordinal: u32) -> u32 {
        match self.search(hash(key), key) {
            Ok(found) => found,
            Err(at) => {
                let words: &mut [u32] = bytemuck::cast_slice_mut(&mut self.memory);
                words[at..][..key.len()].copy_from_slice(key);
                words[at + key.len()] = ordinal + 1;
                ordinal
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_hash_map(keys in prop::collection::vec([0..9u32, 0..9u32, 0..9u32], 0..300)) {
            let mut slots = Slots::new(3, slots_for(keys.len() as u64)).unwrap();
            let mut map = HashMap::new();
            for key in &keys {
                let next = map.len() as u32;
                let ordinal = *map.entry(key).or_insert(next);
                prop_assert_eq!(slots.find_or_insert(key, next), ordinal);
            }
            for token in 0..729 {
                let key = [token / 81, token / 9 % 9, token % 9];
                prop_assert_eq!(slots.find(hash(&key), &key), map.get(&key).copied());
            }
            prop_assert_eq!(slots.iter().count(), map.len());
            prop_assert!(slots.consistent(map.len() as u64));
            prop_assert!(!slots.consistent(map.len() as u64 + 1));
        }
    }

    /// Neighbouring trigrams must not pile up: probes for hits near the theory's 2.5.
    #[test]
    fn dense_keys_spread() {
        let fragments = 40 * 40 * 40;
        let mut slots = Slots::new(3, slots_for(fragments)).unwrap();
        let keys = || (0..fragments as u32).map(|i| [i / 1600, i / 40 % 40, i % 40]);
        for (ordinal, key) in keys().enumerate() {
            slots.find_or_insert(&key, ordinal as u32);
        }
        let at: HashMap<Vec<u32>, u64> = slots
            .slots()
            .enumerate()
            .filter(|(_, slot)| slot[3] != 0)
            .map(|(at, slot)| (slot[..3].to_vec(), at as u64))
            .collect();
        let probes: u64 =
            keys().map(|key| (at[&key[..]] + slots.slots - slots.home(hash(&key))) % slots.slots + 1).sum();
        let mean = probes as f64 / fragments as f64;
        assert!((2.0..3.0).contains(&mean), "{mean} probes for a hit");
    }
}
