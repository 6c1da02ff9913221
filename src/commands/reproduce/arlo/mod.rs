//! Arlo (runtimes of several input lengths), on `paper-rtx3090`.

mod ablations;
mod latency;
mod overhead;
mod streams;

use super::Figure;
use tenantry_reports::RunSummary;

/// Above its tables.
pub const TITLE: &str = "Arlo: one model compiled for several lengths (card paper-rtx3090)";

/// In the paper's order.
pub const FIGURES: &[Figure] = &[
    latency::section_2,
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
    streams::section_6,
];

/// Of figures that a single load's chance may turn round: the median of these counts. The first is the scenarios' own.
const SEEDS: [u64; 5] = [7, 1, 2, 3, 4];

/// Twitter-Bursty (section 5): within the second, a Markov-modulated Poisson process with so many requests a second in
/// the mean and `peak` times as many in bursts, which take a fifth of the time, 200 ms at a time. The text gives none
/// of this.
fn bursty(mean: u32, peak: f64) -> String {
    let (calm, burst) = (f64::from(mean) * (1.0 - 0.2 * peak) / 0.8, f64::from(mean) * peak);
    format!(
        "workload.arrivals={{mmpp: {{states: [{{rate: {calm:.0}/s, mean_dwell: 800ms}}, {{rate: {burst:.0}/s, \
         mean_dwell: 200ms}}]}}}}"
    )
}

/// The median in milliseconds; infinite where nothing was answered.
fn p50_ms(run: &RunSummary) -> f64 {
    run.latency_ms.map_or(f64::INFINITY, |latency| latency.p50)
}

/// The 98th percentile in milliseconds; infinite where nothing was answered.
fn p98_ms(run: &RunSummary) -> f64 {
    run.latency_ms.map_or(f64::INFINITY, |latency| latency.p98)
}

/// By how much `ours` is below `other`, in per cent.
fn below(ours: f64, other: f64) -> f64 {
    100.0 * (1.0 - ours / other)
}
