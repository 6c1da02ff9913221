//! The subcommands.

pub mod check;
pub mod doctor;
#[cfg(feature = "libtorch")]
pub mod execute;
pub mod presets;
pub mod profile;
pub mod schema;
pub mod simulate;
#[cfg(feature = "libtorch")]
pub mod validate;
