//! Tenants' activity minute by minute: Azure Functions 2019, as released and in its sparse form, and 2021, added up.

use std::path::Path;

use super::field::{fields, whole_u32};
use super::format::Format;
use super::lines::Lines;
use super::records::{Record, Records};
use crate::error::TraceError;

/// Requests of one tenant in one minute. Only minutes with requests are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Dense, from 0, in the order of the file.
    pub tenant: u32,
    /// From 0.
    pub minute: u32,
    /// Above 0.
    pub requests: u32,
}

/// Calls `take` for every cell of a recording, in the order of the file.
///
/// # Errors
/// [`TraceError::Line`] where a line is broken, [`TraceError::File`] where the file is of another format.
pub fn for_each(path: &Path, mut take: impl FnMut(Cell)) -> Result<(), TraceError> {
    let format = Format::of(path)?;
    if format == Format::Invocations {
        return for_each_invocation(path, take);
    }
    let read_line = match format {
        Format::ActivitySparse => sparse,
        Format::ActivityWide => wide,
        _ => {
            let message = format!("must be tenants' activity (Azure Functions), got {}", format.name());
            return Err(TraceError::file(path, message));
        }
    };
    let mut lines = Lines::open(path)?;
    lines.advance()?;
    let columns = fields(lines.line()).count();
    let mut row = 0;
    while lines.advance()? {
        let got = fields(lines.line()).count();
        if got != columns {
            return Err(lines.error(format!("must have {columns} columns as the first line has, got {got}")));
        }
        read_line(row, lines.line(), &mut take).map_err(|message| lines.error(message))?;
        row += 1;
    }
    Ok(())
}

/// Azure Functions 2021: a cell an invocation, in the minute in which it began.
fn for_each_invocation(path: &Path, mut take: impl FnMut(Cell)) -> Result<(), TraceError> {
    let mut records = Records::open(path, false)?;
    while let Some(record) = records.next() {
        let Record {
            arrival: Some(arrival),
            tenant: Some(tenant),
            ..
        } = record?
        else {
            unreachable!("an invocation has its function and its time")
        };
        let minute = u32::try_from(arrival.0 / 60_000_000_000)
            .ok()
            .filter(|_| tenant < MAX_TENANTS);
        take(Cell {
            tenant,
            minute: minute
                .ok_or_else(|| records.error("must be within 2^32 minutes and 2^24 functions, got more".into()))?,
            requests: 1,
        });
    }
    Ok(())
}

/// Requests of each tenant over the whole recording.
///
/// # Errors
/// As [`for_each`], and [`TraceError::File`] where there are no requests at all.
pub fn totals(path: &Path) -> Result<Vec<f64>, TraceError> {
    let mut totals: Vec<f64> = Vec::new();
    for_each(path, |cell| {
        let tenant = cell.tenant as usize;
        if totals.len() <= tenant {
            totals.resize(tenant + 1, 0.0);
        }
        totals[tenant] += f64::from(cell.requests);
    })?;
    if totals.is_empty() {
        return Err(TraceError::file(path, "must have requests, got none"));
    }
    Ok(totals)
}

/// More tenants than any cluster has; a table of them still fits a laptop.
const MAX_TENANTS: u32 = 1 << 24;

/// `tenant,minute,invocations`.
fn sparse(_row: u32, line: &[u8], take: &mut dyn FnMut(Cell)) -> Result<(), String> {
    let mut fields = fields(line);
    let mut value =
        |name: &str| whole_u32(fields.next().unwrap_or_default()).map_err(|message| format!("{name}: {message}"));
    let cell = Cell {
        tenant: value("tenant")?,
        minute: value("minute")?,
        requests: value("invocations")?,
    };
    if cell.tenant >= MAX_TENANTS {
        return Err(format!("tenant: must be below {MAX_TENANTS}, got {}", cell.tenant));
    }
    if cell.requests > 0 {
        take(cell);
    }
    Ok(())
}

/// `HashFunction,HashOwner,HashApp` and perhaps `Trigger`, then a column a minute.
fn wide(row: u32, line: &[u8], take: &mut dyn FnMut(Cell)) -> Result<(), String> {
    let hashes = 3 + usize::from(fields(line).nth(3).is_some_and(|field| whole_u32(field).is_err()));
    for (minute, field) in (0..).zip(fields(line).skip(hashes)) {
        let requests = whole_u32(field).map_err(|message| format!("{}_minute: {message}", minute + 1))?;
        if requests > 0 {
            take(Cell {
                tenant: row,
                minute,
                requests,
            });
        }
    }
    Ok(())
}
