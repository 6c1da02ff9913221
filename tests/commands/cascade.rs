//! `tenantry cascade` on models trained for a moment: the offline pass, the choice, and the scenario that it writes;
//! `cascade_interrupted.rs` has what goes on, `cascade_refused.rs` what does not go together.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use crate::common::{good, good_json, names, tenantry};
use tempfile::TempDir;
use tenantry_executor::cascade::{ExampleModel, ExampleSize, make_example};
use tenantry_executor::find_device;
use tenantry_traces::outcome::{SavedCalibration, SavedOutputs};

pub const PROFILE: [&str; 6] = ["cascade", "profile", "small", "large", "--items", "profile.csv"];

/// `small/`, `large/`, `profile.csv` and `test.csv`, in a folder of one's own. The models are trained once for all
/// tests.
pub fn example() -> TempDir {
    static TRAINED: OnceLock<Vec<(PathBuf, Vec<u8>)>> = OnceLock::new();
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (file, bytes) in TRAINED.get_or_init(|| all_files(trained().path())) {
        let file = folder.path().join(file);
        fs::create_dir_all(file.parent().expect("it lies in the folder")).expect("it is writable");
        fs::write(file, bytes).expect("it is writable");
    }
    folder
}

fn trained() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let model = |name, [layers, hidden, heads]: [u32; 3]| ExampleModel {
        name,
        layers,
        hidden,
        heads,
        epochs: 3,
    };
    let size = ExampleSize {
        train_items: 600,
        held_out_items: 60,
        models: vec![model("small", [1, 16, 2]), model("large", [2, 32, 4])],
    };
    let device = find_device("cpu").expect("there is a processor");
    make_example(
        folder.path(),
        &size,
        7,
        device,
        &AtomicBool::new(false),
        &mut |_, _, _| {},
    )
    .expect("it can be written");
    folder
}

/// What a folder and those in it hold, by paths from there.
fn all_files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for name in names(folder) {
        match folder.join(&name) {
            within if within.is_dir() => {
                files.extend(all_files(&within).into_iter().map(|(file, bytes)| (Path::new(&name).join(file), bytes)));
            }
            file => files.push((name.into(), fs::read(file).expect("it was just written"))),
        }
    }
    files
}

pub fn with<'a>(first: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    first.iter().chain(more).copied().collect()
}

pub fn edited(path: &Path, change: impl FnOnce(String) -> String) {
    let text = fs::read_to_string(path).expect("it is there");
    fs::write(path, change(text)).expect("it is writable");
}

/// Lets a pass have taken so many microseconds for every item, and a tenth more with the attention.
fn take(path: &Path, us: f32) {
    let mut saved = SavedOutputs::read(path).expect("it was just written");
    saved.service_us.fill(us);
    saved.attended_us.fill(1.1 * us);
    fs::write(path, saved.to_bytes()).expect("it is writable");
}

