//! From raw types to the plain specifications that the other crates take, and what can be wrong between several values.

use tenantry_core::in_time::{Slo, Target};
use tenantry_core::spec::{
    AdmitSpec, BatchSpec, ClusterSpec, HeadTask, Met, Padding, PipelineSpec, PlaceSpec, PlotSpec, PoolSpec,
    RuntimesSpec, SwapSpec, SystemSpec, TasksSpec, TenantState,
};
use tenantry_profiles::{ModelKind, ModelShape};
use tenantry_traces::Duration;
use tenantry_traces::outcome::AnswersSpec;
use tenantry_traces::spec::WorkloadSpec;

use crate::cascade::{self, Around};
use crate::error::Problem;
use crate::models::Models;
use crate::path::Path;
use crate::raw::*;
use crate::rules::Rules;
use crate::scalar::{Count, Memory};
use crate::scenario::GroupNames;
use crate::tasks::{self, TaskKind};
use crate::{filling, generation, runtimes, system_rules, workload};

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
    /// Whether a link between cards is given.
    pub has_link: bool,
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
    let most = ClusterSpec::CARD_BYTES_MAX;
    if let Some(memory) = raw.cluster.gpu_memory.filter(|memory| memory.0 > most) {
        let path = Path::default().key("cluster").key("gpu_memory");
        let [must, got] = [most, memory.0].map(|bytes| format!("{} GiB", bytes >> 30));
        problems.push(Problem::new(path, format!("at most {must}"), got));
    }
    let workload = workload::resolve(raw, &mut problems);
    let answers = raw.outcomes.as_ref().map(|outcomes| cascade::answers(outcomes, &mut problems));
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
        has_link: raw.cluster.link.is_some(),
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
    let why = "here: presets are filled in before a sweep, so list one system for each instead";
    Rules::below(path, problems).left_out(system.preset.is_some(), "preset", why, "a preset");
    system_rules::instances(system, raw.cluster.gpus.0, path, problems);
    system_rules::own_models(system, Rules::below(path, problems));
    if let Some(plot) = &system.plot {
        system_rules::plot(plot, system, model, Rules::below(&path.key("plot"), problems));
    }
    system_rules::files(
        system,
        raw.tenants.domain_count(),
        Rules::below(&path.key("files"), problems),
    );
    system_rules::heads(system, Rules::below(path, problems));
    let tasks = tasks::resolve(system, model, raw, path, kinds, models, problems);
    let runtimes = runtimes::resolve(system, model, raw, path, models, problems);
    if tasks.is_none() && runtimes.is_none() {
        generation::check(system, model, raw, path, problems);
        if system.cascade.is_some() {
            system_rules::cascade(system, Rules::below(path, problems));
        } else {
            system_rules::swap(system, Rules::below(path, problems));
        }
        filling::check(system, raw, path, problems);
    }
    check_padding(system, model, models, Rules::below(path, problems));
    let longest = longest_input(system, model, tasks.as_ref(), runtimes.as_ref());
    check_batches(system, longest, models, path, problems);
    if let Some(RawLength::Fixed(Count(tokens))) = raw.workload.lengths.input {
        let must = format!("at most {longest}, the longest input of system {}", system.name.0);
        Rules::below(&Path::default(), problems).hold(tokens <= longest, "workload.lengths.input.fixed", must, tokens);
    }
    SystemSpec {
        name: system.name.0.clone(),
        admit: match system.admit {
            RawAdmit::Open => AdmitSpec::Open,
            RawAdmit::BoundedQueue { max_waiting } => AdmitSpec::BoundedQueue {
                max_waiting: max_waiting.0,
            },
            RawAdmit::RateLimit { rate, burst } => AdmitSpec::RateLimit {
                // More seldom than a number of nanoseconds says is never again.
                period: Duration::from_secs_f64(1.0 / rate.0).unwrap_or(Duration(u64::MAX)),
                burst: burst.0,
            },
        },
        pool: PoolSpec {
            runtimes,
            ..pool_of(system, model, tasks, raw)
        },
        route: None,
    }
}

/// That the tokens of each batch can be counted; of `longest`, what the system serves, but for a cascade's stages.
fn check_batches(system: &RawSystem, longest: u32, models: &Models<'_>, path: &Path, problems: &mut Vec<Problem>) {
    let Some(cascade) = &system.cascade else {
        if let Some(batch) = &system.batch {
            system_rules::batch(batch, longest, Rules::below(path, problems));
        }
        return;
    };
    // Of the stages that are batched as the system says.
    let mut longest = 0;
    for (index, stage) in cascade.stages.iter().enumerate() {
        let of_stage = match system.padding {
            RawPadding::To(tokens) => tokens.0,
            // A name of no model is told of where it stands.
            RawPadding::Longest => models.find(&stage.model.0, Path::default()).map_or(0, |model| model.positions),
        };
        let path = path.key("cascade").key("stages").index(index);
        match &stage.batch {
            Some(batch) => system_rules::batch(batch, of_stage, Rules::below(&path, problems)),
            None => longest = longest.max(of_stage),
        }
    }
    if let Some(batch) = &system.batch {
        system_rules::batch(batch, longest, Rules::below(path, problems));
    }
}

