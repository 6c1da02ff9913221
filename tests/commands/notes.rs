//! What a reader must know of a run's figures: requests that did not come, or too few of them, silence, and what is
//! taken to be there.

use std::fs;
use std::path::Path;

use crate::common::{folder, good_json, said};

/// What `simulate` notes of a scenario with these keys set, without what it notes of cards.
fn notes(at: &Path, scenario: &str, set: &[&str]) -> Vec<String> {
    let set = set.iter().flat_map(|set| ["--set", *set]);
    let args: Vec<&str> = ["simulate", scenario].into_iter().chain(set).collect();
    let said = said(at, &args);
    let notes = said.lines().filter_map(|line| line.strip_prefix("note: "));
    notes
        .filter(|note| !note.starts_with("Card") && !note.starts_with("Compute, copies"))
        .map(str::to_owned)
        .collect()
}

/// One system, which waits for company as simulations and executions alike can: batches of one would be shorter than
/// the card was measured for.
const SHORT: &str = "systems=[{preset: bert-shared, batch: {size-or-timeout: {max_wait: 20ms}}}]";
const SLO: &str = "slo={latency: 1s, at: p98}";

/// Tenants that have gone do not come back: a longer run is farther from the rate of all of them.
#[test]
fn a_rate_that_follows_the_tenants_does_not_come_nearer() {
    let place = folder();
    let told = |presence: &str, after: &str, what: &str| {
        let presence = format!("tenants={{count: 1000, presence: {presence}}}");
        let after = format!("workload.stop={{after: {after}}}");
        let set = [SHORT, "workload.arrivals.poisson.rate=2000/s", &presence, &after];
        let notes = notes(place.path(), "s.yaml", &set);
        let told = notes.iter().find(|note| note.contains(what)).cloned();
        told.unwrap_or_else(|| panic!("{what}: {notes:?}"))
    };
    let lives = "{lifetimes: {present_at_start: 0.5, appear_within: 10s, mean_stay: 5s}}";
    for after in ["10s", "20s", "60s"] {
        let rate = told(lives, after, "at another rate");
        assert!(
            rate.contains("`tenants.presence.lifetimes`") && rate.ends_with("the longer, the fewer."),
            "{rate}"
        );
        assert!(!rate.contains("nearer") && !rate.contains("swing"), "{rate}");
    }
    // Nobody is left to ask.
    let over = told(lives, "200s", "the arrivals are over after ");
    assert!(
        over.contains("before workload.stop is reached (200 s): throughput, busy shares and costs are over the "),
        "{over}"
    );
    // A plan says it of its answer.
    let tenants = format!("tenants={{count: 1000, presence: {lives}}}");
    let until = "workload.stop={after: 200s}";
    let question = "plan={find: fewest-cards, gpus: [1]}";
    let mut plan = vec!["plan", "s.yaml", "--out", "p"];
    for set in [
        SHORT,
        SLO,
        "workload.arrivals.poisson.rate=2000/s",
        &tenants,
        until,
        question,
    ] {
        plan.extend(["--set", set]);
    }
    let answer = good_json(place.path(), &plan);
    assert!(
        answer["notes"].as_array().unwrap().iter().any(|note| *note == *over),
        "{answer}"
    );
    let appearing = "{lifetimes: {present_at_start: 0, appear_within: 20s}}";
    assert!(told(appearing, "20s", "at another rate").contains("From when all have appeared"));
    // Before all have appeared, many have gone.
    let passing = "{lifetimes: {present_at_start: 0.5, appear_within: 1h, mean_stay: 2h}}";
    assert!(told(passing, "20s", "at another rate").contains("Who goes does not come back"));
    let night = "{diurnal: {period: 24h, trough: 0.1, phases: together}}";
    assert!(told(night, "60s", "at another rate").contains("how many tenants are awake"));
}

