//! A part of other arrivals: from an instant on, for some time, once or again and again.

use super::arrival::{Arrival, Arrivals};
use super::ends;
use crate::error::TraceError;
use crate::spec::PartSpec;
use crate::time::{Duration, Time};

/// More rounds than this without a request, and there will be none.
const MOST_EMPTY_ROUNDS: u32 = 1_000;

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
    /// Whether all rounds are alike, so that a round without a request means that none has one.
    alike: bool,
    /// Whether the current round's arrivals have come as far as `from`.
    came_to_from: bool,
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
        // First of all: it says what is wrong with them, and where.
        let arrivals = build(0)?;
        if cut.repeat
            && cut.from > Duration::ZERO
            && let Some(end) = ends::end(&spec.arrivals)?
            && Time(cut.from.0) >= end
        {
            let must_be = format!("before the end of the arrivals that it is a part of, {end}");
            return Err(TraceError::spec(&format!("{field}.from"), &must_be, Time(cut.from.0)));
        }
        Ok(Part {
            arrivals,
            build,
            round: 0,
            begins: Some(Time::ZERO + spec.delay),
            from: Time(cut.from.0),
            end: cut.length.map(end).transpose()?,
            period: cut.length.filter(|_| cut.repeat),
            empty_rounds: 0,
            alike: ends::draws_nothing(&spec.arrivals),
            came_to_from: false,
            field,
        })
    }

    fn advance(&mut self) -> Result<Option<Arrival>, TraceError> {
        while let Some(begins) = self.begins {
            let arrival = self.arrivals.next().transpose()?;
            self.came_to_from |= arrival.as_ref().is_some_and(|arrival| arrival.at >= self.from);
            match arrival {
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
        if !std::mem::take(&mut self.came_to_from) && self.alike {
            // They end, as a recording does, and so they would in every round.
            let must_be = "before the last request of the arrivals that it is a part of";
            return Err(TraceError::spec(&format!("{}.from", self.field), must_be, self.from));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{ArrivalsSpec, Cut};

    fn part(from_s: u64, length_s: u64) -> Part {
        let cut = Cut {
            from: Duration::from_secs(from_s),
            length: Some(Duration::from_secs(length_s)),
            repeat: true,
        };
        let spec = PartSpec {
            cut,
            delay: Duration::ZERO,
            arrivals: Box::new(ArrivalsSpec::ThreadBursts {
                threads: 1,
                stagger: Duration::ZERO,
                period: Duration::from_secs(1),
                repeats: 10,
            }),
        };
        // A second each.
        let build = |_| {
            let arrivals = (0..10).map(|second| Ok(Arrival::at(Time(second * 1_000_000_000))));
            Ok(Box::new(arrivals) as Arrivals)
        };
        Part::new("part".into(), &spec, Box::new(build)).unwrap()
    }

    #[test]
    fn a_part_beyond_the_last_request_is_refused_in_its_first_round() {
        let error = part(10, 5).next().unwrap().unwrap_err().to_string();
        assert!(error.contains("part.from: must be before the last request"), "{error}");
        let later = part(8, 5).nth(2).unwrap().unwrap();
        assert_eq!(later.at, Time(5_000_000_000));
    }
}
