//! Every way to get a cascade wrong, with the message that it gives.

use std::io::Write as _;

use crate::bad_inputs;
use tenantry_traces::outcome::{PruneStep, SavedCalibration, SavedOutputs, SavedPruning};

/// Two models that are right, to be broken in one place.
const GOOD: &str = "\
name: good
card: cpu
cluster: { gpus: 2 }
models: { small: tiny, large: bert-base }
tenants: { count: 10, popularity: uniform }
workload:
  arrivals: { poisson: { rate: 50/s } }
  lengths: { input: { fixed: 32 } }
  stop: { requests: 100 }
outcomes:
  from: { generated: { small: small, large: large, task: sst-2 } }
  pruned: [{ degree: 0.7, words: 14%, loss: 0.3% }]
  averages: [{ weights: [0.4, 0.6], gain: 0.4% }]
systems:
  - preset: tabi
    cascade:
      stages:
        - { model: small, gpus: [0], reroute: { cut_off: 0.9, slope: 10, prune: 0.7 } }
        - { model: large, gpus: [1] }
      join: { average: [0.4, 0.6] }
";

fn errors(text: &str) -> String {
    bad_inputs::errors(text, &[])
}

/// What is replaced, by what, and all that is then said.
#[rustfmt::skip]
const BROKEN: &[(&str, &str, &str)] = &[
    ("  - preset: tabi\n", "  - preset: tabi\n    model: large\n",
     "s.yaml:16: systems[0].model: must be left out where several models serve, since each stage names its own, got \
      another"),
    ("  - preset: tabi\n", "  - preset: tabi\n    swap: lfu\n",
     "s.yaml:16: systems[0].swap: must be left out where several models serve, since nothing is swapped, got another"),
    (", reroute: { cut_off: 0.9, slope: 10, prune: 0.7 } }\n        - { model: large, gpus: [1] }\n", " }\n        - { \
                                                                                                       model: large, \
                                                                                                       gpus: [1] \
                                                                                                       }\n      order: \
                                                                                                       at-once\n",
     "s.yaml:21: systems[0].cascade.join: must be last or vote where models of a generator are asked at once: what an \
      average gains is known only of who is asked after another, got average"),
    ("cut_off: 0.9", "cut_off: 1.2",
     "s.yaml:18: systems[0].cascade.stages[0].reroute.cut_off: must be a number from 0 to 1, got 1.2"),
    (", reroute: { cut_off: 0.9, slope: 10, prune: 0.7 }", "",
     "s.yaml:18: systems[0].cascade.stages[0].reroute: must be given, since a model comes after it, got nothing"),
    ("{ model: large, gpus: [1] }", "{ model: large, gpus: [1], reroute: { cut_off: 0.9, slope: 10 } }",
     "s.yaml:19: systems[0].cascade.stages[1].reroute: must be left out, since no model comes after it, got a \
      dispatcher"),
    ("gpus: [1]", "gpus: [2]",
     "s.yaml:19: systems[0].cascade.stages[1].gpus: must be different cards of the cluster, from 0 to 1, got [2]"),
    ("gpus: [1]", "gpus: [1, 1]",
     "s.yaml:19: systems[0].cascade.stages[1].gpus: must be different cards of the cluster, from 0 to 1, got [1, 1]"),
    ("model: large", "model: lagre",
     "s.yaml:19: systems[0].cascade.stages[1].model: must be one of small, large, got lagre; did you mean large?"),
    ("average: [0.4, 0.6]", "average: [0.4]",
     "s.yaml:20: systems[0].cascade.join.average: must be weights, one for each model (2), not all 0, got [0.4]"),
    ("    cascade:\n", "    batch: { fixed-size: { size: 8 } }\n    admit: { bounded-queue: { max_waiting: 7 } }\n    cascade:\n",
     "s.yaml:17: systems[0].admit.bounded-queue.max_waiting: must be more than 7, as many as can wait for batches of 8 \
      on 1 instances without filling one, or batch must be size-or-timeout, got 7"),
    ("    cascade:\n", "    batch: { fixed-size: { size: 8 } }\n    admit: { bounded-queue: { max_waiting: 8 } }\n    cascade:\n",
     "nothing wrong"),
    // 8,388,607 requests of bert-base's 512 positions, 33,554,431 of tiny's 128.
    ("    cascade:\n", "    batch: { fixed-size: { size: 9000000 } }\n    cascade:\n",
     "s.yaml:16: systems[0].batch.fixed-size.size: must be at most 8388607 where inputs have up to 512 tokens, \
      4294967295 in a batch, got 9000000"),
    ("{ model: large, gpus: [1] }", "{ model: large, gpus: [1], batch: { per-tenant: { max_size: 9000000 } } }",
     "s.yaml:19: systems[0].cascade.stages[1].batch.per-tenant.max_size: must be at most 8388607 where inputs have up \
      to 512 tokens, 4294967295 in a batch, got 9000000"),
    ("{ model: small, gpus: [0],", "{ model: small, gpus: [0], batch: { fixed-size: { size: 9000000 } },", "nothing wrong"),
    ("average: [0.4, 0.6]", "vote: [0, 0]",
     "s.yaml:20: systems[0].cascade.join.vote: must be weights, one for each model (2), not all 0, got [0, 0]"),
    // The second model is `bert-base`, of 512 positions.
    ("preset: tabi\n", "preset: tabi\n    padding: { to: 300 }\n",
     "s.yaml:16: systems[0].padding.to: must be at most 128, the longest input of model small, got 300"),
    ("    cascade:\n      stages:\n        - { model: small", "    padding: { to: 300 }\n    cascade:\n      \
      stages:\n        - { model: large, name: small",
     "nothing wrong"),
    ("{ model: large, gpus: [1] }", "{ model: large, gpus: [1], layers: { from: 6, to: 12 } }",
     "s.yaml:19: systems[0].cascade.stages[1].layers.from: must be where the stage before, of the same model, has \
      ended, got 6"),
    ("      stages:\n        - { model: small, gpus: [0], reroute: { cut_off: 0.9, slope: 10, prune: 0.7 } }\n        \
      - { model: large, gpus: [1] }\n",
     "      order: at-once\n      stages:\n        - { model: large, name: small, layers: { to: 6 } }\n        - { \
      model: large, layers: { from: 6, to: 12 } }\n",
     "s.yaml:20: systems[0].cascade.stages[1].layers.from: must be 0 where all are asked at once: nothing has ended \
      that it could go on from, got 6"),
    ("      stages:\n        - { model: small, gpus: [0], reroute: { cut_off: 0.9, slope: 10, prune: 0.7 } }\n        \
      - { model: large, gpus: [1] }\n",
     "      stages:\n        - { model: large, name: small, layers: { to: 6 }, reroute: { cut_off: 0.9, slope: 10 } }\n        - { \
      model: large, layers: { from: 6, to: 12 }, gpus: [1] }\n",
     "s.yaml:19: systems[0].cascade.stages[1].gpus: must be left out where a stage goes on with the hidden states of \
      the one before, where that has ended, got given"),
    ("      stages:\n        - { model: small, gpus: [0], reroute: { cut_off: 0.9, slope: 10, prune: 0.7 } }\n        \
      - { model: large, gpus: [1] }\n",
     "      stages:\n        - { model: large, name: small, layers: { to: 6 }, reroute: { cut_off: 0.9, slope: 10 } }\n        - { \
      model: large, layers: { from: 6, to: 12 }, instances_per_gpu: 2 }\n",
     "s.yaml:19: systems[0].cascade.stages[1].instances_per_gpu: must be left out where a stage goes on with the hidden states of \
      the one before, where that has ended, got given"),
    ("gpus: [1] }", "gpus: [1], scale: { start: 2, start_up: 1s, rule: { headroom: { spare: 5%, interval: 1s, \
                     patience: 9 } } } }",
     "s.yaml:19: systems[0].cascade.stages[1].scale.start: must be at most the stage's gpus (1), got 2"),
    ("gpus: [1] }", "scale: { start: 1, min: 3, start_up: 1s, rule: { headroom: { spare: 5%, interval: 1s, patience: 9 \
                     } } } }",
     "s.yaml:19: systems[0].cascade.stages[1].scale.min: must be at most cluster.gpus (2), got 3"),
    ("gpus: [1] }", "scale: { start: 1, start_up: 1s, rule: { target-tracking: { percentile: 98, add: 95%, release: \
                     50%, recent: 10s, period: 60s, settle: 5s } } } }",
     "s.yaml:19: systems[0].cascade.stages[1].slo: must be given, since target tracking goes by it, got nothing"),
    ("gpus: [1] }", "gpus: [1], slo: 100ms, scale: { start: 1, start_up: 1s, rule: { target-tracking: { percentile: \
                     98, add: 40%, release: 60%, recent: 10s, period: 60s, settle: 5s } } } }",
     "s.yaml:19: systems[0].cascade.stages[1].scale.rule.target-tracking.release: must be below add (40%), got 60%"),
    ("gpus: [1] }", "gpus: [1], slo: 100ms }",
     "s.yaml:19: systems[0].cascade.stages[1].slo: must be left out, since only target tracking goes by it, got a \
      latency"),
    ("{ model: large, gpus: [1] }", "{ model: small, name: large, layers: { from: 1, to: 2 }, scale: { start: 1, \
                                     start_up: 1s, rule: { headroom: { spare: 5%, interval: 1s, patience: 9 } } } }",
     "s.yaml:19: systems[0].cascade.stages[1].scale: must be left out where a stage goes on with another's hidden \
      states, on the same cards, got given"),
    ("prune: 0.7 } }\n        - { model: large, gpus: [1] }", "prune: 0.7 }, layers: { from: 0, to: 1 } }\n        - { \
                                                               model: small, name: large, gpus: [0], layers: { from: \
                                                               1, to: 2 } }",
     "s.yaml:18: systems[0].cascade.stages[0].reroute.prune: must be left out before a stage that goes on with hidden \
      states, of which no words are taken, got given"),
    ("  pruned: [{ degree: 0.7, words: 14%, loss: 0.3% }]\n", "",
     "s.yaml:10: outcomes.pruned: must be given, since words are pruned at degree 0.7, got nothing"),
    // Nobody knows what is gained by pruning more, nor what it costs.
    ("prune: 0.7", "prune: 0.9",
     "s.yaml:18: systems[0].cascade.stages[0].reroute.prune: must be at or between degrees whose `loss` is in \
      `outcomes.pruned` (0.7), since nobody knows what others cost, got 0.9"),
    (", loss: 0.3%", "",
     "s.yaml:18: systems[0].cascade.stages[0].reroute.prune: must be at or between degrees whose `loss` is in \
      `outcomes.pruned` (none), since nobody knows what others cost, got 0.7"),
    // By these weights the answer is the small model's.
    ("average: [0.4, 0.6]", "average: [1, 0]",
     "s.yaml:20: systems[0].cascade.join.average: must be weights whose `gain` is in `outcomes.averages` ([0.4, 0.6]), \
      since a generator has no probabilities to average, got [1, 0]"),
    ("  averages: [{ weights: [0.4, 0.6], gain: 0.4% }]\n", "",
     "s.yaml:19: systems[0].cascade.join.average: must be weights whose `gain` is in `outcomes.averages` (none), since \
      a generator has no probabilities to average, got [0.4, 0.6]"),
    ("task: sst-2", "task: sst-2, others: { large: { right_if_large_is: 95%, right_if_large_is_not: 40% } }",
     "s.yaml:11: outcomes.from.generated.others.large: must be another name than small's and large's, got large"),
    ("weights: [0.4, 0.6]", "weights: [0, 0]",
     "s.yaml:13: outcomes.averages[0].weights: must be numbers of which some are above 0, got [0, 0]"),
    ("gain: 0.4% }]", "gain: 0.4% }, { weights: [4, 6], gain: 1% }]",
     "s.yaml:13: outcomes.averages[1].weights: must be in other proportions than those of averages[0], got [4, 6]"),
    ("{ model: small, gpus: [0], reroute: { cut_off: 0.9, slope: 10, prune: 0.7 } }\n        - { model: large, gpus: \
      [1] }", "{ model: large, gpus: [0], reroute: { cut_off: 0.9, slope: 10, prune: 0.7 } }\n        - { model: \
               small, gpus: [1] }",
     "s.yaml:19: systems[0].cascade.stages[1].model: must be another where words are pruned before it or answers \
      averaged, since of a generator's small model nothing is known but what it is alone, got small"),
    ("preset: tabi\n", "preset: tabi\n    tenant_state: model\n    batch: { per-tenant: { max_size: 1 } }\n",
     "s.yaml:16: systems[0].tenant_state: must be head (nothing to be swapped) where several models serve, got \
      another"),
];

