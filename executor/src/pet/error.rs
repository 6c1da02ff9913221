//! What can be wrong with a task: each is refused alone.

use tenantry_core::pet::tensors::Misfit;

use crate::error::ExecutorError;

/// Why a task or a shared model was not taken.
#[derive(Debug, thiserror::Error)]
pub enum PetError {
    /// A task of a model that is not there.
    #[error("task {task}: shared model: must be one of {known}, got {got}{near}")]
    UnknownModel {
        /// Whose.
        task: u32,
        /// The models that there are.
        known: String,
        /// What was asked for.
        got: String,
        /// What was probably meant.
        near: String,
    },
    /// A kind that nobody implements.
    #[error("task {task}: kind: must be one of {known}, got {got}{near}")]
    UnknownKind {
        /// Whose.
        task: u32,
        /// The kinds that there are.
        known: String,
        /// What was asked for.
        got: String,
        /// What was probably meant.
        near: String,
    },
    /// A task that is there already.
    #[error("task {task}: must be registered once, got a second registration (it is {registered})")]
    Registered {
        /// Which.
        task: u32,
        /// As what it is registered.
        registered: String,
    },
    /// A shared model that is there already.
    #[error("shared model {model}: must be added once, got a second of this name")]
    ModelAdded {
        /// Which.
        model: String,
    },
    /// Parameters that do not fit the shared model.
    #[error("task {task}: {misfit}")]
    Misfit {
        /// Whose.
        task: u32,
        /// What does not fit.
        misfit: Misfit,
    },
    /// No memory left for it.
    #[error("{what}: must fit the {free_bytes} bytes left of {max_bytes}, got {bytes} bytes")]
    OutOfMemory {
        /// The task or model.
        what: String,
        /// What it takes.
        bytes: u64,
        /// What is left.
        free_bytes: u64,
        /// What there is in all.
        max_bytes: u64,
    },
    /// A task that was never registered.
    #[error("task {task}: must be registered, got no registration")]
    NotRegistered {
        /// Which.
        task: u32,
    },
    /// A task that is not on the device.
    #[error("task {task}: must be loaded before it is batched, got a task in the repository only")]
    NotLoaded {
        /// Which.
        task: u32,
    },
    /// A task of another model than its batch.
    #[error("task {task}: must be of shared model {model} in this batch, got one of {got}")]
    OtherModel {
        /// Which.
        task: u32,
        /// The batch's.
        model: String,
        /// The task's.
        got: String,
    },
    /// libtorch failed, a file could not be read, or an argument does not fit.
    #[error(transparent)]
    Executor(#[from] ExecutorError),
}

impl From<tch::TchError> for PetError {
    fn from(error: tch::TchError) -> PetError {
        PetError::Executor(error.into())
    }
}
