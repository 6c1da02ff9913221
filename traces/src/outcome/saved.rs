//! What models made of labelled items, as `tenantry cascade profile` saves it (Tabi, section 5): softmax outputs, confidences, importance,
//! latency.
//!
//! A file is safetensors, so that Python reads it too, and holds one pass of one model; `docs/tabi.md` has its format. A folder holds all
//! passes over the same items: each model's over whole items, and over items that were pruned more and more.

use std::collections::HashMap;
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde::{Deserialize, Serialize};

use crate::error::TraceError;

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
    /// The same where the attention was summed up as well, as it must be of a model whose attention prunes; empty where it was not asked for.
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
        safetensors::serialize(views, Some(self.metadata())).expect("the views are whole")
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
        metadata
            .into_iter()
            .map(|(name, text)| (name.to_owned(), text))
            .collect()
    }

    /// Reads a file that holds what [`to_bytes`](Self::to_bytes) gave.
    ///
    /// # Errors
    /// [`TraceError::Io`] where it cannot be read; [`TraceError::File`] where it is of another format, its tensors do not go together, a
    /// label is none of the classes, a confidence is outside [0, 1] or not the greatest probability, probabilities are not 1 in all, a time is
    /// not above 0, or a number is none.
    pub fn read(path: &Path) -> Result<SavedOutputs, TraceError> {
        let bytes = std::fs::read(path).map_err(|source| TraceError::io(path, source))?;
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

/// A file that is being read.
struct File<'a> {
    path: &'a Path,
    tensors: SafeTensors<'a>,
    metadata: HashMap<String, String>,
}

impl<'a> File<'a> {
    fn parse(path: &'a Path, bytes: &'a [u8]) -> Result<File<'a>, TraceError> {
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

    fn wrong(&self, what: &str, must: &str, got: &dyn Display) -> TraceError {
        TraceError::file(self.path, format!("{what}: must be {must}, got {got}"))
    }

    /// The first of these numbers that is not as all must be is named with its place.
    fn all(&self, name: &str, numbers: &[f32], must: &str, is_sound: impl Fn(f32) -> bool) -> Result<(), TraceError> {
        match numbers.iter().position(|&number| !is_sound(number)) {
            Some(place) => Err(self.wrong(&format!("{name}[{place}]"), must, &numbers[place])),
            None => Ok(()),
        }
    }

    fn text(&self, name: &str) -> Result<&str, TraceError> {
        let text = self.metadata.get(name).map(String::as_str);
        text.ok_or_else(|| self.wrong(name, "among the metadata", &"none"))
    }

    fn number(&self, name: &str) -> Result<f64, TraceError> {
        let text = self.text(name)?;
        let number = text.parse().ok().filter(|number: &f64| number.is_finite());
        number.ok_or_else(|| self.wrong(name, "a number", &text))
    }

    fn above_0(&self, name: &str) -> Result<f64, TraceError> {
        match self.number(name)? {
            number if number > 0.0 => Ok(number),
            number => Err(self.wrong(name, "above 0", &number)),
        }
    }