#[test]
fn broken_cascades_say_what_is_wrong() {
    assert_eq!(errors(GOOD), "nothing wrong");
    let mut different = String::new();
    for (good, broken, message) in BROKEN {
        assert!(GOOD.contains(good), "{good}");
        let said = errors(&GOOD.replacen(good, broken, 1));
        // Unknown models are unknown to the outcomes too.
        if !said.lines().any(|line| line == *message) {
            different += &format!("{broken}\n  says {said}\n  not  {message}\n");
        }
    }
    assert!(different.is_empty(), "{different}");
}

/// How many models get an item right is no probability of what one of them answers.
#[test]
fn chances_are_not_averaged() {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    writeln!(file, "n_correct_of_100\n90\n70").expect("it is writable");
    let difficulty = format!(
        "from: {{ difficulty: {{ file: {}, models: [small, large] }} }}",
        file.path().display()
    );
    let averaged = GOOD
        .replace(
            "from: { generated: { small: small, large: large, task: sst-2 } }",
            &difficulty,
        )
        .replace("  averages: [{ weights: [0.4, 0.6], gain: 0.4% }]\n", "");
    assert_eq!(
        errors(&averaged),
        "s.yaml:19: systems[0].cascade.join: must be last or a vote, since a chance of being right is no probability \
         of the answer, got average"
    );
    assert_eq!(
        errors(&averaged.replace("average: [0.4, 0.6]", "vote: [0.4, 0.6]")),
        "nothing wrong"
    );
}

