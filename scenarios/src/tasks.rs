//! From the raw `tasks:` of a system to a [`TasksSpec`], and from `tenants.kinds` to its registrations.

use tenantry_core::command::TaskFault;
use tenantry_core::pet::work::PetSizes;
use tenantry_core::policy::coordinated::Batching;
use tenantry_core::spec::{
    EngineSpec, FineTuned, FullModels, PlanningSpec, PoolSpec, Registration, SharedModel, StreamsSpec, SystemSpec,
    TaskFile, TasksSpec,
};
use tenantry_profiles::{DType, ModelKind, ModelShape, PetKind};
use tenantry_traces::Duration;
use tenantry_traces::generate::TenantGroups;
use tenantry_traces::spec::WorkloadSpec;

use crate::error::Problem;
use crate::models::Models;
use crate::path::Path;
use crate::raw::*;
use crate::rules::Rules;
use crate::scalar::Count;
use crate::system_rules;
use crate::task_files::{StoredTask, Unread};

/// A group of `tenants.kinds`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TaskKind {
    /// The shared model, where it is not the system's own.
    model: Option<SharedModel>,
    kind: String,
}

/// The groups of `tenants.kinds`, where a system has tasks.
pub(crate) fn kinds(raw: &RawScenario, models: &Models<'_>, problems: &mut Vec<Problem>) -> Vec<TaskKind> {
    if raw.systems.iter().all(|system| system.tasks.is_none()) {
        return Vec::new();
    }
    let path = Path::default().key("tenants").key("kinds");
    let RawGroups::Named(groups) = &raw.tenants.kinds else {
        problems.push(Problem::new(path, "a mapping of kinds of tasks to shares", "a number"));
        return Vec::new();
    };
    if groups.is_empty() {
        problems.push(Problem::new(path.clone(), "given, since a system has tasks", "nothing"));
    }
    let mut kind = |(name, _): &(String, _)| -> Option<TaskKind> {
        let (model, kind) = match name.split_once('/') {
            Some((model, kind)) => (Some(model), kind),
            None => (None, name.as_str()),
        };
        if !PetKind::NAMES.contains(&kind) {
            problems.push(Problem::unknown_name(
                path.key(name),
                kind,
                PetKind::NAMES.iter().copied(),
            ));
            return None;
        }
        let model = match model.map(|model| shared(raw, models, model, path.key(name))) {
            None => None,
            Some(Ok(model)) => Some(model),
            Some(Err(problem)) => {
                problems.extend(problem);
                return None;
            }
        };
        Some(TaskKind {
            model,
            kind: kind.to_owned(),
        })
    };
    groups.iter().filter_map(&mut kind).collect()
}

/// A shared model, known by its key of `models`. A built-in model's own name means the one key that stands for it, or
/// where none does a model of that name: keys of one shape are models with weights of their own.
fn shared(raw: &RawScenario, models: &Models<'_>, name: &str, path: Path) -> Result<SharedModel, Option<Problem>> {
    let shape = models.find(name, path.clone())?;
    let stands_for_it = |model: &RawModel| matches!(model, RawModel::Builtin(builtin) if builtin == name);
    let keys: Vec<&str> = match raw.models.contains_key(name) {
        true => vec![name],
        false => raw
            .models
            .iter()
            .filter(|(_, model)| stands_for_it(model))
            .map(|(key, _)| key.as_str())
            .collect(),
    };
    let name = match keys.as_slice() {
        [] => name,
        [key] => key,
        several => {
            let must = format!("one of {}, which are all of this shape", several.join(", "));
            return Err(Some(Problem::new(path, must, name)));
        }
    };
    Ok(SharedModel {
        name: name.to_owned(),
        shape,
    })
}

