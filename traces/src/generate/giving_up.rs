//! Requests, some of whose clients give up before they have their answer.

use std::collections::{BTreeMap, BTreeSet};

use crate::draw::{Draws, Purpose};
use crate::error::{TraceError, positive};
use crate::request::{Entry, Ticket};
use crate::spec::CancellationsSpec;
use crate::time::{Duration, Time};
use crate::workload::Workload;

/// A workload with cancellations among its entries.
pub(super) struct GivingUp<W> {
    requests: W,
    draws: Draws,
    share: f64,
    mean_after_s: f64,
    /// Of requests that have not left yet.
    due: BTreeSet<(Time, Ticket)>,
    due_by_ticket: BTreeMap<Ticket, Time>,
    /// Of requests that nobody has said yet to have left, and whose clients are free.
    given_up: BTreeSet<Ticket>,
}

impl<W> GivingUp<W> {
    pub fn new(requests: W, seed: u64, spec: CancellationsSpec) -> Result<GivingUp<W>, TraceError> {
        if !(0.0..=1.0).contains(&spec.share) {
            return Err(TraceError::spec("workload.cancellations.share", "0 to 1", spec.share));
        }
        let mean_after_s = spec.mean_after.as_secs_f64();
        positive("workload.cancellations.mean_after", mean_after_s)?;
        Ok(GivingUp {
            requests,
            draws: Draws::new(seed, Purpose::Cancellation),
            share: spec.share,
            mean_after_s,
            due: BTreeSet::new(),
            due_by_ticket: BTreeMap::new(),
            given_up: BTreeSet::new(),
        })
    }

    /// When the client of a request that came `at` gives up, if it ever does.
    fn gives_up(&self, at: Time, ticket: Ticket) -> Option<Time> {
        let mut stream = self.draws.about(ticket);
        if stream.unit() >= self.share {
            return None;
        }
        let after = Duration::from_secs_f64(stream.exponential() * self.mean_after_s)?;
        at.0.checked_add(after.0).map(Time)
    }

    /// When the next client gives up, if that is before the next entry.
    fn or_cancel(&self, entry: Option<Time>) -> Option<Time> {
        let cancel = self.due.first().map(|&(at, _)| at);
        match (entry, cancel) {
            (Some(entry), Some(cancel)) => Some(entry.min(cancel)),
            (entry, cancel) => entry.or(cancel),
        }
    }
}

impl<W: Workload> Workload for GivingUp<W> {
    fn peek(&mut self) -> Result<Option<Time>, TraceError> {
        let entry = self.requests.peek()?;
        Ok(self.or_cancel(entry))
    }

    fn peek_request(&mut self) -> Result<Option<Time>, TraceError> {
        let request = self.requests.peek_request()?;
        Ok(self.or_cancel(request))
    }

    fn next(&mut self) -> Result<Option<Entry>, TraceError> {
        let entry = self.requests.peek()?;
        if let Some(&(at, ticket)) = self.due.first()
            && entry.is_none_or(|entry| at < entry)
        {
            self.finished(at, ticket);
            self.given_up.insert(ticket);
            return Ok(Some(Entry::Cancel { at, ticket }));
        }
        let entry = self.requests.next()?;
        if let Some(Entry::Request(request)) = &entry
            && let Some(at) = self.gives_up(request.arrival, request.ticket)
        {
            self.due.insert((at, request.ticket));
            self.due_by_ticket.insert(request.ticket, at);
        }
        Ok(entry)
    }

    /// Whoever has an answer gives up no more, and whoever has given up does not wait for the end of what is computed
    /// in vain.
    fn finished(&mut self, now: Time, ticket: Ticket) {
        if self.given_up.remove(&ticket) {
            return;
        }
        if let Some(at) = self.due_by_ticket.remove(&ticket) {
            self.due.remove(&(at, ticket));
        }
        self.requests.finished(now, ticket);
    }

    fn manages(&self) -> bool {
        self.requests.manages()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Request;
    use crate::workload::Listed;

    fn requests(count: u64) -> Listed {
        let request = |ticket| {
            Entry::Request(Request {
                ticket,
                tenant: 0,
                arrival: Time(ticket * 1_000_000),
                input_tokens: 1,
                output_tokens: 1,
                class: 0,
            })
        };
        Listed::new((0..count).map(request).collect())
    }

    fn giving_up(share: f64) -> GivingUp<Listed> {
        let spec = CancellationsSpec {
            share,
            mean_after: Duration::from_millis(20),
        };
        GivingUp::new(requests(20_000), 7, spec).unwrap()
    }

    #[test]
    fn so_many_give_up_after_so_long_and_in_order_of_time() {
        let mut workload = giving_up(0.25);
        let (mut last, mut arrivals, mut waits_ns) = (Time::ZERO, BTreeMap::new(), Vec::new());
        while let Some(entry) = workload.next().unwrap() {
            assert!(entry.at() >= last);
            last = entry.at();
            match entry {
                Entry::Request(request) => {
                    arrivals.insert(request.ticket, request.arrival);
                }
                Entry::Cancel { at, ticket } => waits_ns.push(at.since(arrivals[&ticket]).0 as f64),
                Entry::Manage(_) => unreachable!("none was asked for"),
            }
        }
        let share = waits_ns.len() as f64 / arrivals.len() as f64;
        let mean_ms = waits_ns.iter().sum::<f64>() / waits_ns.len() as f64 / 1e6;
        assert!((0.24..0.26).contains(&share), "{share}");
        assert!((19.0..21.0).contains(&mean_ms), "{mean_ms}");
    }

    #[test]
    fn who_has_an_answer_gives_up_no_more() {
        let mut workload = giving_up(1.0);
        while let Some(entry) = workload.next().unwrap() {
            let Entry::Request(request) = entry else {
                panic!("{entry:?} after its answer")
            };
            workload.finished(request.arrival, request.ticket);
        }
    }
}
