//! `tenantry profile --device …`.

pub mod measure;
pub(crate) mod needs;

pub use needs::models_of;
