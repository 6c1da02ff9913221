//! Generators fitted to public recordings, and the fitting.
//!
//! Each submodule has the fitted numbers as constants, says where they come from, and has the function that they were
//! fitted with; `tests/all/fits.rs` fits again and compares, and checks the generators against the half of the data
//! that the fit did not see.

pub mod azure_functions;
pub mod cascade;
mod memory;
pub mod mmpp;
pub mod quantiles;
pub mod sharegpt;
pub mod twitter;
