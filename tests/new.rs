//! `tenantry new`, edited presets and completions.

mod common;

use std::fs;

use common::{Case, check_bad, folder, good, good_json};

#[test]
fn what_new_writes_is_valid_and_commented() {
    let folder = folder();
    for (file, flags) in [
        ("plain.yaml", "".to_owned()),
        (
            "shops.yaml",
            "--tenants 3000 --rate 200/s --latency 80ms --at p99 --card l4 --gpus 2".to_owned(),
        ),
        (
            "chat.yaml",
            "--model llama-7b --rate 2/s --input 200 --output 50 --card a100-sxm".to_owned(),
        ),
        (
            "own/systems.yaml",
            "--systems hbert-adapter,bert-shared --model tiny --card cpu".to_owned(),
        ),
    ] {
        let arguments = [
            &["new", file, "--defaults"][..],
            &flags.split_whitespace().collect::<Vec<_>>(),
        ]
        .concat();
        let value = good_json(folder.path(), &arguments);
        assert_eq!(value["file"], file);
        let text = fs::read_to_string(folder.path().join(file)).unwrap();
        assert!(text.lines().filter(|line| line.contains("# ")).count() > 10, "{text}");
        let checked = good_json(folder.path(), &["check", file]);
        assert_eq!(checked["valid"], true);
    }
    let shops = fs::read_to_string(folder.path().join("shops.yaml")).unwrap();
    assert!(shops.contains("count: 3000") && shops.contains("latency: 80ms, at: p99") && shops.contains("gpus: 2"));
    // The card has prices in half precision only, the presets want single.
    assert!(shops.contains("dtype: f16"), "{shops}");
}

const BAD: &[Case] = &[
    (
        &["new", "s.yaml"],
        2,
        &["s.yaml: must be a new file, got one that exists"],
    ),
    (
        &["new", "a.yaml", "--model", "bert-bas"],
        2,
        &["--model: must be one of", "did you mean bert-base?"],
    ),
    (
        &["new", "a.yaml", "--rate", "200"],
        2,
        &["a.yaml:", "workload.arrivals.poisson.rate"],
    ),
    (&["new", "a.yaml", "--card", "l5"], 2, &["l5"]),
    (
        &["new", "a.yaml", "--systems", "hmy"],
        2,
        &["systems[0].preset", "did you mean hmi?"],
    ),
];

#[test]
fn bad_answers_are_told_and_nothing_is_written() {
    let folder = folder();
    check_bad(folder.path(), BAD);
    assert!(!folder.path().join("a.yaml").exists());
}

#[test]
fn a_printed_preset_can_be_edited_and_used() {
    let folder = folder();
    let preset = good(folder.path(), &["presets", "bert-shared"]);
    fs::write(
        folder.path().join("mine.yaml"),
        preset.replace("name: bert-shared", "name: mine"),
    )
    .unwrap();
    let value = good_json(
        folder.path(),
        &["simulate", "s.yaml", "--set", "systems=[{preset: mine.yaml}]"],
    );
    assert_eq!(value["runs"][0]["system"], "mine");
}

#[test]
fn shells_get_their_completions() {
    let folder = folder();
    for shell in ["bash", "zsh", "fish"] {
        let text = good(folder.path(), &["completions", shell]);
        assert!(text.contains("simulate") && text.contains("tenantry"), "{shell}");
    }
}
