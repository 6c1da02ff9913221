//! What the points of a table must satisfy together: ordered quantiles and a mean that they allow, known models, no
//! point twice, a complete grid, and costs that rise with the work.

use std::collections::BTreeMap;

use crate::cells::one_of;
use crate::error::Invalid;
use crate::family::Family;
use crate::model::ModelShape;
use crate::names::near_miss;
use crate::rows::Row;
use crate::slice::{Point, Slice, slices};
use crate::stats::Stats;
use crate::tables::Role;

/// How far a point may lie below a smaller one, beyond their measured spreads: kernels have steps, machines drift.
const TOLERATED_DIP: f64 = 0.10;

/// How many times the 99th percentile a mean may be: the rarest hundredth would take a thousand times as long. Of all
/// that was measured the mean was 1.3 times it at most.
pub(crate) const MEAN_OVER_P99_MAX: f64 = 10.0;

/// Checks one family's rows; `lines` are their lines in `file`, `models` those that they may be of.
pub(crate) fn check_rows<R: Row>(
    file: &str,
    role: Role,
    rows: &[R],
    lines: &[u64],
    models: &[ModelShape],
) -> Result<(), Invalid> {
    for (row, &line) in rows.iter().zip(lines) {
        check_stats(file, row.stats()).map_err(|invalid| invalid.in_line(line))?;
        check_model(file, R::FAMILY, &|column| row.name(column), models).map_err(|invalid| invalid.in_line(line))?;
    }
    // Whole steps are looked up by all that names their table but the layers, of which there can be one number then.
    if let Some(column) = R::NAMES.iter().position(|name| *name == "layers") {
        check_layers(
            file,
            column,
            &mut rows.iter().map(Row::names).zip(lines.iter().copied()),
        )?;
    }
    slices(rows).iter().try_for_each(|slice| check_slice(file, role, slice, lines))
}

fn check_stats(file: &str, stats: &Stats) -> Result<(), Invalid> {
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
    let most_us = MEAN_OVER_P99_MAX * stats.p99_us;
    if stats.mean_us > most_us {
        let must = format!("at most {MEAN_OVER_P99_MAX} times p99_us ({most_us})");
        return Err(Invalid::new(file, "mean_us", must, stats.mean_us.to_string()));
    }
    Ok(())
}

/// What a row whose cells have these names is of is a known model that the family prices, on as many cards as can share
/// it: a table of another would price nothing.
fn check_model(
    file: &str,
    family: Family,
    named: &dyn Fn(&str) -> Option<String>,
    models: &[ModelShape],
) -> Result<(), Invalid> {
    let Some(name) = named("model") else {
        return Ok(());
    };
    let Some(model) = models.iter().find(|model| model.name == name) else {
        let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
        let must = format!("a model listed in card.yaml or a built-in: {}", one_of(&names));
        let suggested = near_miss(&name, names);
        return Err(Invalid::new(file, "model", must, format!("{name:?}")).suggest(suggested));
    };
    if let Some(kind) = family.model_kind()
        && kind != model.kind
    {
        let must = format!("a model of kind {kind}");
        return Err(Invalid::new(
            file,
            "model",
            must,
            format!("{name} of kind {}", model.kind),
        ));
    }
    let cards = named("tensor_parallel").and_then(|cards| cards.parse().ok());
    match cards {
        Some(cards) if !model.kv_heads.is_multiple_of(cards) => {
            let heads = model.kv_heads;
            let must = format!("a divisor of the {heads} heads of {name} that keys and values have");
            Err(Invalid::new(file, "tensor_parallel", must, cards.to_string()))
        }
        _ => Ok(()),
    }
}

/// Rows that share all names but their layers, which are those of a `column`, share these too. With the line of each.
fn check_layers(file: &str, column: usize, rows: &mut dyn Iterator<Item = (Vec<String>, u64)>) -> Result<(), Invalid> {
    let mut first: BTreeMap<Vec<String>, (String, u64)> = BTreeMap::new();
    for (mut names, line) in rows {
        let layers = names.remove(column);
        let (known, of_line) = first.entry(names).or_insert_with(|| (layers.clone(), line));
        if *known != layers {
            let must = format!("{known}, as line {of_line} has it of the same model");
            return Err(Invalid::new(file, "layers", must, layers).in_line(line));
        }
    }
    Ok(())
}

