//! How well the medians of a card's tables are known.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::card::Card;
use crate::error::Invalid;
use crate::family::Family;
use crate::slice::Slice;
use crate::stats::nearest_rank;

/// How well one table's medians are known: half the width of their 95 % confidence intervals, as a share of the median.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Certainty {
    /// The op family.
    pub family: Family,
    /// Which of the family's tables, as `tenantry profile show` calls it.
    pub table: String,
    /// Measured points.
    pub points: usize,
    /// Points that were visited too rarely to tell.
    #[serde(default, skip_serializing_if = "is_none")]
    pub untold: usize,
    /// Of the other points, that of the one in the middle; absent where none tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_width: Option<f64>,
    /// The widest of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub widest: Option<f64>,
}

fn is_none(count: &usize) -> bool {
    *count == 0
}

impl Certainty {
    /// Of a table whose points have these half widths, infinite where one cannot be told.
    pub fn of(family: Family, table: String, half_widths: &[f64]) -> Certainty {
        let mut told: Vec<f64> = half_widths.iter().copied().filter(|width| width.is_finite()).collect();
        told.sort_by(f64::total_cmp);
        // As many digits as are worth it.
        let rounded = |width: f64| (1e4 * width).round() / 1e4;
        Certainty {
            family,
            table,
            points: half_widths.len(),
            untold: half_widths.len() - told.len(),
            half_width: (!told.is_empty()).then(|| rounded(nearest_rank(&told, 50))),
            widest: told.last().copied().map(rounded),
        }
    }
}

impl Card {
    /// How well a table's medians are known, where that was kept.
    pub fn certainty_of(&self, family: Family, table: &str) -> Option<&Certainty> {
        self.certainty.iter().find(|certainty| certainty.family == family && certainty.table == table)
    }

    /// Refuses what is no half width, and what is said of no table; `file` is what errors call `card.yaml`.
    pub(crate) fn check_certainty(&self, file: &str) -> Result<(), Invalid> {
        let slices = self.tables.slices();
        for (index, certainty) in self.certainty.iter().enumerate() {
            let field = |name: &str| format!("certainty[{index}].{name}");
            let known = |slice: &&Slice| (slice.family, &slice.label) == (certainty.family, &certainty.table);
            if slices.iter().find(known).is_none() {
                let must = format!("a table of {} that the card has", certainty.family);
                return Err(Invalid::new(
                    file,
                    &field("table"),
                    must,
                    format!("{:?}", certainty.table),
                ));
            }
            let again = |other: &&Certainty| (other.family, &other.table) == (certainty.family, &certainty.table);
            if self.certainty[..index].iter().find(again).is_some() {
                let must = "a table that is said nothing of before";
                let got = format!("{:?} again", certainty.table);
                return Err(Invalid::new(file, &field("table"), must, got));
            }
            if certainty.points == 0 {
                return Err(Invalid::new(file, &field("points"), "at least 1", "0"));
            }
            if certainty.untold > certainty.points {
                let must = format!("at most the {} points", certainty.points);
                return Err(Invalid::new(file, &field("untold"), must, certainty.untold.to_string()));
            }
            for (name, width) in [("half_width", certainty.half_width), ("widest", certainty.widest)] {
                if let Some(width) = width
                    && !(width.is_finite() && width >= 0.0)
                {
                    return Err(Invalid::new(file, &field(name), "a share from 0", width.to_string()));
                }
            }
            if let (Some(half_width), Some(widest)) = (certainty.half_width, certainty.widest)
                && half_width > widest
            {
                let must = format!("at most the widest, {widest}");
                return Err(Invalid::new(file, &field("half_width"), must, half_width.to_string()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::synthetic_card;

    #[test]
    fn points_that_tell_nothing_are_counted_apart() {
        let of = |widths: &[f64]| Certainty::of(Family::Copy, "here".into(), widths);
        let some = of(&[0.5, f64::INFINITY, 0.010_04, 0.2]);
        assert_eq!((some.points, some.untold), (4, 1));
        assert_eq!((some.half_width, some.widest), (Some(0.2), Some(0.5)));
        let none = of(&[f64::INFINITY; 2]);
        assert_eq!((none.untold, none.half_width, none.widest), (2, None, None));
    }

    #[test]
    fn a_certainty_of_no_table_and_one_below_none_are_refused() {
        let mut card = synthetic_card();
        let label = card.tables.slices()[0].label.clone();
        card.certainty.push(Certainty::of(Family::EncoderLayer, label, &[0.1]));
        card.validate().unwrap();
        let refused = |change: fn(&mut Certainty)| {
            let mut broken = card.clone();
            change(&mut broken.certainty[0]);
            broken.validate().unwrap_err().to_string()
        };
        let table = refused(|certainty| certainty.table = "model=huge".into());
        assert!(
            table.contains("certainty[0].table: must be a table of encoder_layer"),
            "{table}"
        );
        let width = refused(|certainty| certainty.widest = Some(-0.1));
        assert!(
            width.contains("certainty[0].widest: must be a share from 0, got -0.1"),
            "{width}"
        );
        let turned = refused(|certainty| certainty.half_width = Some(0.2));
        assert!(
            turned.contains("certainty[0].half_width: must be at most the widest, 0.1, got 0.2"),
            "{turned}"
        );
        let untold = refused(|certainty| certainty.untold = 2);
        assert!(
            untold.contains("certainty[0].untold: must be at most the 1 points, got 2"),
            "{untold}"
        );
        let mut twice = card.clone();
        twice.certainty.push(card.certainty[0].clone());
        let twice = twice.validate().unwrap_err().to_string();
        assert!(
            twice.contains("certainty[1].table: must be a table that is said nothing of before"),
            "{twice}"
        );
    }
}
