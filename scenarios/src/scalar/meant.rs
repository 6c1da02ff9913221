//! What is meant by a time that is written as elsewhere: `2m`, `1h30min`.

use super::quantity::number_and_unit;

/// A time as it must be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeantTime {
    /// With one unit.
    pub text: String,
    /// There were several, as in `1h30min`.
    pub was_joined: bool,
}

/// A unit of time.
struct Unit {
    /// As it is written elsewhere, or here.
    names: &'static [&'static str],
    /// As it is written here.
    ours: &'static str,
    ns: u64,
}

const UNITS: [Unit; 6] = [
    unit(&["h", "hr", "hrs", "hour", "hours"], "h", 3_600_000_000_000),
    unit(&["min", "m", "mins", "minute", "minutes"], "min", 60_000_000_000),
    unit(&["s", "sec", "secs", "second", "seconds"], "s", 1_000_000_000),
    unit(&["ms", "msec", "millis"], "ms", 1_000_000),
    unit(&["us", "µs", "usec"], "us", 1_000),
    unit(&["ns", "nsec"], "ns", 1),
];
/// What is written in hours here.
const DAY: Unit = unit(&["d", "day", "days"], "h", 86_400_000_000_000);

const fn unit(names: &'static [&'static str], ours: &'static str, ns: u64) -> Unit {
    Unit { names, ours, ns }
}

impl MeantTime {
    /// Of a text that is no time as it stands; nothing where that is anybody's guess.
    pub fn of(text: &str) -> Option<MeantTime> {
        let parts = parts(&text.trim().to_lowercase())?;
        // As it was written, where that says it: 1.5 hours are not 90 minutes.
        if let [(amount, unit)] = &parts[..]
            && unit.ns < DAY.ns
        {
            return Some(MeantTime {
                text: format!("{amount}{}", unit.ours),
                was_joined: false,
            });
        }
        let ns: f64 = parts.iter().map(|(amount, unit)| amount * unit.ns as f64).sum();
        let largest = UNITS.iter().find(|unit| ns % unit.ns as f64 == 0.0)?;
        Some(MeantTime {
            text: format!("{}{}", ns / largest.ns as f64, largest.ours),
            was_joined: parts.len() > 1,
        })
    }
}

/// Amounts and their units, one after another; at least one.
fn parts(text: &str) -> Option<Vec<(f64, &'static Unit)>> {
    let mut rest = text;
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let unit_at = rest.find(char::is_alphabetic)?;
        let behind = rest[unit_at..].find(|c: char| !c.is_alphabetic());
        let behind = behind.map_or(rest.len(), |length| unit_at + length);
        let (amount, name) = number_and_unit(&rest[..behind]).filter(|(amount, _)| *amount >= 0.0)?;
        let unit = UNITS.iter().chain([&DAY]).find(|unit| unit.names.contains(&name))?;
        parts.push((amount, unit));
        rest = rest[behind..].trim_start();
    }
    (!parts.is_empty()).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::super::Moment;
    use super::*;

    #[test]
    fn times_of_elsewhere_are_understood() {
        let meant = |text: &str| MeantTime::of(text).map(|meant| (meant.text, meant.was_joined));
        for (text, ours, was_joined) in [
            ("2m", "2min", false),
            ("30 Sec", "30s", false),
            ("1.5hours", "1.5h", false),
            ("2d", "48h", false),
            ("1h30min", "90min", true),
            ("1h 30m", "90min", true),
            ("1m0.5s", "60500ms", true),
            ("1h60min", "2h", true),
        ] {
            assert_eq!(meant(text), Some((ours.to_owned(), was_joined)), "{text}");
            assert!(serde_yaml::from_str::<Moment>(ours).is_ok(), "{ours}");
        }
        for text in ["", "2", "s", "two minutes", "1h-30min", "-2m", "5 apples", "1h30"] {
            assert_eq!(meant(text), None, "{text}");
        }
    }
}