/// What `system.tasks` means. Registrations of `tenants.kinds` come with each run, since they depend on its seed.
pub(crate) fn resolve(
    system: &RawSystem,
    model: &ModelShape,
    raw: &RawScenario,
    path: &Path,
    kinds: &[TaskKind],
    models: &Models<'_>,
    problems: &mut Vec<Problem>,
) -> Option<TasksSpec> {
    let tasks = system.tasks.as_ref()?;
    check_system(system, Rules::below(path, problems));
    let in_system = path;
    let own = match shared(raw, models, &system.model, path.key("model")) {
        Ok(own) => own.name,
        Err(problem) => {
            problems.extend(problem);
            system.model.clone()
        }
    };
    let path = path.key("tasks");
    let mut more_models: Vec<SharedModel> = Vec::new();
    for model in kinds.iter().filter_map(|kind| kind.model.as_ref()) {
        if model.name != own && !more_models.contains(model) {
            more_models.push(model.clone());
        }
    }
    for shape in std::iter::once(model).chain(more_models.iter().map(|more| &more.shape)) {
        check_model(shape, tasks.max_tokens.0, Rules::below(in_system, problems));
    }
    check_plan(tasks, Rules::below(&path, problems));
    let looked_at = match &tasks.planning {
        RawPlanning::Pool { size, .. } => (size.0, "planning.pool.size"),
        RawPlanning::Online { window, .. } => (window.0, "planning.online.window"),
    };
    for (queries, key) in [looked_at, (tasks.max_batch.0, "max_batch")] {
        system_rules::batch_tokens(queries, tasks.max_tokens.0, key, Rules::below(&path, problems));
    }
    for name in system.files.models.keys() {
        if !more_models.iter().any(|model| model.name == *name) {
            let path = in_system.key("files").key("models").key(name);
            let known = more_models.iter().map(|model| model.name.as_str());
            problems.push(match more_models.is_empty() {
                true => Problem::new(path, "left out here: all tasks share the model of files.model", name),
                false => Problem::unknown_name(path, name, known),
            });
        }
    }
    let registrations = tasks.registrations.iter().enumerate();
    let registrations = registrations.filter_map(|(index, registration)| {
        let path = path.key("registrations").index(index);
        match registration_of(registration, &own, system.classes.0, raw, models, &path) {
            Ok(registration) => Some(registration),
            Err(problem) => {
                problems.extend(problem);
                None
            }
        }
    });
    Some(TasksSpec {
        registrations: registrations.collect(),
        model: own,
        more_models,
        sizes: PetSizes {
            bottleneck: tasks.sizes.bottleneck.0,
            rank: tasks.sizes.rank.0,
            masked_share: f64::from(tasks.sizes.masked.ppm()) / 1e6,
            difference_share: f64::from(tasks.sizes.differences.ppm()) / 1e6,
        },
        engine: engine_of(tasks.engine),
        max_batch: tasks.max_batch.0,
        max_tokens: tasks.max_tokens.0,
        planning: match &tasks.planning {
            RawPlanning::Pool { size, max_wait } => PlanningSpec::Pool {
                size: size.0,
                max_wait: max_wait.map(|wait| wait.0),
            },
            RawPlanning::Online { window, targets } => PlanningSpec::Online {
                window: window.0,
                targets: targets.iter().map(|target| target.0).collect(),
            },
        },
    })
}

/// What a system with tasks does not have beside them.
fn check_system(system: &RawSystem, mut rules: Rules<'_>) {
    let mut left_out = |key: &str, given: bool| {
        rules.left_out(
            given,
            key,
            "where a system has tasks, which say it themselves",
            "something",
        );
    };
    left_out("batch", system.batch.is_some());
    left_out("pipeline", system.pipeline.is_some());
    left_out("generation", system.generation.is_some());
    left_out("plot", system.plot.is_some());
    left_out("cascade", system.cascade.is_some());
    left_out("padding", system.padding != RawPadding::Longest);
    left_out("instances_per_gpu", system.instances_per_gpu.0 != 1);
    left_out("swap", system.swap != RawSwap::default());
    let must = "least-loaded or round-robin where a system has tasks: an encoder keeps nothing of a query";
    let by_working_set = system.place == RawPlace::LargestWorkingSet;
    rules.hold(!by_working_set, "place", must, "largest-working-set");
    let head = system.tenant_state == RawTenantState::Head;
    let must = "head (nothing beside what tasks says) where a system has tasks";
    rules.hold(head, "tenant_state", must, "another");
    let must = "f32 where a system has tasks: their operators are single-precision";
    rules.hold(system.dtype == DType::F32, "dtype", must, system.dtype);
}

/// What must hold of a model that tasks share.
fn check_model(shape: &ModelShape, max_tokens: u32, mut rules: Rules<'_>) {
    let got = format!("{}, a decoder", shape.name);
    rules.hold(shape.kind != ModelKind::Decoder, "tasks", "tasks on encoders", got);
    let must = format!("at most {}, the longest input of model {}", shape.positions, shape.name);
    rules.hold(max_tokens <= shape.positions, "tasks.max_tokens", must, max_tokens);
}

