//! Libraries that panic at broken files.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls a library that takes parts of its files for granted (`tokenizers`, `parquet`), and turns its panic into an
/// error that says what was got: a user's file is no reason to fall over. What the panic leaves half done must not be
/// used again.
pub fn unpanicked<T>(call: impl FnOnce() -> T) -> Result<T, &'static str> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|_| "one that the library which reads it cannot take")
}
