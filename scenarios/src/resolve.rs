//! From raw types to the plain specifications that the other crates take, and what can be wrong between several values.

use tenantry_core::in_time::{Slo, Target};
use tenantry_core::spec::{
    AdmitSpec, BatchSpec, HeadTask, Met, Padding, ParameterPipeline, PipelineSpec, PlaceSpec, PlotSpec, PoolSpec,
    SwapSpec, SystemSpec, TasksSpec, TenantState,
};
use tenantry_core::topology::INSTANCES_MAX;
use tenantry_profiles::{ModelKind, ModelShape};
use tenantry_traces::Duration;
use tenantry_traces::outcome::AnswersSpec;
use tenantry_traces::spec::WorkloadSpec;

use crate::cascade::{self, Around};
use crate::error::Problem;
use crate::models::Models;
use crate::path::Path;
use crate::raw::*;
use crate::scalar::{Count, Part};
use crate::scenario::GroupNames;
use crate::tasks::{self, TaskKind};
use crate::{generation, runtimes, workload};

/// Each tenant takes some tens of bytes in a server.
const TENANTS_MAX: u32 = 100_000_000;

/// What all runs of one sweep point have in common.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resolved {
    pub systems: Vec<SystemSpec>,
    /// By system.
    pub files: Vec<Files>,
    /// With the scenario's seed; each repeat sets its own.
    pub workload: WorkloadSpec,
    pub tenant_groups: GroupNames,
    /// Of the tenants, where a system has tasks.
    pub task_kinds: Vec<TaskKind>,
    pub warm_up: Duration,
    pub gpus: u32,
    pub gpu_memory_bytes: Option<u64>,
    pub card: String,
    pub price_per_hour: Option<f64>,
    pub slo: Option<Slo>,
    pub jitter: Jitter,
    pub answers: Option<AnswersSpec>,
}

/// The specifications that `raw` means, or all that keeps it from meaning any.
pub(crate) fn resolve(raw: &RawScenario) -> Result<Resolved, Vec<Problem>> {
    let mut problems = Vec::new();
    let models = Models::resolve(raw, &mut problems);
    let task_kinds = tasks::kinds(raw, &models, &mut problems);
    let systems = systems(raw, &models, &task_kinds, &mut problems);
    if raw.tenants.count.0 > TENANTS_MAX {
        let path = Path::default().key("tenants").key("count");
        problems.push(Problem::new(
            path,
            format!("at most {TENANTS_MAX}"),
            raw.tenants.count.0,
        ));
    }
    let workload = workload::resolve(raw, &mut problems);
    let answers = raw
        .outcomes
        .as_ref()
        .map(|outcomes| cascade::answers(outcomes, &mut problems));
    cascade::check_lengths(raw, &mut problems);
    let slo = raw.slo.as_ref().map(|slo| objective(slo, &systems, &mut problems));
    if !problems.is_empty() {
        return Err(problems);
    }
    Ok(Resolved {
        systems,
        files: raw.systems.iter().map(|system| system.files.clone()).collect(),
        workload,
        tenant_groups: GroupNames {
            domains: raw.tenants.domains.names(),
            kinds: raw.tenants.kinds.names(),
            classes: raw.tenants.classes.names(),
        },
        task_kinds,
        warm_up: raw.workload.warm_up.0,
        gpus: raw.cluster.gpus.0,
        gpu_memory_bytes: raw.cluster.gpu_memory.map(|memory| memory.0),
        card: raw.card.0.clone(),
        price_per_hour: raw.prices.get(&raw.card.0).map(|price| price.0),
        slo,
        jitter: raw.jitter,
        answers,
    })
}

/// What is to be kept, by systems that can.
fn objective(raw: &RawSlo, systems: &[SystemSpec], problems: &mut Vec<Problem>) -> Slo {
    let path = Path::default().key("slo");
    if raw.latency.is_none() && raw.ttft.is_none() && raw.tpot.is_none() {
        let must = "given, or ttft or tpot, where tokens are made";
        problems.push(Problem::new(path.key("latency"), must, "nothing"));
    }
    let makes_none = systems.iter().find(|system| system.pool.generation.is_none());
    for (key, limit) in [("ttft", raw.ttft), ("tpot", raw.tpot)] {
        if let (Some(system), Some(limit)) = (makes_none, limit) {
            let must = format!("left out where a system makes no tokens, as {} makes none", system.name);
            problems.push(Problem::new(path.key(key), must, limit));
        }
    }
    let [latency, first_token, per_token] = [raw.latency, raw.ttft, raw.tpot].map(|limit| limit.map(|limit| limit.0));
    Slo {
        target: Target {
            latency,
            first_token,
            per_token,
        },
        quantile: raw.at.fraction(),
    }
}

