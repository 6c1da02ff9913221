//! The subcommands.

pub mod check;
pub mod doctor;
#[cfg(feature = "libtorch")]
pub mod execute;
pub mod presets;
pub mod profile;
pub mod report;
pub mod reproduce;
pub mod schema;
pub mod simulate;
pub mod trace;
#[cfg(feature = "libtorch")]
pub mod validate;
