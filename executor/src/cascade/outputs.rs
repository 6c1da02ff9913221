//! What a model makes of labelled items, measured once and saved (Tabi, section 5): softmax outputs, confidences, importance, latency.
//!
//! The file is safetensors, so that Python reads it too. `docs/tabi.md` has its format.

use std::collections::HashMap;
use std::path::Path;

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use tenantry_cascade::ensemble::likeliest;
use tenantry_cascade::{CascadeError, Spread, Temperature, softmax};

use super::config::Answer;
use super::items::Label;
use crate::error::ExecutorError;

/// Which version of the format is written and read.
const FORMAT: &str = "tenantry-outputs-1";

/// Raw outputs of a model on items, one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// What the head puts out, for each item.
    pub logits: Vec<Vec<f32>>,
    /// The attention that each token of each item received; empty lists where it was not asked for.
    pub importance: Vec<Vec<f32>>,
    /// Microseconds that each item took alone, without the tokenizer.
    pub service_us: Vec<f32>,
}

/// How a model's confidence is made to mean what it says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Calibration {
    /// Logits are divided by a temperature (Tabi, Eq. 3).
    Classes(Temperature),
    /// Errors are normal with this standard deviation, and an answer is right within the tolerance. A head of one number states no
    /// deviation of its own, so that it is as sure of one item as of another.
    Number {
        /// The errors' standard deviation.
        spread: Spread,
        /// How far off a right answer may be.
        tolerance: f64,
    },
}

/// What was done to the items before a model read them.
#[derive(Clone, Debug, PartialEq)]
pub struct Pruning {
    /// The degree (Tabi, Eq. 5).
    pub alpha: f64,
    /// The model whose attention said which words go.
    pub by: String,
    /// The share of all words that were left.
    pub words_left: f64,
}

/// What a model makes of items, calibrated.
#[derive(Clone, Debug, PartialEq)]
pub struct Outputs {
    /// The model's name.
    pub model: String,
    /// What it answers.
    pub answer: Answer,
    /// A hash of the items' file: outputs on other items do not go together with these.
    pub items_hash: String,
    /// Nothing where the model read the items whole.
    pub pruning: Option<Pruning>,
    /// What is right.
    pub labels: Vec<Label>,
    /// As it was measured.
    pub observed: Observed,
    /// Fitted to these items, or to others.
    pub calibration: Calibration,
    /// For each item the class's probabilities at the temperature, or the number.
    pub softmax: Vec<Vec<f32>>,
    /// The calibrated confidence in each answer, from 0 to 1.
    pub confidences: Vec<f32>,
}

impl Calibration {
    /// Fits to labelled outputs: the temperature, or for a regression the spread, of least negative log-likelihood.
    ///
    /// # Errors
    /// Labels that the head does not have, or no items.
    pub fn fit(logits: &[Vec<f32>], labels: &[Label], tolerance: f64) -> Result<Calibration, CascadeError> {
        let numbers = logits.iter().zip(labels).filter_map(|(logits, label)| match label {
            Label::Number(truth) => Some((f64::from(logits[0]), 1.0, f64::from(*truth))),
            Label::Class(_) => None,
        });
        if let Some(Label::Number(_)) = labels.first() {
            let spread = Spread::fit(numbers)?;
            return Ok(Calibration::Number { spread, tolerance });
        }
        let classes = logits.iter().zip(labels).filter_map(|(logits, label)| match label {
            Label::Class(class) => Some((logits.as_slice(), *class)),
            Label::Number(_) => None,
        });
        Ok(Calibration::Classes(Temperature::fit(classes)?))
    }

    /// The probabilities of the classes, or the number; and the confidence in the answer.
    pub fn apply(&self, logits: &[f32]) -> (Vec<f64>, f64) {
        match self {
            Calibration::Classes(temperature) => {
                let shares = softmax(logits, *temperature);
                let confidence = temperature.confidence(logits).confidence;
                (shares, confidence)
            }
            Calibration::Number { spread, tolerance } => {
                let numbers = logits.iter().map(|&number| f64::from(number)).collect();
                (numbers, spread.confidence(1.0, *tolerance))
            }
        }
    }

    /// Whether what [`apply`](Self::apply) gave, or an average of several models', answers as `label` says.
    pub fn is_right(&self, answer: &[f64], label: Label) -> bool {
        match (self, label) {
            (_, Label::Class(class)) => likeliest(answer) == class,
            (Calibration::Number { tolerance, .. }, Label::Number(truth)) => {
                (answer[0] - f64::from(truth)).abs() <= *tolerance
            }
            (Calibration::Classes(_), Label::Number(_)) => false,
        }
    }
}