fn check_slice(file: &str, role: Role, slice: &Slice, lines: &[u64]) -> Result<(), Invalid> {
    let described = |point: &Point| format!("{} {}", slice.label, slice.describe(&point.at)).trim_end().to_string();
    let line = |point: &Point| lines[point.row];
    if let Some(point) = slice.points.iter().find(|point| !slice.family.possible(&point.at)) {
        let must = format!("at most {} ({})", slice.axes[1], point.at[1]);
        return Err(Invalid::new(file, slice.axes[0], must, point.at[0].to_string()).in_line(line(point)));
    }
    if let Some((first, again)) = duplicate(slice) {
        let got = format!("{}, which line {} has", described(again), line(first));
        return Err(Invalid::new(file, "line", "a point measured once", got).in_line(line(again)));
    }
    let is_from_nothing = |point: &&Point| point.stats.count == 0 && (role == Role::HeldOut || !goes_on(slice, point));
    if let Some(point) = slice.points.iter().find(is_from_nothing) {
        let must = "at least 1, or 0 of a table's point with two measured ones before it along its first axis";
        return Err(Invalid::new(file, "count", must, "0").in_line(line(point)));
    }
    if role == Role::HeldOut {
        // They lie anywhere, and price nothing.
        return Ok(());
    }
    if let Some(point) = outside_the_triangle(slice) {
        let (lesser, greater) = (slice.axes[0], slice.axes[1]);
        let must = format!(
            "such that the smallest {lesser} and {greater} are equal, and the largest {greater} no less than any \
             {lesser}"
        );
        return Err(Invalid::new(file, slice.called(), must, slice.describe(&point.at)).in_line(line(point)));
    }
    if let Some(missing) = slice.missing() {
        let must = format!("every combination of {}", slice.axes.join(" × "));
        let got = format!(
            "no row for {} beside this one ({} missing in all)",
            slice.describe(&missing.first),
            missing.how_many()
        );
        return Err(Invalid::new(file, slice.called(), must, got).in_line(line(beside(slice, &missing.first))));
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

/// Whether there is a line from which a table can go on to a point: two measured ones before it along the first axis.
fn goes_on(slice: &Slice, point: &Point) -> bool {
    let [first, others @ ..] = point.at.as_slice() else {
        return false;
    };
    let before = slice.points.iter().filter(|other| other.at[1..] == *others && other.at[0] < *first);
    before.filter(|other| other.stats.count > 0).count() >= 2
}

/// The first row with that value of a missing point which the fewest rows have: where a value was mistyped, the one
/// that has it.
fn beside<'a>(slice: &'a Slice, missing: &[u64]) -> &'a Point {
    let alike = |axis: usize| {
        let value = missing[axis];
        slice.points.iter().filter(move |point| point.at[axis] == value)
    };
    let rarest = (0..missing.len()).min_by_key(|&axis| alike(axis).count());
    let rows = rarest.map(alike).expect("a point that is missing has coordinates");
    rows.min_by_key(|point| point.row)
        .expect("each is some row's, or the grid would not ask for it")
}

/// Where one dimension is at most another, a point that the grid's corners beyond the diagonal cannot be completed
/// from.
fn outside_the_triangle(slice: &Slice) -> Option<&Point> {
    if !slice.family.is_triangular() {
        return None;
    }
    let knots = slice.knots();
    let (lesser, greater) = (&knots[0], &knots[1]);
    let too_small = slice.points.iter().find(|point| point.at[1] < lesser[0]);
    let too_large = || slice.points.iter().find(|point| Some(&point.at[0]) > greater.last());
    too_small.or_else(too_large)
}

fn duplicate(slice: &Slice) -> Option<(&Point, &Point)> {
    let mut sorted: Vec<&Point> = slice.points.iter().collect();
    sorted.sort_by(|a, b| a.at.cmp(&b.at).then(a.row.cmp(&b.row)));
    sorted.windows(2).find(|pair| pair[0].at == pair[1].at).map(|pair| (pair[0], pair[1]))
}

/// A point and one that is larger along a single axis but, with both spreads and the tolerance granted, costs less.
pub(crate) fn dip(slice: &Slice) -> Option<(&Point, &Point)> {
    let dips = |smaller: &Point, larger: &Point| larger.stats.p95_us < smaller.stats.p05_us * (1.0 - TOLERATED_DIP);
    (0..slice.axes.len()).filter(|axis| slice.family.rises(*axis)).find_map(|axis| {
        slice.lines(axis).into_iter().find_map(|line| {
            // The costliest so far, so that each line is walked once.
            let mut costliest: &Point = line[0];
            for point in &line[1..] {
                if dips(costliest, point) {
                    let smaller = line.iter().find(|smaller| dips(smaller, point));
                    return smaller.map(|smaller| (*smaller, *point));
                }
                if point.stats.p05_us > costliest.stats.p05_us {
                    costliest = point;
                }
            }
            None
        })
    })
}
