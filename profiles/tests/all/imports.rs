//! Imported cards: that they are what their own commands import, and how well they price what was measured and left
//! out. Run with `UPDATE=1` to write the cards again.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tenantry_profiles::{Card, DEFAULT_LAUNCH_OVERHEAD_US, DType, Decoder, Import, ImportSource, ModelShape, Source};

use crate::public_data::{find, public_data};

fn model(name: &str) -> ModelShape {
    ModelShape::builtin(name).unwrap()
}

/// What a command in a card's provenance says.
fn import_of(command: &str, data: &Path) -> Import {
    let words: Vec<&str> = command.strip_prefix("tenantry profile import ").expect(command).split(' ').collect();
    let after = |flag: &str| words.iter().position(|word| *word == flag).map(|place| words[place + 1]);
    let is_file = |word: &&&str| [".csv", ".csv.gz", ".yaml"].iter().any(|extension| word.ends_with(extension));
    Import {
        source: *ImportSource::ALL.iter().find(|source| Some(source.name()) == after("--from")).unwrap(),
        gpu: after("--gpu").unwrap().to_owned(),
        models: after("--model").map_or_else(Vec::new, |names| names.split(',').map(model).collect()),
        launch_overhead_us: after("--launch-overhead-us").map_or(DEFAULT_LAUNCH_OVERHEAD_US, |us| us.parse().unwrap()),
        files: words.iter().filter(is_file).map(|file| find(data, file)).collect(),
    }
}

fn imported_cards() -> Vec<Card> {
    let cards = Card::embedded_names().into_iter().map(|name| Card::embedded(name).unwrap().unwrap());
    cards.filter(|card| card.provenance.source == Source::Imported).collect()
}

#[test]
fn shipped_cards_are_what_their_commands_import() {
    let Some(data) = public_data() else { return };
    let cards = imported_cards();
    assert!(cards.len() >= 9, "{} cards", cards.len());
    for shipped in cards {
        let commands: Vec<&str> = shipped.provenance.command.split(" && ").collect();
        let mut card: Option<Card> = None;
        for command in commands {
            let import = import_of(command, &data);
            assert_eq!(import.command(), command);
            let imported = import.run(&shipped.name, &shipped.provenance.date).unwrap();
            let mut sum = match card {
                None => imported,
                Some(mut card) => {
                    card.add_imported(&imported).unwrap();
                    card
                }
            };
            sum.fill_from_datasheet(&import.gpu).unwrap();
            card = Some(sum);
        }
        let card = card.expect("a card has a command");
        if std::env::var_os("UPDATE").is_some() {
            let cards = Path::new(env!("CARGO_MANIFEST_DIR")).join("cards");
            card.save(&cards.join(&card.name)).unwrap();
            continue;
        }
        assert_eq!(card.provenance.notes, shipped.provenance.notes, "{}", shipped.name);
        assert_eq!(card.origins, shipped.origins, "{}", shipped.name);
        assert_eq!(
            card.digest(),
            shipped.digest(),
            "{}: make it again by its command",
            shipped.name
        );
    }
}

/// Kernels of another GPU, in a format that this one does not compute in.
#[test]
fn formats_that_a_gpu_does_not_have_are_refused() {
    let Some(data) = public_data() else { return };
    let h200 = Card::embedded("h200-sxm-imported").unwrap().unwrap();
    let first = h200.provenance.command.split(" && ").next().unwrap();
    let import = Import {
        gpu: "t4".to_owned(),
        ..import_of(first, &data)
    };
    let error = import.run("t4", "2026-01-01").unwrap_err().to_string();
    assert!(
        error.starts_with("--gpu: must be a GPU that computes in bf16, as the "),
        "{error}"
    );
}

/// LLMServingSim's attention rows: chunk, cached, sequences, context, and the measured microseconds.
fn attention_rows(file: &Path) -> Vec<([u32; 4], f64)> {
    let bytes = fs::read(file).unwrap();
    let mut reader = csv::Reader::from_reader(flate2::read::MultiGzDecoder::new(bytes.as_slice()));
    let row = |record: csv::StringRecord| {
        let at = [0, 1, 2, 3].map(|column| record[column].parse().unwrap());
        (at, record[4].parse().unwrap())
    };
    reader.records().map(|record| row(record.unwrap())).collect()
}

/// Median and 95th percentile of |priced − measured| / measured, and the total's relative error.
fn errors(pairs: &[(f64, f64)]) -> [f64; 3] {
    let mut errors: Vec<f64> = pairs.iter().map(|(priced, measured)| (priced / measured - 1.0).abs()).collect();
    errors.sort_by(f64::total_cmp);
    let at = |percent: usize| errors[(errors.len() * percent).div_ceil(100) - 1];
    let sum = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>();
    [at(50), at(95), sum(|pair| pair.0) / sum(|pair| pair.1) - 1.0]
}

fn llama(card: &str) -> Decoder {
    let card = Card::embedded(card).unwrap().unwrap();
    card.decoder(&model("llama3.1-8b"), DType::Bf16, 1).unwrap()
}

