//! Readers of public trace formats, and Tenantry's own.
//!
//! All stream, plain or gzip (told apart by the first two bytes, not by the name), in memory that does not grow with
//! the file. A broken line is an error with file, line and column. Which format a file is in is found from its first
//! line; any other CSV with a header is read through a mapping of its columns ([`Columns`]).
//!
//! Read `format` first (the formats, as data), then `records`.

pub mod activity;
mod changes;
mod claims;
mod columns;
mod counts;
pub(crate) mod field;
mod format;
mod guard;
mod invocations;
pub(crate) mod lines;
mod mapped;
pub mod mooncake;
mod names;
pub mod own;
mod parquet;
mod records;
pub mod shape;
pub mod sharegpt;
mod thrift;
pub mod tokenizer;

use std::path::Path;

pub use changes::Changes;
pub use columns::{Columns, Instants};
pub use counts::Counts;
pub use format::Format;
pub use guard::unpanicked;
pub use records::{Record, Records};

use crate::error::TraceError;
use crate::request::Lengths;

/// All pairs of lengths of a recording, in its order. Requests without an answer are left out.
///
/// # Errors
/// As [`Records`], and [`TraceError::File`] where there is no pair.
pub fn lengths(path: &Path, skip_bad_lines: bool) -> Result<Vec<Lengths>, TraceError> {
    lengths_with(path, skip_bad_lines, None)
}

/// As [`lengths`], with ShareGPT's texts counted by the `tokenizer.json` at `tokenizer`, where it is given.
///
/// # Errors
/// As [`lengths`], and those of [`tokenizer::TokenizerJson::open`].
pub fn lengths_with(path: &Path, skip_bad_lines: bool, tokenizer: Option<&Path>) -> Result<Vec<Lengths>, TraceError> {
    let mut pairs = Vec::new();
    let mut records = Records::open_with(path, skip_bad_lines, tokenizer::given(tokenizer)?)?;
    for record in records.by_ref() {
        let record = record?;
        if let (Some(input), Some(output)) = (record.input_tokens, record.output_tokens) {
            pairs.push(Lengths { input, output });
        }
    }
    if pairs.is_empty() {
        return Err(TraceError::none(
            path,
            "have requests with input and output",
            records.skipped(),
        ));
    }
    Ok(pairs)
}
