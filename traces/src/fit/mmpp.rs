//! Two states of a Markov-modulated Poisson process, from when requests came.
//!
//! The time is cut into bins much shorter than a state lasts. Their counts are then a hidden Markov chain of two states
//! with Poisson counts, and its likelihood is climbed by Baum and Welch's steps (Rabiner, "A tutorial on hidden Markov
//! models", Proceedings of the IEEE 77, 1989, section III.C). As bins get shorter that becomes the EM algorithm on the
//! gaps themselves (Rydén, "An EM algorithm for estimation in Markov-modulated Poisson processes", Computational
//! Statistics & Data Analysis 21, 1996). How long states last is not known beforehand, so that bins of many widths are
//! tried, and the best fit is followed to bins that are a small part of its own shorter dwell.

use crate::spec::MmppState;
use crate::time::{Duration, Time};

/// From one rough fit to the next bins are so many times as wide.
const WIDER: f64 = 4.0;

/// Requests in the narrowest bins of the rough fits, in the mean: a state with some tens of requests has many of these.
const NARROWEST_REQUESTS: f64 = 0.25;

/// A rough fit starts with states that last so many bins.
const START_BINS: f64 = 20.0;

/// With fewer bins than this no fit is made: ten visits to each state need some ten bins each.
const LEAST_BINS: usize = 200;

/// Bins in the shorter dwell of the last fit: in those where the state changes, counts are of neither state.
const BINS_A_DWELL: f64 = 50.0;

/// Of states that last fewer bins, as where only seconds are known, most bins are in part of the other state.
const LEAST_BINS_A_DWELL: f64 = 3.0;

/// Bins that a rough fit looks at, at most, and that the last one does: enough for thousands of visits.
const ROUGH_BINS: usize = 1 << 17;
const LAST_BINS: usize = 1 << 19;

/// Where these are not all, they are in stretches of so many, evenly over the time.
const STRETCH_BINS: usize = 1 << 12;

/// Steps of a rough fit, and of the last one, at most.
const ROUGH_STEPS: usize = 30;
const LAST_STEPS: usize = 200;

/// The last fit ends where a step gains less likelihood than this, in nats: chance moves it by about one.
const LAST_GAIN: f64 = 1e-3;

/// A state must be left so often: of fewer visits its dwell says little.
const LEAST_VISITS: f64 = 10.0;

/// Of a busy state with fewer requests there is no telling from a cluster of a few.
const LEAST_REQUESTS: f64 = 20.0;

/// When requests came, as far as a recording says.
#[derive(Clone, Copy, Debug)]
pub enum Arrivals<'a> {
    /// Each instant, in order.
    Instants(&'a [Time]),
    /// How many came in each second.
    Seconds(&'a [u32]),
}

/// Fits two states, the slow one first. `None` where one rate explains the requests as well, where a state is hardly
/// ever visited, or where it is gone before it can be seen.
pub fn fit(arrivals: Arrivals) -> Option<[MmppState; 2]> {
    let rough = arrivals.widths_s().into_iter().filter_map(|width_s| {
        let bins = arrivals.bins(width_s, ROUGH_BINS);
        let (states, seen) = bins.start()?.climb(&bins, ROUGH_STEPS, 0.0)?;
        Some((seen.gain / bins.span_s(), states))
    });
    let (_, mut states) = rough.max_by(|a, b| a.0.total_cmp(&b.0))?;
    // It takes the longest to be sure of what is left out in the end.
    if states.busy_requests() < LEAST_REQUESTS / 2.0 {
        return None;
    }
    let mut last = None;
    // Narrower bins find another dwell, and that dwell other bins.
    for _ in 0..2 {
        let bins = arrivals.bins(states.shorter_dwell_s() / BINS_A_DWELL, LAST_BINS);
        let (climbed, seen) = states.climb(&bins, LAST_STEPS, LAST_GAIN)?;
        states = climbed;
        last = Some((bins, seen));
    }
    let (bins, seen) = last?;
    states.are_seen(&bins, &seen).then(|| states.spec()).flatten()
}

impl Arrivals<'_> {
    fn requests(&self) -> f64 {
        match self {
            Arrivals::Instants(instants) => instants.len() as f64,
            Arrivals::Seconds(counts) => counts.iter().map(|&count| f64::from(count)).sum(),
        }
    }

    fn span_s(&self) -> f64 {
        match self {
            Arrivals::Instants([first, .., last]) => last.since(*first).as_secs_f64(),
            Arrivals::Instants(_) => 0.0,
            Arrivals::Seconds(counts) => counts.len() as f64,
        }
    }

    /// Widths for rough fits, rising: from bins with hardly a request on, as long as there are enough bins.
    fn widths_s(&self) -> Vec<f64> {
        let (span_s, requests) = (self.span_s(), self.requests());
        if span_s == 0.0 || requests == 0.0 {
            return Vec::new();
        }
        let narrowest_s = self.possible_s(NARROWEST_REQUESTS * span_s / requests);
        std::iter::successors(Some(narrowest_s), |width_s| Some(width_s * WIDER))
            .take_while(|width_s| span_s / width_s >= LEAST_BINS as f64)
            .collect()
    }

    /// The nearest width that bins can have: seconds cannot be cut.
    fn possible_s(&self, width_s: f64) -> f64 {
        match self {
            Arrivals::Instants(_) => width_s.max(1e-9),
            Arrivals::Seconds(_) => width_s.round().max(1.0),
        }
    }

    /// Counts in bins of about `width_s`, of which there are `most` at most.
    fn bins(&self, width_s: f64, most: usize) -> Bins {
        let width_s = self.possible_s(width_s);
        let all = (self.span_s() / width_s) as usize;
        let stretches = if all <= most {
            vec![self.stretch(width_s, 0, all)]
        } else {
            let count = most / STRETCH_BINS;
            let first = |stretch: usize| (all - STRETCH_BINS) / (count - 1) * stretch;
            (0..count).map(|stretch| self.stretch(width_s, first(stretch), STRETCH_BINS)).collect()
        };
        Bins { width_s, stretches }
    }

    /// Counts in `length` bins from the bin `from` on.
    fn stretch(&self, width_s: f64, from: usize, length: usize) -> Vec<f64> {
        match self {
            Arrivals::Instants(instants) => {
                let bin = |instant: &Time| (instant.since(instants[0]).as_secs_f64() / width_s) as usize;
                let mut counts = vec![0.0; length];
                let before = instants.partition_point(|instant| bin(instant) < from);
                let within = instants[before..].iter().map(|instant| bin(instant) - from);
                within.take_while(|&bin| bin < length).for_each(|bin| counts[bin] += 1.0);
                counts
            }
            Arrivals::Seconds(seconds) => {
                let width = width_s as usize;
                let bins = seconds[from * width..].chunks_exact(width).take(length);
                bins.map(|bin| bin.iter().map(|&count| f64::from(count)).sum()).collect()
            }
        }
    }
}

