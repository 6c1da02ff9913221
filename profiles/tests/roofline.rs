//! How far a datasheet's roofline misses published latencies of BERT on cards that its factors were not fitted to, and that
//! the error which derived tables state is no smaller.

use std::path::{Path, PathBuf};

use tenantry_profiles::roofline::{Datasheet, Factors, LeftOut, WholeModel, leave_one_card_out};
use tenantry_profiles::{DType, ModelShape};

const DATA: &str = "../../shared/data/bert_latency";

fn file(name: &str) -> Option<PathBuf> {
    let path = Path::new(DATA).join(name);
    if !path.is_file() {
        println!("SKIPPED: {} is not there", path.display());
    }
    path.is_file().then_some(path)
}

/// Which datasheet a table's card is.
fn card(name: &str) -> Option<Datasheet> {
    let name = match name {
        "A100" | "A100 40GB" => "a100-sxm-40g",
        "A30" => "a30",
        "A10" => "a10",
        "L4" => "l4",
        "L40S" => "l40s",
        "T4" | "T4 16GB" => "t4",
        "V100" | "V100 16GB" | "V100 16GB 300W" => "v100-16g",
        _ => return None,
    };
    Datasheet::builtin(name).ok()
}

fn points(path: &Path, read: impl Fn(&dyn Fn(&str) -> String) -> Option<WholeModel>) -> Vec<WholeModel> {
    let mut reader = csv::Reader::from_path(path).unwrap();
    let header = reader.headers().unwrap().clone();
    let point = |record: Result<csv::StringRecord, csv::Error>| {
        let record = record.unwrap();
        let cell = |column: &str| {
            let index = header.iter().position(|have| have == column).unwrap();
            record[index].to_owned()
        };
        read(&cell)
    };
    reader.records().filter_map(point).collect()
}

fn published() -> Option<Vec<WholeModel>> {
    let tensorrt = file("tensorrt_demo_bert_latency.csv")?;
    let faster_transformer = file("fastertransformer_bert_base_latency.csv")?;
    let number = |text: String| text.parse::<u32>().unwrap();
    let mut all = points(&tensorrt, |cell| {
        let model = match cell("model").as_str() {
            "BERT base" => "bert-base",
            "BERT large" => "bert-large",
            _ => return None,
        };
        (cell("precision") == "FP16").then(|| WholeModel {
            card: card(&cell("gpu")).expect("its datasheet is known"),
            model: ModelShape::builtin(model).unwrap(),
            dtype: DType::F16,
            batch: cell("batch_size").parse().unwrap(),
            tokens: cell("seq_len").parse().unwrap(),
            latency_us: 1e3 * cell("avg_ms").parse::<f64>().unwrap(),
        })
    });
    all.extend(points(&faster_transformer, |cell| {
        let dtype = match cell("precision").as_str() {
            "FP16" => DType::F16,
            "FP32" => DType::F32,
            _ => return None,
        };
        (cell("implementation") == "FT").then(|| WholeModel {
            card: card(&cell("gpu")).expect("its datasheet is known"),
            model: ModelShape::builtin("bert-base").unwrap(),
            dtype,
            batch: number(cell("batch_size")),
            tokens: number(cell("seq_len")),
            latency_us: 1e3 * cell("latency_ms").parse::<f64>().unwrap(),
        })
    }));
    Some(all)
}

fn percentile(left_out: &[LeftOut], percent: usize) -> f64 {
    let mut errors: Vec<f64> = left_out
        .iter()
        .flat_map(|out| &out.errors)
        .map(|error| error.abs())
        .collect();
    errors.sort_by(f64::total_cmp);
    errors[(errors.len() * percent).div_ceil(100) - 1]
}

#[test]
fn derived_cards_miss_measured_ones_by_no_more_than_they_state() {
    let Some(all) = published() else { return };
    let left_out = leave_one_card_out(&all);
    for out in &left_out {
        println!(
            "{:14} {:4} points, fitted to the others: {:?}: median {:.1} %, p95 {:.1} %",
            out.card,
            out.errors.len(),
            out.factors,
            100.0 * out.error_at(50),
            100.0 * out.error_at(95),
        );
    }
    let (median, p95) = (percentile(&left_out, 50), percentile(&left_out, 95));
    let fitted = Factors::fit(&all.iter().collect::<Vec<_>>());
    println!(
        "{} points of {} cards: median {:.1} %, p95 {:.1} %; fitted to all: {fitted:?}",
        all.len(),
        left_out.len(),
        100.0 * median,
        100.0 * p95,
    );
    assert_eq!(fitted, Factors::FITTED, "the committed factors are those of the data");
    assert!(
        median <= Factors::ERROR_MEDIAN && median > 0.8 * Factors::ERROR_MEDIAN,
        "{median}"
    );
    assert!(p95 <= Factors::ERROR_P95 && p95 > 0.8 * Factors::ERROR_P95, "{p95}");
}
