//! Planning: a scenario's candidates run for the search in `tenantry-sim`, and what its answer means.
//!
//! In the order in which a plan goes: [`answer()`] begins; `offers` are what is chosen among; the search
//! ([`tenantry_sim::plan`]) asks by a closure for runs of cells, which `evaluate` simulates, each judged by a `judge`
//! as it goes, or takes from those that are `kept`; `found` is what the search came to; `front`, `moves`, `binds` and
//! `strain` are what is asked beside it; `explanation` says it all.

mod accuracy;
mod answer;
mod binds;
mod dispersion;
mod evaluate;
mod explanation;
mod found;
mod front;
mod judge;
mod kept;
mod moves;
mod offers;
mod strain;

pub use answer::answer;
pub use evaluate::Known;
pub use kept::KeptRuns;

#[cfg(test)]
mod tests;
