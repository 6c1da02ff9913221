//! Which kind of system one is: what serves its requests, and what its ops cost, follow from that.

use super::{GenerationSpec, RouteSpec, RuntimesSpec, SystemSpec, TasksSpec};

/// The five kinds of systems, each with what it alone has.
#[derive(Clone, Copy, Debug)]
pub enum SystemFamily<'a> {
    /// Several encoders, which a route asks.
    Cascade(&'a RouteSpec),
    /// Tenants' tasks over models that they share.
    Tasks(&'a TasksSpec),
    /// Runtimes of several lengths.
    Runtimes(&'a RuntimesSpec),
    /// A decoder.
    Generation(&'a GenerationSpec),
    /// An encoder whose instances serve batches of any length.
    Encoding,
}

impl SystemSpec {
    /// The system's kind. Scenarios refuse systems of two kinds at once; here such a one is of the first of them, in
    /// the order above.
    pub fn family(&self) -> SystemFamily<'_> {
        let pool = &self.pool;
        match (&self.route, &pool.tasks, &pool.runtimes, &pool.generation) {
            (Some(route), ..) => SystemFamily::Cascade(route),
            (_, Some(tasks), ..) => SystemFamily::Tasks(tasks),
            (_, _, Some(runtimes), _) => SystemFamily::Runtimes(runtimes),
            (.., Some(generation)) => SystemFamily::Generation(generation),
            (None, None, None, None) => SystemFamily::Encoding,
        }
    }
}
