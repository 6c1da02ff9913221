//! The question: YAML in, resolved and validated specifications out.
//!
//! This crate runs nothing, and knows neither machines nor reports. It opens no file but the scenario and presets of
//! one's own, save that recorded traces are opened once to see that they are there.
//!
//! - [`Scenario::load`] reads a file (or a shipped scenario) with `--set` overrides; [`Scenario::runs`] lists what is
//!   to be run, a [`RunSpec`] each.
//! - [`ScenarioErrors`] is all that is wrong with a file, as
//!   `file:LINE: field.path: must be …, got …; did you mean …?`.
//! - [`raw`] mirrors the YAML, with units and defaults; [`schema()`] is its JSON Schema.
//! - [`presets`] are systems by name.
//!
//! Read `raw/mod.rs` for what can be written, `load.rs` for what becomes of it, `decode.rs` for where messages come
//! from.

mod cascade;
mod choices;
mod decode;
mod distinct;
mod error;
mod files;
mod filling;
mod generation;
mod lines;
mod load;
mod management;
mod models;
mod origin;
mod path;
pub mod plan;
pub mod presets;
pub mod raw;
mod resolve;
mod rules;
mod runtimes;
pub mod scalar;
mod scaling;
mod scenario;
mod schema;
mod shipped;
mod sweep;
mod system_rules;
mod task_files;
mod tasks;
mod workload;

pub use distinct::Distinct;
pub use error::{ScenarioError, ScenarioErrors};
pub use load::Override;
pub use plan::Plan;
pub use raw::RawObjective as Objective;
pub use raw::{Files, Jitter};
pub use resolve::paper_domain_bytes;
pub use scenario::{GroupNames, Limits, RunSpec, Scenario};
pub use schema::schema;
pub use shipped::{about, shipped_names, shipped_yaml};
