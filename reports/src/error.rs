use std::path::PathBuf;

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
