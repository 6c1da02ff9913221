//! A cascade of real models that answers real texts, one at a time, as Tabi's engine does (section 4).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use tch::Device;
use tenantry_cascade::ensemble::average;
use tenantry_cascade::{CascadeError, Reroute};
use tenantry_profiles::DType;

use super::classifier::{Classified, Classifier};
use super::config::Answer;
use super::items::Item;
use super::outputs::{Calibration, Observed};
use super::text::{TextTokenizer, Texts, Tokens};
use crate::device::synchronize;
use crate::error::ExecutorError;
use crate::files::hash_file;

/// What a model's folder holds.
const FILES: [&str; 3] = ["config.json", "model.safetensors", "tokenizer.json"];
/// Passes before latencies count.
const WARM_UP: usize = 10;

/// A classifier with its tokenizer: what a folder in Hugging Face's layout holds.
#[derive(Debug)]
pub struct TextModel {
    folder: PathBuf,
    hash: Arc<str>,
    classifier: Classifier,
    tokenizer: Arc<TextTokenizer>,
}

impl TextModel {
    /// Reads `config.json`, `model.safetensors` and `tokenizer.json`.
    ///
    /// # Errors
    /// Files that are missing, of another architecture, or that do not agree with each other.
    pub fn read(folder: &Path, dtype: DType, device: Device) -> Result<TextModel, ExecutorError> {
        let classifier = Classifier::read(folder, dtype, device)?;
        let shape = &classifier.config().shape;
        let tokenizer = TextTokenizer::read(&folder.join("tokenizer.json"), shape.positions, shape.vocabulary)?;
        Ok(TextModel {
            folder: folder.to_path_buf(),
            hash: hash_files(folder)?.into(),
            classifier,
            tokenizer: Arc::new(tokenizer),
        })
    }

    /// Another handle on the same weights, for another thread.
    pub(crate) fn share(&self) -> TextModel {
        TextModel {
            folder: self.folder.clone(),
            hash: Arc::clone(&self.hash),
            classifier: self.classifier.share(),
            tokenizer: Arc::clone(&self.tokenizer),
        }
    }

