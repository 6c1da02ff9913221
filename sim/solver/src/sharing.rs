//! How streams share the instances.
//!
//! The paper has one stream a cluster and leaves sharing open (section 6). Here every stream first gets what its
//! constraints ask for (Eqs. 3 and 7) and, of the rest, its share of the work that came in. From there instances move
//! between streams, at first several at a time where there are many, for as long as the programs say that it helps: to
//! a stream that has more to do than its share finishes within the SLO, from whichever stream loses least by it and
//! stays within its own; and then wherever the latencies of all streams together fall.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::allocation::Allocation;
use crate::error::Invalid;
use crate::problem::Problem;
use crate::solve::{Method, solve};

/// Moves of as many instances each, at most. So many of the largest moves take more than half of all instances
/// elsewhere.
const MOVES_MAX: u32 = 64;

/// A stream that shares the instances.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Its program, but for the share.
    pub problem: Problem,
    /// Time in which the program's demand comes.
    pub window_ns: f64,
    /// Requests times their service times.
    pub work: u128,
}

/// Each stream's allocation of its share.
pub(crate) fn shared(streams: &[Stream], instances: u32, method: Method) -> Result<Vec<Allocation>, Invalid> {
    let mut shares = divided(streams, instances);
    let mut trials = Trials {
        streams,
        method,
        solved: BTreeMap::new(),
    };
    let largest = (instances / MOVES_MAX).checked_ilog2().unwrap_or(0);
    for moved in (0..=largest).rev().map(|power| 1 << power) {
        for _ in 0..MOVES_MAX {
            let Some((from, to)) = best_move(&mut trials, &shares, moved)? else {
                break;
            };
            shares[from] -= moved;
            shares[to] += moved;
        }
    }
    let of = |(stream, &share): (usize, &u32)| trials.allocation(stream, share).cloned();
    shares.iter().enumerate().map(of).collect()
}

/// Instances of each stream by need and then by work: at least one, and all together those that there are, as long as
/// there are as many as streams.
fn divided(streams: &[Stream], instances: u32) -> Vec<u32> {
    if streams.len() == 1 {
        return vec![instances];
    }
    let instances = u64::from(instances);
    let needed = |stream: &Stream| stream.problem.floors().iter().sum::<u64>().max(1);
    let floors: Vec<u64> = streams.iter().map(needed).collect();
    let kept = match floors.iter().sum::<u64>() <= instances {
        true => floors,
        false => vec![1; streams.len()],
    };
    let free = instances.saturating_sub(kept.iter().sum());
    let all = streams.iter().map(|stream| stream.work).sum::<u128>().max(1);
    let mut shares: Vec<u64> = kept
        .iter()
        .zip(streams)
        .map(|(kept, stream)| kept + (u128::from(free) * stream.work / all) as u64)
        .collect();
    // What rounding leaves goes to those with the largest remainders, of equals the first.
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(u128::from(free) * streams[at].work % all));
    let left = instances.saturating_sub(shares.iter().sum());
    for turn in 0..left as usize {
        shares[order[turn % order.len()]] += 1;
    }
    shares.into_iter().map(|share| share as u32).collect()
}

/// Programs solved for streams and shares so far.
struct Trials<'a> {
    streams: &'a [Stream],
    method: Method,
    solved: BTreeMap<(usize, u32), Allocation>,
}

/// How a stream fares with a share.
#[derive(Clone, Copy)]
struct Fare {
    /// It has more to do than its instances finish within the SLO.
    is_beyond: bool,
    /// Latencies of the requests of a second, in one unit for all streams.
    latency: f64,
    /// Instances that must load another runtime.
    changes: i64,
}

impl Trials<'_> {
    fn allocation(&mut self, stream: usize, share: u32) -> Result<&Allocation, Invalid> {
        if !self.solved.contains_key(&(stream, share)) {
            let problem = Problem {
                cards: share,
                ..self.streams[stream].problem.clone()
            };
            self.solved.insert((stream, share), solve(&problem, self.method)?);
        }
        Ok(&self.solved[&(stream, share)])
    }

    fn fare(&mut self, stream: usize, share: u32) -> Result<Fare, Invalid> {
        let window_ns = self.streams[stream].window_ns;
        let allocation = self.allocation(stream, share)?;
        Ok(Fare {
            is_beyond: allocation.status.is_beyond(),
            latency: allocation.flow.cost as f64 / window_ns,
            changes: allocation.changes.into(),
        })
    }
}

