//! What was priced beyond what a card has measured.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tenantry_profiles::{Beyond, Family};

/// An op family priced beyond what was measured on one side, and how far at most.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Extrapolated {
    family: Family,
    /// Whether that is below the smallest that was measured, not above the largest.
    #[serde(default)]
    below: bool,
    /// How many times what was measured, or one over that.
    factor: f64,
    beyond: String,
}

impl From<(Family, Beyond)> for Extrapolated {
    fn from((family, beyond): (Family, Beyond)) -> Extrapolated {
        Extrapolated {
            family,
            below: !beyond.is_above(),
            factor: beyond.factor(),
            beyond: beyond.to_string(),
        }
    }
}

/// A sentence on what was extrapolated, if anything: of each family what lies farthest above what was measured, then
/// what lies farthest below.
pub fn extrapolation_caveat<'a>(extrapolated: impl IntoIterator<Item = &'a Extrapolated>) -> Option<String> {
    let mut farthest: BTreeMap<(Family, bool), &Extrapolated> = BTreeMap::new();
    for one in extrapolated {
        let known = farthest.entry((one.family, one.below)).or_insert(one);
        // Runs side by side are in no order.
        if (one.factor, &one.beyond) > (known.factor, &known.beyond) {
            *known = one;
        }
    }
    let mut by_family: BTreeMap<Family, Vec<&str>> = BTreeMap::new();
    for ((family, _), one) in farthest {
        by_family.entry(family).or_default().push(&one.beyond);
    }
    let list: Vec<String> =
        by_family.iter().map(|(family, sides)| format!("{family} ({})", sides.join(", and "))).collect();
    let list = list.join("; ");
    (!list.is_empty())
        .then(|| format!("Costs beyond the measured range were extrapolated, for each family the farthest: {list}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What lies above comes first, and what lies below does not hide it.
    #[test]
    fn both_sides_of_what_was_measured_are_told_of() {
        let beyond = |asked, measured| Beyond {
            axis: "tokens",
            asked,
            measured,
        };
        let of = |family, asked, measured| Extrapolated::from((family, beyond(asked, measured)));
        let all = [
            of(Family::DecoderMixed, 1, 16),
            of(Family::DecoderMixed, 16_383, 2048),
            of(Family::DecoderMixed, 4096, 2048),
            of(Family::EncoderLayer, 64, 128),
        ];
        assert_eq!(
            extrapolation_caveat(&all).unwrap(),
            "Costs beyond the measured range were extrapolated, for each family the farthest: encoder_layer (tokens 64, \
             measured from 128); decoder_mixed (tokens 16383, measured up to 2048, and tokens 1, measured from 16)."
        );
        assert_eq!(extrapolation_caveat(&[]), None);
    }
}
