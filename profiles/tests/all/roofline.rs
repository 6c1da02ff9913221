//! How far a datasheet's roofline misses published latencies of BERT on cards that its factors were not fitted to, and
//! that the error which derived tables state is no smaller.

use std::collections::BTreeMap;
use std::path::Path;

use tenantry_profiles::roofline::{
    Datasheet, DerivedError, Factors, LeftOut, Roofline, WholeModel, leave_one_card_out,
};
use tenantry_profiles::{Card, DType, DeviceKind, Family, ModelShape, Source, Stats};

use crate::public_data::{find, public_data};

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
    let data = public_data()?;
    let tensorrt = find(&data, "tensorrt_demo_bert_latency.csv");
    let faster_transformer = find(&data, "fastertransformer_bert_base_latency.csv");
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
    let mut errors: Vec<f64> = left_out.iter().flat_map(|out| &out.errors).map(|error| error.abs()).collect();
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
    let stated = DerivedError::of(Family::EncoderLayer).unwrap();
    assert_eq!(stated.cards, left_out.len());
    for out in &left_out {
        assert!(
            out.error_at(50) <= stated.worst_median && out.error_at(95) <= stated.worst_p95,
            "{}",
            out.card
        );
    }
}

/// |derived − measured| / measured, by family and card.
type Errors = BTreeMap<Family, BTreeMap<String, Vec<f64>>>;

/// The datasheet of a card that somebody measured and that has one: an imported card's command says it, a card that was
/// measured here has its name.
fn datasheet_of(card: &Card) -> Option<Datasheet> {
    let name = match (card.provenance.source, card.device.kind) {
        (Source::Imported, _) => card.provenance.command.split_once("--gpu ")?.1.split(' ').next()?,
        (Source::Measured, DeviceKind::Cuda) => &card.name,
        _ => return None,
    };
    Some(Datasheet::builtin(name).unwrap())
}

/// Each point of the shipped cards that somebody measured, derived from the card's datasheet. Encoder layers of
/// imported cards, to which the factors were fitted, are left out: the test above has them.
fn derived_against_measured() -> Errors {
    let mut errors = Errors::new();
    for name in Card::embedded_names() {
        let card = Card::embedded(name).unwrap().unwrap();
        if let Some(sheet) = datasheet_of(&card) {
            add_errors(&card, &Roofline::new(sheet), &mut errors);
        }
    }
    errors
}

fn add_errors(card: &Card, roofline: &Roofline, errors: &mut Errors) {
    let shape = |model: &str| card.model(model).unwrap();
    let is_here = card.provenance.source == Source::Measured;
    let mut add = |family: Family, table: &str, derived_us: f64, stats: &Stats| {
        let origin = card.origin(family, table);
        // What f16 has from bf16 was measured once, and copies of any size are made of one published bandwidth.
        let is_measured = match origin.kind {
            Source::Measured => true,
            Source::Imported => family != Family::Copy && !origin.source.contains("taken for f16 too"),
            _ => false,
        };
        // Nor is what an importer went on to along a line.
        if is_measured && stats.count > 0 {
            let of_card = errors.entry(family).or_default().entry(card.name.clone()).or_default();
            of_card.push((derived_us / stats.median_us - 1.0).abs());
        }
    };
    let of_model = |model: &str, dtype: DType| format!("model={model} dtype={dtype}");
    let sharing = |model: &str, dtype: DType, cards: u32| format!("{} tensor_parallel={cards}", of_model(model, dtype));
    let tables = &card.tables;
    for row in tables.encoder_layer.iter().filter(|_| is_here) {
        let derived = roofline.encoder_layer_us(&shape(&row.model), row.dtype, row.batch, row.tokens);
        add(
            Family::EncoderLayer,
            &of_model(&row.model, row.dtype),
            derived,
            &row.stats,
        );
    }
    for row in &tables.static_model {
        let derived = roofline.static_model_us(&shape(&row.model), row.dtype, row.batch, row.tokens);
        add(
            Family::StaticModel,
            &of_model(&row.model, row.dtype),
            derived,
            &row.stats,
        );
    }
    for row in &tables.decoder_dense {
        let (table, cards) = (sharing(&row.model, row.dtype, row.tensor_parallel), row.tensor_parallel);
        let derived = roofline.decoder_dense_us(&shape(&row.model), row.dtype, cards, row.tokens);
        add(Family::DecoderDense, &table, derived, &row.stats);
    }
    for row in &tables.decoder_prefill {
        let (table, cards) = (sharing(&row.model, row.dtype, row.tensor_parallel), row.tensor_parallel);
        let at = [row.tokens, row.context];
        let derived = roofline.decoder_prefill_us(&shape(&row.model), row.dtype, cards, at);
        add(Family::DecoderPrefill, &table, derived, &row.stats);
    }
    for row in &tables.decoder_decode {
        let (table, cards) = (sharing(&row.model, row.dtype, row.tensor_parallel), row.tensor_parallel);
        let at = [row.sequences, row.context];
        let derived = roofline.decoder_decode_us(&shape(&row.model), row.dtype, cards, at);
        add(Family::DecoderDecode, &table, derived, &row.stats);
    }
    for row in &tables.decoder_ends {
        let (table, cards) = (sharing(&row.model, row.dtype, row.tensor_parallel), row.tensor_parallel);
        let at = [row.sequences, row.tokens];
        let derived = roofline.decoder_ends_us(&shape(&row.model), row.dtype, cards, at);
        add(Family::DecoderEnds, &table, derived, &row.stats);
    }
    for row in &tables.collective {
        let derived = roofline.collective_us(row.operation, row.workers, row.bytes);
        add(
            Family::Collective,
            &format!("operation={}", row.operation),
            derived,
            &row.stats,
        );
    }
    // No source publishes the following.
    for row in tables.embedding.iter().filter(|_| is_here) {
        let derived = roofline.embedding_us(&shape(&row.model), row.dtype, row.batch, row.tokens);
        add(Family::Embedding, &of_model(&row.model, row.dtype), derived, &row.stats);
    }
    for row in tables.head.iter().filter(|_| is_here) {
        let derived = roofline.head_us(&shape(&row.model), row.dtype, row.batch, row.classes);
        add(Family::Head, &of_model(&row.model, row.dtype), derived, &row.stats);
    }
    for row in tables.adapter.iter().filter(|_| is_here) {
        let at = [row.tenants, row.batch, row.tokens];
        let derived = roofline.adapter_us(&shape(&row.model), row.dtype, row.implementation, row.bottleneck, at);
        add(Family::Adapter, "", derived, &row.stats);
    }
    for row in tables.lora.iter().filter(|_| is_here) {
        let (of, at) = ([row.rank, row.tensor_parallel], [row.tenants, row.tokens]);
        let derived = roofline.lora_us(&shape(&row.model), row.dtype, row.implementation, of, at);
        add(Family::Lora, "", derived, &row.stats);
    }
    for row in tables.concurrent_layer.iter().filter(|_| is_here) {
        let [streams, batch, tokens] = [row.streams, row.batch, row.tokens];
        let derived = roofline.concurrent_layer_us(&shape(&row.model), row.dtype, streams, batch, tokens);
        add(Family::ConcurrentLayer, "", derived, &row.stats);
    }
    for row in tables.pet.iter().filter(|_| is_here) {
        let derived = roofline.pet_us(&shape(&row.model), row.dtype, row.kind, row.batch, row.tokens);
        add(Family::Pet, "", derived, &row.stats);
    }
    for row in tables.model_load.iter().filter(|_| is_here) {
        let derived = roofline.model_load_us(row.source, row.bytes);
        add(Family::ModelLoad, "", derived, &row.stats);
    }
    for row in &tables.copy {
        add(Family::Copy, "", roofline.copy_us(row.pinned, row.bytes), &row.stats);
    }
}

