//! Every way to get a scenario wrong, with the message that it gives.

use tenantry_scenarios::Scenario;

/// A small scenario that is right, to be broken in one place.
const GOOD: &str = "\
name: good
seed: 1
card: cpu
cluster: { gpus: 1, gpu_memory: 1 GiB }
models:
  backbone: tiny
tenants: { count: 10, popularity: uniform }
workload:
  arrivals: { poisson: { rate: 50/s } }
  lengths: { input: { fixed: 32 } }
  stop: { requests: 100 }
systems:
  - preset: hbert-adapter
  - { preset: bert-shared, name: shared }
slo: { latency: 100ms, at: p98 }
validate: { mean: 5% }
";

fn errors(text: &str, overrides: &[&str]) -> String {
    let overrides: Vec<String> = overrides.iter().map(|text| text.to_string()).collect();
    match Scenario::from_yaml("s.yaml", text, &overrides) {
        Ok(_) => "nothing wrong".to_string(),
        Err(errors) => errors.to_string(),
    }
}

#[test]
fn the_good_one_is_good() {
    assert_eq!(errors(GOOD, &[]), "nothing wrong");
}

/// What is replaced, by what, and all that is then said.
#[rustfmt::skip]
const BROKEN: &[(&str, &str, &str)] = &[
    // More than a computer holds, or than ends.
    ("gpus: 1,", "gpus: 100001,",
     "s.yaml:4: cluster.gpus: must be a whole number from 1 to 100000, got 100001"),
    ("validate: {", "repeats: 10001\nvalidate: {",
     "s.yaml:16: repeats: must be a whole number from 1 to 10000, got 10001"),
    ("poisson: { rate: 50/s }", "gamma: { rate: 50/s, cv: 101 }",
     "s.yaml:9: workload.arrivals.gamma.cv: must be a number above 0, at most 100, got 101"),
    ("poisson: { rate: 50/s }", "closed-loop: { clients: 10000001, think_time: 1s }",
     "s.yaml:9: workload.arrivals.closed-loop.clients: must be a whole number from 1 to 10000000, got 10000001"),
    ("popularity: uniform", "popularity: uniform, presence: { on_off: { mean_on: 10us, mean_off: 1s } }",
     "s.yaml:7: tenants.presence.on_off.mean_on: must be a time of at least 1ms with its unit (us, ms, s, min, h), at most ten years, such as 20s, got 10us"),
    ("validate: {", "plan: { find: fewest-cards, gpus: { from: 100000, to: 100001 } }\nvalidate: {",
     "s.yaml:16: plan.gpus: must be at most 100000 cards, got 100001"),
    ("validate: {", "sweep: { seed: { from: 1, to: 9 } }\nsamples: { random: 100001 }\nvalidate: {",
     "s.yaml:17: samples.random: must be a whole number from 1 to 100000, got 100001"),
    ("- preset: hbert-adapter", "- { preset: hmi, plot: { lower_layers: 1, fragment_tokens: 1, fallbacks: 10% } }",
     "s.yaml:13: systems[0].plot.fallbacks: must be 0 % where fragments are single tokens, which have no shorter ones to fall back on, got 10%"),
    ("{ preset: bert-shared, name: shared }", "{ preset: bert-shared, name: shared, instances_per_gpu: 1025 }",
     "s.yaml:14: systems[1].instances_per_gpu: must be a whole number from 1 to 1024, got 1025"),
    ("backbone: tiny", "backbone: { kind: encoder, layers: 70000, hidden: 4, heads: 1, intermediate: 4, vocabulary: 9, positions: 64 }",
     "s.yaml:6: models.backbone.layers: must be from 1 to 65535, got 70000"),
    // What nobody would hear of.
    ("{ preset: bert-shared, name: shared }", "{ preset: pets, runtimes: { slo: 1s, max_length: 64 } }",
     "s.yaml:7: tenants.kinds: must be given, since a system has tasks, got nothing\n\
      s.yaml:14: systems[1].tasks: must be left out where there are runtimes, each of which serves one request at a time, got given"),
    ("{ preset: bert-shared, name: shared }", "{ preset: arlo, padding: { to: 64 }, swap: lfu, runtimes: { max_length: 64 } }",
     "s.yaml:14: systems[1].padding: must be left out where there are runtimes, whose lengths and dispatch say it, got given\n\
      s.yaml:14: systems[1].swap: must be left out where there are runtimes, whose lengths and dispatch say it, got given"),
    // Keys.
    ("tenants: { count: 10,", "tenants: { cuont: 10,",
     "s.yaml:7: tenants.cuont: must be one of count, domains, kinds, classes, popularity, presence, got an unknown key; did you mean count?\n\
      s.yaml:7: tenants.count: must be given, got nothing"),
    ("card: cpu", "crad: cpu",
     "s.yaml:3: crad: must be one of name, seed, card, cluster, prices, models, tenants, workload, outcomes, systems, slo, sweep, samples, plan, repeats, validate, jitter, got an unknown key; did you mean card?"),
    ("  stop: {", "  warmup: 1s\n  stop: {",
     "s.yaml:11: workload.warmup: must be one of arrivals, lengths, management, cancellations, stop, warm_up, got an unknown key; did you mean warm_up?"),
    ("name: good\n", "",
     "s.yaml: name: must be given, got nothing"),
    ("{ fixed: 32 }", "{ fixed: 32 }, outptu: { fixed: 8 }",
     "s.yaml:10: workload.lengths.outptu: must be one of input, output, joint, got an unknown key; did you mean output?"),
    ("{ preset: bert-shared, name: shared }", "{ prest: bert-shared, name: shared }",
     "s.yaml:14: systems[1].prest: must be one of preset, name, admit, model, dtype, classes, heads, plot, tenant_state, padding, instances_per_gpu, place, batch, swap, pipeline, generation, tasks, files, cascade, runtimes, got an unknown key; did you mean preset?\n\
      s.yaml:14: systems[1].tenant_state: must be given, got nothing"),
    // Management requests.
    ("  stop: {", "  management: { rates: { craete: 1/s } }\n  stop: {",
     "s.yaml:11: workload.management.rates.craete: must be one of present_at_start, create, update, delete, update_domain, got an unknown key; did you mean create?"),
    ("  stop: {", "  management: { list: [{ at: 1s, update: 3 }, { at: 2s }, { at: 3s, create: 1, delete: 2 }] }\n  stop: {",
     "s.yaml:11: workload.management.list[1]: must be one of create, update, delete, create_domain, update_domain, beside at, got none\n\
      s.yaml:11: workload.management.list[2]: must be one of create, update, delete, create_domain, update_domain, beside at, got create and delete"),
    ("  stop: {", "  management: { list: [{ at: 1s, update: 10 }, { at: 2s, update_domain: 8 }] }\n  stop: {",
     "s.yaml:11: workload.management.list[0].update: must be below 10, the number of tenants, got 10\n\
      s.yaml:11: workload.management.list[1].update_domain: must be below 8, the number of domains, got 8"),
    // Types.
    ("count: 10,", "count: many,",
     "s.yaml:7: tenants.count: must be a whole number from 1 to 4294967295, got many"),
    ("count: 10,", "count: 0,",
     "s.yaml:7: tenants.count: must be a whole number from 1 to 4294967295, got 0"),
    ("count: 10,", "count: -3,",
     "s.yaml:7: tenants.count: must be a whole number from 1 to 4294967295, got -3"),
    ("count: 10,", "count: 1.5,",
     "s.yaml:7: tenants.count: must be a whole number from 1 to 4294967295, got 1.5"),
    ("seed: 1", "seed: -1",
     "s.yaml:2: seed: must be a whole number, 0 or above, got -1"),
    ("name: good", "name: 7",
     "s.yaml:1: name: must be a name, got 7"),
    ("models:\n  backbone: tiny", "models: tiny",
     "s.yaml:5: models: must be a mapping, got tiny"),
    ("{ count: 10, popularity: uniform }", "10",
     "s.yaml:7: tenants: must be a mapping with keys out of count, domains, kinds, classes, popularity, presence, got 10"),
    ("systems:\n  - preset: hbert-adapter\n  - { preset: bert-shared, name: shared }", "systems: hbert-adapter",
     "s.yaml:12: systems: must be a list, got hbert-adapter"),
    ("  - preset: hbert-adapter\n  - { preset: bert-shared, name: shared }\n", "  []\n",
     "s.yaml:12: systems: must be a list of at least one system, got an empty list"),
    // Units and ranges.
    ("rate: 50/s", "rate: 50",
     "s.yaml:9: workload.arrivals.poisson.rate: must be a rate above 0 with its unit (/s, /min, /h), such as 500/s, got 50"),
    ("rate: 50/s", "rate: -50/s",
     "s.yaml:9: workload.arrivals.poisson.rate: must be a rate above 0 with its unit (/s, /min, /h), such as 500/s, got -50/s"),
    ("rate: 50/s", "rate: 0/s",
     "s.yaml:9: workload.arrivals.poisson.rate: must be a rate above 0 with its unit (/s, /min, /h), such as 500/s, got 0/s"),
    ("rate: 50/s", "rate: 50ms",
     "s.yaml:9: workload.arrivals.poisson.rate: must be a rate above 0 with its unit (/s, /min, /h), such as 500/s, got 50ms"),
    ("latency: 100ms", "latency: 100",
     "s.yaml:15: slo.latency: must be a time above 0 with its unit (us, ms, s, min, h), at most ten years, such as 20ms, got 100"),
    ("latency: 100ms", "latency: 100 sec",
     "s.yaml:15: slo.latency: must be a time above 0 with its unit (us, ms, s, min, h), at most ten years, such as 20ms, got 100 sec; did you mean 100s?"),
    ("at: p98", "at: 98",
     "s.yaml:15: slo.at: must be a quantile between p0 and p100, such as p98, got 98"),
    ("validate: {", "sweep: { tenants.count: [1, 2], tenants: [{ count: 5 }] }\nvalidate: {",
     "s.yaml:16: sweep.tenants.count: must be left out beside tenants, which sets all of it, got another axis"),
    ("slo: { latency: 100ms, at: p98 }", "slo: { at: p98 }",
     "s.yaml:15: slo.latency: must be given, or ttft or tpot, where tokens are made, got nothing"),
    ("slo: { latency: 100ms, at: p98 }", "slo: { ttft: 1s, tpot: 50ms, at: p98 }",
     "s.yaml:15: slo.ttft: must be left out where a system makes no tokens, as hbert-adapter makes none, got 1s\n\
      s.yaml:15: slo.tpot: must be left out where a system makes no tokens, as hbert-adapter makes none, got 50ms"),
    ("at: p98", "at: p200",
     "s.yaml:15: slo.at: must be a quantile between p0 and p100, such as p98, got p200"),
    ("gpu_memory: 1 GiB", "gpu_memory: 1",
     "s.yaml:4: cluster.gpu_memory: must be an amount of memory above 0 with its unit (B, KiB, MiB, GiB, KB, MB, GB), such as 16 GiB, got 1"),
    ("gpu_memory: 1 GiB", "gpu_memory: 1 Gib",
     "s.yaml:4: cluster.gpu_memory: must be an amount of memory above 0 with its unit (B, KiB, MiB, GiB, KB, MB, GB), such as 16 GiB, got 1 Gib"),
    ("mean: 5%", "mean: 5",
     "s.yaml:16: validate.mean: must be a percentage above 0, such as 5%, got 5"),
    ("popularity: uniform", "popularity: { zipf: -1 }",
     "s.yaml:7: tenants.popularity.zipf: must be a number, 0 or above, got -1"),
    ("popularity: uniform", "popularity: { skewed: 1 }",
     "s.yaml:7: tenants.popularity.skewed: must be a number above 1, got 1"),
    // Choices.
    ("popularity: uniform", "popularity: unifrom",
     "s.yaml:7: tenants.popularity: must be one of distinct, uniform, uniform-sqrt, identical, zipf, skewed, weights, azure-functions, file, of-arrivals, got unifrom; did you mean uniform?"),
    ("popularity: uniform", "popularity: zipf",
     "s.yaml:7: tenants.popularity: must be a mapping {zipf: …}, got zipf"),
    ("popularity: uniform", "popularity: { uniform: 3 }",
     "s.yaml:7: tenants.popularity: must be uniform alone, got a mapping with the keys uniform"),
    ("{ poisson: { rate: 50/s } }", "poisson",
     "s.yaml:9: workload.arrivals.poisson.rate: must be given, got nothing"),
    ("{ poisson: { rate: 50/s } }", "{ poisson: { rate: 50/s }, constant: { rate: 50/s } }",
     "s.yaml:9: workload.arrivals: must be only one of poisson, constant, gamma, mmpp, ramp, periodic-per-tenant, burst, closed-loop, counts, trace, activity, shape, twitter, regimes, superpose, scaled, cut, got a mapping with the keys poisson, constant"),
    ("{ poisson: { rate: 50/s } }", "{ poisson: { rate: 50/s }, poison: { rate: 5/s } }",
     "s.yaml:9: workload.arrivals: must be only one of poisson, constant, gamma, mmpp, ramp, periodic-per-tenant, burst, closed-loop, counts, trace, activity, shape, twitter, regimes, superpose, scaled, cut, got poison; did you mean poisson?"),
    ("{ poisson: { rate: 50/s } }", "{ poison: { rate: 50/s } }",
     "s.yaml:9: workload.arrivals: must be one of poisson, constant, gamma, mmpp, ramp, periodic-per-tenant, burst, closed-loop, counts, trace, activity, shape, twitter, regimes, superpose, scaled, cut, got poison; did you mean poisson?"),
    ("preset: hbert-adapter", "preset: hbert-adaptor",
     "s.yaml:13: systems[0].preset: must be one of bert-dedicated, bert-compress, hbert-adapter, hbert-plot, hmi, bert-shared, gpt-dedicated, gpt-compress, gpt-shared, hgpt, punica, vllm-backbone, static-batches, queue-per-lora, chunked-prefill, pets, pets-fixed, seqs, pars, tabi, infaas-best, cocktail, arlo, arlo-st, arlo-dt, infaas, got hbert-adaptor; did you mean hbert-adapter?"),
    ("preset: hbert-adapter\n  - { preset: bert-shared, name: shared }", "preset: hbert\n  - { preset: bert-shared, classes: 0 }",
     "s.yaml:13: systems[0].preset: must be one of bert-dedicated, bert-compress, hbert-adapter, hbert-plot, hmi, bert-shared, gpt-dedicated, gpt-compress, gpt-shared, hgpt, punica, vllm-backbone, static-batches, queue-per-lora, chunked-prefill, pets, pets-fixed, seqs, pars, tabi, infaas-best, cocktail, arlo, arlo-st, arlo-dt, infaas, got hbert; did you mean hbert-plot?\n\
      s.yaml:14: systems[1].classes: must be a whole number from 1 to 1048576, got 0"),
    ("name: shared }", "name: shared, dtype: fp16 }",
     "s.yaml:14: systems[1].dtype: must be one of f32, bf16, f16, got fp16; did you mean f16?"),
    ("name: shared }", "name: shared, pipeline: sync }",
     "s.yaml:14: systems[1].pipeline: must be one of synchronous, prefetch-retrieval, prefetch, layerwise, layerwise-parameters, got sync; did you mean synchronous?"),
    ("name: shared }", "name: shared, batch: { size-or-timeout: { max_size: 0 } } }",
     "s.yaml:14: systems[1].batch.size-or-timeout.max_size: must be a whole number from 1 to 4294967295, got 0"),
    // Models.
    ("backbone: tiny", "backbone: tinny",
     "s.yaml:6: models.backbone: must be one of tiny, bert-tiny, bert-mini, bert-small, bert-base, bert-large, distilbert, tinybert-4, tinybert-6, tiny-opt, opt-125m, distilgpt2, tiny-llama, phi-2, llama-7b, llama3-8b, llama3.1-8b, llama-13b, llama-70b, got tinny; did you mean tiny?"),
    ("backbone: tiny", "backbone: opt-125m",
     "s.yaml:13: systems[0].generation: must be given, since opt-125m is a decoder, got nothing\ns.yaml:14: systems[1].generation: must be given, since opt-125m is a decoder, got nothing"),
    ("backbone: tiny", "backbone: 12",
     "s.yaml:6: models.backbone: must be the name of a built-in model, or a mapping with its layers, hidden, heads, …, got 12"),
    ("backbone: tiny", "backbone: { layers: 2, hidden: 128, heads: 3, intermediate: 512, vocabulary: 1024, positions: 128 }",
     "s.yaml:6: models.backbone.heads: must be a divisor of hidden (128), got 3"),
    ("backbone: tiny", "backbone: { layers: 2, hidden: 128, heads: 2, intermediate: 512, vocab: 1024, positions: 128 }",
     "s.yaml:6: models.backbone.vocab: must be one of layers, hidden, heads, intermediate, vocabulary, positions, kind, kv_heads, gated, got an unknown key; did you mean vocabulary?\n\
      s.yaml:6: models.backbone.vocabulary: must be given, got nothing"),
    ("backbone: tiny", "backbone: { kind: decoder, layers: 2, hidden: 128, heads: 2, intermediate: 512, vocabulary: 1024, positions: 128 }",
     "s.yaml:13: systems[0].generation: must be given, since backbone is a decoder, got nothing\ns.yaml:14: systems[1].generation: must be given, since backbone is a decoder, got nothing"),
    ("backbone: tiny", "backbone: { kind: decodr, layers: 2, hidden: 128, heads: 2, intermediate: 512, vocabulary: 1024, positions: 128 }",
     "s.yaml:6: models.backbone.kind: must be one of encoder, decoder, got decodr; did you mean decoder?"),
    ("backbone: tiny", "backbone: { gated: true, layers: 2, hidden: 128, heads: 2, intermediate: 512, vocabulary: 1024, positions: 128 }",
     "s.yaml:6: models.backbone.gated: must be left out for an encoder, which has none of it, got something"),
    ("name: shared }", "name: shared, model: back-bone }",
     "s.yaml:14: systems[1].model: must be one of backbone, tiny, bert-tiny, bert-mini, bert-small, bert-base, bert-large, distilbert, tinybert-4, tinybert-6, tiny-opt, opt-125m, distilgpt2, tiny-llama, phi-2, llama-7b, llama3-8b, llama3.1-8b, llama-13b, llama-70b, got back-bone; did you mean backbone?"),
    // Values that don't go together.
    ("name: shared }", "name: hbert-adapter }",
     "s.yaml:14: systems[1].name: must be a name that no system before it has, got hbert-adapter"),
    ("name: shared }", "name: shared, tenant_state: model }",
     "s.yaml:14: systems[1].batch: must be per-tenant where tenant_state is model, since a tenant's model serves nobody else, got a batch of several tenants"),
    ("name: shared }", "name: shared, padding: { to: 500 } }",
     "s.yaml:14: systems[1].padding.to: must be at most 128, the longest input of model backbone, got 500"),
    ("fixed: 32", "fixed: 200",
     "s.yaml:10: workload.lengths.input.fixed: must be at most 128, the longest input of system hbert-adapter, got 200\n\
      s.yaml:10: workload.lengths.input.fixed: must be at most 128, the longest input of system shared, got 200"),
    ("preset: hbert-adapter\n", "{ preset: hgpt, model: tiny-opt, pipeline: layerwise, plot: { lower_layers: 1 } }\n",
     "s.yaml:13: systems[0].pipeline: must be synchronous or prefetch-retrieval for a decoder, whose tenants' parameters come in before they join, got another"),
    ("preset: hbert-adapter\n", "{ preset: hgpt, model: tiny-opt, plot: { lower_layers: 2 }, generation: { tensor_parallel: 2 } }\n",
     "s.yaml:13: systems[0].plot.lower_layers: must be fewer than the 2 layers of model tiny-opt, got 2\n\
      s.yaml:13: systems[0].generation.tensor_parallel: must be 1 where lower layers are looked up, got 2\n\
      s.yaml:13: systems[0].generation.tensor_parallel: must be 1 where tenant_state is model or adapters, got 2\n\
      s.yaml:13: systems[0].generation.tensor_parallel: must be a divisor of cluster.gpus (1), got 2"),
    ("preset: hbert-adapter\n", "{ preset: hgpt, model: tiny-opt, plot: { lower_layers: 1 }, generation: { shared_prefix: { tokens: 16 } } }\n",
     "s.yaml:13: systems[0].generation.shared_prefix: must be left out above a table: the texts that it is built from have no beginning in common, got 16"),
    ("preset: hbert-adapter\n", "{ preset: hgpt, model: tiny-opt, plot: { lower_layers: 1, met: counted } }\n",
     "s.yaml:13: systems[0].plot.met: must be as-built or shares for a decoder, since nobody knows the tokens that it will make, got counted"),
    ("preset: hbert-adapter\n", "{ preset: hbert-plot, plot: { lower_layers: 1, met: { shares: { domain_hits: 60%, fallbacks: 50% } } } }\n",
     "s.yaml:13: systems[0].plot.met.shares.domain_hits: must be at most 100% together with fallbacks, got 60% and 50%"),
    ("preset: hbert-adapter\n", "{ preset: hbert-adapter, files: { modle: x } }\n",
     "s.yaml:13: systems[0].files.modle: must be one of model, models, domains, tenants, corpus, got an unknown key; did you mean model?"),
    ("preset: hbert-adapter\n", "{ preset: hbert-adapter, files: { models: { small: x } } }\n",
     "s.yaml:13: systems[0].files.models: must be left out here: only tasks share several models, got files"),
    ("preset: hbert-adapter\n", "{ preset: hbert-adapter, files: { corpus: [x.txt] } }\n",
     "s.yaml:13: systems[0].files.corpus: must be left out here: there is no table that it would fill, got files"),
    ("tenants: { count: 10, popularity: uniform }\nworkload:\n", "tenants: { count: 10, domains: 10 }\nworkload:\n  management: { list: [{ at: 1s, update_domain: 9 }, { at: 1s, update_domain: 10 }] }\n",
     "s.yaml:9: workload.management.list[1].update_domain: must be below 10, the number of domains, got 10"),
    ("preset: hbert-adapter\n", "{ preset: hbert-plot, plot: { lower_layers: 1 }, files: { model: x, domains: [a, b, c, d, e, f, g, h, i] } }\n",
     "s.yaml:13: systems[0].files.domains: must be of at most 8 domains, as the workload has (tenants.domains), got 9"),
    ("preset: hbert-adapter\n", "{ preset: hbert-plot, plot: { lower_layers: 1 }, files: { domains: [x] } }\n",
     "s.yaml:13: systems[0].files.domains: must be left out here: domains' versions come of a model, and `files.model` names none, got files"),
    ("preset: hbert-adapter\n", "{ preset: gpt-shared, model: tiny-opt, heads: tagging }\n",
     "s.yaml:13: systems[0].heads: must be classification here: a decoder has none, got tagging"),
    // Cards that only take prompts in.
    ("preset: hbert-adapter\n", "{ preset: punica, model: tiny-llama, generation: { prefill_gpus: 1 } }\n",
     "s.yaml:13: systems[0].generation.prefill_gpus: must be below cluster.gpus (1), since the others go on from prompts, got 1"),
    ("cluster: { gpus: 1,", "cluster: { gpus: 4, link: { bandwidth: 25 },",
     "s.yaml:4: cluster.link.bandwidth: must be a bandwidth above 0 with its unit (B/s, KiB/s, MiB/s, GiB/s, KB/s, MB/s, GB/s), such as 25 GB/s, got 25"),
    ("cluster: { gpus: 1,", "cluster: { gpus: 4, link: { bandwith: 25 GB/s },",
     "s.yaml:4: cluster.link.bandwith: must be one of bandwidth, latency, got an unknown key; did you mean bandwidth?\n\
      s.yaml:4: cluster.link.bandwidth: must be given, got nothing"),
    ("preset: hbert-adapter\n", "{ preset: gpt-dedicated, model: tiny-opt, generation: { join: any-tenant } }\n",
     "s.yaml:13: systems[0].generation.join: must be head-run, head-run-static or queue-per-tenant where tenant_state is model, since a tenant's model serves nobody else, got any-tenant"),
    ("preset: hbert-adapter\n", "{ preset: gpt-shared, model: tiny-opt, generation: { slots: 3 } }\n",
     "s.yaml:13: systems[0].generation.slots: must be left out where tenant_state is head; low-rank adapters have slots of their own, got 3"),
    ("preset: hbert-adapter\n", "{ preset: gpt-shared, model: tiny-opt, tenant_state: model, generation: { join: head-run } }\n",
     "s.yaml:13: systems[0].generation.slots: must be given where tenants have models or adapters of their own: for how many of them an instance has room, got nothing"),
    ("popularity: uniform", "popularity: of-arrivals",
     "s.yaml:7: tenants.popularity: must be a distribution, since these arrivals don't say which tenant asks, got of-arrivals"),
    ("{ poisson: { rate: 50/s } }", "{ periodic-per-tenant: { period: 20s } }",
     "s.yaml:7: tenants.popularity: must be of-arrivals, since periodic-per-tenant arrivals say which tenant asks, got a distribution"),
    ("{ fixed: 32 }", "of-arrivals",
     "s.yaml:10: workload.lengths.input: must be a distribution, since these arrivals don't say how long requests are, got of-arrivals"),
    ("  stop: { requests: 100 }\n", "",
     "s.yaml:8: workload.stop: must be given, since these arrivals never end, got nothing"),
    ("  stop: { requests: 100 }", "  stop: { after: 10s }\n  warm_up: 20s",
     "s.yaml:12: workload.warm_up: must be shorter than workload.stop.after, 10.000 s, so that something is left to measure, got 20.000 s"),
    ("{ poisson: { rate: 50/s } }", "{ mmpp: { states: [{ rate: 5/s, mean_dwell: 1ns }, { rate: 9/s, mean_dwell: 1s }] } }",
     "s.yaml:9: workload.arrivals.mmpp.states[0].mean_dwell: must be a time of at least 1ms with its unit (us, ms, s, min, h), at most ten years, such as 20s, got 1ns"),
    ("{ poisson: { rate: 50/s } }", "{ shape: { path: hours.csv, rate: 5/s, step: 1ns } }",
     "s.yaml:9: workload.arrivals.shape.step: must be a time of at least 1ms with its unit (us, ms, s, min, h), at most ten years, such as 20s, got 1ns"),
    ("{ poisson: { rate: 50/s } }", "{ burst: { threads: 4294967295, stagger: 0, period: 1s, repeats: 1 } }",
     "s.yaml:9: workload.arrivals.burst.threads: must be a whole number from 1 to 10000000, got 4294967295"),
    ("{ poisson: { rate: 50/s } }", "{ trace: { path: x.csv, from: 300y } }",
     "s.yaml:9: workload.arrivals.trace.from: must be a time with its unit (us, ms, s, min, h), at most 292 years, such as 20s or 1700000000s, or 0, got 300y"),
    ("{ poisson: { rate: 50/s } }", "{ mmpp: { states: [] } }",
     "s.yaml:9: workload.arrivals.mmpp.states: must be a list of at least one state, got an empty list"),
    ("{ poisson: { rate: 50/s } }", "{ ramp: { points: [{at: 5s, rate: 1/s}, {at: 2s, rate: 2/s}] } }",
     "s.yaml:9: workload.arrivals.ramp.points[1].at: must be later than the point before, 5.000000 s, got 2.000000 s"),
    ("{ poisson: { rate: 50/s } }", "{ counts: { path: no/such.csv } }",
     "s.yaml:9: workload.arrivals.counts.path: must be a path that can be read, relative to the folder you are in, got no/such.csv: No such file or directory (os error 2)"),
    // Sweeps.
    ("seed: 1", "seed: 1\nsweep: { tenants.cuont: [1, 2] }",
     "s.yaml:3: sweep.tenants.cuont[0]: must be one of count, domains, kinds, classes, popularity, presence, got an unknown key; did you mean count?\n\
      s.yaml:3: sweep.tenants.cuont[1]: must be one of count, domains, kinds, classes, popularity, presence, got an unknown key; did you mean count?"),
    ("seed: 1", "seed: 1\nsweep: { tenants.count: [1, 0] }",
     "s.yaml:3: sweep.tenants.count[1]: must be a whole number from 1 to 4294967295, got 0"),
    ("seed: 1", "seed: 1\nsweep: { tenants.count: 5 }",
     "s.yaml:3: sweep.tenants.count: must be a list, or a range {from: …, to: …}, got 5"),
    ("seed: 1", "seed: 1\nsweep: { tenants.count: { from: 1, to: 5 } }",
     "s.yaml:3: sweep.tenants.count: must be a list where samples is not given, such as samples: {latin-hypercube: 100}, got a range"),
    ("seed: 1", "seed: 1\nsamples: { random: 5 }\nsweep: { tenants.count: [1, 5] }",
     "s.yaml:3: samples: must be left out where no key of sweep has a range {from: …, to: …}, got samples"),
    ("seed: 1", "seed: 1\nsamples: { random: 5 }\nsweep: { tenants.count: { from: 5, to: 5 } }",
     "s.yaml:4: sweep.tenants.count.to: must be above from (5), got 5"),
    ("seed: 1", "seed: 1\nsamples: { random: 5 }\nsweep: { workload.arrivals.poisson.rate: { from: 1/s, to: 2/min } }",
     "s.yaml:4: sweep.workload.arrivals.poisson.rate.to: must be in the unit of from, /s, got 2/min"),
    ("seed: 1", "seed: 1\nsamples: { random: 5 }\nsweep: { tenants.count: { from: 0, to: 9, scale: log } }",
     "s.yaml:4: sweep.tenants.count.from: must be above 0 where scale is log, got 0"),
    ("seed: 1", "seed: 1\nsamples: { random: 5 }\nsweep: { jitter: { from: none, to: measured } }",
     "s.yaml:4: sweep.jitter.from: must be a number, or one with its unit such as 500/s or 20ms, got none"),
    ("seed: 1", "seed: 1\nplan: { find: fewest-card }",
     "s.yaml:3: plan.find: must be one of fewest-cards, least-cost, most-tenants, highest-rate, tightest-latency, got fewest-card; did you mean fewest-cards?"),
    ("seed: 1", "seed: 1\nplan: { find: tightest-latency, confidence: 150% }",
     "s.yaml:3: plan.confidence: must be from 50 % to below 100 %, got 150 %"),
    ("seed: 1", "seed: 1\nplan: { find: tightest-latency, precision: 300% }",
     "s.yaml:3: plan.precision: must be below 100 %, got 300 %"),
    ("seed: 1", "seed: 1\nplan: { find: fewest-cards, gpus: { from: 8, to: 2 }, tenants: { from: 10, to: 20 }, load: { from: 1, to: 2 } }",
     "s.yaml:3: plan.tenants: must be left out where plan.find is fewest-cards: only most-tenants tries several, got a range\n\
      s.yaml:3: plan.load: must be left out where plan.find is fewest-cards: only highest-rate tries several, got a range\n\
      s.yaml:3: plan.gpus.to: must be at least from, 8, got 2"),
    ("seed: 1", "seed: 1\nplan: { find: fewest-cards, gpus: [] }",
     "s.yaml:3: plan.gpus: must be at least one number, got an empty list"),
    // Choices are said where they are written, and not in a scenario that nobody wrote.
    ("seed: 1", "seed: 1\nplan:\n  find: tightest-latency\n  choices:\n    shared:\n      bacth: [1, 2]\n      pipeline: [synchronous, prefech]",
     "s.yaml:7: plan.choices.shared.bacth: must be one of preset, name, admit, model, dtype, classes, heads, plot, tenant_state, padding, instances_per_gpu, place, batch, swap, pipeline, generation, tasks, files, cascade, runtimes, got an unknown key; did you mean batch?\n\
      s.yaml:8: plan.choices.shared.pipeline[1]: must be one of synchronous, prefetch-retrieval, prefetch, layerwise, layerwise-parameters, got prefech; did you mean prefetch?"),
    ("seed: 1", "seed: 1\nplan: { find: tightest-latency, choices: { shared: { batch.size-or-timeout.max_size: [4, 0] } } }",
     "s.yaml:3: plan.choices.shared.batch.size-or-timeout.max_size[1]: must be a whole number from 1 to 4294967295, got 0"),
    ("seed: 1", "seed: 1\nplan: { find: tightest-latency, choices: { shared: { batch: [] } } }",
     "s.yaml:3: plan.choices.shared.batch: must be a list of at least one value, got an empty list"),
    ("arrivals: { poisson: { rate: 50/s } }\n  lengths: { input: { fixed: 32 } }\n  stop: { requests: 100 }",
     "arrivals: { closed-loop: { clients: 4, think_time: 0s } }\n  lengths: { input: { fixed: 32 } }\n  stop: { after: 10s }\nplan: { find: highest-rate, load: { from: 1, to: 2 } }",
     "s.yaml:11: workload.stop.requests: must be given where a plan has a closed loop, which asks more of who answers faster, got nothing\n\
      s.yaml:12: plan.find: must be another where arrivals are a closed loop, which has no rate of its own, got highest-rate"),
    ("seed: 1", "seed: 1\nplan: { find: least-cost }",
     "s.yaml:3: plan.gpus: must be given to find the least cost, as in gpus: {from: 1, to: 32}, got nothing\n\
      s.yaml:3: plan.cards: must be given with what each card costs an hour, as in cards: {cpu: 0.8}, or by prices: {cpu: 0.8} beside plan; \
      the price is yours to say, in your currency, since no card comes with one, got no price of cpu"),
    ("seed: 1", "seed: 1\nprices: { l4: 0.8 }\nplan: { find: tightest-latency, cards: [l4, t4, v100], max_cost_per_hour: 2 }",
     "s.yaml:4: plan.cards: must be given with what each card costs an hour, as in cards: {t4: 0.8}, or by prices: {t4: 0.8} beside plan; \
      the price is yours to say, in your currency, since no card comes with one, got no price of t4, v100"),
    ("seed: 1", "seed: 1\nplan: { find: tightest-latency, cards: [] }",
     "s.yaml:3: plan.cards: must be at least one card, got none"),
    ("seed: 1", "seed: 1\nplan: { find: tightest-latency, cards: l4 }",
     "s.yaml:3: plan.cards: must be a list of cards, or each with its price an hour, such as {l4: 0.8}, got l4"),
    ("seed: 1", "seed: 1\nplan: { find: most-tenants, tenants: { from: 9, to: 3 } }",
     "s.yaml:3: plan.tenants.to: must be at least from, 9, got 3"),
    ("seed: 1", "seed: 1\nplan: { find: highest-rate, load: { from: 1, to: 2 }, choices: { shard: { classes: [2] } } }",
     "s.yaml:3: plan.choices.shard: must be one of hbert-adapter, shared, got shard; did you mean shared?"),
    ("seed: 1", "seed: 1\nplan: { find: fewest-cards, gpus: [1, 2] }\nsweep: { seed: [1] }",
     "s.yaml:4: sweep: must be left out beside plan, which says itself what is tried, got a sweep"),
    ("slo: { latency: 100ms, at: p98 }", "plan: { find: fewest-cards, gpus: [1, 2] }",
     "s.yaml: slo: must be given: a plan looks for what keeps it, got nothing"),
    ("seed: 1", "seed: 1\nsamples: { latin-hypercube: 1 }\nsweep: { tenants.cuont: { from: 1, to: 9 } }",
     "s.yaml:4: sweep.tenants.cuont: must be one of count, domains, kinds, classes, popularity, presence, got an unknown key; did you mean count?"),
    ("seed: 1", "seed: 1\nsweep: { tenants.count: [] }",
     "s.yaml:3: sweep.tenants.count: must be a list of at least one value, got an empty list"),
    ("seed: 1", "seed: 1\nsweep: { tenant.count: [1] }",
     "s.yaml:3: sweep.tenant.count: must be the path of a key in one of seed, card, cluster, prices, models, tenants, workload, outcomes, systems, slo, jitter, got tenant; did you mean tenants?"),
    ("seed: 1", "seed: 1\nsweep: { 'systems[2].classes': [1] }",
     "s.yaml:3: sweep.systems[2].classes[0]: must be a list with an entry [2], got 2 entries"),
    ("seed: 1", "seed: 1\nsweep: { 'systems[0].preset': [bert-shared] }",
     "s.yaml:3: sweep.systems[0].preset[0]: must be left out here: presets are filled in before a sweep, so list one system for each instead, got a preset"),
    ("seed: 1", "seed: 1\nsweep: { 'systems[1].tenant_state': [head, model] }",
     "s.yaml:15: systems[1].batch: must be per-tenant where tenant_state is model, since a tenant's model serves nobody else, got a batch of several tenants where systems[1].tenant_state is \"model\""),
    ("seed: 1", "seed: 1\nsweep: { tenants.count: [1, 2, 1] }",
     "s.yaml:3: sweep.tenants.count[2]: must be another value than those before it, got 1"),
    // YAML itself.
    ("seed: 1", "seed: 1\nseed: 2",
     "s.yaml:1: must be YAML, got an error: duplicate entry with key \"seed\""),
    ("seed: 1", "seed: [1",
     "s.yaml:3: must be YAML, got an error: did not find expected ',' or ']'"),
    ("seed: 1", "seed: !big 1",
     "s.yaml:2: seed: must be a whole number, 0 or above, got a value tagged !big"),
];