#[test]
fn what_is_profiled_is_chosen_from_and_served() {
    let folder = example();
    let folder = folder.path();
    good(
        folder,
        &with(&PROFILE, &["--out", "profiled", "--route", "small=0.25,large"]),
    );
    // Models as small as these are too alike for a busy machine to tell which is faster.
    for (file, us) in [("small", 1e3), ("large", 3e3), ("large.small-0.25", 2e3)] {
        take(&folder.join(format!("profiled/{file}.safetensors")), us);
    }

    let select = ["cascade", "select", "profiled", "--accuracy"];
    let chosen = good_json(folder, &with(&select, &["10", "--scenario", "serve.yaml"]));
    assert_eq!(chosen["items"], 60);
    assert_eq!(
        chosen["selected"]["models"],
        serde_json::json!(["small"]),
        "the fastest that is hardly ever right"
    );
    assert_eq!(chosen["selected"]["weights"], serde_json::Value::Null);
    let scenario = fs::read_to_string(folder.join("serve.yaml")).expect("it was just written");
    assert!(
        scenario.contains("twitter: { rate: 500/s }"),
        "half of what a model of a millisecond does: {scenario}"
    );
    // Early stops leave fewer, and the search need not measure all.
    let stopped = good_json(folder, &with(&select, &["10", "--early-stops", "paper"]));
    let count = |found: &serde_json::Value, key: &str| found[key].as_u64().expect("a number");
    assert!(count(&stopped, "candidates") < count(&chosen, "candidates"));
    assert!(count(&chosen, "measured") < count(&chosen, "candidates"));

    // Nobody is always right where one reviewer in fifty errs.
    fs::copy(folder.join("serve.yaml"), folder.join("earlier.yaml")).expect("it is writable");
    let asked = with(&select, &["100", "--json", "--scenario", "earlier.yaml"]);
    let output = tenantry(folder, &asked);
    assert!(
        !folder.join("earlier.yaml").exists(),
        "another answer's would be taken for this one's"
    );
    assert_eq!(output.status.code(), Some(3));
    fs::write(folder.join("own.yaml"), "name: own\n").expect("it is writable");
    tenantry(folder, &with(&select, &["100", "--scenario", "own.yaml"]));
    assert!(folder.join("own.yaml").exists(), "it is the user's");
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    let said = String::from_utf8_lossy(&output.stderr);
    let (_, named) = said.rsplit_once("the nearest: ").expect("it names them");
    let mut named: Vec<&str> = named.split("; ").filter_map(|one| one.split(" (").next()).collect();
    named.sort_unstable();
    named.dedup();
    assert_eq!(named.len(), 3, "each says what tells it from the others: {said}");
    let nearest = found["nearest"].as_array().expect("a list");
    assert_eq!((nearest.len(), &found["selected"]), (3, &serde_json::Value::Null));
    let accuracy = |index: usize| nearest[index]["accuracy"].as_f64().expect("a share");
    assert!(accuracy(0) >= accuracy(1) && accuracy(1) >= accuracy(2));

    // A tail is of items: one in thirty takes the small model 50 ms, of which its mean of 2.6 ms says nothing.
    let small = folder.join("profiled/small.safetensors");
    let mut saved = SavedOutputs::read(&small).expect("it was just written");
    saved.service_us[..2].fill(5e4);
    saved.attended_us[..2].fill(5e4);
    fs::write(&small, saved.to_bytes()).expect("it is writable");
    let output = tenantry(folder, &with(&select, &["10", "--mean-ms", "2.7", "--p99-ms", "60"]));
    let said = String::from_utf8_lossy(&output.stderr);
    for note in [
        "note: small takes 2.633 ms in the mean and 1.000 in the median, as where it was profiled beside other",
        "note: Whether --p99-ms is met hangs on few items: there are 60, of which 0.6 are expected beyond p99.",
    ] {
        assert!(said.contains(note), "{said}");
    }
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(" measured) on 60 items:"), "{text}");
    let mean = good_json(folder, &with(&select, &["10", "--mean-ms", "2.7"]));
    assert_eq!(mean["selected"]["models"], serde_json::json!(["small"]));
    assert_eq!(mean["selected"]["latency_ms"]["p99"], 50.0);
    let tail = good_json(folder, &with(&select, &["10", "--p99-ms", "10"]));
    assert_eq!(tail["selected"]["models"], serde_json::json!(["large"]));
    assert_eq!(tail["selected"]["latency_ms"]["p99"], 3.0);

    // The scenario is sound; what is missing is a card with these models.
    let said = |output: std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let measure = "measure it with `tenantry profile --device cpu --for serve.yaml`";
    let message = said(tenantry(folder, &["check", "serve.yaml"]));
    assert!(message.contains(measure), "{message}");
    // A cascade of both, pruned as it was profiled, and as it was not.
    let models = "models={small: {layers: 1, hidden: 16, heads: 2, intermediate: 64, vocabulary: 420, positions: 128}, \
                  large: {layers: 2, hidden: 32, heads: 4, intermediate: 128, vocabulary: 900, positions: 128}}";
    let cascade = |alpha: &str| {
        format!(
            "systems=[{{preset: tabi, cascade: {{stages: [{{model: small, reroute: {{cut_off: 0.9, slope: 10, prune: {alpha}}}}}, \
             {{model: large}}], join: last}}}}]"
        )
    };
    let check = |alpha: &str| {
        tenantry(
            folder,
            &["check", "serve.yaml", "--set", models, "--set", &cascade(alpha)],
        )
    };
    let known = said(check("0.25"));
    assert!(known.contains(measure), "{known}");
    let unknown = check("0.3");
    assert_eq!(unknown.status.code(), Some(2));
    let message = said(unknown);
    assert!(
        message.contains("must be a degree at which large was profiled (small at 0.25")
            && message.contains("got 0.3; `tenantry cascade profile --route small=0.3,large` measures it"),
        "{message}"
    );
}

