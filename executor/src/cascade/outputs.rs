//! What a model makes of labelled items, measured once and saved (Tabi, section 5): softmax outputs, confidences,
//! importance, latency.
//!
//! [`SavedOutputs`] is how it lies on the disk, where no libtorch is needed to read it.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use tenantry_cascade::ensemble::likeliest;
use tenantry_cascade::{CascadeError, Confident, Dirichlet, Spread, Temperature, softmax};
use tenantry_traces::outcome::{PruneStep, SavedCalibration, SavedDirichlet, SavedOutputs, SavedPruning};

use super::config::Answer;
use super::items::Label;
use crate::error::ExecutorError;

/// Raw outputs of a model on items, one after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// What the head puts out, for each item.
    pub logits: Vec<Vec<f32>>,
    /// The attention that each token of each item received; empty lists where it was not asked for.
    pub importance: Vec<Vec<f32>>,
    /// Microseconds that each item took alone, without the tokenizer.
    pub service_us: Vec<f32>,
    /// The same where the attention was summed up as well; empty where it was not asked for.
    pub attended_us: Vec<f32>,
    /// How many tokens of each item the model read, special ones too.
    pub input_tokens: Vec<u32>,
}

/// How a model's confidence is made to mean what it says.
#[derive(Clone, Debug, PartialEq)]
pub enum Calibration {
    /// Logits are divided by a temperature (Tabi, Eq. 3).
    Classes(Temperature),
    /// Class by class, from the probabilities of all (Tabi, section 4.1, its reference 42). It may change the answer.
    Dirichlet(Dirichlet),
    /// Errors are normal with this standard deviation, and an answer is right within the tolerance. A head of one
    /// number states no deviation of its own, so that it is as sure of one item as of another.
    Number {
        /// The errors' standard deviation.
        spread: Spread,
        /// How far off a right answer may be.
        tolerance: f64,
    },
}

/// Which calibration is fitted where classes are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CalibrationMethod {
    /// [`Calibration::Classes`].
    #[default]
    Temperature,
    /// [`Calibration::Dirichlet`].
    Dirichlet,
}

/// What made outputs, of what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The model's folder.
    pub model: PathBuf,
    /// [`TextModel::hash`](super::TextModel::hash): outputs of other weights say nothing about these.
    pub model_hash: String,
    /// The items' file.
    pub items: PathBuf,
    /// A hash of it: outputs on other items do not go together with these.
    pub items_hash: String,
    /// A hash of the items that the calibration was fitted to: these, or others.
    pub calibrated_on: String,
}

/// What a model makes of items, calibrated.
#[derive(Clone, Debug, PartialEq)]
pub struct Outputs {
    /// The model's name.
    pub model: String,
    /// What it answers.
    pub answer: Answer,
    /// What it is of.
    pub source: Source,
    /// Nothing where the model read the items whole.
    pub pruning: Option<SavedPruning>,
    /// What is right.
    pub labels: Vec<Label>,
    /// As it was measured.
    pub observed: Observed,
    /// Fitted to these items, or to others.
    pub calibration: Calibration,
    /// For each item the classes' probabilities, calibrated, or the number.
    pub softmax: Vec<Vec<f32>>,
    /// The calibrated confidence in each answer, from 0 to 1.
    pub confidences: Vec<f32>,
}

impl Calibration {
    /// What a head puts out, as it is: nothing was fitted yet.
    pub(crate) fn unfitted(answer: &Answer, tolerance: f64) -> Result<Calibration, CascadeError> {
        Ok(match answer {
            Answer::Class(_) => Calibration::Classes(Temperature::ONE),
            Answer::Number => Calibration::Number {
                spread: Spread::new(1.0)?,
                tolerance,
            },
        })
    }

    /// Fits to labelled outputs by negative log-likelihood: what `method` says, or for a regression the spread. Once
    /// `interrupt` is set it ends.
    ///
    /// # Errors
    /// Labels that the head does not have, no items, or an interruption.
    pub fn fit(
        logits: &[Vec<f32>],
        labels: &[Label],
        method: CalibrationMethod,
        tolerance: f64,
        interrupt: &AtomicBool,
    ) -> Result<Calibration, CascadeError> {
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
        Ok(match method {
            CalibrationMethod::Temperature => Calibration::Classes(Temperature::fit(classes)?),
            CalibrationMethod::Dirichlet => Calibration::Dirichlet(Dirichlet::fit(classes, interrupt)?),
        })
    }