    fn dirichlet(&self, classes: usize) -> Result<SavedDirichlet, TraceError> {
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

    fn pruning(&self) -> Result<Option<SavedPruning>, TraceError> {
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
    fn bytes(&self, name: &str, dtype: Dtype, numbers: Option<usize>) -> Result<&'a [u8], TraceError> {
        let tensor = self
            .tensors
            .tensor(name)
            .map_err(|_| self.wrong(name, "a tensor", &"no such tensor"))?;
        let length: usize = tensor.shape().iter().product();
        if tensor.dtype() != dtype {
            return Err(self.wrong(name, &format!("of {dtype:?}"), &format!("{:?}", tensor.dtype())));
        }
        match numbers.filter(|&numbers| numbers != length) {
            Some(numbers) => Err(self.wrong(name, &format!("{numbers} numbers"), &length)),
            None => Ok(tensor.data()),
        }
    }

    fn floats(&self, name: &str, numbers: Option<usize>) -> Result<Vec<f32>, TraceError> {
        let (parts, _) = self.bytes(name, Dtype::F32, numbers)?.as_chunks::<4>();
        Ok(parts.iter().map(|part| f32::from_le_bytes(*part)).collect())
    }

    fn integers(&self, name: &str, numbers: usize) -> Result<Vec<i64>, TraceError> {
        let (parts, _) = self.bytes(name, Dtype::I64, Some(numbers))?.as_chunks::<8>();
        Ok(parts.iter().map(|part| i64::from_le_bytes(*part)).collect())
    }

    fn importance(&self, items: usize) -> Result<Vec<Vec<f32>>, TraceError> {
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

/// What a folder of saved passes holds: models on the same items.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfiledModels {
    /// Each model's, with at least one.
    pub models: Vec<ProfiledModel>,
}

/// One model's passes.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfiledModel {
    /// Over whole items.
    pub whole: SavedOutputs,
    /// Over pruned ones: by how many models pruned them, and by rising degree.
    pub pruned: Vec<SavedOutputs>,
}

impl ProfiledModels {
    /// Reads all files of a folder.
    ///
    /// # Errors
    /// As [`SavedOutputs::read`]; a folder without such files, or whose files are not of the same items and classes, have a model twice or
    /// with several weights, or lack its whole items.
    pub fn read(folder: &Path) -> Result<ProfiledModels, TraceError> {
        let io = |source| TraceError::io(folder, source);
        let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
            .map_err(io)?
            .map(|entry| Ok(entry?.path()))
            .collect::<std::io::Result<_>>()
            .map_err(io)?;
        paths.retain(|path| path.extension().is_some_and(|ending| ending == ENDING));
        paths.sort();
        let passes = paths
            .iter()
            .map(|path| SavedOutputs::read(path))
            .collect::<Result<Vec<_>, _>>()?;
        let wrong = |must: &str, got: String| TraceError::file(folder, format!("must {must}, got {got}"));
        let Some(first) = passes.first().cloned() else {
            return Err(wrong("have the files of `tenantry cascade profile`", "none".into()));
        };
        let differs =
            |other: &&SavedOutputs| (&other.items_hash, &other.classes) != (&first.items_hash, &first.classes);
        if let Some(other) = passes.iter().find(differs) {
            let got = format!("{} beside {}", other.model, first.model);
            return Err(wrong("be about the same items and classes throughout", got));
        }
        let (whole, mut pruned): (Vec<_>, Vec<_>) = passes.into_iter().partition(|pass| pass.pruning.is_none());
        let mut models: Vec<ProfiledModel> = Vec::new();
        for whole in whole {
            if models.iter().any(|other| other.whole.model == whole.model) {
                let must = "have each model's whole items once";
                return Err(wrong(must, format!("{} twice", whole.model)));
            }
            let mut of_model: Vec<SavedOutputs> = pruned.extract_if(.., |pass| pass.model == whole.model).collect();
            if let Some(other) = of_model.iter().find(|pass| pass.model_hash != whole.model_hash) {
                let must = format!("be of the same files of {} throughout", whole.model);
                return Err(wrong(&must, format!("others in {}", other.file_name())));
            }
            of_model.sort_by(|a, b| in_order(a.steps(), b.steps()));
            models.push(ProfiledModel {
                whole,
                pruned: of_model,
            });
        }
        match pruned.first() {
            Some(other) => Err(wrong(
                "have each model's whole items",
                format!("only pruned ones of {}", other.model),
            )),
            None => Ok(ProfiledModels { models }),
        }
    }

    /// A model by its name.
    pub fn find(&self, name: &str) -> Option<&ProfiledModel> {
        self.models.iter().find(|model| model.whole.model == name)
    }

    /// The models' names.
    pub fn names(&self) -> Vec<&str> {
        self.models.iter().map(|model| model.whole.model.as_str()).collect()
    }

    /// What is right, item by item, as [`SavedOutputs::labels`].
    pub fn labels(&self) -> &[f32] {
        &self.models[0].whole.labels
    }
}

impl ProfiledModel {
    /// The pass over items that were pruned so; over whole ones where nobody pruned them.
    pub fn after(&self, steps: &[PruneStep]) -> Option<&SavedOutputs> {
        std::iter::once(&self.whole)
            .chain(&self.pruned)
            .find(|pass| pass.steps() == steps)
    }

