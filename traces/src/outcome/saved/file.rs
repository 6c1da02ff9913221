//! A file of saved passes that is being read, and all that can be wrong with it.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::Path;

use safetensors::SafeTensors;
use safetensors::tensor::Dtype;

use super::{FORMAT, PruneStep, SavedDirichlet, SavedPruning};
use crate::error::TraceError;

/// A file that is being read.
pub(super) struct File<'a> {
    path: &'a Path,
    tensors: SafeTensors<'a>,
    pub metadata: HashMap<String, String>,
}

impl<'a> File<'a> {
    pub fn parse(path: &'a Path, bytes: &'a [u8]) -> Result<File<'a>, TraceError> {
        let header = |error: safetensors::SafeTensorError| {
            TraceError::file(path, format!("header: must be that of a safetensors file, got {error}"))
        };
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(header)?;
        let file = File {
            path,
            metadata: metadata.metadata().clone().unwrap_or_default(),
            tensors: SafeTensors::deserialize(bytes).map_err(header)?,
        };
        match file.metadata.get("format").map_or("none", String::as_str) {
            FORMAT => Ok(file),
            other => {
                let hint = "; `tenantry cascade profile` writes it anew";
                Err(file.wrong("format", FORMAT, &format!("{other}{hint}")))
            }
        }
    }

    pub fn wrong(&self, what: &str, must: &str, got: &dyn Display) -> TraceError {
        TraceError::file(self.path, format!("{what}: must be {must}, got {got}"))
    }

    /// The first of these numbers that is not as all must be is named with its place.
    pub fn all(
        &self,
        name: &str,
        numbers: &[f32],
        must: &str,
        is_sound: impl Fn(f32) -> bool,
    ) -> Result<(), TraceError> {
        match numbers.iter().position(|&number| !is_sound(number)) {
            Some(place) => Err(self.wrong(&format!("{name}[{place}]"), must, &numbers[place])),
            None => Ok(()),
        }
    }

    pub fn text(&self, name: &str) -> Result<&str, TraceError> {
        let text = self.metadata.get(name).map(String::as_str);
        text.ok_or_else(|| self.wrong(name, "among the metadata", &"none"))
    }

    pub fn number(&self, name: &str) -> Result<f64, TraceError> {
        let text = self.text(name)?;
        let number = text.parse().ok().filter(|number: &f64| number.is_finite());
        number.ok_or_else(|| self.wrong(name, "a number", &text))
    }

    pub fn above_0(&self, name: &str) -> Result<f64, TraceError> {
        match self.number(name)? {
            number if number > 0.0 => Ok(number),
            number => Err(self.wrong(name, "above 0", &number)),
        }
    }

    pub fn dirichlet(&self, classes: usize) -> Result<SavedDirichlet, TraceError> {
        let must = format!("weights of {classes} by {classes} classes and as many intercepts, all finite");
        let saved: SavedDirichlet = serde_json::from_str(&self.metadata["dirichlet"])
            .map_err(|error| self.wrong("dirichlet", &must, &error))?;
        let is_sound = |row: &Vec<f64>| row.len() == classes && row.iter().all(|number| number.is_finite());
        let sound = saved.weights.len() == classes && saved.weights.iter().chain([&saved.intercepts]).all(is_sound);
        match sound {
            true => Ok(saved),
            false => Err(self.wrong("dirichlet", &must, &self.metadata["dirichlet"])),
        }
    }

    pub fn pruning(&self) -> Result<Option<SavedPruning>, TraceError> {
        let Some(text) = self.metadata.get("pruned") else {
            return Ok(None);
        };
        let must = "a list of models and degrees";
        let steps: Vec<PruneStep> = serde_json::from_str(text).map_err(|error| self.wrong("pruned", must, &error))?;
        match steps.iter().find(|step| !(step.alpha > 0.0 && step.alpha.is_finite())) {
            Some(step) => Err(self.wrong("pruned", "of degrees above 0", &step.alpha)),
            None if steps.is_empty() => Err(self.wrong("pruned", must, &"none")),
            None => Ok(Some(SavedPruning {
                steps,
                words_left: self.number("words_left")?,
            })),
        }
    }

    /// The bytes of a tensor of so many numbers, if it is said how many.
    pub fn bytes(&self, name: &str, dtype: Dtype, numbers: Option<usize>) -> Result<&'a [u8], TraceError> {
        let tensor = self.tensors.tensor(name).map_err(|_| self.wrong(name, "a tensor", &"no such tensor"))?;
        let length: usize = tensor.shape().iter().product();
        if tensor.dtype() != dtype {
            return Err(self.wrong(name, &format!("of {dtype:?}"), &format!("{:?}", tensor.dtype())));
        }
        match numbers.filter(|&numbers| numbers != length) {
            Some(numbers) => Err(self.wrong(name, &format!("{numbers} numbers"), &length)),
            None => Ok(tensor.data()),
        }
    }

    pub fn floats(&self, name: &str, numbers: Option<usize>) -> Result<Vec<f32>, TraceError> {
        let (parts, _) = self.bytes(name, Dtype::F32, numbers)?.as_chunks::<4>();
        Ok(parts.iter().map(|part| f32::from_le_bytes(*part)).collect())
    }

    pub fn integers(&self, name: &str, numbers: usize) -> Result<Vec<i64>, TraceError> {
        let (parts, _) = self.bytes(name, Dtype::I64, Some(numbers))?.as_chunks::<8>();
        Ok(parts.iter().map(|part| i64::from_le_bytes(*part)).collect())
    }

    pub fn importance(&self, items: usize) -> Result<Vec<Vec<f32>>, TraceError> {
        let flat = self.floats("importance", None)?;
        let mut rest = flat.as_slice();
        let mut lists = Vec::with_capacity(items);
        for (item, tokens) in self.integers("tokens", items)?.into_iter().enumerate() {
            let count = usize::try_from(tokens).ok().filter(|&count| count <= rest.len());
            let Some(count) = count else {
                let must = format!("from 0 to the {} numbers of `importance` that are left", rest.len());
                return Err(self.wrong(&format!("tokens[{item}]"), &must, &tokens));
            };
            let (list, after) = rest.split_at(count);
            let is_sum = |attention: f32| attention >= 0.0 && attention.is_finite();
            self.all(&format!("importance[{item}]"), list, "at least 0", is_sum)?;
            lists.push(list.to_vec());
            rest = after;
        }
        match rest.len() {
            0 => Ok(lists),
            more => Err(self.wrong("importance", "of the items' `tokens`", &format!("{more} numbers more"))),
        }
    }
}
