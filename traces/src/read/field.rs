//! The values in a line's fields. Errors say what a field must be; the caller adds the column, the line and the file.

use std::path::Path;

use crate::error::TraceError;
use crate::time::{Duration, Time};

/// The fields of a comma-separated line, without the quotes around them. None of the formats has a comma inside a
/// field.
pub fn fields(line: &[u8]) -> Fields<'_> {
    Fields { rest: Some(line) }
}

/// Goes along a line, field by field.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    /// What is left of the line; even an empty rest is a field.
    rest: Option<&'a [u8]>,
}

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let field = match rest.iter().position(|&byte| byte == b',') {
            Some(comma) => {
                self.rest = Some(&rest[comma + 1..]);
                &rest[..comma]
            }
            None => {
                self.rest = None;
                rest
            }
        };
        Some(match field {
            // Nearly all: nothing to take off.
            [first, .., last] if is_plain(*first) && is_plain(*last) => field,
            _ => {
                let field = field.trim_ascii();
                field.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(field)
            }
        })
    }
}

impl Fields<'_> {
    /// Whether there are no more.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.rest.is_none()
    }

    /// Goes on to the next field.
    #[inline]
    pub fn skip_one(&mut self) {
        let rest = self.rest.unwrap_or_default();
        self.rest = rest.iter().position(|&byte| byte == b',').map(|comma| &rest[comma + 1..]);
    }

    /// The next field as [`whole`] has it, which no field is not. A number is read while its end is looked for.
    #[inline]
    pub fn whole(&mut self) -> Result<u64, String> {
        match self.plain_number() {
            Some(value) => Ok(value),
            None => whole(self.next().unwrap_or_default()),
        }
    }

    /// The next field where it is digits and nothing else; else nothing is gone on to.
    #[inline]
    fn plain_number(&mut self) -> Option<u64> {
        let field = self.rest?;
        let (mut value, mut rest) = (0u64, field);
        while let [byte, tail @ ..] = rest {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
            rest = tail;
        }
        if !(1..=MOST_DIGITS).contains(&(field.len() - rest.len())) {
            return None;
        }
        self.rest = match rest {
            [] => None,
            [b',', tail @ ..] => Some(tail),
            _ => return None,
        };
        Some(value)
    }
}

#[inline]
fn is_plain(byte: u8) -> bool {
    byte > b' ' && byte != b'"'
}

/// Where the columns of these names are in a first line that has them all.
pub fn positions<const N: usize>(header: &[u8], names: [&str; N]) -> [usize; N] {
    names.map(|name| {
        let at = fields(header).position(|field| field == name.as_bytes());
        at.expect("the format is known by these columns")
    })
}

/// Where the column called `name` is, if there is one: which of several is meant, nobody knows.
///
/// # Errors
/// [`TraceError::Lacks`] where there are several.
pub fn only_position(path: &Path, header: &[String], name: &str) -> Result<Option<usize>, TraceError> {
    let mut found = (0..).zip(header).filter(|(_, column)| *column == name);
    let first = found.next().map(|(first, _)| first);
    match found.count() {
        0 => Ok(first),
        others => {
            let (one, got) = (format!("one column `{name}`"), (others + 1).to_string());
            Err(TraceError::lacks(path, one, got))
        }
    }
}

/// For messages: what stands there, cut where it is long.
pub fn shown(field: &[u8]) -> String {
    format!("`{}`", cut(field))
}

/// The same without quotes.
pub fn cut(field: &[u8]) -> String {
    const MOST: usize = 40;
    let text = String::from_utf8_lossy(&field[..field.len().min(MOST)]);
    // A terminal would take them for orders.
    let text = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
    text.chain((field.len() > MOST).then_some('…')).collect()
}

/// So many digits cannot overflow.
const MOST_DIGITS: usize = 19;

/// A whole number.
pub fn whole(field: &[u8]) -> Result<u64, String> {
    let value = field.iter().try_fold(0u64, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10).then(|| value.checked_mul(10)?.checked_add(u64::from(digit))).flatten()
    });
    value
        .filter(|_| !field.is_empty())
        .ok_or_else(|| format!("must be a whole number, got {}", shown(field)))
}

/// A whole number below 2^32.
pub fn whole_u32(field: &[u8]) -> Result<u32, String> {
    below_2_32(whole(field)?)
}

/// A number where it is below 2^32.
#[inline]
pub fn below_2_32(value: u64) -> Result<u32, String> {
    u32::try_from(value).map_err(|_| format!("must be below 2^32, got `{value}`"))
}

/// How a format writes instants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Whole nanoseconds.
    Nanoseconds,
    /// Whole milliseconds.
    Milliseconds,
    /// Seconds with any number of decimals.
    Seconds,
    /// Date and time of day with decimals, as in `2023-11-16 18:15:46.6805900`.
    DateTime,
}

