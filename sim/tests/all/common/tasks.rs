//! Systems of tasks that share models, on the virtual machine.

use tenantry_core::RunRecord;
use tenantry_core::pet::work::PetSizes;
use tenantry_core::policy::coordinated::Batching;
use tenantry_core::spec::{
    EngineSpec, FineTuned, FullModels, PlanningSpec, Registration, SharedModel, StreamsSpec, SystemSpec, TasksSpec,
};
use tenantry_profiles::{Card, ModelShape, PetKind, PlanRow, PoolBatching, Stats};
use tenantry_traces::Duration;

use super::system;

pub const MEMORY: u64 = 1 << 30;

pub fn shape(name: &str) -> ModelShape {
    ModelShape::builtin(name).expect("it is built in")
}

pub fn registration(task: u32, kind: &str) -> Registration {
    Registration {
        at: format!("registrations[{task}]"),
        task,
        model: "tiny".into(),
        kind: kind.into(),
        trained_on: None,
        mask_elements: None,
        file: None,
    }
}

/// Task `t` is of kind `t % 5`.
pub fn registrations(tasks: u32) -> Vec<Registration> {
    let kind = |task: u32| PetKind::ALL[task as usize % 5].name();
    (0..tasks).map(|task| registration(task, kind(task))).collect()
}

pub fn another(name: &str, shape: ModelShape) -> SharedModel {
    SharedModel {
        name: name.into(),
        shape,
    }
}

pub const SHARED: EngineSpec = EngineSpec::Shared {
    batching: Batching::Coordinated,
    streams: StreamsSpec::Fixed { count: 1 },
};

pub fn tasks(tasks: u32) -> SystemSpec {
    let mut system = system();
    system.pool.tasks = Some(TasksSpec {
        model: "tiny".into(),
        more_models: Vec::new(),
        registrations: registrations(tasks),
        sizes: PetSizes::PAPER,
        engine: SHARED,
        max_batch: 16,
        max_tokens: 64,
        planning: PlanningSpec::Pool {
            size: 4,
            max_wait: None,
        },
    });
    system
}

pub fn of(system: &mut SystemSpec) -> &mut TasksSpec {
    system.pool.tasks.as_mut().expect("it has tasks")
}

pub const BY_KIND: FullModels = FullModels {
    own_embeddings: true,
    fine_tuned: FineTuned::ByKind,
};

/// Two layers of `tiny`, as the synthetic card's table has them: α in microseconds.
pub fn alpha_us(batch: u32, tokens: u32) -> f64 {
    let work = f64::from(batch * tokens);
    5.0 + 0.01 * work + 2.0 * (20.0 + 0.1 * work) + 10.0 + 0.5 * f64::from(batch)
}

/// β of both layers.
pub fn beta_us(k: u32, batch: u32, tokens: u32) -> f64 {
    2.0 * (10.0 + f64::from(k) + 0.002 * f64::from((k + 1) * batch * tokens))
}

/// Splitting a pool takes so many milliseconds, whatever is in it.
pub fn with_planning(mut card: Card, ms: f64) -> Card {
    for &batching in PoolBatching::ALL {
        for (tasks, queries) in [(1, 1), (1, 1024), (1024, 1024)] {
            card.tables.plan.push(PlanRow {
                batching,
                tasks,
                queries,
                stats: Stats::exact(1e3 * ms),
            });
        }
    }
    card
}

pub fn lane_busy(record: &RunRecord, name: &str) -> Duration {
    record.lanes.iter().find(|lane| lane.name == name).expect("there is such a lane").busy
}