/// That every model takes what batches are padded to.
fn check_padding(system: &RawSystem, model: &ModelShape, models: &Models<'_>, mut rules: Rules<'_>) {
    let RawPadding::To(Count(tokens)) = system.padding else {
        return;
    };
    let shortest = match &system.cascade {
        None => Some((&system.model, model.positions)),
        Some(cascade) => {
            let named = cascade.stages.iter().map(|stage| &stage.model.0);
            // A name of no model is told of where it stands.
            let positions = named.filter_map(|name| Some((name, models.find(name, Path::default()).ok()?.positions)));
            positions.min_by_key(|(_, positions)| *positions)
        }
    };
    if let Some((name, positions)) = shortest {
        let must = format!("at most {positions}, the longest input of model {name}");
        rules.hold(tokens <= positions, "padding.to", must, tokens);
    }
}

/// Tokens of the longest input that a system serves.
fn longest_input(
    system: &RawSystem,
    model: &ModelShape,
    tasks: Option<&TasksSpec>,
    runtimes: Option<&RuntimesSpec>,
) -> u32 {
    if let Some(runtimes) = runtimes {
        let longest = runtimes.streams.iter().filter_map(|stream| stream.runtimes.last());
        return longest.map(|runtime| runtime.max_length).max().unwrap_or(0);
    }
    match system.padding {
        RawPadding::To(tokens) => tokens.0,
        // A decoder's first token takes a position too.
        RawPadding::Longest if model.kind == ModelKind::Decoder => model.positions - 1,
        RawPadding::Longest => tasks.map_or(model.positions, |tasks| tasks.max_tokens),
    }
}

/// Of a domain's own table; none where it is to be counted.
fn domain_bytes(plot: &RawPlot, model: &ModelShape) -> Option<u64> {
    match (plot.domain_table, plot.met) {
        // Where only the root answers, domains have no tables.
        _ if plot.domain_hits.ppm() == 0 => Some(0),
        (Some(given), _) => Some(given.0),
        (None, RawMet::Counted) => None,
        (None, RawMet::AsBuilt | RawMet::Shares { .. }) => Some(paper_domain_bytes(
            plot.domain_hits.ppm(),
            plot.fragment_tokens.0,
            model,
        )),
    }
}

/// A domain's own table, were its texts the paper's biology (HMI, Table 5): by the share of occurrences that it holds,
/// and as wide as this model's rows.
pub fn paper_domain_bytes(domain_hits_ppm: u32, fragment_tokens: u32, model: &ModelShape) -> u64 {
    // BERT-base, rows of three vectors in half precision: shares, and the bytes that they take.
    const LEAST: (f64, f64) = (0.3, 0.31e9);
    const HALF: (f64, f64) = (0.5, 1.42e9);
    const ALL: (f64, f64) = (1.0, 463e9);
    const ROW_VALUES: f64 = 3.0 * 768.0;
    let share = f64::from(domain_hits_ppm) / 1e6;
    // As many times larger for each percent more.
    let between = |(from, smaller): (f64, f64), (to, larger): (f64, f64)| {
        smaller * libm::pow(larger / smaller, (share - from) / (to - from))
    };
    let bytes = if share < LEAST.0 {
        // The paper has none so small: by the third power, which its two smaller sizes differ by.
        LEAST.1 * libm::pow(share / LEAST.0, 3.0)
    } else if share < HALF.0 {
        between(LEAST, HALF)
    } else {
        between(HALF, ALL)
    };
    let vectors = match model.kind {
        ModelKind::Encoder => fragment_tokens,
        ModelKind::Decoder => 1,
    };
    (bytes * f64::from(vectors) * f64::from(model.hidden) / ROW_VALUES).round() as u64
}

/// Writes out how large domains' tables were taken to be.
pub(crate) fn write_domain_tables(raw: &mut RawScenario, resolved: &Resolved) {
    for (system, spec) in raw.systems.iter_mut().zip(&resolved.systems) {
        let bytes = spec.pool.plot.and_then(|plot| plot.domain_bytes);
        if let (Some(plot), Some(bytes @ 1..)) = (&mut system.plot, bytes) {
            plot.domain_table = Some(Memory(bytes));
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
        generation: system
            .generation
            .as_ref()
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

pub(crate) fn pipeline_of(pipeline: RawPipeline) -> PipelineSpec {
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
