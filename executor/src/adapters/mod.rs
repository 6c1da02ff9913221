//! Houlsby adapters of many tenants over one shared backbone, computed in batches.
//!
//! [`AdapterStore`] holds every tenant's adapters in host memory, [`AdapterCache`] those of some on the device, in
//! slots. An [`AdapterPlan`] says which slot each sequence of a batch uses; [`Adapters`] puts plan and cache together
//! for [`Encoder::layers`](crate::Encoder::layers).

mod apply;
mod cache;
pub(crate) mod grouped;
mod plan;
mod shape;
mod store;

pub use apply::Adapters;
pub use cache::AdapterCache;
pub use plan::AdapterPlan;
pub use shape::AdapterShape;
pub use store::AdapterStore;
