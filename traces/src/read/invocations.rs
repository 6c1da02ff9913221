//! Azure Functions 2021, invocation by invocation: `app,func,end_timestamp,duration` in seconds (Zhang et al., "Faster and cheaper
//! serverless computing on harvested resources", SOSP 2021; the trace that AlpaServe calls MAF2).

use std::collections::HashMap;
use std::path::Path;

use super::field::{Clock, fields};
use super::lines::Lines;
use super::records::Record;
use crate::error::TraceError;
use crate::time::{Duration, Time};

/// The columns, in the released order.
pub(super) const COLUMNS: [&str; 4] = ["app", "func", "end_timestamp", "duration"];

/// The invocations of a file in its order. A function of an app is a tenant, numbered as they first occur; memory grows with
/// their number, not with the file.
pub(super) struct Invocations {
    pub lines: Lines,
    tenants: HashMap<Vec<u8>, u32>,
    key: Vec<u8>,
    duration: Duration,
}

impl Invocations {
    pub fn open(path: &Path) -> Result<Invocations, TraceError> {
        let mut lines = Lines::open(path)?;
        lines.advance()?;
        Ok(Invocations {
            lines,
            tenants: HashMap::new(),
            key: Vec::new(),
            duration: Duration::ZERO,
        })
    }

    /// How long the invocation of the last record ran.
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// The current line's record. What began before the recording arrives at its start.
    pub fn parse(&mut self) -> Result<Record, String> {
        let mut fields = fields(self.lines.line());
        let mut next = || fields.next().unwrap_or_default();
        let (app, function, end, duration) = (next(), next(), next(), next());
        if duration.is_empty() || fields.next().is_some() {
            return Err(format!("must have the columns {}, got others", COLUMNS.join(",")));
        }
        let seconds = |name: &str, field: &[u8]| {
            Clock::Seconds
                .parse(field)
                .map_err(|message| format!("{name}: {message}"))
        };
        let end = seconds("end_timestamp", end)?;
        self.duration = Duration(seconds("duration", duration)?.0);
        self.key.clear();
        self.key.extend_from_slice(app);
        self.key.push(b',');
        self.key.extend_from_slice(function);
        let tenant = match self.tenants.get(&self.key) {
            Some(&tenant) => tenant,
            None => {
                let tenant =
                    u32::try_from(self.tenants.len()).map_err(|_| "must be one of 2^32 functions, got more")?;
                self.tenants.insert(self.key.clone(), tenant);
                tenant
            }
        };
        Ok(Record {
            arrival: Some(Time(end.0.saturating_sub(self.duration.0))),
            tenant: Some(tenant),
            ..Record::default()
        })
    }
}
