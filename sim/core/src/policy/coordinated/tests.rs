//! The splits against brute force, the plans against Eq. 3, and how far they are from the best of all partitions.

use proptest::prelude::*;
use tenantry_traces::draw::{Draws, Purpose, Stream};

use super::*;

/// Tables like a small card's: a floor that launches cost, a part for each token, and steps where a kernel's tile is
/// full.
fn tables(max_batch: u32, kinds: u32) -> Tables {
    let tiles = |batch: u32, tokens: u32| u64::from((batch * tokens).div_ceil(16));
    let shared = |batch, tokens| 6_000 + 2_600 * tiles(batch, tokens);
    let task = |kind: u32, batch, tokens| 1_500 + (300 + 200 * u64::from(kind)) * tiles(batch, tokens);
    Tables::new(max_batch, 64, kinds, shared, task).unwrap()
}

/// Tables without any order in them: nothing that a dynamic program may rely on.
fn wild_tables(seed: u64, max_batch: u32, max_tokens: u32, kinds: u32) -> Tables {
    let draws = Draws::new(seed, Purpose::Jitter);
    let cost = |table: u32, batch: u32, tokens: u32| {
        let key = u64::from(table) << 32 | u64::from(batch) << 16 | u64::from(tokens);
        draws.about(key).below(1000)
    };
    let shared = |batch, tokens| cost(0, batch, tokens);
    Tables::new(max_batch, max_tokens, kinds, shared, |kind, batch, tokens| {
        cost(kind + 1, batch, tokens)
    })
    .unwrap()
}

/// Queries of `tasks` tasks whose lengths are normal about 32, as in PetS, section 6.4.
fn pool(stream: &mut Stream, queries: u32, tasks: u32, kinds: u32, std: f64) -> Vec<Query> {
    let query = |id| {
        let task = stream.below(tasks.into()) as u32;
        let tokens = (32.0 + std * stream.normal()).round().clamp(1.0, 64.0) as u32;
        Query {
            id,
            task,
            kind: task % kinds,
            tokens,
        }
    };
    (0..queries).map(query).collect()
}

/// The cheapest of all contiguous splits, by trying each of them.
fn brute_force_split(items: &[(u32, u32)], max: u32, cost: &dyn Fn(u32, u32) -> u64) -> u64 {
    let count = items.len();
    let mut least = u64::MAX;
    for cuts in 0u32..1 << (count - 1) {
        let (mut total, mut size, mut fits) = (0, 0, true);
        for (index, &(queries, tokens)) in items.iter().enumerate() {
            size += queries;
            fits &= size <= max;
            if fits && (index + 1 == count || cuts & (1 << index) != 0) {
                total += cost(size, tokens);
                size = 0;
            }
        }
        if fits {
            least = least.min(total);
        }
    }
    least
}

/// Every query is in one batch, stretches are contiguous, and the plan says what Eq. 3 says.
fn check(plan: &Plan, tables: &Tables, pool: &[Query]) -> Result<(), TestCaseError> {
    let mut ids = plan.order.clone();
    ids.sort_unstable();
    let mut expected: Vec<u32> = pool.iter().map(|query| query.id).collect();
    expected.sort_unstable();
    prop_assert_eq!(ids, expected);
    let query = |id: u32| pool.iter().find(|query| query.id == id).unwrap();
    let (mut next_mini, mut next_query, mut total) = (0, 0, 0);
    for batch in &plan.batches {
        prop_assert_eq!((batch.mini_batches.start, batch.queries.start), (next_mini, next_query));
        let (mut count, mut longest, mut task) = (0, 0, 0);
        for mini in &plan.mini_batches[batch.mini_batches.clone()] {
            prop_assert_eq!(mini.first as usize, next_query);
            let members = &plan.order[next_query..next_query + mini.count as usize];
            prop_assert!(members.iter().all(|&id| (query(id).task, query(id).kind) == (mini.task, mini.kind)));
            prop_assert_eq!(members.iter().map(|&id| query(id).tokens).max(), Some(mini.tokens));
            prop_assert!(mini.task >= task, "mini-batches are ordered by task");
            task = mini.task;
            next_query += members.len();
            count += mini.count;
            longest = longest.max(mini.tokens);
            total += tables.task_ns(mini.kind, mini.count, mini.tokens);
        }
        prop_assert!(count <= tables.max_batch());
        prop_assert_eq!((batch.queries.end, batch.tokens), (next_query, longest));
        total += tables.shared_ns(count, longest);
        next_mini = batch.mini_batches.end;
    }
    prop_assert_eq!(next_query, pool.len());
    prop_assert_eq!(plan.latency_ns(), total);
    Ok(())
}