/// Any mix of a chunk and decodes, on all rows that were measured, most of which the tables leave out.
#[test]
fn mixes_of_chunks_and_decodes_are_priced_as_measured() {
    let Some(data) = public_data() else { return };
    for (name, file) in [
        ("rtx4090", "RTX4090_llama31_8b_tp1_attention.csv.gz"),
        ("rtx-pro-6000", "RTXPRO6000_llama31_8b_tp1_attention.csv.gz"),
    ] {
        let decoder = llama(name);
        let mut by_kind: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
        for ([tokens, cached, sequences, context], measured_us) in attention_rows(&find(&data, file)) {
            let chunk = [(tokens, tokens + cached)];
            let chunks = if tokens > 0 { &chunk[..] } else { &[] };
            let priced_us = decoder.attention(chunks, sequences, context).median_ns as f64 / 1e3;
            let kind = match (tokens, sequences) {
                (_, 0) => "chunks",
                (0, _) => "decodes",
                _ => "mixed",
            };
            by_kind.entry(kind).or_default().push((priced_us, measured_us));
            if kind == "mixed" && decoder.covers(chunks, sequences, context) {
                by_kind.entry("mixed, within the table").or_default().push((priced_us, measured_us));
            }
            if kind == "mixed" {
                let apart_us =
                    decoder.prefill.cost(tokens, tokens + cached).plus(decoder.decode.cost(sequences, context));
                by_kind
                    .entry("mixed, as a sum")
                    .or_default()
                    .push((apart_us.median_ns as f64 / 1e3, measured_us));
            }
        }
        for (kind, pairs) in &by_kind {
            let [median, p95, total] = errors(pairs).map(|share| 100.0 * share);
            println!(
                "{name}, {kind}: {} rows, median {median:.1} %, p95 {p95:.1} %, in all {total:+.1} %",
                pairs.len()
            );
        }
        let [median, p95, total] = errors(&by_kind["mixed"]);
        assert!(
            median < 0.02 && p95 < 0.21 && total.abs() < 0.02,
            "{name}: {median} {p95} {total}"
        );
        let [median, p95, total] = errors(&by_kind["mixed, within the table"]);
        assert!(
            median < 0.02 && p95 < 0.15 && total.abs() < 0.02,
            "{name}: {median} {p95} {total}"
        );
        let [median, ..] = errors(&by_kind["mixed, as a sum"]);
        assert!(
            median > 0.2,
            "{name}: the sum is right to {median}, so a table of its own is not needed"
        );
    }
}

#[test]
fn a_step_is_its_layers_and_its_ends() {
    let decoder = llama("rtx4090");
    let (chunks, sequences, context) = ([(512, 512)], 20, 900);
    let layer_ns = decoder.dense.cost(532).median_ns + decoder.attention(&chunks, sequences, context).median_ns;
    let step = decoder.step(32, &chunks, sequences, context);
    assert_eq!(step.median_ns, 32 * layer_ns + decoder.ends.cost(21, 532).median_ns);
    assert!(decoder.covers(&chunks, sequences, context));
    assert!(!decoder.covers(&chunks, 400, context) && !decoder.covers(&[(4096, 4096)], 0, 0));
    assert_eq!(decoder.attention(&[], 0, 0).median_ns, 0);
    // Two chunks that attend as often as one cost as much.
    let both = decoder.attention(&[(256, 1024), (256, 768)], sequences, context);
    assert_eq!(both, decoder.attention(&[(512, 1024)], sequences, context));
}

/// aiconfigurator has 256 sequences up to a context of 512, and 128 up to 1,024: the table goes on from there.
#[test]
fn new_tokens_of_more_sequences_than_were_measured_are_extrapolated() {
    let h100 = Card::embedded("h100-sxm").unwrap().unwrap();
    let decode = h100.decoder(&model("llama-7b"), DType::Bf16, 1).unwrap().decode;
    assert!(decode.covers(256, 512) && decode.covers(128, 1024) && decode.covers(1, 32_768));
    let beyond = decode.beyond(200, 1024).expect("nobody measured it").to_string();
    assert_eq!(beyond, "sequences 200, measured up to 128");
}

/// A few tokens with a long context do not become cheaper beside a short prompt: neither on cards that were measured
/// with all in one kernel, nor on those where chunks take a share of their own costs.
#[test]
fn a_prompt_more_never_makes_a_step_cheaper_than_its_dearest_chunk() {
    let h200 = Card::embedded("h200-sxm-imported").unwrap().unwrap();
    let large = h200.decoder(&model("llama-70b"), DType::Bf16, 8).unwrap();
    for decoder in [llama("rtx4090"), llama("rtx-pro-6000"), large] {
        for dear in [(16, 14_016), (2_000, 2_000), (64, 8_000)] {
            for sequences in [0, 20] {
                let alone = decoder.attention(&[dear], sequences, 900).median_ns;
                for cheap in [(1, 1), (16, 16), (256, 256), (500, 900)] {
                    let both = [dear, cheap];
                    let together = decoder.attention(&both, sequences, 900).median_ns;
                    // A share is of whole millionths, and a cost of whole nanoseconds.
                    assert!(
                        together + together / 100_000 + 1 >= alone,
                        "{both:?} beside {sequences}: {together} ns, {alone} alone"
                    );
                    assert_eq!(together, decoder.attention_ns(&both, sequences, 900));
                }
            }
        }
    }
}

