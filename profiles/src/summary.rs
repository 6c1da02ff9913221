//! What a card holds and how well its tables interpolate, as data for `tenantry profile show`.

use crate::card::Card;
use crate::rows::{Family, nearest_rank};
use crate::slice::Slice;

/// One table of a card.
#[derive(Clone, Debug, PartialEq)]
pub struct TableSummary {
    /// The op family.
    pub family: Family,
    /// Which of the family's tables: `model=tiny dtype=f32`.
    pub table: String,
    /// Measured points.
    pub points: usize,
    /// Measurements of all points together.
    pub measurements: u64,
    /// What the points span.
    pub axes: Vec<AxisSummary>,
    /// The error of interpolation; none if no point lies between two others.
    pub error: Option<TableError>,
}

/// One dimension of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisSummary {
    /// The column's name.
    pub name: &'static str,
    /// The measured values, ascending.
    pub values: Vec<u64>,
}

/// How far interpolation misses measured points that are left out.
#[derive(Clone, Debug, PartialEq)]
pub struct TableError {
    /// The op family.
    pub family: Family,
    /// Which of the family's tables: `model=tiny dtype=f32`.
    pub table: String,
    /// Predictions: one for each point and each axis along which it lies between two others.
    pub predictions: usize,
    /// Median of |predicted − measured| / measured.
    pub median: f64,
    /// 95th percentile of the same.
    pub p95: f64,
}

/// Summaries of all tables, by family and name.
pub fn describe(card: &Card) -> Vec<TableSummary> {
    let summary = |slice: &Slice| TableSummary {
        family: slice.family,
        table: slice.label.clone(),
        points: slice.points.len(),
        measurements: slice.points.iter().map(|point| point.stats.count).sum(),
        axes: slice
            .axes
            .iter()
            .zip(slice.knots())
            .map(|(name, values)| AxisSummary { name, values })
            .collect(),
        error: leave_out_error(slice),
    };
    card.tables.slices().iter().map(summary).collect()
}

/// The error of each table's interpolation: every measured median that lies between two others along an axis is
/// predicted from these. Their gap is about twice that of two neighbours, so lookups do better.
pub fn leave_out_errors(card: &Card) -> Vec<TableError> {
    card.tables.slices().iter().filter_map(leave_out_error).collect()
}

fn leave_out_error(slice: &Slice) -> Option<TableError> {
    let mut errors = Vec::new();
    for axis in (0..slice.axes.len()).filter(|axis| slice.family.interpolates(*axis)) {
        for line in slice.lines(axis) {
            for window in line.windows(3) {
                let [before, point, after] = [window[0], window[1], window[2]];
                let share = (point.at[axis] - before.at[axis]) as f64 / (after.at[axis] - before.at[axis]) as f64;
                let predicted = before.stats.median_us + share * (after.stats.median_us - before.stats.median_us);
                errors.push((predicted - point.stats.median_us).abs() / point.stats.median_us);
            }
        }
    }
    errors.sort_by(f64::total_cmp);
    (!errors.is_empty()).then(|| TableError {
        family: slice.family,
        table: slice.label.clone(),
        predictions: errors.len(),
        median: nearest_rank(&errors, 50),
        p95: nearest_rank(&errors, 95),
    })
}