    /// The same model in memory of its own.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn copy(&self) -> Result<TextModel, ExecutorError> {
        Ok(TextModel {
            classifier: self.classifier.copy()?,
            ..self.share()
        })
    }

    /// Where it was read from.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// BLAKE3 of its files, by which its profiles are known: those of a model that was trained on are others'.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// That a profile is of this very model; `profiled` is the hash that `profile` has.
    ///
    /// # Errors
    /// Another hash than [`TextModel::hash`].
    pub fn check_profiled(&self, profiled: &str, profile: &Path) -> Result<(), ExecutorError> {
        if *self.hash == *profiled {
            return Ok(());
        }
        let short = |hash: &str| hash.chars().take(12).collect::<String>();
        let must = format!("those that {} is of (BLAKE3 {})", profile.display(), short(profiled));
        let got = format!("others ({})", short(&self.hash));
        Err(ExecutorError::checkpoint(&self.folder, FILES.join(", "), must, got))
    }

    /// What computes.
    pub(crate) fn classifier(&self) -> &Classifier {
        &self.classifier
    }

    /// Its folder's name.
    pub fn name(&self) -> &str {
        &self.classifier.config().shape.name
    }

    /// What it answers.
    pub fn answer(&self) -> &Answer {
        &self.classifier.config().answer
    }

    /// That it answers what the `first` model of a cascade does.
    ///
    /// # Errors
    /// Other classes, or the same in another order.
    pub(crate) fn check_answers_as(&self, first: &TextModel) -> Result<(), ExecutorError> {
        if self.answer() == first.answer() {
            return Ok(());
        }
        let must = format!("{}, as {} has it", first.answer(), first.folder.display());
        let config = self.folder.join("config.json");
        Err(ExecutorError::checkpoint(config, "id2label", must, self.answer()))
    }

    /// The tokens of `texts`.
    ///
    /// # Errors
    /// As [`TextTokenizer::encode`].
    pub fn encode(&self, texts: &Texts) -> Result<Tokens, ExecutorError> {
        self.tokenizer.encode(texts)
    }

    /// What it makes of one text, and the microseconds that took.
    fn timed(&self, tokens: &Tokens, importance: bool) -> Result<(Classified, f64), ExecutorError> {
        let begin = Instant::now();
        let classified = self.classifier.classify(&[tokens], importance)?;
        synchronize(self.classifier.device())?;
        Ok((classified, begin.elapsed().as_secs_f64() * 1e6))
    }

    /// What it makes of texts, one at a time; if `importance` is asked for, with the attention that tokens receive and
    /// what a pass takes that sums it up, which it cannot do as fast. Once `interrupt` is set it ends with the text.
    ///
    /// # Errors
    /// Texts that the tokenizer does not take, no memory on the device, or an interruption.
    pub fn observe<'a>(
        &self,
        texts: impl IntoIterator<Item = &'a Texts>,
        importance: bool,
        interrupt: &AtomicBool,
    ) -> Result<Observed, ExecutorError> {
        let encoded = |(item, texts)| self.encode(texts).map_err(|error| error.of_item(item));
        let tokens = texts.into_iter().enumerate().map(encoded).collect::<Result<Vec<_>, _>>()?;
        let mut observed = Observed::default();
        self.warm_up(&tokens, false)?;
        for tokens in &tokens {
            ExecutorError::if_set(interrupt)?;
            let (mut classified, service_us) = self.timed(tokens, false)?;
            observed.logits.append(&mut classified.logits);
            observed.service_us.push(service_us as f32);
            observed.input_tokens.push(tokens.ids.len() as u32);
        }
        if !importance {
            observed.importance = vec![Vec::new(); tokens.len()];
            return Ok(observed);
        }
        self.warm_up(&tokens, true)?;
        for tokens in &tokens {
            ExecutorError::if_set(interrupt)?;
            let (classified, attended_us) = self.timed(tokens, true)?;
            let mut lists = classified.importance.expect("it was asked for");
            observed.importance.push(lists.remove(0));
            observed.attended_us.push(attended_us as f32);
        }
        Ok(observed)
    }

    fn warm_up(&self, tokens: &[Tokens], importance: bool) -> Result<(), ExecutorError> {
        let mut some = tokens.iter().take(WARM_UP);
        some.try_for_each(|tokens| self.timed(tokens, importance).map(drop))
    }
}

/// One level of a cascade.
#[derive(Clone, Debug)]
pub struct Level<'a> {
    /// What answers.
    pub model: &'a TextModel,
    /// How its confidence is to be read.
    pub calibration: Calibration,
}

/// Models in ascending order, and what leads from one to the next.
#[derive(Clone, Debug)]
pub struct Cascade<'a> {
    levels: Vec<Level<'a>>,
    reroute: Reroute,
    alpha: f64,
    /// How much each level counts among those that were asked; nothing without an ensemble.
    weights: Option<Vec<f64>>,
}

/// What a cascade made of one text.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    /// Probabilities of the classes, or the number: of the last level that was asked, or of all that were.
    pub answer: Vec<f64>,
    /// What each level that was asked answered of what it read, in their order.
    pub by_level: Vec<Vec<f64>>,
    /// The level that was asked last.
    pub level: usize,
    /// Microseconds of all models and of what lies between them.
    pub service_us: f64,
    /// Words that each level read.
    pub words: Vec<usize>,
}