/// Figures end with the last request: who waits for longer than is left asks no more.
#[test]
fn silence_at_the_end_is_told_of_with_both_times() {
    let place = folder();
    let clients = |think: &str| format!("workload.arrivals={{closed-loop: {{clients: 5, think_time: {think}}}}}");
    let told = notes(
        place.path(),
        "s.yaml",
        &[SHORT, &clients("20s"), "workload.stop={after: 30s}"],
    );
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].starts_with("the last request left at 20.0 s, and workload.stop.after is 30.0 s: throughput, "),
        "{told:?}"
    );
    for (think, stop) in [("2s", "{after: 30s}"), ("20s", "{after: 30s, requests: 10}")] {
        let told = notes(
            place.path(),
            "s.yaml",
            &[SHORT, &clients(think), &format!("workload.stop={stop}")],
        );
        assert!(told.is_empty(), "{told:?}");
    }
    // Over a sweep, once.
    let sweep = "sweep={workload.arrivals.closed-loop.clients: [5, 6, 7], cluster.gpus: [1, 2]}";
    let told = notes(
        place.path(),
        "s.yaml",
        &[&clients("20s"), "workload.stop={after: 30s}", sweep],
    );
    let ends: Vec<&String> = told.iter().filter(|note| note.starts_with("the last request")).collect();
    assert_eq!(ends.len(), 1, "{told:?}");
}

/// Tenants that come and go after it, too, are in no figure but their own.
#[test]
fn management_after_the_last_request_makes_no_run_longer() {
    let place = folder();
    let burst = "workload.arrivals={burst: {threads: 30, stagger: 1ms, period: 10ms, repeats: 2}}";
    let told = |management: &str| {
        let management = format!("workload.management={management}");
        let set = [SHORT, burst, "workload.stop={after: 20s}", &management];
        notes(place.path(), "s.yaml", &set)
    };
    let managed = told("{rates: {update: 5/s}}");
    assert!(
        managed[0].starts_with("the arrivals are over after 60 requests"),
        "{managed:?}"
    );
    assert_eq!(managed, told("null"));
}

/// Systems that keep all their tenants say so.
#[test]
fn management_to_no_effect_is_told_of() {
    let place = folder();
    let told = |system: &str| {
        let set = [
            &format!("systems=[{system}]"),
            "workload.management={rates: {present_at_start: 50%, create: 10/s, delete: 10/s}}",
        ];
        let notes = notes(place.path(), "s.yaml", &set);
        let no_effect = notes.into_iter().filter(|note| note.contains("workload.management has no effect"));
        no_effect.collect::<Vec<_>>()
    };
    let said = told("{preset: arlo, runtimes: {slo: 1s, max_length: 128}}");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].starts_with("arlo: ") && said[0].ends_with(" management requests applied."),
        "{said:?}"
    );
    assert!(told("{preset: bert-shared}").is_empty());
}

#[test]
fn a_verdict_by_few_requests_is_told_of_once() {
    let place = folder();
    let told = |requests: u32, more: &[&str]| {
        let stop = format!("workload.stop={{requests: {requests}}}");
        let notes = notes(place.path(), "s.yaml", &[&[SLO, stop.as_str()], more].concat());
        let few = notes.into_iter().filter(|note| note.contains("hangs on few requests"));
        few.collect::<Vec<_>>()
    };
    assert_eq!(
        told(30, &[]),
        [
            "Whether the target is met hangs on few requests: 30 were judged, of which 0.6 are expected beyond p98 \
             (hbert-adapter on virtual, bert-shared on virtual). About 500 would have ten there (`workload.stop`, \
             `repeats`)."
        ]
    );
    assert!(told(1, &[])[0].contains(": 1 was judged, of which 0.02 are"));
    assert!(told(100, &["repeats=2"])[0].contains(": 200 were judged in all repeats, of which 4 are"));
    for (requests, more) in [(500, "repeats=1"), (250, "repeats=2"), (20, "slo.at=p50")] {
        let told = told(requests, &[more]);
        assert!(told.is_empty(), "{requests} {more}: {told:?}");
    }
    // Nobody keeps it, which few requests tell as well.
    let hopeless = told(30, &["slo={latency: 1us, at: p98}"]);
    assert!(hopeless.is_empty(), "{hopeless:?}");
}

