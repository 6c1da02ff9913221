//! Numbers with a unit.

use schemars::{Schema, json_schema};
use tenantry_traces::{Duration, Time};

use super::{MeantTime, Plain, Scalar, meant};

/// A decimal number and the unit behind it; spaces between them don't matter.
pub(crate) fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let is_number = |c: char| c.is_ascii_digit() || ".+-eE".contains(c);
    let text = text.trim();
    // An `e` belongs to the number only as an exponent, and no unit begins with `e`.
    let end = text.find(|c| !is_number(c)).unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    number.is_finite().then(|| (number, text[end..].trim()))
}

/// `number` in the largest of `units` in which it is whole; the last unit must be 1.
fn in_largest_unit(number: u64, units: &[(&str, u64)]) -> String {
    let (unit, size) = units.iter().find(|(_, size)| number.is_multiple_of(*size)).expect("the last unit is 1");
    format!("{}{unit}", number / size)
}

/// `amount` of `unit_size`, rounded to a whole number; nothing where that is negative or beyond 64 bits.
fn whole_amount(amount: f64, unit_size: u64) -> Option<u64> {
    let whole = (amount * unit_size as f64).round();
    (amount >= 0.0 && whole < u64::MAX as f64).then_some(whole as u64)
}

const TIME_UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

const TIME_PATTERN: &str = r"^\s*[0-9.]+([eE][+-]?[0-9]+)?\s*(ns|us|µs|ms|s|min|h)\s*$";

/// Ten years: longer than any run, and far from where sums of times overflow.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 86_400);

/// 292 years, half of what a time holds: clocks count from 1970, and a length of time may follow.
const LATEST: Duration = Duration(Time::ARRIVALS_END.0);

fn read_time(text: &str, at_most: Duration) -> Option<Duration> {
    let (amount, unit) = number_and_unit(text)?;
    let unit_ns = match unit {
        "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "µs" => 1_000,
        unit => TIME_UNITS.iter().find(|(name, _)| *name == unit)?.1,
    };
    whole_amount(amount, unit_ns).map(Duration).filter(|&time| time <= at_most)
}

fn read_span(plain: &Plain<'_>, at_most: Duration) -> Option<Duration> {
    match plain {
        Plain::Text(text) => read_time(text, at_most),
        number => (number.float() == Some(0.0)).then_some(Duration::ZERO),
    }
}

fn span_schema() -> Schema {
    json_schema!({"anyOf": [{"type": "string", "pattern": TIME_PATTERN}, {"const": 0}]})
}

/// A length of time, maybe none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span(pub Duration);

impl Scalar for Span {
    const MUST: &'static str = "a time with its unit (us, ms, s, min, h), at most ten years, such as 20ms, or 0";

    fn read(plain: Plain<'_>) -> Option<Span> {
        read_span(&plain, LONGEST).map(Span)
    }

    fn meant(text: &str) -> Option<String> {
        MeantTime::of(text).map(|meant| meant.text)
    }

    fn write(&self) -> Plain<'static> {
        Plain::Text(in_largest_unit(self.0.0, &TIME_UNITS).into())
    }

    fn schema() -> Schema {
        span_schema()
    }
}

/// An instant by a recording's own clock, which may count from long before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment(pub Duration);

impl Scalar for Moment {
    const MUST: &'static str =
        "a time with its unit (us, ms, s, min, h), at most 292 years, such as 20s or 1700000000s, or 0";

    fn read(plain: Plain<'_>) -> Option<Moment> {
        read_span(&plain, LATEST).map(Moment)
    }

    fn meant(text: &str) -> Option<String> {
        MeantTime::of(text).map(|meant| meant.text)
    }

    fn write(&self) -> Plain<'static> {
        Span(self.0).write()
    }

    fn schema() -> Schema {
        span_schema()
    }
}

/// A length of time that is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period(pub Duration);

impl Scalar for Period {
    const MUST: &'static str = "a time above 0 with its unit (us, ms, s, min, h), at most ten years, such as 20ms";

    fn read(plain: Plain<'_>) -> Option<Period> {
        plain
            .text()
            .and_then(|text| read_time(text, LONGEST))
            .filter(|&time| time > Duration::ZERO)
            .map(Period)
    }

    fn meant(text: &str) -> Option<String> {
        MeantTime::of(text).map(|meant| meant.text)
    }

    fn write(&self) -> Plain<'static> {
        Plain::Text(in_largest_unit(self.0.0, &TIME_UNITS).into())
    }

    fn schema() -> Schema {
        json_schema!({"type": "string", "pattern": TIME_PATTERN})
    }
}

