//! Arrivals that do not wait for answers.

use super::arrival::{Arrival, Arrivals};
use super::presence::Presence;
use super::requests::Requests;
use crate::error::TraceError;
use crate::request::Entry;
use crate::spec::{Stop, WorkloadSpec};
use crate::time::Time;
use crate::workload::Workload;

/// An open loop: arrivals, of which those of sleeping tenants are left out.
pub struct OpenLoop {
    arrivals: Arrivals,
    requests: Requests,
    presence: Option<Presence>,
    tenants: u32,
    /// How many arrivals there were so far, those that were left out among them. It is the key of the tenant's draw.
    candidate: u64,
    ticket: u64,
    stop: Stop,
    /// The next arrival, and its tenant.
    ahead: Option<(Arrival, u32)>,
}

impl OpenLoop {
    pub fn new(spec: &WorkloadSpec, arrivals: Arrivals, requests: Requests, presence: Option<Presence>) -> OpenLoop {
        OpenLoop {
            arrivals,
            requests,
            presence,
            tenants: spec.tenants,
            candidate: 0,
            ticket: 0,
            stop: spec.stop,
            ahead: None,
        }
    }

    /// When the next arrival is, which stays ahead until it is taken.
    #[inline]
    fn due(&mut self) -> Result<Option<Time>, TraceError> {
        if self.ahead.is_none() {
            if self.stop.requests.is_some_and(|limit| self.ticket >= limit) {
                return Ok(None);
            }
            self.ahead = self.next_awake()?;
        }
        let at = self.ahead.as_ref().map(|(arrival, _)| arrival.at);
        Ok(at.filter(|&at| self.stop.after.is_none_or(|end| at < end)))
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
                let must_be = format!("more than the largest tenant of the arrivals, {tenant}");
                return Err(TraceError::spec("tenants.count", &must_be, self.tenants));
            }
            let Some(presence) = &mut self.presence else {
                return Ok(Some((arrival, tenant)));
            };
            let over = self.stop.after.map_or(presence.over, |end| end.min(presence.over));
            if arrival.at >= over {
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

impl Workload for OpenLoop {
    fn peek(&mut self) -> Result<Option<Time>, TraceError> {
        self.due()
    }

    fn next(&mut self) -> Result<Option<Entry>, TraceError> {
        if self.due()?.is_none() {
            return Ok(None);
        }
        let (arrival, tenant) = self.ahead.take().expect("what is due is ahead");
        let request = self.requests.complete(self.ticket, tenant, &arrival).map_err(missing)?;
        self.ticket += 1;
        Ok(Some(Entry::Request(request)))
    }
}
