//! A slab whose handles know when they are stale. Slots are reused last-in first-out, so runs repeat exactly.

use std::marker::PhantomData;

/// A slot and the count of its occupants.
pub trait Handle: Copy {
    /// Puts a handle together.
    fn new(slot: u32, generation: u32) -> Self;
    /// Index into the slab.
    fn slot(self) -> usize;
    /// Which occupant of the slot.
    fn generation(self) -> u32;
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

/// Values under handles of type `H`.
#[derive(Debug)]
pub struct Slab<H, T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    handle: PhantomData<H>,
}

impl<H, T> Default for Slab<H, T> {
    fn default() -> Self {
        Slab {
            entries: Vec::new(),
            free: Vec::new(),
            handle: PhantomData,
        }
    }
}

impl<H: Handle, T> Slab<H, T> {
    /// Stores `value`.
    #[inline]
    pub fn insert(&mut self, value: T) -> H {
        if let Some(slot) = self.free.pop() {
            let entry = &mut self.entries[slot as usize];
            entry.value = Some(value);
            return H::new(slot, entry.generation);
        }
        let slot = u32::try_from(self.entries.len()).expect("fewer than 2^32 live handles");
        self.entries.push(Entry {
            generation: 0,
            value: Some(value),
        });
        H::new(slot, 0)
    }

    /// The value, unless the handle is stale.
    #[inline]
    pub fn get(&self, handle: H) -> Option<&T> {
        let entry = self.entries.get(handle.slot())?;
        if entry.generation == handle.generation() {
            entry.value.as_ref()
        } else {
            None
        }
    }

    /// The value, unless the handle is stale.
    #[inline]
    pub fn get_mut(&mut self, handle: H) -> Option<&mut T> {
        let entry = self.entries.get_mut(handle.slot())?;
        if entry.generation == handle.generation() {
            entry.value.as_mut()
        } else {
            None
        }
    }

    /// The value in a slot of which somebody else knows that there is one, and its handle.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    #[track_caller]
    pub fn in_slot(&self, slot: u32) -> (H, &T) {
        let entry = &self.entries[slot as usize];
        let value = entry.value.as_ref().expect("the slot is taken");
        (H::new(slot, entry.generation), value)
    }

    /// Likewise, to be changed.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    #[track_caller]
    pub fn in_slot_mut(&mut self, slot: u32) -> &mut T {
        self.entries[slot as usize].value.as_mut().expect("the slot is taken")
    }

    /// Takes the value out; the handle is stale from now on.
    #[inline]
    pub fn remove(&mut self, handle: H) -> Option<T> {
        let entry = self.entries.get_mut(handle.slot())?;
        if entry.generation != handle.generation() {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(handle.slot() as u32);
        Some(value)
    }

    /// Drops a value where it is; the handle is stale from now on.
    ///
    /// # Panics
    /// If it is already.
    #[inline]
    #[track_caller]
    pub fn discard(&mut self, handle: H) {
        let entry = &mut self.entries[handle.slot()];
        assert!(
            entry.generation == handle.generation() && entry.value.is_some(),
            "handle is live"
        );
        entry.value = None;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(handle.slot() as u32);
    }

    /// How many values there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All values with their handles, by slot.
    pub fn iter(&self) -> impl Iterator<Item = (H, &T)> {
        self.entries.iter().enumerate().filter_map(|(slot, entry)| {
            entry.value.as_ref().map(|value| (H::new(slot as u32, entry.generation), value))
        })
    }
}

impl<H: Handle, T> std::ops::Index<H> for Slab<H, T> {
    type Output = T;
    #[inline]
    #[track_caller]
    fn index(&self, handle: H) -> &T {
        self.get(handle).expect("handle is live")
    }
}

impl<H: Handle, T> std::ops::IndexMut<H> for Slab<H, T> {
    #[inline]
    #[track_caller]
    fn index_mut(&mut self, handle: H) -> &mut T {
        self.get_mut(handle).expect("handle is live")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::RequestId;

    #[test]
    fn stale_handles_find_nothing() {
        let mut slab: Slab<RequestId, char> = Slab::default();
        let a = slab.insert('a');
        assert_eq!(slab.remove(a), Some('a'));
        let b = slab.insert('b');
        assert_eq!(a.slot, b.slot);
        assert_eq!(slab.get(a), None);
        assert_eq!(slab.remove(a), None);
        assert_eq!(slab[b], 'b');
        assert_eq!(slab.len(), 1);
    }
}
