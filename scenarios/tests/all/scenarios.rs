//! What scenarios mean: shipped ones, presets, overrides, sweeps, and the resolved file.

use proptest::prelude::*;
use serde_json::json;
use tenantry_core::in_time::Target;
use tenantry_core::spec::{AdmitSpec, BatchSpec, PipelineSpec, SwapSpec, TenantState};
use tenantry_profiles::{AdapterImplementation, ModelKind};
use tenantry_scenarios::{Jitter, RunSpec, Scenario, presets, schema, shipped_names};
use tenantry_traces::{Duration, Time};

/// A scenario with `systems` and `more` lines at its end.
fn scenario(systems: &str, more: &str, overrides: &[&str]) -> Scenario {
    let text = format!(
        "name: test\nseed: 5\nmodels: {{ backbone: tiny }}\ntenants: {{ count: 10 }}\n\
         workload:\n  arrivals: {{ poisson: {{ rate: 30/min }} }}\n  lengths: {{ input: {{ fixed: 32 }} }}\n  \
         stop: {{ requests: 100, after: 1.5s }}\nsystems: {systems}\n{more}"
    );
    let overrides: Vec<String> = overrides.iter().map(|text| text.to_string()).collect();
    Scenario::from_yaml("test.yaml", &text, &overrides).unwrap_or_else(|errors| panic!("{errors}"))
}

const ONE: &str = "[{preset: bert-shared}]";

pub fn assert_round_trip(scenario: &Scenario) {
    let yaml = scenario.resolved_yaml();
    let again = Scenario::from_yaml(&scenario.file, &yaml, &[]).unwrap_or_else(|errors| panic!("{errors}\n{yaml}"));
    assert_eq!(again, *scenario, "{yaml}");
    assert_eq!(again.runs(), scenario.runs());
    assert_eq!(again.resolved_yaml(), yaml);
}

#[test]
fn shipped_scenarios_are_right() {
    for name in shipped_names() {
        let scenario = Scenario::load(name, &[]).unwrap_or_else(|errors| panic!("{errors}"));
        let own = name.rsplit('/').next().expect("a path has a last part");
        assert!(scenario.name.ends_with(own), "{name} is called {}", scenario.name);
        assert_eq!(
            scenario,
            Scenario::load(&format!("scenarios/{name}.yaml"), &[]).unwrap()
        );
        // What is asked of the card that everybody has, and so can be executed, says what it is held to.
        assert!(scenario.validate.is_some() || scenario.card != "cpu", "{name}");
        assert_round_trip(&scenario);
    }
}

#[test]
fn quickstart_compares_three_systems_on_the_processor() {
    let runs = Scenario::load("quickstart", &[]).unwrap().runs();
    let names: Vec<&str> = runs.iter().map(|run| run.system.name.as_str()).collect();
    assert_eq!(names, ["bert-dedicated", "hbert-adapter", "bert-shared"]);
    for run in &runs {
        assert_eq!((run.card.as_str(), run.tenants, run.gpus), ("cpu", 1000, 1));
        assert_eq!(run.workload, runs[0].workload);
        assert_eq!(run.cluster(1 << 40, 1, 1).gpu_memory_bytes, 256 << 20);
    }
    let models = 1000 * runs[0].system.pool.model.parameters() * 4;
    assert!(
        models > 4 * runs[0].gpu_memory_bytes.unwrap(),
        "bert-dedicated must swap"
    );
}

#[test]
fn a_preset_is_its_decisions() {
    let run = &scenario("[{preset: hbert-adapter}]", "", &[]).runs()[0];
    assert_eq!(run.system.name, "hbert-adapter");
    assert_eq!(run.system.admit, AdmitSpec::Open);
    let pool = &run.system.pool;
    assert_eq!(
        pool.tenant_state,
        TenantState::Adapters {
            bottleneck: 64,
            implementation: AdapterImplementation::GatherBmm
        }
    );
    assert_eq!(
        pool.batch,
        BatchSpec::SizeOrTimeout {
            max_size: 8,
            max_wait: Duration::ZERO
        }
    );
    assert_eq!(
        (pool.swap, pool.pipeline),
        (SwapSpec::LeastRecentlyUsed, PipelineSpec::PREFETCH)
    );
    assert_eq!(pool.model.name, "tiny");
}

