//! What must hold between the values of one system, whatever its pool serves; what generates has rules of its own
//! (`generation.rs`).

use tenantry_core::spec::ParameterPipeline;
use tenantry_core::topology::INSTANCES_MAX;
use tenantry_plot::FRAGMENT_TOKENS_MAX;
use tenantry_profiles::ModelShape;

use crate::error::Problem;
use crate::path::Path;
use crate::raw::*;
use crate::resolve::pipeline_of;
use crate::rules::Rules;
use crate::scalar::Part;

/// That no more instances are asked for than a cluster can have, of a system or of a cascade's stages together.
pub(crate) fn instances(system: &RawSystem, gpus: u32, path: &Path, problems: &mut Vec<Problem>) {
    let stages = system.cascade.iter().flat_map(|cascade| cascade.stages.iter().enumerate());
    let most = INSTANCES_MAX / u64::from(gpus);
    let most_of_stage = most / (stages.clone().count() as u64).max(1);
    let of_stages = stages.filter_map(|(index, stage)| {
        let path = path.key("cascade").key("stages").index(index);
        Some((path, stage.instances_per_gpu?.0, most_of_stage))
    });
    let of_system = (path.clone(), system.instances_per_gpu.0, most);
    for (path, instances, most) in of_stages.chain([of_system]) {
        let must = format!("at most {most}, {INSTANCES_MAX} instances on all cards");
        let holds = u64::from(instances) <= most;
        Rules::below(&path, problems).hold(holds, "instances_per_gpu", must, instances);
    }
}

/// That the tokens of a batch can be counted: of so many requests, which [`u32`] counts, of so many tokens at the longest.
pub(crate) fn batch_tokens(requests: u32, longest: u32, key: &str, mut rules: Rules<'_>) {
    let most = u32::MAX / longest.max(1);
    let must = format!(
        "at most {most} where inputs have up to {longest} tokens, {} in a batch",
        u32::MAX
    );
    rules.hold(requests <= most, key, must, requests);
}

/// The same of how an encoder's requests are batched.
pub(crate) fn batch(batch: &RawBatch, longest: u32, rules: Rules<'_>) {
    let (requests, key) = match batch {
        RawBatch::PerTenant { max_size } => (max_size, "batch.per-tenant.max_size"),
        RawBatch::FixedSize { size } => (size, "batch.fixed-size.size"),
        RawBatch::SizeOrTimeout { max_size, .. } => (max_size, "batch.size-or-timeout.max_size"),
    };
    batch_tokens(requests.0, longest, key, rules);
}

/// What whole models of tenants' own do not go with.
pub(crate) fn own_models(system: &RawSystem, mut rules: Rules<'_>) {
    if system.tenant_state != RawTenantState::Model {
        return;
    }
    let of_several = |batch: &RawBatch| !matches!(batch, RawBatch::PerTenant { .. });
    rules.hold(
        !system.batch.as_ref().is_some_and(of_several),
        "batch",
        "per-tenant where tenant_state is model, since a tenant's model serves nobody else",
        "a batch of several tenants",
    );
    let layerwise = |pipeline| pipeline_of(pipeline).parameters == ParameterPipeline::NextLayer;
    rules.hold(
        !system.pipeline.is_some_and(layerwise),
        "pipeline",
        "synchronous or prefetch where tenant_state is model, since a whole model comes in one piece",
        "layerwise",
    );
}

/// What is taken from the card for others, where tenants have nothing there that is.
pub(crate) fn swap(system: &RawSystem, mut rules: Rules<'_>) {
    let low_rank = system.generation.as_ref().is_some_and(|generation| generation.lora.is_some());
    let swaps = system.tenant_state != RawTenantState::Head || low_rank;
    let why = "where nothing is swapped, since tenants have no parameters of their own but heads, which stay";
    rules.left_out(!swaps && system.swap != RawSwap::default(), "swap", why, "lfu");
}

/// Threads that look up, at most: each is started before the first request comes, and few hosts have more cores.
const LOOKUP_THREADS_MAX: u32 = 256;

