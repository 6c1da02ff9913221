//! What a reader must know of figures before trusting them, in sentences: of what was loaded (`of_loaded`: cards, tables, machines), of what was asked
//! (`recordings`, `rates`), of prices (`prices`), and of what came of it (`outcomes`, `backlog`). Each command gathers those that it can have.

mod backlog;
mod of_loaded;
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
