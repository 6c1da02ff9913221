//! What a plan leaves: an answer that can be run, what its prices rest on, what binds.

use std::fs;

use super::{LOAD, plan};
use crate::common::{folder, good, good_json, names, tenantry};

#[test]
fn a_plan_leaves_an_answer_that_can_be_simulated() {
    let place = folder();
    let at = place.path();
    let report = good_json(at, &plan(&["--out", "p"]));
    assert_eq!(report["feasible"], true, "{report}");
    assert_eq!(
        names(&at.join("p")),
        ["answer.yaml", "manifest.json", "plan.html", "plan.json"]
    );
    let file: serde_json::Value = serde_json::from_slice(&fs::read(at.join("p/plan.json")).unwrap()).unwrap();
    assert_eq!(file, report);
    let simulated = good_json(at, &["simulate", "p/answer.yaml"]);
    assert_eq!(simulated["runs"].as_array().unwrap().len(), 1);
    assert_eq!(simulated["runs"][0]["slo"]["met"], true);

    let page = fs::read_to_string(at.join("p/plan.html")).unwrap();
    let answer = report["answer"].as_str().unwrap().replace('>', "&gt;").replace('/', "&#x2f;");
    assert!(page.contains(&answer), "{answer}");
    assert!(!page.contains("http://") && !page.contains("src=\"http"));
    let text = good(at, &plan(&["--out", "p"]));
    assert!(text.starts_with(report["answer"].as_str().unwrap()), "{text}");
}

/// The scenario that a plan writes is what the real machine runs.
#[cfg(feature = "libtorch")]
#[test]
fn an_answer_is_executed() {
    let place = folder();
    let at = place.path();
    let load = "workload={arrivals: {poisson: {rate: 100/s}}, lengths: {input: {fixed: 30}}, stop: {requests: 60}}";
    good(
        at,
        &[
            "plan", "s.yaml", "--set", load, "--set", LOAD[3], "--set", LOAD[5], "--out", "p",
        ],
    );
    let executed = good_json(at, &["execute", "p/answer.yaml", "--device", "cpu"]);
    let runs = executed["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 1);
    assert_eq!(
        (&runs[0]["requests"]["finished"], &runs[0]["machine"]),
        (&60.into(), &"cpu".into())
    );
    assert_eq!(runs[0]["slo"]["latency_ms"], 50.0);
}

/// A plan says of its card's tables at least what a simulation of its answer says.
#[test]
fn what_prices_rest_on_is_said_beside_the_answer() {
    let place = folder();
    let at = place.path();
    good(at, &["plan", "plan/fewest-cards", "--out", "p"]);
    good(at, &["simulate", "p/answer.yaml", "--out", "a"]);
    let caveats = |run: &str| -> Vec<String> {
        let manifest = fs::read(at.join(run).join("manifest.json")).unwrap();
        let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
        serde_json::from_value(manifest["caveats"].clone()).unwrap()
    };
    let (planned, simulated) = (caveats("p"), caveats("a"));
    let mut tables = 0;
    for caveat in &simulated {
        let Some((origin, list)) = caveat.rsplit_once("): ").filter(|_| caveat.starts_with("Card ")) else {
            continue;
        };
        for table in list.trim_end_matches('.').split("; ") {
            let is_said = |caveat: &String| caveat.starts_with(origin) && caveat.contains(table);
            assert!(planned.iter().any(is_said), "{origin}: {table} is not in {planned:#?}");
            tables += 1;
        }
    }
    let is_beyond = |caveats: &[String]| caveats.iter().any(|caveat| caveat.starts_with("Costs beyond"));
    assert!(
        tables > 0 && is_beyond(&planned) >= is_beyond(&simulated),
        "{simulated:#?}"
    );
    assert!(planned.iter().any(|caveat| caveat.starts_with("How sure an answer is takes")));
    let page = fs::read_to_string(at.join("p/plan.html")).unwrap();
    assert!(page.contains("How sure an answer is takes"));
}

/// Whoever runs the answer may be in another folder than who planned: its recording and its card are found all the
/// same.
#[test]
fn an_answer_is_run_from_any_folder() {
    let place = folder();
    let at = place.path();
    let data = at.join("data");
    let deep = at.join("deep/er");
    fs::create_dir_all(&data).unwrap();
    fs::create_dir_all(&deep).unwrap();
    good(at, &["trace", "generate", "s.yaml", "data/log.csv", "--set", LOAD[1]]);
    let load = "workload={arrivals: {trace: {path: ../data/./log.csv}}, lengths: {joint: of-arrivals}}";
    let set = [
        load,
        LOAD[3],
        LOAD[5],
        "card=../card",
        "prices={../card: 0.5, ../card/../card: 0.6}",
    ];
    let set = set.iter().flat_map(|set| ["--set", *set]);
    let arguments: Vec<&str> = ["plan", "../s.yaml", "--out", "../p"].into_iter().chain(set).collect();
    let report = good_json(&data, &arguments);
    let from_there = good_json(&data, &["simulate", "../p/answer.yaml", "--out", "a"]);
    let from_elsewhere = good_json(&deep, &["simulate", "../../p/answer.yaml", "--out", "b"]);
    assert_eq!(from_there, from_elsewhere);
    let cost = &from_elsewhere["runs"][0]["cost_per_million_requests"];
    assert!(
        cost.as_f64().unwrap() > 0.0 && report["feasible"] == true,
        "{from_elsewhere}"
    );

    // A card that comes with the program is called by its name; one of one's own under profiles/cards is not
    // everywhere.
    let card_of = |card: &str, dtype: &str| {
        good(
            at,
            &[
                "plan",
                "plan/highest-rate",
                "--out",
                "q",
                "--set",
                &format!("card={card}"),
                "--set",
                "workload.stop.requests=200",
                "--set",
                &format!("systems=[{{preset: bert-shared, dtype: {dtype}}}]"),
                "--set",
                "plan.precision=90%",
                "--set",
                "slo.latency=10s",
            ],
        );
        let answer: serde_yaml::Value = serde_yaml::from_slice(&fs::read(at.join("q/answer.yaml")).unwrap()).unwrap();
        answer["card"].as_str().unwrap().to_owned()
    };
    fs::create_dir_all(at.join("profiles/cards")).unwrap();
    fs::rename(at.join("card"), at.join("profiles/cards/own")).unwrap();
    assert_eq!(card_of("a100-sxm", "f16"), "a100-sxm");
    let own = card_of("own", "f32");
    assert!(own.starts_with('/') && own.ends_with("/profiles/cards/own"), "{own}");
}

/// A budget buys fewer cards when they cost more: that moves the answer though prices rank nothing.
#[test]
fn prices_move_what_a_budget_buys() {
    let place = folder();
    let find = "plan={find: highest-rate, load: {from: 0.1, to: 20}, precision: 10%, gpus: [1, 2, 4], cards: {./card: 1}, \
                max_cost_per_hour: 4}";
    let report = good_json(place.path(), &plan(&["--set", find, "--out", "p"]));
    let answer = report["answer"].as_str().unwrap();
    assert!(answer.contains(" on 4 cards of ./card "), "{answer}");
    let moves: Vec<(&str, &str)> = report["moves"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["if"].as_str().unwrap(), one["then"].as_str().unwrap()))
        .collect();
    assert_eq!(moves.len(), 2, "{report}");
    assert_eq!(moves[0].0, "If ./card costs 20 % more");
    assert!(moves[0].1.contains(" on 2 cards of ./card "), "{moves:?}");
    assert_eq!(moves[1], ("If ./card costs 20 % less", "the same"));
}

