//! Arrivals that do not wait for answers.

use std::ops::ControlFlow;

use super::arrival::Arrival;
use super::popularity::TenantsByTicket;
use super::presence::Presence;
use super::requests::Requests;
use crate::error::TraceError;
use crate::request::{Entry, Lengths, Request, Ticket};
use crate::spec::WorkloadSpec;
use crate::time::Time;
use crate::workload::Workload;

/// An open loop: arrivals, of which those of sleeping tenants are left out.
pub struct OpenLoop<A> {
    arrivals: A,
    requests: Requests,
    presence: Option<Presence>,
    tenants: u32,
    /// How many arrivals there were so far, those that were left out among them. It is the key of the tenant's draw.
    candidate: u64,
    ticket: u64,
    /// Drawn for this ticket and its neighbours.
    lengths: [Option<Lengths>; LENGTHS_AT_ONCE],
    /// At most so many requests, and all of them before then.
    limit: Option<u64>,
    end: Time,
    /// Nobody comes any more.
    over: bool,
    /// The next request, as it will be taken, once somebody has asked when it is due.
    ahead: Option<Request>,
}

/// Lengths of so many tickets are drawn at once: they lie anywhere in tables that are more than a processor's first
/// cache holds, and places that are asked for together are waited for together.
const LENGTHS_AT_ONCE: usize = 16;

impl<A: Iterator<Item = Result<Arrival, TraceError>>> OpenLoop<A> {
    pub fn new(spec: &WorkloadSpec, arrivals: A, requests: Requests, presence: Option<Presence>) -> OpenLoop<A> {
        OpenLoop {
            arrivals,
            requests,
            presence,
            tenants: spec.tenants,
            candidate: 0,
            ticket: 0,
            lengths: [None; LENGTHS_AT_ONCE],
            limit: spec.stop.requests,
            end: spec.stop.end(),
            over: false,
            ahead: None,
        }
    }

    /// Puts the next request ahead, if there is one.
    fn draw(&mut self) -> Result<(), TraceError> {
        if self.over || self.limit.is_some_and(|limit| self.ticket >= limit) {
            return Ok(());
        }
        let awake = self.next_awake()?;
        let Some((arrival, tenant)) = awake.filter(|(arrival, _)| arrival.at < self.end) else {
            self.over = true;
            return Ok(());
        };
        let ticket = self.ticket;
        self.ticket += 1;
        let place = ticket as usize % LENGTHS_AT_ONCE;
        if place == 0 {
            self.draw_lengths(ticket);
        }
        // Put together where it stays: it is large to be moved.
        let lengths = self.lengths[place].or(arrival.lengths);
        let lengths = lengths.ok_or_else(|| missing("lengths"))?;
        self.ahead = Some(Request {
            ticket,
            tenant,
            arrival: arrival.at,
            input_tokens: lengths.input,
            output_tokens: lengths.output,
            class: self.requests.class(tenant, &arrival),
        });
        Ok(())
    }

    /// Apart, so that who asks again and again finds nothing else to be done.
    #[inline(never)]
    fn draw_to_peek(&mut self) -> Result<Option<Time>, TraceError> {
        self.draw()?;
        Ok(self.ahead.map(|request| request.arrival))
    }

    /// Likewise to take it, where nobody has asked when it is due.
    #[inline(never)]
    fn draw_to_take(&mut self) -> Result<Option<Entry>, TraceError> {
        self.draw()?;
        Ok(self.ahead.take().map(Entry::Request))
    }

    #[inline(never)]
    fn draw_lengths(&mut self, from: Ticket) {
        for (ticket, lengths) in (from..).zip(&mut self.lengths) {
            *lengths = self.requests.lengths.of(ticket);
        }
    }

    /// There are fewer tenants than `found`, the first of those beyond, and whoever comes later make them.
    #[cold]
    fn too_few(&mut self, found: u32) -> TraceError {
        // A recording may repeat for ever.
        const LOOKED_THROUGH: usize = 10_000_000;
        let later = self.arrivals.by_ref().take(LOOKED_THROUGH).map_while(Result::ok);
        let candidates = (self.candidate..).zip(later);
        let tenants = candidates.filter_map(|(candidate, arrival)| self.requests.tenant(candidate, &arrival).ok());
        let largest = tenants.fold(found, u32::max);
        let must_be = format!("more than the largest tenant of the arrivals, {largest}");
        TraceError::spec("tenants.count", &must_be, self.tenants)
    }

    /// When the next request comes, where nothing else decides that.
    fn next_at(&mut self) -> Result<Option<Time>, TraceError> {
        if self.limit.is_some_and(|limit| self.ticket >= limit) {
            return Ok(None);
        }
        self.ticket += 1;
        let arrival = self.arrivals.next().transpose()?;
        Ok(arrival.map(|arrival| arrival.at).filter(|at| *at < self.end))
    }

    #[inline]
    fn next_awake(&mut self) -> Result<Option<(Arrival, u32)>, TraceError> {
        loop {
            let Some(arrival) = self.arrivals.next().transpose()? else {
                return Ok(None);
            };
            let tenant = self.requests.tenant(self.candidate, &arrival).map_err(missing)?;
            self.candidate += 1;
            if tenant >= self.tenants {
                return Err(self.too_few(tenant));
            }
            let Some(presence) = &mut self.presence else {
                return Ok(Some((arrival, tenant)));
            };
            if arrival.at >= self.end.min(presence.over) {
                return Ok(None);
            }
            if presence.is_awake(tenant, arrival.at, self.candidate) {
                return Ok(Some((arrival, tenant)));
            }
        }
    }
}

fn missing(what: &str) -> TraceError {
    let field = if what == "lengths" {
        "workload.lengths"
    } else {
        "tenants.popularity"
    };
    let must_be = format!("a distribution, since the arrivals bring no {what}");
    TraceError::spec(field, &must_be, "`of-arrivals`")
}

impl<A: Iterator<Item = Result<Arrival, TraceError>>> Workload for OpenLoop<A> {
    fn peek(&mut self) -> Result<Option<Time>, TraceError> {
        match &self.ahead {
            Some(request) => Ok(Some(request.arrival)),
            None => self.draw_to_peek(),
        }
    }

    fn next(&mut self) -> Result<Option<Entry>, TraceError> {
        match self.ahead.take() {
            Some(request) => Ok(Some(Entry::Request(request))),
            None => self.draw_to_take(),
        }
    }

    fn each_arrival(mut self: Box<Self>, see: &mut dyn FnMut(Time) -> ControlFlow<()>) -> Result<(), TraceError> {
        let by_tenant = self.presence.is_some() || matches!(self.requests.tenants, TenantsByTicket::OfArrivals);
        if by_tenant {
            return self.each_request(&mut |request| see(request.arrival));
        }
        // The first as a whole, so that what these arrivals lack is told as it is to who takes them.
        let Some(first) = self.next()? else { return Ok(()) };
        let mut at = Some(first.at());
        while let Some(time) = at
            && see(time).is_continue()
        {
            at = self.next_at()?;
        }
        Ok(())
    }
}
