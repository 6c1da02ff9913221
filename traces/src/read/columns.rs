//! Which columns of a CSV of one's own are a request's, and how its instants are written.

use super::field::shown;

/// The columns of a CSV with a header that a request is read from ([`crate::read::Records::open_columns`]), by what
/// they are called there. What is not named, the file does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// When it arrives, and how that is written. The earliest of a file becomes 0.
    pub arrival: Option<(String, Instants)>,
    /// Who asks: any text.
    pub tenant: Option<String>,
    /// Tokens of its input.
    pub input_tokens: Option<String>,
    /// Tokens to generate. An empty field is a request that was never answered; without the column none is generated.
    pub output_tokens: Option<String>,
    /// Its service class: whole numbers as they are, any text otherwise.
    pub class: Option<String>,
}

impl Columns {
    /// The names that are looked for in the header.
    pub fn named(&self) -> impl Iterator<Item = &str> {
        let arrival = self.arrival.as_ref().map(|(name, _)| name);
        let others = [&self.tenant, &self.input_tokens, &self.output_tokens, &self.class];
        let all = [arrival].into_iter().chain(others.map(Option::as_ref));
        all.flatten().map(String::as_str)
    }
}

/// How instants are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instants {
    /// Nanoseconds since whatever moment, perhaps with decimals.
    Nanoseconds,
    /// Likewise microseconds.
    Microseconds,
    /// Likewise milliseconds.
    Milliseconds,
    /// Likewise seconds.
    Seconds,
    /// ISO 8601 and RFC 3339: `2026-11-26T12:00:00.5+01:00`. Without an offset it is UTC.
    Iso,
}

impl Instants {
    /// All of them.
    pub const ALL: [Instants; 5] = [
        Instants::Nanoseconds,
        Instants::Microseconds,
        Instants::Milliseconds,
        Instants::Seconds,
        Instants::Iso,
    ];

    /// The unit, as a mapping of columns has it.
    pub fn name(self) -> &'static str {
        match self {
            Instants::Nanoseconds => "ns",
            Instants::Microseconds => "us",
            Instants::Milliseconds => "ms",
            Instants::Seconds => "s",
            Instants::Iso => "iso",
        }
    }

    /// The instant in nanoseconds since the clock's own zero, which may be later; in errors, what it must be.
    pub(super) fn parse(self, field: &[u8]) -> Result<i128, String> {
        let unit_ns = match self {
            Instants::Nanoseconds => 1,
            Instants::Microseconds => 1_000,
            Instants::Milliseconds => 1_000_000,
            Instants::Seconds => 1_000_000_000,
            Instants::Iso => {
                let must_be = || {
                    let example = "`2026-11-26T12:00:00.5+01:00`";
                    format!("must be an instant by ISO 8601 such as {example}, got {}", shown(field))
                };
                return iso_ns(field).ok_or_else(must_be);
            }
        };
        let must_be = || format!("must be a number (of {}), got {}", self.name(), shown(field));
        number_ns(field, unit_ns).ok_or_else(must_be)
    }
}

fn iso_ns(field: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(field).ok()?;
    if let Ok(instant) = text.parse::<jiff::Timestamp>() {
        return Some(instant.as_nanosecond());
    }
    // Such as a date alone would be a midnight that nobody wrote; and a zone by its name alone, in brackets, is not
    // UTC, and its offset is in no file.
    if !text.contains(':') || text.contains('[') {
        return None;
    }
    let utc = text.parse::<jiff::civil::DateTime>().ok()?;
    let instant = utc.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(instant.timestamp().as_nanosecond())
}

/// Decimals are taken digit by digit: a float cannot tell nanoseconds since 1970 apart.
fn number_ns(field: &[u8], unit_ns: i128) -> Option<i128> {
    let text = std::str::from_utf8(field).ok()?;
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text),
    };
    let (whole, decimals) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let digits = [whole, decimals];
    if digits.iter().any(|part| !part.bytes().all(|byte| byte.is_ascii_digit())) {
        // As `1.7e9`, which a float holds as well as what wrote it.
        let number: f64 = text.parse().ok()?;
        return number.is_finite().then(|| (number * unit_ns as f64).round() as i128);
    }
    if whole.is_empty() && decimals.is_empty() {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // Beyond a nanosecond nothing is told apart.
    let decimals = &decimals[..decimals.len().min(18)];
    let of_one = 10i128.pow(decimals.len() as u32);
    let part: i128 = if decimals.is_empty() { 0 } else { decimals.parse().ok()? };
    let part_ns = (part * unit_ns + of_one / 2) / of_one;
    Some(sign * whole.checked_mul(unit_ns)?.checked_add(part_ns)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn instants_are_exact_in_each_unit() {
        let parse = |unit: Instants, text: &str| unit.parse(text.as_bytes());
        assert_eq!(
            parse(Instants::Seconds, "1700000000.123456789"),
            Ok(1_700_000_000_123_456_789)
        );
        assert_eq!(
            parse(Instants::Milliseconds, "1700000000123.456789"),
            Ok(1_700_000_000_123_456_789)
        );
        assert_eq!(parse(Instants::Microseconds, "-1.5"), Ok(-1_500));
        assert_eq!(parse(Instants::Nanoseconds, "17.5"), Ok(18));
        assert_eq!(parse(Instants::Seconds, "1.7e9"), Ok(1_700_000_000_000_000_000));
        assert_eq!(parse(Instants::Seconds, ".5"), Ok(500_000_000));
        for bad in ["", ".", "-", "x", "1,5", "1.5.5", "nan", "inf", "0x10", "1 s"] {
            let error = parse(Instants::Milliseconds, bad).unwrap_err();
            assert_eq!(error, format!("must be a number (of ms), got `{bad}`"));
        }
    }

    /// `date -u -d '2023-11-16 18:15:46' +%s` prints 1700158546.
    #[test]
    fn iso_instants_have_an_offset_or_are_of_utc() {
        let at = 1_700_158_546_680_590_000;
        for text in [
            "2023-11-16T18:15:46.68059Z",
            "2023-11-16 18:15:46.6805900",
            "2023-11-16T18:15:46.680590",
            "2023-11-16T19:15:46.68059+01:00",
            "2023-11-16 10:15:46.68059-08:00",
            "2023-11-16T13:15:46.68059-05:00[America/New_York]",
        ] {
            assert_eq!(Instants::Iso.parse(text.as_bytes()), Ok(at), "{text}");
        }
        for bad in [
            "",
            "1700158546",
            "2023-13-16 18:15:46",
            "16.11.2023 18:15",
            "2023-11-16",
            "yesterday",
            "2023-11-16T13:15:46[America/New_York]",
        ] {
            assert!(Instants::Iso.parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_in_a_unit_is_read_in_it(ns in -4_000_000_000_000_000_000i64..4_000_000_000_000_000_000) {
            for (unit, decimals) in [(Instants::Nanoseconds, 0), (Instants::Microseconds, 3), (Instants::Milliseconds, 6), (Instants::Seconds, 9)] {
                let digits = format!("{:0>width$}", ns.unsigned_abs(), width = decimals + 1);
                let (whole, part) = digits.split_at(digits.len() - decimals);
                let text = format!("{}{whole}.{part}", if ns < 0 { "-" } else { "" });
                prop_assert_eq!(unit.parse(text.as_bytes()), Ok(i128::from(ns)), "{}", text);
            }
        }
    }
}