/// What must hold between how tasks are batched, computed and planned.
fn check_plan(tasks: &RawTasks, mut rules: Rules<'_>) {
    check_streams(tasks, &mut rules);
    if let RawEngine::Shared {
        batching: RawBatching::Fixed { size: Count(size) },
        ..
    } = tasks.engine
    {
        let most = tasks.max_batch.0;
        let must = format!("at most max_batch ({most})");
        rules.hold(size <= most, "engine.shared.batching.fixed.size", must, size);
    }
    if let RawPlanning::Online { targets, .. } = &tasks.planning {
        let must = "a list of at least one latency";
        rules.hold(!targets.is_empty(), "planning.online.targets", must, "an empty list");
    }
    let full_models = match tasks.engine {
        RawEngine::Shared { .. } => None,
        RawEngine::Sequential { fine_tuned, .. } => Some(("engine.sequential.fine_tuned", fine_tuned)),
        RawEngine::Parallel { fine_tuned, .. } => Some(("engine.parallel.fine_tuned", fine_tuned)),
    };
    if let Some((key, RawFineTuned::AsAWhole)) = full_models
        && let Some(task) = tasks.registrations.iter().find(|task| task.file.is_some())
    {
        let must = "by-kind where a task has a file, which holds its kind's parameters";
        rules.hold(
            false,
            key,
            must,
            format!("as-a-whole, with the file of task {}", task.task),
        );
    }
}

/// A batch's streams are counted in 16 bits.
fn check_streams(tasks: &RawTasks, rules: &mut Rules<'_>) {
    let RawEngine::Shared { streams, .. } = tasks.engine else {
        return;
    };
    let (key, count) = match streams {
        RawStreams::ByProfile { many } => ("engine.shared.streams.by-profile.many", many),
        RawStreams::Fixed { count } => ("engine.shared.streams.fixed.count", count),
        RawStreams::Even { count } => ("engine.shared.streams.even.count", count),
        RawStreams::InTurn { count } => ("engine.shared.streams.in-turn.count", count),
        RawStreams::OneEach => ("max_batch", tasks.max_batch),
    };
    let most = u32::from(u16::MAX);
    rules.hold(
        count.0 <= most,
        key,
        format!("at most {most}, one stream each"),
        count.0,
    );
}

/// A registration as it is handed in: its kind and model may be wrong, and are then refused when it is served.
fn registration_of(
    registration: &RawRegistration,
    own: &str,
    classes: u32,
    raw: &RawScenario,
    models: &Models<'_>,
    path: &Path,
) -> Result<Registration, Option<Problem>> {
    if registration.task >= raw.tenants.count.0 {
        let must = format!("below tenants.count, {}", raw.tenants.count.0);
        return Err(Some(Problem::new(path.key("task"), must, registration.task)));
    }
    if let Some(file) = &registration.file {
        return registration_from(file, registration, classes, raw, models, path);
    }
    let Some(kind) = &registration.kind else {
        return Err(Some(Problem::new(
            path.key("kind"),
            "given, since there is no file",
            "nothing",
        )));
    };
    let model = match &registration.model {
        None => own.to_owned(),
        Some(name) => shared(raw, models, name, path.key("model")).map_or(name.clone(), |model| model.name),
    };
    let trained_on = registration.trained_on.as_ref();
    Ok(Registration {
        at: path.to_string(),
        task: registration.task,
        model,
        kind: kind.clone(),
        file: None,
        trained_on: trained_on.map(|name| models.find(name, path.key("trained_on"))).transpose()?,
        mask_elements: registration.mask_elements.map(|elements| elements.0),
    })
}

