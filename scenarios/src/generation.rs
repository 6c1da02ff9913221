//! From `generation:` to the specification of how requests run that generate, and what must hold between its values and the system's.

use tenantry_core::spec::{
    ConsolidateSpec, DisaggregatedSpec, GenerationSpec, JoinSpec, LightLoadSpec, LinkSpec, LoraSpec, PrefillSpec,
    QueueSpec, StopSpec, Weights,
};
use tenantry_profiles::{ModelKind, ModelShape};

use crate::error::Problem;
use crate::path::Path;
use crate::raw::*;
use crate::scalar::Count;

/// What must hold between a system's model and how its requests run.
pub(crate) fn check(
    system: &RawSystem,
    model: &ModelShape,
    raw: &RawScenario,
    path: &Path,
    problems: &mut Vec<Problem>,
) {
    let Some(generation) = &system.generation else {
        if model.kind == ModelKind::Decoder {
            let must = format!("given, since {} is a decoder", model.name);
            problems.push(Problem::new(path.key("generation"), must, "nothing"));
        }
        if system.place == RawPlace::LargestWorkingSet {
            let must = "least-loaded or round-robin for an encoder, which keeps nothing of a request";
            problems.push(Problem::new(path.key("place"), must, "largest-working-set"));
        }
        let needed = [
            ("batch", system.batch.is_none()),
            ("pipeline", system.pipeline.is_none()),
        ];
        for (key, _) in needed.into_iter().filter(|(_, absent)| *absent) {
            problems.push(Problem::new(path.key(key), "given", "nothing"));
        }
        return;
    };
    if let RawPadding::To(tokens) = system.padding {
        let must = "left out for a decoder, whose sequences are not padded";
        problems.push(Problem::new(path.key("padding").key("to"), must, tokens.0));
    }
    let in_generation = path.key("generation");
    let encoders = [
        ("batch", system.batch.is_some()),
        ("pipeline", system.pipeline.is_some() && system.plot.is_none()),
    ];
    for (key, _) in encoders.into_iter().filter(|(_, given)| *given) {
        let must = "left out for a decoder, which has generation instead";
        problems.push(Problem::new(path.key(key), must, "an encoder's"));
    }
    if system.plot.is_some() {
        check_lookups(system, generation, path, problems);
    }
    if model.kind == ModelKind::Encoder {
        let must = format!("left out, since {} is an encoder", model.name);
        problems.push(Problem::new(in_generation.clone(), must, "a decoder's"));
    }
    let owns = system.tenant_state != RawTenantState::Head;
    if owns && generation.lora.is_some() {
        let must = "left out where tenant_state says what tenants have of their own";
        problems.push(Problem::new(in_generation.key("lora"), must, "low-rank adapters"));
    }
    if owns && generation.slots.is_none() {
        let must =
            "given where tenants have models or adapters of their own: for how many of them an instance has room";
        problems.push(Problem::new(in_generation.key("slots"), must, "nothing"));
    }
    if let Some(slots) = generation.slots.filter(|_| !owns) {
        let must = "left out where tenant_state is head; low-rank adapters have slots of their own";
        problems.push(Problem::new(in_generation.key("slots"), must, slots.0));
    }
    if owns && generation.tensor_parallel.0 != 1 {
        let must = "1 where tenant_state is model or adapters";
        problems.push(Problem::new(
            in_generation.key("tensor_parallel"),
            must,
            generation.tensor_parallel.0,
        ));
    }
    if system.tenant_state == RawTenantState::Model && generation.join == RawJoin::AnyTenant {
        let must = "head-run, head-run-static or queue-per-tenant where tenant_state is model, since a tenant's model serves nobody else";
        problems.push(Problem::new(in_generation.key("join"), must, "any-tenant"));
    }
    if system.instances_per_gpu.0 != 1 {
        let must = "1 for a decoder, whose instance fills its card";
        problems.push(Problem::new(
            path.key("instances_per_gpu"),
            must,
            system.instances_per_gpu.0,
        ));
    }
    if generation.page_tokens.0 > model.positions {
        let must = format!("at most {}, the positions of {}", model.positions, model.name);
        problems.push(Problem::new(
            in_generation.key("page_tokens"),
            must,
            generation.page_tokens.0,
        ));
    }
    if let Some(prefix) = generation.shared_prefix.filter(|_| system.plot.is_some()) {
        let must = "left out above a table: the texts that it is built from have no beginning in common";
        problems.push(Problem::new(in_generation.key("shared_prefix"), must, prefix.tokens.0));
    }
    if let Some(prefix) = generation.shared_prefix
        && prefix.tokens.0 < generation.page_tokens.0
    {
        let must = format!(
            "at least page_tokens ({}), since whole pages of it are shared",
            generation.page_tokens.0
        );
        problems.push(Problem::new(
            in_generation.key("shared_prefix").key("tokens"),
            must,
            prefix.tokens.0,
        ));
    }
    if generation.prefix_caching && generation.shared_prefix.is_some() {
        let must = "left out where prefix_caching is true: what an evicted request left is not looked up beside it";
        problems.push(Problem::new(in_generation.key("shared_prefix"), must, "given"));
    }
    if let RawSequenceEnd::Eos { token, .. } = generation.stop
        && token.0 >= model.vocabulary
    {
        let must = format!("below {}, the vocabulary of {}", model.vocabulary, model.name);
        problems.push(Problem::new(
            in_generation.key("stop").key("eos").key("token"),
            must,
            token.0,
        ));
    }
    if !raw.cluster.gpus.0.is_multiple_of(generation.tensor_parallel.0) {
        let must = format!("a divisor of cluster.gpus ({})", raw.cluster.gpus.0);
        problems.push(Problem::new(
            in_generation.key("tensor_parallel"),
            must,
            generation.tensor_parallel.0,
        ));
    }
    if let Some(consolidate) = generation.consolidate
        && consolidate.light.0 >= generation.max_batch.0
    {
        let must = format!(
            "below max_batch ({}), or every card is lightly loaded",
            generation.max_batch.0
        );
        let light = in_generation.key("consolidate").key("light");
        problems.push(Problem::new(light, must, consolidate.light.0));
    }
    if let RawPrefill::Chunked { max_tokens } = generation.prefill
        && max_tokens.0 <= generation.max_batch.0
    {
        let must = format!(
            "above max_batch ({}), or a full batch leaves no token of a step to a prompt",
            generation.max_batch.0
        );
        let max_tokens_key = in_generation.key("prefill").key("chunked").key("max_tokens");
        problems.push(Problem::new(max_tokens_key, must, max_tokens.0));
    }
    check_prefill_gpus(system, generation, raw.cluster.gpus.0, &in_generation, problems);
    check_card_scale(generation, raw.cluster.gpus.0, &in_generation, problems);
    if !model.kv_heads.is_multiple_of(generation.tensor_parallel.0) {
        let must = format!(
            "a divisor of the {} heads of {} that keys and values have",
            model.kv_heads, model.name
        );
        problems.push(Problem::new(
            in_generation.key("tensor_parallel"),
            must,
            generation.tensor_parallel.0,
        ));
    }
}