/// HMI processes batches whenever its queue is not empty (section 7.4), and so do the systems that it is compared with:
/// none is charged a wait that the others do not have.
#[test]
fn who_is_compared_with_hmi_waits_for_company_no_longer_than_it() {
    for name in [
        "hmi",
        "hbert-adapter",
        "hbert-plot",
        "bert-shared",
        "bert-compress",
        "bert-dedicated",
    ] {
        let run = &scenario(&format!("[{{preset: {name}}}]"), "", &["models.backbone=bert-base"]).runs()[0];
        match run.system.pool.batch {
            BatchSpec::SizeOrTimeout { max_size: 8, max_wait } => assert_eq!(max_wait, Duration::ZERO, "{name}"),
            BatchSpec::PerTenant { max_size: 8 } => {}
            ref batch => panic!("{name}: {batch:?}"),
        }
    }
}

#[test]
fn presets_say_the_same_written_out() {
    for name in presets::names() {
        // Tables of presets stand for half of BERT's layers, and some generate.
        let backbone = match presets::yaml(name).unwrap().contains("generation:") {
            true => "models.backbone=opt-125m",
            false => "models.backbone=bert-base",
        };
        // Those that send requests from model to model decide by outcomes.
        let outcomes = "outcomes={pruned: [{degree: 0.7, words: 14%, loss: 0.3%}], averages: [{weights: [0.762, \
                        0.914], gain: 0.4%}], from: {generated: {task: sst-2, small: distilbert, large: bert-large, \
                        others: {tinybert-6: {right_if_large_is: 95%, right_if_large_is_not: 40%}, bert-base: \
                        {right_if_large_is: 95%, right_if_large_is_not: 40%}}}}}";
        let overrides = [backbone, "tenants.kinds={lora: 1}", outcomes];
        let by_name = scenario(&format!("[{{preset: {name}}}]"), "", &overrides);
        let copied = format!(
            "\n  -\n{}",
            presets::yaml(name).unwrap().lines().map(|l| format!("    {l}\n")).collect::<String>()
        );
        assert_eq!(scenario(&copied, "", &overrides), by_name);
        assert_round_trip(&by_name);
    }
}

#[test]
fn defaults() {
    let scenario = scenario(ONE, "", &[]);
    assert_eq!(
        (
            scenario.card.as_str(),
            scenario.repeats,
            scenario.slo,
            scenario.validate
        ),
        ("cpu", 1, None, None)
    );
    let run = &scenario.runs()[0];
    assert_eq!(
        (run.gpus, run.gpu_memory_bytes, run.jitter),
        (1, None, Jitter::Measured)
    );
    assert_eq!((run.warm_up, run.repeat, run.seed), (Duration::ZERO, 0, 5));
    assert_eq!(run.cluster(77, 1, 1).gpu_memory_bytes, 77);
    assert_eq!(run.workload.stop.requests, Some(100));
    assert_eq!(run.workload.stop.after, Some(Time(1_500_000_000)));
}

#[test]
fn limits_and_slo_are_fractions() {
    let more = "slo: {latency: 1min, at: p99.9}\nvalidate: {mean: 7%}\njitter: none\n";
    let scenario = scenario(ONE, more, &[]);
    let slo = scenario.slo.unwrap();
    assert_eq!(
        (slo.target, slo.quantile),
        (Target::of_latency(Duration::from_secs(60)), 0.999)
    );
    let limits = scenario.validate.unwrap();
    assert_eq!((limits.mean, limits.p98, limits.throughput), (Some(0.07), None, None));
    assert_eq!(scenario.runs()[0].jitter, Jitter::None);
}

