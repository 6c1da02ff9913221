//! From `generation:` to the specification of how requests run that generate, and what must hold between its values and
//! the system's.

use tenantry_core::spec::{
    ConsolidateSpec, DisaggregatedSpec, GenerationSpec, JoinSpec, LightLoadSpec, LinkSpec, LoraSpec, PrefillSpec,
    QueueSpec, StopSpec, Weights,
};
use tenantry_profiles::{ModelKind, ModelShape};

use crate::error::Problem;
use crate::path::Path;
use crate::raw::*;
use crate::rules::Rules;
use crate::scalar::{Count, Index};
use crate::system_rules;

/// What must hold between a system's model and how its requests run.
pub(crate) fn check(
    system: &RawSystem,
    model: &ModelShape,
    raw: &RawScenario,
    path: &Path,
    problems: &mut Vec<Problem>,
) {
    let Some(generation) = &system.generation else {
        return check_encoder(system, model, Rules::below(path, problems));
    };
    check_decoder(system, model, Rules::below(path, problems));
    if system.plot.is_some() {
        check_lookups(system, generation, Rules::below(path, problems));
    }
    let (path, gpus) = (path.key("generation"), raw.cluster.gpus.0);
    check_own_state(system, generation, Rules::below(&path, problems));
    check_prefix(system, generation, Rules::below(&path, problems));
    check_sizes(generation, model, gpus, Rules::below(&path, problems));
    let (sequences, positions) = (generation.max_batch.0, model.positions);
    system_rules::batch_tokens(sequences, positions, "max_batch", Rules::below(&path, problems));
    check_prefill_gpus(system, generation, gpus, Rules::below(&path, problems));
    check_card_scale(generation, gpus, Rules::below(&path, problems));
}

/// What an encoder must have, and what only a decoder has.
fn check_encoder(system: &RawSystem, model: &ModelShape, mut rules: Rules<'_>) {
    let is_decoder = model.kind == ModelKind::Decoder;
    let must = format!("given, since {} is a decoder", model.name);
    rules.hold(!is_decoder, "generation", must, "nothing");
    rules.hold(
        system.place != RawPlace::LargestWorkingSet,
        "place",
        "least-loaded or round-robin for an encoder, which keeps nothing of a request",
        "largest-working-set",
    );
    rules.hold(system.batch.is_some(), "batch", "given", "nothing");
    rules.hold(system.pipeline.is_some(), "pipeline", "given", "nothing");
}

/// What a decoder has in other words, or not at all.
fn check_decoder(system: &RawSystem, model: &ModelShape, mut rules: Rules<'_>) {
    if let RawPadding::To(tokens) = system.padding {
        let why = "for a decoder, whose sequences are not padded";
        rules.left_out(true, "padding.to", why, tokens.0);
    }
    let instead = "for a decoder, which has generation instead";
    let pipeline = system.pipeline.is_some() && system.plot.is_none();
    rules.left_out(system.batch.is_some(), "batch", instead, "an encoder's");
    rules.left_out(pipeline, "pipeline", instead, "an encoder's");
    let is_encoder = model.kind == ModelKind::Encoder;
    let why = format!(", since {} is an encoder", model.name);
    rules.hold(!is_encoder, "generation", format!("left out{why}"), "a decoder's");
    let instances = system.instances_per_gpu.0;
    let must = "1 for a decoder, whose instance fills its card";
    rules.hold(instances == 1, "instances_per_gpu", must, instances);
}

/// What tenants have of their own, by `tenant_state` or by low-rank adapters.
fn check_own_state(system: &RawSystem, generation: &RawGeneration, mut rules: Rules<'_>) {
    if system.tenant_state == RawTenantState::Head {
        if let Some(slots) = generation.slots {
            let why = "where tenant_state is head; low-rank adapters have slots of their own";
            rules.left_out(true, "slots", why, slots.0);
        }
        return;
    }
    let why = "where tenant_state says what tenants have of their own";
    rules.left_out(generation.lora.is_some(), "lora", why, "low-rank adapters");
    let must = "given where tenants have models or adapters of their own: for how many of them an instance has room";
    rules.hold(generation.slots.is_some(), "slots", must, "nothing");
    let cards = generation.tensor_parallel.0;
    let must = "1 where tenant_state is model or adapters";
    rules.hold(cards == 1, "tensor_parallel", must, cards);
    let mixed = system.tenant_state == RawTenantState::Model && generation.join == RawJoin::AnyTenant;
    let must = "head-run, head-run-static or queue-per-tenant where tenant_state is model, since a tenant's model \
                serves nobody else";
    rules.hold(!mixed, "join", must, "any-tenant");
}

