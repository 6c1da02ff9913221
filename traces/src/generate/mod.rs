//! Generators: a [`WorkloadSpec`](crate::spec::WorkloadSpec) becomes a [`Workload`](crate::Workload).
//!
//! Tenants and lengths are functions of `(seed, purpose, ticket)`; gaps between arrivals of `(seed, purpose, index)`.
//! Nothing is kept per request, so that any number of them streams in constant memory.
//!
//! Read `process` first (nearly all arrivals are one process), then `requests`.

mod activity;
mod alias;
mod arrival;
mod build;
mod closed_loop;
mod counts;
mod ends;
mod giving_up;
mod groups;
mod kept;
mod lengths;
mod managed;
mod merge;
mod once;
mod open_loop;
mod part;
mod periodic;
mod popularity;
mod presence;
mod process;
mod rates;
mod recorded;
mod regimes;
mod requests;
mod shape;

pub use build::{build, is_compressed};
pub use groups::{Domains, TenantGroups};
pub use popularity::Shares;
pub use recorded::{PartOfRecording, part_of_recording};
