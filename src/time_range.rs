//! Windows of time on the command line: `30s..32s`, of a run or by a recording's own clock.

use std::ops::Range;

use tenantry_scenarios::scalar::{MeantTime, Moment};
use tenantry_traces::{Duration, Time};

use crate::failure::Failure;

/// `START..END`, both with units.
pub fn parse(flag: &str, text: &str) -> Result<Range<Time>, Failure> {
    match parse_open(flag, text)? {
        (start, Some(length)) => Ok(Time(start.0)..Time(start.0) + length),
        (_, None) => Err(must_be(flag, text)),
    }
}

/// `START..END` or `START..`: where it begins and how long it is, where that is said.
pub fn parse_open(flag: &str, text: &str) -> Result<(Duration, Option<Duration>), Failure> {
    let time = |text: &str| serde_yaml::from_str::<Moment>(text).ok().map(|moment| moment.0);
    let read = || {
        let (start, end) = text.split_once("..")?;
        let start = if start.is_empty() { Duration::ZERO } else { time(start)? };
        if end.is_empty() {
            return Some((start, None));
        }
        let length = time(end)?.0.checked_sub(start.0).filter(|&length| length > 0)?;
        Some((start, Some(Duration(length))))
    };
    read().ok_or_else(|| must_be(flag, text))
}

fn must_be(flag: &str, text: &str) -> Failure {
    let meant = meant(text).map_or(String::new(), |(meant, why)| format!("; did you mean {meant}?{why}"));
    Failure::BadInput(format!(
        "{flag}: must be START..END with units, the end after the start, such as 30s..32s, got {text}{meant}"
    ))
}

/// The window with its times as they must be written, where one is not, and what is wrong with it.
fn meant(text: &str) -> Option<(String, &'static str)> {
    let is_time = |text: &str| text.is_empty() || serde_yaml::from_str::<Moment>(text).is_ok();
    let meant = |text: &str| match is_time(text) {
        true => Some((text.to_owned(), false)),
        false => MeantTime::of(text)
            .filter(|meant| is_time(&meant.text))
            .map(|meant| (meant.text, meant.was_joined)),
    };
    let (start, end) = text.split_once("..")?;
    if is_time(start) && is_time(end) {
        return None;
    }
    let ((start, start_was_joined), (end, end_was_joined)) = (meant(start)?, meant(end)?);
    let why = match start_was_joined || end_was_joined {
        true => " Units are not joined",
        false => "",
    };
    Some((format!("{start}..{end}"), why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_read_with_their_units() {
        let range = parse("--timeline", "500ms..2s").unwrap();
        assert_eq!(range, Time(500_000_000)..Time(2_000_000_000));
        assert_eq!(parse_open("--cut", "1min..").unwrap(), (Duration::from_secs(60), None));
        let epoch = Duration::from_secs(1_700_000_000);
        assert_eq!(parse_open("--cut", "1700000000s..").unwrap(), (epoch, None));
        assert_eq!(
            parse_open("--cut", "..1min").unwrap(),
            (Duration::ZERO, Some(Duration::from_secs(60)))
        );
        for wrong in ["", "1s", "1..2", "2s..1s", "1s..1s", "a..b"] {
            assert!(parse("--timeline", wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_that_are_written_as_elsewhere_are_told_back() {
        for (wrong, hint) in [
            (
                "1h30min..2h",
                "got 1h30min..2h; did you mean 90min..2h? Units are not joined",
            ),
            ("..2m", "got ..2m; did you mean ..2min?"),
            ("2s..1s", "got 2s..1s"),
            ("x..2m", "got x..2m"),
        ] {
            let error = parse_open("--cut", wrong).unwrap_err().to_string();
            assert!(error.ends_with(hint), "{error}");
        }
    }
}
