//! What must hold of the crate, as who uses it sees it: one program, so that what tests share is compiled once.

mod activity;
mod arrivals;
mod common;
mod correlated;
mod files;
mod fits;
mod generators;
mod laws;
mod managed;
mod outcomes;
mod readers;
mod recordings;
mod repeated;
mod replayed;
mod tenants;
mod two_states;
