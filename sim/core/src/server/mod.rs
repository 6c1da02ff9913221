//! The serving policies as one state machine: events in, commands out. It reads no clock, does no I/O and draws
//! nothing.
//!
//! [`Server::handle`] is the whole of it: one event changes the state, then every instance that it touched is asked for
//! work. Five mechanisms stand behind it: [`encoding`] answers each batch at once, [`generation`] keeps requests
//! running from step to step, [`tasks`] splits a pool of queries to tasks that share models into batches, [`runtimes`]
//! sends each request to a runtime of its length, and [`cascade`] from model to model.

mod by_ticket;
pub mod cascade;
pub mod encoding;
pub mod generation;
mod memory;
mod queue;
pub mod runtimes;
mod scaling;
mod slots;
pub mod tasks;
mod tenancy;

use tenantry_profiles::Card;
use tenantry_traces::{Request, Time};

pub use memory::{MemoryUse, ServerError};
pub use queue::{QueueView, Waiting};
pub use scaling::ScalingUse;
pub use slots::SwapCounts;

use crate::answers::TextLengths;
use crate::command::Commands;
use crate::durations::Durations;
use crate::event::Event;
use crate::ids::InstanceId;
use crate::spec::{ClusterSpec, SystemFamily, SystemSpec};
use crate::topology::Topology;
use cascade::{CascadeServer, StageCounts};
use encoding::EncoderServer;
use generation::GenerationServer;
use runtimes::{FleetUse, RuntimeServer};
use tasks::TaskServer;

/// Whose timer it is that asks how many cards there are to be: nobody's instance.
const FLEET: InstanceId = InstanceId(u32::MAX - 1);

/// A serving system.
pub enum Server {
    /// Of encoders.
    Encoding(Box<EncoderServer>),
    /// Of decoders.
    Generation(Box<GenerationServer>),
    /// Of parameter-efficient tasks.
    Tasks(Box<TaskServer>),
    /// Of several encoders.
    Cascade(Box<CascadeServer>),
    /// Of runtimes of several lengths.
    Runtimes(Box<RuntimeServer>),
}

/// Asks whichever it is.
macro_rules! either {
    ($self:expr, $server:ident => $answer:expr) => {
        match $self {
            Server::Encoding($server) => $answer,
            Server::Generation($server) => $answer,
            Server::Tasks($server) => $answer,
            Server::Cascade($server) => $answer,
            Server::Runtimes($server) => $answer,
        }
    };
}

impl Server {
    /// A system on a cluster of such cards, for tenants `0..tenants`: what a real scheduler knows of its card is its
    /// profile.
    ///
    /// # Errors
    /// As [`new`](Self::new), and where the card lacks a table that batches are planned by.
    pub fn on_card(
        card: &Card,
        cluster: &ClusterSpec,
        system: &SystemSpec,
        tenants: u32,
    ) -> Result<Server, ServerError> {
        match system.family() {
            SystemFamily::Tasks(tasks) => {
                let server = TaskServer::new(card, cluster, system, tasks, tenants)?;
                Ok(Server::Tasks(Box::new(server)))
            }
            _ => Server::new(cluster, system, tenants),
        }
    }

    /// A system on a cluster whose policies need no profile, for tenants `0..tenants`.
    ///
    /// # Errors
    /// When the backbone, or one tenant's parameters beside it, do not fit on a card; or tasks, which need
    /// [`on_card`](Self::on_card).
    pub fn new(cluster: &ClusterSpec, system: &SystemSpec, tenants: u32) -> Result<Server, ServerError> {
        Ok(match system.family() {
            SystemFamily::Cascade(route) => {
                Server::Cascade(Box::new(CascadeServer::new(cluster, system, route, tenants)?))
            }
            SystemFamily::Tasks(_) => {
                let model = system.pool.model.name.clone();
                return Err(ServerError::NoCard { model });
            }
            SystemFamily::Runtimes(runtimes) => {
                Server::Runtimes(Box::new(RuntimeServer::new(cluster, system, runtimes, tenants)?))
            }
            SystemFamily::Generation(generation) => {
                Server::Generation(Box::new(GenerationServer::new(cluster, system, generation, tenants)?))
            }
            SystemFamily::Encoding => Server::Encoding(Box::new(EncoderServer::new(cluster, system, tenants)?)),
        })
    }

    /// The same server for requests that are about texts, of which every tokenizer makes its own number of tokens; only
    /// a route's server reads texts.
    pub fn with_lengths(self, lengths: Option<TextLengths>) -> Server {
        match self {
            Server::Cascade(server) => Server::Cascade(Box::new(server.with_lengths(lengths))),
            other => other,
        }
    }

    /// The same server where tenants and domains come and change while others are served: it has a lane for the host's
    /// disk, which what is new is read on. To be said before anything happens, and before its topology is asked for.
    pub fn with_management(mut self) -> Server {
        match &mut self {
            Server::Encoding(server) => server.add_disk(),
            Server::Generation(server) => server.add_disk(),
            // They know no such requests.
            Server::Tasks(_) | Server::Cascade(_) | Server::Runtimes(_) => {}
        }
        self
    }