/// A confidence that is none is named by file and line.
#[test]
fn tables_of_outcomes_are_read_when_a_scenario_is() {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    writeln!(
        file,
        "id,a_conf,a_correct,b_conf,b_correct\n0,0.9,1,0.8,1\n1,1.5,0,0.9,1"
    )
    .expect("it is writable");
    let path = file.path().display();
    let table = format!("from: {{ table: {{ file: {path}, models: {{ small: a, large: b }} }} }}");
    let averaged = GOOD.replace(
        "from: { generated: { small: small, large: large, task: sst-2 } }",
        &table,
    );
    let left_out = "outcomes.averages: must be left out, since the models' own answers are averaged, got a value";
    assert_eq!(errors(&averaged), format!("s.yaml:13: {left_out}"));
    let text = averaged.replace("  averages: [{ weights: [0.4, 0.6], gain: 0.4% }]\n", "");
    assert_eq!(
        errors(&text),
        format!("{path}:3: a_conf: must be a number from 0 to 1, got `1.5`")
    );
    // No answer is the likeliest of two classes at 0.4; averaged, a wrong one would count as the other, right one.
    let unsure = tempfile::NamedTempFile::new().expect("a temporary file");
    writeln!(
        &unsure,
        "id,a_conf,a_correct,b_conf,b_correct\n0,0.9,1,0.8,1\n1,0.7,0,0.4,0"
    )
    .expect("it is writable");
    let of_unsure = text.replace(&path.to_string(), &unsure.path().display().to_string());
    assert_eq!(
        errors(&of_unsure),
        "s.yaml:14: systems[0].classes: must be more, since large is sure of an answer by 0.4 only and the likeliest \
         of 2 classes has more than that, or `cascade.join` last or a vote, got 2"
    );
    let three = |text: &str| text.replace("preset: tabi\n", "preset: tabi\n    classes: 3\n");
    assert_eq!(errors(&three(&of_unsure)), "nothing wrong");
    let voted = of_unsure.replace("average: [0.4, 0.6]", "vote: [0.4, 0.6]");
    assert_eq!(errors(&voted), "nothing wrong");
    // Both are wrong, each in its own way: with the right one these are three answers.
    let answered = tempfile::NamedTempFile::new().expect("a temporary file");
    writeln!(&answered, "a_conf,a_pred,b_conf,b_pred,r_pred\n0.9,x,0.8,y,z").expect("it is writable");
    let of_answered = text
        .replace(&path.to_string(), &answered.path().display().to_string())
        .replace("large: b }", "large: b }, reference: r");
    assert_eq!(
        errors(&of_answered),
        "s.yaml:14: systems[0].classes: must be 3 at least, since the table's models give 2 wrong answers to one item \
         that are spelt differently, or `cascade.join` last, got 2"
    );
    assert_eq!(errors(&three(&of_answered)), "nothing wrong");
    let missing = text.replace("large: b }", "large: c }");
    let line = 1 + missing.lines().take_while(|line| !line.contains("table:")).count();
    let field = format!("s.yaml:{line}: outcomes.from.table.file");
    assert_eq!(
        errors(&missing),
        format!(
            "{field}: must be a table with the column c_conf, got {path}: id, a_conf, a_correct, b_conf, b_correct; did \
             you mean a_conf?"
        )
    );
    let without_items = tempfile::NamedTempFile::new().expect("a temporary file");
    writeln!(&without_items, "id,a_conf,a_correct,b_conf,b_correct").expect("it is writable");
    let without_items = without_items.path().display().to_string();
    assert_eq!(
        errors(&text.replace(&path.to_string(), &without_items)),
        format!("{field}: must be a table with items, got {without_items}: only a first line")
    );
}