/// What an interrupted plan has run it does not run again, and says the same in the end.
#[cfg(unix)]
#[test]
fn an_interrupted_plan_keeps_its_runs_and_goes_on() {
    let place = folder();
    let at = place.path();
    let load =
        "workload={arrivals: {poisson: {rate: 20000/s}}, lengths: {input: {fixed: 30}}, stop: {requests: 120000}}";
    let command = |out| {
        let set = ["--set", load, "--set", LOAD[3], "--set", LOAD[5]];
        [&["plan", "s.yaml"], &set[..], &["--out", out]].concat()
    };
    let interrupted_after = |milliseconds| {
        let child = std::process::Command::new(env!("CARGO_BIN_EXE_tenantry"))
            .current_dir(at)
            .args(command("p"))
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(milliseconds));
        let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        assert!(killed.unwrap().success());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(130), "{said}");
        said
    };
    // A slow machine has finished no run so soon, and leaves nothing.
    let mut waits = (0..).map(|doubled| 500 << doubled);
    let said = waits.find_map(|wait| {
        let said = interrupted_after(wait);
        let is_none = said.starts_with("interrupted: no run of the plan was finished");
        assert_eq!(at.join("p").exists(), !is_none, "{said}");
        (!is_none).then_some(said)
    });
    let said = said.expect("in the end there is one");
    let left = names(&at.join("p"));
    let [partial] = &left[..] else {
        panic!("nothing else is left: {left:?}")
    };
    assert!(
        partial.starts_with("plan.") && partial.ends_with(".partial.json"),
        "{partial}"
    );
    let kept = format!("of the plan are kept in p/{partial}; the same command goes on with them");
    assert!(said.starts_with("interrupted: ") && said.contains(&kept), "{said}");

    // Another plan in the same folder neither takes nor loses what took long.
    let kept = fs::read(at.join("p").join(partial)).unwrap();
    let short = ["--set", "seed=2", "--set", "workload.stop={requests: 2000}"];
    let output = tenantry(at, &[&command("p")[..], &short].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    let note = format!("note: p/{partial} is of another plan, scenario, card, recording or build, and is left");
    assert!(said.contains(&note) && !said.contains("kept of this plan: "), "{said}");
    assert_eq!(fs::read(at.join("p").join(partial)).unwrap(), kept);

    let output = tenantry(at, &command("p"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("kept of this plan: "),
        "{said}"
    );
    assert_eq!(
        names(&at.join("p")),
        ["answer.yaml", "manifest.json", "plan.html", "plan.json"]
    );
    good(at, &command("whole"));
    let of = |out: &str| fs::read_to_string(at.join(out).join("plan.json")).unwrap();
    assert_eq!(of("p"), of("whole"));
}

/// Each scarcity made by hand is the one that is named; and more of it makes a better answer.
#[test]
fn what_is_made_scarce_is_what_binds() {
    let place = folder();
    let at = place.path();
    let asked = |scenario: &str, set: &[&str]| {
        let set = set.iter().flat_map(|set| ["--set", *set]);
        let arguments: Vec<&str> = ["plan", scenario, "--out", "p"].into_iter().chain(set).collect();
        let report = good_json(at, &arguments);
        let chosen = report["options"].as_array().unwrap().iter();
        let chosen = chosen.into_iter().find(|option| option["chosen"] == true).unwrap();
        let (binds, rate) = (&report["binds"], chosen["offered_rps"].as_f64().unwrap());
        let (what, sentence) = (binds["what"].as_str().unwrap(), binds["sentence"].as_str().unwrap());
        (what.to_owned(), sentence.to_owned(), rate)
    };
    let find = "plan={find: highest-rate, load: {from: 0.01, to: 40}, precision: 5%, repeats: 2}";

    // A language model on a card with little room for key-value caches, and on one with much.
    let chats = |memory: &str| {
        let set = [
            "sweep={}",
            find,
            "systems=[{preset: punica, dtype: f16}]",
            &format!("cluster.gpu_memory={memory}"),
        ];
        asked("gallery/assistants-one-card-many-loras", &set)
    };
    let [little, much] = ["20GiB", "70GiB"].map(chats);
    assert_eq!(
        (little.0.as_str(), much.0.as_str()),
        ("memory", "compute"),
        "{little:?} {much:?}"
    );
    assert!(much.2 > 2.0 * little.2, "{little:?} {much:?}");

    // Whole models for ten thousand tenants have to be copied all the time; were they all there, the card would
    // compute.
    let models = |tenants: &str| {
        let set = [
            find,
            "systems=[{preset: bert-dedicated, dtype: f16}]",
            "tenants.popularity=uniform",
            "workload.stop.requests=8000",
            tenants,
        ];
        asked("plan/highest-rate", &set)
    };
    let [many, few] = ["tenants.count=10000", "tenants.count=20"].map(models);
    assert_eq!(
        (many.0.as_str(), few.0.as_str()),
        ("link", "compute"),
        "{many:?} {few:?}"
    );
    assert!(
        many.1.contains("more memory would relieve it too") && few.2 > 2.0 * many.2,
        "{many:?} {few:?}"
    );

    // Where an instance copies or computes, neither lane is at its limit by itself, and both together are.
    let set = [
        find,
        "systems=[{preset: bert-dedicated, dtype: f16, pipeline: synchronous}]",
        "tenants.popularity=uniform",
        "tenants.count=110",
        "workload.lengths={input: {fixed: 512}}",
        "workload.stop.requests=4000",
        "cluster.gpu_memory=12GiB",
    ];
    let turns = asked("plan/highest-rate", &set);
    assert!(
        turns.0 == "link" && turns.1.starts_with("the link to the card and compute, which take turns: "),
        "{turns:?}"
    );

    // One layer above a table on the disk hardly computes.
    let table = |tier: &str, lower: u32| {
        let plot = format!(
            "{{lower_layers: {lower}, fragment_tokens: 3, threads: 1, tier: {tier}, domain_hits: 0%, fallbacks: 0%}}"
        );
        let set = [
            "sweep={}",
            find,
            &format!("systems=[{{preset: hmi, plot: {plot}}}]"),
            "workload.stop.after=20s",
        ];
        asked("gallery/table-in-memory-or-on-disk", &set)
    };
    let [disk, half] = [table("disk", 11), table("memory", 6)];
    assert_eq!(
        (disk.0.as_str(), half.0.as_str()),
        ("host-lookup", "compute"),
        "{disk:?} {half:?}"
    );
}
