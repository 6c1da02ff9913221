//! The time between requests, and where a recording has none.

use tenantry_traces::Time;

use super::{GapFigures, HoleFigures};
use crate::summary::rounded;

/// Gaps of requests in order of time, taken one by one: their spread by Welford's method, which loses nothing to large
/// times.
#[derive(Clone, Debug, Default)]
pub(super) struct Gaps {
    count: f64,
    mean_s: f64,
    squares_s2: f64,
    longest_s: f64,
    longest_from: Time,
}

impl Gaps {
    /// From a request to the next one.
    pub fn add(&mut self, from: Time, to: Time) {
        let gap_s = to.since(from).as_secs_f64();
        self.count += 1.0;
        let off_s = gap_s - self.mean_s;
        self.mean_s += off_s / self.count;
        self.squares_s2 += off_s * (gap_s - self.mean_s);
        if gap_s > self.longest_s {
            (self.longest_s, self.longest_from) = (gap_s, from);
        }
    }

    /// Nothing where there is no gap, or all requests come at once.
    pub fn figures(&self) -> Option<GapFigures> {
        (self.mean_s > 0.0).then(|| GapFigures {
            longest_s: rounded(self.longest_s),
            longest_from_s: self.longest_from.as_secs_f64(),
            cv: Some(rounded((self.squares_s2 / self.count).sqrt() / self.mean_s)),
        })
    }
}

/// Stretches without a request between ones with: which window they begin at, and how many windows they last.
fn silences(counts: &[u32]) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    let last = counts.iter().rposition(|&count| count > 0).unwrap_or(0);
    let first = counts.iter().position(|&count| count > 0).unwrap_or(0);
    let runs = counts.chunk_by(|a, b| (*a == 0) == (*b == 0));
    runs.filter_map(move |run| {
        let begins = at;
        at += run.len();
        (run[0] == 0 && begins > first && begins < last).then_some((begins, run.len()))
    })
}

/// As [`Gaps::figures`], of requests by the window of `window_s` seconds, of which the first begins at `begins_s`.
pub(super) fn by_windows(counts: &[u32], window_s: u32, begins_s: f64) -> Option<GapFigures> {
    let (at, windows) = silences(counts).max_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(&a.0)))?;
    Some(GapFigures {
        longest_s: (windows * window_s as usize) as f64,
        longest_from_s: begins_s + (at * window_s as usize) as f64,
        cv: None,
    })
}

/// A hole lasts so long at least, in seconds,
const HOLE_S: f64 = 60.0;
/// and so many times the mean gap: of Poisson arrivals one gap in e^100 does.
const HOLE_GAPS: f64 = 100.0;
/// Holes are worth telling of where they take such a part of the time: the mean rate is off by as much.
const HOLES_SHARE: f64 = 0.01;

/// The holes of a recording of `lasted_s` seconds, where they distort its mean rate.
pub(super) fn holes(counts: &[u32], window_s: u32, lasted_s: f64) -> Option<HoleFigures> {
    let requests: f64 = counts.iter().map(|&count| f64::from(count)).sum();
    let least_s = HOLE_S.max(HOLE_GAPS * lasted_s / requests);
    let lasts_s = |(_, windows): (usize, usize)| windows as f64 * f64::from(window_s);
    let found = silences(counts).map(lasts_s).filter(|&lasts_s| lasts_s >= least_s);
    let (count, total_s) = found.fold((0, 0.0), |(count, total_s), lasts_s| (count + 1, total_s + lasts_s));
    (count > 0 && total_s >= HOLES_SHARE * lasted_s).then(|| HoleFigures {
        count,
        total_s,
        requests_per_s_without: rounded(requests / (lasted_s - total_s)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(at_s: &[f64]) -> GapFigures {
        let mut gaps = Gaps::default();
        for pair in at_s.windows(2) {
            let [from, to] = [pair[0], pair[1]].map(|at_s| Time((at_s * 1e9) as u64));
            gaps.add(from, to);
        }
        gaps.figures().unwrap()
    }

    #[test]
    fn gaps_vary_as_their_lengths_do() {
        let even = gaps(&[1.7e9, 1.7e9 + 0.5, 1.7e9 + 1.0]);
        assert_eq!((even.cv, even.longest_s), (Some(0.0), 0.5));
        // Gaps of 1, 3, 1, 3 s: a mean of 2 and a standard deviation of 1.
        let uneven = gaps(&[0.0, 1.0, 4.0, 5.0, 8.0]);
        assert_eq!(
            (uneven.cv, uneven.longest_s, uneven.longest_from_s),
            (Some(0.5), 3.0, 1.0)
        );
        assert_eq!(Gaps::default().figures(), None);
    }

    #[test]
    fn silence_before_and_after_is_no_gap() {
        let found = by_windows(&[0, 0, 0, 1, 0, 2, 0, 0, 1, 0, 0, 0, 0], 60, 600.0).unwrap();
        assert_eq!((found.longest_s, found.longest_from_s), (120.0, 960.0));
        assert_eq!(by_windows(&[0, 3, 1, 0], 1, 0.0), None);
        assert_eq!(by_windows(&[0, 0], 1, 0.0), None);
    }

    #[test]
    fn a_hole_is_longer_than_chance_makes_gaps() {
        let recording = |busy: usize, rate: u32, hole: usize| {
            let half = vec![rate; busy];
            [&half[..], &vec![0; hole], &half].concat()
        };
        let of = |counts: Vec<u32>| holes(&counts, 1, counts.len() as f64);
        let found = of(recording(500, 2, 1000)).unwrap();
        assert_eq!(
            (found.count, found.total_s, found.requests_per_s_without),
            (1, 1000.0, 2.0)
        );
        assert_eq!(of(recording(500, 2, 59)), None, "too short");
        assert_eq!(of(recording(50_000, 2, 120)), None, "too small a part");
        // One request in ten seconds: a hundred gaps are a thousand seconds.
        let sparse: Vec<u32> = (0..20_000).map(|second| u32::from(second % 10 == 0)).collect();
        let with_hole = |hole: usize| [&sparse[..], &vec![0; hole], &sparse].concat();
        assert_eq!(of(with_hole(900)), None);
        assert_eq!(of(with_hole(1_200)).unwrap().count, 1);
        assert_eq!(of(vec![0; 100]), None);
    }
}
