//! Numbers as people read them: three significant digits, units that fit, thousands apart. A unit never leaves its
//! number at the end of a line: the space between them does not break.

use std::ops::RangeInclusive;

/// Shown where a figure does not apply.
pub const ABSENT: &str = "–";

/// Three significant digits, or all before the point: `0.123`, `87.2`, `1,834`.
pub fn number(value: f64) -> String {
    with_digits(value, DIGITS)
}

/// Of a number that stands for itself.
const DIGITS: i32 = 3;
/// Of a figure in a summary.
const MOST_DIGITS: i32 = 6;

fn with_digits(value: f64, digits: i32) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    // Six decimals are a nanosecond of a millisecond: finer than anything measured.
    let decimals = (digits - 1 - value.abs().log10().floor() as i32).clamp(0, 6) as usize;
    with_decimals(value, decimals)
}

/// So many decimals, thousands apart.
pub(crate) fn with_decimals(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), None), |(whole, rest)| (whole, Some(rest)));
    let whole = thousands(whole);
    fraction.map_or(whole.clone(), |fraction| format!("{whole}.{fraction}"))
}

/// As [`number`], with its sign.
pub fn signed(value: f64) -> String {
    match value > 0.0 {
        true => format!("+{}", number(value)),
        false => number(value).replacen('-', "−", 1),
    }
}

/// A share in percent with one decimal. What is nearly nothing or nearly all is not shown as nothing or all.
pub fn percent(share: f64) -> String {
    percent_with(share, 1)
}

/// As [`percent`], with more decimals where it would look like another share that it is not.
pub fn percent_apart(share: f64, other: f64) -> String {
    apart(share, other, 1..=5, percent_with)
}

/// What is shown with as many digits as tell it from another value, or with the most.
pub fn apart<D>(value: f64, other: f64, mut digits: RangeInclusive<D>, show: fn(f64, D) -> String) -> String
where
    D: Copy,
    RangeInclusive<D>: Iterator<Item = D>,
{
    let most = *digits.end();
    let is_told_apart = |digits: &D| value == other || show(value, *digits) != show(other, *digits);
    show(value, digits.find(is_told_apart).unwrap_or(most))
}

fn percent_with(share: f64, decimals: usize) -> String {
    let step = 10f64.powi(-(decimals as i32));
    match share * 100.0 {
        p if p > 0.0 && p < step / 2.0 => format!("<{step:.decimals$}\u{a0}%"),
        p if (100.0 - step / 2.0..100.0).contains(&p) => format!(">{:.decimals$}\u{a0}%", 100.0 - step),
        p => format!("{p:.decimals$}\u{a0}%"),
    }
}

/// A duration with the unit that fits, from milliseconds: `340 µs`, `87.2 ms`, `12.3 s`.
pub fn milliseconds(ms: f64) -> String {
    milliseconds_with(ms, DIGITS)
}

/// As [`milliseconds`], with all of its digits where it has more than three: what somebody asked for.
pub fn exact_milliseconds(ms: f64) -> String {
    let all = milliseconds_with(ms, MOST_DIGITS);
    let is_all = |digits: &i32| milliseconds_with(rounded_to(ms, *digits), MOST_DIGITS) == all;
    milliseconds_with(ms, (DIGITS..MOST_DIGITS).find(is_all).unwrap_or(MOST_DIGITS))
}

/// The limits of a target in milliseconds: of the whole answer, the first token, each further one. "100 ms"; "1 s to
/// the first token and 50 ms a token".
pub fn limits(ms: [Option<f64>; 3]) -> String {
    let limits = ms.iter().zip(["", " to the first token", " a token"]);
    let limits = limits.filter_map(|(ms, what)| Some(format!("{}{what}", exact_milliseconds((*ms)?))));
    listed(&limits.collect::<Vec<_>>())
}

