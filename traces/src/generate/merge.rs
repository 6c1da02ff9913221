//! Several arrival processes at once.

use super::arrival::{Arrival, Arrivals};
use crate::error::TraceError;

/// The union of arrivals in order of time; at equal times the one that is listed first comes first.
pub struct Merge {
    sources: Vec<(Option<Arrival>, Arrivals)>,
    primed: bool,
}

impl Merge {
    pub fn new(sources: Vec<Arrivals>) -> Merge {
        Merge {
            sources: sources.into_iter().map(|source| (None, source)).collect(),
            primed: false,
        }
    }

    fn advance(&mut self) -> Result<Option<Arrival>, TraceError> {
        if !self.primed {
            for (head, source) in &mut self.sources {
                *head = source.next().transpose()?;
            }
            self.primed = true;
        }
        let heads = self.sources.iter_mut().filter_map(|(head, source)| Some((head.as_ref()?.at, head, source)));
        let Some((_, head, source)) = heads.min_by_key(|(at, ..)| *at) else {
            return Ok(None);
        };
        Ok(std::mem::replace(head, source.next().transpose()?))
    }
}

impl Iterator for Merge {
    type Item = Result<Arrival, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().transpose()
    }
}