fn systems(raw: &RawScenario, models: &Models<'_>, kinds: &[TaskKind], problems: &mut Vec<Problem>) -> Vec<SystemSpec> {
    let path = Path::default().key("systems");
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
        let (name, path_of_name) = match &system.cascade {
            None => (&system.model, path.key("model")),
            Some(cascade) => match cascade.stages.first() {
                Some(first) => (&first.model.0, path.key("cascade").key("stages").index(0).key("model")),
                None => {
                    let path = path.key("cascade").key("stages");
                    problems.push(Problem::new(path, "a list of at least one model", "an empty list"));
                    continue;
                }
            },
        };
        let Some(model) = models.named(name, path_of_name, problems) else {
            continue;
        };
        let mut spec = system_of(system, &model, raw, &path, kinds, models, problems);
        if let Some(cascade) = &system.cascade {
            let around = Around {
                path: path.key("cascade"),
                pool: &spec.pool,
                gpus: raw.cluster.gpus.0,
                outcomes: raw.outcomes.as_ref(),
            };
            spec.route = cascade::route(cascade, &around, models, problems);
            if let Some(first) = spec.route.as_ref().and_then(|route| route.stages.first()) {
                spec.pool = first.pool.clone();
            }
        }
        systems.push(spec);
    }
    systems
}

fn system_of(
    system: &RawSystem,
    model: &ModelShape,
    raw: &RawScenario,
    path: &Path,
    kinds: &[TaskKind],
    models: &Models<'_>,
    problems: &mut Vec<Problem>,
) -> SystemSpec {
    if system.preset.is_some() {
        let must = "left out here: presets are filled in before a sweep, so list one system for each instead";
        problems.push(Problem::new(path.key("preset"), must, "a preset"));
    }
    let stages = { system.cascade.iter() }.flat_map(|cascade| cascade.stages.iter().enumerate());
    let most = INSTANCES_MAX / u64::from(raw.cluster.gpus.0);
    let most_of_stage = most / (stages.clone().count() as u64).max(1);
    let of_stages = stages.filter_map(|(index, stage)| {
        let path = path.key("cascade").key("stages").index(index).key("instances_per_gpu");
        Some((path, stage.instances_per_gpu?.0, most_of_stage))
    });
    let of_system = (path.key("instances_per_gpu"), system.instances_per_gpu.0, most);
    for (path, instances, most) in of_stages.chain([of_system]) {
        if u64::from(instances) > most {
            let must = format!("at most {most}, {INSTANCES_MAX} instances on all cards");
            problems.push(Problem::new(path, must, instances));
        }
    }
    let of_several = |batch: &RawBatch| !matches!(batch, RawBatch::PerTenant { .. });
    if system.tenant_state == RawTenantState::Model && system.batch.as_ref().is_some_and(of_several) {
        let must = "per-tenant where tenant_state is model, since a tenant's model serves nobody else";
        problems.push(Problem::new(path.key("batch"), must, "a batch of several tenants"));
    }
    if system.tenant_state == RawTenantState::Model
        && system
            .pipeline
            .is_some_and(|pipeline| pipeline_of(pipeline).parameters == ParameterPipeline::NextLayer)
    {
        let must = "synchronous or prefetch where tenant_state is model, since a whole model comes in one piece";
        problems.push(Problem::new(path.key("pipeline"), must, "layerwise"));
    }
    if let Some(plot) = &system.plot {
        let path = path.key("plot");
        if plot.lower_layers.0 >= model.layers {
            let must = format!("fewer than the {} layers of model {}", model.layers, system.model);
            problems.push(Problem::new(path.key("lower_layers"), must, plot.lower_layers.0));
        }
        // A token alone has no shorter fragment: its table has every token.
        if plot.fragment_tokens.0 == 1 && plot.fallbacks.ppm() > 0 {
            let must = "0 % where fragments are single tokens, which have no shorter ones to fall back on";
            problems.push(Problem::new(path.key("fallbacks"), must, plot.fallbacks));
        }
        let mut at_most_all = |path: Path, domain_hits: Part, fallbacks: Part| {
            if domain_hits.ppm() + fallbacks.ppm() > 1_000_000 {
                let must = "at most 100% together with fallbacks";
                let got = format!("{domain_hits} and {fallbacks}");
                problems.push(Problem::new(path.key("domain_hits"), must, got));
            }
        };
        at_most_all(path.clone(), plot.domain_hits, plot.fallbacks);
        if let RawMet::Shares { domain_hits, fallbacks } = plot.met {
            at_most_all(path.key("met").key("shares"), domain_hits, fallbacks);
        }
        if plot.met == RawMet::Counted && system.generation.is_some() {
            let must = "as-built or shares for a decoder, since nobody knows the tokens that it will make";
            problems.push(Problem::new(path.key("met"), must, "counted"));
        }
    }
    check_files(system, raw.tenants.domain_count(), path, problems);
    let only_classifies = [
        (system.generation.is_some(), "a decoder has none"),
        (system.tasks.is_some(), "tasks of several kinds share a batch"),
        (system.runtimes.is_some(), "runtimes answer with one class"),
        (system.cascade.is_some(), "a route is chosen by one confidence"),
    ];
    if system.heads == RawHeads::Tagging
        && let Some((_, why)) = only_classifies.iter().find(|(is_so, _)| *is_so)
    {
        let must = format!("classification here: {why}");
        problems.push(Problem::new(path.key("heads"), must, "tagging"));
    }
    let tasks = tasks::resolve(system, model, raw, path, kinds, models, problems);
    let runtimes = runtimes::resolve(system, model, raw, path, models, problems);
    if tasks.is_none() && runtimes.is_none() {
        generation::check(system, model, raw, path, problems);
        if system.cascade.is_some() {
            check_cascade(system, path, problems);
        }
    }
    let longest = match system.padding {
        // A decoder's first token takes a position too.
        RawPadding::Longest if model.kind == ModelKind::Decoder => model.positions - 1,
        RawPadding::Longest => tasks.as_ref().map_or(model.positions, |tasks| tasks.max_tokens),
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
    let longest = match &runtimes {
        Some(runtimes) => runtimes
            .streams
            .iter()
            .filter_map(|s| s.runtimes.last())
            .map(|r| r.max_length)
            .max()
            .unwrap_or(0),
        None => longest,
    };
    if let Some(RawLength::Fixed(tokens)) = raw.workload.lengths.input
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
        pool: PoolSpec {
            runtimes,
            ..pool_of(system, model, tasks, raw)
        },
        route: None,
    }
}

