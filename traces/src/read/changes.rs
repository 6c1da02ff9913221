//! The management requests of a recording of our own.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::records::{Record, Records};
use crate::error::{TraceError, out_of_order, positive};
use crate::management::{Action, Change, ManageRequest, ManagementTrace, Subject};
use crate::time::{Duration, Time};

/// Those of the part that is replayed, in order of time, after marks of who is absent when it begins.
pub struct Changes {
    records: Records,
    path: PathBuf,
    speed: f64,
    from: Time,
    end: Option<Time>,
    last: Time,
    /// Who is not there, by the changes before the part; to be told of when it begins.
    absent: BTreeSet<Subject>,
    /// The part's first change, while absences are told.
    first: Option<ManageRequest>,
    has_begun: bool,
}

impl Changes {
    /// Opens a recording.
    ///
    /// # Errors
    /// As [`Records::open`], and [`TraceError::File`] where the file's format has none.
    pub fn open(spec: &ManagementTrace) -> Result<Changes, TraceError> {
        let from = Time(spec.from.0);
        Ok(Changes {
            records: Records::open_changes(&spec.path)?,
            path: spec.path.clone(),
            speed: positive("workload.management.trace.speed", spec.speed)?,
            from,
            end: spec.length.map(|length| Time(from.0.saturating_add(length.0))),
            last: Time::ZERO,
            absent: BTreeSet::new(),
            first: None,
            has_begun: false,
        })
    }

    fn advance(&mut self) -> Result<Option<ManageRequest>, TraceError> {
        if !self.has_begun {
            self.first = self.begin()?;
            self.has_begun = true;
        }
        if let Some(subject) = self.absent.pop_first() {
            let action = Action::Absent;
            return Ok(Some(ManageRequest {
                at: Time::ZERO,
                change: Change { subject, action },
            }));
        }
        match self.first.take() {
            Some(first) => Ok(Some(first)),
            None => self.read()?.map(|(at, change)| self.request(at, change)).transpose(),
        }
    }

    /// Goes through the changes before the part, of which is left who is not there; the first one in it.
    fn begin(&mut self) -> Result<Option<ManageRequest>, TraceError> {
        while let Some((at, change)) = self.read()? {
            if at >= self.from {
                return self.request(at, change).map(Some);
            }
            match change.action {
                Action::Absent | Action::Delete => self.absent.insert(change.subject),
                Action::Create => self.absent.remove(&change.subject),
                Action::Update => false,
            };
        }
        Ok(None)
    }

    /// The next change that is not behind the part.
    fn read(&mut self) -> Result<Option<(Time, Change)>, TraceError> {
        let Some(record) = self.records.next().transpose()? else {
            return Ok(None);
        };
        let Record {
            arrival: Some(at),
            change: Some(change),
            ..
        } = record
        else {
            return Err(TraceError::file(
                &self.path,
                "must say when something changes, got nothing",
            ));
        };
        if at < self.last {
            return Err(self.records.error(out_of_order(at, self.last)));
        }
        self.last = at;
        Ok(Some((at, change)).filter(|_| self.end.is_none_or(|end| at < end)))
    }

    fn request(&self, at: Time, change: Change) -> Result<ManageRequest, TraceError> {
        let since = at.since(self.from);
        // The division would lose a recording's last digits.
        let at = if self.speed == 1.0 {
            Some(since)
        } else {
            Duration::from_secs_f64(since.as_secs_f64() / self.speed)
        };
        let Some(at) = at.map(|at| Time(at.0)).filter(|at| *at < Time::ARRIVALS_END) else {
            return Err(TraceError::spec(
                "workload.management.trace.speed",
                "one at which a run is below 292 years",
                self.speed,
            ));
        };
        Ok(ManageRequest { at, change })
    }
}

impl Iterator for Changes {
    type Item = Result<ManageRequest, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().transpose()
    }
}
