//! From a server's question to an allocation: the instances are divided among the streams, and each stream's program is solved.

use tenantry_core::policy::fleet::{Allocated, Question, RuntimeQuestion, StreamQuestion};
use tenantry_core::spec::SolverSpec;

use crate::curve::MeanLatency;
use crate::error::Invalid;
use crate::problem::{LIMITS, MILLI, Problem, Runtime, demand_milli};
use crate::solve::{Method, solve};

/// Solves each stream's program for its share of the instances.
///
/// The paper has one stream a cluster and leaves sharing open (section 6). Here every stream first gets what its constraints ask
/// for (Eqs. 3 and 7); the rest is divided in proportion to the work, requests times service time, that came in.
///
/// # Errors
/// [`Invalid`] when the question makes no sense.
pub fn answer(question: &Question) -> Result<Allocated, Invalid> {
    let mut problems: Vec<Problem> = question
        .streams
        .iter()
        .map(|stream| problem(stream, question.span.0))
        .collect();
    let shares = divided(question, &problems);
    let mut answer = Allocated {
        instances: Vec::new(),
        fallback: false,
    };
    let method = match question.solver {
        SolverSpec::Dynamic => Method::Dynamic,
        SolverSpec::Highs => Method::Integer,
    };
    for (problem, instances) in problems.iter_mut().zip(shares) {
        problem.cards = instances;
        let allocation = solve(problem, method)?;
        let (instances, is_beyond) = relieved(problem, allocation.instances);
        answer.fallback |= allocation.status.is_fallback() || is_beyond;
        answer.instances.extend(instances);
    }
    Ok(answer)
}

/// The same, or where the question makes no sense the allocation in force, as a fallback: what both machines do, so that neither ends a run for what
/// the other goes on with.
pub fn answer_or_keep(question: &Question) -> Allocated {
    answer(question).unwrap_or_else(|_| {
        let runtimes = question.streams.iter().flat_map(|stream| &stream.runtimes);
        Allocated {
            instances: runtimes.map(|runtime| runtime.previous).collect(),
            fallback: true,
        }
    })
}

/// The allocation with the longest runtime within its capacity, where single moves get it there.
///
/// Eq. 5 lets the longest runtime take whatever the others leave, and Eq. 1 charges it for a queue that is gone after a window. But what is
/// beyond its capacity comes again in every window: its queue would grow without end. So instances are moved to it, the cheapest
/// first, for as long as that lessens what is too much; Eq. 3 holds as before. Says also whether it is beyond its capacity all the same.
fn relieved(problem: &Problem, mut counts: Vec<u32>) -> (Vec<u32>, bool) {
    let last = counts.len() - 1;
    let floors = problem.floors();
    let too_much = |counts: &[u32], load_milli: u64| {
        let capacity = u64::from(problem.runtimes[last].capacity) * u64::from(counts[last]) * MILLI;
        load_milli.saturating_sub(capacity)
    };
    loop {
        let excess = too_much(&counts, problem.flow(&counts).load_milli[last]);
        if excess == 0 {
            return (counts, false);
        }
        let moved = |from: usize| {
            let mut moved = counts.clone();
            moved[from] -= 1;
            moved[last] += 1;
            moved
        };
        let givers = (0..last).filter(|&at| u64::from(counts[at]) > floors[at]);
        let better = givers.map(moved).filter_map(|moved| {
            let flow = problem.flow(&moved);
            (too_much(&moved, flow.load_milli[last]) < excess).then_some((flow.cost, moved))
        });
        match better.min() {
            Some((_, moved)) => counts = moved,
            None => return (counts, true),
        }
    }
}

fn problem(stream: &StreamQuestion, span_ns: u64) -> Problem {
    let requests: Vec<u64> = stream.runtimes.iter().map(|runtime| runtime.requests).collect();
    let demand_milli = demand_milli(&requests, span_ns, stream.slo.0);
    // An SLO of hours is a window of more requests than the program counts: a part of it asks the same.
    let share = |most: u64, limit: u64| most.div_ceil(limit).max(1);
    let capacities = stream.runtimes.iter().map(|runtime| runtime.capacity);
    let parts = share(capacities.max().unwrap_or(0).into(), LIMITS.capacity.into()).max(share(
        demand_milli.iter().copied().max().unwrap_or(0),
        LIMITS.demand_milli,
    ));
    let runtime = |runtime: &RuntimeQuestion| Runtime {
        max_length: runtime.max_length,
        capacity: ((u64::from(runtime.capacity) / parts) as u32).max(1),
        latency: MeanLatency::Serial {
            service_ns: runtime.service.0,
        },
    };
    Problem {
        runtimes: stream.runtimes.iter().map(runtime).collect(),
        demand_milli: demand_milli.into_iter().map(|demand| demand / parts).collect(),
        cards: 0,
        instances_per_card: 1,
        previous: stream.runtimes.iter().map(|runtime| runtime.previous).collect(),
    }
}

