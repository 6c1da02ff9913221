//! The arithmetic of a cascade of models (Tabi, EuroSys 2023, section 4): when a small model's answer is good enough,
//! which words a larger one must still read, and how their answers go together.
//!
//! This crate knows neither requests nor time nor tensors: logits, attention and labels go in, numbers come out, and
//! the same for the same. Transcendental functions are `libm`'s, so that every processor gives the same bits.
//!
//! - [`Temperature`], [`Dirichlet`] and [`Spread`] make confidence mean what it says, for classes, for several at once
//!   and for regression ([`calibration`]).
//! - [`Reroute`] is the dispatcher's probability of asking the next model.
//! - [`keep_words`] prunes words by the attention that they were paid, through the text, whatever the tokenizers.
//! - [`ensemble`] has the weighted average and the vote.
//! - [`candidates`] are made and measured on what was saved of models, and a [`search`] finds the fastest that meets a
//!   task's targets.
//!
//! Read first: `calibration.rs`, `reroute.rs`, `pruning.rs`.

pub mod calibration;
pub mod candidates;
mod dirichlet;
pub mod ensemble;
mod error;
pub mod pruning;
mod reroute;
pub mod search;

pub use calibration::{Confident, Spread, Temperature, expected_calibration_error, reliability, softmax};
pub use dirichlet::Dirichlet;
pub use error::CascadeError;
pub use pruning::{Token, importance, keep_words};
pub use reroute::Reroute;
