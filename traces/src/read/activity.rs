//! Tenants' activity minute by minute: Azure Functions 2019, as released and in its sparse form, and 2021, added up.

use std::path::Path;

use super::field::{fields, positions, whole_u32};
use super::format::Format;
use super::lines::Lines;
use super::records::{Record, Records};
use crate::error::TraceError;

/// What the wide form's first minute is called: as released, and as InVitro's samples of it have it.
pub(super) const FIRST_MINUTE: [&str; 2] = ["1", "1_minute"];

pub(super) fn is_first_minute(field: &[u8]) -> bool {
    FIRST_MINUTE.iter().any(|name| field == name.as_bytes())
}

/// Requests of one tenant in one minute. Only minutes with requests are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The line in the wide form, as the file has it in the sparse form; of invocations dense, from 0, in the order of
    /// the file.
    pub tenant: u32,
    /// From 0.
    pub minute: u32,
    /// Above 0.
    pub requests: u32,
}

/// What a recording of activity is of, its silent tenants and minutes included where its form has a place for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Tenants that have a line, in the wide form; 0 in others, which name only those who ask.
    pub rows: usize,
    /// Minutes that have a column, in the wide form; 0 in others.
    pub minutes: u32,
    /// Broken lines that were left out.
    pub skipped: u64,
}

impl Extent {
    /// One row for each tenant, of what was gathered by the tenants' numbers, in their order. A silent line of the wide
    /// form is a tenant, while a number that no line of the sparse form has is nobody's: such numbers are a part of a
    /// larger recording's.
    pub(crate) fn rows<T: Clone + Default + PartialEq>(&self, mut by_number: Vec<T>) -> Vec<T> {
        match self.rows {
            0 => by_number.retain(|row| *row != T::default()),
            rows => by_number.resize(rows, T::default()),
        }
        by_number
    }
}

/// Calls `take` for every cell of a recording, in the order of the file; what it is of. With `skip_bad_lines`, broken
/// lines are left out. In the wide form they do not count as tenants.
///
/// # Errors
/// [`TraceError::Line`] where a line is broken, [`TraceError::File`] where the file is of another format.
pub fn for_each(path: &Path, skip_bad_lines: bool, mut take: impl FnMut(Cell)) -> Result<Extent, TraceError> {
    let format = Format::of(path)?;
    if format == Format::Invocations {
        let skipped = for_each_invocation(path, skip_bad_lines, take)?;
        return Ok(Extent {
            skipped,
            ..Extent::default()
        });
    }
    let mut lines = Lines::open(path)?;
    lines.advance()?;
    let columns = fields(lines.line()).count();
    let layout = match format {
        Format::ActivitySparse => Layout::Sparse(positions(lines.line(), ["tenant", "minute", "invocations"])),
        Format::ActivityWide => {
            let first = fields(lines.line()).position(is_first_minute);
            Layout::Wide(first.expect("the format is known by this column"))
        }
        _ => {
            let message = format!("must be tenants' activity (Azure Functions), got {}", format.name());
            return Err(TraceError::file(path, message));
        }
    };
    // A line is taken as a whole or not at all.
    let mut cells: Vec<Cell> = Vec::new();
    let (mut row, mut skipped) = (0, 0);
    while lines.advance()? {
        cells.clear();
        let parsed = match layout {
            Layout::Sparse(at) => sparse(lines.line(), columns, at, &mut cells),
            Layout::Wide(first) => wide(lines.line(), columns, first, row, &mut cells),
        };
        match parsed {
            Ok(()) => {
                cells.iter().copied().for_each(&mut take);
                row += 1;
            }
            Err(_) if skip_bad_lines => skipped += 1,
            Err(message) => return Err(lines.error(message)),
        }
    }
    Ok(match layout {
        Layout::Sparse(_) => Extent {
            skipped,
            ..Extent::default()
        },
        Layout::Wide(first) => Extent {
            rows: row as usize,
            minutes: (columns - first) as u32,
            skipped,
        },
    })
}

/// Which columns hold what.
#[derive(Clone, Copy)]
enum Layout {
    /// Tenant, minute and invocations.
    Sparse([usize; 3]),
    /// The first minute; the others follow.
    Wide(usize),
}