/// Models and what they answered may not be had again.
#[test]
fn no_scenario_is_written_over_what_it_is_chosen_from() {
    let folder = example();
    let folder = folder.path();
    good(folder, &with(&PROFILE, &["--out", "profiled"]));
    #[cfg(unix)]
    std::os::unix::fs::symlink("small/config.json", folder.join("linked.yaml")).expect("it is not there yet");
    let read = [
        "profiled/small.safetensors",
        "./profiled/large.small-0.5.safetensors",
        "large/model.safetensors",
        "small/tokenizer.json",
        "profile.csv",
        #[cfg(unix)]
        "linked.yaml",
    ];
    let before = read.map(|name| fs::read(folder.join(name)).expect("it is there"));
    let select = ["cascade", "select", "profiled", "--accuracy", "10", "--scenario"];
    let refused = |name: &str, must: &str| {
        let output = tenantry(folder, &with(&select, &[name]));
        let said = String::from_utf8_lossy(&output.stderr);
        let must = format!("--scenario: must {must}, got {name}");
        assert!(
            output.status.code() == Some(2) && said.contains(&must),
            "{name}: {said}"
        );
    };
    for name in read {
        refused(name, "be another file than those that are read");
    }
    for name in ["test.csv", "large/vocabulary.txt", "serve"] {
        refused(name, "end in .yaml or .yml");
    }
    assert!(before == read.map(|name| fs::read(folder.join(name)).expect("it is there")));
    for _ in 0..2 {
        good(folder, &with(&select, &["profiled/serve.yml"]));
    }
}

/// Where the paper's shares end, and between them, what is returned is this project's invention, and is said to be.
#[test]
fn what_is_not_of_the_paper_s_shares_is_told_of() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let said = |cut_off: &str, slope: &str| {
        let of = |key: &str, value: &str| format!("systems[0].cascade.stages[0].reroute.{key}={value}");
        let (cut_off, slope) = (of("cut_off", cut_off), of("slope", slope));
        let settings = [
            "--set",
            "workload.stop={requests: 300}",
            "--set",
            &cut_off,
            "--set",
            &slope,
        ];
        let output = tenantry(folder.path(), &with(&["simulate", "tabi/load"], &settings));
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let beyond = "how many of them lie there is made up, since the paper has them from 0.875 to 0.975 only";
    let between = "with a k as gentle as here, whether answers of distilbert go on hangs on how their confidences lie";
    for (cut_off, slope, is_beyond, is_between) in [
        ("0.99", "1e6", true, false),
        ("0.95", "1e6", false, false),
        ("0.75", "1e6", false, false),
        ("0.7", "1e6", true, false),
        ("0.95", "10", false, true),
        ("0.95", "0", false, true),
        ("0.95", "100", false, false),
    ] {
        let said = said(cut_off, slope);
        let told = (said.contains(beyond), said.contains(between));
        assert_eq!(told, (is_beyond, is_between), "{cut_off} {slope}: {said}");
    }
}