#[test]
fn overrides_reach_every_key_and_apply_in_order() {
    let scenario = scenario(
        "[{preset: hbert-adapter}, {preset: bert-shared}]",
        "",
        &[
            "tenants.count=20",
            "tenants.count=30",
            "workload.arrivals={constant: {rate: 5/s}}",
            "systems[0].batch.size-or-timeout.max_size=4",
            "systems[1].name=other",
            "cluster.gpu_memory=2 GiB",
            "sweep={seed: [1, 2]}",
            "slo.latency=20ms",
            "slo.at=p50",
        ],
    );
    let runs = scenario.runs();
    assert_eq!(runs.len(), 4);
    assert_eq!((runs[0].tenants, runs[0].gpu_memory_bytes), (30, Some(2 << 30)));
    assert_eq!(
        runs[0].system.pool.batch,
        BatchSpec::SizeOrTimeout {
            max_size: 4,
            max_wait: Duration::ZERO
        }
    );
    assert_eq!(runs[1].system.name, "other");
    assert_eq!(runs[2].seed, 2);
    assert_round_trip(&scenario);
}

#[test]
fn runs_are_ordered_by_point_repeat_and_system() {
    let scenario = scenario(
        "[{preset: bert-shared}, {preset: bert-shared, name: b}]",
        "repeats: 2\nsweep: {tenants.count: [3, 1], workload.arrivals.poisson.rate: [10/s, 20/s]}\n",
        &[],
    );
    let runs = scenario.runs();
    let order: Vec<(u32, f64, u32, u64, &str)> = runs
        .iter()
        .map(|run| {
            let rate = match run.workload.arrivals {
                tenantry_traces::spec::ArrivalsSpec::Poisson { rate_per_s } => rate_per_s,
                _ => panic!("not Poisson"),
            };
            (run.tenants, rate, run.repeat, run.seed, run.system.name.as_str())
        })
        .collect();
    let mut expected = Vec::new();
    for tenants in [3, 1] {
        for rate in [10.0, 20.0] {
            for repeat in 0..2 {
                for name in ["bert-shared", "b"] {
                    expected.push((tenants, rate, repeat, 5 + u64::from(repeat), name));
                }
            }
        }
    }
    assert_eq!(order, expected);
    let parameters = [
        ("tenants.count", json!(3)),
        ("workload.arrivals.poisson.rate", json!("20/s")),
    ];
    assert_eq!(
        runs[4].parameters,
        parameters.map(|(path, value)| (path.to_string(), value))
    );
    assert!(runs.iter().all(|run| run.workload.seed == run.seed));
    assert_round_trip(&scenario);
}

/// The drawn rates and tenants of a sweep of both, in order.
fn drawn(samples: &str, seed: u64) -> Vec<(f64, u64)> {
    let more = format!(
        "samples: {samples}\nsweep: {{workload.arrivals.poisson.rate: {{from: 10/s, to: 1000/s, scale: log}}, \
         tenants.count: {{from: 1, to: 4}}}}\n"
    );
    let scenario = scenario("[{preset: bert-shared}]", &more, &[&format!("seed={seed}")]);
    assert_round_trip(&scenario);
    let value = |run: &RunSpec| {
        let rate = run.parameters[0].1.as_str().unwrap().strip_suffix("/s").unwrap();
        (rate.parse().unwrap(), run.parameters[1].1.as_u64().unwrap())
    };
    scenario.runs().iter().map(value).collect()
}

