//! `tenantry new`, edited presets and completions.

use std::fs;

use crate::common::{Case, check_bad, folder, good, good_json, said};

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
        // What these systems ask of a scenario beside the rest is in it, and the card is one that has them.
        ("cascade.yaml", "--systems tabi,infaas-best".to_owned()),
        ("mixed.yaml", "--systems tabi,bert-shared --model bert-large".to_owned()),
        ("tasks.yaml", "--systems pets,seqs".to_owned()),
        ("runtimes.yaml", "--systems arlo,arlo-dt".to_owned()),
        // The usual card has neither model.
        ("small.yaml", "--model bert-mini".to_owned()),
        ("llama.yaml", "--model llama3.1-8b".to_owned()),
        // No card holds it alone.
        ("large.yaml", "--model llama-70b --card h100-sxm --gpus 8".to_owned()),
        ("alone.yaml", "--model llama-70b".to_owned()),
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
    let cascade = fs::read_to_string(folder.path().join("cascade.yaml")).unwrap();
    assert!(cascade.starts_with("# 1000 tenants on 1 × "), "{cascade}");
    // A conversation of ShareGPT may be longer than a model takes.
    let offers = |file: &str| {
        let text = fs::read_to_string(folder.path().join(file)).unwrap();
        text.contains("# or { joint: sharegpt }")
    };
    assert!(offers("llama.yaml") && !offers("chat.yaml"));
    let alone = fs::read_to_string(folder.path().join("alone.yaml")).unwrap();
    assert!(
        alone.contains("gpus: 4") && alone.contains("tensor_parallel: 4"),
        "{alone}"
    );
    let large = fs::read_to_string(folder.path().join("large.yaml")).unwrap();
    assert!(
        large.contains("dtype: bf16, generation: { tensor_parallel: 4 } }"),
        "{large}"
    );
    good(
        folder.path(),
        &["simulate", "large.yaml", "--set", "workload.stop.after=65s"],
    );
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
        &["--rate: must be a rate above 0 with its unit (/s, /min, /h), such as 500/s, got 200"],
    ),
    (
        &["new", "a.yaml", "--tenants", "0", "--gpus", "0"],
        2,
        &[
            "--tenants: must be a whole number from 1 to",
            "--gpus: must be a whole number from 1 to 100000, got 0",
        ],
    ),
    (
        &["new", "a.yaml", "--output", "7"],
        2,
        &["--output: must be left out for a model that generates nothing, as bert-base, got 7"],
    ),
    (
        &["new", "a.yaml", "--card", "l5"],
        2,
        &["error: --card: must be a folder with a card.yaml or one of ", "got l5"],
    ),
    (
        &["new", "a.yaml", "--model", "llama-7b", "--card", "cpu"],
        2,
        &[
            "--card: must be one that has prices, and memory, for llama-7b with punica",
            "a100-sxm",
            "got cpu",
        ],
    ),
    (
        &["new", "a.yaml", "--model", "llama-70b", "--gpus", "1"],
        2,
        &[
            "--gpus: must be a multiple of 4 for llama-70b with punica, queue-per-lora, vllm-backbone",
            "got 1 (must be of at least ",
        ],
    ),
    (
        &["new", "a.yaml", "--model", "llama-70b", "--systems", "gpt-dedicated"],
        2,
        &[
            "--model: must be one for which a card has prices, and memory, with gpt-dedicated on 1 card, got llama-70b (a100-sxm: must be of at least ",
        ],
    ),
    (
        &["new", "a.yaml", "--systems", "hmi,hmy"],
        2,
        &["error: --systems: must be one of ", "got hmy; did you mean hmi?"],
    ),
    (
        &["new", "a.yaml", "--systems", "hmi,"],
        2,
        &["error: --systems: must be one of ", "got an empty text"],
    ),
    (
        &["new", "a.yaml", "--systems", "hmi,hmi"],
        2,
        &["error: --systems: must be a name that no system before it has, got hmi"],
    ),
    // Who has models of its own is asked for no other.
    (
        &["new", "a.yaml", "--systems", "tabi,infaas-best", "--model", "llama-7b"],
        2,
        &["--model: must be left out where all systems have models of their own, as tabi, infaas-best, got llama-7b"],
    ),
    // What YAML would read otherwise is still the flag's value.
    (
        &["new", "a.yaml", "--tenants", "5 # x", "--gpus", "2, gpu_memory: 1 GiB"],
        2,
        &[
            "--tenants: must be a whole number from 1 to 4294967295, got 5 # x",
            "--gpus: must be a whole number from 1 to 100000, got 2, gpu_memory: 1 GiB",
        ],
    ),
    (
        &[
            "new",
            "a.yaml",
            "--rate",
            "100/s } } #",
            "--latency",
            "1s\nseed: 9",
            "--at",
            "p98 }",
        ],
        2,
        &[
            "--rate: must be a rate above 0 with its unit (/s, /min, /h), such as 500/s, got 100/s } } #",
            "--latency: must be ",
            "--at: must be ",
            "got p98 }",
        ],
    ),
];