/// Azure Functions 2021: a cell an invocation, in the minute in which it began.
fn for_each_invocation(path: &Path, skip_bad_lines: bool, mut take: impl FnMut(Cell)) -> Result<u64, TraceError> {
    let mut records = Records::open(path, skip_bad_lines)?;
    let mut skipped = 0;
    while let Some(record) = records.next() {
        let Record {
            arrival: Some(arrival),
            tenant: Some(tenant),
            ..
        } = record?
        else {
            unreachable!("an invocation has its function and its time")
        };
        let minute = u32::try_from(arrival.0 / 60_000_000_000).unwrap_or(u32::MAX);
        match check(tenant, minute) {
            Ok(()) => take(Cell {
                tenant,
                minute,
                requests: 1,
            }),
            Err(_) if skip_bad_lines => skipped += 1,
            Err(message) => return Err(records.error(message)),
        }
    }
    Ok(skipped + records.skipped())
}

/// Requests of each tenant over the whole recording, and what it is of.
///
/// # Errors
/// As [`for_each`], and [`TraceError::File`] where there are no requests at all.
pub fn totals(path: &Path, skip_bad_lines: bool) -> Result<(Vec<f64>, Extent), TraceError> {
    let (totals, extent) = by_number(path, skip_bad_lines)?;
    Ok((extent.rows(totals), extent))
}

/// The numbers that the file has for the tenants of [`totals`], in their order: lines of the wide form, from 0, and in
/// others the numbers that have requests.
///
/// # Errors
/// As [`totals`].
pub fn numbers(path: &Path, skip_bad_lines: bool) -> Result<(Vec<u32>, Extent), TraceError> {
    let (totals, extent) = by_number(path, skip_bad_lines)?;
    let has_row = |requests: f64| extent.rows > 0 || requests > 0.0;
    let numbered = (0..).zip(totals).filter(|(_, requests)| has_row(*requests));
    let mut numbers: Vec<u32> = numbered.map(|(number, _)| number).collect();
    // Lines behind the last that asks are tenants too.
    numbers.extend(numbers.len() as u32..extent.rows as u32);
    Ok((numbers, extent))
}

/// Requests by the file's own numbers, up to the highest that has any.
fn by_number(path: &Path, skip_bad_lines: bool) -> Result<(Vec<f64>, Extent), TraceError> {
    let mut totals: Vec<f64> = Vec::new();
    let extent = for_each(path, skip_bad_lines, |cell| {
        let tenant = cell.tenant as usize;
        if totals.len() <= tenant {
            totals.resize(tenant + 1, 0.0);
        }
        totals[tenant] += f64::from(cell.requests);
    })?;
    match totals.is_empty() {
        true => Err(TraceError::none(path, "have requests", extent.skipped)),
        false => Ok((totals, extent)),
    }
}

/// More tenants than any cluster has; a table of them still fits a laptop.
const MAX_TENANTS: u32 = 1 << 24;

/// Thirty years: longer than any recording.
const MAX_MINUTES: u32 = 1 << 24;

fn check(tenant: u32, minute: u32) -> Result<(), String> {
    match (tenant < MAX_TENANTS, minute < MAX_MINUTES) {
        (false, _) => Err(format!("tenant: must be below {MAX_TENANTS}, got {tenant}")),
        (_, false) => Err(format!("minute: must be below {MAX_MINUTES}, got {minute}")),
        _ => Ok(()),
    }
}

fn must_have(columns: usize, got: usize) -> Result<(), String> {
    match got == columns {
        true => Ok(()),
        false => Err(format!("must have {columns} columns as the first line has, got {got}")),
    }
}

/// `tenant,minute,invocations`, in any order.
fn sparse(line: &[u8], columns: usize, at: [usize; 3], cells: &mut Vec<Cell>) -> Result<(), String> {
    let mut three = [&b""[..]; 3];
    let mut got = 0;
    for (column, field) in fields(line).enumerate() {
        if let Some(i) = at.iter().position(|&at| at == column) {
            three[i] = field;
        }
        got = column + 1;
    }
    must_have(columns, got)?;
    let value = |name: &str, field| whole_u32(field).map_err(|message| format!("{name}: {message}"));
    let cell = Cell {
        tenant: value("tenant", three[0])?,
        minute: value("minute", three[1])?,
        requests: value("invocations", three[2])?,
    };
    check(cell.tenant, cell.minute)?;
    if cell.requests > 0 {
        cells.push(cell);
    }
    Ok(())
}

/// Hashes and perhaps a trigger, then from `first` on a column a minute.
fn wide(line: &[u8], columns: usize, first: usize, row: u32, cells: &mut Vec<Cell>) -> Result<(), String> {
    must_have(columns, fields(line).count())?;
    for (minute, field) in (0..).zip(fields(line).skip(first)) {
        let requests = whole_u32(field).map_err(|message| format!("minute {}: {message}", minute + 1))?;
        check(row, minute)?;
        if requests > 0 {
            cells.push(Cell {
                tenant: row,
                minute,
                requests,
            });
        }
    }
    Ok(())
}
