//! What is meant by a quantity that is written as elsewhere: a time of `2m` or `1h30min`, a rate of `500/sec`, memory
//! of `16 gib`.

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

/// A rate as it must be written, of a text that is none; nothing where that is anybody's guess.
pub(super) fn rate(text: &str) -> Option<String> {
    let text = text.trim().to_lowercase();
    let (number, per) = number_and_unit(&text)?;
    let per = match per {
        "rps" | "qps" | "hz" => "s",
        "rpm" | "qpm" => "min",
        per => {
            let (what, per) = per.split_once('/').or_else(|| per.split_once("per "))?;
            let known = ["", "r", "req", "reqs", "request", "requests", "query", "queries"];
            let unit = UNITS.iter().find(|unit| unit.names.contains(&per.trim()))?;
            known.contains(&what.trim()).then_some(unit.ours)?
        }
    };
    Some(format!("{number}/{per}"))
}

/// An amount of memory as it must be written, of a text that is none. A letter alone stands for the larger unit of its
/// two.
pub(super) fn memory(text: &str) -> Option<String> {
    let (number, unit) = number_and_unit(text)?;
    let (number, unit) = match unit.to_lowercase().as_str() {
        "byte" | "bytes" => (number, "B"),
        "kb" => (number, "KB"),
        "mb" => (number, "MB"),
        "gb" => (number, "GB"),
        "tb" => (number * 1e3, "GB"),
        "k" | "ki" | "kib" => (number, "KiB"),
        "m" | "mi" | "mib" => (number, "MiB"),
        "g" | "gi" | "gib" => (number, "GiB"),
        "t" | "ti" | "tib" => (number * 1024.0, "GiB"),
        _ => return None,
    };
    Some(format!("{number} {unit}"))
}

#[cfg(test)]
mod tests {
    use super::super::Moment;
    use super::*;

    #[test]
    fn quantities_of_elsewhere_are_understood() {
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
        for (text, ours) in [
            ("500/sec", Some("500/s")),
            ("500 req/s", Some("500/s")),
            ("1.5 requests per Second", Some("1.5/s")),
            ("20 QPS", Some("20/s")),
            ("30/m", Some("30/min")),
            ("500", None),
            ("500 apples/s", None),
            ("500/fortnight", None),
        ] {
            assert_eq!(rate(text).as_deref(), ours, "{text}");
        }
        for (text, ours) in [
            ("16 Gib", Some("16 GiB")),
            ("16g", Some("16 GiB")),
            ("1.5 TiB", Some("1536 GiB")),
            ("2 Tb", Some("2000 GB")),
            ("16", None),
            ("16 apples", None),
        ] {
            assert_eq!(memory(text).as_deref(), ours, "{text}");
        }
        for text in ["", "2", "s", "two minutes", "1h-30min", "-2m", "5 apples", "1h30"] {
            assert_eq!(meant(text), None, "{text}");
        }
    }
}
