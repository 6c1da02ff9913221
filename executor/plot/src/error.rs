//! What can go wrong with a table, its building and its reading, in the form `file: field: must be …, got …`.

use std::io;
use std::path::{Path, PathBuf};

/// An error of the caller's own code: the corpus that is counted, the layers that encode.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a table was refused, not built, or not read.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// A file or folder could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The file is no PLOT table, or was mangled as text.
    #[error("{}: magic: must be a PLOT table's, got {got:02x?}", path.display())]
    Magic {
        /// The file.
        path: PathBuf,
        /// Its first bytes.
        got: [u8; 8],
    },
    /// The table was written with the other byte order.
    #[error("{}: byte order: must be little-endian, got big-endian; build it again on this kind of machine", path.display())]
    ByteOrder {
        /// The file.
        path: PathBuf,
    },
    /// The table is of another version of the format.
    #[error("{}: version: must be {must}, got {got}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// What this code reads.
        must: u32,
        /// What the file is.
        got: u32,
    },
    /// The file is shorter than its header says, or was cut while in use.
    #[error("{}: length: must be {must_bytes} bytes, got {got_bytes}: the file was cut", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// What is needed.
        must_bytes: u64,
        /// What is there.
        got_bytes: u64,
    },
    /// A field of a header or a plan is not what it must be.
    #[error("{}: {field}: must be {must}, got {got}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The field.
        field: &'static str,
        /// What it must be.
        must: String,
        /// What it is.
        got: String,
    },
    /// The bytes are not those that were written.
    #[error("{}: {part}: must have the checksum it was written with: the file is corrupt; build it again", path.display())]
    Checksum {
        /// The file.
        path: PathBuf,
        /// Which part: header, index, rows from one fragment to another.
        part: String,
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
    /// The corpus could not be read.
    #[error("corpus, sequence {sequence}: {source}")]
    Corpus {
        /// How many sequences were read before.
        sequence: u64,
        /// The caller's error.
        source: Cause,
    },
    /// The lower layers could not be run.
    #[error("fragments {first} to {last}: {source}")]
    Encode {
        /// The chunk's first fragment.
        first: u64,
        /// Its last.
        last: u64,
        /// The caller's error.
        source: Cause,
    },
    /// The caller's progress function said to stop; building again goes on from here.
    #[error("{}: interrupted with {done} of {total} fragments encoded; building again goes on from there", path.display())]
    Interrupted {
        /// The table that was to be built.
        path: PathBuf,
        /// Fragments encoded and kept.
        done: u64,
        /// Fragments to encode.
        total: u64,
    },
}

impl PlotError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> PlotError + '_ {
        move |source| PlotError::Io {
            path: path.to_path_buf(),
            source,
        }
    }

    pub(crate) fn field(path: &Path, field: &'static str, must: impl Into<String>, got: impl ToString) -> PlotError {
        PlotError::Field {
            path: path.to_path_buf(),
            field,
            must: must.into(),
            got: got.to_string(),
        }
    }

    pub(crate) fn input(what: impl Into<String>, must: impl Into<String>, got: impl ToString) -> PlotError {
        PlotError::Input {
            what: what.into(),
            must: must.into(),
            got: got.to_string(),
        }
    }
}
