//! From an arrival to a request.

use super::arrival::Arrival;
use super::groups::TenantGroups;
use super::lengths::LengthsByTicket;
use super::popularity::TenantsByTicket;
use crate::request::{Request, Ticket};
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
        let lengths = self.lengths.of(ticket).or(arrival.lengths).ok_or("lengths")?;
        Ok(Request {
            ticket,
            tenant,
            arrival: arrival.at,
            input_tokens: lengths.input,
            output_tokens: lengths.output,
            class: self.class(tenant, arrival),
        })
    }

    /// The service class of the request of `tenant` that `arrival` is: what was recorded, else the tenant's.
    #[inline(always)]
    pub fn class(&self, tenant: u32, arrival: &Arrival) -> u16 {
        arrival.class.or_else(|| self.groups.class_of(tenant)).unwrap_or(0)
    }

    /// The request that arrives at `at`, where `build` has made sure that all of it is drawn.
    pub fn drawn(&self, ticket: Ticket, at: Time) -> Request {
        let arrival = Arrival::at(at);
        self.tenant(ticket, &arrival)
            .and_then(|tenant| self.complete(ticket, tenant, &arrival))
            .expect("tenant and lengths are drawn")
    }
}
