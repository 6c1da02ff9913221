//! Requests in arrival order: readers of public trace formats, generators, fits.
//!
//! This crate knows nothing of serving or hardware. It says who asks what and when; it never says how long that takes.
//!
//! Read first: [`request`] (what arrives), [`workload`] (the cursor that the serving loop reads) and [`draw`] (why a policy cannot
//! change the workload).

pub mod draw;
pub mod error;
pub mod request;
pub mod time;
pub mod workload;

pub use error::TraceError;
pub use request::{Entry, Request, Ticket};
pub use time::{Duration, Time};
pub use workload::{Listed, Workload};
