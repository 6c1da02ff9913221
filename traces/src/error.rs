//! What can be wrong with a trace or with the specification of a workload.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::read::lines::BrokenGzip;
use crate::time::Time;

/// Why a workload could not be read or generated.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A file cannot be read or written, or a folder not be read.
    #[error("{path}: must be {access}, got: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        access: Access,
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
        /// Which column, what it must be, and what it is.
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
    /// A table lacks a column that was asked for.
    #[error("{path}: must have a column `{name}`, got `{}`", columns.join("`, `"))]
    NoColumn {
        /// The file.
        path: PathBuf,
        /// The column.
        name: String,
        /// Those that it has.
        columns: Vec<String>,
    },
    /// A table has not what every table of its kind has: a first line, one column of a name, items.
    #[error("{path}: must have {what}, got {got}")]
    Lacks {
        /// The file.
        path: PathBuf,
        /// What it must have.
        what: String,
        /// What it has.
        got: String,
    },
    /// A workload's specification cannot be met.
    #[error("{field}: {message}")]
    Spec {
        /// The path of the field in the scenario, as in `workload.arrivals.poisson.rate_per_s`.
        field: String,
        /// What it must be, and what it is.
        message: String,
    },
}

/// What was tried with a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To read a file.
    Read,
    /// To read what is in a folder.
    List,
    /// To write a file.
    Write,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Access::Read => "a file that can be read",
            Access::List => "a folder that can be read",
            Access::Write => "a file that can be written",
        })
    }
}

impl TraceError {
    /// A file that was to be read.
    pub(crate) fn unreadable(path: &Path, source: std::io::Error) -> TraceError {
        // What is wrong with a file's contents is not what the system says.
        if let Some(broken) = source.get_ref().and_then(|error| error.downcast_ref::<BrokenGzip>()) {
            return TraceError::file(path, broken.to_string());
        }
        TraceError::io(path, Access::Read, source)
    }

    /// A folder in which something was to be found.
    pub(crate) fn unlisted(folder: &Path, source: std::io::Error) -> TraceError {
        TraceError::io(folder, Access::List, source)
    }

    /// A file that was to be written.
    pub(crate) fn unwritable(path: &Path, source: std::io::Error) -> TraceError {
        TraceError::io(path, Access::Write, source)
    }

    fn io(path: &Path, access: Access, source: std::io::Error) -> TraceError {
        TraceError::Io {
            path: path.to_path_buf(),
            access,
            source,
        }
    }

    pub(crate) fn file(path: &Path, message: impl Into<String>) -> TraceError {
        TraceError::File {
            path: path.to_path_buf(),
            message: message.into(),
        }
    }

    /// A table that must have `what`, and has `got`.
    pub(crate) fn lacks(path: &Path, what: impl Into<String>, got: impl Into<String>) -> TraceError {
        TraceError::Lacks {
            path: path.to_path_buf(),
            what: what.into(),
            got: got.into(),
        }
    }

    /// A file without what there must be, of which `skipped` lines were broken and left out: those may be why.
    pub(crate) fn none(path: &Path, must: &str, skipped: u64) -> TraceError {
        TraceError::file(path, format!("must {must}, got {}", none_but(skipped)))
    }

    /// `field` must be `must_be`, but is `got`.
    pub(crate) fn spec(field: &str, must_be: &str, got: impl std::fmt::Display) -> TraceError {
        TraceError::Spec {
            field: field.to_string(),
            message: format!("must be {must_be}, got {got}"),
        }
    }
}

/// Nothing, as an error quotes it, where so many lines were broken and left out.
pub fn none_but(skipped: u64) -> String {
    match skipped {
        0 => "none".to_owned(),
        1 => "none but a broken line, which was left out".to_owned(),
        skipped => format!("none but {skipped} broken lines, which were left out"),
    }
}

/// What is wrong with a record at an instant that stands after one of a later instant; in nanoseconds where seconds
/// look alike.
pub fn out_of_order(at: Time, after: Time) -> String {
    let in_seconds = [at, after].map(|time| time.to_string());
    let [at, after] = match in_seconds[0] == in_seconds[1] {
        true => [at, after].map(|time| format!("{} ns", time.0)),
        false => in_seconds,
    };
    format!("must be in order of time, got {at} after {after}")
}

/// A number that a specification must have above 0 and finite.
pub(crate) fn positive(field: &str, value: f64) -> Result<f64, TraceError> {
    if value.is_finite() && value > 0.0 {
        Ok(value)
    } else {
        Err(TraceError::spec(field, "a finite number above 0", value))
    }
}

/// A number that a specification must have at 0 or above, and finite.
pub(crate) fn not_negative(field: &str, value: f64) -> Result<f64, TraceError> {
    if value.is_finite() && value >= 0.0 {
        Ok(value)
    } else {
        Err(TraceError::spec(field, "a finite number, 0 or above", value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_that_differ_look_different() {
        for (at, after, got) in [
            (1_000_000_000, 2_500_000_000, "1.000000 s after 2.500000 s"),
            (3, 9, "3 ns after 9 ns"),
            (
                1_700_000_000_000_000_001,
                1_700_000_000_000_000_002,
                "1700000000000000001 ns after 1700000000000000002 ns",
            ),
        ] {
            let told = out_of_order(Time(at), Time(after));
            assert_eq!(told, format!("must be in order of time, got {got}"));
        }
    }
}
