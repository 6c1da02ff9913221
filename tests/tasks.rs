//! Tasks from the command line: what is refused is refused alone, and presets and scenarios are complete.

mod common;

use common::good;
use serde_json::Value;

fn runs(summary: &str) -> Vec<Value> {
    let value: Value = serde_json::from_str(summary).unwrap();
    value["runs"].as_array().unwrap().clone()
}

#[test]
fn faulty_registrations_are_refused_alone() {
    let place = tempfile::tempdir().unwrap();
    good(place.path(), &["check", "pets/refusals"]);
    let printed = good(place.path(), &["simulate", "pets/refusals", "--json", "--out", "out"]);
    let run = &runs(&printed)[0];
    let refused = &run["tasks"]["refused"];
    for reason in [
        "task_of_unknown_kind",
        "task_of_wrong_shape",
        "task_with_wrong_mask",
        "task_of_unknown_model",
        "task_registered_twice",
    ] {
        assert_eq!(refused[reason], 1, "{reason}: {refused}");
    }
    let counts = &run["requests"];
    let count = |key: &str| counts[key].as_u64().unwrap();
    assert!(count("finished") > 0 && count("rejected") > 0);
    assert_eq!(count("finished") + count("rejected"), count("offered"));
    let rejected = run["rejected_by"].as_object().unwrap();
    let turned_away: u64 = rejected.values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(turned_away, count("rejected"));
    // Three shared models on one card, and tasks of each.
    assert_eq!(run["tasks"]["loaded"], 8);
}

#[test]
fn full_models_run_out_of_memory_where_tasks_do_not() {
    let place = tempfile::tempdir().unwrap();
    let set = [
        "tenants.count=32",
        "workload.arrivals.burst.threads=32",
        "systems[0].tasks.planning.pool.size=32",
    ];
    let mut args = vec!["simulate", "pets/fig-8", "--json", "--out", "out"];
    args.extend(set.iter().flat_map(|set| ["--set", *set]));
    let runs = runs(&good(place.path(), &args));
    let rejected = |system: &str| {
        let run = runs.iter().find(|run| run["system"] == system).unwrap();
        run["requests"]["rejected"].as_u64().unwrap()
    };
    assert_eq!(rejected("pets"), 0);
    assert!(rejected("seqs") > 0 && rejected("pars") > 0);
}
