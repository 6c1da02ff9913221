//! Requests in arrival order: readers of public trace formats, generators, fits.
//!
//! This crate knows nothing of serving or hardware. It says who asks what and when; it never says how long that takes.
//! It does not parse scenarios either: [`spec`] is plain data, checked when it is built.
//!
//! Read first: [`request`] (what arrives), [`workload`] (the cursor that the serving loop reads), [`draw`] (why a
//! policy cannot change the workload); then [`spec`] and [`generate`], or [`mod@read`] for recorded traces and
//! [`describe`] for what is in them.

pub mod describe;
pub mod draw;
pub mod error;
pub mod fit;
pub mod generate;
mod left_over;
pub mod management;
pub mod outcome;
pub mod read;
pub mod request;
pub mod spec;
pub mod time;
pub mod whole;
pub mod workload;
pub mod write;
mod ziggurat;

pub use error::{Access, TraceError, none_but, out_of_order};
pub use generate::build;
pub use management::{Action, Change, ManageRequest, Subject};
pub use request::{Entry, Lengths, Request, Ticket};
pub use time::{Duration, Time};
pub use workload::{Listed, Workload};