    /// As it was saved.
    ///
    /// # Errors
    /// A temperature or a spread that is not above 0, or numbers that are none.
    pub fn of_saved(saved: SavedCalibration) -> Result<Calibration, CascadeError> {
        Ok(match saved {
            SavedCalibration::Temperature(temperature) => Calibration::Classes(Temperature::new(temperature)?),
            SavedCalibration::Dirichlet(SavedDirichlet { weights, intercepts }) => {
                Calibration::Dirichlet(Dirichlet::new(&weights, &intercepts)?)
            }
            SavedCalibration::Spread { spread, tolerance } => Calibration::Number {
                spread: Spread::new(spread)?,
                tolerance,
            },
        })
    }

    /// The probabilities of the classes, or the number; and the confidence in the answer.
    pub fn apply(&self, logits: &[f32]) -> (Vec<f64>, f64) {
        match self {
            Calibration::Classes(temperature) => with_confidence(softmax(logits, *temperature)),
            Calibration::Dirichlet(dirichlet) => with_confidence(dirichlet.shares(logits)),
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
            (Calibration::Classes(_) | Calibration::Dirichlet(_), Label::Number(_)) => false,
        }
    }
}

/// Probabilities, and that of the likeliest.
fn with_confidence(shares: Vec<f64>) -> (Vec<f64>, f64) {
    let confidence = Confident::of(&shares).confidence;
    (shares, confidence)
}

impl Outputs {
    /// Outputs of the model called `model`, on items with these labels.
    ///
    /// # Errors
    /// Labels that are not as many as the outputs, or that the head does not have.
    pub fn new(
        model: &str,
        answer: &Answer,
        source: Source,
        labels: &[Label],
        observed: Observed,
        calibration: Calibration,
    ) -> Result<Outputs, ExecutorError> {
        if labels.len() != observed.logits.len() {
            let must = format!("one for each of {} items", observed.logits.len());
            return Err(ExecutorError::input("labels", must, labels.len()));
        }
        let outputs = Outputs {
            model: model.into(),
            answer: answer.clone(),
            source,
            pruning: None,
            labels: labels.to_vec(),
            observed,
            calibration: calibration.clone(),
            softmax: Vec::new(),
            confidences: Vec::new(),
        };
        Ok(outputs.calibrated(calibration))
    }

    /// The same, by this calibration.
    pub(crate) fn calibrated(self, calibration: Calibration) -> Outputs {
        let narrow = |numbers: Vec<f64>| numbers.into_iter().map(|number| number as f32).collect();
        let (softmax, confidences) = self
            .observed
            .logits
            .iter()
            .map(|logits| {
                let (shares, confidence) = calibration.apply(logits);
                (narrow(shares), confidence as f32)
            })
            .unzip();
        Outputs {
            calibration,
            softmax,
            confidences,
            ..self
        }
    }

    /// Who took words away before the model read the items; nobody where it read them whole.
    pub fn steps(&self) -> &[PruneStep] {
        self.pruning.as_ref().map_or(&[], |pruning| &pruning.steps)
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

    /// Writes a file, whole or not at all.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), ExecutorError> {
        crate::host::write_whole(path, &self.saved().to_bytes())
    }

    /// What its file is called in a folder of outputs.
    pub fn file_name(&self) -> String {
        self.saved().file_name()
    }

    /// Reads what [`write`](Self::write) wrote.
    ///
    /// # Errors
    /// As [`SavedOutputs::read`].
    pub fn read(path: &Path) -> Result<Outputs, ExecutorError> {
        Outputs::of_saved(SavedOutputs::read(path)?).map_err(|error| ExecutorError::Cascade {
            what: path.display().to_string(),
            error,
        })
    }