/// Counts in bins of one width.
struct Bins {
    width_s: f64,
    /// Bins that follow on each other.
    stretches: Vec<Vec<f64>>,
}

impl Bins {
    fn counts(&self) -> impl Iterator<Item = f64> {
        self.stretches.iter().flatten().copied()
    }

    fn len(&self) -> usize {
        self.stretches.iter().map(Vec::len).sum()
    }

    fn span_s(&self) -> f64 {
        self.width_s * self.len() as f64
    }

    fn mean_per_s(&self) -> f64 {
        self.counts().sum::<f64>() / self.span_s()
    }

    /// Where a fit starts: the means of low and of high counts, divided half-way between the two. `None` where all are
    /// alike.
    fn start(&self) -> Option<TwoStates> {
        let mut divide = self.mean_per_s() * self.width_s;
        let mut means = [0.0; 2];
        for _ in 0..20 {
            let mut sums = [(0.0, 0.0); 2];
            for count in self.counts() {
                let (sum, bins) = &mut sums[usize::from(count > divide)];
                *sum += count;
                *bins += 1.0;
            }
            means = sums.map(|(sum, bins)| sum / bins);
            divide = (means[0] + means[1]) / 2.0;
        }
        let leaves_per_s = [1.0 / (START_BINS * self.width_s); 2];
        (means[0] < means[1]).then(|| TwoStates {
            rates_per_s: means.map(|mean| mean / self.width_s),
            leaves_per_s,
        })
    }
}

/// A slow state and a busy one.
#[derive(Clone, Copy, Debug)]
struct TwoStates {
    rates_per_s: [f64; 2],
    /// How often each is left while it lasts.
    leaves_per_s: [f64; 2],
}

/// What bins say of the states that are behind them, in the mean over all ways to have these counts.
#[derive(Default)]
struct Seen {
    /// The logarithm of how much likelier the counts are than by a Poisson process of their mean rate.
    gain: f64,
    bins: [f64; 2],
    requests: [f64; 2],
    /// In how many bins the state is another than in the one before, by which it was.
    leaves: [f64; 2],
}

impl TwoStates {
    /// Climbs until a step gains less than `least`, or for so many steps. `None` where it comes to nothing: to one
    /// state, or one that is left at once.
    fn climb(mut self, bins: &Bins, steps: usize, least: f64) -> Option<(TwoStates, Seen)> {
        let mut seen = self.look(bins);
        for _ in 0..steps {
            let next = seen.states(bins.width_s)?;
            let gained = next.look(bins);
            let is_up = gained.gain - seen.gain > least;
            (self, seen) = (next, gained);
            if !is_up {
                break;
            }
        }
        Some((self, seen))
    }

