//! A part of other arrivals: from an instant on, for some time, once or again and again.

use super::arrival::{Arrival, Arrivals};
use super::ends;
use super::kept::Kept;
use super::process::{MOST_STEPS, too_seldom};
use crate::error::TraceError;
use crate::spec::PartSpec;
use crate::time::{Duration, Time};

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
    /// When the current round begins; `None` where there is none any more.
    begins: Option<Time>,
    /// No round is looked for that begins at this time or later.
    over: Time,
    /// In the arrivals' own time.
    from: Time,
    end: Option<Time>,
    /// From one round to the next.
    period: Option<Duration>,
    /// Whether the current round has had a request.
    any: bool,
    /// Rounds without one in a row.
    empty_rounds: u64,
    /// Whether all rounds are alike, so that a round without a request means that none has one.
    alike: bool,
    /// By the time since `from`, where rounds are alike.
    kept: Kept<Arrival>,
    /// Whether arrivals have come as far as `from`.
    came_to_from: bool,
}

impl Part {
    pub fn new(field: String, spec: &PartSpec, over: Time, build: Round) -> Result<Part, TraceError> {
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
            over,
            from: Time(cut.from.0),
            end: cut.length.map(end).transpose()?,
            period: cut.length.filter(|_| cut.repeat),
            any: false,
            empty_rounds: 0,
            alike: ends::draws_nothing(&spec.arrivals),
            kept: Kept::new(),
            came_to_from: false,
            field,
        })
    }

    fn advance(&mut self) -> Result<Option<Arrival>, TraceError> {
        while let Some(begins) = self.begins {
            let arrival = match self.kept.is_given() {
                true => self.kept.next(),
                false => self.draw()?,
            };
            let Some(arrival) = arrival else {
                self.start_again(begins)?;
                continue;
            };
            self.any = true;
            let at = begins.0.checked_add(arrival.at.0);
            return Ok(at.map(|at| Arrival {
                at: Time(at),
                ..arrival
            }));
        }
        Ok(None)
    }

    /// The next of the round, by the time since `from`; nothing at its end.
    fn draw(&mut self) -> Result<Option<Arrival>, TraceError> {
        while let Some(arrival) = self.arrivals.next().transpose()? {
            if arrival.at < self.from {
                continue;
            }
            self.came_to_from = true;
            if self.end.is_some_and(|end| arrival.at >= end) {
                break;
            }
            let arrival = Arrival {
                at: Time(arrival.at.since(self.from).0),
                ..arrival
            };
            if self.alike && self.period.is_some() {
                self.kept.keep(arrival);
            }
            return Ok(Some(arrival));
        }
        Ok(None)
    }

    /// Goes to the next round, where there is one.
    fn start_again(&mut self, begins: Time) -> Result<(), TraceError> {
        let next = self.period.and_then(|period| begins.0.checked_add(period.0)).map(Time);
        self.begins = next.filter(|begins| *begins < self.over);
        if self.begins.is_none() {
            return Ok(());
        }
        let was_empty = !std::mem::take(&mut self.any);
        if was_empty && self.alike {
            return Err(self.never());
        }
        // What is drawn may come in a later round.
        self.empty_rounds = if was_empty { self.empty_rounds + 1 } else { 0 };
        if self.empty_rounds > MOST_STEPS {
            return Err(too_seldom());
        }
        self.round += 1;
        if !(self.alike && self.kept.start_again()) {
            self.arrivals = (self.build)(self.round)?;
        }
        Ok(())
    }

    /// That no round has a request, since all are as this one was.
    fn never(&self) -> TraceError {
        if self.came_to_from {
            let must_be = "arrivals with requests in the part that repeats";
            return TraceError::spec(&self.field, must_be, "none");
        }
        // They end, as a recording does, and so they would in every round.
        let must_be = "before the last request of the arrivals that it is a part of";
        TraceError::spec(&format!("{}.from", self.field), must_be, self.from)
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
        let build = |_| Ok(every_second(10));
        Part::new("part".into(), &spec, Time::MAX, Box::new(build)).unwrap()
    }

    #[test]
    fn a_part_beyond_the_last_request_is_refused_in_its_first_round() {
        let error = part(10, 5).next().unwrap().unwrap_err().to_string();
        assert!(error.contains("part.from: must be before the last request"), "{error}");
        let later = part(8, 5).nth(2).unwrap().unwrap();
        assert_eq!(later.at, Time(5_000_000_000));
    }

    fn every_second(secs: u64) -> Arrivals {
        Box::new((0..secs).map(|second| Ok(Arrival::at(Time(second * 1_000_000_000)))))
    }

    /// A part of `arrivals`, from half a second on for so many milliseconds, until an hour is over.
    fn repeated(length_ms: u64, arrivals: ArrivalsSpec, build: Round) -> Part {
        let spec = PartSpec {
            cut: Cut {
                from: Duration::from_millis(500),
                length: Some(Duration::from_millis(length_ms)),
                repeat: true,
            },
            delay: Duration::ZERO,
            arrivals: Box::new(arrivals),
        };
        Part::new("part".into(), &spec, Time(3_600_000_000_000), build).unwrap()
    }

    #[test]
    fn rounds_that_are_alike_are_looked_at_once() {
        let constant = || ArrivalsSpec::Constant { rate_per_s: 1.0 };
        let silent = repeated(400, constant(), Box::new(|_| Ok(every_second(3600)))).next();
        assert_eq!(
            silent.unwrap().unwrap_err().to_string(),
            "part: must be arrivals with requests in the part that repeats, got none"
        );
        let once = |round| {
            assert_eq!(round, 0, "the others are kept");
            Ok(every_second(3600))
        };
        let instants: Vec<u64> = repeated(2000, constant(), Box::new(once))
            .map(|arrival| arrival.unwrap().at.0 / 1_000_000)
            .collect();
        let expected: Vec<u64> = (0..3600).map(|second| 1000 * second + 500).collect();
        assert_eq!(instants, expected);
    }

    /// That some thousand rounds draw none is chance; the workload's end is the end.
    #[test]
    fn rounds_that_draw_may_all_be_empty() {
        let poisson = || ArrivalsSpec::Poisson { rate_per_s: 0.001 };
        let seldom = |round| Ok(every_second(if round == 3000 { 2 } else { 0 }));
        let instants: Vec<u64> = repeated(1000, poisson(), Box::new(seldom))
            .map(|arrival| arrival.unwrap().at.0 / 1_000_000)
            .collect();
        assert_eq!(instants, [3_000_500]);
    }
}
