//! Points that cost far more than those beside them say. Where no larger point contradicts one, as at a table's
//! corners, nothing falls, and a card that has it is sound.

use crate::slice::{Point, Slice};

/// A point of which its neighbour would say that it costs far less.
#[derive(Clone, Debug, PartialEq)]
pub struct Leap {
    /// Where, a value for each of the table's axes.
    pub at: Vec<u64>,
    /// Where the neighbour is.
    pub beside: Vec<u64>,
    /// How many times as much it costs as the neighbour does in proportion to the work.
    pub times: f64,
}

/// How many times: on shipped cards it is 2.5 at most, of an allocation program.
const LEAP: f64 = 20.0;

/// The largest of a table's, if any.
pub(crate) fn leap(slice: &Slice) -> Option<Leap> {
    let mut leaps = Vec::new();
    for axis in (0..slice.axes.len()).filter(|axis| slice.family.rises(*axis)) {
        for line in slice.lines(axis) {
            leaps.extend(line.windows(2).map(|pair| between(slice, axis, pair[0], pair[1])));
        }
    }
    let largest = leaps.into_iter().max_by(|one, other| one.times.total_cmp(&other.times));
    largest.filter(|leap| leap.times > LEAP)
}

fn between(slice: &Slice, axis: usize, before: &Point, after: &Point) -> Leap {
    let growth = after.at[axis] as f64 / before.at[axis].max(1) as f64;
    Leap {
        at: after.at.clone(),
        beside: before.at.clone(),
        times: slice.whole_us(after) / slice.whole_us(before) / growth,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::Card;
    use crate::summary::describe;
    use crate::testing::synthetic_card;

    fn leaps(card: &Card) -> Vec<Leap> {
        describe(card).into_iter().filter_map(|table| table.leap).collect()
    }

    /// Microseconds for milliseconds, at either end of a table.
    #[test]
    fn a_corner_that_is_wrong_by_a_thousand_is_told_and_no_point_of_a_shipped_card() {
        for name in Card::embedded_names() {
            let card = Card::embedded(name).unwrap().unwrap();
            assert_eq!(leaps(&card), [], "{name}");
        }
        for (batch, tokens, ratio) in [(32, 128, 1000.0), (1, 16, 0.001)] {
            let mut card = synthetic_card();
            assert_eq!(leaps(&card), []);
            let is_corner =
                |row: &&mut crate::EncoderLayerRow| row.model == "tiny" && (row.batch, row.tokens) == (batch, tokens);
            let corner = card.tables.encoder_layer.iter_mut().find(is_corner).unwrap();
            corner.stats = corner.stats.at_pace(ratio);
            card.validate().unwrap();
            let [leap] = &leaps(&card)[..] else { panic!() };
            assert!(
                [&leap.at, &leap.beside].contains(&&vec![batch.into(), tokens.into()]),
                "{leap:?}"
            );
            assert!(leap.times > 100.0, "{leap:?}");
        }
    }
}