/// What a system of several models cannot have.
fn check_cascade(system: &RawSystem, path: &Path, problems: &mut Vec<Problem>) {
    let mut must = |key: &str, must: &str| problems.push(Problem::new(path.key(key), must, "another"));
    if system.tenant_state != RawTenantState::Head {
        must(
            "tenant_state",
            "head (nothing to be swapped) where several models serve",
        );
    }
    if system.plot.is_some() {
        must("plot", "left out where several models serve");
    }
    if system
        .pipeline
        .is_some_and(|pipeline| pipeline != RawPipeline::Synchronous)
    {
        must(
            "pipeline",
            "synchronous where several models serve, since nothing is to be fetched",
        );
    }
    if system.generation.is_some() {
        must("generation", "left out where several models serve");
    }
    if system.tasks.is_some() {
        must("tasks", "left out where several models serve");
    }
    if system.model != backbone() {
        must(
            "model",
            "left out where several models serve, since each stage names its own",
        );
    }
    if system.swap != RawSwap::default() {
        must("swap", "left out where several models serve, since nothing is swapped");
    }
}

/// Which files a system has a use for.
fn check_files(system: &RawSystem, domain_count: u32, path: &Path, problems: &mut Vec<Problem>) {
    let Files {
        model,
        models,
        domains,
        tenants,
        corpus,
    } = &system.files;
    let path = path.key("files");
    let is_other = system.tasks.is_some() || system.runtimes.is_some() || system.cascade.is_some();
    let mut unused = |key: &str, is_given: bool, why: &str| {
        if is_given {
            let must = format!("left out here: {why}");
            problems.push(Problem::new(path.key(key), must, "files"));
        }
    };
    let without_table = system.plot.is_none();
    let others = "only pools with a table, adapters, heads or models of tenants' own read files";
    unused("model", is_other && system.tasks.is_none() && model.is_some(), others);
    unused(
        "models",
        system.tasks.is_none() && !models.is_empty(),
        "only tasks share several models",
    );
    let registrations = "a task's file is one of tasks.registrations";
    unused("tenants", system.tasks.is_some() && tenants.is_some(), registrations);
    unused(
        "tenants",
        is_other && system.tasks.is_none() && tenants.is_some(),
        others,
    );
    let own = system.tenant_state == RawTenantState::Model && without_table && !is_other;
    unused("model", own && model.is_some(), "each tenant has a model of its own");
    unused(
        "domains",
        without_table && !domains.is_empty(),
        "there is no table that they would fill",
    );
    unused(
        "corpus",
        without_table && !corpus.is_empty(),
        "there is no table that it would fill",
    );
    let no_root = model.is_none() && !domains.is_empty();
    unused(
        "domains",
        no_root,
        "domains' versions come of a model, and `files.model` names none",
    );
    if domains.len() > domain_count as usize {
        let must = format!("of at most {domain_count} domains, as the workload has (tenants.domains)");
        problems.push(Problem::new(path.key("domains"), must, domains.len()));
    }
}

