//! What arrives.

use crate::management::ManageRequest;
use crate::time::Time;

/// A request's position in the workload. It is the key of every draw about the request.
pub type Ticket = u64;

/// One request of one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Position in the workload.
    pub ticket: Ticket,
    /// Whose model is asked: dense, from 0.
    pub tenant: u32,
    /// When the client sends it.
    pub arrival: Time,
    /// Tokens of input, at least 1.
    pub input_tokens: u32,
    /// Tokens to generate; 0 for encoders. Hidden from policies.
    pub output_tokens: u32,
    /// Service class: an index into the scenario's classes, 0 where there is one.
    pub class: u16,
}

/// How long a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Tokens of input, at least 1.
    pub input: u32,
    /// Tokens to generate; 0 for encoders.
    pub output: u32,
}

/// What a workload brings at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A request arrives, at its `arrival`.
    Request(Request),
    /// The client of an earlier request gives up.
    Cancel {
        /// When.
        at: Time,
        /// Which request.
        ticket: Ticket,
    },
    /// A tenant's model or a domain's table is to change, at its `at`.
    Manage(ManageRequest),
}

impl Entry {
    /// When it happens.
    pub fn at(&self) -> Time {
        match self {
            Entry::Request(request) => request.arrival,
            Entry::Cancel { at, .. } => *at,
            Entry::Manage(request) => request.at,
        }
    }
}