/// What must hold where some cards only take prompts in.
fn check_prefill_gpus(
    system: &RawSystem,
    generation: &RawGeneration,
    gpus: u32,
    path: &Path,
    problems: &mut Vec<Problem>,
) {
    let Some(Count(prefill_gpus)) = generation.prefill_gpus else {
        return;
    };
    let mut must = |must: String| problems.push(Problem::new(path.key("prefill_gpus"), must, prefill_gpus));
    if prefill_gpus >= gpus {
        must(format!(
            "below cluster.gpus ({gpus}), since the others go on from prompts"
        ));
    }
    if !prefill_gpus.is_multiple_of(generation.tensor_parallel.0) {
        must(format!(
            "a multiple of tensor_parallel ({})",
            generation.tensor_parallel.0
        ));
    }
    let unless = [
        (
            generation.join != RawJoin::AnyTenant,
            "join is not any-tenant: one tenant at a time would run on each side",
        ),
        (
            generation.prefix_caching,
            "prefix_caching is true: who is evicted returns to another card",
        ),
        (system.plot.is_some(), "lower layers are looked up"),
    ];
    for (_, why) in unless.into_iter().filter(|(is_so, _)| *is_so) {
        must(format!("left out where {why}"));
    }
}

/// What must hold where cards come and go.
fn check_card_scale(generation: &RawGeneration, gpus: u32, path: &Path, problems: &mut Vec<Problem>) {
    let Some(RawCardScale { start, min, .. }) = generation.scale else {
        return;
    };
    let path = path.key("scale");
    let of_instance = generation.tensor_parallel.0;
    let bounds = [
        ("start", start.0, "cluster.gpus", gpus),
        ("min", min.0, "start", start.0),
    ];
    for (key, cards, of, most) in bounds {
        if cards > most {
            problems.push(Problem::new(path.key(key), format!("at most {of} ({most})"), cards));
        }
        if !cards.is_multiple_of(of_instance) {
            let must = format!("a multiple of tensor_parallel ({of_instance})");
            problems.push(Problem::new(path.key(key), must, cards));
        }
    }
    if generation.consolidate.is_none() {
        let must = "left out without consolidate, whose `light` says which cards are lightly loaded";
        problems.push(Problem::new(path.clone(), must, "given"));
    }
    if generation.prefill_gpus.is_some() {
        let must = "left out where some cards only take prompts in, which are not emptied";
        problems.push(Problem::new(path, must, "given"));
    }
}

