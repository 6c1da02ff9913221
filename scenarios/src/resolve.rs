//! From raw types to the plain specifications that the other crates take, and what can be wrong between several values.

use tenantry_core::spec::{
    AdmitSpec, BatchSpec, Padding, PipelineSpec, PlaceSpec, PoolSpec, SwapSpec, SystemSpec, TenantState,
};
use tenantry_profiles::{ModelKind, ModelShape};
use tenantry_traces::Duration;
use tenantry_traces::spec::WorkloadSpec;

use crate::error::Problem;
use crate::path::Path;
use crate::raw::*;
use crate::scenario::Slo;
use crate::workload;

/// Each tenant takes some tens of bytes in a server.
const TENANTS_MAX: u32 = 100_000_000;

/// What all runs of one sweep point have in common.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resolved {
    pub systems: Vec<SystemSpec>,
    /// With the scenario's seed; each repeat sets its own.
    pub workload: WorkloadSpec,
    pub warm_up: Duration,
    pub gpus: u32,
    pub gpu_memory_bytes: Option<u64>,
    pub card: String,
    pub slo: Option<Slo>,
    pub jitter: Jitter,
}

/// The specifications that `raw` means, or all that keeps it from meaning any.
pub(crate) fn resolve(raw: &RawScenario) -> Result<Resolved, Vec<Problem>> {
    let mut problems = Vec::new();
    let systems = systems(raw, &mut problems);
    if raw.tenants.count.0 > TENANTS_MAX {
        let path = Path::default().key("tenants").key("count");
        problems.push(Problem::new(
            path,
            format!("at most {TENANTS_MAX}"),
            raw.tenants.count.0,
        ));
    }
    let workload = workload::resolve(raw, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok(Resolved {
        systems,
        workload,
        warm_up: raw.workload.warm_up.0,
        gpus: raw.cluster.gpus.0,
        gpu_memory_bytes: raw.cluster.gpu_memory.map(|memory| memory.0),
        card: raw.card.0.clone(),
        slo: raw.slo.map(|slo| Slo {
            latency: slo.latency.0,
            quantile: slo.at.fraction(),
        }),
        jitter: raw.jitter,
    })
}

fn systems(raw: &RawScenario, problems: &mut Vec<Problem>) -> Vec<SystemSpec> {
    let path = Path::default().key("systems");
    let models = models(raw, problems);
    if raw.systems.is_empty() {
        problems.push(Problem::new(
            path.clone(),
            "a list of at least one system",
            "an empty list",
        ));
    }
    let mut systems: Vec<SystemSpec> = Vec::new();
    for (index, system) in raw.systems.iter().enumerate() {
        let path = path.index(index);
        if systems.iter().any(|other| other.name == system.name.0) {
            let must = "a name that no system before it has";
            problems.push(Problem::new(path.key("name"), must, &system.name.0));
        }
        match models.iter().find(|(key, _)| **key == system.model) {
            Some((_, Some(model))) => systems.push(system_of(system, model, raw, &path, problems)),
            // What is wrong with the model is among the problems already.
            Some((_, None)) => {}
            None => {
                let known = raw.models.keys().map(String::as_str);
                problems.push(Problem::unknown_name(path.key("model"), &system.model, known));
            }
        }
    }
    systems
}

/// The scenario's models by key; nothing for those with a problem.
fn models<'a>(raw: &'a RawScenario, problems: &mut Vec<Problem>) -> Vec<(&'a str, Option<ModelShape>)> {
    let path = Path::default().key("models");
    let mut shape = |(key, model): (&'a String, &RawModel)| match model_of(key, model, path.key(key)) {
        Ok(shape) => (key.as_str(), Some(shape)),
        Err(problem) => {
            problems.push(problem);
            (key.as_str(), None)
        }
    };
    raw.models.iter().map(&mut shape).collect()
}

