//! BERT-like encoders: one flat block of parameters each, forward passes in pieces, classification heads per tenant.
//!
//! [`Encoder`] computes; [`Input`] is a padded batch of token ids; [`Heads`] are the tenants' classifiers;
//! [`CompiledModel`] is all of them for one shape.

mod checkpoint;
mod compiled;
mod encoder;
mod heads;
mod input;
mod layout;
mod parts;
mod pooler;
mod relative;
mod variant;

pub(crate) use checkpoint::{BERT, read_places, write_places};
pub use checkpoint::{read_checkpoint, write_checkpoint};
pub(crate) use compiled::CompiledModel;
pub use encoder::Encoder;
pub(crate) use encoder::Layer;
pub use heads::Heads;
pub use input::Input;
pub(crate) use layout::{Place, check, lower_matrices, places, places_of};
pub(crate) use parts::{Linear as LinearParameters, Norm as NormParameters};
pub(crate) use pooler::{Pooler, Poolers};
pub(crate) use relative::Distances;
pub(crate) use variant::{Gelu, LAYER_NORM_EPSILON, Variant};
