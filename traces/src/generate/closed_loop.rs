//! Clients that wait for their answers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::requests::Requests;
use crate::error::TraceError;
use crate::request::{Entry, Ticket};
use crate::spec::Stop;
use crate::time::{Duration, Time};
use crate::workload::Workload;

/// No client asks twice within this time, however fast it is turned away.
const RETRY_MIN: Duration = Duration::from_micros(100);

/// A fixed number of clients, each with one request in flight or being thought about. Clients are alike, so that it is
/// enough to know when the idle ones ask next.
pub struct ClosedLoop {
    idle_until: BinaryHeap<Reverse<Time>>,
    think_time: Duration,
    issued: u64,
    /// When the last request was issued.
    issued_at: Time,
    stop: Stop,
    requests: Requests,
}

impl ClosedLoop {
    pub fn new(clients: u32, think_time: Duration, stop: Stop, requests: Requests) -> ClosedLoop {
        ClosedLoop {
            idle_until: (0..clients).map(|_| Reverse(Time::ZERO)).collect(),
            think_time,
            issued: 0,
            issued_at: Time::ZERO,
            stop,
            requests,
        }
    }

    fn due(&self) -> Option<Time> {
        let Reverse(at) = *self.idle_until.peek()?;
        let over = self.stop.requests.is_some_and(|limit| self.issued >= limit) || at >= self.stop.end();
        (!over).then_some(at)
    }
}

impl Workload for ClosedLoop {
    fn peek(&mut self) -> Result<Option<Time>, TraceError> {
        Ok(self.due())
    }

    fn next(&mut self) -> Result<Option<Entry>, TraceError> {
        let Some(at) = self.due() else {
            return Ok(None);
        };
        self.idle_until.pop();
        let ticket = self.issued;
        self.issued += 1;
        self.issued_at = at;
        Ok(Some(Entry::Request(self.requests.drawn(ticket, at))))
    }

    fn finished(&mut self, now: Time, ticket: Ticket) {
        // Who thinks beyond the end of time asks no more.
        let Some(mut again) = now.0.checked_add(self.think_time.0).map(Time) else {
            return;
        };
        // A client that is turned away on the spot would ask for ever at the same instant.
        if ticket + 1 == self.issued {
            again = again.max(self.issued_at + RETRY_MIN);
        }
        self.idle_until.push(Reverse(again));
    }
}
