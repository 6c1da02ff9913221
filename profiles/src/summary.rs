//! What a card holds and how well its tables interpolate, as data for `tenantry profile show`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::card::{Card, Source};
use crate::family::Family;
use crate::grid::Grid;
use crate::leap::{Leap, leap};
use crate::names::named;
use crate::slice::{Point, Slice};
use crate::stats::nearest_rank;

/// One table of a card.
#[derive(Clone, Debug, PartialEq)]
pub struct TableSummary {
    /// The op family.
    pub family: Family,
    /// Which of the family's tables: `model=tiny dtype=f32`.
    pub table: String,
    /// Measured points.
    pub points: usize,
    /// Measurements of all points together; none where they were computed, however many measurements it is from.
    pub measurements: Option<u64>,
    /// What the points span.
    pub axes: Vec<AxisSummary>,
    /// The error of interpolation; none if no point lies between two others.
    pub error: Option<TableError>,
    /// What prices depart from what was measured for the sake of rising with the work.
    pub moved: Moved,
    /// Where it costs far more than beside, if anywhere: a figure in another unit, perhaps.
    pub leap: Option<Leap>,
}

/// How far a table's prices are from its own points, where an op was measured to cost less than a smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Moved {
    /// Points whose price is more than 2 % off what was measured there, which is as well as medians are meant to be
    /// known; of points that were moved before they became the table, all.
    pub points: usize,
    /// The farthest that any price is from what was measured, relative to it.
    pub farthest: f64,
}

impl Moved {
    /// Whether a price is farther from its point than interpolation is to be at p95.
    pub fn is_beyond_limits(&self) -> bool {
        self.farthest >= TableError::P95_LIMIT
    }
}

/// Prices nearer than this are what was measured.
const MOVED: f64 = 0.02;

/// One dimension of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisSummary {
    /// The column's name.
    pub name: &'static str,
    /// The measured values, ascending.
    pub values: Vec<u64>,
}

/// How far interpolation misses measured points that it does not have.
#[derive(Clone, Debug, PartialEq)]
pub struct TableError {
    /// The op family.
    pub family: Family,
    /// Which of the family's tables: `model=tiny dtype=f32`.
    pub table: String,
    /// Which points those are.
    pub of: LeftOut,
    /// Predictions: one for each such point and, of a table's own points, for each axis along which one lies between
    /// two others.
    pub predictions: usize,
    /// Median of |predicted − measured| / measured; for what only adds to a lane's work, measured with that work.
    pub median: f64,
    /// 95th percentile of the same.
    pub p95: f64,
    /// The farthest: where another point would help most.
    pub worst: Miss,
}

impl TableError {
    /// What a measured table's median error is to be below,
    pub const MEDIAN_LIMIT: f64 = 0.03;
    /// and its 95th percentile.
    pub const P95_LIMIT: f64 = 0.08;

    /// Whether it is beyond either.
    pub fn is_beyond_limits(&self) -> bool {
        self.median >= Self::MEDIAN_LIMIT || self.p95 >= Self::P95_LIMIT
    }
}

/// How far a prediction is off.
#[derive(Clone, Debug, PartialEq)]
pub struct Miss {
    /// Where, a value for each of the table's axes.
    pub at: Vec<u64>,
    /// (predicted − measured) / measured.
    pub error: f64,
}

impl Miss {
    fn new(point: &Point, predicted_us: f64, whole_us: f64) -> Miss {
        Miss {
            at: point.at.clone(),
            error: (predicted_us - point.stats.median_us) / whole_us,
        }
    }
}

/// Which points interpolation was not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// Points between those of the table, measured only to check by: what a lookup meets.
    HeldOut,
    /// Each of the table's own points in turn, from its neighbours. Their gap is about twice that of two neighbours, so
    /// lookups do better.
    Own,
}
named!(LeftOut { HeldOut => "held out", Own => "own" });

/// Summaries of all tables, by family and name.
pub fn describe(card: &Card) -> Vec<TableSummary> {
    let held_out = card.held_out.slices();
    let summary = |slice: &Slice| TableSummary {
        family: slice.family,
        table: slice.label.clone(),
        points: slice.points.len(),
        measurements: is_measured(card, slice).then(|| slice.points.iter().map(|point| point.stats.count).sum()),
        axes: slice
            .axes
            .iter()
            .zip(slice.knots())
            .map(|(name, values)| AxisSummary { name, values })
            .collect(),
        error: error_of(card, slice, &held_out),
        moved: moved(card, slice),
        leap: leap(slice),
    };
    card.tables.slices().iter().map(summary).collect()
}

/// Whether points were measured, here or by the source that they are imported from.
fn is_measured(card: &Card, slice: &Slice) -> bool {
    match card.origin(slice.family, &slice.label).kind {
        Source::Measured => true,
        // Copies of any size are made of one published bandwidth.
        Source::Imported => slice.family != Family::Copy,
        Source::Fitted | Source::Derived | Source::Assumed => false,
    }
}

