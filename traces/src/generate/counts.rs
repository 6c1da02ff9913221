//! Per-second counts of a recording as a rate.

use std::path::PathBuf;

use super::kept::Kept;
use super::process::{Rates, Segment};
use crate::error::{TraceError, positive};
use crate::read::Counts;
use crate::spec::CountsSpec;
use crate::time::{Duration, Time};

const NS_PER_S: u64 = 1_000_000_000;

/// A segment a second, whose rate is the second's count.
pub struct CountedRates {
    path: PathBuf,
    counts: Counts,
    scale: f64,
    /// By the recording's clock, in seconds.
    from: u64,
    length: Option<u64>,
    skip_bad_lines: bool,
    repeat: bool,
    /// How many seconds of this round through the file were read, those before `from` among them.
    second: u64,
    /// Whether this round through the file has had a request: without one, repeating would never end.
    any: bool,
    /// The counts of the cut, where it repeats.
    kept: Kept<u32>,
    zeros: Zeros,
    now: Time,
}

/// Zero seconds that are not yet known to be silence or a hole.
struct Zeros {
    drop_from: Option<u64>,
    /// Read but not yet handed out.
    pending: u64,
    /// What ended the run of them.
    after: Option<u32>,
}

impl CountedRates {
    pub fn open(field: &str, spec: &CountsSpec, factor: f64) -> Result<CountedRates, TraceError> {
        let whole_seconds = |name: &str, duration: Duration| {
            if duration.0.is_multiple_of(NS_PER_S) {
                Ok(duration.0 / NS_PER_S)
            } else {
                Err(TraceError::spec(&format!("{field}.{name}"), "whole seconds", duration))
            }
        };
        let from = whole_seconds("from", spec.cut.from)?;
        let length = spec.cut.length.map(|length| whole_seconds("length", length)).transpose()?;
        let drop_from = spec.drop_zeros_from.map(|duration| whole_seconds("drop_zeros_from", duration)).transpose()?;
        if drop_from == Some(0) {
            return Err(TraceError::spec(
                &format!("{field}.drop_zeros_from"),
                "at least 1 s",
                "0 s",
            ));
        }
        Ok(CountedRates {
            path: spec.path.clone(),
            skip_bad_lines: spec.skip_bad_lines,
            counts: Counts::open(&spec.path, spec.skip_bad_lines)?,
            scale: positive(&format!("{field}.scale"), spec.scale)? * factor,
            from,
            length,
            repeat: spec.cut.repeat,
            second: 0,
            any: false,
            kept: Kept::new(),
            zeros: Zeros {
                drop_from,
                pending: 0,
                after: None,
            },
            now: Time::ZERO,
        })
    }

    /// The next count of the cut, from its beginning again where it repeats.
    fn read(&mut self) -> Result<Option<u32>, TraceError> {
        let end = self.length.map(|length| self.from + length);
        loop {
            if self.kept.is_given() {
                match self.kept.next() {
                    Some(count) => return Ok(Some(count)),
                    None => _ = self.kept.start_again(),
                }
                continue;
            }
            // When the clock begins is known once its first count has been read.
            let is_over = |end| self.second > 0 && self.counts.first_second() + self.second >= end;
            let count = if end.is_some_and(is_over) {
                None
            } else {
                self.counts.next().transpose()?
            };
            let first = self.counts.first_second();
            let at = first + self.second;
            match (count, end) {
                (Some(_), Some(end)) if at >= end => {
                    let message = format!(
                        "must have requests from second {} to second {end}, got its first line at second {first}",
                        self.from
                    );
                    return Err(TraceError::file(&self.path, message));
                }
                (Some(_), _) if at < self.from => self.second += 1,
                (Some(count), _) => {
                    self.second += 1;
                    self.any |= count > 0;
                    if self.repeat {
                        self.kept.keep(count);
                    }
                    return Ok(Some(count));
                }
                (None, _) if at <= self.from.max(first) || (self.repeat && !self.any) => {
                    let message = format!("must have requests from second {} on, got none", self.from);
                    return Err(TraceError::file(&self.path, message));
                }
                (None, _) if self.repeat && self.kept.start_again() => {}
                (None, _) if self.repeat => {
                    self.counts = Counts::open(&self.path, self.skip_bad_lines)?;
                    self.second = 0;
                    self.any = false;
                }
                (None, _) => return Ok(None),
            }
        }
    }

    /// The next count that is not in a hole.
    fn next_count(&mut self) -> Result<Option<u32>, TraceError> {
        let Some(drop_from) = self.zeros.drop_from else {
            return self.read();
        };
        loop {
            if self.zeros.pending > 0 && self.zeros.after.is_some() {
                self.zeros.pending -= 1;
                return Ok(Some(0));
            }
            if let Some(count) = self.zeros.after.take() {
                return Ok(Some(count));
            }
            match self.read()? {
                Some(0) => self.zeros.pending += 1,
                None => return Ok(None),
                Some(count) => {
                    if self.zeros.pending >= drop_from {
                        self.zeros.pending = 0;
                    }
                    self.zeros.after = Some(count);
                }
            }
        }
    }
}

impl Rates for CountedRates {
    fn next(&mut self) -> Result<Option<Segment>, TraceError> {
        let Some(count) = self.next_count()? else {
            return Ok(None);
        };
        self.now = Time(self.now.0 + NS_PER_S);
        Ok(Some(Segment {
            until: self.now,
            rate_per_ns: f64::from(count) * self.scale / NS_PER_S as f64,
            slope: 0.0,
        }))
    }
}
