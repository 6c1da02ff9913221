//! Requests in each second.

use std::path::Path;

use super::field::{fields, whole_u32};
use super::format::Format;
use super::lines::Lines;
use crate::error::TraceError;

/// Seconds without a line that are taken as seconds without requests, where broken lines are left out: a day. A farther
/// line is broken itself.
const GAP_MAX_S: u32 = 86_400;

/// The counts of a file, second by second.
pub struct Counts {
    lines: Lines,
    has_second: bool,
    second: Option<u32>,
    /// Of the first line; known from the first line on that is not broken.
    first_second: Option<u64>,
    /// Broken lines before it: seconds too, though only it tells which.
    leading: u64,
    skip_bad_lines: bool,
    skipped: u64,
    /// What is left of a gap, with the line after it: so many counts, all but the last of them 0.
    gap: u64,
    after_gap: u32,
}

impl Counts {
    /// Opens a CSV with the column `requests`, or `second,requests`. With `skip_bad_lines`, a broken line is counted
    /// and its second has no requests, so that the others keep their time; seconds without lines up to a day have none
    /// either, and count as one.
    ///
    /// # Errors
    /// [`TraceError::Io`], and [`TraceError::File`] where it is not such a CSV.
    pub fn open(path: &Path, skip_bad_lines: bool) -> Result<Counts, TraceError> {
        let format = Format::of(path)?;
        if format != Format::Counts {
            let must_be = "must be per-second counts (`requests` or `second,requests`)";
            return Err(TraceError::file(path, format!("{must_be}, got {}", format.name())));
        }
        let mut lines = Lines::open(path)?;
        lines.advance()?;
        Ok(Counts {
            has_second: lines.line().contains(&b','),
            lines,
            second: None,
            first_second: None,
            leading: 0,
            skip_bad_lines,
            skipped: 0,
            gap: 0,
            after_gap: 0,
        })
    }

    /// How many broken lines there were so far.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// By the recording's clock, when the first count is; known with the first count. 0 where the file has no such
    /// column.
    pub fn first_second(&self) -> u64 {
        self.first_second.unwrap_or(0)
    }

    /// The first count of so many empty lines, which are broken ones, with the line behind them.
    fn behind_empty(&mut self, empty: u64) -> Result<u32, TraceError> {
        if !self.skip_bad_lines {
            let message = format!("requests: must be a whole number in each line, got {empty} empty ones before this");
            return Err(self.lines.error(message));
        }
        self.skipped += empty;
        let count = self.parse().unwrap_or_else(|_| {
            self.skipped += 1;
            0
        });
        (self.gap, self.after_gap) = (empty, count);
        Ok(0)
    }

    fn parse(&mut self) -> Result<u32, String> {
        let mut missing_s = 0;
        let mut fields = fields(self.lines.line());
        if self.has_second {
            let second = fields
                .next()
                .map_or(Err("must have a value".into()), whole_u32)
                .map_err(|m| format!("second: {m}"))?;
            if let Some(must_be) =
                self.second.map(|before| u64::from(before) + 1).filter(|&must_be| must_be != u64::from(second))
            {
                let ahead_s = u64::from(second).checked_sub(must_be).map(|ahead| ahead as u32);
                match ahead_s.filter(|ahead| self.skip_bad_lines && *ahead <= GAP_MAX_S) {
                    Some(ahead) => missing_s = ahead,
                    None => {
                        return Err(format!(
                            "second: must be {must_be}, after the line before, got {second}"
                        ));
                    }
                }
            }
            self.second = Some(second);
        }
        let count = fields.next().map_or(Err("must have a value".into()), whole_u32);
        let count = count.map_err(|message| format!("requests: {message}"))?;
        if fields.next().is_some() {
            return Err(format!(
                "must have {} columns, got more",
                1 + u32::from(self.has_second)
            ));
        }
        if missing_s == 0 {
            return Ok(count);
        }
        self.skipped += 1;
        (self.gap, self.after_gap) = (u64::from(missing_s), count);
        Ok(0)
    }
}

impl Iterator for Counts {
    type Item = Result<u32, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.gap > 0 {
            self.gap -= 1;
            return Some(Ok(if self.gap == 0 { self.after_gap } else { 0 }));
        }
        loop {
            let line_before = self.lines.number();
            match self.lines.advance() {
                Err(error) => return Some(Err(error)),
                Ok(false) => {
                    // Broken lines only.
                    self.gap = std::mem::take(&mut self.leading);
                    self.after_gap = 0;
                    return (self.gap > 0).then(|| {
                        self.gap -= 1;
                        Ok(0)
                    });
                }
                Ok(true) => {}
            }
            let empty = match self.has_second {
                // Its own column says which second a line is.
                true => 0,
                false => self.lines.number() - line_before - 1,
            };
            if empty > 0 {
                return Some(self.behind_empty(empty));
            }
            let before = self.second;
            match self.parse() {
                Err(_) if self.skip_bad_lines => {
                    self.skipped += 1;
                    self.second = before.map(|before| before.saturating_add(1));
                    if self.has_second && before.is_none() {
                        self.leading += 1;
                        continue;
                    }
                    return Some(Ok(0));
                }
                Err(message) => return Some(Err(self.lines.error(message))),
                Ok(count) => {
                    let leading = std::mem::take(&mut self.leading);
                    let first = self.second.map(|second| u64::from(second).saturating_sub(leading));
                    self.first_second = self.first_second.or(first);
                    if leading == 0 {
                        return Some(Ok(count));
                    }
                    (self.gap, self.after_gap) = (leading, count);
                    return Some(Ok(0));
                }
            }
        }
    }
}