#[test]
fn a_latin_hypercube_has_one_value_in_each_part_of_every_range() {
    let points = drawn("{latin-hypercube: 40}", 7);
    let mut parts: Vec<u32> = points.iter().map(|(rate, _)| ((rate / 10.0).log10() * 20.0) as u32).collect();
    assert!(!parts.is_sorted(), "in no order");
    parts.sort_unstable();
    assert_eq!(parts, (0..40).collect::<Vec<u32>>());
    for tenants in 1..=4 {
        assert_eq!(points.iter().filter(|(_, count)| *count == tenants).count(), 10);
    }
    assert_eq!(points, drawn("{latin-hypercube: 40}", 7));
    assert_ne!(points, drawn("{latin-hypercube: 40}", 8));
}

/// However little of its values a narrow range leaves to differ in, samples lie in it and apart.
#[test]
fn samples_of_a_narrow_range_are_told_apart() {
    for (from, to) in [
        ("1000001/s", "1000004/s"),
        ("0.9999999/s", "1.0000001/s"),
        ("10/s", "1000/s"),
    ] {
        let more = format!(
            "samples: {{latin-hypercube: 5}}\nsweep: {{workload.arrivals.poisson.rate: {{from: {from}, to: {to}}}}}\n"
        );
        let scenario = scenario("[{preset: bert-shared}]", &more, &[]);
        let number = |text: &str| -> f64 { text.strip_suffix("/s").unwrap().parse().unwrap() };
        let (from, to) = (number(from), number(to));
        let runs = scenario.runs();
        let values = runs.iter().map(|run| number(run.parameters[0].1.as_str().unwrap()));
        let mut parts: Vec<u32> = values
            .inspect(|value| assert!((from..=to).contains(value), "{value} of {from} to {to}"))
            .map(|value| ((value - from) / (to - from) * 5.0) as u32)
            .collect();
        parts.sort_unstable();
        assert_eq!(parts, [0, 1, 2, 3, 4], "{from} to {to}");
    }
}

#[test]
fn random_samples_stay_the_same_when_there_are_more() {
    let few = drawn("{random: 10}", 7);
    let many = drawn("{random: 200}", 7);
    assert_eq!(few, many[..10]);
    assert!(many.iter().all(|(rate, tenants)| (10.0..=1000.0).contains(rate) && (1..=4).contains(tenants)));
    let low = many.iter().filter(|(rate, _)| *rate < 100.0).count();
    assert!(
        (70..130).contains(&low),
        "even in the logarithm: {low} of 200 in the lower half"
    );
}

#[test]
fn lists_and_ranges_combine() {
    let more = "samples: {random: 3}\nsweep: {jitter: [none, measured], workload.arrivals.poisson.rate: {from: 10/s, \
                to: 20/s}}\n";
    let runs = scenario("[{preset: bert-shared}]", more, &[]).runs();
    let values: Vec<&serde_json::Value> = runs.iter().map(|run| &run.parameters[1].1).collect();
    assert_eq!(values.len(), 6);
    assert_eq!(
        values[..3],
        values[3..],
        "the same draws beside every value of the lists"
    );
}

#[test]
fn a_sweep_reaches_into_presets() {
    let more = "sweep: {'systems[0].tenant_state.adapters.bottleneck': [8, 16]}\n";
    let scenario = scenario("[{preset: hbert-adapter}]", more, &[]);
    let bottlenecks: Vec<TenantState> = scenario.runs().iter().map(|run| run.system.pool.tenant_state).collect();
    let implementation = AdapterImplementation::GatherBmm;
    assert_eq!(
        bottlenecks,
        [8, 16].map(|bottleneck| TenantState::Adapters {
            bottleneck,
            implementation
        })
    );
    assert_round_trip(&scenario);
}

#[test]
fn models_have_shapes_of_their_own() {
    let shape = "{layers: 3, hidden: 64, heads: 4, intermediate: 256, vocabulary: 500, positions: 40}";
    let scenario = scenario(
        "[{preset: bert-shared, model: mine}]",
        "",
        &[&format!("models.mine={shape}")],
    );
    let model = &scenario.runs()[0].system.pool.model;
    assert_eq!(
        (model.name.as_str(), model.layers, model.kv_heads, model.positions),
        ("mine", 3, 4, 40)
    );
    assert_round_trip(&scenario);
}