/// As tables are, with the models that a difficulty is said to be of.
#[test]
fn difficulties_are_read_when_a_scenario_is() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    writeln!(&file, "index,n_correct_of_100\n0,100\n1,7").expect("it is writable");
    let path = file.path().display();
    let with = |models: &str| {
        let from = format!("from: {{ difficulty: {{ file: {path}, models: {models} }} }}");
        let text = GOOD.replace(
            "from: { generated: { small: small, large: large, task: sst-2 } }",
            &from,
        );
        let text = text.replace("  averages: [{ weights: [0.4, 0.6], gain: 0.4% }]\n", "");
        errors(&text.replace("average: [0.4, 0.6]", "vote: [0.4, 0.6]"))
    };
    assert_eq!(with("[small, large]"), "nothing wrong");
    assert_eq!(
        with("[small, large, small]"),
        "s.yaml:11: outcomes.from.difficulty.models: must be different names, at least one, got small, large, small"
    );
    assert_eq!(
        with("[small, lagre]"),
        "s.yaml:18: systems[0].cascade.stages[1].model: must be one of small, lagre, got large; did you mean lagre?"
    );
    writeln!(&file, "2,101").expect("it is writable");
    assert_eq!(
        with("[small, large]"),
        format!("{path}:4: n_correct_of_100: must be 0 to 100, got `101`")
    );
}