    /// How the items were pruned that it has read, other than not at all.
    pub fn prunings(&self) -> impl Iterator<Item = &[PruneStep]> {
        self.pruned.iter().map(SavedOutputs::steps)
    }
}

fn in_order(a: &[PruneStep], b: &[PruneStep]) -> std::cmp::Ordering {
    let each = || a.iter().zip(b);
    let by_name = each().map(|(a, b)| a.by.cmp(&b.by));
    let by_degree = each().map(|(a, b)| a.alpha.total_cmp(&b.alpha));
    let differ = |order: &std::cmp::Ordering| order.is_ne();
    let first = by_name.chain(by_degree).find(differ);
    a.len().cmp(&b.len()).then(first.unwrap_or(std::cmp::Ordering::Equal))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(classes: Option<Vec<String>>, labels: &[f32]) -> SavedOutputs {
        let items = labels.len();
        SavedOutputs {
            model: "small".into(),
            folder: "out/small".into(),
            model_hash: "def".into(),
            items: "out/items.csv".into(),
            items_hash: "abc".into(),
            calibrated_on: "abc".into(),
            calibration: match classes {
                Some(_) => SavedCalibration::Temperature(1.25),
                None => SavedCalibration::Spread {
                    spread: 0.5,
                    tolerance: 0.25,
                },
            },
            pruning: None,
            labels: labels.to_vec(),
            logits: vec![classes.as_ref().map_or(vec![0.5], |names| vec![0.5; names.len()]); items],
            softmax: vec![
                classes
                    .as_ref()
                    .map_or(vec![0.5], |names| vec![1.0 / names.len() as f32; names.len()]);
                items
            ],
            confidences: vec![classes.as_ref().map_or(0.75, |names| 1.0 / names.len() as f32); items],
            service_us: vec![12.5; items],
            attended_us: vec![14.5; items],
            input_tokens: (0..items as u32).map(|item| 3 + item).collect(),
            importance: (0..items).map(|tokens| vec![0.25; tokens]).collect(),
            classes,
        }
    }

    fn three_classes() -> SavedOutputs {
        pass(Some(vec!["a".into(), "b".into(), "c".into()]), &[0.0, 2.0, 1.0])
    }

    fn step(by: &str, alpha: f64) -> PruneStep {
        PruneStep { by: by.into(), alpha }
    }

    fn pruned(steps: &[PruneStep]) -> SavedOutputs {
        SavedOutputs {
            pruning: Some(SavedPruning {
                steps: steps.to_vec(),
                words_left: 0.858,
            }),
            attended_us: Vec::new(),
            ..three_classes()
        }
    }

    fn write(folder: &Path, pass: &SavedOutputs) -> PathBuf {
        let path = folder.join(pass.file_name());
        std::fs::write(&path, pass.to_bytes()).unwrap();
        path
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let twice = [step("smaller", 0.7), step("small", 0.5)];
        for outputs in [
            three_classes(),
            pruned(&twice[..1]),
            pruned(&twice),
            pass(None, &[0.5, -2.0]),
        ] {
            let path = write(folder.path(), &outputs);
            assert_eq!(SavedOutputs::read(&path).unwrap(), outputs);
        }
    }

    #[test]
    fn broken_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let message = |error: TraceError| {
            let text = error.to_string();
            text.split_once("small.safetensors: ").unwrap().1.to_owned()
        };
        let read = |change: &dyn Fn(&mut SavedOutputs)| {
            let mut broken = three_classes();
            change(&mut broken);
            message(SavedOutputs::read(&write(folder.path(), &broken)).unwrap_err())
        };
        assert_eq!(
            read(&|outputs| outputs.confidences[1] = 1.5),
            "confidence[1]: must be from 0 to 1, got 1.5"
        );
        assert_eq!(
            read(&|outputs| outputs.confidences[1] = f32::NAN),
            "confidence[1]: must be from 0 to 1, got NaN"
        );
        assert_eq!(
            read(&|outputs| {
                outputs.softmax[1] = vec![0.25, 0.5, 0.25];
                outputs.confidences[1] = 0.75;
            }),
            "confidence[1]: must be the greatest of its softmax, 0.5, got 0.75"
        );
        assert!(read(&|outputs| outputs.softmax[0][0] += 0.5).starts_with("softmax[0]: must be 1 in all, got 1.5"));
        assert_eq!(
            read(&|outputs| outputs.softmax[0] = vec![-0.5, 1.0, 0.5]),
            "softmax[0][0]: must be from 0 to 1, got -0.5"
        );
        assert_eq!(
            read(&|outputs| outputs.labels[2] = 3.0),
            "label[2]: must be a class below 3, got 3"
        );
        assert_eq!(
            read(&|outputs| outputs.logits[2][1] = f32::NAN),
            "logits[2][1]: must be a number, got NaN"
        );
        assert_eq!(
            read(&|outputs| outputs.service_us[1] = -4.0),
            "service_us[1]: must be above 0, got -4"
        );
        assert_eq!(
            read(&|outputs| outputs.attended_us[2] = f32::INFINITY),
            "attended_us[2]: must be above 0, got inf"
        );
        assert_eq!(
            read(&|outputs| outputs.importance[2][1] = f32::NAN),
            "importance[2][1]: must be at least 0, got NaN"
        );
        assert_eq!(
            read(&|outputs| outputs.calibration = SavedCalibration::Temperature(0.0)),
            "temperature: must be above 0, got 0"
        );
        let by_class = |weights: Vec<Vec<f64>>| {
            read(&move |outputs| {
                outputs.calibration = SavedCalibration::Dirichlet(SavedDirichlet {
                    weights: weights.clone(),
                    intercepts: vec![0.0; 3],
                });
            })
        };
        for weights in [vec![vec![1.0; 3]; 2], vec![vec![1.0; 3], vec![1.0; 2], vec![1.0; 3]]] {
            let told = by_class(weights);
            let must = "dirichlet: must be weights of 3 by 3 classes and as many intercepts, all finite, got ";
            assert!(told.starts_with(must), "{told}");
        }
        assert_eq!(
            read(&|outputs| outputs.attended_us.truncate(1)),
            "attended_us: must be none or 3 numbers, got 1"
        );
        assert_eq!(
            read(&|outputs| outputs.input_tokens[0] = 0),
            "input_tokens[0]: must be at least 1, got 0"
        );
        let mut short = three_classes();
        short.service_us.pop();
        // A file that says less than it must is not even written: the view panics, as whoever built it is at fault.
        assert!(std::panic::catch_unwind(|| short.to_bytes()).is_err());

        let path = folder.path().join("small.safetensors");
        std::fs::write(&path, b"words").unwrap();
        let error = message(SavedOutputs::read(&path).unwrap_err());
        assert!(
            error.starts_with("header: must be that of a safetensors file"),
            "{error}"
        );
        let mut older = three_classes().to_bytes();
        let windows = || older.windows(FORMAT.len());
        let at = windows().position(|window| window == FORMAT.as_bytes()).unwrap();
        older[at + FORMAT.len() - 1] = b'1';
        std::fs::write(&path, older).unwrap();
        assert_eq!(
            message(SavedOutputs::read(&path).unwrap_err()),
            "format: must be tenantry-outputs-4, got tenantry-outputs-1; `tenantry cascade profile` writes it anew"
        );
    }