/// Of a domain's own table; none where it is to be counted.
fn domain_bytes(plot: &RawPlot, model: &ModelShape) -> Option<u64> {
    // BERT-base, rows of three vectors in half precision.
    const PAPER_BYTES: f64 = 1.42e9;
    const PAPER_SHARE: f64 = 0.5;
    const PAPER_ROW_VALUES: f64 = 3.0 * 768.0;
    match (plot.domain_hits.ppm(), plot.domain_table, plot.met) {
        // Where only the root answers, domains have no tables.
        (0, ..) => Some(0),
        (_, Some(given), _) => Some(given.0),
        (_, None, RawMet::Counted) => None,
        (_, None, RawMet::AsBuilt | RawMet::Shares { .. }) => {
            let vectors = match model.kind {
                ModelKind::Encoder => plot.fragment_tokens.0,
                ModelKind::Decoder => 1,
            };
            // Between Table 5's two shares sizes grow by the third power.
            let fragments = (f64::from(plot.domain_hits.ppm()) / 1e6 / PAPER_SHARE).powi(3);
            let row = f64::from(vectors * model.hidden) / PAPER_ROW_VALUES;
            Some((PAPER_BYTES * fragments * row).round() as u64)
        }
    }
}

fn pool_of(system: &RawSystem, model: &ModelShape, tasks: Option<TasksSpec>, raw: &RawScenario) -> PoolSpec {
    PoolSpec {
        name: system.model.clone(),
        model: model.clone(),
        dtype: system.dtype,
        classes: system.classes.0,
        heads: match system.heads {
            RawHeads::Classification => HeadTask::Classification,
            RawHeads::Tagging => HeadTask::Tagging,
        },
        plot: system.plot.map(|plot| PlotSpec {
            lower_layers: plot.lower_layers.0,
            fragment_tokens: plot.fragment_tokens.0,
            threads: plot.threads.0,
            tier: plot.tier,
            domain_hits_ppm: plot.domain_hits.ppm(),
            fallbacks_ppm: plot.fallbacks.ppm(),
            met: match plot.met {
                RawMet::AsBuilt => Met::AsBuilt,
                RawMet::Counted => Met::Counted,
                RawMet::Shares { domain_hits, fallbacks } => Met::Shares {
                    domain_hits_ppm: domain_hits.ppm(),
                    fallbacks_ppm: fallbacks.ppm(),
                },
            },
            domains: raw.tenants.domain_count(),
            domain_bytes: domain_bytes(&plot, model),
        }),
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
            RawPlace::LargestWorkingSet => PlaceSpec::LargestWorkingSet,
        },
        // What a decoder does not have is never asked for.
        batch: batch_of(system.batch.unwrap_or(RawBatch::PerTenant { max_size: Count(1) })),
        swap: match system.swap {
            RawSwap::Lru => SwapSpec::LeastRecentlyUsed,
            RawSwap::Lfu => SwapSpec::LeastFrequentlyUsed,
        },
        pipeline: pipeline_of(system.pipeline.unwrap_or(RawPipeline::Synchronous)),
        generation: { system.generation.as_ref() }
            .map(|generation| generation::generation_of(generation, raw.cluster.link)),
        tasks,
        runtimes: None,
    }
}

pub(crate) fn batch_of(batch: RawBatch) -> BatchSpec {
    match batch {
        RawBatch::PerTenant { max_size } => BatchSpec::PerTenant { max_size: max_size.0 },
        RawBatch::FixedSize { size } => BatchSpec::FixedSize { size: size.0 },
        RawBatch::SizeOrTimeout { max_size, max_wait } => BatchSpec::SizeOrTimeout {
            max_size: max_size.0,
            max_wait: max_wait.0,
        },
    }
}

fn pipeline_of(pipeline: RawPipeline) -> PipelineSpec {
    match pipeline {
        RawPipeline::Synchronous => PipelineSpec::SYNCHRONOUS,
        RawPipeline::PrefetchRetrieval => PipelineSpec::PREFETCH_RETRIEVAL,
        RawPipeline::Prefetch => PipelineSpec::PREFETCH,
        RawPipeline::Layerwise => PipelineSpec::LAYERWISE,
        RawPipeline::LayerwiseParameters => PipelineSpec {
            prefetch_retrieval: false,
            ..PipelineSpec::LAYERWISE
        },
    }
}