/// Two models of two classes on two items; the large one also on items that were pruned to degree 0.5.
fn profiled(folder: &std::path::Path) {
    let pass = |model: &str, pruning: Option<SavedPruning>| SavedOutputs {
        model: model.into(),
        folder: format!("out/{model}").into(),
        items: "out/items.csv".into(),
        model_hash: "def".into(),
        items_hash: "abc".into(),
        calibrated_on: "abc".into(),
        classes: Some(vec!["no".into(), "yes".into()]),
        calibration: SavedCalibration::Temperature(1.0),
        pruning,
        labels: vec![0.0, 1.0],
        logits: vec![vec![0.0, 0.0]; 2],
        softmax: vec![vec![0.5, 0.5]; 2],
        confidences: vec![0.5; 2],
        service_us: vec![10.0; 2],
        attended_us: vec![12.0; 2],
        input_tokens: vec![5, 6],
        importance: vec![vec![1.0; 5], vec![1.0; 6]],
    };
    let pruning = SavedPruning {
        steps: vec![PruneStep {
            by: "small".into(),
            alpha: 0.5,
        }],
        words_left: 0.8,
    };
    for pass in [pass("small", None), pass("large", None), pass("large", Some(pruning))] {
        std::fs::write(folder.join(pass.file_name()), pass.to_bytes()).expect("it is writable");
    }
}

