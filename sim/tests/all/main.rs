//! What must hold of the crate, as who uses it sees it: one program, so that what tests share is compiled once.

mod cascade;
mod cascade_scaling;
mod common;
mod decided;
mod digests;
mod disaggregated;
mod failed_loads;
mod failures;
mod generation;
mod known_answers;
mod laws;
mod light_load;
mod management;
mod pages;
mod runtimes;
mod runtimes_scaling;
mod same_workload;
mod scarce_pages;
mod service_classes;
mod tasks;
mod tasks_places;
mod tasks_planned;
mod warm_up;