#[test]
fn broken_files_say_what_is_wrong() {
    let mut different = String::new();
    for (good, broken, message) in BROKEN {
        assert!(GOOD.contains(good), "{good}");
        let said = errors(&GOOD.replacen(good, broken, 1), &[]);
        if said != *message {
            different += &format!("{broken}\n  says {said}\n  not  {message}\n");
        }
    }
    assert!(different.is_empty(), "{different}");
}

/// The sweep's values come after it.
#[test]
fn what_is_swept_is_not_set() {
    let swept = format!("{GOOD}sweep: {{ seed: [1, 2], cluster.gpus: [1, 2] }}\n");
    assert_eq!(errors(&swept, &["tenants.count=5"]), "nothing wrong");
    assert_eq!(
        errors(&swept, &["cluster.gpus=4"]),
        "--set: must be left out where sweep.cluster.gpus says which values it has, got cluster.gpus=4"
    );
    assert_eq!(errors(&swept, &["cluster.gpus=4", "sweep={}"]), "nothing wrong");
}

/// A decoder's first token takes a position too.
#[test]
fn the_longest_prompt_leaves_a_position() {
    let decoder = |tokens: u32| {
        let text = GOOD.replace("backbone: tiny", "backbone: tiny-llama").replace(
            "input: { fixed: 32 }",
            &format!("input: {{ fixed: {tokens} }}, output: {{ fixed: 1 }}"),
        );
        let systems = text.find("systems:").expect("it has some");
        let text = format!("{}systems: [{{ preset: vllm-backbone }}]\n", &text[..systems]);
        errors(&text, &[])
    };
    assert_eq!(decoder(2047), "nothing wrong");
    assert!(
        decoder(2048).contains("workload.lengths.input.fixed: must be at most 2047, "),
        "{}",
        decoder(2048)
    );
}

