//! How two cards differ: the ratios of their medians, at the points of the first that the second has or can be
//! interpolated at. Of one machine measured twice it is the drift.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

use crate::bind::are_of;
use crate::card::Card;
use crate::family::Family;
use crate::grid::Grid;
use crate::slice::{DTYPE, Point, Slice};
use crate::stats::{middle, nearest_rank};

/// An op's medians on both cards, in microseconds.
struct Medians {
    first: f64,
    second: f64,
    /// The second's lies between points that it has.
    interpolated: bool,
}

/// How one table, or all of a family, differs between two cards.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratios {
    /// The op family.
    pub family: Family,
    /// Which of the family's tables; none for all together that both have in one number format. Tables of one model in
    /// two number formats are told by both.
    pub table: Option<String>,
    /// What each card calls it.
    pub labels: Option<[String; 2]>,
    /// Points that were compared,
    pub points: usize,
    /// of which the second card has so many between its own only.
    pub interpolated: usize,
    /// 5 % of the points have no larger ratio of the second card's median to the first's.
    pub p05: f64,
    /// Half of the points.
    pub median: f64,
    /// 95 % of the points.
    pub p95: f64,
    /// The median of |ratio − 1|: how far a point lies off, whichever way.
    pub drift: f64,
    /// What all points take together on the first card, in microseconds: the larger ops are most of it.
    pub first_us: f64,
    /// The same on the second.
    pub second_us: f64,
}

impl Ratios {
    fn of<'a>(family: Family, of_table: Option<&Found>, medians_us: impl IntoIterator<Item = &'a Medians>) -> Ratios {
        let medians_us: Vec<&Medians> = medians_us.into_iter().collect();
        let mut ratios: Vec<f64> = medians_us.iter().map(|both| both.second / both.first).collect();
        ratios.sort_by(f64::total_cmp);
        let mut drift: Vec<f64> = ratios.iter().map(|ratio| (ratio - 1.0).abs()).collect();
        drift.sort_by(f64::total_cmp);
        Ratios {
            family,
            table: of_table.map(|found| found.label.clone()),
            labels: of_table.map(|found| found.labels.clone()),
            points: ratios.len(),
            interpolated: medians_us.iter().filter(|both| both.interpolated).count(),
            p05: nearest_rank(&ratios, 5),
            median: middle(&ratios),
            p95: nearest_rank(&ratios, 95),
            drift: middle(&drift),
            first_us: medians_us.iter().map(|both| both.first).sum(),
            second_us: medians_us.iter().map(|both| both.second).sum(),
        }
    }
}

/// What `second` takes over what `first` does, for each family that has points in both and then for each of its tables.
/// Tables in two number formats are no part of their family's, which would be one of formats beside devices.
pub fn compare(first: &Card, second: &Card) -> Vec<Ratios> {
    let (firsts, seconds) = (first.tables.slices(), second.tables.slices());
    let mut found: Vec<Found> = Vec::new();
    for slice in &firsts {
        let Some((other, label)) = counterpart(slice, &firsts, &seconds) else {
            continue;
        };
        if unlike(slice, first, second).is_some() {
            continue;
        }
        let medians = medians(slice, other);
        if !medians.is_empty() {
            found.push(Found {
                family: slice.family,
                label,
                labels: [slice, other].map(|slice| slice.label.clone()),
                medians,
            });
        }
    }
    let mut all = Vec::new();
    for tables in found.chunk_by(|a, b| a.family == b.family) {
        let family = tables[0].family;
        let mut alike = tables.iter().filter(|found| found.labels[0] == found.labels[1]).peekable();
        if alike.peek().is_some() {
            all.push(Ratios::of(family, None, alike.flat_map(|found| &found.medians)));
        }
        let each = tables.iter().map(|found| Ratios::of(family, Some(found), &found.medians));
        all.extend(each);
    }
    all
}

/// A table that both cards have, of models that share no more than their name: they are not compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unlike {
    /// What both call the model.
    pub model: String,
    /// How the first's differs from the second's.
    pub differences: String,
    /// The op families that have such tables.
    pub families: BTreeSet<Family>,
}

/// The tables that [`compare`] leaves out, by model.
pub fn unlike_models(first: &Card, second: &Card) -> Vec<Unlike> {
    let (firsts, seconds) = (first.tables.slices(), second.tables.slices());
    let mut all: BTreeMap<String, Unlike> = BTreeMap::new();
    for slice in firsts.iter().filter(|slice| counterpart(slice, &firsts, &seconds).is_some()) {
        let Some((model, differences)) = unlike(slice, first, second) else {
            continue;
        };
        let found = all.entry(model.clone()).or_insert_with(|| Unlike {
            model,
            differences,
            families: BTreeSet::new(),
        });
        found.families.insert(slice.family);
    }
    all.into_values().collect()
}