#[test]
fn models_of_any_shape_may_be_decoders() {
    let shape = "{kind: decoder, layers: 3, hidden: 64, heads: 4, kv_heads: 2, intermediate: 256, gated: true, \
                 vocabulary: 500, positions: 200}";
    let scenario = scenario(
        "[{preset: punica, model: mine}]",
        "",
        &[&format!("models.mine={shape}")],
    );
    let model = &scenario.runs()[0].system.pool.model;
    assert_eq!((model.kind, model.kv_heads, model.gated), (ModelKind::Decoder, 2, true));
    assert_round_trip(&scenario);
}

#[test]
fn the_schema_describes_every_key() {
    let schema = schema();
    let described = |object: &serde_json::Value| {
        object["properties"]
            .as_object()
            .unwrap()
            .values()
            .all(|property| property.get("description").is_some() || property.get("$ref").is_some())
    };
    assert!(described(&schema));
    assert_eq!(
        schema["required"],
        json!(["name", "models", "tenants", "workload", "systems"])
    );
    let system = &schema["$defs"]["RawSystem"];
    assert!(described(system));
    assert_eq!(system["additionalProperties"], json!(false));
    let written_out = json!({"required": ["name", "tenant_state"]});
    assert_eq!(system["anyOf"], json!([{"required": ["preset"]}, written_out]));
    assert!(
        !schema.to_string().contains("\\n"),
        "lines are broken by whoever shows them"
    );
}

/// One of several texts.
fn any_of(texts: &'static [&'static str]) -> impl Strategy<Value = String> {
    proptest::sample::select(texts).prop_map(str::to_string)
}

fn time() -> impl Strategy<Value = String> {
    (1u64..5_000_000, any_of(&["us", "µs", "ms", "s"]))
        .prop_map(|(amount, unit)| format!("{}{unit}", amount as f64 / 100.0))
}

/// At least a millisecond.
fn long_time() -> impl Strategy<Value = String> {
    (100u64..5_000_000, any_of(&["ms", "s"])).prop_map(|(amount, unit)| format!("{}{unit}", amount as f64 / 100.0))
}

fn rate() -> impl Strategy<Value = String> {
    (1u32..1_000_000, any_of(&["/s", " / min", "/h"]))
        .prop_map(|(amount, unit)| format!("{}{unit}", f64::from(amount) / 7.0))
}

fn arrivals() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        rate().prop_map(|rate| format!("{{poisson: {{rate: {rate}}}}}")),
        rate().prop_map(|rate| format!("{{constant: {{rate: {rate}}}}}")),
        rate().prop_map(|rate| format!("{{twitter: {{rate: {rate}}}}}")),
        (rate(), 0.1f64..9.0).prop_map(|(rate, cv)| format!("{{gamma: {{rate: {rate}, cv: {cv}}}}}")),
        proptest::collection::vec((rate(), long_time()), 1..4).prop_map(|states| {
            let states: Vec<String> =
                states.iter().map(|(rate, dwell)| format!("{{rate: {rate}, mean_dwell: {dwell}}}")).collect();
            format!("{{mmpp: {{states: [{}]}}}}", states.join(", "))
        }),
        (rate(), time())
            .prop_map(|(rate, at)| format!("{{ramp: {{points: [{{at: 0, rate: 0/s}}, {{at: {at}, rate: {rate}}}]}}}}")),
        (1u32..9, time(), time()).prop_map(|(threads, stagger, period)| {
            format!("{{burst: {{threads: {threads}, stagger: {stagger}, period: {period}, repeats: 4}}}}")
        }),
    ];
    let nested = leaf.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 1..3)
                .prop_map(|parts| format!("{{superpose: [{}]}}", parts.join(", "))),
            (0.5f64..4.0, inner.clone())
                .prop_map(|(factor, part)| format!("{{scaled: {{factor: {factor}, arrivals: {part}}}}}")),
            (time(), time(), inner).prop_map(|(delay, length, part)| format!(
                "{{cut: {{delay: {delay}, length: {length}, repeat: true, arrivals: {part}}}}}"
            )),
        ]
    });
    prop_oneof![
        4 => nested,
        1 => time().prop_map(|think| format!("{{closed-loop: {{clients: 30, think_time: {think}}}}}")),
    ]
}

