//! Importers, without the public data: tables written by hand in each source's format, of times that are easy to add
//! up.

mod aiconfigurator;
mod bert;
mod copies;
mod llmservingsim;
mod vidur;

use std::fs;
use std::io::Write;

use tenantry_profiles::{Card, DEFAULT_LAUNCH_OVERHEAD_US, Import, ImportSource, ModelShape, Stats};

/// What an import of these texts makes, or what it says of them.
fn import(source: ImportSource, gpu: &str, models: &[&str], texts: &[&str]) -> Result<Card, String> {
    let folder = tempfile::tempdir().unwrap();
    let write = |(index, text): (usize, &&str)| {
        // What LLMServingSim says of its tables is none itself.
        let extension = if text.contains("vllm_version:") { "yaml" } else { "csv" };
        let file = folder.path().join(format!("{index}.{extension}"));
        fs::write(&file, text).unwrap();
        file
    };
    let import = Import {
        source,
        gpu: gpu.to_owned(),
        models: models.iter().map(|name| ModelShape::builtin(name).unwrap()).collect(),
        launch_overhead_us: DEFAULT_LAUNCH_OVERHEAD_US,
        files: texts.iter().enumerate().map(write).collect(),
    };
    let card = import.run("card", "2026-01-01");
    card.map_err(|error| error.to_string().replace(&format!("{}/", folder.path().display()), ""))
}

/// As several programs pack it, in parts one behind the other, and whatever the file is called.
#[test]
fn all_of_a_packed_file_is_read() {
    let rows = "gpu,model,precision,seq_len,batch_size,avg_ms,p95_ms,p99_ms,readme_commit,readme_date\n\
        T4 16GB,BERT base,FP16,128,1,1.9,2.0,2.1,abc,2026-01-01\n\
        T4 16GB,BERT base,FP16,384,1,4.8,4.9,5.0,abc,2026-01-01\n";
    let (first, second) = rows.split_at(rows.len() / 2);
    let packed = |text: &str| {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(text.as_bytes()).unwrap();
        packer.finish().unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("table.csv");
    fs::write(&file, [packed(first), packed(second)].concat()).unwrap();
    let import = Import {
        source: ImportSource::TensorrtBert,
        gpu: "t4".to_owned(),
        models: Vec::new(),
        launch_overhead_us: DEFAULT_LAUNCH_OVERHEAD_US,
        files: vec![file],
    };
    let card = import.run("card", "2026-01-01").unwrap();
    assert_eq!(card.tables.static_model.len(), 2);
}

/// What is said of a second file of a kind: two cards' are no one card.
const SECOND: &str = "1.csv: header: must be of another kind than the files before it, got a second one of a kind";

fn median_us(rows: impl IntoIterator<Item = Stats>) -> Vec<f64> {
    rows.into_iter().map(|stats| stats.median_us).collect()
}

fn has_note(card: &Card, part: &str) {
    let notes = &card.provenance.notes;
    assert!(notes.iter().any(|note| note.contains(part)), "{notes:#?}");
}
