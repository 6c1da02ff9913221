//! The subcommands that need no device.

pub(crate) mod check;
pub(crate) mod completions;
pub mod doctor;
pub(crate) mod merge;
pub(crate) mod new;
pub(crate) mod plan;
pub(crate) mod presets;
pub mod profile;
pub(crate) mod report;
pub(crate) mod reproduce;
pub(crate) mod scenarios;
pub(crate) mod schema;
pub(crate) mod simulate;
pub(crate) mod sweep;
pub(crate) mod trace;