/// What its prices depart from what was measured, as far as it is known: those of points that were moved before they
/// became the table lie on these.
fn moved(card: &Card, slice: &Slice) -> Moved {
    let from_points = moved_from_points(slice);
    match card.origin(slice.family, &slice.label).moved {
        Some(before) if before.farthest > from_points.farthest => before,
        _ => from_points,
    }
}

/// What its prices depart from its own points.
pub(crate) fn moved_from_points(slice: &Slice) -> Moved {
    let apart = errors_at(slice, slice).into_iter().map(|miss| miss.error.abs());
    let apart: Vec<f64> = apart.collect();
    Moved {
        points: apart.iter().filter(|apart| **apart > MOVED).count(),
        farthest: apart.iter().copied().fold(0.0, f64::max),
    }
}

/// The error of each table's interpolation: at its held-out points where there are any, else at its own.
pub fn leave_out_errors(card: &Card) -> Vec<TableError> {
    let held_out = card.held_out.slices();
    let tables = card.tables.slices();
    tables.iter().filter_map(|slice| error_of(card, slice, &held_out)).collect()
}

/// The error of a table's interpolation, at its held-out points where there are any, else at its own. Of points that
/// were moved first, so that they rise evenly, nothing of what was measured would be found.
pub(crate) fn error_of(card: &Card, slice: &Slice, held_out: &[Slice]) -> Option<TableError> {
    let same = |other: &&Slice| (other.family, &other.label) == (slice.family, &slice.label);
    match held_out.iter().find(same) {
        Some(held_out) => summed_up(slice, LeftOut::HeldOut, errors_at(slice, held_out)),
        None if card.origin(slice.family, &slice.label).moved.is_some() => None,
        None => summed_up(slice, LeftOut::Own, errors_at_own(slice)),
    }
}

/// The errors of a table's prices at points that it does not have.
fn errors_at(slice: &Slice, held_out: &Slice) -> Vec<Miss> {
    match slice.axes.len() {
        1 => errors_on::<1>(slice, held_out),
        2 => errors_on::<2>(slice, held_out),
        3 => errors_on::<3>(slice, held_out),
        4 => errors_on::<4>(slice, held_out),
        _ => Vec::new(),
    }
}

fn errors_on<const N: usize>(slice: &Slice, held_out: &Slice) -> Vec<Miss> {
    let Ok(grid) = Grid::<N>::new(slice) else {
        return Vec::new();
    };
    let error = |point: &Point| {
        let at: [u64; N] = point.at.as_slice().try_into().expect("rows of a family have its axes");
        let predicted_us = grid.median_ns(at) as f64 / 1e3;
        Miss::new(point, predicted_us, slice.whole_us(point))
    };
    let knots = slice.knots();
    // Between two compiled lengths nothing runs: older profiles have measured there nevertheless.
    let is_met =
        |point: &&Point| (0..N).all(|axis| slice.family.interpolates(axis) || knots[axis].contains(&point.at[axis]));
    held_out.points.iter().filter(is_met).map(error).collect()
}

/// The errors at a table's own points, each predicted from the two beside it along an axis: as it is priced, by a
/// straight line or, of rhythms, by the nearest in proportion.
fn errors_at_own(slice: &Slice) -> Vec<Miss> {
    let mut errors = Vec::new();
    for axis in (0..slice.axes.len()).filter(|axis| slice.family.interpolates(*axis)) {
        for line in slice.lines(axis) {
            for window in line.windows(3) {
                let [before, point, after] = [window[0], window[1], window[2]];
                // What an importer went on to along a line says nothing of lines.
                if window.iter().any(|point| point.stats.count == 0) {
                    continue;
                }
                let [low, at, high] = [before, point, after].map(|point| point.at[axis]);
                let share = match slice.family {
                    Family::HandOver => f64::from(at > (low * high).isqrt()),
                    _ => (at - low) as f64 / (high - low) as f64,
                };
                let predicted = before.stats.median_us + share * (after.stats.median_us - before.stats.median_us);
                errors.push(Miss::new(point, predicted, slice.whole_us(point)));
            }
        }
    }
    errors
}

fn summed_up(slice: &Slice, of: LeftOut, mut misses: Vec<Miss>) -> Option<TableError> {
    misses.sort_by(|one, other| one.error.abs().total_cmp(&other.error.abs()));
    let errors: Vec<f64> = misses.iter().map(|miss| miss.error.abs()).collect();
    misses.pop().map(|worst| TableError {
        family: slice.family,
        table: slice.label.clone(),
        of,
        predictions: errors.len(),
        median: nearest_rank(&errors, 50),
        p95: nearest_rank(&errors, 95),
        worst,
    })
}
