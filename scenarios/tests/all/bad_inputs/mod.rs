//! Every way to get a scenario wrong, with the message that it gives.

mod broken;
mod cards;
mod filling;
mod tasks;

use tenantry_scenarios::{Scenario, presets};

/// A small scenario that is right, to be broken in one place.
const GOOD: &str = "\
name: good
seed: 1
card: cpu
cluster: { gpus: 1, gpu_memory: 1 GiB }
models:
  backbone: tiny
tenants: { count: 10, popularity: uniform }
workload:
  arrivals: { poisson: { rate: 50/s } }
  lengths: { input: { fixed: 32 } }
  stop: { requests: 100 }
systems:
  - preset: hbert-adapter
  - { preset: bert-shared, name: shared }
slo: { latency: 100ms, at: p98 }
validate: { mean: 5% }
";

pub fn errors(text: &str, overrides: &[&str]) -> String {
    let overrides: Vec<String> = overrides.iter().map(|text| text.to_string()).collect();
    match Scenario::from_yaml("s.yaml", text, &overrides) {
        Ok(_) => "nothing wrong".to_string(),
        Err(errors) => errors.to_string(),
    }
}

#[test]
fn the_good_one_is_good() {
    assert_eq!(errors(GOOD, &[]), "nothing wrong");
    // Some editors begin a file with a byte order mark.
    assert_eq!(errors(&format!("\u{feff}{GOOD}"), &[]), "nothing wrong");
}

/// A line does not end at `got`.
#[test]
fn an_empty_text_is_told_as_one() {
    for set in [
        "systems[0].pipeline=''",
        "systems[0].padding=''",
        "systems[0].swap=''",
        "systems[0].heads=''",
        "systems[0].place=''",
        "systems[0].tenant_state=''",
        "systems[0].preset=''",
        "models.backbone=''",
    ] {
        let told = errors(GOOD, &[set]);
        assert!(told.ends_with(", got an empty text"), "{set}: {told}");
    }
}

/// The sweep's values come after it.
#[test]
fn what_is_swept_is_not_set() {
    let swept = format!("{GOOD}sweep: {{ seed: [1, 2], cluster.gpus: [1, 2] }}\n");
    assert_eq!(errors(&swept, &["tenants.count=5"]), "nothing wrong");
    assert_eq!(
        errors(&swept, &["cluster.gpus=4"]),
        "--set: must be left out where sweep.cluster.gpus says which values it has, got cluster.gpus=4"
    );
    assert_eq!(errors(&swept, &["cluster.gpus=4", "sweep={}"]), "nothing wrong");
}

/// Products of lists are counted before they are made.
#[test]
fn no_more_points_or_options_than_a_machine_holds() {
    let list = format!("{:?}", (1..=1_000).collect::<Vec<_>>());
    let sweep = |keys: &[&str]| {
        let axes: Vec<String> = keys.iter().map(|key| format!("{key}: {list}")).collect();
        errors(&format!("{GOOD}sweep: {{ {} }}\n", axes.join(", ")), &[])
    };
    assert_eq!(
        sweep(&["seed", "cluster.gpus", "tenants.count"]),
        "s.yaml:17: sweep: must be of at most 1000000 points in all, got 1000000000"
    );
    let plan = format!(
        "plan: {{ find: tightest-latency, choices: {{ shared: {{ classes: {list}, instances_per_gpu: {list} }} }} }}\n"
    );
    assert_eq!(
        errors(&format!("{GOOD}{plan}"), &[]),
        "s.yaml:17: plan.choices.shared: must be at most 10000 combinations, got 1000000"
    );
}

/// A decoder's first token takes a position too.
#[test]
fn the_longest_prompt_leaves_a_position() {
    let decoder = |tokens: u32| {
        let text = GOOD.replace("backbone: tiny", "backbone: tiny-llama").replace(
            "input: { fixed: 32 }",
            &format!("input: {{ fixed: {tokens} }}, output: {{ fixed: 1 }}"),
        );
        let systems = text.find("systems:").expect("it has some");
        let text = format!("{}systems: [{{ preset: vllm-backbone }}]\n", &text[..systems]);
        errors(&text, &[])
    };
    assert_eq!(decoder(2047), "nothing wrong");
    assert!(
        decoder(2048).contains("workload.lengths.input.fixed: must be at most 2047, "),
        "{}",
        decoder(2048)
    );
}

