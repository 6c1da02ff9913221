//! How many instances of each runtime: Arlo's allocation program (section 3.3, Eqs. 1 to 7), solved exactly in two
//! ways, and the pieces around it.
//!
//! This crate knows nothing of single requests, nor of which machine runs what. Numbers go in, numbers come out, and
//! the same for the same: it reads no clock, and its limits are counts of work.
//!
//! - [`solve()`] answers a [`Problem`] with an [`Allocation`], by a dynamic program or by HiGHS ([`Method`]).
//! - [`answer()`] is what a machine does with a server's question: a program for each stream that shares the cards.
//! - [`demand_milli`] of a whole trace makes the paper's "global" ablation.
//!
//! Read first: `problem.rs` (the program), `bound.rs` (why both solvers are fast), `dynamic.rs`; `docs/arlo-solver.md`
//! has the formulation and the times.

mod allocation;
mod answer;
mod bound;
mod capacity;
mod curve;
mod dynamic;
mod error;
#[cfg(feature = "highs")]
mod integer;
mod problem;
mod sharing;
mod solve;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod unpruned;

pub use allocation::{Allocation, Status};
pub use answer::{answer, answer_or_keep};
pub use curve::MeanLatency;
pub use error::Invalid;
pub use problem::{Flow, MILLI, Problem, Runtime, demand_milli};
pub use solve::{Method, solve};
