//! How far a datasheet's roofline misses published latencies of BERT on cards that its factors were not fitted to, and that
//! the error which derived tables state is no smaller.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tenantry_profiles::roofline::{
    Datasheet, DerivedError, Factors, LeftOut, Roofline, WholeModel, leave_one_card_out,
};
use tenantry_profiles::{Card, DType, DeviceKind, Family, ModelShape, Source, Stats};

/// Of the public data in `TENANTRY_DATA`, or beside the checkout.
fn file(name: &str) -> Option<PathBuf> {
    let data = std::env::var_os("TENANTRY_DATA").map_or_else(|| PathBuf::from("../../shared/data"), PathBuf::from);
    let path = data.join("bert_latency").join(name);
    if !path.is_file() {
        eprintln!("SKIPPED: {} is not there", path.display());
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

/// Each point that a shipped card has of someone's measurement, derived from its datasheet: |derived − measured| / measured, by family and card.
/// Encoder layers, to which the factors were fitted, are left out: the test above has them.
fn derived_against_imported() -> BTreeMap<Family, BTreeMap<String, Vec<f64>>> {
    let mut errors: BTreeMap<Family, BTreeMap<String, Vec<f64>>> = BTreeMap::new();
    for name in Card::embedded_names() {
        let card = Card::embedded(name).unwrap().unwrap();
        let command = &card.provenance.command;
        let Some((_, rest)) = command.split_once("--gpu ") else {
            continue;
        };
        if card.provenance.source != Source::Imported {
            continue;
        }
        let gpu = rest.split(' ').next().unwrap();
        let roofline = Roofline::new(Datasheet::builtin(gpu).unwrap());
        let shape = |model: &str| card.model(model).unwrap();
        let mut add = |family: Family, table: &str, derived_us: f64, measured_us: f64| {
            let origin = card.origin(family, table);
            // What f16 has from bf16 was measured once.
            if origin.kind == Source::Imported && !origin.source.contains("taken for f16 too") {
                let of_card = errors.entry(family).or_default().entry(card.name.clone()).or_default();
                of_card.push((derived_us / measured_us - 1.0).abs());
            }
        };
        let tables = &card.tables;
        for row in &tables.static_model {
            let derived = roofline.static_model_us(&shape(&row.model), row.dtype, row.batch, row.tokens);
            let table = format!("model={} dtype={}", row.model, row.dtype);
            add(Family::StaticModel, &table, derived, row.stats.median_us);
        }
        let sharing =
            |model: &str, dtype: DType, cards: u32| format!("model={model} dtype={dtype} tensor_parallel={cards}");
        for row in &tables.decoder_dense {
            let cards = row.tensor_parallel;
            let derived = roofline.decoder_dense_us(&shape(&row.model), row.dtype, cards, row.tokens);
            let table = sharing(&row.model, row.dtype, cards);
            add(Family::DecoderDense, &table, derived, row.stats.median_us);
        }
        for row in &tables.decoder_prefill {
            let (cards, at) = (row.tensor_parallel, [row.tokens, row.context]);
            let derived = roofline.decoder_prefill_us(&shape(&row.model), row.dtype, cards, at);
            let table = sharing(&row.model, row.dtype, cards);
            add(Family::DecoderPrefill, &table, derived, row.stats.median_us);
        }
        for row in &tables.decoder_decode {
            let (cards, at) = (row.tensor_parallel, [row.sequences, row.context]);
            let derived = roofline.decoder_decode_us(&shape(&row.model), row.dtype, cards, at);
            let table = sharing(&row.model, row.dtype, cards);
            add(Family::DecoderDecode, &table, derived, row.stats.median_us);
        }
        for row in &tables.decoder_ends {
            let (cards, at) = (row.tensor_parallel, [row.sequences, row.tokens]);
            let derived = roofline.decoder_ends_us(&shape(&row.model), row.dtype, cards, at);
            let table = sharing(&row.model, row.dtype, cards);
            add(Family::DecoderEnds, &table, derived, row.stats.median_us);
        }
        for row in &tables.collective {
            let derived = roofline.collective_us(row.operation, row.workers, row.bytes);
            let table = format!("operation={}", row.operation);
            add(Family::Collective, &table, derived, row.stats.median_us);
        }
    }
    errors
}

/// Likewise of families that no source has published, by cards that were measured here: each has a datasheet of its own name.
fn derived_against_measured() -> BTreeMap<Family, BTreeMap<String, Vec<f64>>> {
    let mut errors: BTreeMap<Family, BTreeMap<String, Vec<f64>>> = BTreeMap::new();
    for name in Card::embedded_names() {
        let card = Card::embedded(name).unwrap().unwrap();
        if card.provenance.source != Source::Measured || card.device.kind != DeviceKind::Cuda {
            continue;
        }
        let roofline = Roofline::new(Datasheet::builtin(name).unwrap());
        let shape = |model: &str| card.model(model).unwrap();
        let mut add = |family: Family, derived_us: f64, measured: &Stats| {
            let of_card = errors.entry(family).or_default().entry(card.name.clone()).or_default();
            of_card.push((derived_us / measured.median_us - 1.0).abs());
        };
        let tables = &card.tables;
        for row in &tables.embedding {
            let derived = roofline.embedding_us(&shape(&row.model), row.dtype, row.batch, row.tokens);
            add(Family::Embedding, derived, &row.stats);
        }
        for row in &tables.head {
            let derived = roofline.head_us(&shape(&row.model), row.dtype, row.batch, row.classes);
            add(Family::Head, derived, &row.stats);
        }
        for row in &tables.adapter {
            let at = [row.tenants, row.batch, row.tokens];
            let derived = roofline.adapter_us(&shape(&row.model), row.dtype, row.implementation, row.bottleneck, at);
            add(Family::Adapter, derived, &row.stats);
        }
        for row in &tables.lora {
            let (of, at) = ([row.rank, row.tensor_parallel], [row.tenants, row.tokens]);
            let derived = roofline.lora_us(&shape(&row.model), row.dtype, row.implementation, of, at);
            add(Family::Lora, derived, &row.stats);
        }
        for row in &tables.concurrent_layer {
            let [streams, batch, tokens] = [row.streams, row.batch, row.tokens];
            let derived = roofline.concurrent_layer_us(&shape(&row.model), row.dtype, streams, batch, tokens);
            add(Family::ConcurrentLayer, derived, &row.stats);
        }
        for row in &tables.pet {
            let derived = roofline.pet_us(&shape(&row.model), row.dtype, row.kind, row.batch, row.tokens);
            add(Family::Pet, derived, &row.stats);
        }
        for row in &tables.model_load {
            add(
                Family::ModelLoad,
                roofline.model_load_us(row.source, row.bytes),
                &row.stats,
            );
        }
        for row in &tables.copy {
            add(Family::Copy, roofline.copy_us(row.pinned, row.bytes), &row.stats);
        }
    }
    errors
}

/// The mean over cards of a percentile: a card with many points counts as one.
fn of_cards(by_card: &BTreeMap<String, Vec<f64>>, percent: usize) -> f64 {
    let of = |errors: &Vec<f64>| {
        let mut errors = errors.clone();
        errors.sort_by(f64::total_cmp);
        errors[(errors.len() * percent).div_ceil(100) - 1]
    };
    by_card.values().map(of).sum::<f64>() / by_card.len() as f64
}

#[test]
fn each_familys_derived_tables_state_what_they_miss_measured_ones_by() {
    let mut measured = derived_against_measured();
    measured.extend(derived_against_imported());
    for (family, by_card) in &measured {
        for (card, errors) in by_card {
            let alone = BTreeMap::from([(card.clone(), errors.clone())]);
            let [median, p95] = [50, 95].map(|percent| 100.0 * of_cards(&alone, percent));
            println!(
                "{family:16} {card:18} {:5} points: median {median:.0} %, p95 {p95:.0} %",
                errors.len()
            );
        }
        let [median, p95] = [50, 95].map(|percent| 100.0 * of_cards(by_card, percent));
        println!("{family:16} all: median {median:.1} %, p95 {p95:.1} %");
    }
    for &family in Family::ALL {
        let stated = DerivedError::of(family);
        // Fitted to these: what they state is of cards that were left out (the test above).
        if matches!(family, Family::EncoderLayer | Family::StaticModel) {
            assert_eq!(stated, DerivedError::of(Family::EncoderLayer));
            if let (Some(stated), Some(by_card)) = (stated, measured.get(&family)) {
                let [median, p95] = [50, 95].map(|percent| of_cards(by_card, percent));
                assert!(
                    stated.median >= median && stated.p95 >= p95,
                    "{family}: {median}, {p95}"
                );
            }
            continue;
        }
        let Some(by_card) = measured.get(&family) else {
            assert_eq!(stated, None, "{family}: nothing was measured");
            continue;
        };
        let [median, p95] = [50, 95].map(|percent| of_cards(by_card, percent));
        let stated = stated.unwrap_or_else(|| panic!("{family} was measured"));
        assert_eq!(stated.cards, by_card.len(), "{family}");
        for (stated, measured) in [(stated.median, median), (stated.p95, p95)] {
            assert!(
                stated >= measured && stated - measured <= 0.02,
                "{family}: {stated}, measured {measured}"
            );
        }
    }
}