impl Outputs {
    /// Outputs of the model called `model`, on items with these labels.
    ///
    /// # Errors
    /// Labels that are not as many as the outputs, or that the head does not have.
    pub fn new(
        model: &str,
        answer: &Answer,
        items_hash: &str,
        labels: &[Label],
        observed: Observed,
        calibration: Calibration,
    ) -> Result<Outputs, ExecutorError> {
        if labels.len() != observed.logits.len() {
            let must = format!("one for each of {} items", observed.logits.len());
            return Err(ExecutorError::input("labels", must, labels.len()));
        }
        let narrow = |numbers: Vec<f64>| numbers.into_iter().map(|number| number as f32).collect();
        let (softmax, confidences) = observed
            .logits
            .iter()
            .map(|logits| {
                let (shares, confidence) = calibration.apply(logits);
                (narrow(shares), confidence as f32)
            })
            .unzip();
        Ok(Outputs {
            model: model.into(),
            answer: answer.clone(),
            items_hash: items_hash.into(),
            pruning: None,
            labels: labels.to_vec(),
            observed,
            calibration,
            softmax,
            confidences,
        })
    }

    /// Whether the answer to each item is right.
    pub fn right(&self) -> Vec<bool> {
        let right =
            |(logits, label): (&Vec<f32>, &Label)| self.calibration.is_right(&self.calibration.apply(logits).0, *label);
        self.observed.logits.iter().zip(&self.labels).map(right).collect()
    }

    /// The share of right answers.
    pub fn accuracy(&self) -> f64 {
        let right = self.right();
        right.iter().filter(|right| **right).count() as f64 / right.len().max(1) as f64
    }

    /// What its file is called in a folder of outputs.
    pub fn file_name(&self) -> String {
        match &self.pruning {
            Some(pruning) => format!("{}.pruned-{}.safetensors", self.model, pruning.alpha),
            None => format!("{}.safetensors", self.model),
        }
    }

