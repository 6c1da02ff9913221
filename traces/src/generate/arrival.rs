//! What arrival processes have in common.

use crate::error::TraceError;
use crate::request::Lengths;
use crate::time::Time;

/// An instant at which somebody asks, with what the process itself knows of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub at: Time,
    pub tenant: Option<u32>,
    pub lengths: Option<Lengths>,
    pub class: Option<u16>,
}

impl Arrival {
    /// An instant of which nothing else is known.
    pub fn at(at: Time) -> Arrival {
        Arrival {
            at,
            tenant: None,
            lengths: None,
            class: None,
        }
    }
}

/// Arrivals in order of time. They may never end.
pub type Arrivals = Box<dyn Iterator<Item = Result<Arrival, TraceError>> + Send>;
