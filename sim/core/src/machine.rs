//! Where commands happen.

use tenantry_traces::{Duration, Time};

use crate::board::Board;
use crate::command::{Command, Commands, Finish};
use crate::event::Event;

/// What a machine says next.
#[derive(Debug)]
pub enum Next<'a> {
    /// Something happened, at that time.
    Event(Time, Event<'a>),
    /// The deadline has come; the time is not before it.
    Due(Time),
    /// Nothing is pending and there is no deadline: nothing will happen any more.
    Idle,
}

/// A machine that cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// The device or a lane's thread is lost.
    #[error("{0}")]
    Device(String),
    /// A command that no correct server gives.
    #[error("broken invariant: {0}")]
    Invariant(String),
}

/// How long a lane was busy since the start that was given to [`Machine::count_busy_from`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneUse {
    /// As in the topology.
    pub name: String,
    /// Ops ran on it.
    pub busy: Duration,
}

/// Fragments looked up, by which table answered (HMI, Eq. 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookupCounts {
    /// Fragments looked up: [`crate::spec::PlotSpec::fragments`] of each text.
    pub tokens: u64,
    /// A domain's own table.
    pub domain_hits: u64,
    /// The table of all domains.
    pub root_hits: u64,
    /// Neither: shorter fragments did.
    pub fallbacks: u64,
}

/// Lanes on which ops run in order, each after the ops that it depends on: virtual or real.
///
/// Events at the same instant come in this order, so that a run does not depend on chance: ends of ops (capacity is
/// known before it is asked for), then timers, then the deadline (arrivals see the state that all else at that instant
/// has left).
pub trait Machine {
    /// The next event up to `deadline`, which is the next arrival. What an event borrows is valid until the next call.
    ///
    /// # Errors
    /// When the machine cannot go on.
    fn next(&mut self, deadline: Option<Time>) -> Result<Next<'_>, MachineError>;

    /// Takes a command. `commands` holds what it refers to.
    ///
    /// # Errors
    /// When the machine cannot go on.
    fn perform(&mut self, now: Time, command: &Command, commands: &Commands) -> Result<(), MachineError>;

    /// Called once, before anything else: busy time before `start` is not counted.
    fn count_busy_from(&mut self, start: Time);

    /// The board of its lanes: for watching which op ran when.
    fn board(&mut self) -> &mut Board;

    /// Busy time of every lane up to `now`. An op that a real machine has not yet heard of again is left out.
    fn lanes(&self, now: Time) -> Vec<LaneUse>;

    /// What was looked up so far; nothing where the pool has no table.
    fn lookups(&self) -> Option<LookupCounts>;

    /// Whether the answer of a request that leaves is right, where the machine can tell. Servers never learn it.
    fn is_right(&mut self, finish: &Finish) -> Option<bool> {
        let _ = finish;
        None
    }
}