impl Clock {
    /// The instant in nanoseconds since the clock's own zero.
    pub fn parse(self, field: &[u8]) -> Result<Time, String> {
        match self {
            Clock::Nanoseconds => whole(field).map(Time),
            Clock::Milliseconds => {
                let ns = whole(field)?.checked_mul(1_000_000);
                ns.map(Time).ok_or_else(|| format!("must be within 584 years, got {}", shown(field)))
            }
            Clock::Seconds => {
                seconds(field).ok_or_else(|| format!("must be seconds, 0 or above, got {}", shown(field)))
            }
            Clock::DateTime => {
                let must_be = || format!("must be a time as in `2023-11-16 18:15:46.680`, got {}", shown(field));
                date_time(field).ok_or_else(must_be)
            }
        }
    }
}

fn seconds(field: &[u8]) -> Option<Time> {
    let seconds: f64 = std::str::from_utf8(field).ok()?.parse().ok()?;
    Some(Time(Duration::from_secs_f64(seconds)?.0))
}

fn date_time(field: &[u8]) -> Option<Time> {
    let number = |range: std::ops::Range<usize>| whole(field.get(range)?).ok();
    let separators = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    if separators.iter().any(|&(at, byte)| field.get(at) != Some(&byte)) || !matches!(field.get(10), Some(b' ' | b'T'))
    {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let in_range = year >= 1970 && (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
    if !in_range || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let rest = field.get(19..)?;
    // Times of another zone are refused: all of a file's are of one.
    let rest = [&b"Z"[..], b"+00:00"].iter().find_map(|utc| rest.strip_suffix(*utc)).unwrap_or(rest);
    let fraction_ns = match rest {
        [] => 0,
        [b'.', digits @ ..] => {
            let kept = &digits[..digits.len().min(9)];
            whole(digits.get(9..).filter(|rest| !rest.is_empty()).unwrap_or(b"0")).ok()?;
            whole(kept).ok()? * 10u64.pow(9 - kept.len() as u32)
        }
        _ => return None,
    };
    let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(Time(seconds.checked_mul(1_000_000_000)?.checked_add(fraction_ns)?))
}

fn days_in(year: u64, month: u64) -> u64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days of the civil calendar, from 1970 on (H. Hinnant, "chrono-compatible low-level date algorithms",
/// `days_from_civil`).
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_digits_only() {
        assert_eq!(whole(b"18446744073709551615"), Ok(u64::MAX));
        assert_eq!(
            whole(b"18446744073709551616"),
            Err("must be a whole number, got `18446744073709551616`".into())
        );
        for bad in [&b""[..], b"-1", b"1.5", b"1e3", b" 1", b"x"] {
            assert!(whole(bad).is_err(), "{}", shown(bad));
        }
    }

    #[test]
    fn numbers_are_read_along_a_line() {
        let mut along = fields(b"7, 8 ,\"9\",,skipped,18446744073709551615,00000000000000000012,x");
        assert_eq!([along.whole(), along.whole(), along.whole()], [Ok(7), Ok(8), Ok(9)]);
        assert_eq!(along.whole(), Err("must be a whole number, got ``".into()));
        along.skip_one();
        assert_eq!([along.whole(), along.whole()], [Ok(u64::MAX), Ok(12)]);
        assert!(!along.is_over());
        assert_eq!(along.whole(), Err("must be a whole number, got `x`".into()));
        assert!(along.is_over() && along.whole().is_err());
    }

    #[test]
    fn clocks_agree_with_known_instants() {
        assert_eq!(Clock::DateTime.parse(b"1970-01-01 00:00:00"), Ok(Time(0)));
        // `date -u -d '2023-11-16 18:15:46' +%s` prints 1700158546.
        assert_eq!(
            Clock::DateTime.parse(b"2023-11-16 18:15:46.6805900"),
            Ok(Time(1_700_158_546_680_590_000))
        );
        assert_eq!(
            Clock::DateTime.parse(b"2000-02-29T12:00:00.1234567891Z"),
            Ok(Time(951_825_600_123_456_789))
        );
        // As Azure's traces of 2024 have it.
        assert_eq!(
            Clock::DateTime.parse(b"2024-02-29 00:00:00.009930+00:00"),
            Ok(Time(1_709_164_800_009_930_000))
        );
        assert_eq!(Clock::Seconds.parse(b"1.5"), Ok(Time(1_500_000_000)));
        for bad in [
            &b"2023-11-16"[..],
            b"2023-13-16 18:15:46",
            b"2023-11-16 18:15:46.",
            b"2023-11-16 18:15:46.1x",
            b"2023-11-16 18:15:46+01:00",
            b"2023-11-31 18:15:46",
            b"2100-02-29 18:15:46",
            b"-1",
        ] {
            assert!(Clock::DateTime.parse(bad).is_err(), "{}", shown(bad));
        }
        assert!(Clock::Seconds.parse(b"-1").is_err() && Clock::Seconds.parse(b"inf").is_err());
    }
}