/// What it takes by itself is no scenario that nothing can serve.
#[test]
fn the_usual_load_is_one_that_the_usual_card_serves() {
    let folder = folder();
    let at = folder.path();
    for (file, flags) in [
        ("texts.yaml", &[][..]),
        ("chat.yaml", &["--model", "llama-7b", "--tenants", "50"]),
    ] {
        good(at, &[&["new", file, "--defaults"], flags].concat());
        let runs = &good_json(
            at,
            &[
                "simulate",
                file,
                "--set",
                "workload.stop={requests: 400}",
                "--set",
                "workload.warm_up=0s",
            ],
        )["runs"];
        let within = runs.as_array().unwrap().iter().map(|run| run["slo_attainment"].as_f64().unwrap());
        let best = within.fold(0.0, f64::max);
        assert!(best > 0.9, "{file}: {runs}");
    }
}

#[test]
fn a_name_with_a_space_is_quoted_in_the_next_command() {
    let folder = folder();
    let written = crate::common::tenantry(folder.path(), &["new", "my chat.yaml", "--defaults"]);
    let said = String::from_utf8(written.stderr).unwrap();
    assert!(said.contains("next: tenantry simulate 'my chat.yaml'"), "{said}");
    let text = fs::read_to_string(folder.path().join("my chat.yaml")).unwrap();
    assert!(text.contains("tenantry check 'my chat.yaml'"), "{text}");
}

/// Files, cards' folders and recordings may be called anything, also what is something else in YAML.
#[test]
fn names_that_yaml_reads_otherwise_are_quoted() {
    let folder = folder();
    let at = folder.path();
    fs::create_dir(at.join("out")).unwrap();
    fs::rename(at.join("card"), at.join("out/my card #2")).unwrap();
    let trace = "caf\u{65}\u{301}.csv";
    fs::write(
        at.join(trace),
        "arrival_ns,tenant,input_tokens,output_tokens,class\n0,7,12,0,0\n1000000,0,20,0,0\n2000000,7,9,0,0\n",
    )
    .unwrap();
    let card = [
        "--model",
        "tiny",
        "--card",
        "out/my card #2",
        "--systems",
        "bert-shared",
    ];
    for (file, name, flags) in [
        ("123.yaml", "123", &[][..]),
        ("true.yaml", "true", &card),
        ("#x.yaml", "#x", &["--trace", trace]),
        ("a:.yaml", "a:", &[]),
    ] {
        good(at, &[&["new", file, "--defaults"], flags].concat());
        assert_eq!(good_json(at, &["check", file])["scenario"], name, "{file}");
    }
}

#[test]
fn bad_answers_are_told_and_nothing_is_written() {
    let folder = folder();
    check_bad(folder.path(), BAD);
    assert!(!folder.path().join("a.yaml").exists());
}

#[test]
fn outputs_that_positions_cut_are_told_of() {
    let folder = folder();
    let new = |file: &str, output: &str| {
        let flags = [
            "--model",
            "llama-7b",
            "--input",
            "4000",
            "--output",
            output,
            "--defaults",
        ];
        said(folder.path(), &[&["new", file], &flags[..]].concat())
    };
    let note =
        "note: inputs of 4,000 tokens leave 96 of the 4,096 positions of llama-7b: outputs of 200 tokens end there";
    let told = new("long.yaml", "200");
    assert!(told.contains(note), "{told}");
    assert!(!new("short.yaml", "96").contains("positions"));
}

