//! Decoders that generate token by token: Llama-like and OPT-like, over a paged key-value cache.
//!
//! [`Decoder`] computes; a [`Step`] is what one forward pass processes, prompts' [`Chunk`]s and new tokens together;
//! [`KvCache`] holds keys and values in pages, whose ids the caller gives out; [`sample()`] picks the next tokens.

mod attention;
mod checkpoint;
mod config;
mod forward;
mod kv;
mod layout;
mod parts;
mod rope;
mod sample;
mod step;

pub(crate) use checkpoint::checkpoint_files;
pub use checkpoint::read_decoder;
#[cfg(test)]
pub(crate) use checkpoint::tests::write_decoder;
pub use config::DecoderConfig;
pub use forward::{Decoder, TenantParameters};
pub use kv::KvCache;
pub(crate) use layout::{check, lower_matrices, places};
pub use rope::{Rope, RopeScaling};
pub use sample::{Sampling, sample};
pub use step::{Chunk, Step};
