//! Points of the allocation program (Arlo, section 3.3), solved on one thread of the host as its lane solves it while
//! others are served.

use std::time::Instant;

use tenantry_core::policy::fleet::{Question, RuntimeQuestion, StreamQuestion};
use tenantry_core::spec::SolverSpec;
use tenantry_profiles::{SolveRow, Tables};
use tenantry_traces::Duration;

use super::held_out::{HoldOut, Spot};
use super::schedule::Point;

/// Cards to be allocated: enough that each of these questions has a solution, and is not answered by what stands in for
/// one.
const GPUS: [u32; 11] = [16, 32, 48, 64, 96, 128, 200, 300, 500, 700, 1000];
/// Runtimes that they are allocated to; as in the paper, up to 16 lengths of a 512 span.
const RUNTIMES: [u32; 9] = [1, 2, 3, 4, 6, 8, 10, 12, 16];
/// Loads that take turns at each point: how long the program takes hangs on its numbers too.
const LOADS: u32 = 16;
/// The longest input that is served, in tokens.
const SPAN_TOKENS: u32 = 512;

/// All points: they depend on the host alone, and not on a model.
pub(crate) fn points(hold_out: HoldOut) -> Vec<Point<'static>> {
    let grid = GPUS.into_iter().flat_map(|gpus| RUNTIMES.map(|runtimes| [gpus, runtimes]));
    let point = |spot: Spot<2>| {
        let [gpus, runtimes] = spot.at;
        let of_load = |load| question(gpus, runtimes, load);
        let mut questions = (0..LOADS).map(of_load).collect::<Vec<_>>().into_iter().cycle();
        let measure = move || {
            let question = questions.next().expect("there are loads");
            let start = Instant::now();
            let answer = tenantry_solver::answer(&question).expect("the question makes sense");
            let took = start.elapsed();
            std::hint::black_box(answer);
            Ok(took)
        };
        let row = move |tables: &mut Tables, stats| tables.solve.push(SolveRow { gpus, runtimes, stats });
        Point::new("solve".into(), measure, row).held_out(spot.held_out)
    };
    hold_out.spots(grid.collect(), Some).into_iter().map(point).collect()
}

/// What a cluster at one of the loads asks, from 65 to 80 % of what it can bear: runtimes at even steps, service times
/// in proportion to their lengths, and requests of which, as of tweets, most are short: those of each runtime make from
/// 0.55 to 0.75 of those of the next shorter one.
fn question(gpus: u32, runtimes: u32, load: u32) -> Question {
    const SLO: Duration = Duration(150_000_000);
    const SPAN: Duration = Duration(120_000_000_000);
    const LONGEST_NS: u64 = 5_000_000;
    let service_ns = |index: u32| LONGEST_NS * u64::from(index + 1) / u64::from(runtimes);
    // Seven and sixteen have no divisor in common, so that each load has a share of its own.
    let along = |from: f64, to: f64, step: u32| from + (to - from) * f64::from(step) / f64::from(LOADS - 1);
    let shorter = along(0.55, 0.75, load * 7 % LOADS);
    let weight = |index: u32| shorter.powi(index as i32);
    let work: f64 = (0..runtimes).map(|index| weight(index) * service_ns(index) as f64).sum();
    let scale = along(0.65, 0.8, load) * f64::from(gpus) * SPAN.0 as f64 / work;
    let runtime = |index| RuntimeQuestion {
        max_length: SPAN_TOKENS * (index + 1) / runtimes,
        capacity: (SLO.0 / service_ns(index)) as u32,
        service: Duration(service_ns(index)),
        requests: (scale * weight(index)) as u64,
        previous: gpus / runtimes + u32::from(index < gpus % runtimes),
    };
    Question {
        streams: vec![StreamQuestion {
            slo: SLO,
            runtimes: (0..runtimes).map(runtime).collect(),
        }],
        instances: gpus,
        span: SPAN,
        solver: SolverSpec::Dynamic,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fallback would not be the work of a solution.
    #[test]
    fn the_questions_have_answers_that_use_every_card() {
        for gpus in GPUS {
            for runtimes in RUNTIMES {
                for load in 0..LOADS {
                    let answer = tenantry_solver::answer(&question(gpus, runtimes, load)).unwrap();
                    assert_eq!(answer.fallback, None, "{gpus} cards, {runtimes} runtimes, load {load}");
                    assert_eq!(answer.instances.iter().sum::<u32>(), gpus);
                }
            }
        }
    }
}