const BATCHINGS: [Batching; 6] = [
    Batching::Fixed { size: 5 },
    Batching::AlphaOnly,
    Batching::BetaOnly,
    Batching::Coordinated,
    Batching::ByVariance { std_tokens_max: 3.0 },
    Batching::Cheaper,
];

proptest! {
    #[test]
    fn a_split_is_the_cheapest_of_all_contiguous_ones(
        seed: u64, counts in prop::collection::vec(1u32..4, 1..10), steps in prop::collection::vec(0u32..3, 10), max in 3u32..20,
    ) {
        let tables = wild_tables(seed, max, 40, 1);
        let mut tokens = 1;
        let items: Vec<(u32, u32)> = counts
            .iter()
            .zip(steps)
            .map(|(&count, step)| {
                tokens += step;
                (count, tokens)
            })
            .collect();
        let mut scratch = split::Scratch::default();
        for table in 0..2 {
            let row = |tokens| if table == 0 { tables.shared_row(tokens) } else { tables.task_row(0, tokens) };
            scratch.split(items.iter().copied(), max, row);
            let cost = |size: u32, tokens: u32| row(tokens).ns[size as usize];
            prop_assert_eq!(scratch.cost(), brute_force_split(&items, max, &cost));
            // What it says it costs is what its stretches cost.
            let total: u64 = scratch.stretches.iter().map(|stretch| {
                let members = &items[stretch.clone()];
                cost(members.iter().map(|item| item.0).sum(), members.last().unwrap().1)
            }).sum();
            prop_assert_eq!(total, scratch.cost());
        }
    }

    #[test]
    fn every_plan_is_whole_and_priced_by_the_tables(
        seed: u64, queries in 0u32..60, tasks in 1u32..12, kinds in 1u32..4, std in 0.0f64..12.0, max in 1u32..40, wild: bool,
    ) {
        let mut stream = Draws::new(seed, Purpose::InputLength).about(0);
        let pool = pool(&mut stream, queries, tasks, kinds, std);
        let tables = if wild { wild_tables(seed, max, 64, kinds) } else { tables(max, kinds) };
        let mut planner = Planner::default();
        for strategy in BATCHINGS {
            let plan = planner.plan(&tables, strategy, &pool).unwrap().clone();
            check(&plan, &tables, &pool)?;
            // Memory of an earlier plan changes nothing.
            prop_assert_eq!(planner.plan(&tables, strategy, &pool).unwrap(), &plan);
            let mut fresh = Planner::default();
            prop_assert_eq!(fresh.plan(&tables, strategy, &pool).unwrap(), &plan);
        }
    }

    /// The steps of Algorithm 1 as the planner puts them together: each task's queries split at the least of its own
    /// operators' cost, and queries or mini-batches, ascending by length, at the least of the shared model's.
    #[test]
    fn each_step_of_a_plan_is_the_cheapest_of_all_contiguous_splits(
        seed: u64, queries in 1u32..13, tasks in 1u32..4, std in 0.0f64..6.0, max in 2u32..8,
    ) {
        let mut stream = Draws::new(seed, Purpose::InputLength).about(0);
        let pool = pool(&mut stream, queries, tasks, 2, std);
        let tables = wild_tables(seed, max, 64, 2);
        let lengths = |of: &dyn Fn(&Query) -> bool| {
            let mut lengths: Vec<(u32, u32)> = pool.iter().filter(|query| of(query)).map(|query| (1, query.tokens)).collect();
            lengths.sort_unstable();
            lengths
        };
        let shared = |size, tokens| tables.shared_ns(size, tokens);
        let shared_of = |plan: &Plan| -> u64 {
            plan.batches.iter().map(|batch| shared(batch.queries.len() as u32, batch.tokens)).sum()
        };
        let mut planner = Planner::default();
        let plan = planner.plan(&tables, Batching::AlphaOnly, &pool).unwrap();
        prop_assert_eq!(shared_of(plan), brute_force_split(&lengths(&|_| true), max, &shared));
        for strategy in [Batching::BetaOnly, Batching::Coordinated] {
            let plan = planner.plan(&tables, strategy, &pool).unwrap();
            for task in 0..tasks {
                let own = lengths(&|query| query.task == task);
                let cost = |size, tokens| tables.task_ns(task % 2, size, tokens);
                let found: u64 = plan.mini_batches.iter()
                    .filter(|mini| mini.task == task)
                    .map(|mini| cost(mini.count, mini.tokens))
                    .sum();
                prop_assert_eq!(found, if own.is_empty() { 0 } else { brute_force_split(&own, max, &cost) });
            }
        }
        let plan = planner.plan(&tables, Batching::Coordinated, &pool).unwrap();
        let least = |mini: &MiniBatch| {
            let members = &plan.order[mini.first as usize..(mini.first + mini.count) as usize];
            let of = |id: &u32| pool.iter().find(|query| query.id == *id).map(|query| (query.tokens, query.id));
            members.iter().filter_map(of).min()
        };
        let mut minis: Vec<&MiniBatch> = plan.mini_batches.iter().collect();
        minis.sort_by_key(|mini| (mini.tokens, mini.task, least(mini)));
        let sizes: Vec<(u32, u32)> = minis.iter().map(|mini| (mini.count, mini.tokens)).collect();
        prop_assert_eq!(shared_of(plan), brute_force_split(&sizes, max, &shared));
    }

    /// Of both plans the one that takes less by the tables, and coordinated of equals.
    #[test]
    fn the_cheaper_of_two_plans_is_kept(seed: u64, queries in 0u32..60, tasks in 1u32..12, std in 0.0f64..12.0, wild: bool) {
        let mut stream = Draws::new(seed, Purpose::InputLength).about(0);
        let pool = pool(&mut stream, queries, tasks, 2, std);
        let tables = if wild { wild_tables(seed, 16, 64, 2) } else { tables(16, 2) };
        let mut planner = Planner::default();
        let [coordinated, alpha] = [Batching::Coordinated, Batching::AlphaOnly]
            .map(|strategy| planner.plan(&tables, strategy, &pool).unwrap().clone());
        let cheaper = planner.plan(&tables, Batching::Cheaper, &pool).unwrap();
        let expected = if alpha.latency_ns() < coordinated.latency_ns() { alpha } else { coordinated };
        prop_assert_eq!(cheaper, &expected);
    }

    #[test]
    fn the_order_of_the_pool_changes_nothing_but_fixed_batches(seed: u64, queries in 1u32..40) {
        let mut stream = Draws::new(seed, Purpose::InputLength).about(0);
        let pool = pool(&mut stream, queries, 5, 2, 6.0);
        let reversed: Vec<Query> = pool.iter().rev().copied().collect();
        let tables = tables(16, 2);
        let mut planner = Planner::default();
        for strategy in &BATCHINGS[1..] {
            let plan = planner.plan(&tables, *strategy, &pool).unwrap().clone();
            prop_assert_eq!(planner.plan(&tables, *strategy, &reversed).unwrap(), &plan);
        }
    }
}

