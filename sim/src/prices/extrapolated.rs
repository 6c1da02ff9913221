//! What was asked beyond what a card has measured.

use std::collections::BTreeMap;

use tenantry_profiles::{Beyond, Family};

use super::Prices;

/// Families of which a cost was asked beyond what was measured, and the farthest of each.
#[derive(Debug, Default)]
pub(crate) struct Extrapolated(BTreeMap<Family, Beyond>);

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
        let farthest = self.0.entry(family).or_insert(beyond);
        // Mostly it lies on the way to the farthest, which is seen without a division.
        let is_on_the_way = beyond.measured == farthest.measured
            && beyond.asked.abs_diff(beyond.measured) <= farthest.asked.abs_diff(farthest.measured)
            && (beyond.asked > beyond.measured) == (farthest.asked > farthest.measured);
        if !is_on_the_way && beyond.factor() > farthest.factor() {
            *farthest = beyond;
        }
    }
}

impl Prices {
    /// Families of which a cost was asked beyond what was measured, and how far at most.
    pub fn extrapolated(&self) -> impl Iterator<Item = (Family, Beyond)> + '_ {
        self.extrapolated.0.iter().map(|(family, beyond)| (*family, *beyond))
    }
}
