//! Which waiting queries run together: the question that a pool is, and what its plan comes to when it has been made.

use std::collections::BTreeMap;

use tenantry_traces::{Duration, Time};

use super::latencies::Latencies;
use super::repository::Task;
use crate::ids::RequestId;
use crate::op::PlanPool;
use crate::policy::coordinated::{Batching, PlannedBatch, PoolPlan, PoolQuestion, Query};

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
    /// Whether all of its members are lost, whenever it runs; and the earliest deadline of those that are not, or else
    /// of all.
    pub due: (bool, Time),
    /// The place in its pool of the first that came of them.
    pub first: u32,
}

/// A pool as a question, and an op for each shared model that has queries in it; `pool` is the question's place among
/// the commands'.
pub(crate) fn question(
    batching: Batching,
    pool: &[Candidate],
    latencies: &Latencies,
    place: u32,
) -> (PoolQuestion, Vec<PlanPool>) {
    let tables = latencies.all_tables();
    let mut queries: Vec<Vec<Query>> = vec![Vec::new(); tables.len()];
    for (index, query) in pool.iter().enumerate() {
        queries[usize::from(query.task.model)].push(Query {
            id: index as u32,
            task: query.tenant,
            kind: latencies.kind(query.task.kind),
            tokens: query.tokens,
        });
    }
    let mut tasks = Vec::new();
    let of_model = (0..).zip(&queries).filter(|(_, queries)| !queries.is_empty());
    let ops = of_model.map(|(model, queries)| {
        tasks.clear();
        tasks.extend(queries.iter().map(|query| query.task));
        tasks.sort_unstable();
        tasks.dedup();
        PlanPool {
            pool: place,
            model,
            rules: batching.rules(queries),
            tasks: tasks.len() as u32,
            queries: queries.len() as u32,
        }
    });
    let ops = ops.collect();
    let question = PoolQuestion {
        tables,
        batching,
        queries,
    };
    (question, ops)
}

/// Each task's queries in batches of up to `max`, in the order of their oldest (SeqS and ParS).
pub(crate) fn by_task(pool: &[Candidate], max: usize) -> PoolPlan {
    let mut place: BTreeMap<u32, usize> = BTreeMap::new();
    let mut tasks: Vec<Vec<u32>> = Vec::new();
    for (index, query) in (0..).zip(pool) {
        let of_task = *place.entry(query.tenant).or_insert_with(|| {
            tasks.push(Vec::new());
            tasks.len() - 1
        });
        tasks[of_task].push(index);
    }
    let batch = |places: &[u32]| PlannedBatch {
        model: pool[places[0] as usize].task.model,
        members: places.iter().map(|&place| (place, 0)).collect(),
    };
    PoolPlan {
        batches: tasks.iter().flat_map(|places| places.chunks(max)).map(batch).collect(),
    }
}

/// The only query of a pool: there is nothing to be planned.
pub(crate) fn alone(query: &Candidate) -> PoolPlan {
    PoolPlan {
        batches: vec![PlannedBatch {
            model: query.task.model,
            members: vec![(0, 0)],
        }],
    }
}

/// A plan's batches without queries that have left meanwhile; those of which none is left are left out. `is_lost` is
/// said of a query that cannot be answered by its deadline any more.
pub(crate) fn planned(
    plan: &PoolPlan,
    pool: &[Candidate],
    is_there: impl Fn(RequestId) -> bool,
    is_lost: impl Fn(&Candidate) -> bool,
) -> Vec<Planned> {
    let batch = |batch: &PlannedBatch| {
        let mut planned = Planned {
            model: batch.model,
            members: Vec::new(),
            due: (true, Time(u64::MAX)),
            first: u32::MAX,
        };
        for &(place, mini) in &batch.members {
            let query = &pool[place as usize];
            if is_there(query.id) {
                planned.due = planned.due.min((is_lost(query), query.deadline));
                planned.first = planned.first.min(place);
                planned.members.push((query.id, mini));
            }
        }
        (!planned.members.is_empty()).then_some(planned)
    };
    plan.batches.iter().filter_map(batch).collect()
}

/// When a request is to be answered: its class's target after its arrival, the last target's for classes beyond.
pub(crate) fn deadline(arrival: Time, class: u16, targets: &[Duration]) -> Time {
    let target = targets.get(usize::from(class)).or(targets.last());
    target.map_or(Time(u64::MAX), |target| arrival + *target)
}

#[cfg(test)]
mod tests {
    use tenantry_profiles::testing::synthetic_card;
    use tenantry_profiles::{ModelShape, PetKind};
    use tenantry_traces::Request;

    use super::super::TaskServer;
    use crate::command::Commands;
    use crate::event::Event;
    use crate::pet::work::PetSizes;
    use crate::spec::{EngineSpec, FineTuned, FullModels, PlanningSpec, PoolSpec, Registration, TasksSpec};
    use crate::testing;
    use tenantry_traces::Time;

    /// Full models of four tasks, a batch of one query for each, of which two are submitted ahead.
    fn server() -> TaskServer {
        let registration = |task| Registration {
            at: "tasks".into(),
            task,
            model: "tiny".into(),
            kind: PetKind::BitFit.name().into(),
            trained_on: None,
            mask_elements: None,
            file: None,
        };
        let models = FullModels {
            own_embeddings: true,
            fine_tuned: FineTuned::ByKind,
        };
        let tasks = TasksSpec {
            model: "tiny".into(),
            more_models: Vec::new(),
            registrations: (0..4).map(registration).collect(),
            sizes: PetSizes::PAPER,
            engine: EngineSpec::Sequential { models },
            max_batch: 16,
            max_tokens: 64,
            planning: PlanningSpec::Pool {
                size: 4,
                max_wait: None,
            },
        };
        let system = testing::system(PoolSpec {
            model: ModelShape::builtin("tiny").unwrap(),
            ..testing::pool("pool")
        });
        TaskServer::new(&synthetic_card(), &testing::cluster(1, 1 << 30), &system, &tasks, 4).unwrap()
    }

    /// Whoever gives up is not looked for among all who are planned, of whom there may be many thousands: their plan
    /// stays as it was, and whose turn comes is passed over.
    #[test]
    fn who_leaves_is_not_looked_for_in_the_plan() {
        let (mut server, mut commands) = (server(), Commands::default());
        for ticket in 0..4 {
            let request = Request {
                ticket,
                tenant: ticket as u32,
                arrival: Time(0),
                input_tokens: 8,
                output_tokens: 0,
                class: 0,
            };
            server.handle(Time(0), &Event::Arrived(request), &mut commands);
        }
        let planned = |server: &TaskServer| server.instances[0].planned.clone();
        let before = planned(&server);
        assert_eq!(before.len(), 2);
        for (ticket, waiting) in [(2, 1), (3, 0)] {
            server.handle(Time(1), &Event::Cancelled(ticket), &mut commands);
            assert_eq!((planned(&server), server.waiting), (before.clone(), waiting));
            server.check_laws(Time(1)).unwrap();
        }
    }
}
