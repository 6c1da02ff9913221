//! The program, as its users call it: each module is what one command, or a part of it, must do.
//!
//! One binary, which takes less time to link than several, and the tests of several files run beside each other.

mod common;

mod admission;
#[cfg(feature = "libtorch")]
mod answers;
mod bad_input;
#[cfg(feature = "libtorch")]
mod cascade;
#[cfg(feature = "libtorch")]
mod cascade_interrupted;
#[cfg(feature = "libtorch")]
mod cascade_refused;
mod command_line;
mod dialogue;
mod documented;
mod gallery;
#[cfg(all(unix, feature = "libtorch"))]
mod hmi;
#[cfg(unix)]
mod interrupted;
mod new;
mod notes;
mod plan;
mod profile;
mod recorded_files;
mod recording;
mod repeatable;
mod report;
mod reproduce;
mod runtimes;
mod sensitivity;
mod sweep;
mod sweep_damaged;
mod targets;
mod tasks;
mod timelines;
mod trace;
mod trace_bad_input;
mod trace_columns;
mod trace_fit;
mod trace_notes;
mod twitter_clip;
mod unanswered;
mod vllm_run;
mod warm_up;
#[cfg(unix)]
mod without_libtorch;
mod written;