fn system() -> impl Strategy<Value = String> {
    let decisions = (
        any_of(&[
            "open",
            "{bounded-queue: {max_waiting: 70000}}",
            "{rate-limit: {rate: 7/min, burst: 3}}",
        ]),
        any_of(&["f32", "bf16", "f16"]),
        any_of(&["head", "{adapters: {bottleneck: 4, implementation: loop}}"]),
        any_of(&["longest", "{to: 64}"]),
        any_of(&["least-loaded", "round-robin"]),
        prop_oneof![
            Just("{fixed-size: {size: 4}}".to_string()),
            Just("{per-tenant: {max_size: 2}}".to_string()),
            time().prop_map(|wait| format!("{{size-or-timeout: {{max_size: 9, max_wait: {wait}}}}}")),
        ],
        any_of(&["synchronous", "prefetch", "layerwise"]),
    );
    let written_out = decisions.prop_map(|(admit, dtype, state, padding, place, batch, pipeline)| {
        format!(
            "admit: {admit}, dtype: {dtype}, tenant_state: {state}, padding: {padding}, place: {place}, \
             batch: {batch}, pipeline: {pipeline}"
        )
    });
    prop_oneof![
        written_out,
        any_of(&["bert-dedicated", "hbert-adapter", "bert-shared"]).prop_map(|preset| format!("preset: {preset}")),
    ]
}

proptest! {
    #[test]
    fn what_is_resolved_resolves_to_itself(
        seed: u64,
        gpu_memory in proptest::option::of((1u32..99_999, any_of(&["B", "KiB", " MiB", "GiB", "KB", " MB", "GB"]))),
        arrivals in arrivals(),
        input in any_of(&[
            "{fixed: 9}", "{normal: {mean: 30.5, sd: 10, min: 1, max: 99}}", "twitter", "{twitter: {tweets: arlo, \
                                                                                         span: 100}}",
            "{lognormal: {median: 20, sigma: 0.5, min: 2, max: 128}}", "{empirical: [3, 4, 4, 5]}",
            "{drifting: {from: {fixed: 9}, to: twitter, requests: 1000}}",
        ]),
        popularity in any_of(&["distinct", "uniform", "uniform-sqrt", "identical", "{zipf: 1.1}", "{skewed: 1.5}", "azure-functions"]),
        (after, warm_up) in (time(), any_of(&["0", "0.005us", "0s"])),
        systems in proptest::collection::vec(system(), 1..4),
        slo in proptest::option::of(time()),
        mean in proptest::option::of(1u32..1000),
        sweep in any_of(&["{}", "{tenants.count: [1, 5]}", "{seed: [3, 4], jitter: [none, measured]}", "{slo: \
                                                                                                        [{latency: \
                                                                                                        5ms, at: p90}]}"]),
    ) {
        let mut cluster = String::from("{}");
        if let Some((amount, unit)) = gpu_memory {
            cluster = format!("{{gpu_memory: {amount}{unit}}}");
        }
        let systems: String =
            systems.iter().enumerate().map(|(index, keys)| format!("  - {{name: system {index}, {keys}}}\n")).collect();
        let slo = slo.map(|latency| format!("slo: {{latency: {latency}, at: p99.5}}\n")).unwrap_or_default();
        let validate = mean.map(|mean| format!("validate: {{p98: {}%}}\n", f64::from(mean) / 10.0)).unwrap_or_default();
        let text = format!(
            "name: any\nseed: {seed}\ncluster: {cluster}\nmodels: {{backbone: tiny}}\n\
             tenants: {{count: 12, popularity: {popularity}}}\n\
             workload:\n  arrivals: {arrivals}\n  lengths: {{input: {input}}}\n  \
             stop: {{after: {after}}}\n  warm_up: {warm_up}\nsystems:\n{systems}sweep: {sweep}\n{slo}{validate}"
        );
        match Scenario::from_yaml("any.yaml", &text, &[]) {
            Ok(scenario) => assert_round_trip(&scenario),
            Err(errors) => panic!("{errors}\n{text}"),
        }
    }
}