/// As a list is written, with spaces behind its commas.
#[test]
fn systems_may_have_spaces_between_them() {
    let folder = folder();
    let at = folder.path();
    good(
        at,
        &["new", "a.yaml", "--systems", "hbert-adapter, bert-shared", "--defaults"],
    );
    good(
        at,
        &["new", "b.yaml", "--systems", "hbert-adapter,bert-shared", "--defaults"],
    );
    let read = |file: &str| fs::read_to_string(at.join(file)).unwrap();
    assert_eq!(
        read("a.yaml").replace("a.yaml", "b.yaml").replace("name: a", "name: b"),
        read("b.yaml")
    );
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
        let value = good_json(folder.path(), &["completions", shell]);
        assert_eq!(
            (&value["shell"], &value["script"]),
            (&shell.into(), &text.as_str().into())
        );
        assert!(text.contains("simulate") && text.contains("tenantry"), "{shell}");
        // Names that commands know. Fish is told of flags' values only.
        for name in ["hbert-adapter", "llama-7b", "a100-sxm", "quickstart"] {
            let is_told = shell != "fish" || name != "quickstart";
            assert_eq!(text.contains(name), is_told, "{shell}: {name}");
        }
    }
}

#[test]
fn shipped_scenarios_are_listed_printed_and_run() {
    let folder = folder();
    let list = good(folder.path(), &["scenarios"]);
    for name in tenantry_scenarios::shipped_names() {
        let line = list.lines().find(|line| line.split_whitespace().next() == Some(name));
        let about = line.map_or("", |line| line[name.len()..].trim());
        assert!((20..160).contains(&about.chars().count()), "{name}: {about}");
    }
    let text = good(folder.path(), &["scenarios", "quickstart"]);
    fs::write(folder.path().join("mine.yaml"), &text).unwrap();
    assert_eq!(good_json(folder.path(), &["check", "mine.yaml"])["valid"], true);
    for command in ["scenarios", "presets"] {
        let name = if command == "presets" { "hmi" } else { "quickstart" };
        assert_eq!(good_json(folder.path(), &[command, name])["name"], name);
        let listed = good_json(folder.path(), &[command]);
        assert!(listed.as_array().unwrap().len() > 10, "{listed}");
    }
    check_bad(
        folder.path(),
        &[(&["scenarios", "quikstart"], 2, &["did you mean quickstart?"])],
    );
}

/// A recording's own tenants ask, and are as many as it has, where it says who asks.
#[test]
fn a_trace_brings_its_tenants() {
    let folder = folder();
    let at = folder.path();
    fs::write(
        at.join("log.csv"),
        "arrival_ns,tenant,input_tokens,output_tokens,class\n0,7,12,0,0\n1000000,0,20,0,0\n2000000,7,9,0,0\n",
    )
    .unwrap();
    let flags = [
        "--trace",
        "log.csv",
        "--model",
        "tiny",
        "--card",
        "cpu",
        "--systems",
        "hbert-adapter",
        "--defaults",
    ];
    good(at, &[&["new", "ours.yaml"], &flags[..]].concat());
    let text = fs::read_to_string(at.join("ours.yaml")).unwrap();
    assert!(
        text.contains("count: 8") && text.contains("popularity: of-arrivals"),
        "{text}"
    );
    let run = &good_json(at, &["simulate", "ours.yaml"])["runs"][0];
    assert_eq!(
        (&run["workload"]["tenants"], &run["requests"]["offered"]),
        (&2.into(), &3.into()),
        "{run}"
    );
    // What a model cannot take in is told before anybody asks it.
    let long = "0,7,12,0,0\n1,7,128,0,0\n2,7,129,0,0\n3,7,400,0,0\n";
    fs::write(
        at.join("long.csv"),
        format!("arrival_ns,tenant,input_tokens,output_tokens,class\n{long}"),
    )
    .unwrap();
    let told = said(
        at,
        &[&["new", "long.yaml", "--trace", "long.csv"], &flags[2..]].concat(),
    );
    let note = "note: long.csv: of 4 requests, 2 have more than the 128 tokens that tiny takes in, and will be refused";
    assert!(told.contains(note), "{told}");
    check_bad(
        at,
        &[(
            &["new", "few.yaml", "--trace", "log.csv", "--tenants", "7", "--defaults"],
            2,
            &["--tenants: must be at least 8, since log.csv has so many, got 7"],
        )],
    );
    // Who does not say who asks has as many tenants as are asked for.
    fs::write(
        at.join("azure.csv"),
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n",
    )
    .unwrap();
    let flags = ["--trace", "azure.csv", "--tenants", "50", "--defaults"];
    good(at, &[&["new", "chat.yaml"], &flags[..]].concat());
    let text = fs::read_to_string(at.join("chat.yaml")).unwrap();
    assert!(text.contains("count: 50") && text.contains("{ zipf: 0.9 }"), "{text}");
    // Whoever asks for tokens is not answered by a model that makes none.
    assert!(
        text.contains("llama-7b") && text.contains("preset: punica") && !text.contains("bert"),
        "{text}"
    );
}
