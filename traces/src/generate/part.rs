//! A part of other arrivals: from an instant on, for some time, once or again and again.

use super::arrival::{Arrival, Arrivals};
use crate::error::TraceError;
use crate::spec::PartSpec;
use crate::time::{Duration, Time};

/// More rounds than this without a request, and there will be none.
const MOST_EMPTY_ROUNDS: u32 = 10_000;

/// The arrivals of a round, from their own beginning on.
pub type Round = Box<dyn Fn(u64) -> Result<Arrivals, TraceError> + Send>;

/// Round after round of the same part.
pub struct Part {
    /// What it is called in errors.
    field: String,
    build: Round,
    /// Those of the current round.
    arrivals: Arrivals,
    round: u64,
    /// When the current round begins; `None` beyond all time.
    begins: Option<Time>,
    /// In the arrivals' own time.
    from: Time,
    end: Option<Time>,
    /// From one round to the next.
    period: Option<Duration>,
    empty_rounds: u32,
}

impl Part {
    pub fn new(field: String, spec: &PartSpec, build: Round) -> Result<Part, TraceError> {
        let cut = spec.cut;
        if cut.length == Some(Duration::ZERO) {
            return Err(TraceError::spec(&format!("{field}.length"), "above 0", "0 s"));
        }
        if cut.repeat && cut.length.is_none() {
            let must_be = "given where a part repeats, since its last request does not say when it ends";
            return Err(TraceError::spec(&format!("{field}.length"), must_be, "nothing"));
        }
        let end = |length: Duration| {
            let end = cut.from.0.checked_add(length.0).map(Time);
            end.ok_or_else(|| TraceError::spec(&format!("{field}.length"), "below 584 years after `from`", length))
        };
        Ok(Part {
            arrivals: build(0)?,
            build,
            round: 0,
            begins: Some(Time::ZERO + spec.delay),
            from: Time(cut.from.0),
            end: cut.length.map(end).transpose()?,
            period: cut.length.filter(|_| cut.repeat),
            empty_rounds: 0,
            field,
        })
    }

    fn advance(&mut self) -> Result<Option<Arrival>, TraceError> {
        while let Some(begins) = self.begins {
            match self.arrivals.next().transpose()? {
                Some(arrival) if arrival.at < self.from => {}
                Some(arrival) if self.end.is_none_or(|end| arrival.at < end) => {
                    self.empty_rounds = 0;
                    let at = begins.0.checked_add(arrival.at.since(self.from).0);
                    return Ok(at.map(|at| Arrival {
                        at: Time(at),
                        ..arrival
                    }));
                }
                _ => self.start_again(begins)?,
            }
        }
        Ok(None)
    }

    /// Goes to the next round, where there is one.
    fn start_again(&mut self, begins: Time) -> Result<(), TraceError> {
        self.begins = self.period.and_then(|period| begins.0.checked_add(period.0)).map(Time);
        if self.begins.is_none() {
            return Ok(());
        }
        self.empty_rounds += 1;
        if self.empty_rounds > MOST_EMPTY_ROUNDS {
            let must_be = "arrivals with requests in the part that repeats";
            let got = format!("none in {MOST_EMPTY_ROUNDS} rounds");
            return Err(TraceError::spec(&self.field, must_be, got));
        }
        self.round += 1;
        self.arrivals = (self.build)(self.round)?;
        Ok(())
    }
}

impl Iterator for Part {
    type Item = Result<Arrival, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().transpose()
    }
}
