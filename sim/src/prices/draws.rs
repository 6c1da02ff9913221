//! Where in their measured spread durations lie.

use tenantry_profiles::{Cost, Drawn, Place, Rhythm};
use tenantry_traces::draw::{Draws, Stream};
use tenantry_traces::{Duration, Time};

use super::Prices;

/// Keeps the draws of blocks of steps apart from those of lanes' ops.
const BLOCK: u64 = 1 << 62;

/// What the draws of a lane's `count`-th op or block are about. Counts are below 2^40, as events are, and lanes below
/// 2^22.
fn about(lane: u32, count: u64) -> u64 {
    let lane = u64::from(lane);
    (lane & 0x3fff) << 48 | lane >> 14 << 40 | count
}

/// Keeps the draws of alarms apart from those of lanes, whose keys begin with the lane.
const ALARM: u64 = 1 << 63;

/// The draws of one op.
#[derive(Debug)]
pub struct OpSpread(Option<Stream>);

/// A place in the measured distribution, for the parts of one op.
#[derive(Clone, Copy)]
pub(crate) struct Quantile(Option<Place>);

impl Quantile {
    pub fn of(self, cost: Cost) -> u64 {
        self.0.map_or(cost.median_ns, |place| cost.at_quantile(place.share()))
    }

    pub fn of_drawn(self, cost: &Drawn) -> u64 {
        self.0.map_or(cost.median_ns(), |place| cost.at(place))
    }
}

impl OpSpread {
    pub(crate) fn draw(&mut self) -> Quantile {
        Quantile(self.unit().map(Place::new))
    }

    fn unit(&mut self) -> Option<f64> {
        self.0.as_mut().map(Stream::unit)
    }

    pub(super) fn of(&mut self, cost: Cost) -> u64 {
        self.unit().map_or(cost.median_ns, |u| cost.at_quantile(u))
    }

    pub(super) fn of_drawn(&mut self, cost: &Drawn) -> u64 {
        self.unit().map_or(cost.median_ns(), |u| cost.at_quantile(u))
    }
}

impl Prices {
    /// The draws for the `count`-th op of a lane, so that one lane's ops never change another's.
    pub fn spread(&self, lane: u32, count: u64) -> OpSpread {
        OpSpread(self.draws.map(|draws| draws.about(about(lane, count))))
    }

    /// How far a block of a lane's steps is from the median, in parts of a million; nothing where none is.
    #[inline]
    pub(crate) fn block_ppm(&mut self, lane: u32, block: u64, typical: &Drawn) -> Option<u64> {
        let place = self.block_place(lane, block)?;
        Some((typical.at(place) * 1_000_000 / typical.median_ns().max(1)).max(1))
    }

    /// Drawn once for all runs that have steps of the block.
    #[inline]
    pub(super) fn block_place(&mut self, lane: u32, block: u64) -> Option<Place> {
        let draws = self.draws?;
        let of_lane = lane as usize;
        if of_lane >= self.blocks.len() {
            self.blocks.resize(of_lane + 1, None);
        }
        match self.blocks[of_lane] {
            Some((drawn, place)) if drawn == block => Some(place),
            _ => Some(self.draw_block(draws, lane, block)),
        }
    }

    #[inline(never)]
    fn draw_block(&mut self, draws: Draws, lane: u32, block: u64) -> Place {
        let place = Place::new(draws.about(BLOCK | about(lane, block)).unit());
        self.blocks[lane as usize] = Some((block, place));
        place
    }

    /// From handing an op to a sleeping lane until it starts, in nanoseconds.
    #[inline]
    pub fn wake_ns(&self, rhythm: Rhythm, spread: &mut OpSpread) -> u64 {
        spread.of_drawn(self.wake.at(rhythm))
    }

    /// From the end of an op until the server or another lane hears of it, in nanoseconds.
    #[inline]
    pub fn tell_ns(&self, rhythm: Rhythm, spread: &mut OpSpread) -> u64 {
        spread.of_drawn(self.tell.at(rhythm))
    }

    /// From an instant that the loop sleeps until to its noticing that it has come, in nanoseconds; it has slept for so
    /// long. The same instant always gives the same answer.
    pub fn alarm_ns(&self, until: Time, slept: Duration) -> u64 {
        let rhythm = Rhythm {
            pause_ns: slept.0,
            work_ns: 0,
            others_busy: false,
        };
        OpSpread(self.draws.map(|draws| draws.about(ALARM ^ until.0))).of_drawn(self.alarm.at(rhythm))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A lane's ops and blocks, and alarms, are about things of their own, however many lanes there are.
    #[test]
    fn nothing_else_is_about_the_same() {
        let lanes = [0, 1, 1 << 13, 1 << 14, (1 << 14) + 1, 1 << 15, 1 << 16, (1 << 22) - 1];
        let counts = [0, 1, 1 << 39, (1 << 40) - 1];
        let of_lanes = || lanes.iter().flat_map(|lane| counts.map(|count| about(*lane, count)));
        let all: BTreeSet<u64> = of_lanes().chain(of_lanes().map(|key| BLOCK | key)).collect();
        assert_eq!(all.len(), 2 * lanes.len() * counts.len());
        assert!(
            all.iter().all(|key| key & ALARM == 0),
            "instants are below 2^62 ns, 146 years"
        );
    }
}
