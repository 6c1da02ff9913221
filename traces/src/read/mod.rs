//! Readers of public trace formats, and Tenantry's own.
//!
//! All stream, plain or gzip (told apart by the first two bytes, not by the name), in memory that does not grow with the
//! file. A broken line is an error with file, line and column. Which format a file is in is found from its first line.
//!
//! Read `format` first (the formats, as data), then `records`.

pub mod activity;
mod counts;
pub(crate) mod field;
mod format;
pub(crate) mod lines;
pub mod mooncake;
pub mod own;
mod records;
pub mod sharegpt;

use std::path::Path;

pub use counts::Counts;
pub use format::Format;
pub use records::{Record, Records};

use crate::error::TraceError;
use crate::request::Lengths;

/// All pairs of lengths of a recording, in its order. Requests without an answer are left out.
///
/// # Errors
/// As [`Records`], and [`TraceError::File`] where there is no pair.
pub fn lengths(path: &Path, skip_bad_lines: bool) -> Result<Vec<Lengths>, TraceError> {
    let mut pairs = Vec::new();
    for record in Records::open(path, skip_bad_lines)? {
        let record = record?;
        if let (Some(input), Some(output)) = (record.input_tokens, record.output_tokens) {
            pairs.push(Lengths { input, output });
        }
    }
    if pairs.is_empty() {
        return Err(TraceError::file(
            path,
            "must have requests with input and output, got none",
        ));
    }
    Ok(pairs)
}
