//! Arrivals at the instants of a recorded trace.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::arrival::Arrival;
use super::kept::Kept;
use crate::error::{TraceError, out_of_order, positive};
use crate::read::{Record, Records};
use crate::request::Lengths;
use crate::spec::TraceSpec;
use crate::time::{Duration, Time};

/// The records of a cut, in order of time, from its beginning again where it repeats. Who got no answer is left out:
/// how long it would have been nobody knows.
pub struct Recorded {
    records: Records,
    path: PathBuf,
    skip_bad_lines: bool,
    /// What it is called in errors.
    field: String,
    /// As many as the workload has; 0 where it names none, and any will do.
    classes: usize,
    speed: f64,
    from: Time,
    end: Option<Time>,
    /// The length of the cut where it repeats.
    period: Option<Duration>,
    rounds_before: Duration,
    last: Time,
    any: bool,
    /// By the time since `from`, where the cut repeats.
    kept: Kept<Arrival>,
}

impl Recorded {
    pub fn open(field: &str, spec: &TraceSpec, factor: f64, classes: usize) -> Result<Recorded, TraceError> {
        let records = Records::open(&spec.path, spec.skip_bad_lines)?;
        if !records.format().has_arrivals() {
            let message = format!(
                "must have arrival times to be replayed, got {}",
                records.format().name()
            );
            return Err(TraceError::file(&spec.path, message));
        }
        if spec.cut.repeat && spec.cut.length.is_none_or(|length| length == Duration::ZERO) {
            let must_be = "given and above 0 where a trace repeats, since its last record does not say when it ends";
            return Err(TraceError::spec(&format!("{field}.length"), must_be, "nothing"));
        }
        let from = Time(spec.cut.from.0);
        Ok(Recorded {
            records,
            path: spec.path.clone(),
            skip_bad_lines: spec.skip_bad_lines,
            classes,
            field: field.to_string(),
            speed: positive(&format!("{field}.speed"), spec.speed)? * factor,
            from,
            end: spec.cut.length.map(|length| from + length),
            period: spec.cut.length.filter(|_| spec.cut.repeat),
            rounds_before: Duration::ZERO,
            last: Time::ZERO,
            any: false,
            kept: Kept::new(),
        })
    }

    fn advance(&mut self) -> Result<Option<Arrival>, TraceError> {
        loop {
            let arrival = match self.kept.is_given() {
                true => self.kept.next(),
                false => self.read()?,
            };
            match arrival {
                Some(arrival) => return self.in_round(arrival).map(Some),
                None if self.start_again()? => {}
                None => return Ok(None),
            }
        }
    }

    /// The next of the round, by the time since `from`; nothing at its end.
    fn read(&mut self) -> Result<Option<Arrival>, TraceError> {
        while let Some(record) = self.records.next().transpose()? {
            let at = record.arrival.expect("the format has arrivals");
            if at < self.last {
                let wrong = out_of_order(at, self.last);
                let message = format!("{wrong}; `tenantry trace convert --sort` puts it in order");
                return Err(self.records.error(message));
            }
            self.last = at;
            if self.end.is_some_and(|end| at >= end) {
                break;
            }
            if at < self.from || record.is_unanswered() {
                continue;
            }
            if let Some(class) = record.class
                && self.classes > 0
                && usize::from(class) >= self.classes
            {
                let (last, classes) = (self.classes - 1, self.classes);
                let message = format!("class: must be 0 to {last}, since tenants.classes are {classes}, got {class}");
                return Err(self.records.error(message));
            }
            self.any = true;
            let arrival = Arrival {
                at: Time(at.since(self.from).0),
                tenant: record.tenant,
                lengths: record.input_tokens.zip(record.output_tokens).map(|(input, output)| Lengths { input, output }),
                class: record.class,
            };
            if self.period.is_some() {
                self.kept.keep(arrival);
            }
            return Ok(Some(arrival));
        }
        Ok(None)
    }

    /// False where the cut does not repeat.
    fn start_again(&mut self) -> Result<bool, TraceError> {
        if !self.any {
            let must = "have requests in the part that is replayed";
            return Err(TraceError::none(&self.path, must, self.records.skipped()));
        }
        let Some(period) = self.period else {
            return Ok(false);
        };
        let rounds_before = self.rounds_before.0.checked_add(period.0).map(Duration);
        self.rounds_before = rounds_before.ok_or_else(|| self.too_late())?;
        if !self.kept.start_again() {
            self.records = Records::open(&self.path, self.skip_bad_lines)?;
            self.last = Time::ZERO;
        }
        Ok(true)
    }

    fn too_late(&self) -> TraceError {
        let must_be =
            "replayed within 292 years: at a higher `speed`, in shorter rounds, or without the silence before `from`";
        TraceError::spec(&self.field, must_be, "later requests")
    }

    /// An arrival of the current round, when it comes.
    fn in_round(&self, arrival: Arrival) -> Result<Arrival, TraceError> {
        let since_start = self.rounds_before.0.saturating_add(arrival.at.0);
        let at = if self.speed == 1.0 {
            since_start
        } else {
            (since_start as f64 / self.speed) as u64
        };
        if Time(at) >= Time::ARRIVALS_END {
            return Err(self.too_late());
        }
        Ok(Arrival {
            at: Time(at),
            ..arrival
        })
    }
}

/// Requests of the part of a recording that a scenario replays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartOfRecording {
    /// All.
    pub requests: u64,
    /// Of these got no answer there, and are left out.
    pub unanswered: u64,
    /// Of these ask for no token.
    pub without_output: u64,
    /// How many tenants they name.
    pub tenants: u64,
}

/// What the part of a recording that `spec` replays has in it; and why it could not be read to its end, where a run may
/// not have come so far.
pub fn part_of_recording(spec: &TraceSpec) -> (PartOfRecording, Option<TraceError>) {
    let mut part = PartOfRecording::default();
    let mut tenants = BTreeSet::new();
    let read = read_part(spec, |record| {
        part.requests += 1;
        part.unanswered += u64::from(record.is_unanswered());
        part.without_output += u64::from(record.output_tokens == Some(0));
        tenants.extend(record.tenant);
    });
    part.tenants = tenants.len() as u64;
    (part, read.err())
}

/// Goes through the cut's records and no further, as a replay does.
fn read_part(spec: &TraceSpec, mut see: impl FnMut(&Record)) -> Result<(), TraceError> {
    let from = Time(spec.cut.from.0);
    let end = spec.cut.length.map(|length| from + length);
    for record in Records::open(&spec.path, spec.skip_bad_lines)? {
        let record = record?;
        let Some(at) = record.arrival.filter(|at| *at >= from) else {
            continue;
        };
        if end.is_some_and(|end| at >= end) {
            break;
        }
        see(&record);
    }
    Ok(())
}

impl Iterator for Recorded {
    type Item = Result<Arrival, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().transpose()
    }
}
