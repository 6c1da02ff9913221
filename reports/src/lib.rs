//! Summaries, comparisons, tables and pages, from ledgers.
//!
//! This crate does not know how anything runs: it takes a [`RunRecord`](tenantry_core::RunRecord) and the labels of its
//! run, and makes files and text of them. It reads no clock and asks no environment but `NO_COLOR`.
//!
//! A [`Run`] is what is kept of a record: a [`RunSummary`] (the figures, as in `summary.json`) and its [`Curves`] (what
//! is drawn). [`Group`]s are the repeats of one system at one sweep point. [`Validation`] sets simulated against
//! executed groups. [`Page`] is `report.html`, and [`RunFolder`] writes everything, each file whole or not at all.
//!
//! Read first: [`summary`] (what is said of a run), [`validation`] (how far the two machines differ), [`page`] (how it
//! is shown).

pub mod answers;
pub mod classes;
pub mod compared;
pub mod curves;
pub mod figure;
pub mod folder;
pub mod group;
pub mod human;
pub mod manifest;
pub mod metric;
pub mod page;
pub mod plan;
pub mod requests;
pub mod seen;
pub mod summary;
pub mod tasks;
pub mod terminal;
pub mod timeline;
pub mod trace;
pub mod validation;
pub mod whole;

mod error;
mod flat;
mod rows;
#[cfg(test)]
mod testing;

pub use classes::ServiceClass;
pub use curves::{Curves, Run};
pub use error::ReportError;
pub use folder::RunFolder;
pub use group::{Group, Spread};
pub use manifest::Manifest;
pub use page::Page;
pub use seen::Seen;
pub use summary::{RunLabels, RunSummary, Summary};
pub use validation::{Comparison, FigureError, Limits, SeedError, StageError, Validation, Verdict};
