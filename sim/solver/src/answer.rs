//! From a server's question to an allocation: the instances are shared by the streams, and each stream's program is
//! solved.

use tenantry_core::policy::fleet::{Allocated, Fallback, Question, RuntimeQuestion, StreamQuestion};
use tenantry_core::spec::SolverSpec;

use crate::allocation::Status;
use crate::curve::MeanLatency;
use crate::error::Invalid;
use crate::problem::{LIMITS, Problem, Runtime, demand_milli};
use crate::sharing::{Stream, shared};
use crate::solve::Method;

/// Solves each stream's program for its share of the instances, with the longest runtimes within their capacity.
///
/// Where nobody came, nothing follows for anybody: the allocation in force stays.
///
/// # Errors
/// [`Invalid`] when the question makes no sense.
pub fn answer(question: &Question) -> Result<Allocated, Invalid> {
    let runtimes = || question.streams.iter().flat_map(|stream| &stream.runtimes);
    let in_force: u32 = runtimes().map(|runtime| runtime.previous).sum();
    if in_force > 0 && in_force == question.instances && runtimes().all(|runtime| runtime.requests == 0) {
        return Ok(Allocated {
            instances: previous(question),
            fallback: None,
        });
    }
    let streams: Vec<Stream> = question.streams.iter().map(|stream| asked(stream, question.span.0)).collect();
    let method = match question.solver {
        SolverSpec::Dynamic => Method::Dynamic,
        SolverSpec::Highs => Method::Integer,
    };
    let allocations = shared(&streams, question.instances, method)?;
    let fallbacks = allocations.iter().filter_map(|of| fallback(&of.status));
    Ok(Allocated {
        fallback: fallbacks.max(),
        instances: allocations.into_iter().flat_map(|of| of.instances).collect(),
    })
}

/// The same, or where the question makes no sense the allocation in force, as a fallback: what both machines do, so
/// that neither ends a run for what the other goes on with.
pub fn answer_or_keep(question: &Question) -> Allocated {
    answer(question).unwrap_or_else(|_| Allocated {
        instances: previous(question),
        fallback: Some(Fallback::QuestionRefused),
    })
}

fn previous(question: &Question) -> Vec<u32> {
    let runtimes = question.streams.iter().flat_map(|stream| &stream.runtimes);
    runtimes.map(|runtime| runtime.previous).collect()
}

fn fallback(status: &Status) -> Option<Fallback> {
    match status {
        Status::Optimal | Status::Within(_) => None,
        Status::Infeasible { .. } => Some(Fallback::DemandBeyondCards),
        Status::LongestBeyond => Some(Fallback::LongestBeyondCapacity),
        Status::Limit(_) => Some(Fallback::SolverLimit),
    }
}

