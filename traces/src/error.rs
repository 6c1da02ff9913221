//! What can be wrong with a trace.

use std::path::PathBuf;

/// Why a workload could not be read or generated.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be opened or read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line is not what the format says.
    #[error("{path}:{line}: {message}")]
    Line {
        /// The file.
        path: PathBuf,
        /// 1-based.
        line: u64,
        /// What it must be, and what it is.
        message: String,
    },
    /// The whole is not usable: empty, of an unknown format, …
    #[error("{path}: {message}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
}
