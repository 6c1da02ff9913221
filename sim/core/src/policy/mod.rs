//! The decisions, one trait each, composed into a system and never a flag inside one another.
//!
//! A policy decides over a read-only view, and the server commits: asking twice gives the same answer. It sees only
//! what a real scheduler could see: no future arrivals, no true durations, no output lengths.

pub mod admit;
pub mod batch;
pub mod coordinated;
pub mod fairness;
pub mod fleet;
pub mod levels;
mod load_index;
pub mod pipeline;
pub mod place;
pub mod replace;
pub mod route;
pub mod scale;
pub mod side_by_side;
pub mod stream_prices;
pub mod streams;
pub mod urgency;
