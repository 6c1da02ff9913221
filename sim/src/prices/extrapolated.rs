//! What was asked beyond what a card has measured.

use std::collections::BTreeMap;

use tenantry_profiles::{Beyond, Family};

use super::Prices;

/// Families of which a cost was asked beyond what was measured, and the farthest of each on either side: far below the
/// smallest, where costs are small, does not hide what lies less far above the largest. Keyed by family and whether it
/// lies below, so that what is above comes first.
#[derive(Debug, Default)]
pub(crate) struct Extrapolated(BTreeMap<(Family, bool), Beyond>);

impl Extrapolated {
    /// Remembers a cost, if it was beyond.
    #[inline]
    pub fn note(&mut self, beyond: Option<Beyond>, family: Family) {
        if let Some(beyond) = beyond {
            self.note_beyond(beyond, family);
        }
    }

    #[inline(never)]
    fn note_beyond(&mut self, beyond: Beyond, family: Family) {
        let farthest = self.0.entry((family, !beyond.is_above())).or_insert(beyond);
        // Mostly it lies on the way to the farthest, which is seen without a division.
        let is_on_the_way = beyond.measured == farthest.measured
            && beyond.asked.abs_diff(beyond.measured) <= farthest.asked.abs_diff(farthest.measured);
        if !is_on_the_way && beyond.factor() > farthest.factor() {
            *farthest = beyond;
        }
    }
}

impl Prices {
    /// Families of which a cost was asked beyond what was measured, and how far at most: above the largest, then below
    /// the smallest.
    pub fn extrapolated(&self) -> impl Iterator<Item = (Family, Beyond)> + '_ {
        let farthest = self.extrapolated.0.iter();
        farthest.map(|((family, _), beyond)| (*family, *beyond))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_farthest_is_kept_on_either_side() {
        let beyond = |asked, measured| Beyond {
            axis: "tokens",
            asked,
            measured,
        };
        let mut extrapolated = Extrapolated::default();
        for (asked, measured) in [(1, 16), (4096, 2048), (16_383, 2048), (8, 16), (3000, 2048)] {
            extrapolated.note(Some(beyond(asked, measured)), Family::DecoderMixed);
        }
        extrapolated.note(None, Family::DecoderDense);
        let kept: Vec<Beyond> = extrapolated.0.into_values().collect();
        assert_eq!(kept, [beyond(16_383, 2048), beyond(1, 16)]);
    }
}
