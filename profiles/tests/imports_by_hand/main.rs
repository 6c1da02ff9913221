//! Importers, without the public data: tables written by hand in each source's format, of times that are easy to add up.

mod aiconfigurator;
mod bert;
mod copies;
mod llmservingsim;
mod vidur;

use std::fs;

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

/// What is said of a second file of a kind: two cards' are no one card.
const SECOND: &str = "1.csv: header: must be of another kind than the files before it, got a second one of a kind";

fn median_us(rows: impl IntoIterator<Item = Stats>) -> Vec<f64> {
    rows.into_iter().map(|stats| stats.median_us).collect()
}

fn has_note(card: &Card, part: &str) {
    let notes = &card.provenance.notes;
    assert!(notes.iter().any(|note| note.contains(part)), "{notes:#?}");
}
