use std::path::{Path, PathBuf};

/// A report that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The file system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// A table of requests could not be written.
    #[error("{}: {source}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// What the writer said.
        source: parquet::errors::ParquetError,
    },
    /// A file of a run's folder that is not what it should be.
    #[error("{}: {message}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What it must be, and what it is.
        message: String,
    },
    /// A figure that could not be drawn.
    #[error("{}: {message}", path.display())]
    Figure {
        /// The file.
        path: PathBuf,
        /// What the plotting library said.
        message: String,
    },
    /// A value that JSON cannot hold.
    #[error("cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A row that CSV cannot hold.
    #[error("cannot be written as CSV: {0}")]
    Csv(#[from] csv::Error),
    /// The page's template, which is part of this program: a mistake in Tenantry.
    #[error("the report's template is broken: {0:#}")]
    Template(#[from] minijinja::Error),
}

impl ReportError {
    pub(crate) fn io(path: &Path, source: std::io::Error) -> ReportError {
        ReportError::Io {
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn parquet(path: &Path, source: parquet::errors::ParquetError) -> ReportError {
        ReportError::Parquet {
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn file(path: &Path, message: impl Into<String>) -> ReportError {
        ReportError::File {
            path: path.to_owned(),
            message: message.into(),
        }
    }
}
