//! What can go wrong, in the form `what: must be …, got …` where an input is at fault.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use tch::TchError;
use tenantry_plot::PlotError;
use tenantry_profiles::{AdapterImplementation, ModelError};

/// Why something was not computed, loaded or measured.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// libtorch refused or failed: no memory left on the device, a shape that does not fit.
    #[error("libtorch: {}", first_line(.0))]
    Torch(#[from] TchError),
    /// A shape that no transformer can have.
    #[error("model {model}: {error}")]
    Shape {
        /// The model's name.
        model: String,
        /// What is wrong with it.
        error: ModelError,
    },
    /// An argument that does not fit what it is used with.
    #[error("{what}: must be {must}, got {got}")]
    Input {
        /// The argument.
        what: String,
        /// What it must be.
        must: String,
        /// What it is.
        got: String,
    },
    /// An adapter implementation that this device's libtorch cannot run.
    #[error(
        "adapter implementation {implementation}: must be one that this device runs with this rank or bottleneck \
         (grouped takes such as fill multiples of 16 bytes), got: {reason}"
    )]
    Unavailable {
        /// Which.
        implementation: AdapterImplementation,
        /// What the probe said.
        reason: String,
    },
    /// A number format in which this device's libtorch has no product with a sparse matrix.
    #[error(
        "number format of the shared model: must be one for which this device has a sparse product, got {number}: \
         {reason}"
    )]
    NoSparseProduct {
        /// Which.
        number: String,
        /// What the probe said.
        reason: String,
    },
    /// A runtime of which CUDA captured no graph: it is computed op by op, which takes longer than it would.
    #[error("a runtime is not captured, and computed op by op: {}", .0)]
    Uncaptured(Box<ExecutorError>),
    /// A table of precomputed representations that could not be built, opened or read.
    #[error(transparent)]
    Plot(#[from] PlotError),
    /// Tables kept from an earlier run that are not what they were.
    #[error("{source}; remove {} and its tables are built anew", folder.display())]
    KeptTables {
        /// Where they lie.
        folder: PathBuf,
        /// What is wrong with them.
        source: PlotError,
    },
    /// A place for tables that cannot be read or written.
    #[error("{}: {source}; tables are kept in {}: XDG_CACHE_HOME names another place for them", path.display(), folder.display())]
    TablesPlace {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
        /// Where tables are kept.
        folder: PathBuf,
    },
    /// Labels, logits or texts that a cascade cannot be made of.
    #[error("{what}: {error}")]
    Cascade {
        /// The file that they are from.
        what: String,
        /// What is wrong.
        error: tenantry_cascade::CascadeError,
    },
    /// Threads that could not be had, or were lost.
    #[error(transparent)]
    Machine(#[from] tenantry_core::MachineError),
    /// A tokenizer that could not be read.
    #[error(transparent)]
    Trace(#[from] tenantry_traces::TraceError),
    /// The user stopped it.
    #[error("stopped before its end")]
    Interrupted,
    /// A file that could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A checkpoint whose content is not what the model needs.
    #[error("{}: {tensor}: must be {must}, got {got}", path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// The tensor at fault, by its name in Hugging Face's layout, or the file's header.
        tensor: String,
        /// What it must be.
        must: String,
        /// What it is.
        got: String,
    },
}

impl ExecutorError {
    pub(crate) fn input(what: impl Into<String>, must: impl Into<String>, got: impl ToString) -> ExecutorError {
        ExecutorError::Input {
            what: what.into(),
            must: must.into(),
            got: got.to_string(),
        }
    }

    /// What the operating system says of a file, with its path.
    pub(crate) fn file(path: impl AsRef<Path>) -> impl Fn(std::io::Error) -> ExecutorError {
        let path = path.as_ref().to_path_buf();
        move |source| {
            let path = path.clone();
            ExecutorError::File { path, source }
        }
    }

    /// The same of a file or folder among the tables that are kept in `folder`, with how they are kept elsewhere.
    pub(crate) fn of_tables_in(self, folder: &Path) -> ExecutorError {
        match self {
            ExecutorError::File { path, source } | ExecutorError::Plot(PlotError::Io { path, source })
                if path.starts_with(folder) =>
            {
                let folder = folder.to_path_buf();
                ExecutorError::TablesPlace { path, source, folder }
            }
            other => other,
        }
    }

    /// A tensor, a field or a header of a file that is not what it must be.
    pub(crate) fn checkpoint(
        path: impl AsRef<Path>,
        tensor: impl Into<String>,
        must: impl Into<String>,
        got: impl ToString,
    ) -> ExecutorError {
        ExecutorError::Checkpoint {
            path: path.as_ref().to_path_buf(),
            tensor: tensor.into(),
            must: must.into(),
            got: got.to_string(),
        }
    }

    /// Whether there was too little memory, on a GPU or in the host: nothing is wrong otherwise, and what needs less
    /// may go on.
    pub fn is_out_of_memory(&self) -> bool {
        let ExecutorError::Torch(error) = self else {
            return false;
        };
        let text = error.to_string();
        // The host's allocator and a GPU's libraries have words of their own for it.
        ["out of memory", "can't allocate memory", "_STATUS_ALLOC_FAILED"]
            .iter()
            .any(|words| text.contains(words))
    }

    /// Whether what was asked for or handed in is at fault, and not the device, a thread, or a file while it is read or
    /// written.
    pub fn is_bad_input(&self) -> bool {
        match self {
            ExecutorError::Shape { .. }
            | ExecutorError::Input { .. }
            | ExecutorError::Unavailable { .. }
            | ExecutorError::NoSparseProduct { .. }
            | ExecutorError::Cascade { .. }
            | ExecutorError::Checkpoint { .. } => true,
            ExecutorError::File { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
            ExecutorError::Trace(error) => !matches!(error, tenantry_traces::TraceError::Io { .. }),
            ExecutorError::Torch(_)
            | ExecutorError::Uncaptured(_)
            | ExecutorError::Plot(_)
            | ExecutorError::KeptTables { .. }
            | ExecutorError::TablesPlace { .. }
            | ExecutorError::Machine(_)
            | ExecutorError::Interrupted => false,
        }
    }

    /// [`ExecutorError::Interrupted`] once the flag is set.
    pub(crate) fn if_set(interrupt: &AtomicBool) -> Result<(), ExecutorError> {
        match interrupt.load(Ordering::Relaxed) {
            true => Err(ExecutorError::Interrupted),
            false => Ok(()),
        }
    }

    /// The same of one of several texts, told by its number from 0.
    pub(crate) fn of_item(self, item: usize) -> ExecutorError {
        match self {
            ExecutorError::Cascade { what, error } => ExecutorError::Cascade {
                what: format!("item {item}: {what}"),
                error,
            },
            other => other,
        }
    }
}

/// libtorch's messages carry a C++ stack trace from the second line on.
pub(crate) fn first_line(error: &TchError) -> String {
    let text = match error {
        TchError::Torch(text) => text.clone(),
        other => other.to_string(),
    };
    text.lines().next().unwrap_or_default().to_string()
}