#[test]
fn a_batch_is_priced_by_its_longest() {
    // With `L_j` in Eq. 5 one batch of both would seem to cost 1 + 2, and be chosen; it costs 200.
    let tables = Tables::new(
        2,
        100,
        1,
        |batch, tokens| u64::from(batch) + if tokens > 10 { 98 * u64::from(batch) } else { 0 },
        |_, _, _| 0,
    )
    .unwrap();
    let pool = [10, 100].map(|tokens| Query {
        id: tokens,
        task: tokens,
        kind: 0,
        tokens,
    });
    let mut planner = Planner::default();
    let plan = planner.plan(&tables, Batching::Coordinated, &pool).unwrap();
    assert_eq!((plan.batches.len(), plan.latency_ns()), (2, 1 + 99));
}

#[test]
fn variance_picks_the_strategy() {
    let lengths = |lengths: &[u32]| -> Vec<Query> {
        let query = |(id, &tokens): (usize, &u32)| Query {
            id: id as u32,
            task: id as u32 % 2,
            kind: 0,
            tokens,
        };
        lengths.iter().enumerate().map(query).collect()
    };
    assert_eq!(std_tokens(&lengths(&[2, 4, 4, 4, 5, 5, 7, 9])), 2.0);
    assert_eq!(std_tokens(&[]), 0.0);
    let tables = wild_tables(5, 8, 64, 1);
    let mut planner = Planner::default();
    let mut plan = |strategy, pool: &[Query]| planner.plan(&tables, strategy, pool).unwrap().clone();
    let rule = Batching::ByVariance { std_tokens_max: 2.0 };
    for (pool, picks, other) in [
        (
            lengths(&[2, 4, 4, 4, 5, 5, 7, 9]),
            Batching::Coordinated,
            Batching::AlphaOnly,
        ),
        (
            lengths(&[2, 4, 20, 21, 40, 41, 60, 64]),
            Batching::AlphaOnly,
            Batching::Coordinated,
        ),
    ] {
        assert_eq!(plan(rule, &pool), plan(picks, &pool));
        assert_ne!(plan(picks, &pool), plan(other, &pool), "the pool tells the two apart");
    }
}

