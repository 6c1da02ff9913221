//! Arlo (runtimes of several input lengths), on `paper-rtx3090`.

mod ablations;
mod latency;
mod overhead;

use super::Figure;
use tenantry_reports::RunSummary;

/// Above its tables.
pub const TITLE: &str = "Arlo: one model compiled for several lengths (card paper-rtx3090)";

/// In the paper's order.
pub const FIGURES: &[Figure] = &[
    latency::figure_2,
    latency::figure_6a,
    latency::figure_6b,
    latency::figure_7,
    latency::figure_8,
    overhead::figure_9,
    overhead::table_2,
    latency::figure_10a,
    latency::figure_10b,
    ablations::figure_11,
    ablations::table_3,
    ablations::figure_12,
    ablations::table_4,
];

/// The 98th percentile in milliseconds; infinite where nothing was answered.
fn p98_ms(run: &RunSummary) -> f64 {
    run.latency_ms.map_or(f64::INFINITY, |latency| latency.p98)
}

/// By how much `ours` is below `other`, in per cent.
fn below(ours: f64, other: f64) -> f64 {
    100.0 * (1.0 - ours / other)
}