impl std::fmt::Display for Period {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&in_largest_unit(self.0.0, &TIME_UNITS))
    }
}

impl Period {
    /// What it must be, for whoever reads one elsewhere than in a scenario.
    pub const MUST: &str = <Period as Scalar>::MUST;
}

/// A length of time after which something is drawn, looked at or decided again and again: shorter ones would take a run
/// for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongPeriod(pub Duration);

impl Scalar for LongPeriod {
    const MUST: &'static str =
        "a time of at least 1ms with its unit (us, ms, s, min, h), at most ten years, such as 20s";

    fn read(plain: Plain<'_>) -> Option<LongPeriod> {
        let period = Period::read(plain)?.0;
        (period >= Duration::from_millis(1)).then_some(LongPeriod(period))
    }

    fn meant(text: &str) -> Option<String> {
        MeantTime::of(text).map(|meant| meant.text)
    }

    fn write(&self) -> Plain<'static> {
        Period(self.0).write()
    }

    fn schema() -> Schema {
        Period::schema()
    }
}

const RATE_PATTERN: &str = r"^\s*[0-9.]+([eE][+-]?[0-9]+)?\s*/\s*(s|min|h)\s*$";

fn read_rate(plain: &Plain<'_>) -> Option<f64> {
    let (number, unit) = number_and_unit(plain.text()?)?;
    let per_s = match unit.strip_prefix('/')?.trim() {
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Some(number / per_s)
}

/// Requests per second, above 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate(pub f64);

impl Scalar for Rate {
    const MUST: &'static str = "a rate above 0 with its unit (/s, /min, /h), such as 500/s";

    fn read(plain: Plain<'_>) -> Option<Rate> {
        read_rate(&plain).filter(|&per_s| per_s > 0.0).map(Rate)
    }

    fn meant(text: &str) -> Option<String> {
        meant::rate(text)
    }

    fn write(&self) -> Plain<'static> {
        Plain::Text(format!("{}/s", self.0).into())
    }

    fn schema() -> Schema {
        json_schema!({"type": "string", "pattern": RATE_PATTERN})
    }
}

/// Requests per second, maybe none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateOrZero(pub f64);

impl Scalar for RateOrZero {
    const MUST: &'static str = "a rate, 0 or above, with its unit (/s, /min, /h), such as 500/s";

    fn read(plain: Plain<'_>) -> Option<RateOrZero> {
        read_rate(&plain).filter(|&per_s| per_s >= 0.0).map(RateOrZero)
    }

    fn meant(text: &str) -> Option<String> {
        meant::rate(text)
    }

    fn write(&self) -> Plain<'static> {
        Plain::Text(format!("{}/s", self.0).into())
    }

    fn schema() -> Schema {
        json_schema!({"type": "string", "pattern": RATE_PATTERN})
    }
}

const MEMORY_UNITS: [(&str, u64); 7] = [
    (" GiB", 1 << 30),
    (" MiB", 1 << 20),
    (" KiB", 1 << 10),
    (" GB", 1_000_000_000),
    (" MB", 1_000_000),
    (" KB", 1_000),
    (" B", 1),
];

/// An amount of memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory(pub u64);

impl Scalar for Memory {
    const MUST: &'static str =
        "an amount of memory above 0 with its unit (B, KiB, MiB, GiB, KB, MB, GB), such as 16 GiB";

    fn read(plain: Plain<'_>) -> Option<Memory> {
        let (amount, unit) = number_and_unit(plain.text()?)?;
        let (_, bytes) = MEMORY_UNITS.iter().find(|(name, _)| name.trim_start() == unit)?;
        whole_amount(amount, *bytes).filter(|&bytes| bytes > 0).map(Memory)
    }

    fn meant(text: &str) -> Option<String> {
        meant::memory(text)
    }

    fn write(&self) -> Plain<'static> {
        Plain::Text(in_largest_unit(self.0, &MEMORY_UNITS).into())
    }

    fn schema() -> Schema {
        json_schema!({"type": "string", "pattern": r"^\s*[0-9.]+([eE][+-]?[0-9]+)?\s*([KMG]i?)?B\s*$"})
    }
}

/// Bytes per second, above 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth(pub u64);

impl Scalar for Bandwidth {
    const MUST: &'static str =
        "a bandwidth above 0 with its unit (B/s, KiB/s, MiB/s, GiB/s, KB/s, MB/s, GB/s), such as 25 GB/s";

    fn read(plain: Plain<'_>) -> Option<Bandwidth> {
        let per_s = plain.text()?.trim().strip_suffix("/s")?;
        Memory::read(Plain::Text(per_s.into())).map(|Memory(bytes)| Bandwidth(bytes))
    }

