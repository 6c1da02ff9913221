//! Systems of runtimes from the command line: their allocation program, and what is said of it.

use crate::common::{good, good_json};
use serde_json::Value;

/// HiGHS serves as the dynamic program does: the same allocations at the same times.
#[cfg(feature = "libtorch")]
#[test]
fn both_solvers_serve_alike() {
    /// A minute of Fig. 6a in which the program is solved six times.
    fn fleet(solver: &str) -> Value {
        let place = tempfile::tempdir().unwrap();
        let solver = format!(
            "systems[0].runtimes.allocate={{periodic: {{period: 10s, first: 5s, at_once: 2, solver: {solver}}}}}"
        );
        let run = good_json(
            place.path(),
            &[
                "simulate",
                "arlo/fig-6a",
                "--set",
                &solver,
                "--set",
                "workload.stop={after: 1min}",
            ],
        );
        let runs = run["runs"].as_array().unwrap();
        let arlo = runs.iter().find(|run| run["system"] == "arlo").unwrap();
        arlo["fleet"].clone()
    }
    let [dynamic, highs] = ["dynamic", "highs"].map(fleet);
    assert!(
        dynamic["decisions"].as_u64() >= Some(5) && dynamic["replaced"].as_u64() > Some(0),
        "{dynamic}"
    );
    assert_eq!(dynamic["fallbacks"], 0);
    assert_eq!(highs, dynamic);
}

/// Ten cards cannot take what twenty-five are asked for, and whoever reads the figures is told, in the folder, the page
/// and on the terminal.
#[test]
fn an_allocation_that_is_no_solution_is_told_of() {
    let place = tempfile::tempdir().unwrap();
    let of = |cards: &str| {
        let cards = format!("cluster.gpus={cards}");
        let short = ["--set", "workload.stop={after: 6s}"];
        good_json(
            place.path(),
            &[&["simulate", "arlo/table-4", "--set", &cards][..], &short].concat(),
        )
    };
    let page = || std::fs::read_to_string(place.path().join("out/simulate/report.html")).unwrap();
    let told = "1 of 1 allocations stand for a solution, 1 since more requests came than the instances finish within the SLO, one of them of the longest runtime.";
    let fleet = |run: &Value| run["runs"][0]["fleet"].clone();
    let enough = of("40");
    assert_eq!(
        (&fleet(&enough)["decisions"], &fleet(&enough)["fallbacks"]),
        (&1.into(), &0.into())
    );
    assert!(fleet(&enough).get("fallbacks_by").is_none() && !page().contains(told));
    let too_few = of("10");
    assert_eq!(
        (&fleet(&too_few)["decisions"], &fleet(&too_few)["fallbacks"]),
        (&1.into(), &1.into())
    );
    assert_eq!(
        fleet(&too_few)["fallbacks_by"],
        serde_json::json!({ "demand_beyond_cards": 1 })
    );
    assert!(page().contains(told));
}

/// Fig. 12: a page draws how many instances each runtime has over time.
#[test]
fn a_page_draws_the_allocation_over_time() {
    let place = tempfile::tempdir().unwrap();
    good(
        place.path(),
        &[
            "simulate",
            "arlo/fig-6a",
            "--set",
            "workload.stop={after: 15s}",
            "--set",
            "workload.warm_up=0s",
        ],
    );
    let page = std::fs::read_to_string(place.path().join("out/simulate/report.html")).unwrap();
    assert!(
        page.contains("Instances of each runtime") && page.contains("backbone/512"),
        "{}",
        page.len()
    );
}
