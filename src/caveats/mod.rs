//! What a reader must know of figures before trusting them, in sentences.

mod outcomes;
mod prices;
mod recordings;

pub use outcomes::*;
pub use prices::*;
pub use recordings::*;