/// A vote counts which wrong answers models give: where a table does not say, they are drawn, and the run says so.
#[test]
fn wrong_answers_that_are_drawn_are_told_of() {
    let folder = crate::common::folder();
    let folder = folder.path();
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).expect("it is writable");
    write(
        "flags.csv",
        "a_conf,a_correct,b_conf,b_correct,c_conf,c_correct,c_pred\n0.6,1,0.6,0,0.6,0,y\n",
    );
    write(
        "answers.csv",
        "a_conf,a_correct,a_pred,b_conf,b_correct,b_pred,c_conf,c_correct,c_pred\n0.6,1,x,0.6,0,y,0.6,0,y\n",
    );
    let said = |table: &str, classes: u32, join: &str| {
        let stages = "[{model: backbone, name: a}, {model: backbone, name: b}, {model: backbone, name: c}]";
        let systems = format!(
            "systems=[{{preset: cocktail, classes: {classes}, cascade: {{order: at-once, stages: {stages}, join: {join}}}}}]"
        );
        let outcomes = format!("outcomes={{from: {{table: {{file: {table}, models: {{a: a, b: b, c: c}}}}}}}}");
        let output = tenantry(folder, &["simulate", "s.yaml", "--set", &systems, "--set", &outcomes]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let vote = "{vote: [1, 1, 1]}";
    let told = said("flags.csv", 4, vote);
    let note = "cocktail: which of 4 classes a wrong answer is, is drawn, where flags.csv has no a_pred and b_pred: a vote of \
                3 models may be right more often than in truth";
    assert!(told.contains(note), "{told}");
    let average = said("flags.csv", 4, "{average: [1, 1, 1]}");
    assert!(average.contains("b_pred: an average of 3 models may"), "{average}");
    // What was answered is there, of two classes one is wrong, and nothing is joined.
    for (table, classes, join) in [
        ("answers.csv", 4, vote),
        ("flags.csv", 2, vote),
        ("flags.csv", 4, "last"),
    ] {
        let said = said(table, classes, join);
        assert!(!said.contains("is drawn"), "{table} {classes} {join}: {said}");
    }
}

/// Fewer words make no shorter batch where all are padded to one length.
#[test]
fn words_that_are_pruned_in_vain_are_told_of() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let few = "workload.stop={requests: 300}";
    let said = |padding: &str, prune: &str| {
        let padding = format!("systems[0].padding={padding}");
        let prune = format!("systems[0].cascade.stages[0].reroute.prune={prune}");
        let settings = ["--set", few, "--set", &padding, "--set", &prune];
        let output = tenantry(folder.path(), &with(&["simulate", "tabi/load"], &settings));
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let note = "its batches are padded to 128 tokens all the same";
    for (padding, prune, in_vain) in [
        ("{to: 128}", "0.7", true),
        ("{to: 128}", "0", false),
        ("longest", "0.7", false),
    ] {
        let said = said(padding, prune);
        assert_eq!(said.contains(note), in_vain, "{padding} {prune}: {said}");
    }
}

#[test]
fn a_profile_is_of_the_very_files_that_it_names() {
    let folder = example();
    let folder = folder.path();
    good(folder, &with(&PROFILE, &["--out", "profiled"]));
    let judge = |items: &'static str| {
        [
            "cascade",
            "judge",
            "small",
            "large",
            "--items",
            items,
            "--profiled",
            "profiled",
        ]
    };
    // Whoever judges on the items that calibrated is told so.
    let note = "calibrations and weights were fitted to profile.csv, the very items that are judged";
    let told = tenantry(folder, &judge("profile.csv"));
    let said = String::from_utf8_lossy(&told.stderr);
    assert!(told.status.success() && said.contains(note), "{said}");
    // A text that loses a word is named by its item.
    let lost =
        fs::read_to_string(folder.join("test.csv")).expect("it is there") + "the \u{200d} soup was bad,negative\n";
    fs::write(folder.join("lost.csv"), lost).expect("it is writable");
    let refused = tenantry(folder, &judge("lost.csv"));
    let message = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{message}");
    assert!(message.contains("item 60: "), "{message}");
    // And on how few they rest.
    let told = tenantry(folder, &judge("test.csv"));
    let note = "note: p99 hangs on few items: there are 60, of which 0.6 are expected beyond p99.";
    let (said, text) = (
        String::from_utf8_lossy(&told.stderr),
        String::from_utf8_lossy(&told.stdout),
    );
    assert!(said.contains(note) && text.starts_with("60 items:\n"), "{said}{text}");
    let judged = good_json(folder, &judge("test.csv"));
    assert_eq!(judged["fitted_to_these_items"], serde_json::Value::Null);
    let weights = judged["ensemble"][0]["weights"].as_array().expect("a list");
    let sum: f64 = weights.iter().filter_map(serde_json::Value::as_f64).sum();
    assert!(weights.len() == 2 && (sum - 1.0).abs() < 1e-9, "{weights:?}");
    // Weights where words are pruned are by what is left of them, or else it is said that they are not.
    let pruned = |alpha| with(&judge("test.csv"), &["--alpha", alpha]);
    let told = tenantry(folder, &pruned("0.55"));
    let said = String::from_utf8_lossy(&told.stderr);
    assert!(
        said.contains("`tenantry cascade profile --route small=0.55,large` measures it"),
        "{said}"
    );
    for (alpha, by_whole_items) in [("0.55", vec!["large"]), ("0.5", Vec::new())] {
        let judged = good_json(folder, &pruned(alpha));
        assert_eq!(
            judged["weights_by_whole_items"],
            serde_json::json!(by_whole_items),
            "{alpha}"
        );
    }
    // Where nothing is pruned there is no second form of the cascade.
    for (alpha, forms, ensembles) in [
        ("0", vec!["cascade", "cascade, ensemble"], 1),
        (
            "0.5",
            vec![
                "cascade",
                "cascade, ensemble",
                "cascade, pruned",
                "cascade, pruned, ensemble",
            ],
            2,
        ),
    ] {
        let judged = good_json(folder, &pruned(alpha));
        let runs = judged["runs"].as_array().expect("a list").iter();
        let names: Vec<&str> = runs.filter_map(|run| run["name"].as_str()).skip(2).collect();
        assert_eq!(names, forms, "{alpha}");
        assert_eq!(judged["ensemble"].as_array().map(Vec::len), Some(ensembles), "{alpha}");
    }
    // Calibrated there, on other items: only the weights are of these.
    let calibrated = ["--calibrated-by", "profiled", "--out", "tested"];
    let profile_test = ["cascade", "profile", "small", "large", "--items", "test.csv"];
    good(folder, &with(&profile_test, &calibrated));
    let mut of_tested = judge("test.csv");
    of_tested[7] = "tested";
    let judged = good_json(folder, &of_tested);
    assert_eq!(judged["fitted_to_these_items"], "weights");

    // Elsewhere the files are not where they were.
    let elsewhere = tempfile::tempdir().expect("a temporary folder");
    let profiled = folder.join("profiled").display().to_string();
    let moved = tenantry(
        elsewhere.path(),
        &[
            "cascade",
            "select",
            &profiled,
            "--accuracy",
            "10",
            "--scenario",
            "serve.yaml",
        ],
    );
    let said = String::from_utf8_lossy(&moved.stderr);
    let profile = [
        "small.safetensors: folder: must be that of",
        "large.safetensors: folder: must be that of",
    ];
    assert_eq!(moved.status.code(), Some(2), "{said}");
    assert!(profile.iter().any(|profile| said.contains(profile)), "{said}");
    assert!(said.contains("from the working directory, got "), "{said}");

    // The same name, shape and classes, and other weights.
    let weights = folder.join("large/model.safetensors");
    let mut bytes = fs::read(&weights).expect("it is there");
    *bytes.last_mut().expect("it is not empty") ^= 1;
    fs::write(&weights, bytes).expect("it is writable");
    let other = "tokenizer.json: must be those that profiled/large.safetensors is of (BLAKE3 ";
    for arguments in [
        judge("test.csv").to_vec(),
        with(&profile_test, &["--calibrated-by", "profiled", "--out", "o"]),
    ] {
        let refused = tenantry(folder, &arguments);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(2) && said.contains(other), "{said}");
    }
    assert!(!folder.join("o").exists());
}