/// What must hold where a decoder's lower layers are looked up.
fn check_lookups(system: &RawSystem, generation: &RawGeneration, path: &Path, problems: &mut Vec<Problem>) {
    let pipeline = system.pipeline.unwrap_or(RawPipeline::Synchronous);
    if !matches!(pipeline, RawPipeline::Synchronous | RawPipeline::PrefetchRetrieval) {
        let must =
            "synchronous or prefetch-retrieval for a decoder, whose tenants' parameters come in before they join";
        problems.push(Problem::new(path.key("pipeline"), must, "another"));
    }
    let path = path.key("generation");
    if generation.lora.is_some() {
        let must = "left out where lower layers are looked up; tenant_state has adapters for the upper ones";
        problems.push(Problem::new(path.key("lora"), must, "low-rank adapters"));
    }
    if generation.tensor_parallel.0 != 1 {
        let must = "1 where lower layers are looked up";
        problems.push(Problem::new(
            path.key("tensor_parallel"),
            must,
            generation.tensor_parallel.0,
        ));
    }
}

/// What `generation` means.
pub(crate) fn generation_of(generation: &RawGeneration, link: Option<RawLink>) -> GenerationSpec {
    GenerationSpec {
        lora: generation.lora.map(|lora| LoraSpec {
            rank: lora.rank.0,
            implementation: lora.implementation,
            slots: lora.slots.0,
            host_slots: lora.host_slots.map(|slots| slots.0),
        }),
        slots: generation.slots.map_or(0, |slots| slots.0),
        join: match generation.join {
            RawJoin::AnyTenant => JoinSpec::AnyTenant,
            RawJoin::HeadRun => JoinSpec::HeadRun,
            RawJoin::HeadRunStatic => JoinSpec::HeadRunStatic,
            RawJoin::QueuePerTenant => JoinSpec::QueuePerTenant,
        },
        max_batch: generation.max_batch.0,
        prefill: match generation.prefill {
            RawPrefill::OnePerStep => PrefillSpec::OnePerStep,
            RawPrefill::Chunked { max_tokens } => PrefillSpec::Chunked {
                max_tokens: max_tokens.0,
            },
        },
        page_tokens: generation.page_tokens.0,
        prefix_caching: generation.prefix_caching,
        tensor_parallel: generation.tensor_parallel.0,
        consolidate: generation.consolidate.map(|consolidate| ConsolidateSpec {
            every: consolidate.every.0,
            light: consolidate.light.0,
        }),
        scale: { generation.scale.zip(generation.consolidate) }.map(|(scale, consolidate)| LightLoadSpec {
            light: consolidate.light.0,
            cards_at_start: scale.start.0,
            cards_min: scale.min.0,
            start_up: scale.start_up.0,
            patience: scale.patience.0,
        }),
        stop: match generation.stop {
            RawSequenceEnd::Length => StopSpec::Length,
            RawSequenceEnd::Eos { token, chance } => StopSpec::EndOfSequence {
                token: token.0,
                chance_ppm: chance.ppm(),
            },
        },
        shared_prefix_tokens: generation.shared_prefix.map_or(0, |prefix| prefix.tokens.0),
        disaggregated: generation.prefill_gpus.map(|gpus| DisaggregatedSpec {
            prefill_gpus: gpus.0,
            link: link.map(|link| LinkSpec {
                bytes_per_s: link.bandwidth.0,
                latency: link.latency.0,
            }),
        }),
        queue: match generation.queue {
            RawQueue::Arrival => QueueSpec::Arrival,
            RawQueue::VirtualTokenCounter {
                input_weight,
                output_weight,
            } => QueueSpec::VirtualTokenCounter(Weights {
                input: input_weight.0,
                output: output_weight.0,
            }),
        },
    }
}
