//! The policy core: events in, commands out, and the one loop that drives any machine.
//!
//! This crate reads no clock, starts no thread, opens no file and draws no random number; it does not know which
//! machine it runs on, nor how long anything took; what policies plan by (a runtime's service time, a batch's latency)
//! is handed to them as data. `clippy.toml` beside it holds it to that.
//!
//! A [`Server`] is a set of policies as one state machine. A [`Machine`] is where its commands happen: virtual
//! (`tenantry-sim`) or real (`tenantry-executor`). [`run()`] merges a workload's arrivals with a machine's events and
//! hands them to the server; a [`Ledger`] observes.
//!
//! Read first: [`run`](mod@run) (the loop), [`server`] (what happens to a request) and [`policy`] (who decides).

pub mod answers;
pub mod board;
pub mod command;
pub mod durations;
pub mod event;
pub mod ids;
pub mod in_time;
pub mod ledger;
pub mod log;
pub mod machine;
pub mod op;
pub mod pet;
pub mod policy;
pub mod run;
pub mod server;
pub mod slab;
pub mod spec;
pub mod testing;
pub mod timers;
pub mod topology;

pub use command::{Command, Commands, Verdict};
pub use event::Event;
pub use ledger::{Ledger, RunRecord};
pub use machine::{Machine, MachineError, Next};
pub use run::{Observer, run};
pub use server::Server;
pub use spec::{ClusterSpec, PoolSpec, SystemSpec};
pub use topology::Topology;
