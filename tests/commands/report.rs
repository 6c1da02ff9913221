//! `tenantry report`: one folder's page again, and several side by side.

use std::fs;

use tenantry_profiles::Source;
use tenantry_profiles::testing::synthetic_card;

use crate::common::{Case, check_bad, folder, good, good_json, names, tenantry};

#[test]
fn one_folder_has_its_page_again() {
    let folder = folder();
    good(folder.path(), &["simulate", "s.yaml", "--out", "a"]);
    let page = || fs::read_to_string(folder.path().join("a/report.html")).unwrap();
    let words = |page: String| page.split_once(r#"id="chart-data""#).unwrap().0.to_owned();
    let before = words(page());
    fs::remove_file(folder.path().join("a/report.html")).unwrap();
    let value = good_json(folder.path(), &["report", "a"]);
    assert_eq!(value["page"], "a/report.html");
    assert_eq!(value["runs"].as_array().unwrap().len(), 2);
    assert_eq!(words(page()), before, "all that it says is the same");
}

/// Where the page goes by itself is looked at before it is made, too.
#[test]
fn a_place_where_no_page_can_go_is_found_at_once() {
    let folder = folder();
    let at = folder.path();
    good(at, &["simulate", "s.yaml", "--out", "a"]);
    good(at, &["simulate", "s.yaml", "--out", "b"]);
    let plan = [
        "slo={latency: 50ms, at: p98}",
        "plan={find: fewest-cards, gpus: [1, 2]}",
    ];
    good(
        at,
        &["plan", "s.yaml", "--out", "p", "--set", plan[0], "--set", plan[1]],
    );
    for page in ["a/report.html", "p/plan.html"] {
        fs::remove_file(at.join(page)).unwrap();
        fs::create_dir(at.join(page)).unwrap();
    }
    fs::write(at.join("out"), "a file").unwrap();
    const UNLESS: &str = "the page goes there unless `--out` says otherwise";
    check_bad(
        at,
        &[
            (
                &["report", "a", "--figures", "f"],
                2,
                &[
                    "--out: must be a file, or one that can be made, got a/report.html, which is a folder",
                    UNLESS,
                ],
            ),
            (
                &["report", "p"],
                2,
                &[
                    "--out: must be a file, or one that can be made, got p/plan.html, which is a folder",
                    UNLESS,
                ],
            ),
            (
                &["report", "a", "b"],
                2,
                &[
                    "--out: must be a file, or one that can be made, got out/report.html, where out is a file",
                    UNLESS,
                ],
            ),
        ],
    );
    assert!(!at.join("f").exists());
    good(at, &["report", "a", "--out", "elsewhere.html"]);
}

/// Nor where its files lie on it, or what is said of its processor and of the day.
#[test]
fn an_anonymous_page_does_not_tell_the_machine() {
    let folder = folder();
    let at = folder.path();
    let mut card = synthetic_card();
    card.provenance.source = Source::Measured;
    card.device.host.cpu = "Another Processor".to_owned();
    card.save(&at.join("card")).unwrap();
    let path = |name: &str| at.join(name).display().to_string();
    let (a, b, page) = (path("a"), path("b"), path("page.html"));
    for out in [&a, &b] {
        good(at, &["simulate", &path("s.yaml"), "--out", out]);
    }
    let plan = [
        "slo={latency: 50ms, at: p98}",
        "plan={find: fewest-cards, gpus: [1, 2]}",
    ];
    let p = path("p");
    good(
        at,
        &["plan", &path("s.yaml"), "--out", &p, "--set", plan[0], "--set", plan[1]],
    );
    let read = || fs::read_to_string(at.join("page.html")).unwrap().replace("&#x2f;", "/");
    for folders in [vec![&a], vec![&a, &b], vec![&p]] {
        let words: Vec<&str> = folders.into_iter().map(String::as_str).collect();
        let report = [&["report"][..], &words, &["--out", &page]].concat();
        good(at, &report);
        assert!(
            read().contains("this machine has ") && read().contains(&path("")),
            "{words:?}"
        );
        good(at, &[&report[..], &["--anonymous"]].concat());
        for told in ["this machine has ", &path("")] {
            let page = read();
            let place = page.find(told).map(|at| &page[at.saturating_sub(200)..at + 100]);
            assert_eq!(place, None, "{words:?}");
        }
    }
}

#[test]
fn several_folders_are_compared() {
    let folder = folder();
    good(folder.path(), &["simulate", "s.yaml", "--out", "slow"]);
    good(
        folder.path(),
        &[
            "simulate",
            "s.yaml",
            "--out",
            "fast",
            "--set",
            "workload.arrivals.poisson.rate=500/s",
        ],
    );
    let text = good(folder.path(), &["report", "slow", "fast", "--out", "pages/both.html"]);
    for name in ["slow: hbert-adapter", "fast: bert-shared"] {
        assert!(text.contains(name), "{text}");
    }
    let page = fs::read_to_string(folder.path().join("pages/both.html")).unwrap();
    assert!(page.contains("The folders") && page.contains("fast: bert-shared") && page.contains("chart-latency"));
    assert_eq!(good(folder.path(), &["report", "slow", "fast", "--quiet"]), "");
    assert!(folder.path().join("out/report.html").exists(), "the default place");
}

#[test]
fn a_folder_without_curves_has_a_page_without_charts_of_them() {
    let folder = folder();
    good(folder.path(), &["simulate", "s.yaml", "--out", "a"]);
    fs::remove_file(folder.path().join("a/curves.json")).unwrap();
    good(folder.path(), &["report", "a"]);
    let page = fs::read_to_string(folder.path().join("a/report.html")).unwrap();
    assert!(page.contains("hbert-adapter") && !page.contains("chart-latency"));
}

#[test]
fn a_plan_has_its_page_again() {
    let folder = folder();
    let at = folder.path();
    let set = [
        "slo={latency: 50ms, at: p98}",
        "plan={find: fewest-cards, gpus: [1, 2]}",
    ];
    let set = set.iter().flat_map(|set| ["--set", *set]);
    let planned: Vec<&str> = ["plan", "s.yaml", "--out", "p"].into_iter().chain(set).collect();
    let report = good_json(at, &planned);
    let page = || fs::read_to_string(at.join("p/plan.html")).unwrap();
    let before = page();
    fs::remove_file(at.join("p/plan.html")).unwrap();
    assert_eq!(good_json(at, &["report", "p"]), report);
    assert_eq!(page(), before);
    good(at, &["report", "p", "--figures", "f"]);
    assert_eq!(names(&at.join("f")), ["front.png", "front.svg"]);
    let front = fs::read_to_string(at.join("f/front.svg")).unwrap();
    let points = report["front"].as_array().unwrap().len();
    assert!(points > 0 && front.matches("<circle").count() >= points, "{front}");
    // Whatever the page's script draws has its place, though nothing dearer be faster.
    let mut alone = report.clone();
    for (index, point) in alone["front"].as_array_mut().unwrap().iter_mut().enumerate() {
        point["on_front"] = (index == 0).into();
    }
    fs::write(at.join("p/plan.json"), alone.to_string()).unwrap();
    good(at, &["report", "p"]);
    for page in [before, page()] {
        assert!(
            page.contains("\"id\":\"front\"") && page.contains("id=\"chart-front\""),
            "{page}"
        );
    }
    good(at, &["simulate", "s.yaml", "--out", "a"]);
    good(at, &["sweep", "s.yaml", "--shard", "1/2", "--out", "part"]);
    check_bad(
        at,
        &[
            (
                &["report", "a", "p"],
                2,
                &["p: must be a run's folder with a summary.json, got a plan's: `tenantry report p` alone"],
            ),
            (
                &["report", "part"],
                2,
                &["part: must be a run's folder", "`tenantry merge part`"],
            ),
            (
                &["report", "a", "./a/"],
                2,
                &["DIR: must be different folders, got ./a/ twice"],
            ),
        ],
    );
}

/// Of a folder that plans and runs were written to, the page is of what its manifest is of, and what is of the other is
/// said.
#[test]
fn a_folder_is_of_who_wrote_to_it_last() {
    let folder = folder();
    let at = folder.path();
    let plan = [
        "plan",
        "s.yaml",
        "--out",
        "both",
        "--set",
        "slo={latency: 50ms, at: p98}",
        "--set",
        "plan={find: fewest-cards, gpus: [1, 2]}",
    ];
    let simulate = ["simulate", "s.yaml", "--out", "both", "--requests"];
    let notes = || {
        let manifest = fs::read_to_string(at.join("both/manifest.json")).unwrap();
        let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
        manifest["caveats"].to_string()
    };
    good(at, &plan);
    good(at, &simulate);
    assert!(
        notes()
            .contains("both/plan.json, both/plan.html, both/answer.yaml were there before, and are not of these runs."),
        "{}",
        notes()
    );
    // A plan's answer that is simulated is of the runs.
    good(at, &["simulate", "./both/answer.yaml", "--out", "both"]);
    assert!(notes().contains("both/plan.html were there before"), "{}", notes());
    assert_eq!(good_json(at, &["report", "both"])["page"], "both/report.html");
    good(at, &["sweep", "s.yaml", "--out", "both"]);
    assert!(notes().contains("both/requests.parquet, both/plan.json"), "{}", notes());
    fs::write(at.join("both/reproduce.json"), "{}").unwrap();
    good(at, &plan);
    let note = "both/requests.parquet, both/reproduce.json were there before, and are not of this plan.";
    assert!(notes().contains(note), "{}", notes());
    assert_eq!(
        good_json(at, &["report", "both"])["page"],
        serde_json::Value::Null,
        "a plan's"
    );
    good(at, &["simulate", "s.yaml", "--out", "a"]);
    check_bad(
        at,
        &[(
            &["report", "a", "both"],
            2,
            &["both: must be a run's folder", "a plan's"],
        )],
    );
}

#[test]
fn runs_without_a_request_have_no_figures_and_say_so() {
    let folder = folder();
    let at = folder.path();
    let few = "workload.arrivals={constant: {rate: 1/h}}";
    good(
        at,
        &[
            "simulate",
            "s.yaml",
            "--out",
            "none",
            "--set",
            few,
            "--set",
            "workload.stop={after: 2s}",
            "--set",
            "workload.warm_up=0s",
        ],
    );
    let output = tenantry(at, &["report", "none", "--figures", "f"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("figures: none in f, since no request was answered"),
        "{said}"
    );
}

const BAD: &[Case] = &[
    (&["report"], 2, &["<DIR>"]),
    (
        &["report", "missing"],
        2,
        &["missing: must be a run's folder with a summary.json"],
    ),
    (&["report", "card"], 2, &["card: must be a run's folder"]),
    (
        &["report", "card", "--out", "card"],
        2,
        &["--out: must be a file, or one that can be made, got card, which is a folder"],
    ),
    (
        &["report", "s.yaml"],
        2,
        &["DIR: must be a folder that a command left its results in, got s.yaml, which is a file"],
    ),
    (
        &["report", "card", "--figures", "s.yaml"],
        2,
        &["--figures: must be a folder, or one that can be made, got s.yaml, where s.yaml is a file"],
    ),
    (
        &["report", "card", "--out", "s.yaml/page.html"],
        2,
        &["--out: must be a file, or one that can be made, got s.yaml/page.html, where s.yaml is a file"],
    ),
    (
        &["report", "broken"],
        2,
        &["broken/summary.json: 2: must be what Tenantry writes"],
    ),
    (
        &["report", "later"],
        2,
        &["later/summary.json: schema: must be 1, got 9"],
    ),
];

#[test]
fn bad_input_gives_the_contracts_message_and_exit_code() {
    let folder = folder();
    for (name, text) in [
        ("broken", "{\n  \"schema\": }"),
        ("later", r#"{"schema": 9, "scenario": "s", "seed": 1, "runs": []}"#),
    ] {
        fs::create_dir(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name).join("summary.json"), text).unwrap();
    }
    let before = names(folder.path());
    check_bad(folder.path(), BAD);
    assert_eq!(names(folder.path()), before);
}
