//! From an arrival to a request.

use super::arrival::Arrival;
use super::groups::TenantGroups;
use super::lengths::LengthsByTicket;
use super::popularity::TenantsByTicket;
use crate::request::{Lengths, Request, Ticket};
use crate::time::Time;

/// Gives an arrival its tenant, lengths and class.
pub struct Requests {
    pub tenants: TenantsByTicket,
    pub lengths: LengthsByTicket,
    pub groups: TenantGroups,
}

impl Requests {
    /// The tenant of `arrival`, which is the `candidate`th. `Err` says what it should have brought but did not.
    #[inline(always)]
    pub fn tenant(&self, candidate: u64, arrival: &Arrival) -> Result<u32, &'static str> {
        self.tenants.of(candidate).or(arrival.tenant).ok_or("tenant")
    }

    /// The request of `tenant` that `arrival` is. `Err` as above.
    pub fn complete(&self, ticket: Ticket, tenant: u32, arrival: &Arrival) -> Result<Request, &'static str> {
        let (lengths, class) = self.lengths_and_class(ticket, tenant, arrival)?;
        Ok(Request {
            ticket,
            tenant,
            arrival: arrival.at,
            input_tokens: lengths.input,
            output_tokens: lengths.output,
            class,
        })
    }

    /// What the request of `tenant` that `arrival` is has beside these. `Err` as above.
    #[inline(always)]
    pub fn lengths_and_class(
        &self,
        ticket: Ticket,
        tenant: u32,
        arrival: &Arrival,
    ) -> Result<(Lengths, u16), &'static str> {
        let lengths = self.lengths.of(ticket).or(arrival.lengths).ok_or("lengths")?;
        let class = self.groups.class_of(tenant).or(arrival.class).unwrap_or(0);
        Ok((lengths, class))
    }

    /// The request that arrives at `at`, where `build` has made sure that all of it is drawn.
    pub fn drawn(&self, ticket: Ticket, at: Time) -> Request {
        let arrival = Arrival::at(at);
        self.tenant(ticket, &arrival)
            .and_then(|tenant| self.complete(ticket, tenant, &arrival))
            .expect("tenant and lengths are drawn")
    }
}
