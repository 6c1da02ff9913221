//! From an arrival to a request.

use super::arrival::Arrival;
use super::lengths::LengthsByTicket;
use super::popularity::{Shares, TenantsByTicket};
use crate::request::{Request, Ticket};
use crate::time::Time;

/// Gives an arrival its tenant, lengths and class.
pub struct Requests {
    pub tenants: TenantsByTicket,
    pub lengths: LengthsByTicket,
    pub classes: Option<Shares>,
}

impl Requests {
    /// The request that `arrival` is. `Err` says what the arrival should have brought but did not.
    #[inline]
    pub fn complete(&self, ticket: Ticket, arrival: Arrival) -> Result<Request, &'static str> {
        let tenant = self.tenants.of(ticket).or(arrival.tenant).ok_or("tenant")?;
        let lengths = self.lengths.of(ticket).or(arrival.lengths).ok_or("lengths")?;
        let class = match &self.classes {
            Some(shares) => shares.of(tenant) as u16,
            None => arrival.class.unwrap_or(0),
        };
        Ok(Request {
            ticket,
            tenant,
            arrival: arrival.at,
            input_tokens: lengths.input,
            output_tokens: lengths.output,
            class,
        })
    }

    /// The request that arrives at `at`, where `build` has made sure that all of it is drawn.
    pub fn drawn(&self, ticket: Ticket, at: Time) -> Request {
        self.complete(ticket, Arrival::at(at))
            .expect("tenant and lengths are drawn")
    }
}
