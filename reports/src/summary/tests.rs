use proptest::prelude::*;
use serde_json::Value;
use tenantry_core::RunRecord;
use tenantry_core::command::{FailureReason, Verdict};
use tenantry_core::in_time::{Slo, Target};
use tenantry_core::server::runtimes::FleetUse;
use tenantry_traces::Duration;

use super::*;
use crate::folder::json;
use crate::testing::{labels, note, record};

/// The file's form, as scripts rely on it. Whoever changes it says so in the change log.
#[test]
fn golden() {
    let run = Run::new(labels("hmi", VIRTUAL), &record(1_000, Duration::from_millis(160)));
    let text = String::from_utf8(json(&Summary::new("golden", 7, &[run])).unwrap()).unwrap();
    assert_eq!(text, include_str!("../../tests/summary.golden.json"));
}

#[test]
fn what_does_not_apply_is_absent() {
    let summary = RunSummary::new(labels("idle", VIRTUAL), &RunRecord::default());
    let value = serde_json::to_value(&summary).unwrap();
    let keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    let labels = [
        "card",
        "gpus",
        "machine",
        "parameters",
        "repeat",
        "seed",
        "slo",
        "system",
    ];
    let counts = ["duration_s", "in_flight_mean", "lanes", "requests"];
    let mut expected = [&labels[..], &counts[..]].concat();
    expected.sort_unstable();
    assert_eq!(keys, expected);
    assert_eq!(value["slo"].get("met"), None);
}

#[test]
fn cost_is_of_the_cards_while_a_million_are_answered() {
    let with = |gpus, record: &RunRecord| {
        RunSummary::new(
            RunLabels {
                gpus,
                price_per_hour: Some(1.8),
                ..labels("any", VIRTUAL)
            },
            record,
        )
    };
    let mut record = record(1_000, Duration::from_millis(100));
    let one = with(1, &record);
    let seconds = 1e6 / one.throughput_rps.unwrap();
    assert_eq!(one.cost_per_million_requests, Some(rounded(seconds / 3600.0 * 1.8)));
    let of_two = with(2, &record).cost_per_million_requests.unwrap();
    assert!((of_two / one.cost_per_million_requests.unwrap() - 2.0).abs() < 1e-5);
    // Runtimes' cards are paid while they are there: here one and a half in the mean, of the eight that there may be.
    record.fleet = Some(FleetUse {
        card_time: Duration(record.end.0 / 2 * 3),
        ..FleetUse::default()
    });
    let of_some = with(8, &record);
    let share = of_some.cost_per_million_requests.unwrap() / one.cost_per_million_requests.unwrap();
    assert!((share - 1.5).abs() < 1e-4, "{share}");
    assert_eq!(with(1, &RunRecord::default()).cost_per_million_requests, None);
}

#[test]
fn rejected_and_failed_requests_miss_the_target() {
    let mut record = record(98, Duration::from_millis(100));
    let summary = RunSummary::new(labels("full", VIRTUAL), &record);
    assert_eq!(summary.slo_attainment, Some(0.98), "98 of 100, two rejected");
    assert_eq!(summary.slo.unwrap().met, Some(true));
    note(&mut record, Verdict::Failed(FailureReason::OutOfMemory), Duration::ZERO);
    let summary = RunSummary::new(labels("full", VIRTUAL), &record);
    assert_eq!(summary.slo.unwrap().met, Some(false));
}

#[test]
fn who_waits_for_ever_and_who_gives_up_too_late_miss_the_target() {
    let attained = |record: &RunRecord| RunSummary::new(labels("any", VIRTUAL), record).slo_attainment;
    let mut all = record(98, Duration::from_millis(100));
    note(&mut all, Verdict::Cancelled, Duration::from_millis(149));
    assert_eq!(attained(&all), Some(0.98), "who gives up before tells nothing");
    note(&mut all, Verdict::Cancelled, Duration::from_millis(151));
    all.in_time.came();
    assert_eq!(attained(&all), Some(rounded(98.0 / 102.0)));
    all.interrupted = true;
    assert_eq!(
        attained(&all),
        Some(rounded(98.0 / 101.0)),
        "it might have been answered"
    );
}

#[test]
fn a_target_keeps_its_name() {
    for (quantile, name) in [(0.5, "p50"), (0.98, "p98"), (0.999, "p99.9")] {
        let slo = Some(Slo {
            target: Target::of_latency(Duration::from_millis(1)),
            quantile,
        });
        let labels = RunLabels {
            slo,
            ..labels("any", VIRTUAL)
        };
        assert_eq!(RunSummary::new(labels, &RunRecord::default()).slo.unwrap().at, name);
    }
}

/// Every float of a value.
fn floats(value: &Value) -> Vec<f64> {
    match value {
        Value::Number(number) if number.is_f64() => vec![number.as_f64().unwrap()],
        Value::Array(items) => items.iter().flat_map(floats).collect(),
        Value::Object(fields) => fields.values().flat_map(floats).collect(),
        _ => Vec::new(),
    }
}

proptest! {
    #[test]
    fn summaries_keep_their_laws(requests in 1_u64..500, slowest_ns in 100_u64..10_000_000_000) {
        let record = record(requests, Duration(slowest_ns));
        let summary = RunSummary::new(labels("any", "cpu"), &record);
        let latency = summary.latency_ms.unwrap();

        let parts: f64 = summary.stages_ms().iter().map(|(_, ms)| ms.unwrap()).sum();
        prop_assert!((parts - latency.mean).abs() <= latency.mean * 1e-5, "{parts} against {latency:?}");

        let ordered = [latency.p50, latency.p90, latency.p95, latency.p98, latency.p99, latency.p999, latency.max];
        prop_assert!(ordered.is_sorted(), "{latency:?}");

        let RequestCounts { offered, finished, rejected, failed, cancelled, unfinished } = summary.requests;
        prop_assert_eq!(offered, finished + rejected + failed + cancelled + unfinished);

        let bytes = json(&summary).unwrap();
        prop_assert_eq!(&bytes, &json(&RunSummary::new(labels("any", "cpu"), &record)).unwrap());
        prop_assert_eq!(&serde_json::from_slice::<RunSummary>(&bytes).unwrap(), &summary);
        for float in floats(&serde_json::from_slice(&bytes).unwrap()) {
            prop_assert_eq!(float, rounded(float));
        }
    }

    #[test]
    fn rounding_is_close_and_final(value in -1e15_f64..1e15) {
        let once = rounded(value);
        prop_assert!((once - value).abs() <= value.abs() * 5e-6);
        prop_assert_eq!(rounded(once), once);
    }
}
