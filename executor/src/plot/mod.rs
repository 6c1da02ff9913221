//! Precomputed lower layers for pools that look them up: which tables there are and what they were built from. The
//! tables themselves are `tenantry-plot`'s, and so is the language in which requests to such pools are written.

mod building;
mod lower;
mod tables;

#[cfg(test)]
pub(crate) use lower::LowerLayers;
pub(crate) use lower::encoder_layers;
pub use tenantry_plot::Progress;

pub use building::{Building, WatchBuilding};
pub(crate) use building::{TreeBuilding, Version, shape_of};
pub(crate) use tables::domain_name;
pub use tables::{Origin, Tables, tables_folder};
