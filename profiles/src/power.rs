//! Powers, quickly, to so many digits that rounding to whole nanoseconds mostly cannot tell the difference.
//!
//! A draw from a spread needs one power, and a power that is the same on every processor takes as long as all the rest
//! of a draw. [`whole`] is exactly what that power would give; it asks for it only where the quick one leaves a doubt.

use std::f64::consts::{LN_2, LOG2_E};
use std::sync::LazyLock;

/// Cells into which a binade is cut.
const CELLS: usize = 128;

/// How far [`approximate`] may be from the power, as a share of it. The series leave some 10⁻¹³ of the logarithm, which
/// exponents of up to a hundred make 10⁻¹¹, and as little of the power.
const ERROR: f64 = 1e-9;

struct Cell {
    /// One over its middle, and the middle's logarithm to base 2.
    inverse: f64,
    log2: f64,
    /// Two to the power of its beginning's distance from the first.
    exp2: f64,
}

static TABLE: LazyLock<[Cell; CELLS]> = LazyLock::new(|| {
    std::array::from_fn(|cell| {
        let middle = 1.0 + (cell as f64 + 0.5) / CELLS as f64;
        Cell {
            inverse: 1.0 / middle,
            log2: libm::log2(middle),
            exp2: libm::exp2(cell as f64 / CELLS as f64),
        }
    })
});

/// The whole part of `value(t^k)`, for a `t` from 0 to 1, a `k` above 0 and up to 100, and a `value` that rises in
/// proportion to its argument or less, from nothing or more.
#[inline]
pub fn whole(t: f64, k: f64, value: impl Fn(f64) -> f64) -> u64 {
    if let Some(whole) = approximate(t, k).map(&value).and_then(|near| certainly_whole(near, near)) {
        return whole;
    }
    // libm's power is the same on every processor.
    value(libm::pow(t, k)) as u64
}

/// The whole part of a positive number where it is beyond doubt: `near` is as near to the number as [`approximate`]
/// comes to a power of `of`, which is no less.
#[inline]
pub fn certainly_whole(near: f64, of: f64) -> Option<u64> {
    // Below 2^63, where a signed number is the quicker to convert: larger ones are near to everything.
    let whole = near as i64;
    let (over, doubt) = (near - whole as f64, of * ERROR);
    (doubt < over && over < 1.0 - doubt).then_some(whole as u64)
}

/// `t^k`; nothing where that is too near to nothing.
#[inline]
fn approximate(t: f64, k: f64) -> Option<f64> {
    exp2(k, log2(t)?)
}

/// The logarithm of `t` to base 2, for any number of powers of it.
#[inline]
pub fn log2(t: f64) -> Option<f64> {
    const MANTISSA: u64 = (1 << 52) - 1;
    // Zero has no logarithm, and what is near to it none in this form.
    if t < f64::MIN_POSITIVE {
        return None;
    }
    let table = &*TABLE;
    let bits = t.to_bits();
    let exponent = (bits >> 52) as i32 - 1023;
    let mantissa = f64::from_bits(bits & MANTISSA | 1023 << 52);
    let cell = &table[(bits >> 45) as usize & (CELLS - 1)];
    // log2(1 + r) by its series, r being at most one in 256; its products are made side by side, as nothing else is to
    // be done meanwhile.
    let r = mantissa * cell.inverse - 1.0;
    let series = (LOG2_E - r * (LOG2_E / 2.0)) + r * r * (LOG2_E / 3.0 - r * (LOG2_E / 4.0));
    Some(f64::from(exponent) + cell.log2 + r * series)
}

/// Two to the power of `k · log2`.
#[inline]
pub fn exp2(k: f64, log2: f64) -> Option<f64> {
    const ROUND: f64 = 1.5 * (1_u64 << 52) as f64;
    let table = &*TABLE;
    // In cells of a binade.
    let power = k * CELLS as f64 * log2;
    if power < -1000.0 * CELLS as f64 {
        return None;
    }
    // The nearest whole number of cells: beside this constant a number has no fraction, and its last bits are the
    // whole.
    let rounded = power + ROUND;
    let cells = rounded.to_bits() as i32;
    let x = (power - (rounded - ROUND)) * (LN_2 / CELLS as f64);
    let exp = (1.0 + x) + x * x * (1.0 / 2.0 + x * (1.0 / 6.0));
    let two = f64::from_bits((((cells >> CELLS.ilog2()) + 1023) as u64) << 52);
    Some(two * table[cells as usize & (CELLS - 1)].exp2 * exp)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_as_near_as_it_says(t in prop_oneof![0.0..1.0_f64, 0.0..1e-9_f64, Just(1.0)], k in prop_oneof![0.01..2.0_f64, 0.01..100.0_f64]) {
            let exact = libm::pow(t, k);
            if let Some(near) = approximate(t, k) {
                // A tenth of what is allowed for.
                prop_assert!((near - exact).abs() <= 0.1 * ERROR * exact, "{near} {exact}");
            }
        }

        #[test]
        fn rounding_is_that_of_the_power(t in 0.0..1.0_f64, k in 0.01..100.0_f64, most in prop_oneof![1.0..1e6_f64, 1.0..1e12_f64]) {
            let value = |power: f64| most * power + 0.5;
            prop_assert_eq!(whole(t, k, value), value(libm::pow(t, k)) as u64);
        }
    }

    #[test]
    fn nothing_to_any_power_is_nothing() {
        for k in [0.01, 0.5, 100.0] {
            assert_eq!(whole(0.0, k, |power| 1e9 * power), 0);
        }
    }
}