    fn write(&self) -> Plain<'static> {
        Plain::Text(format!("{}/s", in_largest_unit(self.0, &MEMORY_UNITS)).into())
    }

    fn schema() -> Schema {
        json_schema!({"type": "string", "pattern": r"^\s*[0-9.]+([eE][+-]?[0-9]+)?\s*([KMG]i?)?B\s*/s\s*$"})
    }
}

/// A hundredth, as if the decimal point were moved: a division would make 0.9990000000000001 of 99.9.
fn hundredth(number: f64) -> f64 {
    format!("{number}e-2").parse().expect("a number with an exponent")
}

/// A limit in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percent(f64);

impl Percent {
    /// 5 % as 0.05.
    pub fn fraction(self) -> f64 {
        hundredth(self.0)
    }

    /// 5 % as 50,000, in parts per million: 1 at least, as it is above 0.
    pub fn ppm(self) -> u32 {
        ((self.0 * 1e4).round() as u32).max(1)
    }
}

impl From<f64> for Percent {
    fn from(percent: f64) -> Percent {
        Percent(percent)
    }
}

impl Scalar for Percent {
    const MUST: &'static str = "a percentage above 0, such as 5%";

    fn read(plain: Plain<'_>) -> Option<Percent> {
        let (number, unit) = number_and_unit(plain.text()?)?;
        (unit == "%" && number > 0.0).then_some(Percent(number))
    }

    fn write(&self) -> Plain<'static> {
        Plain::Text(format!("{}%", self.0).into())
    }

    fn schema() -> Schema {
        json_schema!({"type": "string", "pattern": r"^\s*[0-9.]+([eE][+-]?[0-9]+)?\s*%\s*$"})
    }
}

/// A part of a whole in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part(f64);

impl Part {
    /// All of it.
    pub const WHOLE: Part = Part(100.0);

    /// Of 1.
    pub fn fraction(self) -> f64 {
        self.0 / 100.0
    }

    /// 5 % as 50,000 parts of a million.
    pub fn ppm(self) -> u32 {
        (self.0 * 1e4).round() as u32
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}%", self.0)
    }
}

impl From<f64> for Part {
    fn from(percent: f64) -> Part {
        Part(percent)
    }
}

impl Scalar for Part {
    const MUST: &'static str = "a percentage from 0% to 100%";

    fn read(plain: Plain<'_>) -> Option<Part> {
        let (number, unit) = number_and_unit(plain.text()?)?;
        (unit == "%" && (0.0..=100.0).contains(&number)).then_some(Part(number))
    }

    fn write(&self) -> Plain<'static> {
        Plain::Text(self.to_string().into())
    }

    fn schema() -> Schema {
        json_schema!({"type": "string", "pattern": r"^\s*[0-9.]+([eE][+-]?[0-9]+)?\s*%\s*$"})
    }
}

/// A quantile, written as `p98` or `p99.9`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AtQuantile(f64);

impl AtQuantile {
    /// p98 as 0.98.
    pub fn fraction(self) -> f64 {
        hundredth(self.0)
    }
}

impl std::fmt::Display for AtQuantile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "p{}", self.0)
    }
}

impl Scalar for AtQuantile {
    const MUST: &'static str = "a quantile between p0 and p100, such as p98";

    fn read(plain: Plain<'_>) -> Option<AtQuantile> {
        let percentile: f64 = plain.text()?.strip_prefix('p')?.parse().ok()?;
        (percentile > 0.0 && percentile < 100.0).then_some(AtQuantile(percentile))
    }

    fn meant(text: &str) -> Option<String> {
        let text = text.trim().trim_start_matches(['p', 'P']).trim_end_matches(['%', 'p', 'P']);
        let number: f64 = text.trim().parse().ok()?;
        // Of a fraction the percentile; 1 may be either.
        let percentile = match number {
            ..1.0 => format!("{number}e2").parse().ok()?,
            1.0 => return None,
            _ => number,
        };
        Some(AtQuantile(percentile).to_string())
    }

