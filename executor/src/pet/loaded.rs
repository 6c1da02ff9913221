//! A task's operators, as all threads that compute them hold them, and the tensors of which they are made.

use std::ops::Deref;
use std::sync::Arc;

use tch::Tensor;

use super::kind::Operators;

/// A loaded task's operators. Several threads may compute them at the same time, as mini-batches of one task on streams
/// of their own do.
#[derive(Clone, Debug)]
pub(crate) struct LoadedOperators(Arc<dyn Operators>);

impl LoadedOperators {
    pub fn new(operators: Box<dyn Operators>) -> LoadedOperators {
        LoadedOperators(operators.into())
    }
}

impl Deref for LoadedOperators {
    type Target = dyn Operators;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

/// A parameter on the device that nobody changes any more.
#[derive(Debug)]
pub(crate) struct Constant(Tensor);

// SAFETY: a tensor is not `Sync` for `tch`, which cannot know what is done to it. This one is only lent, and `tch`
// changes a tensor through `&mut` alone, but for shallow clones, which nobody makes of it to change them. Libtorch lets
// several threads read a tensor at once, and counts its handles atomically.
unsafe impl Sync for Constant {}

impl From<Tensor> for Constant {
    fn from(tensor: Tensor) -> Constant {
        Constant(tensor)
    }
}

impl Deref for Constant {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        &self.0
    }
}