/// What must hold of a table that is looked up in.
pub(crate) fn plot(plot: &RawPlot, system: &RawSystem, model: &ModelShape, mut rules: Rules<'_>) {
    let lower = plot.lower_layers.0;
    let must = format!("fewer than the {} layers of model {}", model.layers, system.model);
    rules.hold(lower < model.layers, "lower_layers", must, lower);
    let (tokens, threads) = (plot.fragment_tokens.0, plot.threads.0);
    // A fragment is an input of the lower layers.
    let (longest, of) = match model.positions < FRAGMENT_TOKENS_MAX {
        true => (model.positions, format!("the longest input of model {}", system.model)),
        false => (FRAGMENT_TOKENS_MAX, "the longest fragment that a table has".to_owned()),
    };
    let must = format!("at most {longest}, {of}");
    rules.hold(tokens <= longest, "fragment_tokens", must, tokens);
    let must = format!("at most {LOOKUP_THREADS_MAX}");
    rules.hold(threads <= LOOKUP_THREADS_MAX, "threads", must, threads);
    // A token alone has no shorter fragment: its table has every token.
    let single = tokens == 1;
    let must = "0 % where fragments are single tokens, which have no shorter ones to fall back on";
    rules.hold(!single || plot.fallbacks.ppm() == 0, "fallbacks", must, plot.fallbacks);
    let mut at_most_all = |key: &str, domain_hits: Part, fallbacks: Part| {
        let holds = domain_hits.ppm() + fallbacks.ppm() <= 1_000_000;
        let got = format!("{domain_hits} and {fallbacks}");
        rules.hold(holds, key, "at most 100% together with fallbacks", got);
    };
    at_most_all("domain_hits", plot.domain_hits, plot.fallbacks);
    if let RawMet::Shares { domain_hits, fallbacks } = plot.met {
        at_most_all("met.shares.domain_hits", domain_hits, fallbacks);
    }
    let counted = plot.met == RawMet::Counted && system.generation.is_some();
    let must = "as-built or shares for a decoder, since nobody knows the tokens that it will make";
    rules.hold(!counted, "met", must, "counted");
}

/// Whose heads can label tokens.
pub(crate) fn heads(system: &RawSystem, mut rules: Rules<'_>) {
    let only_classifies = [
        (system.generation.is_some(), "a decoder has none"),
        (system.tasks.is_some(), "tasks of several kinds share a batch"),
        (system.runtimes.is_some(), "runtimes answer with one class"),
        (system.cascade.is_some(), "a route is chosen by one confidence"),
    ];
    if system.heads == RawHeads::Tagging
        && let Some((_, why)) = only_classifies.iter().find(|(is_so, _)| *is_so)
    {
        rules.hold(false, "heads", format!("classification here: {why}"), "tagging");
    }
}

/// What a system of several models cannot have.
pub(crate) fn cascade(system: &RawSystem, mut rules: Rules<'_>) {
    let several = "where several models serve";
    let mut must = |holds: bool, key: &str, must: String| rules.hold(holds, key, must, "another");
    let head = system.tenant_state == RawTenantState::Head;
    must(head, "tenant_state", format!("head (nothing to be swapped) {several}"));
    must(system.plot.is_none(), "plot", format!("left out {several}"));
    let synchronous = system.pipeline.is_none_or(|pipeline| pipeline == RawPipeline::Synchronous);
    must(
        synchronous,
        "pipeline",
        format!("synchronous {several}, since nothing is to be fetched"),
    );
    must(system.generation.is_none(), "generation", format!("left out {several}"));
    must(
        system.model == backbone(),
        "model",
        format!("left out {several}, since each stage names its own"),
    );
    must(
        system.swap == RawSwap::default(),
        "swap",
        format!("left out {several}, since nothing is swapped"),
    );
}

/// Which files a system has a use for.
pub(crate) fn files(system: &RawSystem, domain_count: u32, mut rules: Rules<'_>) {
    let Files {
        model,
        models,
        domains,
        tenants,
        corpus,
    } = &system.files;
    let is_other = system.tasks.is_some() || system.runtimes.is_some() || system.cascade.is_some();
    let mut unused = |key: &str, is_given: bool, why: &str| {
        rules.left_out(is_given, key, format!("here: {why}"), "files");
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
    for (key, files) in [("domains", domains), ("corpus", corpus)] {
        let must = format!("of at most {domain_count} domains, as the workload has (tenants.domains)");
        rules.hold(files.len() <= domain_count as usize, key, must, files.len());
    }
}
