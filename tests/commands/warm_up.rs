//! What a run counts after its warm-up.

use serde_json::Value;

use crate::common::{folder, good_json};

/// A decoder on one to four cards, whose requests come faster and faster, and in pages that are scarce.
const DECODER: [&str; 5] = [
    "models={backbone: tiny-llama}",
    "cluster={gpus: 4, gpu_memory: 4 MiB}",
    "prices={./card: 2}",
    "systems=[{preset: punica, dtype: f32, generation: {lora: {rank: 8, slots: 8}, max_batch: 8, consolidate: {every: 50ms, light: 2}, \
     scale: {start: 1, min: 1, start_up: 20ms, patience: 50ms}}}]",
    "workload={arrivals: {ramp: {points: [{at: 0s, rate: 0/s}, {at: 2s, rate: 1500/s}, {at: 3s, rate: 0/s}]}}, \
     lengths: {input: {fixed: 30}, output: {fixed: 60}}}",
];

fn run(warm_up: &str) -> Value {
    let place = folder();
    let warm_up = format!("workload.warm_up={warm_up}");
    let sets = DECODER.into_iter().chain([warm_up.as_str()]).flat_map(|set| ["--set", set]);
    let args: Vec<&str> = ["simulate", "s.yaml"].into_iter().chain(sets).collect();
    good_json(place.path(), &args)["runs"][0].clone()
}

/// Cards of the time that throughput is of, and what they cost.
#[test]
fn cards_that_come_and_go_are_paid_from_the_warm_ups_end() {
    let mut found = Vec::new();
    for (warm_up, from_s) in [("0s", 0.0), ("1500ms", 1.5)] {
        let run = run(warm_up);
        let number = |name: &str| run[name].as_f64().unwrap();
        let end_s = from_s + number("duration_s");
        let cards = run["scaling"]["cards"].as_array().unwrap();
        let changes: Vec<(f64, f64)> =
            cards.iter().map(|change| (change[0].as_f64().unwrap(), count(&change[1]))).collect();
        assert!(changes.len() > 4, "cards come and go: {changes:?}");
        let ends = changes.iter().skip(1).map(|(at, _)| *at).chain([end_s]);
        let card_s: f64 = changes
            .iter()
            .zip(ends)
            .map(|((at, cards), end)| cards * (end.min(end_s) - at.max(from_s)).max(0.0))
            .sum();
        let mean = number("gpus_time_weighted");
        assert!(
            (mean - card_s / number("duration_s")).abs() < 0.01 * mean,
            "{mean} {card_s} {run}"
        );
        let cost = mean * 2.0 / 3600.0 * 1e6 / number("throughput_rps");
        assert!(
            (number("cost_per_million_requests") / cost - 1.0).abs() < 1e-3,
            "{cost} {run}"
        );
        found.push((
            mean,
            run["generation"]["recomputed_tokens"].as_u64().unwrap(),
            run["requests"]["offered"].clone(),
        ));
    }
    let [all, later] = &found[..] else {
        unreachable!("two runs")
    };
    assert_eq!(all.2, later.2, "requests are counted over the whole run");
    assert!(later.0 > 1.05 * all.0, "more cards later on: {found:?}");
    assert!(later.1 < all.1, "what was done before is left out: {found:?}");
}

/// Where nobody asks for minutes, nothing tells when the warm-up ends but the first who asks again.
#[test]
fn cards_are_counted_from_the_warm_ups_end_however_late_that_is_noticed() {
    let place = folder();
    let cards = |warm_up: &str| {
        let sets = [
            "cluster={gpus: 4}",
            "workload.arrivals={ramp: {points: [{at: 0s, rate: 100/s}, {at: 5s, rate: 100/s}, {at: 6s, rate: 0/s}, {at: 600s, rate: 0/s}, \
             {at: 601s, rate: 40/s}, {at: 640s, rate: 40/s}]}}",
            "workload.stop={}",
            "systems=[{preset: arlo-dt, runtimes: {slo: 1s, max_length: 64, scale: {start: 4, min: 1, start_up: 20ms, \
             rule: {headroom: {spare: 5%, interval: 1s, patience: 60}}}}}]",
            warm_up,
        ];
        let sets = sets.into_iter().flat_map(|set| ["--set", set]);
        let args: Vec<&str> = ["simulate", "s.yaml"].into_iter().chain(sets).collect();
        let run = good_json(place.path(), &args)["runs"][0].clone();
        let released = run["fleet"]["cards_released"].as_u64().unwrap();
        assert_eq!(released, 3, "{run}");
        run["gpus_time_weighted"].as_f64().unwrap()
    };
    // One card is given back each minute, whether or not anybody asks meanwhile.
    for (warm_up, expected) in [
        ("0s", (60.0 * (4.0 + 3.0 + 2.0) + 460.0) / 640.0),
        ("8s", (52.0 * 4.0 + 60.0 * (3.0 + 2.0) + 460.0) / 632.0),
        ("100s", (20.0 * 3.0 + 60.0 * 2.0 + 460.0) / 540.0),
    ] {
        let found = cards(&format!("workload.warm_up={warm_up}"));
        assert!(
            (found / expected - 1.0).abs() < 0.01,
            "{warm_up}: {found}, not {expected}"
        );
    }
}

/// A number, or one of a list of one.
fn count(of: &Value) -> f64 {
    of.as_f64().or_else(|| of[0].as_f64()).unwrap()
}

/// What a system does only in its warm-up it does not do afterwards, and still could.
#[test]
fn what_may_be_and_was_not_is_zero() {
    let place = folder();
    let generation = |warm_up: &str| {
        let warm_up = format!("workload.warm_up={warm_up}");
        let args = ["simulate", "punica/tiny-apart", "--set", "sweep={}", "--set", &warm_up];
        let runs = good_json(place.path(), &args)["runs"].clone();
        let run = runs.as_array().unwrap().iter().find(|run| run["system"] == "apart").unwrap();
        let copied = ["transfers", "transferred_bytes"].map(|key| run["generation"][key].as_u64());
        assert_eq!(
            run["generation"].get("reads"),
            None,
            "no adapters come from a disk: {run}"
        );
        copied
    };
    assert!(generation("0s").iter().all(|count| count.is_some_and(|count| count > 0)));
    assert_eq!(generation("1h"), [Some(0); 2]);
}