    /// Writes a file, whole or not at all.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), ExecutorError> {
        let observed = &self.observed;
        let (items, outputs) = (self.labels.len(), self.answer.outputs());
        let numbers =
            |rows: &[Vec<f32>]| -> Vec<u8> { rows.iter().flatten().flat_map(|number| number.to_le_bytes()).collect() };
        let column = |column: &[f32]| -> Vec<u8> { column.iter().flat_map(|number| number.to_le_bytes()).collect() };
        let labels: Vec<f32> = self.labels.iter().map(|label| label.number()).collect();
        let tokens: Vec<u8> = observed
            .importance
            .iter()
            .flat_map(|list| (list.len() as i64).to_le_bytes())
            .collect();
        let all_tokens = observed.importance.iter().map(Vec::len).sum();
        let tensors = [
            ("logits", Dtype::F32, vec![items, outputs], numbers(&observed.logits)),
            ("softmax", Dtype::F32, vec![items, outputs], numbers(&self.softmax)),
            ("confidence", Dtype::F32, vec![items], column(&self.confidences)),
            ("label", Dtype::F32, vec![items], column(&labels)),
            ("service_us", Dtype::F32, vec![items], column(&observed.service_us)),
            ("tokens", Dtype::I64, vec![items], tokens),
            (
                "importance",
                Dtype::F32,
                vec![all_tokens],
                numbers(&observed.importance),
            ),
        ];
        let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
            let view = TensorView::new(*dtype, shape.clone(), bytes).expect("as many numbers as the shape says");
            (*name, view)
        });
        let bytes = safetensors::serialize(views, Some(self.metadata())).expect("the views are whole");
        super::write_whole(path, &bytes)
    }

    fn metadata(&self) -> HashMap<String, String> {
        let mut metadata = HashMap::from([
            ("format".to_owned(), FORMAT.to_owned()),
            ("model".to_owned(), self.model.clone()),
            ("items".to_owned(), self.items_hash.clone()),
        ]);
        if let Answer::Class(names) = &self.answer {
            metadata.insert("classes".into(), serde_json::json!(names).to_string());
        }
        let mut numbers = match self.calibration {
            Calibration::Classes(temperature) => vec![("temperature", temperature.value())],
            Calibration::Number { spread, tolerance } => vec![("spread", spread.value()), ("tolerance", tolerance)],
        };
        if let Some(pruning) = &self.pruning {
            metadata.insert("pruned_by".into(), pruning.by.clone());
            numbers.extend([("alpha", pruning.alpha), ("words_left", pruning.words_left)]);
        }
        metadata.extend(
            numbers
                .into_iter()
                .map(|(name, number)| (name.into(), number.to_string())),
        );
        metadata
    }

    /// Reads what [`write`](Self::write) wrote.
    ///
    /// # Errors
    /// A file that cannot be read or is of another format; tensors that do not go together; a confidence outside [0, 1], or probabilities
    /// that are not 1 in all.
    pub fn read(path: &Path) -> Result<Outputs, ExecutorError> {
        let bytes = std::fs::read(path).map_err(|source| ExecutorError::File {
            path: path.to_path_buf(),
            source,
        })?;
        let file = OutputsFile::parse(path, &bytes)?;
        let answer = match file.metadata.get("classes") {
            Some(names) => Answer::Class(
                serde_json::from_str(names).map_err(|error| file.wrong("classes", "a list of names", &error))?,
            ),
            None => Answer::Number,
        };
        let calibration = match answer {
            Answer::Class(_) => Calibration::Classes(
                Temperature::new(file.number("temperature")?)
                    .map_err(|error| file.wrong("temperature", "one", &error))?,
            ),
            Answer::Number => Calibration::Number {
                spread: Spread::new(file.number("spread")?).map_err(|error| file.wrong("spread", "one", &error))?,
                tolerance: file.number("tolerance")?,
            },
        };
        let labels = file.floats("label", None)?;
        let items = labels.len();
        let label = |&label: &f32| match &answer {
            Answer::Number => Ok(Label::Number(label)),
            Answer::Class(names) => {
                let class = (label.fract() == 0.0 && label >= 0.0).then_some(label as usize);
                let class = class.filter(|&class| class < names.len());
                class
                    .map(Label::Class)
                    .ok_or_else(|| file.wrong("label", &format!("a class below {}", names.len()), &label))
            }
        };
        let rows = |name| -> Result<Vec<Vec<f32>>, ExecutorError> {
            let flat = file.floats(name, Some(items * answer.outputs()))?;
            Ok(flat.chunks(answer.outputs()).map(<[f32]>::to_vec).collect())
        };
        let softmax = rows("softmax")?;
        let confidences = file.floats("confidence", Some(items))?;
        if let Some(got) = confidences.iter().find(|confidence| !(0.0..=1.0).contains(*confidence)) {
            return Err(file.wrong("confidence", "from 0 to 1", got));
        }
        let apart = |shares: &&Vec<f32>| (shares.iter().sum::<f32>() - 1.0).abs() > 1e-3;
        if let (Answer::Class(_), Some(shares)) = (&answer, softmax.iter().find(apart)) {
            return Err(file.wrong("softmax", "1 in all", &shares.iter().sum::<f32>()));
        }
        Ok(Outputs {
            model: file.text("model")?.into(),
            items_hash: file.text("items")?.into(),
            pruning: match file.metadata.get("pruned_by") {
                Some(by) => Some(Pruning {
                    alpha: file.number("alpha")?,
                    by: by.clone(),
                    words_left: file.number("words_left")?,
                }),
                None => None,
            },
            labels: labels.iter().map(label).collect::<Result<_, _>>()?,
            observed: Observed {
                logits: rows("logits")?,
                importance: file.importance(items)?,
                service_us: file.floats("service_us", Some(items))?,
            },
            answer,
            calibration,
            softmax,
            confidences,
        })
    }
}

impl Label {
    fn number(self) -> f32 {
        match self {
            Label::Class(class) => class as f32,
            Label::Number(number) => number,
        }
    }
}

/// A file that is being read.
struct OutputsFile<'a> {
    path: &'a Path,
    tensors: SafeTensors<'a>,
    metadata: HashMap<String, String>,
}

