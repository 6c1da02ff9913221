//! Aggregated rates: a value for each second, minute, hour or day.

use std::path::Path;

use super::field::{fields, shown, whole};
use super::format::Format;
use super::lines::Lines;
use crate::error::TraceError;
use crate::time::Duration;

/// The known tables: what the first column counts, and the column that is read. All but the last are BurstGPT's (Wang
/// et al., "BurstGPT", 2024) as aggregates; the last is the Twitter sample stream's.
pub(super) const HEADERS: [(&[&str], u64); 4] = [
    (&["day", "requests", "tokens"], 86_400),
    (&["hour", "requests_per_hour"], 3_600),
    (&["minute", "tokens_per_second"], 60),
    (&["minute", "requests", "zero_seconds"], 60),
];

/// More steps than any recording has: thirty years of minutes.
const MAX_STEPS: u64 = 1 << 24;

/// How a rate changes over time, step by step, in any unit.
#[derive(Clone, Debug, PartialEq)]
pub struct RateShape {
    /// How long a step is.
    pub step: Duration,
    /// At least one above 0, none below; what the file leaves out is 0.
    pub values: Vec<f64>,
}

impl RateShape {
    /// Reads a table of one of the known headers, plain or gzip. Its rows are kept in memory, 8 bytes a step.
    ///
    /// # Errors
    /// [`TraceError::Line`] where a line is broken, [`TraceError::File`] where the table is another or has nothing
    /// above 0.
    pub fn read(path: &Path) -> Result<RateShape, TraceError> {
        let format = Format::of(path)?;
        if format != Format::RateShape {
            let message = format!(
                "must be aggregated rates such as `hour,requests_per_hour`, got {}",
                format.name()
            );
            return Err(TraceError::file(path, message));
        }
        let mut lines = Lines::open(path)?;
        lines.advance()?;
        let header: Vec<&[u8]> = fields(lines.line()).collect();
        let known = HEADERS.iter().find(|(names, _)| is(&header, names));
        let (names, step_s) = *known.expect("the format is known by its header");
        let mut values: Vec<f64> = Vec::new();
        while lines.advance()? {
            let (step, value) = parse(lines.line(), names).map_err(|message| lines.error(message))?;
            if step < values.len() as u64 || step >= MAX_STEPS {
                let message = format!("{}: must rise, to below {MAX_STEPS}, got `{step}`", names[0]);
                return Err(lines.error(message));
            }
            values.resize(step as usize, 0.0);
            values.push(value);
        }
        if !values.iter().any(|&value| value > 0.0) {
            return Err(TraceError::file(path, "must have a value above 0, got none"));
        }
        Ok(RateShape {
            step: Duration::from_secs(step_s),
            values,
        })
    }
}

pub(super) fn is(header: &[&[u8]], names: &[&str]) -> bool {
    header.iter().copied().eq(names.iter().map(|name| name.as_bytes()))
}

fn parse(line: &[u8], names: &[&str]) -> Result<(u64, f64), String> {
    let got = fields(line).count();
    if got != names.len() {
        return Err(format!(
            "must have {} columns as the first line has, got {got}",
            names.len()
        ));
    }
    let mut fields = fields(line);
    let mut next = || fields.next().unwrap_or_default();
    let step = whole(next()).map_err(|message| format!("{}: {message}", names[0]))?;
    let field = next();
    let value = std::str::from_utf8(field).ok().and_then(|text| text.parse::<f64>().ok());
    let value = value
        .filter(|value| (0.0..1e300).contains(value))
        .ok_or_else(|| format!("{}: must be a number, 0 or above, got {}", names[1], shown(field)))?;
    Ok((step, value))
}