/// A task that a file holds. What is wrong with the file's content is refused when it is served.
fn registration_from(
    file: &std::path::Path,
    registration: &RawRegistration,
    classes: u32,
    raw: &RawScenario,
    models: &Models<'_>,
    path: &Path,
) -> Result<Registration, Option<Problem>> {
    let given = [
        ("kind", registration.kind.is_some()),
        ("model", registration.model.is_some()),
        ("trained_on", registration.trained_on.is_some()),
        ("mask_elements", registration.mask_elements.is_some()),
    ];
    if let Some((key, _)) = given.into_iter().find(|(_, given)| *given) {
        return Err(Some(Problem::new(
            path.key(key),
            "left out where there is a file, which says it",
            "something",
        )));
    }
    let mut of_file = TaskFile {
        path: file.display().to_string(),
        resident_bytes: None,
        pooled: false,
        fault: None,
    };
    let (mut model, mut kind) = (String::new(), String::new());
    match StoredTask::read(file) {
        Ok(stored) => {
            let known = shared(raw, models, &stored.model, path.key("file")).ok();
            match known.as_ref().map(|model| stored.resident_bytes(&model.shape, classes)) {
                Some(Ok(Some((bytes, pooled)))) => (of_file.resident_bytes, of_file.pooled) = (Some(bytes), pooled),
                Some(Err(fault)) => of_file.fault = Some(fault),
                Some(Ok(None)) | None => {}
            }
            model = known.map_or(stored.model, |model| model.name);
            kind = stored.kind;
        }
        Err(Unread::Absent(error)) => {
            let got = format!("{}: {error}", file.display());
            return Err(Some(Problem::new(path.key("file"), "a file that can be read", got)));
        }
        Err(Unread::Foreign(why)) => of_file.fault = Some((TaskFault::Unreadable, why)),
    }
    Ok(Registration {
        at: path.to_string(),
        task: registration.task,
        model,
        kind,
        trained_on: None,
        mask_elements: None,
        file: Some(of_file),
    })
}

fn engine_of(engine: RawEngine) -> EngineSpec {
    match engine {
        RawEngine::Shared { batching, streams } => EngineSpec::Shared {
            batching: match batching {
                RawBatching::Fixed { size } => Batching::Fixed { size: size.0 },
                RawBatching::AlphaOnly => Batching::AlphaOnly,
                RawBatching::BetaOnly => Batching::BetaOnly,
                RawBatching::Coordinated => Batching::Coordinated,
                RawBatching::ByVariance { std_tokens } => Batching::ByVariance {
                    std_tokens_max: std_tokens.0,
                },
                RawBatching::Cheaper => Batching::Cheaper,
            },
            streams: match streams {
                RawStreams::ByProfile { many } => StreamsSpec::ByProfile { many: many.0 },
                RawStreams::Fixed { count } => StreamsSpec::Fixed { count: count.0 },
                RawStreams::Even { count } => StreamsSpec::Even { count: count.0 },
                RawStreams::InTurn { count } => StreamsSpec::InTurn { count: count.0 },
                RawStreams::OneEach => StreamsSpec::OneEach,
            },
        },
        RawEngine::Sequential {
            own_embeddings,
            fine_tuned,
        } => EngineSpec::Sequential {
            models: full_models(own_embeddings, fine_tuned),
        },
        RawEngine::Parallel {
            own_embeddings,
            fine_tuned,
            streams,
        } => EngineSpec::Parallel {
            models: full_models(own_embeddings, fine_tuned),
            streams: streams.0,
        },
    }
}

fn full_models(own_embeddings: bool, fine_tuned: RawFineTuned) -> FullModels {
    FullModels {
        own_embeddings,
        fine_tuned: match fine_tuned {
            RawFineTuned::ByKind => FineTuned::ByKind,
            RawFineTuned::AsAWhole => FineTuned::AsAWhole,
        },
    }
}

/// The latencies by service class that a system's batches are planned by, if they are.
pub(crate) fn targets(system: &SystemSpec) -> Option<Vec<Duration>> {
    match &system.pool.tasks.as_ref()?.planning {
        PlanningSpec::Online { targets, .. } => Some(targets.to_vec()),
        PlanningSpec::Pool { .. } => None,
    }
}

/// Puts the tasks that `tenants.kinds` says under this workload's seed before those that the system lists itself, all
/// of them of this scenario's file.
pub(crate) fn register(file: &str, pool: &mut PoolSpec, kinds: &[TaskKind], workload: &WorkloadSpec) {
    let Some(tasks) = &mut pool.tasks else { return };
    let groups = TenantGroups::new(workload).expect("the workload was checked when the scenario was read");
    let own = tasks.model.clone();
    let of_tenant = |task: u32| {
        let TaskKind { model, kind } = &kinds[groups.kind_of(task) as usize];
        Registration {
            at: "tenants.kinds".into(),
            task,
            model: model.as_ref().map_or(&own, |model| &model.name).clone(),
            kind: kind.clone(),
            trained_on: None,
            mask_elements: None,
            file: None,
        }
    };
    let listed = std::mem::take(&mut tasks.registrations);
    let by_kind = |task: &u32| listed.iter().all(|registration| registration.task != *task);
    tasks.registrations = (0..workload.tenants).filter(by_kind).map(of_tenant).collect();
    tasks.registrations.extend(listed);
    for registration in &mut tasks.registrations {
        registration.at.insert_str(0, &format!("{file}: "));
    }
}
