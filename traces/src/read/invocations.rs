//! Azure Functions 2021, invocation by invocation: `app,func,end_timestamp,duration` in seconds (Zhang et al., "Faster
//! and cheaper serverless computing on harvested resources", SOSP 2021; the trace that AlpaServe calls MAF2).

use std::collections::HashMap;
use std::path::Path;

use super::field::{Clock, fields, positions};
use super::lines::Lines;
use super::records::Record;
use crate::error::TraceError;
use crate::time::{Duration, Time};

/// The columns, in the released order.
pub(super) const COLUMNS: [&str; 4] = ["app", "func", "end_timestamp", "duration"];

/// The invocations of a file in its order. A function of an app is a tenant, numbered as they first occur; memory grows
/// with their number, not with the file.
pub(super) struct Invocations {
    pub lines: Lines,
    /// How many columns there are, and which of them are the four.
    columns: usize,
    at: [usize; 4],
    tenants: HashMap<Vec<u8>, u32>,
    key: Vec<u8>,
    duration: Duration,
}

impl Invocations {
    pub fn open(path: &Path) -> Result<Invocations, TraceError> {
        let mut lines = Lines::open(path)?;
        lines.advance()?;
        Ok(Invocations {
            columns: fields(lines.line()).count(),
            at: positions(lines.line(), COLUMNS),
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
        let mut four = [&b""[..]; 4];
        let mut got = 0;
        for (column, field) in fields(self.lines.line()).enumerate() {
            if let Some(i) = self.at.iter().position(|&at| at == column) {
                four[i] = field;
            }
            got = column + 1;
        }
        if got != self.columns {
            return Err(format!(
                "must have {} columns as the first line has, got {got}",
                self.columns
            ));
        }
        let [app, function, end, duration] = four;
        let seconds =
            |name: &str, field: &[u8]| Clock::Seconds.parse(field).map_err(|message| format!("{name}: {message}"));
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