#[test]
fn profiled_models_are_asked_what_they_know() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    profiled(folder.path());
    let from = format!("from: {{ profiled: {{ folder: {} }} }}", folder.path().display());
    let good = GOOD
        .replace(
            "from: { generated: { small: small, large: large, task: sst-2 } }",
            &from,
        )
        .replace("  pruned: [{ degree: 0.7, words: 14%, loss: 0.3% }]\n", "")
        .replace("  averages: [{ weights: [0.4, 0.6], gain: 0.4% }]\n", "")
        .replace("input: { fixed: 32 }", "input: of-items")
        .replace("prune: 0.7", "prune: 0.5");
    assert_eq!(errors(&good), "nothing wrong");
    // At 0 no word goes, and whole items are read.
    assert_eq!(errors(&good.replace("prune: 0.5", "prune: 0")), "nothing wrong");
    for (right, wrong, message) in [
        (
            "prune: 0.5",
            "prune: 0.6",
            "systems[0].cascade.stages[0].reroute.prune: must be a degree at which large was profiled (small at 0.5), \
             got 0.6; `tenantry cascade profile --route small=0.6,large` measures it",
        ),
        (
            "input: of-items",
            "input: { fixed: 32 }",
            "workload.lengths.input: must be of-items, since the items of `outcomes` have their lengths, got another \
             length",
        ),
        (
            "systems:",
            "  pruned: [{ degree: 0.7, words: 14%, loss: 1% }]\nsystems:",
            "outcomes.pruned: must be left out, since profiled models have read what was pruned, got a value",
        ),
        (
            "preset: tabi\n",
            "preset: tabi\n    classes: 3\n",
            "systems[0].classes: must be 2, as small has, got 3",
        ),
        (
            "systems:",
            "systems:\n  - { preset: bert-shared, model: small }",
            "systems[0].cascade: must be given, perhaps with one model, since requests are about texts, got nothing",
        ),
        (
            "{ model: large, gpus: [1] }\n",
            "{ model: large, gpus: [1], reroute: { cut_off: 0.9, slope: 10, prune: 0.5 } }\n        - { model: large, \
             name: small }\n",
            "systems[0].cascade.stages[1].reroute.prune: must be a degree at which small was profiled after small at \
             0.5 (whole ones only), got 0.5; `tenantry cascade profile --route small=0.5,large=0.5,small` measures it",
        ),
        (
            "model: large, gpus: [1]",
            "model: large, name: lagre, gpus: [1]",
            "systems[0].cascade.stages[1].model: must be one of large, small, got lagre; did you mean large?",
        ),
    ] {
        assert!(good.contains(right), "{right}");
        let said = errors(&good.replacen(right, wrong, 1).replace(
            "average: [0.4, 0.6]",
            match wrong.contains("name: small") {
                true => "average: [0.4, 0.3, 0.3]",
                false => "average: [0.4, 0.6]",
            },
        ));
        assert!(said.ends_with(message), "{wrong}\n  says {said}\n  not  {message}");
    }
    let without = errors(&GOOD.replace("input: { fixed: 32 }", "input: of-items"));
    assert!(
        without.ends_with(
            "workload.lengths.input: must be a distribution, since no `outcomes` with profiled models \
             have items, got of-items"
        ),
        "{without}"
    );

    // What was saved is checked when the scenario is read, and files of another version say what to do.
    std::fs::write(folder.path().join("large.safetensors"), b"words").expect("it is writable");
    let said = errors(&good);
    assert!(
        said.contains("large.safetensors: header: must be that of a safetensors file"),
        "{said}"
    );
    let missing = errors(&good.replace(&from, "from: { profiled: { folder: nowhere } }"));
    assert!(
        missing.starts_with(
            "s.yaml:11: outcomes.from.profiled.folder: must be a path that can be read, relative to \
             the folder you are in, got nowhere: No such"
        ),
        "{missing}"
    );
}

