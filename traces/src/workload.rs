//! The cursor that the serving loop merges with a machine's events.

use std::ops::ControlFlow;

use crate::error::TraceError;
use crate::request::{Entry, Request, Ticket};
use crate::time::Time;

/// Entries in order of time. A cursor, not an iterator: a closed loop's next entry depends on what has finished.
pub trait Workload {
    /// When the next entry is due, if any is known yet. A closed loop that waits for an answer has none and is not at
    /// its end.
    ///
    /// # Errors
    /// A trace that cannot be read or is not in order.
    fn peek(&mut self) -> Result<Option<Time>, TraceError>;

    /// When the next entry is due that is no management request, if any is known yet. Where nobody waits for an answer
    /// and there is none, nobody asks for one any more.
    ///
    /// # Errors
    /// As `peek`.
    fn peek_request(&mut self) -> Result<Option<Time>, TraceError> {
        self.peek()
    }

    /// Takes the entry that `peek` announced.
    ///
    /// # Errors
    /// As `peek`.
    fn next(&mut self) -> Result<Option<Entry>, TraceError>;

    /// A request left the system, for whatever reason. Open loops do not care.
    fn finished(&mut self, now: Time, ticket: Ticket) {
        let _ = (now, ticket);
    }

    /// Goes through the requests that are left, for who counts them before a run: to the end, or until `see` has had
    /// enough.
    ///
    /// # Errors
    /// As `peek`.
    fn each_request(&mut self, see: &mut dyn FnMut(&Request) -> ControlFlow<()>) -> Result<(), TraceError> {
        while let Some(entry) = self.next()? {
            if let Entry::Request(request) = entry
                && see(&request).is_break()
            {
                break;
            }
        }
        Ok(())
    }

    /// Likewise for when they come alone: what else they are need not be drawn.
    ///
    /// # Errors
    /// As `peek`.
    fn each_arrival(mut self: Box<Self>, see: &mut dyn FnMut(Time) -> ControlFlow<()>) -> Result<(), TraceError> {
        self.each_request(&mut |request| see(request.arrival))
    }

    /// Whether it may bring management requests, which need more of a machine than requests for answers do.
    fn manages(&self) -> bool {
        false
    }
}

/// A workload that is a list: for tests, and for requests recorded in a run and executed again.
#[derive(Clone, Debug, Default)]
pub struct Listed {
    entries: std::collections::VecDeque<Entry>,
}

impl Listed {
    /// Sorts `entries` by time, keeping the given order among equals.
    pub fn new(mut entries: Vec<Entry>) -> Listed {
        entries.sort_by_key(Entry::at);
        Listed {
            entries: entries.into(),
        }
    }
}

impl Workload for Listed {
    fn peek(&mut self) -> Result<Option<Time>, TraceError> {
        Ok(self.entries.front().map(Entry::at))
    }

    fn peek_request(&mut self) -> Result<Option<Time>, TraceError> {
        let request = self.entries.iter().find(|entry| !matches!(entry, Entry::Manage(_)));
        Ok(request.map(Entry::at))
    }

    fn next(&mut self) -> Result<Option<Entry>, TraceError> {
        Ok(self.entries.pop_front())
    }

    fn manages(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry, Entry::Manage(_)))
    }
}