#[test]
fn overrides_say_what_is_wrong_with_them() {
    #[rustfmt::skip]
    let cases = [
        ("tenants.count", "--set: must be path=value, got tenants.count"),
        ("tenants..count=1", "--set: must be path=value with a path such as tenants.count, got tenants..count=1"),
        ("tenants.count=[", "--set: must be path=value with a value in YAML (did not find expected node content), got tenants.count=["),
        ("tenants.count=0", "--set: tenants.count: must be a whole number from 1 to 4294967295, got 0"),
        ("tenants.cuont=5", "--set: tenants.cuont: must be one of count, domains, kinds, classes, popularity, presence, got an unknown key; did you mean count?"),
        ("seed.x=5", "--set: seed: must be a mapping, to have a key x, got 1"),
        ("systems[5].classes=3", "--set: systems: must be a list with an entry [5], got 2 entries"),
        ("systems[0].preset=hbert", "--set: systems[0].preset: must be one of bert-dedicated, bert-compress, hbert-adapter, hbert-plot, hmi, bert-shared, gpt-dedicated, gpt-compress, gpt-shared, hgpt, punica, vllm-backbone, static-batches, queue-per-lora, chunked-prefill, pets, pets-fixed, seqs, pars, tabi, infaas-best, cocktail, arlo, arlo-st, arlo-dt, infaas, got hbert; did you mean hbert-plot?"),
        ("systems[0].preset=hmi", "s.yaml:13: systems[0].plot.lower_layers: must be fewer than the 2 layers of model backbone, got 6"),
        ("workload.arrivals.poisson.rate=50", "--set: workload.arrivals.poisson.rate: must be a rate above 0 with its unit (/s, /min, /h), such as 500/s, got 50"),
    ];
    for (set, message) in cases {
        assert_eq!(errors(GOOD, &[set]), message);
    }
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let text = GOOD
        .replace("count: 10", "count: 0")
        .replace("rate: 50/s", "rate: 50")
        .replace("at: p98", "at: 98");
    let said = errors(&text, &[]);
    let paths: Vec<&str> = said.lines().map(|line| line.split(": ").nth(1).unwrap()).collect();
    assert_eq!(paths, ["tenants.count", "workload.arrivals.poisson.rate", "slo.at"]);
}