/// "a, b and c".
pub fn listed(names: &[impl AsRef<str>]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match &names[..] {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// As [`milliseconds`], with more digits where it would look like another duration that it is not.
pub fn milliseconds_apart(ms: f64, other: f64) -> String {
    apart(ms, other, DIGITS..=MOST_DIGITS, milliseconds_with)
}

fn rounded_to(value: f64, digits: i32) -> f64 {
    let decimals = digits as usize - 1;
    format!("{value:.decimals$e}").parse().expect("a formatted float is a float")
}

fn milliseconds_with(ms: f64, digits: i32) -> String {
    match ms.abs() {
        0.0 => "0\u{a0}ms".to_owned(),
        m if m < 1.0 => format!("{}\u{a0}µs", with_digits(ms * 1e3, digits)),
        m if m < 10_000.0 => format!("{}\u{a0}ms", with_digits(ms, digits)),
        _ => format!("{}\u{a0}s", with_digits(ms / 1e3, digits)),
    }
}

/// Bytes with the unit that fits.
pub fn bytes(bytes: f64) -> String {
    let (unit, name) = binary_unit(bytes);
    format!("{}\u{a0}{name}", number(bytes / unit))
}

/// The unit that fits so many bytes: how many bytes it has, and its name.
pub fn binary_unit(bytes: f64) -> (f64, &'static str) {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = (0..units.len() - 1).find(|&i| bytes < 1024f64.powi(i as i32 + 1)).unwrap_or(units.len() - 1);
    (1024f64.powi(power as i32), units[power])
}

/// A whole number of things.
pub fn count(n: u64) -> String {
    thousands(&n.to_string())
}

fn thousands(digits: &str) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| str::from_utf8(group).expect("digits are ASCII"))
        .collect();
    format!("{sign}{}", groups.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spaced(text: String) -> String {
        text.replace('\u{a0}', " ")
    }

    #[test]
    fn numbers_keep_three_digits_and_separate_thousands() {
        let cases = [
            (0.0, "0"),
            (0.1234, "0.123"),
            (9.999, "10.00"),
            (87.21, "87.2"),
            (999.6, "1,000"),
            (1834.4, "1,834"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
        assert_eq!(number(-12_345_678.0), "-12,345,678");
        assert_eq!(number(1e-12), "0.000000");
        assert_eq!(
            (signed(2.5), signed(-2.5), signed(0.0)),
            ("+2.50".into(), "−2.50".into(), "0".into())
        );
    }

    #[test]
    fn shares_are_not_rounded_to_nothing_or_all() {
        assert_eq!(
            [0.0, 0.0001, 0.123, 0.9999, 1.0].map(|share| spaced(percent(share))),
            ["0.0 %", "<0.1 %", "12.3 %", ">99.9 %", "100.0 %"]
        );
    }

    #[test]
    fn what_is_not_the_same_does_not_look_the_same() {
        let apart = |ms, other| spaced(milliseconds_apart(ms, other));
        assert_eq!(apart(22.5444, 22.5368), "22.544 ms");
        assert_eq!(apart(22.6, 22.5368), "22.6 ms");
        assert_eq!(apart(100.04, 100.0), "100.04 ms");
        assert_eq!(apart(100.0, 100.0), "100 ms");
        let exact = [22.5368, 100.0, 23.0, 0.1234, 1234.5].map(|ms| spaced(exact_milliseconds(ms)));
        assert_eq!(exact, ["22.5368 ms", "100 ms", "23.0 ms", "123.4 µs", "1,234.5 ms"]);
        let shares = [(0.979824, 0.98), (0.98, 0.98), (0.5, 0.98), (0.9996, 0.9999)];
        assert_eq!(
            shares.map(|(share, other)| spaced(percent_apart(share, other))),
            ["97.98 %", "98.0 %", "50.0 %", "99.96 %"]
        );
    }

    #[test]
    fn units_fit() {
        assert_eq!(
            [0.34, 87.2, 12_345.0].map(|ms| spaced(milliseconds(ms))),
            ["340 µs", "87.2 ms", "12.3 s"]
        );
        assert_eq!(
            [0.0, 512.0, 1536.0, 1024f64.powi(3) * 80.0].map(|n| spaced(bytes(n))),
            ["0 B", "512 B", "1.50 KiB", "80.0 GiB"]
        );
        assert_eq!(count(1_000_000), "1,000,000");
    }
}
