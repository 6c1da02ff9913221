//! What must hold of the crate, as who uses it sees it: one program, so that what tests share is compiled once.

mod broken_profiles;
mod composition;
mod drift;
mod extrapolation;
mod imports;
mod imports_by_hand;
mod joining;
mod lending;
mod limits;
mod paper_cards;
mod public_data;
mod quantiles;
mod roofline;
mod store;
mod surfaces;
