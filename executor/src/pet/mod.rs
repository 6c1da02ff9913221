//! Parameter-efficient tasks of several kinds over shared models, computed in one batch (PetS, Zhou et al., USENIX ATC
//! 2022).
//!
//! For every linear layer, each kind is put into three operations (PetS, section 3.1): the product with the shared
//! weight, once for the whole batch; a bias, shared or the task's own; and a light operator of the task's, over its own
//! mini-batch only.
//!
//! A [`Registry`] holds shared models and tasks. A task is registered as (task, shared model, kind) with its
//! [`Parameters`], which stay compressed: masks as bits, differences as CSR. Loading a task brings it onto the device
//! in the one form in which it is computed: sparse matrices as CSR with their values, 8 bytes an element, so that a
//! mask of 5 % zeros takes 34 MB of BERT-base and not the 10.6 MB of its bits; everything else as dense blocks.
//! [`Registry::batch`] makes a [`PetBatch`], whose [`layers`](PetBatch::layers) is the forward pass; [`Streams`] are
//! the threads that its operators run on. [`Registry::own_model`] merges a task into a full model of its own, as
//! systems serve it that know no tasks.
//!
//! A new kind is one file that implements [`Kind`], and a line in [`KINDS`]. To be planned and simulated too, by a core
//! that knows no tensors, it is one more file there that implements `Rules` (`pet/kinds/`: its tensors' names and
//! shapes, bytes and work) and a line, and a name in the profiles' [`PetKind`](tenantry_profiles::PetKind), whose other
//! arms are two: that line, and its launches and bytes in the profiles' `roofline/ops.rs`. Read `bit_fit.rs` for the
//! shortest, then `batch.rs` for the forward pass.

mod adapters;
mod batch;
mod bit_fit;
mod diff_pruning;
mod error;
mod kind;
mod loaded;
mod lora;
mod mask_bert;
mod own_model;
mod parameters;
mod registry;
mod sparse;
mod streams;

#[cfg(test)]
pub(crate) mod tests;

pub use batch::{Group, PetBatch};
pub use error::PetError;
pub use kind::{KINDS, Kind, Linear, Norm, Operators, kind_named};
pub use own_model::OwnModel;
pub use parameters::{Array, Parameters, Reader, StoredHead};
pub use registry::{Registry, Triplet};
pub use streams::Streams;
pub use tenantry_core::pet::tensors::{Misfit, Resident};

pub(crate) use batch::Member;
pub(crate) use loaded::LoadedOperators;
