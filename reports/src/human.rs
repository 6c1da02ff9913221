//! Numbers as people read them: three significant digits, units that fit, thousands apart. A unit never leaves its number at
//! the end of a line: the space between them does not break.

/// Shown where a figure does not apply.
pub const ABSENT: &str = "–";

/// Three significant digits, or all before the point: `0.123`, `87.2`, `1,834`.
pub fn number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    // Six decimals are a nanosecond of a millisecond: finer than anything measured.
    let decimals = (2 - value.abs().log10().floor() as i32).clamp(0, 6) as usize;
    let text = format!("{value:.decimals$}");
    let (whole, fraction) = text
        .split_once('.')
        .map_or((text.as_str(), None), |(whole, rest)| (whole, Some(rest)));
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
    match share {
        s if s > 0.0 && s < 0.0005 => "<0.1\u{a0}%".to_owned(),
        s if (0.9995..1.0).contains(&s) => ">99.9\u{a0}%".to_owned(),
        s => format!("{:.1}\u{a0}%", s * 100.0),
    }
}

/// A duration with the unit that fits, from milliseconds: `340 µs`, `87.2 ms`, `12.3 s`.
pub fn milliseconds(ms: f64) -> String {
    match ms.abs() {
        0.0 => "0\u{a0}ms".to_owned(),
        m if m < 1.0 => format!("{}\u{a0}µs", number(ms * 1e3)),
        m if m < 10_000.0 => format!("{}\u{a0}ms", number(ms)),
        _ => format!("{}\u{a0}s", number(ms / 1e3)),
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
    let power = (0..units.len() - 1)
        .find(|&i| bytes < 1024f64.powi(i as i32 + 1))
        .unwrap_or(units.len() - 1);
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
