//! How two cards differ: the ratios of their medians over the points that both have. Of one machine measured twice it is the
//! drift.

use std::collections::HashMap;

use crate::card::Card;
use crate::family::Family;
use crate::slice::Slice;
use crate::stats::nearest_rank;

/// An op's medians on both cards, in microseconds.
type Medians = (f64, f64);

/// How one table, or all of a family, differs between two cards.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratios {
    /// The op family.
    pub family: Family,
    /// Which of the family's tables; none for all of them together.
    pub table: Option<String>,
    /// Points that both cards have.
    pub points: usize,
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
    fn of(family: Family, table: Option<String>, medians_us: &[Medians]) -> Ratios {
        let mut ratios: Vec<f64> = medians_us.iter().map(|(first, second)| second / first).collect();
        ratios.sort_by(f64::total_cmp);
        let mut drift: Vec<f64> = ratios.iter().map(|ratio| (ratio - 1.0).abs()).collect();
        drift.sort_by(f64::total_cmp);
        Ratios {
            family,
            table,
            points: ratios.len(),
            p05: nearest_rank(&ratios, 5),
            median: nearest_rank(&ratios, 50),
            p95: nearest_rank(&ratios, 95),
            drift: nearest_rank(&drift, 50),
            first_us: medians_us.iter().map(|(first, _)| first).sum(),
            second_us: medians_us.iter().map(|(_, second)| second).sum(),
        }
    }
}

/// What `second` takes over what `first` does, for each family that has points in both and then for each of its tables.
pub fn compare(first: &Card, second: &Card) -> Vec<Ratios> {
    let seconds = second.tables.slices();
    let mut found: Vec<(Family, String, Vec<Medians>)> = Vec::new();
    for slice in first.tables.slices() {
        let same = |other: &&Slice| other.family == slice.family && other.label == slice.label;
        let Some(other) = seconds.iter().find(same) else {
            continue;
        };
        let medians: HashMap<&[u64], f64> = other
            .points
            .iter()
            .map(|point| (point.at.as_slice(), point.stats.median_us))
            .collect();
        let both = |point: &crate::slice::Point| Some((point.stats.median_us, *medians.get(point.at.as_slice())?));
        let both: Vec<Medians> = slice.points.iter().filter_map(both).collect();
        if !both.is_empty() {
            found.push((slice.family, slice.label, both));
        }
    }
    let mut all = Vec::new();
    for tables in found.chunk_by(|a, b| a.0 == b.0) {
        let family = tables[0].0;
        let together: Vec<Medians> = tables.iter().flat_map(|(_, _, both)| both.iter().copied()).collect();
        all.push(Ratios::of(family, None, &together));
        let each = tables
            .iter()
            .map(|(_, table, both)| Ratios::of(family, Some(table.clone()), both));
        all.extend(each);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::synthetic_card;

    #[test]
    fn a_card_is_itself() {
        let card = synthetic_card();
        let same = compare(&card, &card);
        assert!(
            same.iter()
                .any(|ratios| ratios.family == Family::EncoderLayer && ratios.table.is_none())
        );
        assert!(
            same.iter()
                .all(|ratios| (ratios.p05, ratios.p95, ratios.drift) == (1.0, 1.0, 0.0))
        );
    }

    #[test]
    fn only_common_points_count_and_the_way_does_not() {
        let first = synthetic_card();
        let mut second = first.clone();
        second.tables.copy.clear();
        second
            .tables
            .encoder_layer
            .retain(|row| row.model == "tiny" && row.batch > 1);
        for (index, row) in second.tables.encoder_layer.iter_mut().enumerate() {
            row.stats.median_us *= if index % 2 == 0 { 1.1 } else { 0.9 };
        }
        let found = compare(&first, &second);
        assert!(found.iter().all(|ratios| ratios.family != Family::Copy));
        let layers: Vec<_> = found
            .iter()
            .filter(|ratios| ratios.family == Family::EncoderLayer)
            .collect();
        assert_eq!(layers.len(), 2, "all together, and the one table that both have");
        assert_eq!(layers[1].table.as_deref(), Some("model=tiny dtype=f32"));
        assert_eq!(layers[0].points, second.tables.encoder_layer.len());
        assert!((layers[0].drift - 0.1).abs() < 1e-9);
        assert!((layers[0].p05 - 0.9).abs() < 1e-9 && (layers[0].p95 - 1.1).abs() < 1e-9);
        let sum = |card: &Card| -> f64 {
            let both = card
                .tables
                .encoder_layer
                .iter()
                .filter(|row| row.model == "tiny" && row.batch > 1);
            both.map(|row| row.stats.median_us).sum()
        };
        assert!((layers[0].first_us - sum(&first)).abs() < 1e-6 && (layers[0].second_us - sum(&second)).abs() < 1e-6);
    }
}