    /// A request with the length that its text has for the model that reads it first, as all are told of it.
    #[inline]
    pub fn as_read(&self, request: Request) -> Request {
        match self {
            Server::Cascade(server) => server.as_read(request),
            _ => request,
        }
    }

    /// Takes an event and says what is to be done about it.
    #[inline]
    pub fn handle(&mut self, now: Time, event: &Event<'_>, commands: &mut Commands) {
        either!(self, server => server.handle(now, event, commands));
    }

    /// The lanes that this server's ops name.
    pub fn topology(&self) -> &Topology {
        either!(self, server => server.topology())
    }

    /// Slots for tenants' parameters on each instance; nothing where nothing is swapped.
    pub fn slots_per_instance(&self) -> Option<u32> {
        match self {
            Server::Encoding(server) => server.slots_per_instance(),
            Server::Generation(server) => server.slots_per_instance(),
            Server::Tasks(_) | Server::Cascade(_) | Server::Runtimes(_) => None,
        }
    }

    /// The request stream whose runtime each instance has, nothing for one without; empty where there are no runtimes.
    pub fn streams_of_instances(&self) -> Vec<Option<u16>> {
        match self {
            Server::Runtimes(server) => server.streams_of_instances(),
            Server::Encoding(_) | Server::Generation(_) | Server::Tasks(_) | Server::Cascade(_) => Vec::new(),
        }
    }

    /// What lies in the cards' memory, and what lay there at most.
    pub fn memory(&self) -> MemoryUse {
        either!(self, server => server.memory())
    }

    /// Swapping so far; nothing where nothing is swapped.
    pub fn swaps(&self) -> Option<SwapCounts> {
        match self {
            Server::Encoding(server) => server.swaps(),
            Server::Generation(server) => server.swaps(),
            Server::Tasks(_) | Server::Cascade(_) | Server::Runtimes(_) => None,
        }
    }

    /// Requests that were let in and have not left.
    pub fn in_flight(&self) -> u64 {
        either!(self, server => server.in_flight())
    }

    /// What generation did beside generating; nothing for encoders.
    pub fn generation(&self) -> Option<generation::GenerationCounts> {
        match self {
            Server::Encoding(_) | Server::Tasks(_) | Server::Cascade(_) | Server::Runtimes(_) => None,
            Server::Generation(server) => Some(server.counts()),
        }
    }

    /// Times from one token of a request to its next, of the tokens made since the end of the warm-up; nothing for
    /// encoders.
    pub fn token_gaps(&self) -> Option<Durations> {
        match self {
            Server::Encoding(_) | Server::Tasks(_) | Server::Cascade(_) | Server::Runtimes(_) => None,
            Server::Generation(server) => Some(server.token_gaps()),
        }
    }

    /// The warm-up was over `at`, after the last event and not after the next one: what is tallied here counts from
    /// then on.
    pub fn warmed_up(&mut self, at: Time) {
        if let Server::Generation(server) = self {
            server.warmed_up(at);
        }
    }

    /// What each model of a route did so far; none without a route.
    pub fn stages(&self) -> Vec<StageCounts> {
        match self {
            Server::Cascade(server) => server.stages(),
            Server::Encoding(_) | Server::Generation(_) | Server::Tasks(_) | Server::Runtimes(_) => Vec::new(),
        }
    }

    /// What there is of tasks; nothing where there are none.
    pub fn tasks(&self) -> Option<&tasks::TaskCounts> {
        match self {
            Server::Encoding(_) | Server::Generation(_) | Server::Cascade(_) | Server::Runtimes(_) => None,
            Server::Tasks(server) => Some(server.counts()),
        }
    }

    /// How a fleet of runtimes was used until now; nothing where there are none.
    pub fn fleet(&self, now: Time) -> Option<FleetUse> {
        match self {
            Server::Encoding(_) | Server::Generation(_) | Server::Tasks(_) | Server::Cascade(_) => None,
            Server::Runtimes(server) => Some(server.fleet(now)),
        }
    }

    /// How cards that come and go were used, by a route's stages or where tokens are generated; nothing where none do.
    pub fn scaling(&self, now: Time) -> Option<ScalingUse> {
        match self {
            Server::Cascade(server) => server.scaling(now),
            Server::Generation(server) => server.scaling(now),
            Server::Encoding(_) | Server::Tasks(_) | Server::Runtimes(_) => None,
        }
    }

    /// Cards that come and go are counted from `start` on, the end of the warm-up. To be said before anything happens.
    pub fn count_cards_from(&mut self, start: Time) {
        match self {
            Server::Cascade(server) => server.count_cards_from(start),
            Server::Generation(server) => server.count_cards_from(start),
            Server::Runtimes(server) => server.count_cards_from(start),
            Server::Encoding(_) | Server::Tasks(_) => {}
        }
    }

    /// The laws that hold between events, for tests: no instance has room while its batch policy would start something
    /// that fits, and nothing is counted twice.
    ///
    /// # Errors
    /// The law that is broken.
    pub fn check_laws(&mut self, now: Time) -> Result<(), String> {
        either!(self, server => server.check_laws(now))
    }
}
