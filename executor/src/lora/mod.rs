//! Low-rank adaptation (Hu et al., 2022) of many tenants over one shared decoder, computed in batches (Punica, section
//! 4).
//!
//! [`LoraStore`] holds every tenant's matrices in host memory, [`LoraCache`] those of some on the device, in slots;
//! [`read_lora`] reads PEFT's files. A [`LoraPlan`] says which slot each token of a step uses; [`Loras`] puts plan and
//! cache together for [`Decoder::layers`](crate::Decoder::layers).

mod apply;
mod cache;
mod peft;
mod plan;
mod shape;
mod store;

pub use apply::Loras;
pub use cache::LoraCache;
pub use peft::read_lora;
pub use plan::{LoraPlan, Segment};
pub(crate) use shape::Input;
pub use shape::LoraShape;
pub use store::LoraStore;
