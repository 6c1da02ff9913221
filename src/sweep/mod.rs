//! Sweeps that are run in parts: the runs of a shard, what is saved of them, and job files for batch engines.

pub mod identity;
pub mod job_file;
pub mod saved;
mod sealed;
pub mod shard;