    fn shorter_dwell_s(&self) -> f64 {
        1.0 / self.leaves_per_s[0].max(self.leaves_per_s[1])
    }

    /// Requests each time that it is busy.
    fn busy_requests(&self) -> f64 {
        self.rates_per_s[1] / self.leaves_per_s[1]
    }

    /// The chance that a state is another after a bin, by which it was.
    fn leaves_a_bin(&self, width_s: f64) -> [f64; 2] {
        let both: f64 = self.leaves_per_s.iter().sum();
        self.leaves_per_s.map(|leaves| -libm::expm1(-both * width_s) * leaves / both)
    }

    fn look(&self, bins: &Bins) -> Seen {
        let width_s = bins.width_s;
        let mean = bins.mean_per_s();
        let [leave_slow, leave_busy] = self.leaves_a_bin(width_s);
        // No rate is quite 0, so that a request in a silent state is unlikely, and not impossible.
        let [slow, busy] = self.rates_per_s.map(|rate| rate.max(1e-9 * mean));
        let (slow_log, slow_less) = (libm::log(slow / mean), (slow - mean) * width_s);
        let (busy_log, busy_less) = (libm::log(busy / slow), (busy - slow) * width_s);
        let next = |is_busy: f64| is_busy * (1.0 - leave_busy) + (1.0 - is_busy) * leave_slow;
        let mut seen = Seen::default();
        let mut busy_so_far = Vec::new();
        for counts in &bins.stretches {
            busy_so_far.clear();
            let mut is_busy = leave_slow / (leave_slow + leave_busy);
            for &count in counts {
                let busy_over_slow = count * busy_log - busy_less;
                let smaller = libm::exp(-busy_over_slow.abs());
                let (by_slow, by_busy) = if busy_over_slow > 0.0 {
                    (smaller, 1.0)
                } else {
                    (1.0, smaller)
                };
                let (slow, busy) = ((1.0 - is_busy) * by_slow, is_busy * by_busy);
                seen.gain += count * slow_log - slow_less + busy_over_slow.max(0.0) + libm::log(slow + busy);
                busy_so_far.push(busy / (slow + busy));
                is_busy = next(busy / (slow + busy));
            }
            // Backwards: what comes later tells of the state too.
            let Some(mut is_busy) = busy_so_far.last().copied() else {
                continue;
            };
            for (t, &count) in counts.iter().enumerate().rev() {
                if t + 1 < counts.len() {
                    let so_far = busy_so_far[t];
                    let expected = next(so_far);
                    let (then_busy, then_slow) = (is_busy / expected, (1.0 - is_busy) / (1.0 - expected));
                    let left_busy = so_far * leave_busy * then_slow;
                    seen.leaves[0] += (1.0 - so_far) * leave_slow * then_busy;
                    seen.leaves[1] += left_busy;
                    is_busy = so_far * (1.0 - leave_busy) * then_busy + left_busy;
                }
                seen.bins[0] += 1.0 - is_busy;
                seen.bins[1] += is_busy;
                seen.requests[0] += (1.0 - is_busy) * count;
                seen.requests[1] += is_busy * count;
            }
        }
        seen
    }

    /// Whether there are two states to be seen.
    fn are_seen(&self, bins: &Bins, seen: &Seen) -> bool {
        // Schwarz's criterion for three more numbers, twice over, since the best of several starts was taken.
        let is_likelier = seen.gain > 3.0 * libm::log(bins.len() as f64);
        let is_visited = seen.leaves.iter().all(|&leaves| leaves >= LEAST_VISITS);
        let lasts = self.shorter_dwell_s() >= LEAST_BINS_A_DWELL * bins.width_s;
        is_likelier && is_visited && lasts && self.busy_requests() >= LEAST_REQUESTS
    }

    fn spec(&self) -> Option<[MmppState; 2]> {
        let state = |state: usize| {
            Some(MmppState {
                rate_per_s: self.rates_per_s[state],
                mean_dwell: Duration::from_secs_f64(1.0 / self.leaves_per_s[state])?,
            })
        };
        Some([state(0)?, state(1)?])
    }
}

impl Seen {
    /// The states that make this likeliest.
    fn states(&self, width_s: f64) -> Option<TwoStates> {
        let leave = [0, 1].map(|state| self.leaves[state] / self.bins[state]);
        let both = leave[0] + leave[1];
        let rates_per_s = [0, 1].map(|state| self.requests[state] / (self.bins[state] * width_s));
        let is_sound =
            both > 0.0 && both < 1.0 && leave[0] > 1e-12 && leave[1] > 1e-12 && rates_per_s[0] < rates_per_s[1];
        is_sound.then(|| TwoStates {
            rates_per_s,
            leaves_per_s: leave.map(|leave| -libm::log1p(-both) / width_s * leave / both),
        })
    }
}
