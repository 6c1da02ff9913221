//! Systems of tasks that share models, on the virtual machine.

use tenantry_core::policy::coordinated::Batching;
use tenantry_core::policy::pet_work::PetSizes;
use tenantry_core::spec::{
    EngineSpec, FineTuned, FullModels, PlanningSpec, Registration, SharedModel, StreamsSpec, SystemSpec, TasksSpec,
};
use tenantry_profiles::{ModelShape, PetKind};

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