/// What a plan cannot ask of cascades and runtimes.
#[test]
fn plans_that_make_no_sense_say_why() {
    let slo = "slo: { latency: 100ms, at: p98 }\n";
    let cascade = |plan: &str| errors(&format!("{GOOD}{slo}plan: {{ find: fewest-cards, {plan} }}\n"));
    let gpus = cascade("gpus: { from: 2, to: 4 }");
    let must = "must be left out where plan.gpus tries several numbers of cards: every model then runs on all of them";
    for (line, stage) in [(18, 0), (19, 1)] {
        let path = format!("systems[0].cascade.stages[{stage}].gpus");
        let expected = format!("s.yaml:{line}: {path}: {must}, got [{stage}]");
        assert!(gpus.lines().any(|line| line == expected), "{expected}\n{gpus}");
    }
    assert_eq!(cascade("gpus: [2], min_accuracy: 90%"), "nothing wrong");
    assert!(cascade("gpus: [2], min_accuracy: 90").contains("plan.min_accuracy: must be"));
    let plain = GOOD.replace(
        "  - preset: tabi",
        "  - { preset: bert-shared, model: small }\n  - preset: tabi",
    );
    let plain = errors(&format!(
        "{plain}{slo}plan: {{ find: fewest-cards, gpus: [2], min_accuracy: 90% }}\n"
    ));
    assert!(
        plain.starts_with(
            "s.yaml:15: systems[0].cascade: must be given where plan.min_accuracy is: of other systems nobody knows"
        ),
        "{plain}"
    );

    let yaml = |runtimes: &str, plan: &str| {
        let systems = GOOD.split("systems:\n").next().unwrap_or_default();
        format!(
            "{systems}systems:\n  - {{ preset: arlo, model: small, runtimes: {{ max_length: 128, lengths: {{ of: [64, 128] }}, {runtimes} }} }}\n\
             {slo}plan: {{ {plan} }}\n"
        )
    };
    let runtimes = |runtimes: &str, plan: &str| errors(&yaml(runtimes, plan));
    let fewest = "find: fewest-cards, gpus: { from: 2, to: 4 }";
    assert_eq!(runtimes("allocate: even", fewest), "nothing wrong");
    let fixed = runtimes("allocate: { fixed: [1, 1] }", fewest);
    assert!(
        fixed.starts_with(
            "s.yaml:15: systems[0].runtimes.allocate: must be even, global or periodic where plan.gpus tries several"
        ),
        "{fixed}"
    );
    assert_eq!(
        runtimes("allocate: { fixed: [1, 1] }", "find: tightest-latency"),
        "nothing wrong"
    );
    let found = yaml("allocate: { fixed: [1, 1] }", "find: tightest-latency").replace("{ of: [64, 128] }", "staircase");
    let found = errors(&found);
    let must = "must be even, global or periodic where the card says which runtimes there are (lengths: staircase)";
    assert!(
        found.starts_with(&format!("s.yaml:15: systems[0].runtimes.allocate: {must}, got fixed")),
        "{found}"
    );
    let scale = "scale: { start: 2, start_up: 5s, rule: { headroom: { spare: 30%, interval: 10s, patience: 6 } } }";
    assert_eq!(runtimes(scale, fewest), "nothing wrong");
    let costs = runtimes(scale, "find: least-cost, gpus: [2, 3], cards: { cpu: 1 }");
    assert!(
        costs
            .starts_with("s.yaml:15: systems[0].runtimes.scale: must be left out where a plan goes by the cards' cost"),
        "{costs}"
    );
    let decoder = |plan: &str| {
        let systems = GOOD
            .split("outcomes:\n")
            .next()
            .unwrap_or_default()
            .replace("large: bert-base", "large: tiny-llama");
        errors(&format!(
            "{systems}systems:\n  - {{ preset: punica, model: large, generation: {{ scale: {{ start: 2, min: 1, start_up: 5s, patience: 10s }} }} }}\n\
             {slo}plan: {{ {plan} }}\n"
        ))
    };
    assert_eq!(decoder(fewest), "nothing wrong");
    let (costs_too, starts_too) = (
        decoder("find: least-cost, gpus: [2], cards: { cpu: 1 }"),
        decoder("find: fewest-cards, gpus: [1, 2]"),
    );
    assert!(
        costs_too.contains("systems[0].generation.scale: must be left out where a plan goes by the cards' cost"),
        "{costs_too}"
    );
    assert!(
        starts_too.contains(
            "systems[0].generation.scale.start: must be at most 1, the fewest cards that plan.gpus tries, got 2"
        ),
        "{starts_too}"
    );
    let starts = runtimes(scale, "find: fewest-cards, gpus: [1, 2]");
    assert!(
        starts.starts_with(
            "s.yaml:15: systems[0].runtimes.scale.start: must be at most 1, the fewest cards that \
             plan.gpus tries, got 2"
        ),
        "{starts}"
    );
}