/// Instances of each stream: at least one, and all together those that there are, as long as there are as many as streams.
fn divided(question: &Question, problems: &[Problem]) -> Vec<u32> {
    if problems.len() == 1 {
        return vec![question.instances];
    }
    let needed = |problem: &Problem| problem.floors().iter().sum::<u64>().max(1);
    let work = |stream: &StreamQuestion| -> u128 {
        let of = stream.runtimes.iter();
        of.map(|runtime| u128::from(runtime.requests) * u128::from(runtime.service.0))
            .sum()
    };
    let instances = u64::from(question.instances);
    let floors: Vec<u64> = problems.iter().map(needed).collect();
    let kept = match floors.iter().sum::<u64>() <= instances {
        true => floors,
        false => vec![1; problems.len()],
    };
    let free = instances.saturating_sub(kept.iter().sum());
    let works: Vec<u128> = question.streams.iter().map(work).collect();
    let all = works.iter().sum::<u128>().max(1);
    let mut shares: Vec<u64> = kept
        .iter()
        .zip(&works)
        .map(|(kept, work)| kept + (u128::from(free) * work / all) as u64)
        .collect();
    // What rounding leaves goes to those with the largest remainders, of equals the first.
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(u128::from(free) * works[at] % all));
    let left = instances.saturating_sub(shares.iter().sum());
    for turn in 0..left as usize {
        shares[order[turn % order.len()]] += 1;
    }
    shares.into_iter().map(|share| share as u32).collect()
}

#[cfg(test)]
mod tests {
    use tenantry_traces::Duration;

    use super::*;

    fn stream(requests: &[u64]) -> StreamQuestion {
        let runtimes = requests.iter().zip(1..).map(|(&requests, at)| RuntimeQuestion {
            max_length: 64 * at,
            capacity: 100 / at,
            service: Duration::from_millis(u64::from(at)),
            requests,
            previous: 0,
        });
        StreamQuestion {
            slo: Duration::from_millis(100),
            runtimes: runtimes.collect(),
        }
    }

    fn question(streams: Vec<StreamQuestion>, instances: u32) -> Question {
        Question {
            streams,
            instances,
            span: Duration::from_secs(1),
            solver: SolverSpec::Dynamic,
        }
    }

    #[test]
    fn one_stream_gets_all() {
        let dynamic = question(vec![stream(&[2000, 600, 100])], 6);
        let exact = answer(&dynamic).unwrap();
        assert_eq!(exact.instances.iter().sum::<u32>(), 6);
        assert!(!exact.fallback);
        #[cfg(feature = "highs")]
        both_agree(dynamic, &exact);
    }

    #[cfg(feature = "highs")]
    fn both_agree(dynamic: Question, exact: &Allocated) {
        let highs = answer(&Question {
            solver: SolverSpec::Highs,
            ..dynamic
        });
        assert_eq!(&highs.unwrap(), exact);
    }

    #[test]
    fn streams_share_by_need_and_then_by_work() {
        let asked = question(vec![stream(&[3000, 0, 0]), stream(&[1000, 0, 0])], 9);
        let answered = answer(&asked).unwrap();
        // Floors are 3 of the shortest and 1 of the longest, and 1 and 1; the other three go 3 to 1 and the rest to the largest remainder.
        let [first, second] = [&answered.instances[..3], &answered.instances[3..]];
        assert_eq!((first.iter().sum::<u32>(), second.iter().sum::<u32>()), (6, 3));
    }

    #[test]
    fn the_longest_runtime_is_not_given_more_than_it_serves() {
        // The middle runtime's requests are too few for an instance by Eq. 3, and with the longest's own they are too many for one.
        let asked = question(vec![stream(&[4000, 450, 200])], 6);
        let problem = &problem(&asked.streams[0], asked.span.0);
        let load = |counts: &[u32]| problem.flow(counts).load_milli[2];
        assert!(load(&[5, 0, 1]) > 33 * MILLI);
        assert_eq!(relieved(problem, vec![5, 0, 1]), (vec![4, 0, 2], false));
        let counts = answer(&asked).unwrap().instances;
        assert!(load(&counts) <= u64::from(counts[2]) * 33 * MILLI, "{counts:?}");
    }

    /// The program is solved, since by Eq. 5 the longest runtime takes whatever is left; but that is more than it serves, and no other has an
    /// instance to give.
    #[test]
    fn a_longest_runtime_that_stays_beyond_its_capacity_is_a_fallback() {
        let asked = question(vec![stream(&[4000, 450, 900])], 6);
        let mut problem = problem(&asked.streams[0], asked.span.0);
        problem.cards = 6;
        let solved = solve(&problem, Method::Dynamic).unwrap();
        assert!(!solved.status.is_fallback());
        let answered = answer(&asked).unwrap();
        assert_eq!(answered.instances, [4, 0, 2]);
        assert!(answered.fallback);
        assert!(!answer(&Question { instances: 9, ..asked }).unwrap().fallback);
    }

    #[test]
    fn what_makes_no_sense_leaves_all_as_it_is() {
        let mut asked = question(vec![stream(&[10, 10, 10])], 0);
        for (before, runtime) in (1..).zip(&mut asked.streams[0].runtimes) {
            runtime.previous = before;
        }
        assert!(answer(&asked).is_err(), "no instances are no question");
        let kept = answer_or_keep(&asked);
        assert_eq!((kept.instances, kept.fallback), (vec![1, 2, 3], true));
    }

    /// As many requests as the shortest runtime's three instances serve in ten hours, and as one of the longest does.
    #[test]
    fn an_slo_of_hours_is_allocated_for_as_any() {
        let mut asked = question(vec![stream(&[3000, 0, 250])], 4);
        asked.streams[0].slo = Duration::from_secs(36_000);
        for runtime in &mut asked.streams[0].runtimes {
            runtime.capacity = 36_000_000 / runtime.max_length * 64;
        }
        let answered = answer(&asked).unwrap();
        assert_eq!((answered.instances, answered.fallback), (vec![3, 0, 1], false));
    }

    #[test]
    fn too_much_is_a_fallback() {
        let answered = answer(&question(vec![stream(&[30_000, 0, 0])], 4)).unwrap();
        assert!(answered.fallback);
        assert_eq!(answered.instances.iter().sum::<u32>(), 4);
        assert!(answered.instances[2] >= 1);
    }
}