/// Shared models are known by their keys, whatever their shapes: two of one shape are two models.
#[test]
fn tasks_name_shared_models_by_their_keys() {
    let text = |models: &str, kinds: &str| {
        format!(
            "name: test\nmodels: {models}\ntenants: {{ count: 8, kinds: {kinds} }}\n\
             workload:\n  arrivals: {{ poisson: {{ rate: 30/s }} }}\n  lengths: {{ input: {{ fixed: 32 }} }}\n  \
             stop: {{ requests: 100 }}\nsystems: [{{ preset: pets }}]\n"
        )
    };
    let scenario = |models: &str, kinds: &str| Scenario::from_yaml("test.yaml", &text(models, kinds), &[]);
    let names = |models: &str, kinds: &str| -> (String, Vec<(String, String)>, Vec<String>) {
        let scenario = scenario(models, kinds).unwrap_or_else(|errors| panic!("{errors}"));
        assert_round_trip(&scenario);
        let tasks = scenario.runs()[0].system.pool.tasks.clone().unwrap();
        let more = tasks.more_models.iter().map(|more| (more.name.clone(), more.shape.name.clone()));
        let mut asked: Vec<String> = tasks.registrations.iter().map(|of| of.model.clone()).collect();
        asked.sort();
        asked.dedup();
        (tasks.model.clone(), more.collect(), asked)
    };
    let of = |name: &str, shape: &str| (name.to_string(), shape.to_string());
    let (own, more, asked) = names("{ backbone: tiny, cased: tiny }", "{ bit-fit: 1, cased/bit-fit: 1 }");
    assert_eq!((own.as_str(), more), ("backbone", vec![of("cased", "tiny")]));
    assert_eq!(asked, ["backbone", "cased"]);
    // A built-in model's name is the key's that stands for it.
    let (_, more, asked) = names("{ backbone: tiny }", "{ bit-fit: 1, tiny/lora: 1, bert-small/lora: 1 }");
    assert_eq!(more, [of("bert-small", "bert-small")]);
    assert_eq!(asked, ["backbone", "bert-small"]);
    let error = scenario("{ backbone: tiny, cased: tiny }", "{ tiny/bit-fit: 1 }").unwrap_err();
    let expected = "tenants.kinds.tiny/bit-fit: must be one of backbone, cased, which are all of this shape, got tiny";
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
fn merge_keys_are_merged() {
    let text = "name: merged\nseed: 1\ncard: cpu\nmodels: { backbone: tiny }\ntenants: { count: 8 }\n\
                workload:\n  arrivals: { poisson: { rate: 30/s } }\n  lengths: { input: { fixed: 32 } }\n  stop: { requests: 100 }\n\
                systems:\n  - &first { preset: bert-shared, classes: 3 }\n  - { <<: *first, name: two }\n";
    let scenario = Scenario::from_yaml("test.yaml", text, &[]).unwrap_or_else(|errors| panic!("{errors}"));
    let runs = scenario.runs();
    let of: Vec<(&str, u32)> = runs.iter().map(|run| (run.system.name.as_str(), run.system.pool.classes)).collect();
    assert_eq!(of, [("bert-shared", 3), ("two", 3)]);
    assert_eq!(scenario.yaml_on("l4").matches("card: l4").count(), 1);
}
