//! Which requests are let in.

use tenantry_traces::Request;

use crate::command::RejectReason;
use crate::spec::AdmitSpec;

/// Lets a request in or turns it away.
pub trait Admit: Send {
    /// `waiting` counts the requests that wait anywhere in the system.
    ///
    /// # Errors
    /// Why it is turned away.
    fn admit(&self, request: &Request, waiting: u32) -> Result<(), RejectReason>;
}

struct Open;

impl Admit for Open {
    fn admit(&self, _: &Request, _: u32) -> Result<(), RejectReason> {
        Ok(())
    }
}

struct BoundedQueue {
    max_waiting: u32,
}

impl Admit for BoundedQueue {
    fn admit(&self, _: &Request, waiting: u32) -> Result<(), RejectReason> {
        if waiting < self.max_waiting {
            Ok(())
        } else {
            Err(RejectReason::QueueFull)
        }
    }
}

/// The policy that a spec names.
pub fn build(spec: &AdmitSpec) -> Box<dyn Admit> {
    match *spec {
        AdmitSpec::Open => Box::new(Open),
        AdmitSpec::BoundedQueue { max_waiting } => Box::new(BoundedQueue { max_waiting }),
    }
}
