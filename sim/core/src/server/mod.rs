//! The serving policies as one state machine: events in, commands out. It reads no clock, does no I/O and draws nothing.
//!
//! [`Server::handle`] is the whole of it: one event changes the state, then every instance that it touched is asked for work.
//! Two mechanisms stand behind it: [`encoding`] answers each batch at once, [`generation`] keeps requests running from step to step.

pub mod encoding;
pub mod generation;
mod memory;
mod queue;
mod slots;

use tenantry_traces::Time;

pub use memory::{MemoryUse, ServerError};
pub use queue::{QueueView, Waiting};
pub use slots::SwapCounts;

use crate::command::Commands;
use crate::event::Event;
use crate::spec::{ClusterSpec, SystemSpec};
use crate::topology::Topology;
use encoding::EncoderServer;
use generation::GenerationServer;

/// A serving system.
pub enum Server {
    /// Of encoders.
    Encoding(Box<EncoderServer>),
    /// Of decoders.
    Generation(Box<GenerationServer>),
}

/// Asks whichever it is.
macro_rules! either {
    ($self:expr, $server:ident => $answer:expr) => {
        match $self {
            Server::Encoding($server) => $answer,
            Server::Generation($server) => $answer,
        }
    };
}

impl Server {
    /// A system on a cluster, for tenants `0..tenants`.
    ///
    /// # Errors
    /// When the backbone, or one tenant's parameters beside it, do not fit on a card.
    pub fn new(cluster: &ClusterSpec, system: &SystemSpec, tenants: u32) -> Result<Server, ServerError> {
        Ok(match &system.pool.generation {
            None => Server::Encoding(Box::new(EncoderServer::new(cluster, system, tenants)?)),
            Some(generation) => {
                Server::Generation(Box::new(GenerationServer::new(cluster, system, generation, tenants)?))
            }
        })
    }

    /// Takes an event and says what is to be done about it.
    pub fn handle(&mut self, now: Time, event: Event<'_>, commands: &mut Commands) {
        either!(self, server => server.handle(now, event, commands));
    }

    /// The lanes that this server's ops name.
    pub fn topology(&self) -> &Topology {
        either!(self, server => server.topology())
    }

    /// Slots for tenants' parameters on each instance; nothing where nothing is swapped.
    pub fn slots_per_instance(&self) -> Option<u32> {
        either!(self, server => server.slots_per_instance())
    }

    /// What lies in the cards' memory, and what lay there at most.
    pub fn memory(&self) -> MemoryUse {
        either!(self, server => server.memory())
    }

    /// Swapping so far; nothing where nothing is swapped.
    pub fn swaps(&self) -> Option<SwapCounts> {
        either!(self, server => server.swaps())
    }

    /// Requests that were let in and have not left.
    pub fn in_flight(&self) -> u64 {
        either!(self, server => server.in_flight())
    }

    /// What generation did beside generating; nothing for encoders.
    pub fn generation(&self) -> Option<generation::GenerationCounts> {
        match self {
            Server::Encoding(_) => None,
            Server::Generation(server) => Some(server.counts()),
        }
    }

    /// The laws that hold between events, for tests: no instance has room while its batch policy would start something that
    /// fits, and nothing is counted twice.
    ///
    /// # Errors
    /// The law that is broken.
    pub fn check_laws(&mut self, now: Time) -> Result<(), String> {
        either!(self, server => server.check_laws(now))
    }
}