fn model_of(key: &str, model: &RawModel, path: Path) -> Result<ModelShape, Problem> {
    let shape = match model {
        RawModel::Builtin(name) => ModelShape::builtin(name)
            .ok_or_else(|| Problem::unknown_name(path.clone(), name, ModelShape::builtin_names().iter().copied()))?,
        RawModel::Shape(shape) => ModelShape {
            name: key.to_string(),
            kind: ModelKind::Encoder,
            layers: shape.layers.0,
            hidden: shape.hidden.0,
            heads: shape.heads.0,
            kv_heads: shape.heads.0,
            intermediate: shape.intermediate.0,
            gated: false,
            vocabulary: shape.vocabulary.0,
            positions: shape.positions.0,
        },
    };
    shape
        .validate()
        .map_err(|error| Problem::new(path.key(error.field), error.must, error.got))?;
    if shape.kind != ModelKind::Encoder {
        return Err(Problem::new(
            path,
            "an encoder, since generation is not served yet",
            format!("{} (a decoder)", shape.name),
        ));
    }
    Ok(shape)
}

fn system_of(
    system: &RawSystem,
    model: &ModelShape,
    raw: &RawScenario,
    path: &Path,
    problems: &mut Vec<Problem>,
) -> SystemSpec {
    if system.preset.is_some() {
        let must = "left out here: presets are filled in before a sweep, so list one system for each instead";
        problems.push(Problem::new(path.key("preset"), must, "a preset"));
    }
    if system.tenant_state == RawTenantState::Model && !matches!(system.batch, RawBatch::PerTenant { .. }) {
        let must = "per-tenant where tenant_state is model, since a tenant's model serves nobody else";
        problems.push(Problem::new(path.key("batch"), must, "a batch of several tenants"));
    }
    if system.tenant_state == RawTenantState::Model && system.pipeline == RawPipeline::Layerwise {
        let must = "synchronous or prefetch where tenant_state is model, since a whole model comes in one piece";
        problems.push(Problem::new(path.key("pipeline"), must, "layerwise"));
    }
    let longest = match system.padding {
        RawPadding::Longest => model.positions,
        RawPadding::To(tokens) => {
            if tokens.0 > model.positions {
                let must = format!(
                    "at most {}, the longest input of model {}",
                    model.positions, system.model
                );
                problems.push(Problem::new(path.key("padding").key("to"), must, tokens.0));
            }
            tokens.0
        }
    };
    if let RawLength::Fixed(tokens) = raw.workload.lengths.input
        && tokens.0 > longest
    {
        let must = format!("at most {longest}, the longest input of system {}", system.name.0);
        let input = Path::default().key("workload").key("lengths").key("input").key("fixed");
        problems.push(Problem::new(input, must, tokens.0));
    }
    SystemSpec {
        name: system.name.0.clone(),
        admit: match system.admit {
            RawAdmit::Open => AdmitSpec::Open,
            RawAdmit::BoundedQueue { max_waiting } => AdmitSpec::BoundedQueue {
                max_waiting: max_waiting.0,
            },
        },
        pool: pool_of(system, model),
    }
}

fn pool_of(system: &RawSystem, model: &ModelShape) -> PoolSpec {
    PoolSpec {
        name: system.model.clone(),
        model: model.clone(),
        dtype: system.dtype,
        classes: system.classes.0,
        tenant_state: match system.tenant_state {
            RawTenantState::Model => TenantState::Model,
            RawTenantState::Head => TenantState::Head,
            RawTenantState::Adapters {
                bottleneck,
                implementation,
            } => TenantState::Adapters {
                bottleneck: bottleneck.0,
                implementation,
            },
        },
        padding: match system.padding {
            RawPadding::Longest => Padding::Longest,
            RawPadding::To(tokens) => Padding::To(tokens.0),
        },
        instances_per_gpu: system.instances_per_gpu.0,
        place: match system.place {
            RawPlace::LeastLoaded => PlaceSpec::LeastLoaded,
            RawPlace::RoundRobin => PlaceSpec::RoundRobin,
        },
        batch: match system.batch {
            RawBatch::PerTenant { max_size } => BatchSpec::PerTenant { max_size: max_size.0 },
            RawBatch::FixedSize { size } => BatchSpec::FixedSize { size: size.0 },
            RawBatch::SizeOrTimeout { max_size, max_wait } => BatchSpec::SizeOrTimeout {
                max_size: max_size.0,
                max_wait: max_wait.0,
            },
        },
        swap: match system.swap {
            RawSwap::Lru => SwapSpec::LeastRecentlyUsed,
        },
        pipeline: match system.pipeline {
            RawPipeline::Synchronous => PipelineSpec::Synchronous,
            RawPipeline::Prefetch => PipelineSpec::Prefetch,
            RawPipeline::Layerwise => PipelineSpec::Layerwise,
        },
    }
}
