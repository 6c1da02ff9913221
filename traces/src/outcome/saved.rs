//! What models made of labelled items, as `tenantry cascade profile` saves it (Tabi, section 5): softmax outputs,
//! confidences, importance, latency.
//!
//! A file is safetensors, so that Python reads it too, and holds one pass of one model; `docs/tabi.md` has its format.
//! A folder holds all passes over the same items: each model's over whole items, and over items that were pruned more
//! and more.

mod file;
mod folder;

use std::collections::HashMap;
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, TensorView};
use serde::{Deserialize, Serialize};

use file::File;

pub use folder::{ProfiledModel, ProfiledModels};

use crate::error::TraceError;
use crate::whole::header_in_order;

/// Which version of the format is written and read.
const FORMAT: &str = "tenantry-outputs-4";
/// What a folder's files end in.
const ENDING: &str = "safetensors";
/// How far probabilities that were rounded to 32 bits may be from what they must be.
const ROUNDING: f32 = 1e-3;

/// One pass of a model over items.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedOutputs {
    /// The model's name.
    pub model: String,
    /// Where its weights and its tokenizer were.
    pub folder: PathBuf,
    /// A hash of the model's files: what other weights make of the items is not here.
    pub model_hash: String,
    /// Where the labelled items were.
    pub items: PathBuf,
    /// A hash of that file: passes over other items do not go together with this one.
    pub items_hash: String,
    /// Such a hash of the items that the calibration was fitted to: these, or others.
    pub calibrated_on: String,
    /// The classes that it answers; nothing for a regression.
    pub classes: Option<Vec<String>>,
    /// How its confidence is to be read.
    pub calibration: SavedCalibration,
    /// Nothing where the model read the items whole.
    pub pruning: Option<SavedPruning>,
    /// What is right: the class's place among the classes, or the number.
    pub labels: Vec<f32>,
    /// What the head put out, for each item.
    pub logits: Vec<Vec<f32>>,
    /// For each item the class's probabilities, calibrated, or the number.
    pub softmax: Vec<Vec<f32>>,
    /// The calibrated confidence in each answer, from 0 to 1.
    pub confidences: Vec<f32>,
    /// Microseconds that each item took alone, without the tokenizer.
    pub service_us: Vec<f32>,
    /// The same where the attention was summed up as well, as it must be of a model whose attention prunes; empty where
    /// it was not asked for.
    pub attended_us: Vec<f32>,
    /// How many tokens of each item the model read, special ones too.
    pub input_tokens: Vec<u32>,
    /// The attention that each token of each item received; empty lists where it was not asked for.
    pub importance: Vec<Vec<f32>>,
}

/// How a confidence is made to mean what it says.
#[derive(Clone, Debug, PartialEq)]
pub enum SavedCalibration {
    /// Logits are divided by this (Tabi, Eq. 3).
    Temperature(f64),
    /// `softmax(W · ln softmax(logits) + b)` (Kull et al., NeurIPS 2019).
    Dirichlet(SavedDirichlet),
    /// A regression's errors are normal.
    Spread {
        /// Their standard deviation.
        spread: f64,
        /// How far off a right answer may be.
        tolerance: f64,
    },
}

/// A calibration of several classes at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedDirichlet {
    /// W: a row for each class.
    pub weights: Vec<Vec<f64>>,
    /// b, of each class.
    pub intercepts: Vec<f64>,
}

impl SavedCalibration {
    /// How far off a right number may be; nothing where classes are answered.
    pub fn tolerance(&self) -> Option<f64> {
        match self {
            SavedCalibration::Temperature(_) | SavedCalibration::Dirichlet(_) => None,
            SavedCalibration::Spread { tolerance, .. } => Some(*tolerance),
        }
    }
}

/// What was done to the items before a model read them.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedPruning {
    /// Who took words away, one model after the other; at least one.
    pub steps: Vec<PruneStep>,
    /// The share of all words that were left.
    pub words_left: f64,
}

/// Words that one model's attention took away from what it had read (Tabi, Eq. 5).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PruneStep {
    /// The model.
    pub by: String,
    /// The degree.
    pub alpha: f64,
}

impl Display for PruneStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.by, self.alpha)
    }
}