/// The closed forms of decode runs rely on it.
#[test]
fn decodes_are_linear_in_context_between_measured_points() {
    let decoder = llama("rtx4090");
    for sequences in [1, 7, 100] {
        let at = |context: u32| decoder.decode.cost(sequences, context).median_ns as i64;
        for context in [520, 700, 1000] {
            let on_line = at(512) + (at(1024) - at(512)) * i64::from(context - 512) / 512;
            assert!(
                (at(context) - on_line).abs() <= 1,
                "{sequences} × {context}: {} and {on_line}",
                at(context)
            );
        }
    }
}

#[test]
fn a_compiled_model_runs_on_its_next_length() {
    let card = Card::embedded("v100").unwrap().unwrap();
    let compiled = card.static_model(&model("bert-base"), DType::F16).unwrap();
    assert_eq!(compiled.lengths().collect::<Vec<_>>(), [128, 384]);
    assert_eq!(
        (
            compiled.length_for(1),
            compiled.length_for(129),
            compiled.length_for(385)
        ),
        (Some(128), Some(384), None)
    );
    let cost = |tokens| compiled.cost(1, tokens).map(|cost| cost.median_ns);
    assert_eq!((cost(1), cost(128)), (Some(1_230_000), Some(1_230_000)));
    assert_eq!(cost(129), cost(384));
    assert!(cost(129) > cost(128) && cost(385).is_none());
    assert!(compiled.beyond(128, 300).is_none() && compiled.beyond(129, 300).is_some());
    assert!(compiled.cost(1, 385).is_none());
    let message = card
        .static_model(
            &ModelShape {
                layers: 6,
                ..model("bert-base")
            },
            DType::F16,
        )
        .unwrap_err()
        .to_string();
    assert!(message.contains("(layers 12, not 6)"), "{message}");
}

#[test]
fn files_that_are_not_the_sources_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |source: ImportSource, gpu: &str, text: &str| {
        let file = folder.path().join("table.csv");
        fs::write(&file, text).unwrap();
        let mut files = vec![file];
        if source == ImportSource::Llmservingsim {
            let meta = "vllm_version: 0.19.0\ngpu: NVIDIA GeForce RTX 4090\narchitecture: llama\nmodel: meta-llama/Llama-3.1-8B\n\
                        variant: bf16\ntp_degrees: [1]\nmeasurement_iterations: 3\n";
            files.push(folder.path().join("meta.yaml"));
            fs::write(&files[1], meta).unwrap();
        }
        let import = Import {
            source,
            gpu: gpu.to_owned(),
            models: Vec::new(),
            launch_overhead_us: DEFAULT_LAUNCH_OVERHEAD_US,
            files,
        };
        let message = import.run("card", "2026-01-01").unwrap_err().to_string();
        message.replace(&format!("{}/", folder.path().display()), "")
    };
    let unknown = refused(ImportSource::Vidur, "a100-sxn", "a\n1\n");
    assert!(unknown.ends_with("got a100-sxn; did you mean a100-sxm?"), "{unknown}");
    assert!(refused(ImportSource::Vidur, "a100-sxm", "a\n1\n").contains("table.csv: header: must be Vidur's mlp.csv"));
    let dense = "layer,tokens,time_us\nlayernorm,1,nan\n";
    assert_eq!(
        refused(ImportSource::Llmservingsim, "rtx-4090", dense),
        "table.csv:2: time_us: must be a time above 0 and up to 1e6, got \"nan\""
    );
    let incomplete = refused(
        ImportSource::Llmservingsim,
        "rtx-4090",
        "layer,tokens,time_us\nlayernorm,1,2.5\n",
    );
    assert!(
        incomplete.contains("layer: must be qkv_proj among others"),
        "{incomplete}"
    );
    let copies = "gpu,link,direction,host_memory,bandwidth_GBps,note\nP100,PCIe 3.0 x16,h2d,pinned,12.1,\n";
    let absent = refused(ImportSource::HostDeviceBandwidth, "h100-sxm", copies);
    assert!(
        absent.contains("must be that of this GPU (PCIe 5.0 x16) in some row"),
        "{absent}"
    );
    for no_pcie in ["jetson-tx2", "gb200"] {
        assert_eq!(
            refused(ImportSource::HostDeviceBandwidth, no_pcie, copies),
            format!("--gpu: must be a GPU with a link of PCIe x16, which these bandwidths are of, got {no_pcie}")
        );
    }
    let misnamed = refused(ImportSource::TensorrtBert, "t4", "gpu,precisoin\nT4 16GB,FP16\n");
    assert_eq!(
        misnamed,
        "table.csv:1: precision: must be a column, got no such column; did you mean precisoin?"
    );
}