/// What nobody asked is alike for every seed, and says nothing of seeds.
#[test]
fn a_run_without_a_request_is_told_of_as_that() {
    let place = folder();
    let rare = [
        "workload.arrivals.poisson.rate=0.01/h",
        "workload.stop={after: 10s}",
        "repeats=2",
        SLO,
    ];
    assert_eq!(
        notes(place.path(), "s.yaml", &rare),
        ["No request came before workload.stop, so that nothing is known of how it would be answered."]
    );
}

/// Each card has a link of its own, and all links come from one memory.
#[test]
fn what_leaves_host_memory_for_many_cards_is_told_of() {
    let place = folder();
    fs::write(
        place.path().join("link.yaml"),
        "\
name: link
card: l4
cluster: { gpus: 64 }
models: { backbone: bert-base }
tenants: { count: 10000, popularity: uniform }
workload:
  arrivals: { poisson: { rate: 5000/s } }
  lengths: { input: { fixed: 64 } }
  stop: { after: 2s }
systems: [ { preset: bert-dedicated, dtype: f16 } ]
",
    )
    .unwrap();
    let told = |gpus: &str| {
        let notes = notes(place.path(), "link.yaml", &[gpus]);
        notes.into_iter().find(|note| note.contains("leave host memory"))
    };
    let many = told("cluster.gpus=64").unwrap();
    assert!(
        many.starts_with("bert-dedicated: ")
            && many.contains(" GB/s of tenants' parameters leave host memory for 64 cards together, which is taken")
            && many.contains("One host gives some 200 GB/s"),
        "{many}"
    );
    assert_eq!(told("cluster.gpus=4"), None);
}

/// Cards enough to keep more cores busy than a host has.
const PLOT: &str = "\
name: plot
card: h200-sxm
cluster: { gpus: 64 }
models: { backbone: bert-base }
tenants: { count: 100, popularity: uniform, domains: 2 }
workload:
  arrivals: { closed-loop: { clients: 8192, think_time: 0ms } }
  lengths: { input: { fixed: 64 } }
  stop: { requests: 30000 }
systems: [ { preset: hmi } ]
";

/// Each card looks up by itself, and cards of one host share its cores, its memory and its disk.
#[test]
fn what_look_ups_of_many_cards_take_of_a_host_is_told_of() {
    let place = folder();
    fs::write(place.path().join("plot.yaml"), PLOT).unwrap();
    let told = |what: &str, set: &[&str]| {
        let notes = notes(place.path(), "plot.yaml", set);
        notes.into_iter().find(|note| note.contains(what))
    };
    let cores = told("look-ups keep", &[]).unwrap();
    assert!(
        cores.starts_with("hmi: look-ups keep 2") && cores.contains("A host of h200-sxm has 16: it would take 2 hosts"),
        "{cores}"
    );
    let few = "workload.arrivals.closed-loop.clients=512";
    assert_eq!(told("look-ups keep", &["cluster.gpus=4", few]), None);
    let copied = told("leave host memory", &["cluster.gpus=512"]).unwrap();
    assert!(
        copied.contains(" GB/s of tenants' parameters and what was looked up leave host memory for 512 cards together"),
        "{copied}"
    );

    let on_disk = |cards: &str, hits: &str| {
        let hits = format!("systems[0].plot.domain_hits={hits}");
        let paper = ["card=paper-p5000", few, cards, "systems[0].plot.tier=disk", &hits];
        told("from the disk on average", &paper)
    };
    let disks = on_disk("cluster.gpus=8", "0%").unwrap();
    assert!(
        disks.starts_with("hmi: ") && disks.contains("for 8 cards together, each as fast as one alone"),
        "{disks}"
    );
    assert_eq!(on_disk("cluster.gpus=1", "0%"), None);
    assert_eq!(on_disk("cluster.gpus=8", "100%"), None);

    // At the share of the paper's whole table, and at the preset's.
    let of_tables = |set: &[&str]| {
        let set = [&[few, "workload.stop.requests=1000", "tenants.domains=100"][..], set].concat();
        told("domains' tables take", &set)
    };
    let whole = of_tables(&["systems[0].plot.domain_hits=100%"]).unwrap();
    assert!(
        whole.starts_with("hmi: ") && whole.contains("42.1\u{a0}TiB of host memory (100 of 431\u{a0}GiB)"),
        "{whole}"
    );
    assert_eq!(of_tables(&["tenants.domains=2"]), None);
}

