//! Factors in parts of a million, so that all times stay whole nanoseconds.

/// One.
pub(crate) const ONE: u64 = 1_000_000;

/// So many parts of a million of `ns`.
pub(crate) fn scaled(ns: u64, ppm: u64) -> u64 {
    match ns.checked_mul(ppm) {
        Some(product) => product / ONE,
        // Hours: a division of 128 bits is slow.
        None => (u128::from(ns) * u128::from(ppm) / u128::from(ONE)) as u64,
    }
}