    fn saved(&self) -> SavedOutputs {
        let Outputs { source, observed, .. } = self;
        SavedOutputs {
            model: self.model.clone(),
            folder: source.model.clone(),
            model_hash: source.model_hash.clone(),
            items: source.items.clone(),
            items_hash: source.items_hash.clone(),
            calibrated_on: source.calibrated_on.clone(),
            classes: match &self.answer {
                Answer::Class(names) => Some(names.clone()),
                Answer::Number => None,
            },
            calibration: match &self.calibration {
                Calibration::Classes(temperature) => SavedCalibration::Temperature(temperature.value()),
                Calibration::Dirichlet(dirichlet) => SavedCalibration::Dirichlet(SavedDirichlet {
                    weights: dirichlet.weights(),
                    intercepts: dirichlet.intercepts().to_vec(),
                }),
                Calibration::Number { spread, tolerance } => SavedCalibration::Spread {
                    spread: spread.value(),
                    tolerance: *tolerance,
                },
            },
            pruning: self.pruning.clone(),
            labels: self.labels.iter().map(|label| label.number()).collect(),
            logits: observed.logits.clone(),
            softmax: self.softmax.clone(),
            confidences: self.confidences.clone(),
            service_us: observed.service_us.clone(),
            attended_us: observed.attended_us.clone(),
            input_tokens: observed.input_tokens.clone(),
            importance: observed.importance.clone(),
        }
    }

    /// As it lies in a folder of outputs.
    ///
    /// # Errors
    /// A temperature or a spread that is not above 0.
    pub fn of_saved(saved: SavedOutputs) -> Result<Outputs, CascadeError> {
        let label = |&label: &f32| match saved.classes {
            Some(_) => Label::Class(label as usize),
            None => Label::Number(label),
        };
        Ok(Outputs {
            labels: saved.labels.iter().map(label).collect(),
            answer: saved.classes.map_or(Answer::Number, Answer::Class),
            model: saved.model,
            source: Source {
                model: saved.folder,
                model_hash: saved.model_hash,
                items: saved.items,
                items_hash: saved.items_hash,
                calibrated_on: saved.calibrated_on,
            },
            pruning: saved.pruning,
            calibration: Calibration::of_saved(saved.calibration)?,
            observed: Observed {
                logits: saved.logits,
                importance: saved.importance,
                service_us: saved.service_us,
                attended_us: saved.attended_us,
                input_tokens: saved.input_tokens,
            },
            softmax: saved.softmax,
            confidences: saved.confidences,
        })
    }
}

impl Label {
    pub(crate) fn number(self) -> f32 {
        match self {
            Label::Class(class) => class as f32,
            Label::Number(number) => number,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static NEVER: AtomicBool = AtomicBool::new(false);

    fn outputs(answer: Answer, labels: &[Label]) -> Outputs {
        let width = answer.outputs();
        let logits: Vec<Vec<f32>> =
            (0..labels.len()).map(|item| (0..width).map(|i| (item * i) as f32 - 0.5).collect()).collect();
        let observed = Observed {
            importance: (0..labels.len()).map(|tokens| vec![0.25; tokens]).collect(),
            service_us: vec![12.5; labels.len()],
            attended_us: vec![15.5; labels.len()],
            input_tokens: vec![4; labels.len()],
            logits,
        };
        let calibration =
            Calibration::fit(&observed.logits, labels, CalibrationMethod::Temperature, 0.5, &NEVER).unwrap();
        let source = Source {
            model: "out/small".into(),
            model_hash: "def".into(),
            items: "out/items.csv".into(),
            items_hash: "abc".into(),
            calibrated_on: "abc".into(),
        };
        Outputs::new("small", &answer, source, labels, observed, calibration).unwrap()
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
        pruned.pruning = Some(SavedPruning {
            steps: vec![PruneStep {
                by: "smaller".into(),
                alpha: 0.7,
            }],
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
        std::fs::write(&path, b"words").unwrap();
        let error = Outputs::read(&path).unwrap_err().to_string();
        assert!(error.contains("small.safetensors: header: must be"), "{error}");
    }

    #[test]
    fn accuracy_is_of_the_likeliest_class() {
        // Logits rise with the class, but for the first item, whose are all alike.
        assert_eq!(three_classes().right(), [true, true, false]);
        assert!((three_classes().accuracy() - 2.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn labels_beyond_the_head_cannot_be_calibrated() {
        let error = Calibration::fit(
            &[vec![0.0, 1.0]],
            &[Label::Class(2)],
            CalibrationMethod::Temperature,
            0.0,
            &NEVER,
        )
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "item 0: label: must be below the head's 2 classes, got 2"
        );
    }
}