impl<'a> OutputsFile<'a> {
    fn parse(path: &'a Path, bytes: &'a [u8]) -> Result<OutputsFile<'a>, ExecutorError> {
        let wrong = |what: &str, must: &str, got: String| ExecutorError::Checkpoint {
            path: path.to_path_buf(),
            tensor: what.into(),
            must: must.into(),
            got,
        };
        let header =
            |error: safetensors::SafeTensorError| wrong("header", "that of a safetensors file", error.to_string());
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(header)?;
        let metadata = metadata.metadata().clone().unwrap_or_default();
        if metadata.get("format").map(String::as_str) != Some(FORMAT) {
            let got = metadata.get("format").cloned().unwrap_or_else(|| "none".into());
            return Err(wrong("format", FORMAT, got));
        }
        Ok(OutputsFile {
            path,
            tensors: SafeTensors::deserialize(bytes).map_err(header)?,
            metadata,
        })
    }

    fn wrong(&self, what: &str, must: &str, got: &dyn std::fmt::Display) -> ExecutorError {
        ExecutorError::Checkpoint {
            path: self.path.to_path_buf(),
            tensor: what.into(),
            must: must.into(),
            got: got.to_string(),
        }
    }

    fn text(&self, name: &str) -> Result<&str, ExecutorError> {
        let text = self.metadata.get(name).map(String::as_str);
        text.ok_or_else(|| self.wrong(name, "among the metadata", &"none"))
    }

    fn number(&self, name: &str) -> Result<f64, ExecutorError> {
        let text = self.text(name)?;
        text.parse().map_err(|_| self.wrong(name, "a number", &text))
    }

    /// The bytes of a tensor of so many numbers, if it is said how many.
    fn bytes(&self, name: &str, dtype: Dtype, numbers: Option<usize>) -> Result<&'a [u8], ExecutorError> {
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

    fn floats(&self, name: &str, numbers: Option<usize>) -> Result<Vec<f32>, ExecutorError> {
        let (parts, _) = self.bytes(name, Dtype::F32, numbers)?.as_chunks::<4>();
        Ok(parts.iter().map(|part| f32::from_le_bytes(*part)).collect())
    }

    fn importance(&self, items: usize) -> Result<Vec<Vec<f32>>, ExecutorError> {
        let (parts, _) = self.bytes("tokens", Dtype::I64, Some(items))?.as_chunks::<8>();
        let tokens: Vec<usize> = parts
            .iter()
            .map(|part| i64::from_le_bytes(*part).max(0) as usize)
            .collect();
        let flat = self.floats("importance", Some(tokens.iter().sum()))?;
        let mut rest = flat.as_slice();
        let cut = |tokens: usize| {
            let (list, after) = rest.split_at(tokens);
            rest = after;
            list.to_vec()
        };
        Ok(tokens.into_iter().map(cut).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outputs(answer: Answer, labels: &[Label]) -> Outputs {
        let width = answer.outputs();
        let logits: Vec<Vec<f32>> = (0..labels.len())
            .map(|item| (0..width).map(|i| (item * i) as f32 - 0.5).collect())
            .collect();
        let observed = Observed {
            importance: (0..labels.len()).map(|tokens| vec![0.25; tokens]).collect(),
            service_us: vec![12.5; labels.len()],
            logits,
        };
        let calibration = Calibration::fit(&observed.logits, labels, 0.5).unwrap();
        Outputs::new("small", &answer, "abc", labels, observed, calibration).unwrap()
    }

    fn three_classes() -> Outputs {
        let names = Answer::Class(vec!["a".into(), "b".into(), "c".into()]);
        outputs(names, &[Label::Class(0), Label::Class(2), Label::Class(1)])
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("small.safetensors");
        let mut pruned = three_classes();
        pruned.pruning = Some(Pruning {
            alpha: 0.7,
            by: "smaller".into(),
            words_left: 0.858,
        });
        for outputs in [
            three_classes(),
            pruned,
            outputs(Answer::Number, &[Label::Number(0.5), Label::Number(-2.0)]),
        ] {
            outputs.write(&path).unwrap();
            assert_eq!(Outputs::read(&path).unwrap(), outputs);
        }
    }

    #[test]
    fn accuracy_is_of_the_likeliest_class() {
        // Logits rise with the class, but for the first item, whose are all alike.
        assert_eq!(three_classes().right(), [true, true, false]);
        assert!((three_classes().accuracy() - 2.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn labels_beyond_the_head_cannot_be_calibrated() {
        let error = Calibration::fit(&[vec![0.0, 1.0]], &[Label::Class(2)], 0.0).unwrap_err();
        assert_eq!(
            error.to_string(),
            "item 0: label: must be below the head's 2 classes, got 2"
        );
    }

    #[test]
    fn broken_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("small.safetensors");
        let read = |outputs: &Outputs| {
            outputs.write(&path).unwrap();
            Outputs::read(&path)
                .unwrap_err()
                .to_string()
                .split_once("small.safetensors: ")
                .unwrap()
                .1
                .to_owned()
        };
        let mut sure = three_classes();
        sure.confidences[1] = 1.5;
        assert_eq!(read(&sure), "confidence: must be from 0 to 1, got 1.5");
        let mut unsure = three_classes();
        unsure.softmax[0][0] += 0.5;
        assert!(read(&unsure).starts_with("softmax: must be 1 in all, got 1.5"));
        let mut mislabelled = three_classes();
        mislabelled.labels[2] = Label::Class(3);
        assert_eq!(read(&mislabelled), "label: must be a class below 3, got 3");
        let mut short = three_classes();
        short.observed.service_us.pop();
        // A file that says less than it must is not even written: the view panics, as whoever built it is at fault.
        assert!(std::panic::catch_unwind(|| short.write(&path)).is_err());

        std::fs::write(&path, b"words").unwrap();
        let error = Outputs::read(&path).unwrap_err().to_string();
        assert!(error.contains("header: must be that of a safetensors file"), "{error}");
    }
}
