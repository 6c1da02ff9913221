//! The virtual machine: prices ops from a profile and tells when they are done.
//!
//! This crate knows nothing of libtorch, files or wall clocks, and it holds no policy: those are `tenantry-core`'s, and
//! the real machine runs under the same ones.
//!
//! Read first: [`virtual_machine`] (lanes and the event heap), [`prices`] (from an op to nanoseconds), [`mod@simulate`]
//! (one run) and [`plan`] (a search over runs).

mod ends;
mod global;
mod last_tokens;
mod leap;
mod lookups;
mod met;
mod pending;
mod pet_prices;
pub mod plan;
mod ppm;
pub mod prices;
mod runtime_prices;
pub mod simulate;
mod steps;
pub mod virtual_machine;

pub use global::whole_workload;
pub use met::{CountedTables, MetError, count_met};
pub use prices::{Before, Jitter, ModelBefore, OpSpread, PriceError, Prices, Warmth};
pub use simulate::{Run, SimulateError, Simulated, simulate};
pub use tenantry_solver::answer as allocate;
pub use virtual_machine::VirtualMachine;
