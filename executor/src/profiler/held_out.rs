//! Points that are measured to check a table by, and are no part of it.

use tenantry_traces::draw::{Draws, Purpose, Stream};

use super::Suite;

/// So many of each table with more than one dimension, and of one with a single dimension: enough that the 95th
/// percentile is not the worst.
const OF_MANY_DIMENSIONS: usize = 40;
const OF_ONE_DIMENSION: usize = 16;
/// Draws for each point until there is none to be found.
const TRIES: usize = 50;

/// Where a table is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot<const N: usize> {
    pub at: [u32; N],
    pub held_out: bool,
}

/// Which points are held out: some between those of the grid in a full suite, none in a quick one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldOut {
    suite: Suite,
    seed: u64,
}

impl HoldOut {
    pub fn new(suite: Suite, seed: u64) -> HoldOut {
        HoldOut { suite, seed }
    }

    /// A grid's points, and those held out: drawn from the ranges of its dimensions, each doubling as likely as the
    /// next, as requests' lengths and batches are. `nearest` is the nearest point to one that can be measured, if there
    /// is any. Tables of one seed and range have the same points.
    pub fn spots<const N: usize>(
        self,
        grid: Vec<[u32; N]>,
        nearest: impl Fn([u32; N]) -> Option<[u32; N]>,
    ) -> Vec<Spot<N>> {
        let wanted = match (self.suite, N) {
            (Suite::Quick, _) => 0,
            // Where nothing is measured there is nothing to check.
            (Suite::Full, _) if grid.is_empty() => 0,
            (Suite::Full, 1) => OF_ONE_DIMENSION,
            (Suite::Full, _) => OF_MANY_DIMENSIONS,
        };
        let of = |axis: usize| grid.iter().map(move |at| at[axis]);
        let ranges: [(u32, u32); N] =
            std::array::from_fn(|axis| (of(axis).min().unwrap_or(0), of(axis).max().unwrap_or(0)));
        let mut stream = Draws::new(self.seed, Purpose::Jitter).about(u64::MAX);
        let mut held_out: Vec<[u32; N]> = Vec::new();
        for _ in 0..wanted * TRIES {
            if held_out.len() == wanted {
                break;
            }
            let drawn = nearest(ranges.map(|range| between(range, &mut stream)));
            held_out.extend(drawn.filter(|at| !grid.contains(at) && !held_out.contains(at)));
        }
        let of_grid = grid.into_iter().map(|at| Spot { at, held_out: false });
        let beside = held_out.into_iter().map(|at| Spot { at, held_out: true });
        of_grid.chain(beside).collect()
    }
}

/// A number from one to another, its logarithm as likely to be anywhere between theirs.
fn between((least, most): (u32, u32), stream: &mut Stream) -> u32 {
    let least_log = f64::from(least.max(1)).ln();
    let log = least_log + stream.unit() * (f64::from(most.max(1)).ln() - least_log);
    (log.exp().round() as u32).clamp(least, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(suite: Suite, seed: u64) -> Vec<Spot<2>> {
        let grid = [1, 8, 32].into_iter().flat_map(|batch| [1, 64, 128].map(|tokens| [batch, tokens]));
        let possible = |at: [u32; 2]| Some(at).filter(|[batch, tokens]| batch <= tokens);
        HoldOut::new(suite, seed).spots(grid.filter(|[batch, tokens]| batch <= tokens).collect(), possible)
    }

    #[test]
    fn held_out_points_lie_between_the_grids() {
        let full = places(Suite::Full, 5);
        assert_eq!(full, places(Suite::Full, 5));
        assert_ne!(full, places(Suite::Full, 6));
        let (held_out, grid): (Vec<_>, Vec<_>) = full.into_iter().partition(|place| place.held_out);
        assert_eq!((grid.len(), held_out.len()), (7, 40));
        for place in &held_out {
            let [batch, tokens] = place.at;
            assert!(grid.iter().all(|of_grid| of_grid.at != place.at), "{place:?}");
            assert!(batch <= tokens.min(32) && tokens <= 128, "{place:?}");
        }
        let short = held_out.iter().filter(|place| place.at[1] < 16).count();
        assert!((8..=32).contains(&short), "every doubling is as likely: {short} of 40");
    }

    #[test]
    fn a_quick_suite_and_a_full_grid_hold_nothing_out() {
        assert!(places(Suite::Quick, 5).iter().all(|place| !place.held_out));
        let all = HoldOut::new(Suite::Full, 5).spots(vec![[1], [2], [3]], Some);
        assert_eq!(all.len(), 3);
    }

    #[test]
    fn nothing_is_held_out_of_a_table_that_is_not_measured() {
        assert_eq!(HoldOut::new(Suite::Full, 5).spots(Vec::<[u32; 2]>::new(), Some), []);
        assert_eq!(HoldOut::new(Suite::Full, 5).spots(Vec::<[u32; 3]>::new(), Some), []);
    }
}