fn at_percent(errors: &[f64], percent: usize) -> f64 {
    let mut errors = errors.to_vec();
    errors.sort_by(f64::total_cmp);
    errors[(errors.len() * percent).div_ceil(100) - 1]
}

/// The mean over cards of a percentile, so that a card with many points counts as one, and that of the worst card.
fn of_cards(by_card: &BTreeMap<String, Vec<f64>>, percent: usize) -> [f64; 2] {
    let of_each = || by_card.values().map(|errors| at_percent(errors, percent));
    [
        of_each().sum::<f64>() / by_card.len() as f64,
        of_each().fold(0.0, f64::max),
    ]
}

#[test]
fn each_familys_derived_tables_state_what_they_miss_measured_ones_by() {
    let measured = derived_against_measured();
    for (family, by_card) in &measured {
        for (card, errors) in by_card {
            let [median, p95] = [50, 95].map(|percent| 100.0 * at_percent(errors, percent));
            println!(
                "{family:16} {card:18} {:5} points: median {median:.0} %, p95 {p95:.0} %",
                errors.len()
            );
        }
        let [median, p95] = [50, 95].map(|percent| of_cards(by_card, percent).map(|share| 100.0 * share));
        println!("{family:16} mean and worst: median {median:.1?} %, p95 {p95:.1?} %");
    }
    let close = |what: &str, stated: f64, measured: f64| {
        assert!(
            stated >= measured && stated - measured <= 0.02,
            "{what}: {stated} is stated, {measured} measured"
        );
    };
    for &family in Family::ALL {
        let stated = DerivedError::of(family);
        let Some(by_card) = measured.get(&family) else {
            assert_eq!(stated, None, "{family}: nothing was measured");
            continue;
        };
        let stated = stated.unwrap_or_else(|| panic!("{family} was measured"));
        let [[median, worst_median], [p95, worst_p95]] = [50, 95].map(|percent| of_cards(by_card, percent));
        // Fitted to these: what they state is of cards that were left out (the test above), and of one that was
        // measured here.
        if matches!(family, Family::EncoderLayer | Family::StaticModel) {
            assert_eq!((stated.median, stated.p95), (Factors::ERROR_MEDIAN, Factors::ERROR_P95));
            assert!(
                stated.worst_median >= worst_median && stated.worst_p95 >= worst_p95,
                "{family}"
            );
            continue;
        }
        assert_eq!(stated.cards, by_card.len(), "{family}");
        close(family.name(), stated.median, median);
        close(family.name(), stated.p95, p95);
        close(family.name(), stated.worst_median, worst_median);
        close(family.name(), stated.worst_p95, worst_p95);
    }
}
