//! What a reader must know of figures before trusting them, in sentences.

mod backlog;
mod outcomes;
mod prices;
mod rates;
mod recordings;

use std::collections::BTreeSet;

pub use outcomes::*;
pub use prices::*;
pub use rates::*;
pub use recordings::*;

/// Sentences that several runs have, each once.
pub fn once<'a>(sentences: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    let sentences: BTreeSet<&String> = sentences.into_iter().collect();
    sentences.into_iter().cloned().collect()
}
