//! How cards that come and go were used, whoever decides on them.

use tenantry_traces::{Duration, Time};

/// Changes that are remembered, at most.
pub(super) const MOST_REMEMBERED: usize = 4096;

/// How a cascade's stages used cards that come and go; or a system of decoders, as if it were a single stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScalingUse {
    /// Card time from the decision to use a card until no stage had anything on it any more.
    pub card_time: Duration,
    /// Cards that each stage has, or is to have, from each decision that changed them on.
    pub cards: Vec<(Time, Vec<u32>)>,
    /// Changes after those that are remembered.
    pub cards_left_out: u64,
    /// Requests that were placed anew because their instance left.
    pub redispatched: u64,
    /// Times that a stage took a card.
    pub added: u64,
    /// Times that a stage gave one up.
    pub released: u64,
}

impl ScalingUse {
    /// Notes what each stage has from now on.
    pub(super) fn remember(&mut self, at: Time, cards: impl Iterator<Item = u32>) {
        match self.cards.len() < MOST_REMEMBERED {
            true => self.cards.push((at, cards.collect())),
            false => self.cards_left_out += 1,
        }
    }
}

/// Whether changes were made in the order in which they are remembered.
pub(super) fn in_order<T>(remembered: &[(Time, T)]) -> Result<(), String> {
    match remembered.windows(2).find(|pair| pair[1].0 < pair[0].0) {
        Some(pair) => Err(format!("cards changed at {}, and then at {}", pair[0].0, pair[1].0)),
        None => Ok(()),
    }
}

/// The same, with the time of cards counted as they change.
#[derive(Default)]
pub(super) struct ScalingLog {
    /// All but the card time since the last change.
    pub counts: ScalingUse,
    counted_until: Time,
}

impl ScalingLog {
    /// Counts the time of so many cards since the last change: call it before their number changes.
    pub fn count_until(&mut self, now: Time, cards: u32) {
        self.counts.card_time += self.since_counted(now, cards);
        self.counted_until = self.counted_until.max(now);
    }

    /// Counts no time before `start`.
    pub fn count_from(&mut self, start: Time) {
        self.counted_until = start;
    }

    /// What was counted, and the time of so many cards since.
    pub fn until(&self, now: Time, cards: u32) -> ScalingUse {
        let mut counts = self.counts.clone();
        counts.card_time += self.since_counted(now, cards);
        counts
    }

    fn since_counted(&self, now: Time, cards: u32) -> Duration {
        Duration(now.0.saturating_sub(self.counted_until.0) * u64::from(cards))
    }
}
