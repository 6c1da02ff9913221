//! What the points of a table must satisfy together: ordered quantiles and a mean that they allow, known models, no point
//! twice, a complete grid, and costs that rise with the work.

use crate::cells::one_of;
use crate::error::Invalid;
use crate::names::near_miss;
use crate::rows::Row;
use crate::slice::{Point, Slice, slices};

/// How far a point may lie below a smaller one, beyond their measured spreads: kernels have steps, machines drift.
const TOLERATED_DIP: f64 = 0.10;

/// Checks one family's rows; `lines` are their lines in `file`, `models` the model names that they may use.
pub(crate) fn check_rows<R: Row>(file: &str, rows: &[R], lines: &[u64], models: &[&str]) -> Result<(), Invalid> {
    for (row, &line) in rows.iter().zip(lines) {
        check_row(file, row, models).map_err(|invalid| invalid.in_line(line))?;
    }
    slices(rows)
        .iter()
        .try_for_each(|slice| check_slice(file, slice, lines))
}

fn check_row<R: Row>(file: &str, row: &R, models: &[&str]) -> Result<(), Invalid> {
    let stats = row.stats();
    for (column, value, least_column, least) in [
        ("median_us", stats.median_us, "p05_us", stats.p05_us),
        ("p95_us", stats.p95_us, "median_us", stats.median_us),
        ("p99_us", stats.p99_us, "p95_us", stats.p95_us),
    ] {
        if value < least {
            let must = format!("at least {least_column} ({least})");
            return Err(Invalid::new(file, column, must, value.to_string()));
        }
    }
    let least_us = stats.least_mean_us();
    if stats.mean_us < least_us {
        let must = format!("at least what its quantiles add up to ({least_us})");
        return Err(Invalid::new(file, "mean_us", must, stats.mean_us.to_string()));
    }
    match row.model() {
        Some(model) if !models.contains(&model.as_str()) => {
            let must = format!("a model listed in card.yaml or a built-in: {}", one_of(models));
            let suggested = near_miss(&model, models.iter().copied());
            Err(Invalid::new(file, "model", must, format!("{model:?}")).suggest(suggested))
        }
        _ => Ok(()),
    }
}

fn check_slice(file: &str, slice: &Slice, lines: &[u64]) -> Result<(), Invalid> {
    let described = |point: &Point| {
        format!("{} {}", slice.label, slice.describe(&point.at))
            .trim_end()
            .to_string()
    };
    let line = |point: &Point| lines[point.row];
    if let Some(point) = slice.points.iter().find(|point| !slice.family.possible(&point.at)) {
        let must = format!("at most batch ({})", point.at[1]);
        return Err(Invalid::new(file, "tenants", must, point.at[0].to_string()).in_line(line(point)));
    }
    if let Some((first, again)) = duplicate(slice) {
        let got = format!("{}, which line {} has", described(again), line(first));
        return Err(Invalid::new(file, "line", "a point measured once", got).in_line(line(again)));
    }
    let missing = slice.missing();
    if let Some(first) = missing.first() {
        let must = format!("every combination of {}", slice.axes.join(" × "));
        let got = format!(
            "no row for {} ({} missing in all)",
            slice.describe(first),
            missing.len()
        );
        return Err(Invalid::new(file, &slice.label, must, got));
    }
    if let Some((smaller, larger)) = dip(slice) {
        let (at, median_us) = (slice.describe(&smaller.at), smaller.stats.median_us);
        let must = format!(
            "no less than {at}'s {median_us} (line {}) beyond the measured spread; measure both again",
            line(smaller)
        );
        let got = format!("{} for {}", larger.stats.median_us, described(larger));
        return Err(Invalid::new(file, "median_us", must, got).in_line(line(larger)));
    }
    Ok(())
}

fn duplicate(slice: &Slice) -> Option<(&Point, &Point)> {
    let mut sorted: Vec<&Point> = slice.points.iter().collect();
    sorted.sort_by(|a, b| a.at.cmp(&b.at).then(a.row.cmp(&b.row)));
    sorted
        .windows(2)
        .find(|pair| pair[0].at == pair[1].at)
        .map(|pair| (pair[0], pair[1]))
}

/// A point and one that is larger along a single axis but, with both spreads and the tolerance granted, costs less.
fn dip(slice: &Slice) -> Option<(&Point, &Point)> {
    let larger_along_one_axis = |a: &Point, b: &Point| {
        let mut axes = a.at.iter().zip(&b.at).filter(|(a, b)| a != b);
        matches!((axes.next(), axes.next()), (Some((a, b)), None) if a < b)
    };
    let dips = |a: &Point, b: &Point| b.stats.p95_us < a.stats.p05_us * (1.0 - TOLERATED_DIP);
    let pairs = slice
        .points
        .iter()
        .flat_map(|a| slice.points.iter().map(move |b| (a, b)));
    let mut dips = pairs.filter(|(a, b)| dips(a, b) && larger_along_one_axis(a, b));
    dips.next()
}