    fn write(&self) -> Plain<'static> {
        Plain::Text(self.to_string().into())
    }

    fn schema() -> Schema {
        json_schema!({"type": "string", "pattern": r"^p[0-9]+(\.[0-9]+)?$"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: Scalar>(text: &str) -> Option<T> {
        T::read(Plain::Text(text.into()))
    }

    fn written(scalar: &impl Scalar) -> String {
        match scalar.write() {
            Plain::Text(text) => text.into_owned(),
            other => panic!("{other:?} is not text"),
        }
    }

    #[test]
    fn times_have_units() {
        for (text, ns) in [
            ("150ms", 150_000_000),
            (" 1.5 s ", 1_500_000_000),
            ("0.1us", 100),
            ("7µs", 7_000),
            ("20ns", 20),
            ("2min", 120_000_000_000),
            ("1e-1h", 360_000_000_000),
        ] {
            let span = read::<Span>(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(span.0, Duration(ns), "{text}");
            assert_eq!(read::<Span>(&written(&span)), Some(span));
        }
        for text in ["150", "-1s", "1 sec", "ms", "1ms2", "", "infs", "1e30h"] {
            assert_eq!(read::<Span>(text), None, "{text}");
        }
        // Seconds since 1970 are no length of time, but when a recording may begin.
        let epoch = read::<Moment>("1700000000s").unwrap();
        assert_eq!(
            (epoch.0, read::<Span>("1700000000s")),
            (Duration::from_secs(1_700_000_000), None)
        );
        assert_eq!(read::<Moment>(&written(&epoch)), Some(epoch));
        assert_eq!(Moment::read(Plain::Whole(0)), Some(Moment(Duration::ZERO)));
        assert_eq!(read::<Moment>("10000000000s"), None);
        assert_eq!(read::<Period>("0s"), None);
        assert_eq!(Span::read(Plain::Whole(0)), Some(Span(Duration::ZERO)));
        assert_eq!(Span::read(Plain::Whole(5)), None);
    }

    #[test]
    fn rates_are_per_time() {
        assert_eq!(read::<Rate>("500/s"), Some(Rate(500.0)));
        assert_eq!(read::<Rate>("30 / min"), Some(Rate(0.5)));
        assert_eq!(read::<RateOrZero>("0/s"), Some(RateOrZero(0.0)));
        for text in ["0/s", "-5/s", "500", "500/ms", "/s", "500 s"] {
            assert_eq!(read::<Rate>(text), None, "{text}");
        }
        let seldom = read::<Rate>("7/min").unwrap();
        assert_eq!(read::<Rate>(&written(&seldom)), Some(seldom));
    }

    #[test]
    fn memory_is_binary_or_decimal() {
        for (text, bytes, canonical) in [
            ("256 MiB", 256 << 20, "256 MiB"),
            ("1.5GiB", 1536 << 20, "1536 MiB"),
            ("2 GB", 2_000_000_000, "1953125 KiB"),
            ("3B", 3, "3 B"),
        ] {
            let memory = read::<Memory>(text).unwrap();
            assert_eq!((memory.0, written(&memory).as_str()), (bytes, canonical));
        }
        for text in ["256", "256 mib", "0 GiB", "-1 GiB", "1 Gib"] {
            assert_eq!(read::<Memory>(text), None, "{text}");
        }
    }

    #[test]
    fn bandwidths_are_memory_per_second() {
        for (text, bytes_per_s) in [("25 GB/s", 25_000_000_000), (" 1.5GiB/s ", 1536 << 20), ("3 B /s", 3)] {
            let bandwidth = read::<Bandwidth>(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(bandwidth.0, bytes_per_s, "{text}");
            assert_eq!(read::<Bandwidth>(&written(&bandwidth)), Some(bandwidth));
        }
        for text in ["25 GB", "0 GB/s", "25 Gbit/s", "25/s", "25 GB/min", "-1 GB/s"] {
            assert_eq!(read::<Bandwidth>(text), None, "{text}");
        }
    }

    #[test]
    fn percentages_and_quantiles() {
        assert_eq!(read::<Percent>("5%").unwrap().fraction(), 0.05);
        assert_eq!(read::<Percent>("5"), None);
        assert_eq!(read::<Part>("0%").unwrap().ppm(), 0);
        assert_eq!(read::<Part>("12.5%").unwrap().ppm(), 125_000);
        assert_eq!(read::<Part>("101%"), None);
        assert_eq!(read::<AtQuantile>("p99.9").unwrap().fraction(), 0.999);
        for text in ["p0", "p100", "98", "q98", "pNaN"] {
            assert_eq!(read::<AtQuantile>(text), None, "{text}");
        }
        for (text, meant) in [
            ("98", Some("p98")),
            ("98%", Some("p98")),
            ("P99.9", Some("p99.9")),
            ("0.999", Some("p99.9")),
            ("0.07", Some("p7")),
            ("1", None),
            ("median", None),
        ] {
            assert_eq!(AtQuantile::meant(text).as_deref(), meant, "{text}");
        }
    }
}
