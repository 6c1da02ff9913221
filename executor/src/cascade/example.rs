//! The self-contained example: a small and a larger encoder, trained here on [`Reviews`] and saved as anybody's models
//! are.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use tch::Device;
use tenantry_profiles::{ModelKind, ModelShape};
use tenantry_traces::whole;
use tokenizers::Tokenizer;

use super::classifier::Classifier;
use super::config::ClassifierConfig;
use super::items::{Item, write_items};
use super::reviews::{Reviews, byte_pair_tokenizer, word_piece_tokenizer};
use super::text::TextTokenizer;
use super::train::{Training, train};
use crate::error::ExecutorError;

/// How large the example is.
#[derive(Clone, Debug, PartialEq)]
pub struct ExampleSize {
    /// Reviews to train on.
    pub train_items: u64,
    /// Reviews to calibrate and profile on, and as many again to judge by.
    pub held_out_items: u64,
    /// The models, the smallest first.
    pub models: Vec<ExampleModel>,
}

/// A model of the example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExampleModel {
    /// Its folder's name.
    pub name: &'static str,
    /// Layers.
    pub layers: u32,
    /// Width.
    pub hidden: u32,
    /// Heads of attention.
    pub heads: u32,
    /// How often it sees the reviews.
    pub epochs: u32,
}

impl ExampleSize {
    /// The one that the command makes: some minutes on a CPU. With three levels, one between the two.
    pub fn full(levels: u32) -> ExampleSize {
        let model = |name, [layers, hidden, heads]: [u32; 3], epochs| ExampleModel {
            name,
            layers,
            hidden,
            heads,
            epochs,
        };
        let mut models = vec![model("small", [1, 32, 2], 4), model("large", [4, 64, 4], 6)];
        if levels > 2 {
            models.insert(1, model("middle", [2, 48, 4], 5));
        }
        ExampleSize {
            train_items: 4000,
            held_out_items: 1000,
            models,
        }
    }
}

/// Longest review in tokens that the models take.
const POSITIONS: u32 = 128;
/// Ids of the first model's tokenizer: 256 bytes, four special tokens, and so few merges that most words are in pieces.
const BYTE_PAIR_IDS: usize = 420;
const LEARNING_RATE: f64 = 1e-3;
const BATCH: usize = 32;
/// Texts that tokenizers are made of.
const TOKENIZER_ITEMS: usize = 2000;

/// Where the example's files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExampleFiles {
    /// The models' folders, in the order of the size's models: `config.json`, `model.safetensors`, `tokenizer.json`.
    pub models: Vec<PathBuf>,
    /// The items to profile on.
    pub profile: PathBuf,
    /// The items to judge by.
    pub test: PathBuf,
}

/// Trains the models and writes their folders, `profile.csv` and `test.csv` into `folder`, which must exist. `watch` is
/// told of each model's epochs and mean losses. Once `interrupt` is set it ends with the step of the training.
///
/// # Errors
/// Files that cannot be written, no memory on the device, or an interruption.
pub fn make_example(
    folder: &Path,
    size: &ExampleSize,
    seed: u64,
    device: Device,
    interrupt: &AtomicBool,
    watch: &mut dyn FnMut(&str, u32, f64),
) -> Result<ExampleFiles, ExecutorError> {
    let reviews = Reviews::new(seed);
    let items = |range: std::ops::Range<u64>| -> Vec<Item> {
        reviews.range(range).into_iter().map(|review| review.item).collect()
    };
    let (train_end, profile_end) = (size.train_items, size.train_items + size.held_out_items);
    let training = items(0..train_end);
    let files = ExampleFiles {
        models: size.models.iter().map(|model| folder.join(model.name)).collect(),
        profile: folder.join("profile.csv"),
        test: folder.join("test.csv"),
    };
    let answer = Reviews::answer();
    write_items(&files.profile, &items(train_end..profile_end), &answer)?;
    write_items(
        &files.test,
        &items(profile_end..profile_end + size.held_out_items),
        &answer,
    )?;

    let texts: Vec<&str> = training.iter().take(TOKENIZER_ITEMS).map(|item| item.texts.first.as_str()).collect();
    for ((path, model), model_seed) in files.models.iter().zip(&size.models).zip(seed..) {
        let tokenizer = match model_seed == seed {
            true => byte_pair_tokenizer(&texts, BYTE_PAIR_IDS)?,
            false => word_piece_tokenizer(&texts)?,
        };
        let &ExampleModel {
            name,
            layers,
            hidden,
            heads,
            epochs,
        } = model;
        let shape = ModelShape {
            name: name.into(),
            kind: ModelKind::Encoder,
            layers,
            hidden,
            heads,
            kv_heads: heads,
            intermediate: 4 * hidden,
            gated: false,
            vocabulary: tokenizer.get_vocab_size(true) as u32,
            positions: POSITIONS,
        };
        let config = ClassifierConfig::new(&shape, answer.clone())?;
        let classifier = Classifier::random(config, model_seed, device)?;
        // Written beside and renamed, so that a model is there whole or not at all.
        let failed = ExecutorError::file(&path);
        let unfinished = whole::begin_folder(folder).map_err(&failed)?;
        let tokenizer = save_tokenizer(&tokenizer, unfinished.path(), &shape)?;
        let encoded = training
            .iter()
            .map(|item| Ok((tokenizer.encode(&item.texts)?, item.label)))
            .collect::<Result<Vec<_>, ExecutorError>>()?;
        let training = Training {
            epochs,
            batch: BATCH,
            learning_rate: LEARNING_RATE,
            weight_decay: 0.01,
            seed: model_seed,
        };
        train(&classifier, &encoded, &training, interrupt, &mut |epoch, loss| {
            watch(name, epoch, loss)
        })?;
        classifier.write(unfinished.path())?;
        whole::finish_folder(unfinished, path).map_err(&failed)?;
    }
    Ok(files)
}

fn save_tokenizer(tokenizer: &Tokenizer, folder: &Path, shape: &ModelShape) -> Result<TextTokenizer, ExecutorError> {
    let path = folder.join("tokenizer.json");
    tokenizer
        .save(&path, true)
        .map_err(|error| ExecutorError::input("tokenizer", "one that can be saved", error))?;
    TextTokenizer::read(&path, shape.positions, shape.vocabulary)
}
