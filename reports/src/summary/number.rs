//! How figures are written: rounded, and absent where they do not apply.

use std::collections::BTreeMap;

use tenantry_core::ledger::ByReason;

/// To six significant digits.
pub fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().expect("a formatted float is a float")
}

/// Of a count that is told where it is not.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
pub(super) fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// `None` where there is nothing to divide by.
pub(super) fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| rounded(part / whole))
}

/// By the reasons' names.
pub(super) fn named<R: Copy>(counts: &ByReason<R>, name: fn(R) -> &'static str) -> BTreeMap<String, u64> {
    counts.iter().map(|(reason, count)| (name(*reason).to_owned(), *count)).collect()
}
