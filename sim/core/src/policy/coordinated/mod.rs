//! Which of a pool's queries run together when tasks share a model (PetS, section 4.1 and Algorithm 1).
//!
//! A batch of `n` queries padded to `l` tokens costs `α[n][l]` for what all tasks share, and `β[kind][n][l]` for the
//! operators of each task's mini-batch in it (Eq. 2). [`Planner::plan`] splits a pool into batches by one of six
//! [`Batching`]s; a [`Plan`] says which queries, in which order, so that every batch and every mini-batch is one
//! contiguous stretch.
//!
//! Both dynamic programs are optimal over *contiguous splits* of queries sorted by length, and each looks at its own
//! table only. The plan is therefore not the cheapest of all: over 300 random pools of 8 queries and 3 tasks, with the
//! tables of `tests.rs`, a coordinated plan costs 0.3 % more than the best of all partitions on average and 7.5 % more
//! at worst, an α-only one 0.2 % and 3.9 % (`the_gap_to_the_best_of_all_partitions` prints them).
//!
//! Two misprints of the paper are mended. Eq. 5 prices a batch by the length of its *first* mini-batch, `L_j`; in
//! ascending order its longest is the last, `L_i`, as in line 23 of Algorithm 1. And batches have a largest size, which
//! activation memory sets: [`Tables::max_batch`].

mod pool;
mod split;
mod tables;

#[cfg(test)]
mod tests;

use std::ops::Range;

use tenantry_profiles::PoolBatching;

pub use pool::{PlannedBatch, PoolPlan, PoolQuestion};
pub use tables::{Tables, TablesError};

/// One waiting request, as batching sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Query {
    /// The caller's name for it; comes back in [`Plan::order`].
    pub id: u32,
    /// Whose parameters it needs.
    pub task: u32,
    /// Index of the task's kind in the β table; the same for all queries of a task.
    pub kind: u32,
    /// Its length, from 1.
    pub tokens: u32,
}

/// How a pool is split into batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Batching {
    /// As they came, `size` at a time (PetS, section 6.4, Fixed-Sized Batching).
    Fixed {
        /// Queries in a batch, at least 1; at most the tables' largest batch are taken.
        size: u32,
    },
    /// Sorted by length and split by what the shared model costs, each query by itself; those of a task in one batch
    /// then run as one mini-batch.
    AlphaOnly,
    /// Each task's queries split by what its operators cost, and each mini-batch run as a batch.
    BetaOnly,
    /// Each task's queries split by what its operators cost, then mini-batches put together by what the shared model
    /// costs (Algorithm 1).
    Coordinated,
    /// Coordinated where lengths differ little, α-only where they differ much (PetS, section 6.4, last sentence).
    ByVariance {
        /// The largest standard deviation of the pool's lengths, in tokens, at which it is coordinated.
        std_tokens_max: f64,
    },
    /// Planned both ways, coordinated and α-only, and run as it takes less by the tables. Not the paper's: which of the
    /// two is better depends on queries a task as much as on lengths.
    Cheaper,
}

impl Batching {
    /// By which of them this pool is planned. Of two plans the one that takes less by the tables is kept, of equals the
    /// first.
    pub fn rules(self, pool: &[Query]) -> &'static [PoolBatching] {
        match self {
            Batching::Fixed { .. } => &[PoolBatching::Fixed],
            Batching::AlphaOnly => &[PoolBatching::AlphaOnly],
            Batching::BetaOnly => &[PoolBatching::BetaOnly],
            Batching::Coordinated => &[PoolBatching::Coordinated],
            Batching::ByVariance { std_tokens_max } if std_tokens(pool) <= std_tokens_max => {
                &[PoolBatching::Coordinated]
            }
            Batching::ByVariance { .. } => &[PoolBatching::AlphaOnly],
            Batching::Cheaper => &[PoolBatching::Coordinated, PoolBatching::AlphaOnly],
        }
    }
}

/// Queries of one task in one batch, which one PET operator serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MiniBatch {
    /// Whose.
    pub task: u32,
    /// Index of the task's kind in the β table.
    pub kind: u32,
    /// Its first query in [`Plan::order`].
    pub first: u32,
    /// How many.
    pub count: u32,
    /// The longest of them.
    pub tokens: u32,
}

