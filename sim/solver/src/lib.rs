//! How many instances of each runtime: Arlo's allocation program (section 3.3, Eqs. 1 to 7), solved exactly in two ways, and
//! the pieces around it.
//!
//! This crate knows neither requests nor time nor which machine runs what. Numbers go in, numbers come out, and the same for the
//! same: it reads no clock, and its limits are counts of work.
//!
//! - [`solve()`] answers a [`Problem`] with an [`Allocation`], by a dynamic program or by HiGHS ([`Method`]).
//! - [`even`] and [`demand_milli`] of a whole trace are the paper's two ablations.
//! - [`replacement`] turns one allocation into another by the fewest changes, a few at a time.
//! - [`staircase`] finds the step of a model's latency by length, and so which lengths are worth a runtime.
//!
//! Read first: `problem.rs` (the program), `bound.rs` (why both solvers are fast), `dynamic.rs`; `docs/arlo-solver.md` has the
//! formulation and the times.

mod ablation;
mod allocation;
mod bound;
mod curve;
mod dynamic;
mod error;
mod integer;
mod problem;
mod replacement;
mod solve;
mod staircase;

pub use ablation::even;
pub use allocation::{Allocation, Status};
pub use curve::MeanLatency;
pub use error::Invalid;
pub use problem::{Flow, MILLI, Problem, Runtime, demand_milli};
pub use replacement::{Change, Deployed, replacement};
pub use solve::{Method, solve};
pub use staircase::{Staircase, staircase};