/// What instances' move from one stream to another comes to. The better is the lesser.
#[derive(Clone, Copy)]
struct Worth {
    /// It helps no stream that is beyond its share without bringing the other there.
    rescues_nobody: bool,
    /// By how much latency rises, and by how many the instances that must load another runtime.
    latency: f64,
    changes: i64,
}

impl Worth {
    fn compare(&self, other: &Worth) -> Ordering {
        (self.rescues_nobody.cmp(&other.rescues_nobody))
            .then(self.latency.total_cmp(&other.latency))
            .then(self.changes.cmp(&other.changes))
    }
}

/// The best move of so many instances that helps, of equals the first.
fn best_move(trials: &mut Trials<'_>, shares: &[u32], moved: u32) -> Result<Option<(usize, usize)>, Invalid> {
    let mut best: Option<(Worth, (usize, usize))> = None;
    for from in (0..shares.len()).filter(|&from| shares[from] > moved) {
        for to in (0..shares.len()).filter(|&to| to != from) {
            let Some(worth) = worth(trials, (from, shares[from]), (to, shares[to]), moved)? else {
                continue;
            };
            if best.is_none_or(|(best, _)| worth.compare(&best).is_lt()) {
                best = Some((worth, (from, to)));
            }
        }
    }
    Ok(best.map(|(_, streams)| streams))
}

