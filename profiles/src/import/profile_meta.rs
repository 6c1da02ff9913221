//! What LLMServingSim's profiler writes beside its tables: of which model they are, and how they were measured. The
//! tables themselves say none of it.

use std::fs;
use std::path::Path;

use itertools::Itertools;
use serde::Deserialize;

use super::gpus::{Gpu, model_words};
use super::sheet::Sheet;
use crate::error::{Access, Invalid, ProfileError};
use crate::yaml::{in_line, read};

/// What a profile must be of. One of another release has other columns.
pub(super) struct MustBe {
    pub architecture: &'static str,
    pub model: &'static str,
    pub variant: &'static str,
    pub vllm_version: &'static str,
    pub iterations: u64,
    pub tensor_parallel: u32,
}

/// A profile's `meta.yaml`; it says more.
#[derive(Debug, Deserialize)]
struct Said {
    architecture: String,
    model: String,
    variant: String,
    vllm_version: String,
    measurement_iterations: u64,
    gpu: String,
    tp_degrees: Vec<u32>,
}

/// One such file.
pub(super) struct ProfileMeta {
    /// As errors call it.
    file: String,
    text: String,
    said: Said,
}

impl ProfileMeta {
    /// Whether a file is one: tables are of comma-separated values.
    pub fn is_one(path: &Path) -> bool {
        path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
    }

    pub fn open(path: &Path) -> Result<ProfileMeta, ProfileError> {
        let file = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|source| ProfileError::Io {
            path: file.clone(),
            access: Access::Read,
            source,
        })?;
        let said = read(&file, &text)?;
        Ok(ProfileMeta { file, text, said })
    }

    /// Refuses tables of another model, measured otherwise, or on another GPU.
    pub fn check(&self, must_be: &MustBe, gpu: &Gpu, sheets: &[Sheet]) -> Result<(), Invalid> {
        let said = &self.said;
        let iterations = [said.measurement_iterations, must_be.iterations].map(|count| count.to_string());
        for (field, must, got) in [
            ("architecture", must_be.architecture, &said.architecture),
            ("model", must_be.model, &said.model),
            ("variant", must_be.variant, &said.variant),
            ("vllm_version", must_be.vllm_version, &said.vllm_version),
            ("measurement_iterations", &iterations[1], &iterations[0]),
        ] {
            if got != must {
                return Err(self.invalid(field, must, got));
            }
        }
        let words = model_words(&gpu.sheet.name);
        let said_words: Vec<String> = said.gpu.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase).collect();
        if !words.iter().all(|word| said_words.contains(word)) {
            let must = format!("the GPU of --gpu {}, called {}", gpu.sheet.name, words.join(" "));
            return Err(self.invalid("gpu", &must, &said.gpu));
        }
        let degree = must_be.tensor_parallel;
        if !said.tp_degrees.contains(&degree) {
            let got = said.tp_degrees.iter().join(", ");
            return Err(self.invalid("tp_degrees", &format!("a list with {degree}"), &got));
        }
        check_degrees(degree, &said.tp_degrees, sheets)
    }

    fn invalid(&self, field: &str, must: &str, got: &str) -> Invalid {
        in_line(&self.text, Invalid::new(&self.file, field, must, got))
    }
}

/// Refuses tables of other degrees of parallelism than one: as their paths say, or the profile, whose degrees are none
/// where nobody says them.
pub(super) fn check_degrees(degree: u32, of_profile: &[u32], sheets: &[Sheet]) -> Result<(), Invalid> {
    for sheet in sheets {
        let named = degree_of(sheet.file());
        let is_it = match named {
            Some(named) => named == degree,
            None => of_profile.iter().all(|other| *other == degree),
        };
        if !is_it {
            let why = match of_profile {
                [] => "where it says any".to_owned(),
                degrees => format!("as the profile is of degrees {}", degrees.iter().join(", ")),
            };
            let must = format!("in a folder or of a name with tp{degree}, {why}");
            let got = named.map_or("none".to_owned(), |named| format!("tp{named}"));
            return Err(sheet.invalid("path", must, got));
        }
    }
    Ok(())
}

/// The cards that share a layer, as the profiler's folders say (`bf16/tp2/dense.csv`) and names made of them
/// (`tp2_dense.csv`).
fn degree_of(path: &str) -> Option<u32> {
    let words = path.split(['/', '\\', '_', '-', '.']);
    words.rev().find_map(|word| word.strip_prefix("tp")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_degree_is_in_a_folder_or_a_name() {
        assert_eq!(degree_of("/perf/RTX4090/bf16/tp2/dense.csv"), Some(2));
        assert_eq!(degree_of("/tp4/RTX4090_llama31_8b_tp1_attention.csv.gz"), Some(1));
        assert_eq!(degree_of("/tpu/dense.csv"), None);
    }
}
