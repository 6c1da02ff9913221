//! Calibration on real logits: two models' over 10,000 questions of MMLU (LLM-Uncertainty-Bench). The tables have no
//! gold labels, so that right is what another model answers.
//!
//! The tables are public and not shipped: where they are not at hand, both tests say so and hold nothing
//! (`TENANTRY_DATA` names their folder). A model that is trained on the spot, and its real logits, are calibrated and
//! held to the same in `executor/tests/trained_cascade.rs`, which needs nothing.

use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use flate2::read::MultiGzDecoder;
use tenantry_cascade::{Confident, Dirichlet, Temperature, expected_calibration_error};

const LOGITS: &str = "cascade/uncertainty_bench_mmlu_10k_raw_logits_qwen_1_8b_72b.csv.gz";
const ANSWERS: &str = "cascade/uncertainty_bench_mmlu_10k_base_icl1.csv.gz";
/// Columns of the first table.
const SMALL: Range<usize> = 1..7;
const LARGE: Range<usize> = 7..13;
const BUCKETS: usize = 15;

/// A table's lines by field, the first with the columns' names, where it is at hand.
fn table(name: &str) -> Option<Vec<Vec<String>>> {
    let folder = std::env::var_os("TENANTRY_DATA").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data")),
        PathBuf::from,
    );
    let path = folder.join(name);
    let Ok(file) = std::fs::File::open(&path) else {
        eprintln!(
            "SKIPPED: {} does not exist; set TENANTRY_DATA to the folder of public recordings",
            path.display()
        );
        return None;
    };
    let lines = BufReader::new(MultiGzDecoder::new(file)).lines();
    Some(
        lines
            .map(|line| line.expect("it is readable").split(',').map(str::to_owned).collect())
            .collect(),
    )
}

/// Of the items that were held out: as they are, by a temperature, and class by class.
struct Held {
    temperature: f64,
    error: [f64; 3],
    loss: [f64; 3],
    accuracy: [f64; 3],
}

/// Fits to every second item, and looks at the others: before and after.
fn calibrated(columns: Range<usize>, reference: &str) -> Option<Held> {
    let (logits, answers) = (table(LOGITS)?, table(ANSWERS)?);
    let column = answers[0].iter().position(|name| name == reference).expect("the table has the model");
    let items: Vec<(Vec<f32>, usize)> = logits[1..]
        .iter()
        .zip(&answers[1..])
        .map(|(logits, answers)| {
            assert_eq!(
                logits[0], answers[0],
                "both tables have the same questions in the same order"
            );
            let class = usize::from(answers[column].as_bytes()[0] - b'A');
            (
                logits[columns.clone()].iter().map(|field| field.parse().expect("a logit")).collect(),
                class,
            )
        })
        .collect();
    assert_eq!(items.len(), 10_000);
    let half = |first: usize| items.iter().skip(first).step_by(2).map(|(logits, label)| (logits.as_slice(), *label));
    let fitted = Temperature::fit(half(0)).expect("the items are sound");
    let by_class = Dirichlet::fit(half(0), &AtomicBool::new(false)).expect("the items are sound");
    let answers = |confident: &dyn Fn(&[f32]) -> Confident| -> Vec<(f64, bool)> {
        let answer = |(logits, label)| {
            let answer = confident(logits);
            (answer.confidence, answer.class == label)
        };
        half(1).map(answer).collect()
    };
    let answers = [
        answers(&|logits| Temperature::ONE.confidence(logits)),
        answers(&|logits| fitted.confidence(logits)),
        answers(&|logits| by_class.confidence(logits)),
    ];
    let share =
        |answers: &Vec<(f64, bool)>| answers.iter().filter(|(_, right)| *right).count() as f64 / answers.len() as f64;
    let held = Held {
        temperature: fitted.value(),
        accuracy: answers.each_ref().map(share),
        error: answers
            .map(|answers| expected_calibration_error(answers, BUCKETS).expect("confidences are probabilities")),
        loss: [
            Temperature::ONE.loss(half(1)),
            fitted.loss(half(1)),
            by_class.loss(half(1)),
        ]
        .map(|loss| loss.expect("the items are sound")),
    };
    println!(
        "{reference}: temperature {:.3}; held out, as they are, by it and class by class: calibration error {:.4?}, \
         loss {:.4?}, right {:.4?}",
        held.temperature, held.error, held.loss, held.accuracy
    );
    Some(held)
}

/// The large model is less sure than it need be, and a temperature mends that on items that it was not fitted to.
#[test]
fn a_model_that_is_too_modest_is_mended() {
    let Some(held) = calibrated(LARGE, "llama_2_70b_pred") else {
        return;
    };
    assert!(held.temperature < 1.0 && held.loss[1] < held.loss[0]);
    assert!(held.error[1] < held.error[0] / 2.0);
    assert_by_class_tells_more(&held);
    assert!(held.error[2] < held.error[0] / 2.0);
}

/// Class by class, the likelihood rises by more than a temperature raises it, and some answers change to what is right.
fn assert_by_class_tells_more(held: &Held) {
    let Held { loss, accuracy, .. } = held;
    assert!(loss[0] - loss[2] > 2.0 * (loss[0] - loss[1]), "{loss:?}");
    assert!(
        accuracy[1] == accuracy[0] && accuracy[2] > accuracy[0] + 0.005,
        "{accuracy:?}"
    );
}

/// What is fitted is the likelihood: a model that is nearly calibrated already pays for it with nearly twice its
/// calibration error.
#[test]
fn a_model_that_is_nearly_calibrated_is_less_so_by_a_better_likelihood() {
    let Some(held) = calibrated(SMALL, "qwen_72b_pred") else {
        return;
    };
    assert!(held.loss[1] < held.loss[0]);
    let [before, after, by_class] = held.error;
    assert!(
        before < 0.035 && after > 1.5 * before && after < 0.065,
        "{before} and {after}"
    );
    assert_by_class_tells_more(&held);
    assert!(by_class < after, "{by_class} and {after}");
}