/// Calibrated class by class, a profile is judged, and other items are read by its calibrations.
#[test]
fn models_are_calibrated_class_by_class() {
    let folder = example();
    let folder = folder.path();
    let by_class = ["--calibration", "dirichlet", "--out", "profiled"];
    let profiled = good_json(folder, &with(&PROFILE, &by_class));
    assert_eq!(profiled["outputs"][0]["temperature"], serde_json::Value::Null);
    let saved = |folder_of: &str| {
        let saved = SavedOutputs::read(&folder.join(folder_of).join("small.safetensors")).expect("it was just written");
        match saved.calibration {
            SavedCalibration::Dirichlet(dirichlet) => dirichlet,
            other => panic!("{other:?}"),
        }
    };
    let calibration = saved("profiled");
    assert_eq!((calibration.weights.len(), calibration.intercepts.len()), (2, 2));
    let test = ["cascade", "profile", "small", "large", "--items", "test.csv"];
    good(
        folder,
        &with(&test, &["--calibrated-by", "profiled", "--out", "tested"]),
    );
    assert_eq!(saved("tested"), calibration);
    let judge = [
        "cascade",
        "judge",
        "small",
        "large",
        "--items",
        "test.csv",
        "--profiled",
        "profiled",
    ];
    let judged = good_json(folder, &judge);
    assert_eq!(judged["calibration"][0]["temperature"], serde_json::Value::Null);
    assert!(judged["calibration"][0]["ece_after"].is_number(), "{judged}");
    assert!(good(folder, &judge).contains("by class"));
    good(folder, &["cascade", "select", "profiled", "--accuracy", "10"]);
}
