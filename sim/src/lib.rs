//! The virtual machine: prices ops from a profile and tells when they are done.
//!
//! This crate knows nothing of libtorch, files or wall clocks, and it holds no policy: those are `tenantry-core`'s, and the real
//! machine runs under the same ones.
//!
//! Read first: [`virtual_machine`] (lanes and the event heap), [`prices`] (from an op to nanoseconds) and [`mod@simulate`] (one run).

mod leap;
pub mod prices;
pub mod simulate;
mod steps;
pub mod virtual_machine;

pub use prices::{Jitter, OpSpread, PriceError, Prices};
pub use simulate::{Run, SimulateError, Simulated, simulate};
pub use virtual_machine::VirtualMachine;