/// Neither rule is always the cheaper: two tasks of like lengths are the better for coordinated batching, of different
/// lengths for α-only.
#[test]
fn either_plan_may_be_the_cheaper() {
    let query = |id: u32, tokens| Query {
        id,
        task: id % 2,
        kind: 0,
        tokens,
    };
    // A launch for each of a task's mini-batches, and the shared model's padding: 16 tokens are as dear as a launch.
    let tables = Tables::new(8, 64, 1, |batch, tokens| u64::from(batch * tokens), |_, _, _| 16).unwrap();
    let mut planner = Planner::default();
    let mut latencies = |lengths: [u32; 4]| {
        let pool: Vec<Query> = (0..).zip(lengths).map(|(id, tokens)| query(id, tokens)).collect();
        [Batching::Coordinated, Batching::AlphaOnly, Batching::Cheaper]
            .map(|strategy| planner.plan(&tables, strategy, &pool).unwrap().latency_ns())
    };
    // Coordinated: each task's four and five tokens padded to five, two launches. α-only: nothing padded, a launch for
    // each query.
    assert_eq!(latencies([4, 4, 5, 5]), [20 + 32, 18 + 64, 52]);
    // Each task's queries of 4 and 64 tokens are one mini-batch, padded to 64: what that saves of launches is less.
    assert_eq!(latencies([4, 4, 64, 64]), [256 + 32, 136 + 64, 200]);
}

#[test]
fn what_the_tables_do_not_price_is_refused() {
    let query = |tokens, kind| Query {
        id: 9,
        task: 0,
        kind,
        tokens,
    };
    let mut planner = Planner::default();
    let mut refused = |query| {
        let pool = [query];
        let error = planner.plan(&tables(4, 2), Batching::Coordinated, &pool).unwrap_err();
        error.to_string()
    };
    assert_eq!(refused(query(65, 0)), "query 9: tokens: must be from 1 to 64, got 65");
    assert_eq!(refused(query(0, 0)), "query 9: tokens: must be from 1 to 64, got 0");
    assert_eq!(refused(query(5, 2)), "query 9: kind: must be below 2, got 2");
    let error = Tables::new(0, 1, 1, |_, _| 1, |_, _, _| 1).unwrap_err();
    assert_eq!(error.to_string(), "max_batch: must be at least 1, got 0");
    let error = Tables::new(u32::MAX, u32::MAX, 1, |_, _| 1, |_, _, _| 1).unwrap_err();
    assert!(
        error.to_string().ends_with("must be at most 268435456, got 18446744073709551615"),
        "{error}"
    );
}

/// The least that any partition into batches, and of each task's queries in a batch into mini-batches, costs by Eq. 3.
/// Every subset is tried, so pools must be small.
fn best_of_all_partitions(tables: &Tables, pool: &[Query]) -> u64 {
    let sets = 1usize << pool.len();
    let members = |set: usize| (0..pool.len()).filter(move |index| set >> index & 1 == 1).map(|index| &pool[index]);
    let longest = |set| members(set).map(|query| query.tokens).max().unwrap();
    // Subsets of `set` that hold its lowest member: each partition is found once.
    let parts = |set: usize| {
        let lowest = set & set.wrapping_neg();
        let rest = set ^ lowest;
        let mut part = Some(rest);
        std::iter::from_fn(move || {
            let this = part?;
            part = (this > 0).then(|| (this - 1) & rest);
            Some(this | lowest)
        })
    };
    let cheapest_partition = |cost: &dyn Fn(usize) -> Option<u64>| -> Vec<u64> {
        let mut best = vec![0; sets];
        for set in 1..sets {
            let of_part = |part: usize| cost(part).map(|cost| cost + best[set ^ part]);
            best[set] = parts(set).filter_map(of_part).min().unwrap_or(u64::MAX >> 8);
        }
        best
    };
    let mini = |set: usize| {
        let (task, kind) = members(set).next().map(|query| (query.task, query.kind)).unwrap();
        let one_task = members(set).all(|query| query.task == task);
        one_task.then(|| tables.task_ns(kind, set.count_ones(), longest(set)))
    };
    let operators = cheapest_partition(&mini);
    let batch = |set: usize| {
        let fits = set.count_ones() <= tables.max_batch();
        fits.then(|| tables.shared_ns(set.count_ones(), longest(set)) + operators[set])
    };
    cheapest_partition(&batch)[sets - 1]
}