/// Who is recommended what a host may not have learns of it before there is a simulation of it.
#[test]
fn what_a_plans_answer_takes_of_a_host_is_told_of() {
    let place = folder();
    fs::write(place.path().join("plot.yaml"), PLOT).unwrap();
    let set = [
        "tenants.domains=100",
        "slo={latency: 10s, at: p98}",
        "plan={find: fewest-cards, gpus: [64], repeats: 1}",
    ];
    let set = set.iter().flat_map(|set| ["--set", *set]);
    let plan: Vec<&str> = ["plan", "plot.yaml", "--out", "p"].into_iter().chain(set).collect();
    let of_host = |args: &[&str]| {
        let said = said(place.path(), args);
        let notes = said.lines().filter(|line| line.contains("taken to be there"));
        let mut notes: Vec<String> = notes.map(str::to_owned).collect();
        notes.sort();
        notes
    };
    let planned = of_host(&plan);
    let about = |what: &str| planned.iter().any(|note| note.contains(what));
    assert!(about("domains' tables take") && about("look-ups keep"), "{planned:#?}");
    assert_eq!(planned, of_host(&["simulate", "p/answer.yaml"]));
}

/// Of a decoder's scenario, say, whose model was exchanged.
#[test]
fn tokens_that_nobody_generates_are_told_of() {
    let place = folder();
    let told = |outputs: &str| {
        let lengths = format!("workload.lengths={{input: {{fixed: 24}}{outputs}}}");
        let notes = notes(place.path(), "s.yaml", &[SHORT, &lengths]);
        notes.iter().any(|note| note.starts_with("workload.lengths.output has no effect"))
    };
    assert!(told(", output: {fixed: 100}") && !told(""));
}

/// What is copied from card to card is what prompts leave on cards of their own.
#[test]
fn a_link_that_nothing_goes_over_is_told_of() {
    let place = folder();
    let told = |scenario: &str, set: &[&str]| {
        let notes = notes(place.path(), scenario, set);
        notes.iter().any(|note| note.starts_with("cluster.link has no effect"))
    };
    let link = "cluster.link={bandwidth: 25 GB/s}";
    assert!(told("s.yaml", &[SHORT, link]));
    assert!(!told("s.yaml", &[SHORT]));
    assert!(!told("punica/tiny-apart", &[link, "workload.stop.requests=50"]));
}

/// What served was no such card.
#[cfg(feature = "libtorch")]
#[test]
fn an_execution_on_another_device_says_what_its_price_is_of() {
    let place = a_gpus_card();
    let at = place.path();
    let executed = |more: &[&str]| {
        let args = [&["execute", "s.yaml", "--device", "cpu", "--set", SHORT], more].concat();
        said(at, &args)
    };
    let told = executed(&["--set", "card=./gpu", "--set", "prices={./gpu: 0.8}"]);
    assert!(
        told.contains(
            "requests were served by this processor: figures are of the latter, and costs are by the price of the \
             former (0.8 a card and hour)."
        ),
        "{told}"
    );
    let told = executed(&["--set", "card=./gpu"]);
    assert!(
        told.contains("served by this processor: figures are of the latter."),
        "{told}"
    );
    let told = executed(&["--set", "prices={./card: 0.8}"]);
    assert!(!told.contains("served by this processor"), "{told}");
}

