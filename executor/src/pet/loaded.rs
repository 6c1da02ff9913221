//! A task's operators, as all threads that compute them hold them.

use std::ops::Deref;
use std::sync::Arc;

use super::kind::Operators;

/// A loaded task's operators. Several threads may compute them at the same time, as mini-batches of one task on streams of their own do.
#[derive(Clone, Debug)]
pub(crate) struct LoadedOperators(Arc<ReadOnly>);

#[derive(Debug)]
struct ReadOnly(Box<dyn Operators>);

// SAFETY: a tensor is not `Sync` for `tch`, which cannot know what is done to it. Operators are only read once they are loaded: `Operators` has no
// method that takes `&mut self`, and its implementors hold tensors alone, which they change nowhere. Libtorch lets several threads read a
// tensor at once, and counts its handles atomically.
unsafe impl Sync for ReadOnly {}

impl LoadedOperators {
    pub fn new(operators: Box<dyn Operators>) -> LoadedOperators {
        LoadedOperators(Arc::new(ReadOnly(operators)))
    }
}

impl Deref for LoadedOperators {
    type Target = dyn Operators;

    fn deref(&self) -> &Self::Target {
        &*self.0.0
    }
}