/// Where the table's model is another on the second card: its name, and how the two differ.
fn unlike(slice: &Slice, first: &Card, second: &Card) -> Option<(String, String)> {
    let name = slice.model()?;
    let (ours, theirs) = (first.model(name)?, second.model(name)?);
    (!are_of(slice.family, &ours, &theirs)).then(|| (name.to_owned(), ours.differences(&theirs)))
}

/// A table that both cards have.
struct Found {
    family: Family,
    /// See [`Ratios::table`].
    label: String,
    labels: [String; 2],
    medians: Vec<Medians>,
}

/// The table of the same names; else the only one that differs in its numbers' format alone, unless that is itself
/// another's of the same names. And what both are called.
fn counterpart<'a>(slice: &Slice, firsts: &[Slice], others: &'a [Slice]) -> Option<(&'a Slice, String)> {
    let of_family = || others.iter().filter(|other| other.family == slice.family);
    if let Some(same) = of_family().find(|other| other.label == slice.label) {
        return Some((same, slice.label.clone()));
    }
    let names = without_dtype(&slice.label);
    let mut alike = of_family().filter(|other| without_dtype(&other.label) == names);
    let only = alike.next().filter(|_| alike.next().is_none())?;
    let is_partner = |first: &Slice| (first.family, &first.label) == (only.family, &only.label);
    if firsts.iter().any(is_partner) {
        return None;
    }
    let label = format!("{} dtype={}/{}", names.join(" "), slice.dtype()?, only.dtype()?);
    Some((only, label))
}

fn without_dtype(label: &str) -> Vec<&str> {
    label.split(' ').filter(|cell| !cell.starts_with(DTYPE)).collect()
}

/// Both tables' medians at the first's points, as far as the second has measured that far.
fn medians(first: &Slice, second: &Slice) -> Vec<Medians> {
    match first.axes.len() {
        1 => medians_on::<1>(first, second),
        2 => medians_on::<2>(first, second),
        3 => medians_on::<3>(first, second),
        4 => medians_on::<4>(first, second),
        _ => medians_on::<0>(first, second),
    }
}