/// A server numbers a stream's runtimes by 16 bits.
#[test]
fn runtimes_are_no_more_than_are_numbered() {
    let of = |lengths: &str| {
        let shape = "{ layers: 2, hidden: 128, heads: 2, intermediate: 512, vocabulary: 1024, positions: 200000 }";
        let system = format!("{{ preset: arlo, runtimes: {{ max_length: 200000, lengths: {lengths} }} }}");
        let text = GOOD.replace("backbone: tiny", &format!("backbone: {shape}"));
        errors(&text.replace("{ preset: bert-shared, name: shared }", &system), &[])
    };
    assert_eq!(of("{ count: 65536 }"), "nothing wrong");
    let key = "s.yaml:14: systems[1].runtimes.lengths: must be of at most 65536 runtimes";
    assert_eq!(of("{ count: 65537 }"), format!("{key}, got 65537"));
    assert_eq!(of("{ step: 3 }"), format!("{key}, got 66667"));
}

/// Decoders without anything of their tenants' own swap no more than encoders do.
#[test]
fn who_swaps_may_say_how() {
    let of = |system: &str| {
        let text = GOOD
            .replace("backbone: tiny", "backbone: tiny-llama")
            .replace("{ fixed: 32 }", "{ fixed: 32 }, output: { fixed: 4 }");
        let systems = text.find("systems:").expect("it has some");
        errors(&format!("{}systems: [{system}]\n", &text[..systems]), &[])
    };
    assert_eq!(of("{ preset: punica, swap: lfu }"), "nothing wrong");
    assert_eq!(of("{ preset: gpt-dedicated, swap: lfu }"), "nothing wrong");
    let refused = of("{ preset: vllm-backbone, swap: lfu }");
    assert!(
        refused.starts_with("s.yaml:12: systems[0].swap: must be left out where nothing is swapped, "),
        "{refused}"
    );
}

#[test]
fn overrides_say_what_is_wrong_with_them() {
    #[rustfmt::skip]
    let cases = [
        ("tenants.count", "--set: must be path=value, got tenants.count"),
        (
            "tenants={count: 1, popularity: uniform, count: 2}",
            "--set: tenants.count: must be given once, got it a second time",
        ),
        (
            "systems=[{preset: bert-shared, preset: hmi}]",
            "--set: systems[0].preset: must be given once, got it a second time",
        ),
        ("seed=99999999999999999999", "--set: seed: must be a number of at most 64 bits, got 99999999999999999999"),
        ("tenants..count=1", "--set: must be path=value with a path such as tenants.count, got tenants..count=1"),
        ("tenants.count=[", "--set: must be path=value with a value in YAML (did not find expected node content), got tenants.count=["),
        ("tenants.count=0", "--set: tenants.count: must be a whole number from 1 to 4294967295, got 0"),
        ("tenants.cuont=5", "--set: tenants.cuont: must be one of count, domains, kinds, classes, popularity, presence, got an unknown key; did you mean count?"),
        ("seed.x=5", "--set: seed: must be a mapping, to have a key x, got 1"),
        ("systems[5].classes=3", "--set: systems: must be a list with an entry [5], got 2 entries"),
        ("systems[0].preset=hbert", "--set: systems[0].preset: must be one of bert-dedicated, bert-compress, hbert-adapter, hbert-plot, hmi, bert-shared, gpt-dedicated, gpt-compress, gpt-shared, hgpt, punica, vllm-backbone, static-batches, queue-per-lora, chunked-prefill, pets, pets-fixed, seqs, pars, tabi, infaas-best, cocktail, arlo, arlo-st, arlo-dt, infaas, got hbert; did you mean hbert-plot?"),
        ("systems[0].preset=hmi", "s.yaml:13: systems[0].plot.lower_layers: must be fewer than the 2 layers of model backbone, got 6"),
        ("workload.arrivals.poisson.rate=50", "--set: workload.arrivals.poisson.rate: must be a rate above 0 with its unit (/s, /min, /h), such as 500/s, got 50"),
    ];
    for (set, message) in cases {
        assert_eq!(errors(GOOD, &[set]), message);
    }
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let text = GOOD
        .replace("count: 10", "count: 0")
        .replace("rate: 50/s", "rate: 50")
        .replace("at: p98", "at: 98");
    let said = errors(&text, &[]);
    let paths: Vec<&str> = said.lines().map(|line| line.split(": ").nth(1).unwrap()).collect();
    assert_eq!(paths, ["tenants.count", "workload.arrivals.poisson.rate", "slo.at"]);
}

#[test]
fn an_empty_file_is_no_scenario() {
    let keys = "name, seed, card, cluster, prices, models, tenants, workload, outcomes, systems, slo, sweep, samples, plan, repeats, validate, jitter";
    assert_eq!(
        errors("", &[]),
        format!("s.yaml: must be a mapping with keys out of {keys}, got nothing")
    );
}

#[test]
fn what_is_no_trace_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("poem.csv");
    std::fs::write(&file, "roses are red\n").unwrap();
    let file = file.to_str().unwrap();
    let text = GOOD.replace(
        "{ poisson: { rate: 50/s } }",
        &format!("{{ trace: {{ path: {file} }} }}"),
    );
    let said = errors(&text, &[]);
    assert!(
        said.starts_with(&format!(
            "{file}: must be usable as a trace, got an error: must begin as"
        )),
        "{said}"
    );
}

