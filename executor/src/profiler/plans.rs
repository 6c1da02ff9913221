//! Points of pools that are split into batches (PetS, Algorithm 1), on one thread of the host as its lane does it while
//! batches run.

use std::sync::Arc;
use std::time::Instant;

use tenantry_core::policy::coordinated::{Batching, Planner, PoolPlan, PoolQuestion, Query, Tables};
use tenantry_profiles::{PlanRow, PoolBatching};
use tenantry_traces::draw::{Draws, Purpose};

use super::Suite;
use super::axes::Knots;
use super::held_out::{HoldOut, Spot};
use super::schedule::Point;

/// Tasks whose queries wait.
const TASKS: Knots = Knots {
    quick: &[1, 8, 32, 128],
    full: &[1, 2, 3, 4, 6, 8, 16, 32, 64, 128],
};
/// Queries that wait, at least as many. What the programs take grows with the square of many.
const QUERIES: Knots = Knots {
    quick: &[1, 8, 16, 32, 64, 128, 256, 512, 1024],
    full: &[
        1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
    ],
};
/// The most queries of a batch. Smaller ones are found sooner: the programs look at no longer stretches.
const MAX_BATCH: u32 = 128;
/// Of batches whose size is fixed.
const FIXED: u32 = 32;
const KINDS: u32 = 5;
const MAX_TOKENS: u32 = 128;
/// Lengths, in tokens: PetS's are normal about 32 (section 6.4).
const MEAN_TOKENS: f64 = 32.0;
const STD_TOKENS: f64 = 4.0;

/// All points of these rules: they depend on the host alone, and not on a model.
pub(crate) fn points(batchings: &[PoolBatching], suite: Suite, hold_out: HoldOut, seed: u64) -> Vec<Point<'static>> {
    let tables: Arc<[Tables]> = Arc::new([tables()]);
    let grid = TASKS
        .of(suite)
        .iter()
        .flat_map(|&tasks| QUERIES.of(suite).iter().map(move |&queries| [tasks, queries]));
    let possible = |at: [u32; 2]| Some(at).filter(|[tasks, queries]| tasks <= queries);
    let spots = hold_out.spots(grid.filter_map(possible).collect(), possible);
    let mut points = Vec::new();
    for &batching in batchings {
        for &Spot {
            at: [tasks, queries],
            held_out,
        } in &spots
        {
            let (mut planner, mut pool, tables) = (Planner::default(), 0, Arc::clone(&tables));
            let measure = move || {
                // A new one each time: how long it takes hangs on its own lengths and tasks too, and a processor
                // foresees those of few that take turns.
                let question = question(&tables, batching, [tasks, queries], seed, pool);
                pool += 1;
                let start = Instant::now();
                let mut plan = PoolPlan::default();
                planner.answer(&question, 0, &mut plan);
                let took = start.elapsed();
                std::hint::black_box(plan);
                Ok(took)
            };
            let row = move |all: &mut tenantry_profiles::Tables, stats| {
                all.plan.push(PlanRow {
                    batching,
                    tasks,
                    queries,
                    stats,
                });
            };
            points.push(Point::new(format!("plan, {batching}"), measure, row).held_out(held_out));
        }
    }
    points
}

/// One of the pools, with as many queries of each task as chance gives.
fn question(
    tables: &Arc<[Tables]>,
    batching: PoolBatching,
    [tasks, queries]: [u32; 2],
    seed: u64,
    pool: u32,
) -> PoolQuestion {
    let about = u64::from(pool) << 48 | u64::from(tasks) << 32 | u64::from(queries);
    let mut stream = Draws::new(seed, Purpose::InputLength).about(about);
    let query = |id| {
        // Each task has one at least.
        let task = if id < tasks {
            id
        } else {
            stream.below(tasks.into()) as u32
        };
        let tokens = MEAN_TOKENS + STD_TOKENS * stream.normal();
        Query {
            id,
            task,
            kind: task % KINDS,
            tokens: (tokens.round() as u32).clamp(1, MAX_TOKENS),
        }
    };
    PoolQuestion {
        tables: Arc::clone(tables),
        batching: match batching {
            PoolBatching::Fixed => Batching::Fixed { size: FIXED },
            PoolBatching::AlphaOnly => Batching::AlphaOnly,
            PoolBatching::BetaOnly => Batching::BetaOnly,
            PoolBatching::Coordinated => Batching::Coordinated,
        },
        queries: vec![(0..queries).map(query).collect()],
    }
}

/// Costs like those of BERT-base on a card of 10 TFLOP/s, in nanoseconds: launches, then tiles of 128 tokens. How many
/// splits are looked at hangs on them.
fn tables() -> Tables {
    let tiles = |batch: u32, tokens: u32| u64::from((batch * tokens).div_ceil(128));
    let shared = |batch, tokens| 900_000 + 2_200_000 * tiles(batch, tokens);
    let task = |kind: u32, batch, tokens| 120_000 + (60_000 + 40_000 * u64::from(kind)) * tiles(batch, tokens);
    Tables::new(MAX_BATCH, MAX_TOKENS, KINDS, shared, task).expect("the limits are sound")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pool_is_split_whole_by_the_rule_that_was_asked_for() {
        let tables: Arc<[Tables]> = Arc::new([tables()]);
        for &batching in PoolBatching::ALL {
            let question = question(&tables, batching, [8, 64], 7, 0);
            assert_eq!(question.batching.rules(&question.queries[0]), [batching]);
            let mut plan = PoolPlan::default();
            Planner::default().answer(&question, 0, &mut plan);
            let mut places: Vec<u32> = plan.batches.iter().flat_map(|of| of.members.iter().map(|m| m.0)).collect();
            places.sort_unstable();
            assert_eq!(places, (0..64).collect::<Vec<_>>(), "{batching}");
        }
        let tasks = |question: &PoolQuestion| {
            let mut tasks: Vec<u32> = question.queries[0].iter().map(|query| query.task).collect();
            tasks.sort_unstable();
            tasks.dedup();
            tasks.len()
        };
        assert_eq!(tasks(&question(&tables, PoolBatching::Fixed, [32, 64], 7, 3)), 32);
    }
}