#[test]
fn an_empty_file_is_no_scenario() {
    let keys = "name, seed, card, cluster, prices, models, tenants, workload, outcomes, systems, slo, sweep, samples, plan, repeats, validate, jitter";
    assert_eq!(
        errors("", &[]),
        format!("s.yaml: must be a mapping with keys out of {keys}, got nothing")
    );
}

#[test]
fn what_is_no_trace_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("poem.csv");
    std::fs::write(&file, "roses are red\n").unwrap();
    let file = file.to_str().unwrap();
    let text = GOOD.replace(
        "{ poisson: { rate: 50/s } }",
        &format!("{{ trace: {{ path: {file} }} }}"),
    );
    let said = errors(&text, &[]);
    assert!(
        said.starts_with(&format!(
            "{file}: must be usable as a trace, got an error: must begin as"
        )),
        "{said}"
    );
}

#[test]
fn what_can_not_be_found_is_looked_for_among_the_shipped() {
    let said = |name| Scenario::load(name, &[]).unwrap_err().to_string();
    let unknown = said("quickstrat");
    assert!(
        unknown.starts_with("scenario: must be a file, or one of those that `tenantry scenarios` lists, got "),
        "{unknown}"
    );
    assert!(
        unknown.ends_with(", got quickstrat; did you mean quickstart?"),
        "{unknown}"
    );
    assert!(said("hmi/fig12").ends_with("did you mean hmi/fig-12?"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("binary.yaml");
    std::fs::write(&file, [0xff, 0xfe]).unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(
        said(file),
        format!("{file}: must be a readable text file, got stream did not contain valid UTF-8")
    );
}

/// A system with tasks, to be broken likewise.
const TASKS: &str = "\
name: tasks
models: { backbone: tiny }
tenants: { count: 10, kinds: { lora: 1, bert-small/bit-fit: 1 } }
workload:
  arrivals: { poisson: { rate: 50/s } }
  lengths: { input: { fixed: 32 } }
  stop: { requests: 100 }
systems:
  - preset: pets
    tasks: { max_batch: 8, registrations: [{ task: 3, kind: dora }] }
";

/// Streams are classes by their place, and nobody knows beforehand how often a client that waits asks.
#[test]
fn streams_and_allocations_that_cannot_be() {
    let of = |classes: &str, more: &str, arrivals: &str| {
        let system = "{ preset: arlo, runtimes: { slo: 1s, max_length: 64 MORE } }".replace(" MORE", more);
        let text = GOOD.replacen("popularity: uniform", &format!("popularity: uniform{classes}"), 1);
        let text = text.replacen("poisson: { rate: 50/s }", arrivals, 1);
        errors(&text.replacen("{ preset: bert-shared, name: shared }", &system, 1), &[])
    };
    let poisson = "poisson: { rate: 50/s }";
    let streams = |name: &str| format!(", streams: [{{ name: {name}, model: tiny, slo: 1s, max_length: 64 }}]");
    let two = ", classes: { base: 3, large: 1 }";
    assert_eq!(of(two, &streams("large"), poisson), "nothing wrong");
    assert_eq!(of(two, &streams("other"), poisson), "nothing wrong");
    assert_eq!(
        of(two, &streams("base"), poisson),
        "s.yaml:14: systems[1].runtimes.streams[0].name: must be no other class's name: this stream serves class large of tenants.classes, whose order \
         is the streams', got base"
    );
    for (classes, count) in [("", 0), (", classes: 3", 3)] {
        let said = of(classes, &streams("large"), poisson);
        let must = "must be 2 service classes: one for the system itself and one for each of its runtimes.streams (1)";
        assert_eq!(said, format!("s.yaml:7: tenants.classes: {must}, got {count}"));
    }
    let clients = "closed-loop: { clients: 4, think_time: 1s }";
    assert_eq!(of("", ", allocate: even", clients), "nothing wrong");
    assert_eq!(
        of("", ", allocate: { global: {} }", clients),
        "s.yaml:14: systems[1].runtimes.allocate: must be even, fixed or periodic where clients wait for their answers, since nobody knows beforehand how \
         often they ask, got global"
    );
}

#[test]
fn a_prefix_that_fills_no_page_is_refused() {
    let of = |tokens: u32| {
        let keys = format!("shared_prefix: {{ tokens: {tokens} }}");
        let system = format!("{{ preset: punica, model: tiny-llama, generation: {{ {keys} }} }}\n");
        errors(&GOOD.replacen("preset: hbert-adapter\n", &system, 1), &[])
    };
    assert_eq!(of(16), "nothing wrong");
    assert_eq!(
        of(15),
        "s.yaml:13: systems[0].generation.shared_prefix.tokens: must be at least page_tokens (16), since whole pages of it are shared, got 15"
    );
}

#[test]
fn cards_for_prompts_that_cannot_be() {
    let of = |preset: &str, more: &str| {
        let system = format!("{{ preset: {preset}, model: tiny-llama, generation: {{ prefill_gpus: 3{more} }} }}\n");
        errors(
            &GOOD
                .replacen("gpus: 1", "gpus: 4", 1)
                .replacen("preset: hbert-adapter\n", &system, 1),
            &[],
        )
    };
    assert_eq!(of("punica", ""), "nothing wrong");
    let key = "s.yaml:13: systems[0].generation.prefill_gpus: must be";
    for (preset, more, said) in [
        (
            "punica",
            ", tensor_parallel: 2",
            "a multiple of tensor_parallel (2), got 3",
        ),
        (
            "punica",
            ", prefix_caching: true",
            "left out where prefix_caching is true: who is evicted returns to another card, got 3",
        ),
        (
            "queue-per-lora",
            "",
            "left out where join is not any-tenant: one tenant at a time would run on each side, got 3",
        ),
        ("hgpt", "", "left out where lower layers are looked up, got 3"),
    ] {
        let errors = of(preset, more);
        assert!(errors.contains(&format!("{key} {said}")), "{preset}{more}: {errors}");
    }
}

#[test]
fn cards_share_a_layer_by_whole_heads_of_keys_and_values() {
    let of = |cards: u32| {
        let system = format!("{{ preset: punica, model: tiny-llama, generation: {{ tensor_parallel: {cards} }} }}\n");
        errors(
            &GOOD
                .replacen("gpus: 1", "gpus: 4", 1)
                .replacen("preset: hbert-adapter\n", &system, 1),
            &[],
        )
    };
    assert_eq!(of(2), "nothing wrong");
    let said = "s.yaml:13: systems[0].generation.tensor_parallel: must be a divisor of the 2 heads of tiny-llama that keys and values have, got 4";
    assert!(of(4).contains(said), "{}", of(4));
}

#[test]
fn cards_that_come_and_go_and_cannot_be() {
    let of = |keys: &str| {
        let system = format!("{{ preset: punica, model: tiny-llama, generation: {{ {keys} }} }}\n");
        errors(
            &GOOD
                .replacen("gpus: 1", "gpus: 4", 1)
                .replacen("preset: hbert-adapter\n", &system, 1),
            &[],
        )
    };
    let scale = |start: u32, min: u32| format!("scale: {{ start: {start}, min: {min}, start_up: 1s, patience: 10s }}");
    assert_eq!(of(&scale(4, 2)), "nothing wrong");
    let at = "s.yaml:13: systems[0].generation.scale";
    for (keys, said) in [
        (scale(5, 1), ".start: must be at most cluster.gpus (4), got 5"),
        (scale(2, 3), ".min: must be at most start (2), got 3"),
        (scale(0, 1), ".start: must be"),
        (
            format!("{}, tensor_parallel: 2", scale(3, 2)),
            ".start: must be a multiple of tensor_parallel (2), got 3",
        ),
        (
            format!("{}, consolidate: null", scale(1, 1)),
            ": must be left out without consolidate, whose `light` says which cards are lightly loaded, got given",
        ),
        (
            format!("{}, prefill_gpus: 1", scale(1, 1)),
            ": must be left out where some cards only take prompts in, which are not emptied, got given",
        ),
    ] {
        let errors = of(&keys);
        assert!(errors.contains(&format!("{at}{said}")), "{keys}: {errors}");
    }
}

#[test]
fn tasks_that_are_wrong() {
    assert_eq!(
        errors(TASKS, &[]),
        "nothing wrong",
        "what a developer hands in is refused when it is served"
    );
    for (what, by, said) in [
        (
            "lora: 1",
            "lroa: 1",
            "tenants.kinds.lroa: must be one of adapters, mask-bert, diff-pruning, bit-fit, lora, got lroa; did you mean lora?",
        ),
        (
            "kinds: { lora: 1, bert-small/bit-fit: 1 }",
            "kinds: 4",
            "tenants.kinds: must be a mapping of kinds of tasks to shares, got a number",
        ),
        (
            ", kinds: { lora: 1, bert-small/bit-fit: 1 }",
            "",
            "tenants.kinds: must be given, since a system has tasks, got nothing",
        ),
        ("bert-small/", "bert-smal/", "got bert-smal; did you mean bert-small?"),
        (
            "task: 3",
            "task: 10",
            "systems[0].tasks.registrations[0].task: must be below tenants.count, 10, got 10",
        ),
        (
            "max_batch: 8",
            "max_tokens: 512",
            "systems[0].tasks.max_tokens: must be at most 128, the longest input of model tiny, got 512",
        ),
        (
            "max_batch: 8",
            "planning: { online: { targets: [] } }",
            "systems[0].tasks.planning.online.targets: must be a list of at least one latency, got an empty list",
        ),
        (
            "preset: pets",
            "preset: pets\n    dtype: f16",
            "systems[0].dtype: must be f32 where a system has tasks: their operators are single-precision, got f16",
        ),
        (
            "preset: pets",
            "preset: pets\n    pipeline: prefetch",
            "systems[0].pipeline: must be left out where a system has tasks, which say it themselves, got something",
        ),
        (
            "task: 3, kind: dora",
            "task: 3",
            "systems[0].tasks.registrations[0].kind: must be given, since there is no file, got nothing",
        ),
        (
            "kind: dora",
            "kind: dora, file: task.safetensors",
            "systems[0].tasks.registrations[0].kind: must be left out where there is a file, which says it, got something",
        ),
        (
            "kind: dora",
            "file: no/such.safetensors",
            "systems[0].tasks.registrations[0].file: must be a file that can be read, got no/such.safetensors: No such file",
        ),
        (
            "preset: pets",
            "preset: pets\n    files: { model: x, models: { bert-smal: y } }",
            "systems[0].files.models.bert-smal: must be bert-small, got bert-smal; did you mean bert-small?",
        ),
        (
            "preset: pets",
            "preset: pets\n    files: { tenants: x }",
            "systems[0].files.tenants: must be left out here: a task's file is one of tasks.registrations, got files",
        ),
        (
            "fixed: 32",
            "fixed: 129",
            "workload.lengths.input.fixed: must be at most 128, the longest input of system pets, got 129",
        ),
        (
            "max_batch: 8",
            "max_batch: 8, engine: { shared: { batching: { fixed: { size: 9 } } } }",
            "systems[0].tasks.engine.shared.batching.fixed.size: must be at most max_batch (8), got 9",
        ),
        (
            "batch: 8",
            "batch: 8, engine: { shared: { batching: alpha } }",
            "engine.shared.batching: must be one of fixed, alpha-only, beta-only, coordinated, by-variance, cheaper, got alpha",
        ),
    ] {
        let errors = errors(&TASKS.replacen(what, by, 1), &[]);
        assert!(errors.contains(said), "{by}: {errors}");
    }
    // Any file that can be read: what it holds is another matter.
    let of_file = "systems[0].tasks.registrations=[{ task: 3, file: Cargo.toml }]";
    let whole = "systems[0].tasks.engine={ sequential: { fine_tuned: as-a-whole } }";
    let said = errors(TASKS, &[of_file, whole]);
    let expected = "systems[0].tasks.engine.sequential.fine_tuned: must be by-kind where a task has a file, which holds its kind's parameters, \
                    got as-a-whole, with the file of task 3";
    assert!(said.ends_with(expected), "{said}");
}

/// Also where tasks share it.
#[test]
fn what_is_wrong_with_a_model_is_said_once_whoever_uses_it() {
    let odd = "odd: { kind: encoder, layers: 1, hidden: 4, heads: 3, intermediate: 4, vocabulary: 9, positions: 64 }";
    let text = GOOD
        .replace("backbone: tiny\n", &format!("backbone: tiny\n  {odd}\n"))
        .replace(
            "popularity: uniform }",
            "popularity: uniform, kinds: { odd/lora: 1, lora: 1 } }",
        )
        .replace(
            "  - preset: hbert-adapter\n  - { preset: bert-shared, name: shared }\n",
            "  - preset: pets\n",
        );
    assert_eq!(
        errors(&text, &[]),
        "s.yaml:7: models.odd.heads: must be a divisor of hidden (4), got 3"
    );
}