#[test]
fn the_gap_to_the_best_of_all_partitions() {
    let tables = tables(8, 2);
    let mut planner = Planner::default();
    let strategies = [
        (Batching::Coordinated, "coordinated", ["0.3 %", "8.0 %"]),
        (Batching::AlphaOnly, "α-only", ["0.3 %", "3.9 %"]),
    ];
    for (strategy, name, stated) in strategies {
        let mut gaps = Vec::new();
        for case in 0..300 {
            let mut stream = Draws::new(3, Purpose::InputLength).about(case);
            let pool = pool(&mut stream, 8, 3, 2, 1.0 + (case % 8) as f64);
            let best = best_of_all_partitions(&tables, &pool);
            let found = planner.plan(&tables, strategy, &pool).unwrap().latency_ns();
            assert!(found >= best, "no plan is cheaper than the best of all");
            gaps.push(found as f64 / best as f64 - 1.0);
        }
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let worst = gaps.iter().copied().fold(0.0, f64::max);
        assert!(worst > 0.0, "neither program is optimal over all partitions");
        // docs/reproduce.md says how far.
        let found = [mean, worst].map(|gap| format!("{:.1} %", 100.0 * gap));
        assert_eq!(found, stated, "{name}");
    }
}

/// Stretches that a plan prices.
fn priced(max_batch: u32, batching: Batching, queries: u32, tasks: u32) -> u64 {
    let mut stream = Draws::new(11, Purpose::InputLength).about(u64::from(queries));
    let pool = pool(&mut stream, queries, tasks, 5, 4.0);
    let mut planner = Planner::default();
    planner.plan(&tables(max_batch, 5), batching, &pool).unwrap();
    planner.priced()
}

/// Algorithm 1 takes the first beginning of a stretch that costs the least, lines 10 to 13 and 21 to 24: where splits
/// cost the same, the one into fewer.
#[test]
fn of_equally_cheap_splits_the_one_into_fewest_is_taken() {
    let in_proportion: Vec<u64> = (0..=8).map(|size| 100 * size).collect();
    let row = |_| split::CostRow {
        ns: &in_proportion,
        least_from_ns: &in_proportion,
    };
    let split = |queries: usize| {
        let mut scratch = split::Scratch::default();
        scratch.split(std::iter::repeat_n((1, 10), queries), 8, row);
        scratch.stretches.iter().map(ExactSizeIterator::len).collect::<Vec<_>>()
    };
    assert_eq!(split(8), [8]);
    assert_eq!(split(12), [4, 8]);
}

/// What planning 1,024 queries to 128 tasks takes, without a clock: each stretch priced is a look-up, a sum and a
/// comparison. There are 524,800 stretches of one sequence of 1,024, 122,944 of up to 128 queries; pruning (a stretch
/// is not grown once no larger one can be cheaper) leaves those that are stated, which a run of these pools and tables
/// counted. `sim/benches/coordinated.rs` says what they take.
#[test]
fn pruning_leaves_no_more_stretches_to_price_than_it_did() {
    let counted = [
        (Batching::AlphaOnly, 128, 122_743),
        (Batching::AlphaOnly, 1024, 466_640),
        (Batching::BetaOnly, 128, 5_103),
        (Batching::Coordinated, 128, 7_922),
        (Batching::Coordinated, 1024, 16_538),
    ];
    let found = counted.map(|(batching, max_batch, _)| priced(max_batch, batching, 1024, 128));
    for ((batching, max_batch, most), found_one) in counted.into_iter().zip(found) {
        assert!(
            found_one <= most,
            "{batching:?}, batches of {max_batch}: {found_one} of {found:?}"
        );
    }
}

/// With a limit on batches, twice the queries are twice the work.
#[test]
fn planning_grows_in_step_with_the_pool() {
    for batching in [Batching::AlphaOnly, Batching::Coordinated] {
        let each = |queries: u32| priced(64, batching, queries, queries / 8) as f64 / f64::from(queries);
        let growth = each(4096) / each(512);
        assert!((0.8..1.25).contains(&growth), "{batching:?}: {growth}");
    }
}