/// Mini-batches that run together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MacroBatch {
    /// Its stretch of [`Plan::mini_batches`].
    pub mini_batches: Range<usize>,
    /// Its stretch of [`Plan::order`].
    pub queries: Range<usize>,
    /// The longest query, to which all are padded.
    pub tokens: u32,
    /// What the tables say it takes, one operator after the other (Eq. 2), in nanoseconds.
    pub latency_ns: u64,
}

/// A pool's batches, shortest first except with [`Batching::Fixed`]. Within a batch, mini-batches are ordered by task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Ids of all queries, batch by batch.
    pub order: Vec<u32>,
    /// Mini-batches, batch by batch.
    pub mini_batches: Vec<MiniBatch>,
    /// The batches.
    pub batches: Vec<MacroBatch>,
}

impl Plan {
    /// What all batches take, one after the other (Eq. 3), in nanoseconds.
    pub fn latency_ns(&self) -> u64 {
        self.batches.iter().map(|batch| batch.latency_ns).sum()
    }

    fn clear(&mut self) {
        self.order.clear();
        self.mini_batches.clear();
        self.batches.clear();
    }
}

/// A query that the tables do not price.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("query {id}: {field}: must be {must}, got {got}")]
pub struct QueryError {
    /// The query.
    pub id: u32,
    /// Which of its fields.
    pub field: &'static str,
    /// What it must be.
    pub must: String,
    /// What it is.
    pub got: u32,
}

/// Plans pools one after the other in the same memory: once it has seen the largest pool, nothing is allocated.
#[derive(Clone, Debug, Default)]
pub struct Planner {
    queries: Vec<Query>,
    /// Mini-batches before they have a place in the plan: `first` counts in `queries`.
    minis: Vec<MiniBatch>,
    split: split::Scratch,
    plan: Plan,
    /// Of an earlier rule, where there are two.
    other: Plan,
}

impl Planner {
    /// Splits a pool into batches.
    ///
    /// # Errors
    /// A query that is longer than the tables reach, empty, or of a kind that they do not have.
    ///
    /// # Panics
    /// If a fixed size is 0.
    pub fn plan(&mut self, tables: &Tables, strategy: Batching, pool: &[Query]) -> Result<&Plan, QueryError> {
        for query in pool {
            tables.check(query)?;
        }
        let (first, others) = strategy.rules(pool).split_first().expect("there is a rule");
        self.plan_by(*first, tables, strategy, pool);
        for rule in others {
            std::mem::swap(&mut self.plan, &mut self.other);
            self.plan_by(*rule, tables, strategy, pool);
            if self.other.latency_ns() <= self.plan.latency_ns() {
                std::mem::swap(&mut self.plan, &mut self.other);
            }
        }
        Ok(&self.plan)
    }

    fn plan_by(&mut self, rule: PoolBatching, tables: &Tables, strategy: Batching, pool: &[Query]) {
        self.queries.clear();
        self.queries.extend_from_slice(pool);
        self.minis.clear();
        self.plan.clear();
        match (rule, strategy) {
            (_, Batching::Fixed { size }) => self.fixed(tables, size.min(tables.max_batch()) as usize),
            (PoolBatching::Fixed, _) => unreachable!("only a fixed size is one"),
            (PoolBatching::AlphaOnly, _) => self.alpha_only(tables),
            (PoolBatching::BetaOnly, _) => self.beta_only(tables),
            (PoolBatching::Coordinated, _) => self.coordinated(tables),
        }
    }

    /// Stretches of queries that were priced so far, in all plans: beside sorting, what planning takes.
    pub fn priced(&self) -> u64 {
        self.split.priced
    }

    fn fixed(&mut self, tables: &Tables, size: usize) {
        assert!(size > 0, "batches of no queries");
        for start in (0..self.queries.len()).step_by(size) {
            let end = self.queries.len().min(start + size);
            self.put_by_task(tables, start..end);
        }
    }

    fn alpha_only(&mut self, tables: &Tables) {
        self.queries.sort_unstable_by_key(|query| (query.tokens, query.task, query.id));
        let lengths = self.queries.iter().map(|query| (1, query.tokens));
        self.split.split(lengths, tables.max_batch(), |tokens| tables.shared_row(tokens));
        for index in 0..self.split.stretches.len() {
            let stretch = self.split.stretches[index].clone();
            self.put_by_task(tables, stretch);
        }
    }

