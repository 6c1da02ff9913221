//! Which GPUs the names of files say. A name is only a name: one that says another GPU is told of, two that say
//! different ones are refused.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::gpus::{Gpu, model_words};
use crate::error::Invalid;
use crate::roofline::Datasheet;

/// Datasheets' names have no more words that tell one GPU from another: `rtx pro 6000`.
const WORDS_MAX: usize = 3;

/// What a reader must know of files whose names say another GPU than the one they are imported for.
///
/// # Errors
/// The names of two files say different GPUs.
pub(super) fn check(files: &[PathBuf], gpu: &Gpu) -> Result<Vec<String>, Invalid> {
    let known: BTreeSet<String> = Datasheet::all().into_iter().map(|sheet| model_words(&sheet.name).concat()).collect();
    let asked = model_words(&gpu.sheet.name).concat();
    let mut notes = Vec::new();
    let mut first: Option<(&str, BTreeSet<String>)> = None;
    for path in files {
        let Some(file) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        let said = said_by(file, &known);
        if said.is_empty() {
            continue;
        }
        match &first {
            Some((one, said_first)) if said_first.is_disjoint(&said) => {
                let must = format!("of the GPU that {one} says ({}): a card is of one", listed(said_first));
                return Err(Invalid::new(&path.display().to_string(), "name", must, listed(&said)));
            }
            Some(_) => {}
            None => first = Some((file, said.clone())),
        }
        if !said.contains(&asked) {
            notes.push(format!(
                "{file} is taken as of {}, as --gpu says, and its name says {}",
                gpu.sheet.name,
                listed(&said)
            ));
        }
    }
    Ok(notes)
}

/// The GPUs that a file's name has as whole words, written as one (`rtx4090`) or as several (`rtx-4090`).
fn said_by(file: &str, known: &BTreeSet<String>) -> BTreeSet<String> {
    let words: Vec<String> = file.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase).collect();
    let runs = (1..=WORDS_MAX).flat_map(|length| words.windows(length).map(<[String]>::concat));
    runs.filter(|run| known.contains(run)).collect()
}

fn listed(gpus: &BTreeSet<String>) -> String {
    gpus.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn checked(gpu: &str, files: &[&str]) -> Result<Vec<String>, String> {
        let files: Vec<PathBuf> = files.iter().map(|file| Path::new("tables").join(file)).collect();
        check(&files, &Gpu::find(gpu).unwrap()).map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn a_name_that_says_another_gpu_is_told_of() {
        assert_eq!(
            checked("h100-sxm", &["a100_llama2_7b_mlp.csv.gz"]).unwrap(),
            ["a100_llama2_7b_mlp.csv.gz is taken as of h100-sxm, as --gpu says, and its name says a100"]
        );
        for (gpu, file) in [
            ("rtx-4090", "RTX4090_llama31_8b_tp1_dense.csv"),
            ("rtx-4090", "rtx-4090.csv"),
            ("rtx-pro-6000", "RTXPRO6000_llama31_8b_profile_meta.yaml"),
            ("a100-sxm-40g", "network_a100_dgx_all_reduce.csv.gz"),
            ("v100-16g", "tensorrt_demo_bert_latency.csv"),
            // No whole word says one.
            ("t4", "xl4_a1000_sl40s.csv"),
            ("h200-sxm", "h100_and_h200.csv"),
        ] {
            assert_eq!(checked(gpu, &[file]), Ok(Vec::new()), "{gpu} {file}");
        }
    }

    #[test]
    fn files_of_two_gpus_are_no_card() {
        let kernels = ["h200_sxm_gemm.csv.gz", "nccl.csv", "h100_sxm_encoder.csv.gz"];
        assert_eq!(
            checked("h200-sxm", &kernels).unwrap_err(),
            "tables/h100_sxm_encoder.csv.gz: name: must be of the GPU that h200_sxm_gemm.csv.gz says (h200): a card is of \
             one, got h100"
        );
        assert!(checked("h200-sxm", &["h100_and_h200.csv", "h200.csv"]).is_ok());
    }
}