impl SavedOutputs {
    /// What a file of this pass holds.
    ///
    /// # Panics
    /// If the lists are not of the same items.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (items, outputs) = (self.labels.len(), self.outputs());
        let column = |column: &[f32]| -> Vec<u8> { column.iter().flat_map(|number| number.to_le_bytes()).collect() };
        let rows = |rows: &[Vec<f32>]| -> Vec<u8> { rows.iter().flat_map(|row| column(row)).collect() };
        let whole =
            |numbers: &mut dyn Iterator<Item = i64>| -> Vec<u8> { numbers.flat_map(i64::to_le_bytes).collect() };
        let tensors = [
            ("logits", Dtype::F32, vec![items, outputs], rows(&self.logits)),
            ("softmax", Dtype::F32, vec![items, outputs], rows(&self.softmax)),
            ("confidence", Dtype::F32, vec![items], column(&self.confidences)),
            ("label", Dtype::F32, vec![items], column(&self.labels)),
            ("service_us", Dtype::F32, vec![items], column(&self.service_us)),
            (
                "attended_us",
                Dtype::F32,
                vec![self.attended_us.len()],
                column(&self.attended_us),
            ),
            (
                "input_tokens",
                Dtype::I64,
                vec![items],
                whole(&mut self.input_tokens.iter().map(|&tokens| tokens.into())),
            ),
            (
                "tokens",
                Dtype::I64,
                vec![items],
                whole(&mut self.importance.iter().map(|list| list.len() as i64)),
            ),
            (
                "importance",
                Dtype::F32,
                vec![self.importance.iter().map(Vec::len).sum()],
                rows(&self.importance),
            ),
        ];
        let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
            let view = TensorView::new(*dtype, shape.clone(), bytes).expect("as many numbers as the shape says");
            (*name, view)
        });
        header_in_order(safetensors::serialize(views, Some(self.metadata())).expect("the views are whole"))
    }

    /// What its file is called in a folder.
    pub fn file_name(&self) -> String {
        let steps = self.steps().iter();
        let pruned: String = steps.map(|step| format!(".{}-{}", step.by, step.alpha)).collect();
        format!("{}{pruned}.{ENDING}", self.model)
    }

    /// Who took words away before the model read the items; nobody where it read them whole.
    pub fn steps(&self) -> &[PruneStep] {
        self.pruning.as_ref().map_or(&[], |pruning| &pruning.steps)
    }

    /// Numbers that the head puts out for an item.
    pub fn outputs(&self) -> usize {
        self.classes.as_ref().map_or(1, Vec::len)
    }

    /// What an item took alone on average, in microseconds.
    pub fn mean_service_us(&self) -> f64 {
        mean(&self.service_us)
    }

    fn metadata(&self) -> HashMap<String, String> {
        let mut metadata = vec![
            ("format", FORMAT.to_owned()),
            ("model", self.model.clone()),
            ("folder", self.folder.display().to_string()),
            ("model_files", self.model_hash.clone()),
            ("items", self.items_hash.clone()),
            ("calibrated_on", self.calibrated_on.clone()),
            ("items_file", self.items.display().to_string()),
        ];
        if let Some(names) = &self.classes {
            metadata.push(("classes", serde_json::json!(names).to_string()));
        }
        match &self.calibration {
            SavedCalibration::Temperature(temperature) => metadata.push(("temperature", temperature.to_string())),
            SavedCalibration::Dirichlet(dirichlet) => {
                metadata.push(("dirichlet", serde_json::json!(dirichlet).to_string()));
            }
            SavedCalibration::Spread { spread, tolerance } => {
                metadata.extend([("spread", spread.to_string()), ("tolerance", tolerance.to_string())]);
            }
        }
        if let Some(pruning) = &self.pruning {
            metadata.extend([
                ("pruned", serde_json::json!(pruning.steps).to_string()),
                ("words_left", pruning.words_left.to_string()),
            ]);
        }
        metadata.into_iter().map(|(name, text)| (name.to_owned(), text)).collect()
    }

    /// Reads a file that holds what [`to_bytes`](Self::to_bytes) gave.
    ///
    /// # Errors
    /// [`TraceError::Io`] where it cannot be read; [`TraceError::File`] where it is of another format, its tensors do
    /// not go together, a label is none of the classes, a confidence is outside [0, 1] or not the greatest probability,
    /// probabilities are not 1 in all, a time is not above 0, or a number is none.
    pub fn read(path: &Path) -> Result<SavedOutputs, TraceError> {
        let bytes = std::fs::read(path).map_err(|source| TraceError::unreadable(path, source))?;
        let file = File::parse(path, &bytes)?;
        let classes: Option<Vec<String>> = match file.metadata.get("classes") {
            Some(names) => {
                Some(serde_json::from_str(names).map_err(|error| file.wrong("classes", "a list of names", &error))?)
            }
            None => None,
        };
        let calibration = match &classes {
            Some(classes) if file.metadata.contains_key("dirichlet") => {
                SavedCalibration::Dirichlet(file.dirichlet(classes.len())?)
            }
            Some(_) => SavedCalibration::Temperature(file.above_0("temperature")?),
            None => SavedCalibration::Spread {
                spread: file.above_0("spread")?,
                tolerance: file.above_0("tolerance")?,
            },
        };
        let labels = file.floats("label", None)?;
        let (items, outputs) = (labels.len(), classes.as_ref().map_or(1, Vec::len));
        if items == 0 {
            return Err(file.wrong("label", "those of items", &"none"));
        }
        match classes {
            Some(_) => file.all("label", &labels, &format!("a class below {outputs}"), |label| {
                label.fract() == 0.0 && (0.0..outputs as f32).contains(&label)
            })?,
            None => file.all("label", &labels, "a number", f32::is_finite)?,
        }
        let rows = |name| -> Result<Vec<Vec<f32>>, TraceError> {
            let flat = file.floats(name, Some(items * outputs))?;
            Ok(flat.chunks(outputs).map(<[f32]>::to_vec).collect())
        };
        let [logits, softmax] = ["logits", "softmax"].map(rows);
        let (logits, softmax) = (logits?, softmax?);
        let confidences = file.floats("confidence", Some(items))?;
        file.all("confidence", &confidences, "from 0 to 1", |share| {
            (0.0..=1.0).contains(&share)
        })?;
        for (item, logits) in logits.iter().enumerate() {
            file.all(&format!("logits[{item}]"), logits, "a number", f32::is_finite)?;
        }
        for (item, (shares, confidence)) in softmax.iter().zip(&confidences).enumerate() {
            let place = format!("softmax[{item}]");
            if classes.is_none() {
                file.all(&place, shares, "a number", f32::is_finite)?;
                continue;
            }
            file.all(&place, shares, "from 0 to 1", |share| {
                (0.0..=1.0 + ROUNDING).contains(&share)
            })?;
            let sum: f32 = shares.iter().sum();
            if (sum - 1.0).abs() > ROUNDING {
                return Err(file.wrong(&place, "1 in all", &sum));
            }
            let greatest = shares.iter().copied().fold(0.0, f32::max);
            if (greatest - confidence).abs() > ROUNDING {
                let must = format!("the greatest of its softmax, {greatest}");
                return Err(file.wrong(&format!("confidence[{item}]"), &must, confidence));
            }
        }
        let times = |name, numbers: Option<usize>| -> Result<Vec<f32>, TraceError> {
            let times = file.floats(name, numbers)?;
            let is_time = |us: f32| us > 0.0 && us.is_finite();
            file.all(name, &times, "above 0", is_time)?;
            Ok(times)
        };
        Ok(SavedOutputs {
            model: file.text("model")?.into(),
            folder: file.text("folder")?.into(),
            model_hash: file.text("model_files")?.into(),
            items: file.text("items_file")?.into(),
            items_hash: file.text("items")?.into(),
            calibrated_on: file.text("calibrated_on")?.into(),
            pruning: file.pruning()?,
            logits,
            service_us: times("service_us", Some(items))?,
            attended_us: match times("attended_us", None)? {
                attended_us if attended_us.is_empty() || attended_us.len() == items => attended_us,
                other => return Err(file.wrong("attended_us", &format!("none or {items} numbers"), &other.len())),
            },
            input_tokens: file
                .integers("input_tokens", items)?
                .into_iter()
                .enumerate()
                .map(|(item, tokens)| {
                    let fits = u32::try_from(tokens).ok().filter(|&tokens| tokens > 0);
                    fits.ok_or_else(|| file.wrong(&format!("input_tokens[{item}]"), "at least 1", &tokens))
                })
                .collect::<Result<_, _>>()?,
            importance: file.importance(items)?,
            classes,
            calibration,
            labels,
            softmax,
            confidences,
        })
    }
}

fn mean(service_us: &[f32]) -> f64 {
    let sum: f64 = service_us.iter().copied().map(f64::from).sum();
    sum / service_us.len() as f64
}

#[cfg(test)]
mod tests;