    fn beta_only(&mut self, tables: &Tables) {
        self.mini_batches(tables);
        self.minis.sort_unstable_by_key(|mini| (mini.tokens, mini.task, mini.first));
        for index in 0..self.minis.len() {
            self.put(tables, index..index + 1);
        }
    }

    fn coordinated(&mut self, tables: &Tables) {
        self.mini_batches(tables);
        self.minis.sort_unstable_by_key(|mini| (mini.tokens, mini.task, mini.first));
        let sizes = self.minis.iter().map(|mini| (mini.count, mini.tokens));
        self.split.split(sizes, tables.max_batch(), |tokens| tables.shared_row(tokens));
        for index in 0..self.split.stretches.len() {
            let stretch = self.split.stretches[index].clone();
            self.minis[stretch.clone()].sort_unstable_by_key(|mini| (mini.task, mini.first));
            self.put(tables, stretch);
        }
    }

    /// Step 1 of Algorithm 1: each task's queries, ascending by length, split by what its operators cost (Eq. 4).
    fn mini_batches(&mut self, tables: &Tables) {
        self.queries.sort_unstable_by_key(|query| (query.task, query.tokens, query.id));
        let mut first = 0;
        for queries in self.queries.chunk_by(|a, b| a.task == b.task) {
            let (task, kind) = (queries[0].task, queries[0].kind);
            let lengths = queries.iter().map(|query| (1, query.tokens));
            self.split.split(lengths, tables.max_batch(), |tokens| tables.task_row(kind, tokens));
            self.minis.extend(self.split.stretches.iter().map(|stretch| MiniBatch {
                task,
                kind,
                first: first + stretch.start as u32,
                count: stretch.len() as u32,
                tokens: queries[stretch.end - 1].tokens,
            }));
            first += queries.len() as u32;
        }
    }

    /// One batch of a stretch of queries: sorted by task, since the engine serves each task's by one operator.
    fn put_by_task(&mut self, tables: &Tables, stretch: Range<usize>) {
        let queries = &mut self.queries[stretch.clone()];
        queries.sort_unstable_by_key(|query| (query.task, query.tokens, query.id));
        let mut first = stretch.start as u32;
        let minis = self.minis.len();
        for queries in queries.chunk_by(|a, b| a.task == b.task) {
            self.minis.push(MiniBatch {
                task: queries[0].task,
                kind: queries[0].kind,
                first,
                count: queries.len() as u32,
                tokens: queries[queries.len() - 1].tokens,
            });
            first += queries.len() as u32;
        }
        self.put(tables, minis..self.minis.len());
    }

    /// One batch of a stretch of mini-batches.
    fn put(&mut self, tables: &Tables, stretch: Range<usize>) {
        let plan = &mut self.plan;
        let (first_query, first_mini) = (plan.order.len(), plan.mini_batches.len());
        let (mut tokens, mut latency_ns) = (0, 0);
        for mini in &self.minis[stretch] {
            let queries = &self.queries[mini.first as usize..(mini.first + mini.count) as usize];
            plan.mini_batches.push(MiniBatch {
                first: plan.order.len() as u32,
                ..*mini
            });
            plan.order.extend(queries.iter().map(|query| query.id));
            tokens = tokens.max(mini.tokens);
            latency_ns += tables.task_ns(mini.kind, mini.count, mini.tokens);
        }
        let queries = first_query..plan.order.len();
        latency_ns += tables.shared_ns(queries.len() as u32, tokens);
        plan.batches.push(MacroBatch {
            mini_batches: first_mini..plan.mini_batches.len(),
            queries,
            tokens,
            latency_ns,
        });
    }
}

/// Standard deviation of a pool's lengths, in tokens; 0 for an empty one.
pub fn std_tokens(pool: &[Query]) -> f64 {
    let count = pool.len().max(1) as u64;
    let sum: u64 = pool.iter().map(|query| u64::from(query.tokens)).sum();
    let squares: u64 = pool.iter().map(|query| u64::from(query.tokens).pow(2)).sum();
    // In integers until the last step, so that the order of the pool does not matter.
    let scaled = u128::from(count) * u128::from(squares) - u128::from(sum).pow(2);
    (scaled as f64).sqrt() / count as f64
}