    #[test]
    fn a_folder_is_read_by_model_and_degree() {
        let folder = tempfile::tempdir().unwrap();
        let read = || ProfiledModels::read(folder.path());
        assert!(read().unwrap_err().to_string().ends_with("cascade profile`, got none"));
        let [low, high, middle] = [step("smaller", 0.5), step("smaller", 0.7), step("middle", 0.3)];
        let ways = [vec![low.clone(), middle], vec![high.clone()], vec![low]];
        for steps in &ways {
            write(folder.path(), &pruned(steps));
        }
        let error = read().unwrap_err().to_string();
        assert!(
            error.ends_with("must have each model's whole items, got only pruned ones of small"),
            "{error}"
        );
        write(folder.path(), &three_classes());
        let models = read().unwrap();
        let small = models.find("small").unwrap();
        assert_eq!((models.names(), models.labels()), (vec!["small"], &[0.0, 2.0, 1.0][..]));
        let [twice, high, low] = &ways;
        assert_eq!(small.prunings().collect::<Vec<_>>(), [low, high, twice]);
        for steps in &ways {
            assert_eq!(small.after(steps), Some(&pruned(steps)));
        }
        assert_eq!(small.after(&[]), Some(&small.whole));
        assert_eq!(small.after(&[step("smaller", 0.6)]), None);
        assert_eq!(small.after(&[step("other", 0.5)]), None);

        let trained_on = SavedOutputs {
            model_hash: "other".into(),
            ..pruned(low)
        };
        let path = write(folder.path(), &trained_on);
        let error = read().unwrap_err().to_string();
        assert!(
            error.ends_with(
                "must be of the same files of small throughout, got others in small.smaller-0.5.safetensors"
            ),
            "{error}"
        );
        std::fs::remove_file(path).unwrap();

        let other = SavedOutputs {
            model: "large".into(),
            items_hash: "other".into(),
            ..three_classes()
        };
        write(folder.path(), &other);
        let error = read().unwrap_err().to_string();
        assert!(
            error.ends_with("same items and classes throughout, got small beside large"),
            "{error}"
        );
    }
}