fn asked(stream: &StreamQuestion, span_ns: u64) -> Stream {
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
    let work = |runtime: &RuntimeQuestion| u128::from(runtime.requests) * u128::from(runtime.service.0);
    Stream {
        problem: Problem {
            runtimes: stream.runtimes.iter().map(runtime).collect(),
            demand_milli: demand_milli.into_iter().map(|demand| demand / parts).collect(),
            cards: 0,
            instances_per_card: 1,
            previous: stream.runtimes.iter().map(|runtime| runtime.previous).collect(),
            longest_within_capacity: true,
        },
        window_ns: stream.slo.0 as f64 / parts as f64,
        work: stream.runtimes.iter().map(work).sum(),
    }
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
        assert_eq!(exact.fallback, None);
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

    /// What each stream needs is 4 and 2 instances, and what it takes in three times the work of the other; see
    /// `sharing.rs`.
    #[test]
    fn streams_share_the_instances() {
        let asked = question(vec![stream(&[3000, 0, 0]), stream(&[1000, 0, 0])], 9);
        let answered = answer(&asked).unwrap();
        let [first, second] = [&answered.instances[..3], &answered.instances[3..]];
        assert_eq!((first.iter().sum::<u32>(), second.iter().sum::<u32>()), (6, 3));
        assert_eq!(answered.fallback, None);
    }

    /// Of a stream whose demand is beyond all instances and one whose longest runtime alone is, the graver is told.
    #[test]
    fn the_gravest_reason_of_all_streams_is_told() {
        let asked = question(vec![stream(&[40_000, 450, 900]), stream(&[10, 0, 0])], 9);
        assert_eq!(answer(&asked).unwrap().fallback, Some(Fallback::DemandBeyondCards));
    }

    /// By need and work, both nothing, the streams would have four instances each.
    #[test]
    fn a_period_in_which_nobody_came_changes_nothing() {
        let mut asked = question(vec![stream(&[0, 0, 0]), stream(&[0, 0, 0])], 8);
        let in_force = [0, 0, 1, 3, 2, 2];
        let runtimes = asked.streams.iter_mut().flat_map(|stream| &mut stream.runtimes);
        for (runtime, previous) in runtimes.zip(in_force) {
            runtime.previous = previous;
        }
        let kept = Allocated {
            instances: in_force.into(),
            fallback: None,
        };
        assert_eq!(answer(&asked).unwrap(), kept);
        // Before the start nothing is in force.
        let runtimes = asked.streams.iter_mut().flat_map(|stream| &mut stream.runtimes);
        runtimes.for_each(|runtime| runtime.previous = 0);
        assert_eq!(answer(&asked).unwrap().instances.iter().sum::<u32>(), 8);
    }

    #[test]
    fn the_longest_runtime_is_not_given_more_than_it_serves() {
        // The middle runtime's requests are too few for an instance by Eq. 3, and with the longest's own they are too
        // many for one.
        let asked = question(vec![stream(&[4000, 450, 200])], 6);
        let mut problem = super::asked(&asked.streams[0], asked.span.0).problem;
        problem.cards = 6;
        let load = |counts: &[u32]| problem.flow(counts).load_milli[2];
        assert!(!problem.permits(1, load(&[5, 0, 1])));
        let answered = answer(&asked).unwrap();
        let counts = &answered.instances;
        assert!(problem.permits(counts[2], load(counts)), "{counts:?}");
        assert_eq!(answered.fallback, None);
    }

    /// By Eq. 5 the longest runtime takes whatever is left; but that is more than it serves, and no other has an
    /// instance to give.
    #[test]
    fn a_longest_runtime_that_stays_beyond_its_capacity_is_a_fallback() {
        let asked = question(vec![stream(&[4000, 450, 900])], 6);
        let answered = answer(&asked).unwrap();
        assert_eq!(answered.instances, [4, 0, 2]);
        assert_eq!(answered.fallback, Some(Fallback::LongestBeyondCapacity));
        assert_eq!(answer(&Question { instances: 9, ..asked }).unwrap().fallback, None);
    }

    #[test]
    fn what_makes_no_sense_leaves_all_as_it_is() {
        let mut asked = question(vec![stream(&[10, 10, 10])], 0);
        for (before, runtime) in (1..).zip(&mut asked.streams[0].runtimes) {
            runtime.previous = before;
        }
        assert!(answer(&asked).is_err(), "no instances are no question");
        let kept = answer_or_keep(&asked);
        let refused = Some(Fallback::QuestionRefused);
        assert_eq!((kept.instances, kept.fallback), (vec![1, 2, 3], refused));
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
        assert_eq!((answered.instances, answered.fallback), (vec![3, 0, 1], None));
    }

    #[test]
    fn too_much_is_a_fallback() {
        let answered = answer(&question(vec![stream(&[30_000, 0, 0])], 4)).unwrap();
        assert_eq!(answered.fallback, Some(Fallback::DemandBeyondCards));
        assert_eq!(answered.instances.iter().sum::<u32>(), 4);
        assert!(answered.instances[2] >= 1);
    }
}
