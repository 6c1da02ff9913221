//! What must hold of the crate, as who uses it sees it: one program, so that what tests share is compiled once.

mod bad_cascades;
mod bad_inputs;
mod domains_tables;
mod links;
mod reference;
mod scenarios;
mod schema;
mod workloads;