#[test]
fn what_can_not_be_found_is_looked_for_among_the_shipped() {
    let said = |name| Scenario::load(name, &[]).unwrap_err().to_string();
    let unknown = said("quickstrat");
    assert!(
        unknown.starts_with("scenario: must be a file, or one of those that `tenantry scenarios` lists, got "),
        "{unknown}"
    );
    assert!(
        unknown.ends_with(", got quickstrat; did you mean quickstart?"),
        "{unknown}"
    );
    assert!(said("hmi/fig12").ends_with("did you mean hmi/fig-12?"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("binary.yaml");
    std::fs::write(&file, [0xff, 0xfe]).unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(
        said(file),
        format!("{file}: must be a readable text file, got stream did not contain valid UTF-8")
    );
}

/// Also where tasks share it.
#[test]
fn what_is_wrong_with_a_model_is_said_once_whoever_uses_it() {
    let odd = "odd: { kind: encoder, layers: 1, hidden: 4, heads: 3, intermediate: 4, vocabulary: 9, positions: 64 }";
    let text = GOOD
        .replace("backbone: tiny\n", &format!("backbone: tiny\n  {odd}\n"))
        .replace(
            "popularity: uniform }",
            "popularity: uniform, kinds: { odd/lora: 1, lora: 1 } }",
        )
        .replace(
            "  - preset: hbert-adapter\n  - { preset: bert-shared, name: shared }\n",
            "  - preset: pets\n",
        );
    assert_eq!(
        errors(&text, &[]),
        "s.yaml:7: models.odd.heads: must be a divisor of hidden (4), got 3"
    );
}

/// A file that is no scenario is told as soon as its first mistakes are.
#[test]
fn of_many_mistakes_the_first_are_told_and_the_rest_counted() {
    let unknown: String = (0..30).map(|index| format!("key-{index}: 1\n")).collect();
    let said = errors(&format!("{GOOD}{unknown}"), &[]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!((lines.len(), lines[20]), (21, "(and 10 more)"));
    assert!(
        lines[19].starts_with("s.yaml:36: key-19: must be one of "),
        "{}",
        lines[19]
    );
}

/// A trace given as a scenario is one long text.
#[test]
fn a_long_value_is_cut() {
    let said = errors(&"x".repeat(100_000), &[]);
    assert!(said.ends_with("x… (100000 characters)") && said.len() < 500, "{said}");
}

/// Keys that come from a preset of one's own are told by its file, and those over them by the scenario or option that
/// has them.
#[test]
fn what_is_wrong_in_a_preset_of_ones_own_is_told_by_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.yaml");
    let file = file.to_str().unwrap();
    let preset = presets::yaml("hbert-plot").unwrap().replace("name: hbert-plot", "name: mine");
    let of = |preset: &str, over: &str, overrides: &[&str]| {
        std::fs::write(file, preset).unwrap();
        let system = format!("{{ preset: {file}{over} }}");
        errors(
            &GOOD.replace("{ preset: bert-shared, name: shared }", &system),
            overrides,
        )
    };
    let line = 1 + preset.lines().position(|line| line.starts_with("plot:")).unwrap();
    let misspelt = preset.replace("plot:", "plto:");
    let must = format!("{file}:{line}: plto: must be one of ");
    assert!(of(&misspelt, "", &[]).starts_with(&must), "{}", of(&misspelt, "", &[]));
    let by_option = of(&misspelt, "", &[&format!("systems[1].preset={file}")]);
    assert!(by_option.starts_with(&must), "{by_option}");
    let threads = preset.replace("threads: 1", "threads: none");
    assert_ne!(threads, preset);
    let said = of(&threads, "", &[]);
    assert!(
        said.starts_with(&format!("{file}:")) && said.contains(": plot.threads: must be "),
        "{said}"
    );
    let said = of(&preset, ", plot: { threads: none }", &[]);
    assert!(
        said.starts_with("s.yaml:14: systems[1].plot.threads: must be "),
        "{said}"
    );
    // Of a section that the scenario has whole, the preset says nothing.
    let cascade = presets::yaml("tabi").unwrap();
    let said = of(
        cascade,
        ", cascade: { stages: [{ name: small }, { model: backbone }] }",
        &[],
    );
    assert!(
        said.starts_with("s.yaml:14: systems[1].cascade.stages[0].model: must be given"),
        "{said}"
    );
    let said = of(&preset, "", &["systems[1].plot.threads=none"]);
    assert!(said.starts_with("--set: systems[1].plot.threads: must be "), "{said}");
}
