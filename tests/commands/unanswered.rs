//! Requests that nobody answers: refused, failed, or none at all. Whoever reads a figure is told.

use serde_json::Value;

use crate::common::{folder, good, tenantry};

/// A third is longer than the model takes.
const TOO_LONG: &str = "workload.lengths={input: {quantiles: [{share: 0, tokens: 8}, {share: 1, tokens: 180}]}}";
const SLO: &str = "slo={latency: 50ms, at: p98}";
const PLAN: &str = "plan={find: fewest-cards, gpus: {from: 1, to: 4}}";

#[test]
fn what_was_refused_is_a_note() {
    let place = folder();
    let simulate = ["simulate", "s.yaml", "--set", TOO_LONG, "--set", "repeats=2"];
    let said = tenantry(place.path(), &simulate).stderr;
    let said = String::from_utf8(said).unwrap();
    let notes: Vec<&str> = said.lines().filter(|line| line.contains("were refused")).collect();
    assert_eq!(notes.len(), 2, "one for each system: {said}");
    assert!(
        notes[0].starts_with("note: bert-shared on virtual: in the run with most of them, ")
            && notes[0].ends_with(" too long)."),
        "{said}"
    );
    // No number of cards keeps the target, so that none is looked for.
    let next = |set: &[&str]| {
        let said = tenantry(place.path(), &[&["simulate", "s.yaml", "--set", SLO], set].concat()).stderr;
        String::from_utf8(said).unwrap().contains("next: tenantry plan")
    };
    assert!(next(&[]) && !next(&["--set", TOO_LONG]));
    let all = tenantry(place.path(), &["simulate", "s.yaml"]).stderr;
    assert!(!String::from_utf8(all).unwrap().contains("were refused"));
}

#[test]
fn a_plan_says_what_no_card_changes() {
    let place = folder();
    let plan = |more: &[&str]| {
        let args = [&["plan", "s.yaml", "--json", "--set", SLO, "--set", PLAN], more].concat();
        let output = tenantry(place.path(), &args);
        assert_eq!(
            output.status.code(),
            Some(3),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        report
    };
    let refused = plan(&["--set", TOO_LONG]);
    let answer = refused["answer"].as_str().unwrap();
    assert!(
        answer.starts_with("Nothing that was tried keeps") && answer.contains("of the requests were refused ("),
        "{answer}"
    );
    for option in refused["options"].as_array().unwrap() {
        let verdict = option["verdict"].as_str().unwrap();
        assert!(
            verdict.starts_with("given up: ") && verdict.contains(" too long)"),
            "{verdict}"
        );
        assert_eq!(
            option.get("cost_per_million_requests").filter(|cost| !cost.is_null()),
            None
        );
    }
    // However busy the cards are, nobody is let in for more of them.
    let binds = &refused["binds"];
    let sentence = binds["sentence"].as_str().unwrap();
    assert!(
        binds["what"] == "none"
            && sentence.starts_with("nothing that cards change: at the nearest, ")
            && sentence.contains(" of the requests are refused, as with any number of cards (")
            && sentence.contains(" too long); a model of more positions takes longer requests"),
        "{sentence}"
    );

    let silent = plan(&[
        "--set",
        "workload={arrivals: {constant: {rate: 0.001/s}}, lengths: {input: {fixed: 30}}, stop: {after: 60s}}",
    ]);
    let answer = silent["answer"].as_str().unwrap();
    assert_eq!(
        answer,
        "Nothing can be told: no request comes after the warm-up (workload.stop, workload.warm_up)."
    );
    let verdict = silent["options"][0]["verdict"].as_str().unwrap();
    assert_eq!(verdict, "given up: no request comes after the warm-up");
}

/// A decoder's compute is busy whenever anybody is inside: that alone is no limit.
#[test]
fn a_decoder_with_room_is_at_no_limit() {
    let place = folder();
    let at = place.path();
    let binds = |latency: &str| {
        let slo = format!("slo={{latency: {latency}, at: p98}}");
        let decoder = [
            "models={backbone: tiny-llama}",
            "systems=[{preset: punica, dtype: f32, generation: {lora: {rank: 8, slots: 8}}}]",
            "workload={arrivals: {poisson: {rate: 60/s}}, lengths: {input: {fixed: 30}, output: {fixed: 60}}, stop: {requests: 600}}",
            slo.as_str(),
            "plan={find: fewest-cards, gpus: [1]}",
        ];
        let sets: Vec<&str> = decoder.iter().flat_map(|set| ["--set", set]).collect();
        let said = tenantry(at, &[&["plan", "s.yaml", "--json"], &sets[..]].concat()).stdout;
        let report: Value = serde_json::from_slice(&said).unwrap();
        let binds = &report["binds"];
        assert_eq!(binds["what"], "none", "{binds}");
        binds["sentence"].as_str().unwrap().to_owned()
    };
    // In time, and with a target that no card reaches.
    for (latency, at) in [("10s", "answer"), ("1ms", "nearest")] {
        let (sentence, begins) = (
            binds(latency),
            format!("nothing is at its limit at the {at} (compute is busy "),
        );
        assert!(sentence.starts_with(&begins), "{sentence}");
    }
}

#[test]
fn a_trace_out_of_order_is_said_before_it_is_replayed() {
    let place = folder();
    let at = place.path();
    let rows = [0_u64, 2, 1, 3].map(|second| format!("{second},0,{second}000000000,8,0,0\n"));
    let log = format!(
        "ticket,tenant,arrival_ns,input_tokens,output_tokens,class\n{}",
        rows.concat()
    );
    std::fs::write(at.join("log.csv"), log).unwrap();
    let told = |args: &[&str]| String::from_utf8(tenantry(at, args).stderr).unwrap();
    let info = told(&["trace", "info", "log.csv"]);
    assert!(
        info.contains("note: log.csv: 1 of 4 requests stand after one of a later time"),
        "{info}"
    );
    assert!(!info.contains("tenantry new"), "{info}");
    let new = told(&["new", "mine.yaml", "--trace", "log.csv", "--defaults"]);
    assert!(
        new.contains(
            "--trace: log.csv:4: must be in order of time, got 1.000000 s after 2.000000 s; `tenantry trace convert"
        ) && !at.join("mine.yaml").exists(),
        "{new}"
    );
    good(at, &["trace", "convert", "log.csv", "sorted.csv", "--sort"]);
    assert!(!told(&["trace", "info", "sorted.csv"]).contains("later time"));
}