/// What a move of so many between two streams with such shares is worth; nothing where it does not help.
fn worth(trials: &mut Trials<'_>, from: (usize, u32), to: (usize, u32), moved: u32) -> Result<Option<Worth>, Invalid> {
    let before = [trials.fare(from.0, from.1)?, trials.fare(to.0, to.1)?];
    let after = [trials.fare(from.0, from.1 - moved)?, trials.fare(to.0, to.1 + moved)?];
    let latency = |of: [Fare; 2]| of[0].latency + of[1].latency;
    let changes = |of: [Fare; 2]| of[0].changes + of[1].changes;
    let worth = Worth {
        rescues_nobody: after[0].is_beyond || !before[1].is_beyond,
        latency: latency(after) - latency(before),
        changes: changes(after) - changes(before),
    };
    // Of streams that are both beyond their shares neither is rescued, but both may wait for less.
    let is_harmless = !after[0].is_beyond || before.iter().all(|of| of.is_beyond);
    let is_less = worth.latency < 0.0 || worth.latency == 0.0 && worth.changes < 0;
    Ok((!worth.rescues_nobody || is_harmless && is_less).then_some(worth))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::curve::MeanLatency;
    use crate::problem::Runtime;

    /// Runtimes of 1, 2 and 4 ms and what comes for each in a window of 100 ms, and instances of each in force.
    fn stream(requests: [u64; 3], previous: [u32; 3]) -> Stream {
        let services_ms = [1, 2, 4];
        let runtime = |ms: u32| Runtime {
            max_length: 64 * ms,
            capacity: 100 / ms,
            latency: MeanLatency::Serial {
                service_ns: u64::from(ms) * 1_000_000,
            },
        };
        let works = requests.iter().zip(services_ms);
        Stream {
            problem: Problem {
                runtimes: services_ms.into_iter().map(runtime).collect(),
                demand_milli: requests.iter().map(|requests| 1000 * requests).collect(),
                cards: 0,
                instances_per_card: 1,
                previous: previous.into(),
                longest_within_capacity: true,
            },
            window_ns: 1e8,
            work: works.map(|(requests, ms)| u128::from(*requests) * u128::from(ms)).sum(),
        }
    }

    fn shares(streams: &[Stream], instances: u32) -> (Vec<u32>, Vec<bool>) {
        let found = shared(streams, instances, Method::Dynamic).unwrap();
        let share = |of: &Allocation| of.instances.iter().sum();
        let is_beyond = |of: &Allocation| of.status.is_beyond();
        (found.iter().map(share).collect(), found.iter().map(is_beyond).collect())
    }

    #[test]
    fn streams_begin_with_their_need_and_then_their_work() {
        // Floors are 3 of the shortest and 1 of the longest, and 1 and 1; the other three go 3 to 1, and the rest to
        // the largest remainder.
        let streams = [stream([300, 0, 0], [0; 3]), stream([100, 0, 0], [0; 3])];
        assert_eq!(divided(&streams, 9), [6, 3]);
    }

    /// By need and work the second stream gets two instances, of which the longest runtime has more to do than it
    /// finishes in time. Three are enough for either.
    #[test]
    fn a_stream_is_rescued_by_one_that_can_spare_an_instance() {
        let streams = [stream([190, 0, 0], [0; 3]), stream([50, 20, 20], [0; 3])];
        assert_eq!(divided(&streams, 6), [4, 2]);
        assert_eq!(shares(&streams, 6), (vec![3, 3], vec![false, false]));
    }

    /// Sixteen streams of which all but one have far more than they need by their shares of the work: more instances
    /// move than one by one could.
    #[test]
    fn many_instances_move_where_there_are_many() {
        let idle = |_| stream([600, 0, 0], [0; 3]);
        let heavy = stream([20_000, 10_000, 10_000], [0; 3]);
        let mut streams: Vec<Stream> = (0..15).map(idle).collect();
        streams.push(heavy);
        // As if what comes to them took so much longer than it does.
        streams[..15].iter_mut().for_each(|stream| stream.work *= 10_000);
        let before = divided(&streams, 1_000);
        let (after, beyond) = shares(&streams, 1_000);
        assert!(after[15] > before[15] + MOVES_MAX, "{} of {}", after[15], before[15]);
        assert!(beyond.iter().all(|is_beyond| !is_beyond), "{after:?}");
    }

    #[test]
    fn equals_keep_what_is_there() {
        let idle = |previous| stream([0; 3], previous);
        // Nobody came to either, so that all shares cost nothing.
        let streams = [idle([1, 0, 1]), idle([2, 1, 3])];
        assert_eq!(divided(&streams, 8), [4, 4]);
        assert_eq!(shares(&streams, 8).0, [2, 6]);
    }

    fn streams() -> impl Strategy<Value = Vec<Stream>> {
        let one = ([0u64..250, 0u64..80, 0u64..40], [0u32..3, 0u32..3, 0u32..3]);
        prop::collection::vec(one.prop_map(|(requests, previous)| stream(requests, previous)), 2..4)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// Against all ways to share: where one keeps all streams within their shares, so does what is found, their
        /// latency is near the least there is, and nobody's share falls below one.
        #[test]
        fn shares_are_as_good_as_any(streams in streams(), instances in 3u32..14) {
            prop_assume!(instances as usize >= streams.len());
            let mut trials = Trials { streams: &streams, method: Method::Dynamic, solved: BTreeMap::new() };
            let mut valued = |shares: &[u32]| {
                let fares = shares.iter().enumerate().map(|(stream, &share)| trials.fare(stream, share).unwrap());
                fares.fold((0, 0.0), |(beyond, latency), of| (beyond + u32::from(of.is_beyond), latency + of.latency))
            };
            let mut best = (u32::MAX, f64::INFINITY);
            let rest = |first: u32| match streams.len() {
                2 => vec![vec![first, instances - first]],
                _ => (1..instances - first).map(|second| vec![first, second, instances - first - second]).collect(),
            };
            for shares in (1..instances).flat_map(rest) {
                let value = valued(&shares);
                best = if value < best { value } else { best };
            }
            let (shares, _) = shares(&streams, instances);
            prop_assert!(shares.iter().sum::<u32>() == instances && shares.iter().all(|&share| share > 0), "{shares:?}");
            let found = valued(&shares);
            prop_assert!(best.0 > 0 || found.0 == 0, "{shares:?}");
            prop_assert!(found.1 >= best.1 || found.0 > best.0, "{shares:?}");
            if best.0 == 0 {
                prop_assert!(found.1 <= best.1 * 1.05, "{shares:?}: {found:?} of {best:?}");
            }
        }
    }
}
