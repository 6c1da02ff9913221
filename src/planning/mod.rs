//! Planning: a scenario's candidates run for the search in `tenantry-sim`, and what its answer means.

mod accuracy;
mod answer;
mod binds;
mod dispersion;
mod evaluate;
mod found;
mod front;
mod judge;
mod kept;
mod moves;
mod offers;
mod strain;

pub use answer::answer;
pub use evaluate::Known;
pub use kept::{Found as KeptFound, KeptRuns};

#[cfg(test)]
mod tests;