/// A beginning that all prompts have in common.
fn check_prefix(system: &RawSystem, generation: &RawGeneration, mut rules: Rules<'_>) {
    let Some(prefix) = generation.shared_prefix else {
        return;
    };
    let (tokens, page) = (prefix.tokens.0, generation.page_tokens.0);
    let why = "above a table: the texts that it is built from have no beginning in common";
    rules.left_out(system.plot.is_some(), "shared_prefix", why, tokens);
    let must = format!("at least page_tokens ({page}), since whole pages of it are shared");
    rules.hold(tokens >= page, "shared_prefix.tokens", must, tokens);
    let why = "where prefix_caching is true: what an evicted request left is not looked up beside it";
    rules.left_out(generation.prefix_caching, "shared_prefix", why, "given");
}

/// What fits a model, a card or a batch.
fn check_sizes(generation: &RawGeneration, model: &ModelShape, gpus: u32, mut rules: Rules<'_>) {
    let (page, batch) = (generation.page_tokens.0, generation.max_batch.0);
    let must = format!("at most {}, the positions of {}", model.positions, model.name);
    rules.hold(page <= model.positions, "page_tokens", must, page);
    if let RawSequenceEnd::Eos {
        token: Index(token), ..
    } = generation.stop
    {
        let must = format!("below {}, the vocabulary of {}", model.vocabulary, model.name);
        rules.hold(token < model.vocabulary, "stop.eos.token", must, token);
    }
    if let Some(Count(light)) = generation.consolidate.map(|consolidate| consolidate.light) {
        let must = format!("below max_batch ({batch}), or every card is lightly loaded");
        rules.hold(light < batch, "consolidate.light", must, light);
    }
    if let RawPrefill::Chunked {
        max_tokens: Count(chunk),
    } = generation.prefill
    {
        let must = format!("above max_batch ({batch}), or a full batch leaves no token of a step to a prompt");
        rules.hold(chunk > batch, "prefill.chunked.max_tokens", must, chunk);
    }
    let parallel = generation.tensor_parallel.0;
    let must = format!("a divisor of cluster.gpus ({gpus})");
    rules.hold(gpus.is_multiple_of(parallel), "tensor_parallel", must, parallel);
    let heads = model.kv_heads;
    let must = format!(
        "a divisor of the {heads} heads of {} that keys and values have",
        model.name
    );
    rules.hold(heads.is_multiple_of(parallel), "tensor_parallel", must, parallel);
}

/// What must hold where some cards only take prompts in.
fn check_prefill_gpus(system: &RawSystem, generation: &RawGeneration, gpus: u32, mut rules: Rules<'_>) {
    let Some(Count(prefill_gpus)) = generation.prefill_gpus else {
        return;
    };
    let mut must = |holds: bool, must: String| rules.hold(holds, "prefill_gpus", must, prefill_gpus);
    let parallel = generation.tensor_parallel.0;
    must(
        prefill_gpus < gpus,
        format!("below cluster.gpus ({gpus}), since the others go on from prompts"),
    );
    must(
        prefill_gpus.is_multiple_of(parallel),
        format!("a multiple of tensor_parallel ({parallel})"),
    );
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
    for (is_so, why) in unless {
        must(!is_so, format!("left out where {why}"));
    }
}

/// What must hold where cards come and go.
fn check_card_scale(generation: &RawGeneration, gpus: u32, mut rules: Rules<'_>) {
    let Some(RawCardScale { start, min, .. }) = generation.scale else {
        return;
    };
    let parallel = generation.tensor_parallel.0;
    let bounds = [
        ("scale.start", start.0, "cluster.gpus", gpus),
        ("scale.min", min.0, "start", start.0),
    ];
    for (key, cards, of, most) in bounds {
        rules.hold(cards <= most, key, format!("at most {of} ({most})"), cards);
        let must = format!("a multiple of tensor_parallel ({parallel})");
        rules.hold(cards.is_multiple_of(parallel), key, must, cards);
    }
    let why = "without consolidate, whose `light` says which cards are lightly loaded";
    rules.left_out(generation.consolidate.is_none(), "scale", why, "given");
    let why = "where some cards only take prompts in, which are not emptied";
    rules.left_out(generation.prefill_gpus.is_some(), "scale", why, "given");
}

/// What must hold where a decoder's lower layers are looked up.
fn check_lookups(system: &RawSystem, generation: &RawGeneration, mut rules: Rules<'_>) {
    let pipeline = system.pipeline.unwrap_or(RawPipeline::Synchronous);
    rules.hold(
        matches!(pipeline, RawPipeline::Synchronous | RawPipeline::PrefetchRetrieval),
        "pipeline",
        "synchronous or prefetch-retrieval for a decoder, whose tenants' parameters come in before they join",
        "another",
    );
    let why = "where lower layers are looked up; tenant_state has adapters for the upper ones";
    rules.left_out(generation.lora.is_some(), "generation.lora", why, "low-rank adapters");
    let parallel = generation.tensor_parallel.0;
    let must = "1 where lower layers are looked up";
    rules.hold(parallel == 1, "generation.tensor_parallel", must, parallel);
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
        scale: generation.scale.zip(generation.consolidate).map(|(scale, consolidate)| LightLoadSpec {
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
