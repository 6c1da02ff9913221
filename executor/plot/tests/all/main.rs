//! What must hold of the crate, as who uses it sees it: one program, so that what tests share is compiled once.

mod common;
mod faults;
mod forecast;
mod laws;
mod tree;