impl<'a> Cascade<'a> {
    /// A cascade that goes on as `reroute` says, prunes words to the degree `alpha` (0 for none), and, where there are
    /// weights, averages. Weights are one for each level, as a scenario's `join: { average: … }` has them.
    ///
    /// # Errors
    /// No levels, levels that answer different questions, an `alpha` that is negative, or weights that do not fit.
    pub fn new(
        levels: Vec<Level<'a>>,
        reroute: Reroute,
        alpha: f64,
        weights: Option<Vec<f64>>,
    ) -> Result<Cascade<'a>, ExecutorError> {
        let Some(first) = levels.first() else {
            return Err(ExecutorError::input("levels", "at least 1", 0));
        };
        for level in &levels {
            level.model.check_answers_as(first.model)?;
        }
        if !(alpha >= 0.0 && alpha.is_finite()) {
            return Err(ExecutorError::input("alpha", "at least 0", alpha));
        }
        if let Some(weights) = weights.as_ref().filter(|weights| weights.len() != levels.len()) {
            let must = format!("one for each of {} levels", levels.len());
            return Err(ExecutorError::input("weights", must, weights.len()));
        }
        Ok(Cascade {
            levels,
            reroute,
            alpha,
            weights,
        })
    }

    /// Answers one text. `coins` are uniform in `[0, 1)`, one for each level but the last.
    ///
    /// # Errors
    /// A text that a tokenizer does not take, or no memory on the device.
    ///
    /// # Panics
    /// If there are fewer coins.
    pub fn answer(&self, texts: &Texts, coins: &[f64]) -> Result<Answered, ExecutorError> {
        let mut asked: Vec<Vec<f64>> = Vec::with_capacity(self.levels.len());
        let (mut texts, mut words, mut service_us) = (texts.clone(), Vec::new(), 0.0);
        for (index, level) in self.levels.iter().enumerate() {
            let last = index + 1 == self.levels.len();
            // The tokenizer's time is left out, as the paper leaves it out.
            let tokens = level.model.encode(&texts)?;
            words.push(texts.words());
            let prunes = !last && self.alpha > 0.0;
            let (classified, took_us) = level.model.timed(&tokens, prunes)?;
            let begin = Instant::now();
            let (shares, confidence) = level.calibration.apply(&classified.logits[0]);
            asked.push(shares);
            let goes_on = !last && self.reroute.asks_next(confidence, coins[index]);
            if goes_on && prunes {
                let importance = &classified.importance.expect("it was asked for")[0];
                texts = texts.pruned(&tokens, importance, self.alpha).map_err(unexpected)?;
            }
            service_us += took_us + begin.elapsed().as_secs_f64() * 1e6;
            if !goes_on {
                let begin = Instant::now();
                let answer = self.joined(&asked)?;
                service_us += begin.elapsed().as_secs_f64() * 1e6;
                return Ok(Answered {
                    answer,
                    by_level: asked,
                    level: index,
                    service_us,
                    words,
                });
            }
        }
        unreachable!("the last level never goes on")
    }

    /// One answer out of those of the levels that were asked.
    fn joined(&self, asked: &[Vec<f64>]) -> Result<Vec<f64>, ExecutorError> {
        let Some(weights) = &self.weights else {
            return Ok(asked.last().cloned().unwrap_or_default());
        };
        let weighted = weights.iter().zip(asked);
        average(weighted.map(|(&weight, answer)| (weight, answer.as_slice()))).map_err(unexpected)
    }

    /// Answers labelled items one after the other, warmed up, and says of each whether it was right. Once `interrupt`
    /// is set it ends with the item.
    ///
    /// # Errors
    /// As [`answer`](Self::answer), and an interruption.
    pub fn answer_all(
        &self,
        items: &[Item],
        coin: impl Fn(u64, u32) -> f64,
        interrupt: &AtomicBool,
    ) -> Result<Vec<(Answered, bool)>, ExecutorError> {
        let of = |(number, item): (usize, &Item)| {
            ExecutorError::if_set(interrupt)?;
            let coins: Vec<f64> = (0..self.levels.len() as u32).map(|level| coin(number as u64, level)).collect();
            let answered = self.answer(&item.texts, &coins).map_err(|error| error.of_item(number))?;
            let right = self.levels[0].calibration.is_right(&answered.answer, item.label);
            Ok((answered, right))
        };
        for item in items.iter().take(WARM_UP).enumerate() {
            of(item)?;
        }
        items.iter().enumerate().map(of).collect()
    }
}

/// A hash over a model's files.
fn hash_files(folder: &Path) -> Result<String, ExecutorError> {
    let mut all = blake3::Hasher::new();
    for name in FILES {
        let mut file = blake3::Hasher::new();
        hash_file(&folder.join(name), &mut file)?;
        all.update(file.finalize().as_bytes());
    }
    Ok(all.finalize().to_hex().to_string())
}

fn unexpected(error: CascadeError) -> ExecutorError {
    ExecutorError::Cascade {
        what: "cascade".into(),
        error,
    }
}