/// Of two devices it is no wonder that they differ, and no drift.
#[cfg(feature = "libtorch")]
#[test]
fn a_validation_of_two_devices_suspects_no_drift() {
    let place = a_gpus_card();
    let at = place.path();
    let validated = |card: &str| {
        let card = format!("card={card}");
        let limits = "validate={mean: 1%, p98: 1%, throughput: 1%}";
        // Where batches fill otherwise than simulated, as on a busy machine, nothing is said of its pace.
        let alone = "systems[0].batch.size-or-timeout.max_size=1";
        let set = ["--set", SHORT, "--set", &card, "--set", limits, "--set", alone];
        let args = [&["validate", "s.yaml", "--device", "cpu"], &set[..]].concat();
        let output = crate::common::tenantry(at, &args);
        assert_eq!(
            output.status.code(),
            Some(3),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stderr).unwrap()
    };
    let told = validated("./gpu");
    assert!(told.contains("figures are of two devices"), "{told}");
    assert!(!told.contains("drifted") && !told.contains("--gauge"), "{told}");
    assert!(told.contains("(a card of this device)"), "{told}");
    let told = validated("./card");
    assert!(told.contains("drifted") && told.contains("--gauge"), "{told}");
}

/// Beside `card`, one called `gpu` that is said to be a GPU's.
#[cfg(feature = "libtorch")]
fn a_gpus_card() -> tempfile::TempDir {
    let place = folder();
    let mut card = tenantry_profiles::testing::synthetic_card();
    card.name = "gpu".into();
    card.device.kind = tenantry_profiles::DeviceKind::Cuda;
    card.save(&place.path().join("gpu")).unwrap();
    place
}

/// A layer costs what it costs whatever its model is called, and half as many cost half. Who reads a result is told
/// whose layers they are.
#[test]
fn layers_of_another_models_name_are_priced_and_told_of() {
    let place = folder();
    let at = place.path();
    let scenario = "\
name: alike
card: l4
models: { backbone: bert-base }
tenants: { count: 10 }
workload:
  arrivals: { poisson: { rate: 10/s } }
  lengths: { input: { fixed: 128 } }
  stop: { requests: 50 }
systems: [ { preset: bert-shared, dtype: f16 } ]
";
    fs::write(at.join("alike.yaml"), scenario).unwrap();
    // What a request computes, and what is to be known of it.
    let run = |set: &[&str]| {
        let set = set.iter().flat_map(|set| ["--set", *set]);
        let args: Vec<&str> = ["simulate", "alike.yaml", "--out", "run"].into_iter().chain(set).collect();
        let report = good_json(at, &args);
        let manifest: serde_json::Value =
            serde_json::from_slice(&fs::read(at.join("run/manifest.json")).unwrap()).unwrap();
        let compute_ms = report["runs"][0]["compute_ms"]["mean"].as_f64().unwrap();
        (compute_ms, manifest["caveats"].to_string())
    };
    let shape = |layers: u32| {
        let rest = "hidden: 768, heads: 12, intermediate: 3072, vocabulary: 50265, positions: 512";
        format!("models.backbone={{layers: {layers}, {rest}}}")
    };
    let (own_ms, told) = run(&[]);
    assert!(!told.contains("same shape"), "{told}");
    let (whole_ms, told) = run(&[&shape(12)]);
    // What is derived of either is not rounded alike.
    assert!((whole_ms / own_ms - 1.0).abs() < 1e-3, "{whole_ms} and {own_ms} ms");
    assert!(
        told.contains("imported (layers of bert-base, which have the same shape: "),
        "{told}"
    );
    let (half_ms, _) = run(&[&shape(6)]);
    assert!((0.5..0.75).contains(&(half_ms / own_ms)), "{half_ms} and {own_ms} ms");
    // What was measured stays measured, and is told of all the same.
    let (_, told) = run(&[&shape(12), "card=h200-sxm", "systems[0].dtype=bf16"]);
    let measured = "Card h200-sxm, measured (layers of bert-base, which have the same shape: ";
    assert!(told.contains(measured), "{told}");
}
