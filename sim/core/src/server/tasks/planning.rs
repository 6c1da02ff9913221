//! Which waiting queries run together, and which batch of a plan is next.

use std::collections::BTreeMap;

use tenantry_traces::{Duration, Time};

use super::latencies::Latencies;
use super::repository::Task;
use crate::ids::RequestId;
use crate::policy::coordinated::{Batching, Planner, Query};

/// A query of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub id: RequestId,
    pub tenant: u32,
    pub task: Task,
    pub tokens: u32,
    pub deadline: Time,
}

/// A batch that has been planned and does not run yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Planned {
    pub model: u16,
    /// Each with the number of its mini-batch, ascending.
    pub members: Vec<(RequestId, u32)>,
    /// The earliest of its members'.
    pub deadline: Time,
}

/// Splits pools into batches.
#[derive(Debug)]
pub(crate) struct PoolPlanner {
    /// Nothing where each batch is of one task.
    batching: Option<Batching>,
    models: u16,
    max_batch: u32,
    planner: Planner,
    queries: Vec<Query>,
}

impl PoolPlanner {
    pub fn new(batching: Option<Batching>, models: u16, max_batch: u32) -> PoolPlanner {
        PoolPlanner {
            batching,
            models,
            max_batch,
            planner: Planner::default(),
            queries: Vec::new(),
        }
    }

    /// The batches of a pool, in the order in which they run if nothing else speaks: those of one model after the other, each
    /// model's shortest first; where batches are of one task, in the order of their oldest queries.
    pub fn plan(&mut self, pool: &[Candidate], latencies: &Latencies) -> Vec<Planned> {
        match self.batching {
            Some(batching) => (0..self.models)
                .flat_map(|model| self.plan_model(model, batching, pool, latencies))
                .collect(),
            None => by_task(pool, self.max_batch as usize),
        }
    }

    fn plan_model(
        &mut self,
        model: u16,
        batching: Batching,
        pool: &[Candidate],
        latencies: &Latencies,
    ) -> Vec<Planned> {
        self.queries.clear();
        let of_model = pool.iter().enumerate().filter(|(_, query)| query.task.model == model);
        self.queries.extend(of_model.map(|(index, query)| Query {
            id: index as u32,
            task: query.tenant,
            kind: latencies.kind(query.task.kind),
            tokens: query.tokens,
        }));
        let plan = self
            .planner
            .plan(latencies.tables(model), batching, &self.queries)
            .expect("queries that are let in have prices");
        let batch = |batch: &crate::policy::coordinated::MacroBatch| {
            let minis = &plan.mini_batches[batch.mini_batches.clone()];
            let members = minis.iter().zip(0..).flat_map(|(mini, number)| {
                let ids = &plan.order[mini.first as usize..(mini.first + mini.count) as usize];
                ids.iter().map(move |&index| (pool[index as usize], number))
            });
            planned(model, members)
        };
        plan.batches.iter().map(batch).collect()
    }
}

fn planned(model: u16, members: impl Iterator<Item = (Candidate, u32)>) -> Planned {
    let mut batch = Planned {
        model,
        members: Vec::new(),
        deadline: Time(u64::MAX),
    };
    for (query, mini) in members {
        batch.deadline = batch.deadline.min(query.deadline);
        batch.members.push((query.id, mini));
    }
    batch
}

/// Each task's queries in batches of up to `max` (SeqS and ParS).
fn by_task(pool: &[Candidate], max: usize) -> Vec<Planned> {
    let mut place: BTreeMap<u32, usize> = BTreeMap::new();
    let mut tasks: Vec<Vec<Candidate>> = Vec::new();
    for query in pool {
        let index = *place.entry(query.tenant).or_insert_with(|| {
            tasks.push(Vec::new());
            tasks.len() - 1
        });
        tasks[index].push(*query);
    }
    let batches = tasks.iter().flat_map(|queries| queries.chunks(max));
    batches
        .map(|queries| planned(queries[0].task.model, queries.iter().map(|query| (*query, 0))))
        .collect()
}

/// When a request is to be answered: its class's target after its arrival, the last target's for classes beyond.
pub(crate) fn deadline(arrival: Time, class: u16, targets: &[Duration]) -> Time {
    let target = targets.get(usize::from(class)).or(targets.last());
    target.map_or(Time(u64::MAX), |target| arrival + *target)
}
