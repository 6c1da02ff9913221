//! Precomputed lower layers for pools that look them up: which tables there are, what they were built from, and the language in which
//! requests to such pools are written. The tables themselves are `tenantry-plot`'s.

mod language;
mod lower;
mod tables;

pub(crate) use language::Language;
#[cfg(test)]
pub(crate) use lower::{LowerLayers, encoder_layers};
pub use tenantry_plot::Progress;

pub use tables::{Building, Tables, WatchBuilding, tables_folder};
