//! Numbers in sentences: with a minus for the hyphen that they are formatted with, and no sign where nothing is left
//! after rounding.

use tenantry_reports::human;

/// With so many decimals: `−1.2`, `0.0`.
pub fn fixed(value: f64, decimals: usize) -> String {
    proper(&format!("{value:.decimals$}"))
}

/// Likewise with its sign: `+1.2`, `−1.2`, `0.0`.
pub fn signed(value: f64, decimals: usize) -> String {
    proper(&format!("{value:+.decimals$}"))
}

/// As [`human::number`] has it, with its unit behind it where it has one: `12.0 ×`.
pub fn with_unit(value: f64, unit: &str) -> String {
    proper(&format!("{} {unit}", human::number(value))).trim_end().to_owned()
}

/// A formatted number, or one with its unit behind it.
pub fn proper(number: &str) -> String {
    let digits = number.trim_start_matches(['+', '-']);
    let nothing = digits
        .chars()
        .take_while(|digit| !digit.is_whitespace())
        .all(|digit| ['0', '.', ','].contains(&digit));
    match nothing {
        true => digits.to_owned(),
        false => number.replacen('-', "−", 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_no_sign() {
        assert_eq!([fixed(-0.04, 1), fixed(-0.06, 1), fixed(2.0, 0)], ["0.0", "−0.1", "2"]);
        assert_eq!(
            [signed(-0.004, 2), signed(0.0, 1), signed(1.25, 1)],
            ["0.00", "0.0", "+1.2"]
        );
        assert_eq!(
            [proper("-0.00 ms"), proper("-12,000 /s"), proper("NaN")],
            ["0.00 ms", "−12,000 /s", "NaN"]
        );
    }
}
