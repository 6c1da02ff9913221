//! `tenantry profile --device …`.

pub mod measure;
mod needs;

pub use needs::models_of;