fn medians_on<const N: usize>(first: &Slice, second: &Slice) -> Vec<Medians> {
    let measured: HashMap<&[u64], f64> =
        second.points.iter().map(|point| (point.at.as_slice(), point.stats.median_us)).collect();
    let (knots, grid) = (second.knots(), Grid::<N>::new(second).ok());
    let between = |at: &[u64]| {
        let inside = |(axis, knots): (usize, &Vec<u64>)| {
            let value = at[axis];
            match second.family.interpolates(axis) {
                true => (knots[0]..=knots[knots.len() - 1]).contains(&value),
                false => knots.contains(&value),
            }
        };
        let inside = knots.iter().enumerate().all(inside);
        let at = at.try_into().ok().filter(|_| inside)?;
        Some(grid.as_ref()?.median_ns(at) as f64 / 1e3)
    };
    let both = |point: &Point| {
        let same = measured.get(point.at.as_slice()).copied();
        Some(Medians {
            first: point.stats.median_us,
            second: same.or_else(|| between(&point.at))?,
            interpolated: same.is_none(),
        })
    };
    first.points.iter().filter_map(both).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::DType;
    use crate::rows::EncoderLayerRow;
    use crate::testing::synthetic_card;

    #[test]
    fn a_card_is_itself() {
        let card = synthetic_card();
        let same = compare(&card, &card);
        assert!(same.iter().any(|ratios| ratios.family == Family::EncoderLayer && ratios.table.is_none()));
        assert!(same.iter().all(|ratios| (ratios.p05, ratios.p95, ratios.drift) == (1.0, 1.0, 0.0)));
    }

    fn layers_of_tiny(card: &Card) -> Vec<EncoderLayerRow> {
        let rows = card.tables.encoder_layer.iter();
        rows.filter(|row| row.model == "tiny").cloned().collect()
    }

    #[test]
    fn what_the_second_never_reached_does_not_count_and_the_way_does_not() {
        let first = synthetic_card();
        let mut second = first.clone();
        second.tables.copy.clear();
        second.tables.encoder_layer.retain(|row| row.model == "tiny" && row.batch > 1);
        for (index, row) in second.tables.encoder_layer.iter_mut().enumerate() {
            row.stats.median_us *= if index % 2 == 0 { 1.1 } else { 0.9 };
        }
        let found = compare(&first, &second);
        assert!(found.iter().all(|ratios| ratios.family != Family::Copy));
        let layers: Vec<_> = found.iter().filter(|ratios| ratios.family == Family::EncoderLayer).collect();
        assert_eq!(layers.len(), 2, "all together, and the one table that both have");
        assert_eq!(layers[1].table.as_deref(), Some("model=tiny dtype=f32"));
        assert_eq!(layers[0].points, second.tables.encoder_layer.len());
        assert_eq!(layers[0].interpolated, 0);
        assert!((layers[0].drift - 0.1).abs() < 1e-9);
        assert!((layers[0].p05 - 0.9).abs() < 1e-9 && (layers[0].p95 - 1.1).abs() < 1e-9);
        let sum = |card: &Card| -> f64 {
            let both = layers_of_tiny(card).into_iter().filter(|row| row.batch > 1);
            both.map(|row| row.stats.median_us).sum()
        };
        assert!((layers[0].first_us - sum(&first)).abs() < 1e-6 && (layers[0].second_us - sum(&second)).abs() < 1e-6);
    }

    #[test]
    fn between_the_seconds_points_its_prices_count() {
        let first = synthetic_card();
        let mut second = first.clone();
        let batches: BTreeSet<u32> = layers_of_tiny(&first).iter().map(|row| row.batch).collect();
        let (least, most) = (batches.first().copied(), batches.last().copied());
        second.tables.encoder_layer.retain(|row| Some(row.batch) == least || Some(row.batch) == most);
        // Whatever lies between costs what the line between its neighbours says.
        for row in &mut second.tables.encoder_layer {
            row.stats.median_us = f64::from(row.batch);
        }
        let found = compare(&first, &second);
        let table = |ratios: &&Ratios| ratios.table.as_deref() == Some("model=tiny dtype=f32");
        let layers = found.iter().find(table).unwrap();
        let points = layers_of_tiny(&first);
        let between = points.iter().filter(|row| Some(row.batch) != least && Some(row.batch) != most);
        assert_eq!((layers.points, layers.interpolated), (points.len(), between.count()));
        let batches: u32 = points.iter().map(|row| row.batch).sum();
        assert!((layers.second_us / f64::from(batches) - 1.0).abs() < 1e-6);
    }

    /// Of two copies, one as fast and one twice as slow, neither is in the middle.
    #[test]
    fn the_middle_of_an_even_number_lies_between_two() {
        let mut first = synthetic_card();
        first.tables.copy.truncate(2);
        let mut second = first.clone();
        second.tables.copy[1].stats.median_us *= 2.0;
        let found = compare(&first, &second);
        let copies = found.iter().find(|ratios| ratios.family == Family::Copy).unwrap();
        assert_eq!((copies.points, copies.median, copies.drift), (2, 1.5, 0.5));
    }

    #[test]
    fn a_model_in_another_format_is_the_same_model() {
        let first = synthetic_card();
        let mut second = first.clone();
        for row in &mut second.tables.encoder_layer {
            row.dtype = DType::Bf16;
        }
        let found = compare(&first, &second);
        let names: Vec<_> = found.iter().filter_map(|ratios| ratios.table.as_deref()).collect();
        assert!(names.contains(&"model=tiny dtype=f32/bf16"), "{names:?}");
        let whole = |ratios: &&Ratios| ratios.family == Family::EncoderLayer && ratios.table.is_none();
        assert!(found.iter().find(whole).is_none(), "one of formats is none of devices");
        // Of a table that has its like, it is no other's.
        let mut both = first.clone();
        both.tables.encoder_layer.extend(second.tables.encoder_layer.clone());
        let of_both = compare(&both, &second);
        assert!(of_both.iter().filter_map(|ratios| ratios.table.as_deref()).all(|table| !table.contains('/')));
        let whole = of_both.iter().find(whole).unwrap();
        assert_eq!((whole.points, whole.drift), (second.tables.encoder_layer.len(), 0.0));
        // Where it has several other formats, none of them is meant.
        let mut rows = second.tables.encoder_layer.clone();
        for row in &mut rows {
            row.dtype = DType::F16;
        }
        second.tables.encoder_layer.extend(rows);
        let found = compare(&first, &second);
        assert!(found.iter().all(|ratios| ratios.family != Family::EncoderLayer));
    }
}
