//! Measured tables of a device whose kernels now and then take less time for more work, as a card accepts them.

use crate::check::dip;
use crate::family::Family;
use crate::rows::{Row, sort};
use crate::slice::{Point, Slice, slices};
use crate::summary::Moved;

/// A point that moves by more than this share of itself is an outlier: those of the cards that were measured move by 57
/// % at most.
const OUTLIER: f64 = 2.0;

/// A table of which points were moved, so that more work never costs less.
#[derive(Clone, Debug, PartialEq)]
pub struct Mended {
    /// The op family.
    pub family: Family,
    /// Which of the family's tables; empty where there is but one.
    pub table: String,
    /// How many points, by how much at most, and where that is:
    /// `37 of 63 points were moved, by up to 35 % (batch=16 tokens=128), …`.
    pub how_far: String,
    /// The same in numbers.
    pub moved: Moved,
}

/// Lets the tables among `rows` rise in which an op costs less than a smaller one, by more than is tolerated: all
/// points of such a table move half-way between the largest median before and the smallest after, with their spread.
/// Says of each how far, and which point moves the most.
pub(crate) fn mend<R: Row>(rows: &mut [R], mended: &mut Vec<Mended>) {
    sort(rows);
    for slice in slices(rows).iter().filter(|slice| dip(slice).is_some()) {
        mended.push(rising(slice, &mut |row, ratio| {
            let stats = rows[row].stats_mut();
            *stats = stats.at_pace(ratio);
        }));
    }
}

/// Moves the points of such a table: `by` hears of the row of each, and by which ratio.
fn rising(slice: &Slice, by: &mut dyn FnMut(usize, f64)) -> Mended {
    let no_later = |a: &Point, b: &Point| {
        let along = |(axis, (a, b)): (usize, (&u64, &u64))| match slice.family.rises(axis) {
            true => a <= b,
            false => a == b,
        };
        a.at.iter().zip(&b.at).enumerate().all(along)
    };
    let (mut moved, mut most, mut farthest) = (0, 0.0_f64, &slice.points[0]);
    for point in &slice.points {
        let medians = |of: &dyn Fn(&Point) -> bool| -> Vec<f64> {
            let points = slice.points.iter().filter(|other| of(other));
            points.map(|other| other.stats.median_us).collect()
        };
        let largest = medians(&|other| no_later(other, point)).into_iter().fold(0.0, f64::max);
        let smallest = medians(&|other| no_later(point, other)).into_iter().fold(f64::INFINITY, f64::min);
        let ratio = (largest + smallest) / 2.0 / point.stats.median_us;
        if ratio != 1.0 {
            by(point.row, ratio);
            moved += 1;
            if (ratio - 1.0).abs() > most {
                (most, farthest) = ((ratio - 1.0).abs(), point);
            }
        }
    }
    let outlier = match most > OUTLIER {
        true => ", which is no noise: look at it, and measure it again",
        false => "",
    };
    Mended {
        family: slice.family,
        table: slice.label.clone(),
        how_far: format!(
            "{moved} of {} points were moved, by up to {:.0} % ({}), so that more work never costs less{outlier}",
            slice.points.len(),
            100.0 * most,
            slice.describe(&farthest.at),
        ),
        moved: Moved {
            points: moved,
            farthest: most,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::synthetic_card;

    #[test]
    fn what_falls_is_made_to_rise_and_nothing_else_is_touched() {
        let mut card = synthetic_card();
        // 20 + 0.1 × 16 × 128 = 224.8 µs, and 10 times as fast as that.
        let slow = card
            .tables
            .encoder_layer
            .iter()
            .position(|row| row.model == "tiny" && row.batch == 16 && row.tokens == 128)
            .unwrap();
        let stats = &mut card.tables.encoder_layer[slow].stats;
        *stats = stats.at_pace(0.1);
        assert!(card.tables.dips());
        let (mended, said) = card.tables.clone().rising();
        assert!(!mended.dips());
        let [said] = &said[..] else { panic!("{said:?}") };
        assert_eq!(
            (said.family, &*said.table),
            (Family::EncoderLayer, "model=tiny dtype=f32")
        );
        let outlier = "by up to 222 % (batch=16 tokens=128), so that more work never costs less, which is no noise: \
                       look at it, and measure it again";
        assert!(said.how_far.ends_with(outlier), "{said:?}");
        assert_eq!(mended.adapter.len(), card.tables.adapter.len());
        let median = |tables: &crate::Tables, batch, tokens| {
            let row = tables
                .encoder_layer
                .iter()
                .find(|row| row.model == "tiny" && (row.batch, row.tokens) == (batch, tokens))
                .unwrap();
            row.stats.median_us
        };
        // Half-way up from 22.48 to the largest that is no larger, 8 × 128 or 16 × 64: 122.4.
        assert!((median(&mended, 16, 128) - (22.48 + 122.4) / 2.0).abs() < 1e-9);
        assert!((median(&mended, 8, 128) - (22.48 + 122.4) / 2.0).abs() < 1e-9);
        // What comes after all of them stays.
        assert_eq!(median(&mended, 32, 128), median(&card.tables, 32, 128));
        card.tables = mended;
        card.validate().unwrap();
        let (again, nothing) = card.tables.clone().rising();
        assert_eq!(
            (again.encoder_layer.len(), nothing.len()),
            (card.tables.encoder_layer.len(), 0)
        );
    }
}
