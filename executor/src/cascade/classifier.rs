//! Encoders with a classification or regression head, from Hugging Face's files.

use std::path::Path;

use tch::{Device, Kind, Tensor};
use tenantry_core::pet::header::PoolerActivation;
use tenantry_profiles::DType;

use super::config::{ClassifierConfig, Family, ROBERTA_SKIPPED};
use super::importance::layers_with_importance;
use super::text::Tokens;
use crate::error::ExecutorError;
use crate::model::{
    BERT, Encoder, Input, LinearParameters, Place, Pooler, places, places_of, read_places, write_places,
};
use crate::random::{INITIAL_STD, Part, fill, weights};

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";

/// An encoder with a head over its first token: a dense layer as wide as the encoder, an activation, and a linear layer
/// that puts out one number for each class, or one.
#[derive(Debug)]
pub struct Classifier {
    config: ClassifierConfig,
    encoder: Encoder,
    /// The head's parameters in one block, as [`head_places`] says.
    head: Tensor,
    /// Views into it.
    pooler: Pooler,
    output: LinearParameters,
}

/// What a classifier makes of a batch.
#[derive(Debug)]
pub struct Classified {
    /// Row by row what the head puts out, `[n, outputs]`.
    pub logits: Vec<Vec<f32>>,
    /// Row by row the attention that each token received, padding left out; where it was asked for.
    pub importance: Option<Vec<Vec<f32>>>,
}

impl Classifier {
    /// Random weights, to be trained.
    ///
    /// # Errors
    /// No memory on the device.
    pub fn random(config: ClassifierConfig, seed: u64, device: Device) -> Result<Classifier, ExecutorError> {
        let encoder = Encoder::random(&config.shape, seed, DType::F32, device)?;
        let mut numbers = Vec::new();
        let mut stream = weights(seed, Part::Head, 0);
        for place in head_places(&config) {
            let mut part = vec![0.0; place.length()];
            if place.name.ends_with("weight") {
                fill(&mut stream, INITIAL_STD, &mut part);
            }
            numbers.extend(part);
        }
        let head = Tensor::f_from_slice(&numbers)?.f_to(device)?;
        Classifier::from_parts(config, encoder, head)
    }

    /// Another handle on the same weights, for another thread.
    pub(crate) fn share(&self) -> Classifier {
        Classifier::from_parts(self.config.clone(), self.encoder.share(), self.head.shallow_clone())
            .expect("the same blocks fit again")
    }

    /// The same classifier in memory of its own.
    pub(crate) fn copy(&self) -> Result<Classifier, ExecutorError> {
        let mut head = self.head.f_empty_like()?;
        head.f_copy_(&self.head)?;
        Classifier::from_parts(self.config.clone(), self.encoder.copy()?, head)
    }

    fn from_parts(config: ClassifierConfig, encoder: Encoder, head: Tensor) -> Result<Classifier, ExecutorError> {
        let pieces = head_places(&config)
            .iter()
            .map(|place| {
                let size: Vec<i64> = place.shape.iter().map(|&n| n as i64).collect();
                head.f_narrow(0, place.offset as i64, place.length() as i64)?.f_view(size.as_slice())
            })
            .collect::<Result<Vec<_>, _>>()?;
        let [dense, dense_bias, output, output_bias] = pieces.try_into().expect("a head has four tensors");
        Ok(Classifier {
            encoder,
            pooler: Pooler {
                dense: LinearParameters {
                    weight: dense,
                    bias: dense_bias,
                },
                activation: match config.family {
                    Family::Bert | Family::Roberta | Family::Albert => PoolerActivation::Tanh,
                    Family::DistilBert => PoolerActivation::Relu,
                    Family::DebertaV2 => PoolerActivation::Gelu,
                },
            },
            output: LinearParameters {
                weight: output,
                bias: output_bias,
            },
            config,
            head,
        })
    }

    /// Reads a folder with `config.json` and `model.safetensors`, as Hugging Face's `save_pretrained` writes it.
    ///
    /// # Errors
    /// Files that are missing, of another architecture, or that do not agree: more labels than the head has outputs,
    /// say.
    pub fn read(folder: &Path, dtype: DType, device: Device) -> Result<Classifier, ExecutorError> {
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
        let config = ClassifierConfig::read(&folder.join(CONFIG), &name.unwrap_or_else(|| "model".into()))?;
        let path = folder.join(WEIGHTS);
        let block = read_encoder(&path, &config, dtype)?.f_to(device)?;
        let encoder = Encoder::of_variant(&config.shape, config.variant, 0, block)?;
        let head = read_places(&path, config.family.prefix(), &head_places(&config), dtype)?.f_to(device)?;
        Classifier::from_parts(config, encoder, head)
    }

    /// Writes `config.json` and `model.safetensors` into an existing folder, in the layout of
    /// `BertForSequenceClassification`.
    ///
    /// # Errors
    /// Files that cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), ExecutorError> {
        let mut encoder = places(&self.config.shape);
        for place in &mut encoder {
            place.name = format!("{BERT}{}", place.name);
        }
        let mut head = head_places(&self.config);
        for place in head.iter_mut().filter(|place| place.name.starts_with("pooler")) {
            place.name = format!("{BERT}{}", place.name);
        }
        let parameters = self.encoder.parameters();
        write_places(&folder.join(WEIGHTS), &[(encoder, parameters), (head, &self.head)])?;
        let path = folder.join(CONFIG);
        std::fs::write(&path, self.config.to_json()).map_err(ExecutorError::file(&path))
    }

    /// Logits of a batch, and if `importance` is asked for, the attention that its tokens receive.
    ///
    /// # Errors
    /// Ids outside the vocabulary, too many tokens, or no memory on the device.
    pub fn classify(&self, batch: &[&Tokens], importance: bool) -> Result<Classified, ExecutorError> {
        self.classify_padded(batch, 0, importance)
    }

    /// The same of a batch that is padded to so many tokens, if its longest sequence has fewer.
    ///
    /// # Errors
    /// As [`classify`](Self::classify).
    pub fn classify_padded(
        &self,
        batch: &[&Tokens],
        tokens: usize,
        importance: bool,
    ) -> Result<Classified, ExecutorError> {
        let input = self.input(batch, tokens)?;
        tch::no_grad(|| {
            let embedded = self.encoder.embed(&input)?;
            let layers = 0..self.config.shape.layers as usize;
            let (hidden, received) = if importance {
                let (hidden, received) = layers_with_importance(&self.encoder, layers, embedded, &input)?;
                (hidden, Some(received))
            } else {
                (self.encoder.layers(embedded, layers, &input, None)?, None)
            };
            let logits = rows(&self.answer(&hidden)?)?;
            let received = received.as_ref().map(rows).transpose()?;
            let cut = |(mut row, tokens): (Vec<f32>, &&Tokens)| {
                row.truncate(tokens.ids.len());
                row
            };
            Ok(Classified {
                logits,
                importance: received.map(|rows| rows.into_iter().zip(batch).map(cut).collect()),
            })
        })
    }

    /// Logits `[n, outputs]` of a batch, kept in mind for gradients where parameters ask for them.
    pub(crate) fn logits(&self, batch: &[&Tokens]) -> Result<Tensor, ExecutorError> {
        let input = self.input(batch, 0)?;
        let mut hidden = self.encoder.embedded(&input)?;
        for layer in 0..self.config.shape.layers as usize {
            hidden = self.encoder.layer(layer, &hidden, &input, None)?;
        }
        self.answer(&hidden)
    }

    /// The batch, padded to its longest sequence, and to `tokens` at least.
    fn input(&self, batch: &[&Tokens], tokens: usize) -> Result<Input, ExecutorError> {
        let longest = batch.iter().map(|tokens| tokens.ids.len()).fold(tokens, usize::max);
        let ids: Vec<&[i64]> = batch.iter().map(|tokens| tokens.ids.as_slice()).collect();
        let input = self.encoder.input(&ids, longest)?;
        if batch.iter().all(|tokens| tokens.segments.iter().all(|&segment| segment == 0)) {
            return Ok(input);
        }
        let segments: Vec<&[i64]> = batch.iter().map(|tokens| tokens.segments.as_slice()).collect();
        input.with_segments(&segments)
    }

    /// The head over the last hidden state, `[n, l, hidden]`.
    fn answer(&self, hidden: &Tensor) -> Result<Tensor, ExecutorError> {
        let pooled = self.pooler.forward(&hidden.f_select(1, 0)?)?;
        self.output.forward(&pooled)
    }

    /// What it is.
    pub fn config(&self) -> &ClassifierConfig {
        &self.config
    }

    /// Where it computes.
    pub fn device(&self) -> Device {
        self.encoder.device()
    }

    /// The two blocks of parameters and the views into each, in order and without gaps.
    pub(crate) fn blocks(&self) -> [(&Tensor, Vec<&Tensor>); 2] {
        let (dense, output) = (&self.pooler.dense, &self.output);
        let head = vec![&dense.weight, &dense.bias, &output.weight, &output.bias];
        [(self.encoder.parameters(), self.encoder.pieces()), (&self.head, head)]
    }
}

fn rows(tensor: &Tensor) -> Result<Vec<Vec<f32>>, ExecutorError> {
    Ok(Vec::<Vec<f32>>::try_from(
        tensor.f_to_kind(Kind::Float)?.f_to(Device::Cpu)?,
    )?)
}

/// The tensors of a head, by the names that they have in its family's files.
fn head_places(config: &ClassifierConfig) -> Vec<Place> {
    let (dense, output) = match config.family {
        Family::Bert | Family::DebertaV2 => ("pooler.dense", "classifier"),
        Family::DistilBert => ("pre_classifier", "classifier"),
        Family::Roberta => ("classifier.dense", "classifier.out_proj"),
        Family::Albert => ("pooler", "classifier"),
    };
    let (hidden, outputs) = (config.shape.hidden as usize, config.answer.outputs());
    let mut offset = 0;
    let tensors = [
        (format!("{dense}.weight"), vec![hidden, hidden]),
        (format!("{dense}.bias"), vec![hidden]),
        (format!("{output}.weight"), vec![outputs, hidden]),
        (format!("{output}.bias"), vec![outputs]),
    ];
    let place = |(name, shape): (String, Vec<usize>)| {
        let place = Place { name, shape, offset };
        offset += place.length();
        place
    };
    tensors.into_iter().map(place).collect()
}

/// The encoder's block, in BERT's order, from a file of its family.
pub(crate) fn read_encoder(path: &Path, config: &ClassifierConfig, dtype: DType) -> Result<Tensor, ExecutorError> {
    let wanted = places_of(&config.shape, &config.variant);
    if config.family == Family::Bert {
        return read_places(path, BERT, &wanted, dtype);
    }
    let mut offset = 0;
    let stored = |place: &Place| {
        let mut stored = config.family.stored(place)?;
        stored.offset = offset;
        offset += stored.length();
        Some(stored)
    };
    let stored: Vec<Option<Place>> = wanted.iter().map(stored).collect();
    let present: Vec<Place> = stored.iter().flatten().cloned().collect();
    let block = read_places(path, config.family.prefix(), &present, dtype)?;
    let pieces = stored
        .iter()
        .zip(&wanted)
        .map(|(stored, place)| {
            let length = place.length() as i64;
            match stored {
                // Skipped positions come first, and a second segment is never asked for.
                Some(stored) if stored.length() >= place.length() => {
                    let skipped = (stored.length() - place.length()) as i64;
                    block.f_narrow(0, stored.offset as i64 + skipped, length)
                }
                Some(stored) => {
                    let times = (place.length() / stored.length()) as i64;
                    block.f_narrow(0, stored.offset as i64, stored.length() as i64)?.f_repeat([times])
                }
                None => Tensor::f_zeros([length], (block.kind(), Device::Cpu)),
            }
        })
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Tensor::f_cat(&pieces, 0)?)
}

impl Family {
    /// Below this name the encoder lies in the checkpoint of a task's whole model.
    fn prefix(self) -> &'static str {
        match self {
            Family::Bert => BERT,
            Family::DistilBert => "distilbert.",
            Family::Roberta => "roberta.",
            Family::Albert => "albert.",
            Family::DebertaV2 => "deberta.",
        }
    }

    /// What stands in this family's files for one of BERT's tensors; nothing stands for DistilBERT's segments, nor for
    /// DeBERTa's and its positions.
    fn stored(self, place: &Place) -> Option<Place> {
        let mut stored = place.clone();
        match self {
            Family::Bert => {}
            Family::Roberta => {
                if place.name.contains("position_embeddings") {
                    stored.shape[0] += ROBERTA_SKIPPED as usize;
                } else if place.name.contains("token_type_embeddings") {
                    stored.shape[0] = 1;
                }
            }
            Family::DebertaV2 => {
                if place.name.contains("token_type_embeddings") || place.name.contains("position_embeddings") {
                    return None;
                }
                for part in ["query", "key", "value"] {
                    let theirs = format!("attention.self.{part}_proj");
                    stored.name = stored.name.replace(&format!("attention.self.{part}"), &theirs);
                }
            }
            Family::Albert => {
                // From the more to the less particular.
                for (ours, theirs) in [
                    ("embeddings.projection", "encoder.embedding_hidden_mapping_in"),
                    ("encoder.layer.0", "encoder.albert_layer_groups.0.albert_layers.0"),
                    ("attention.self", "attention"),
                    ("attention.output", "attention"),
                    ("intermediate.dense", "ffn"),
                    ("output.dense", "ffn_output"),
                    ("output.LayerNorm", "full_layer_layer_norm"),
                ] {
                    stored.name = stored.name.replace(ours, theirs);
                }
            }
            Family::DistilBert => {
                if place.name.contains("token_type_embeddings") {
                    return None;
                }
                // From the more to the less particular.
                for (ours, theirs) in [
                    ("encoder.layer", "transformer.layer"),
                    ("attention.self.query", "attention.q_lin"),
                    ("attention.self.key", "attention.k_lin"),
                    ("attention.self.value", "attention.v_lin"),
                    ("attention.output.dense", "attention.out_lin"),
                    ("attention.output.LayerNorm", "sa_layer_norm"),
                    ("intermediate.dense", "ffn.lin1"),
                    ("output.dense", "ffn.lin2"),
                    ("output.LayerNorm", "output_layer_norm"),
                ] {
                    stored.name = stored.name.replace(ours, theirs);
                }
            }
        }
        Some(stored)
    }
}

#[cfg(test)]
mod tests {
    use tenantry_profiles::ModelShape;

    use super::*;
    use crate::cascade::Answer;

    fn config(answer: Answer) -> ClassifierConfig {
        let shape = ModelShape {
            name: "m".into(),
            hidden: 16,
            intermediate: 32,
            vocabulary: 20,
            positions: 8,
            ..ModelShape::builtin("tiny").unwrap()
        };
        ClassifierConfig::new(&shape, answer).unwrap()
    }

    fn classes(count: usize) -> Answer {
        Answer::Class((0..count).map(|class| format!("class-{class}")).collect())
    }

    fn tokens(ids: &[i64], second_from: usize) -> Tokens {
        Tokens {
            ids: ids.to_vec(),
            segments: (0..ids.len()).map(|index| i64::from(index >= second_from)).collect(),
            places: vec![None; ids.len()],
            read: vec![0],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("m");
        std::fs::create_dir(&folder).unwrap();
        for answer in [classes(3), Answer::Number] {
            let written = Classifier::random(config(answer), 5, Device::Cpu).unwrap();
            written.write(&folder).unwrap();
            let read = Classifier::read(&folder, DType::F32, Device::Cpu).unwrap();
            assert_eq!(read.config(), written.config());
            let text = tokens(&[3, 4, 5], 3);
            let logits = |classifier: &Classifier| classifier.classify(&[&text], false).unwrap().logits;
            assert_eq!(logits(&read), logits(&written));
        }
    }

    #[test]
    fn a_batch_is_each_text_alone_and_segments_count() {
        let classifier = Classifier::random(config(classes(3)), 5, Device::Cpu).unwrap();
        let (pair, one) = (tokens(&[3, 4, 5, 6, 7], 2), tokens(&[3, 4, 5, 6, 7], 5));
        let short = tokens(&[9, 1], 2);
        let run = |batch: &[&Tokens]| classifier.classify(batch, true).unwrap();
        let together = run(&[&pair, &short]);
        let importance = together.importance.unwrap();
        assert_eq!((importance[0].len(), importance[1].len()), (5, 2));
        for (row, alone) in [&pair, &short].into_iter().enumerate() {
            for (found, expected) in together.logits[row].iter().zip(&run(&[alone]).logits[0]) {
                assert!((found - expected).abs() < 1e-5, "{found} and {expected}");
            }
        }
        assert_ne!(run(&[&pair]).logits, run(&[&one]).logits);
        // Padding changes what is computed, and no answer.
        let padded = classifier.classify_padded(&[&pair, &short], 8, true).unwrap();
        assert_eq!(padded.importance.unwrap()[0].len(), 5);
        let logits = padded.logits.concat().into_iter().zip(together.logits.concat());
        logits.for_each(|(found, expected)| assert!((found - expected).abs() < 1e-5, "{found} and {expected}"));
        assert!(
            classifier.classify_padded(&[&pair], 1 << 20, false).is_err(),
            "there are not so many positions"
        );
    }

    #[test]
    fn labels_that_do_not_match_the_head_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        Classifier::random(config(classes(2)), 5, Device::Cpu).unwrap().write(folder.path()).unwrap();
        std::fs::write(folder.path().join(CONFIG), config(classes(3)).to_json()).unwrap();
        let error = Classifier::read(folder.path(), DType::F32, Device::Cpu).unwrap_err().to_string();
        assert!(
            error.ends_with("model.safetensors: classifier.weight: must be of shape [3, 16], got [2, 16]"),
            "{error}"
        );
    }

    /// Files of a model without a task, and some of one with it, have an encoder's names without its family's.
    #[test]
    fn an_encoder_may_lie_below_no_name() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny_classifiers");
        for name in ["bert", "distilbert", "roberta", "albert", "deberta_v3"] {
            let folder = tempfile::tempdir().unwrap();
            let fixture = fixtures.join(name);
            std::fs::copy(fixture.join(CONFIG), folder.path().join(CONFIG)).unwrap();
            let of_task = Classifier::read(&fixture, DType::F32, Device::Cpu).unwrap();
            let prefix = of_task.config().family.prefix();
            let bytes = std::fs::read(fixture.join(WEIGHTS)).unwrap();
            let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
            let bare = tensors.iter().map(|(name, tensor)| (name.strip_prefix(prefix).unwrap_or(name), tensor));
            assert!(tensors.names().iter().any(|name| name.starts_with(prefix)), "{name}");
            safetensors::serialize_to_file(bare, None, &folder.path().join(WEIGHTS)).unwrap();
            let bare = Classifier::read(folder.path(), DType::F32, Device::Cpu).unwrap();
            for (bare, of_task) in bare.blocks().into_iter().zip(of_task.blocks()) {
                assert_eq!(bare.0, of_task.0, "{name}");
            }
        }
    }

    /// What an encoder has otherwise than BERT is there for other threads and cards too.
    #[test]
    fn shared_and_copied_classifiers_answer_alike() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny_classifiers");
        for name in ["bert_regression", "albert", "deberta_v3"] {
            let read = Classifier::read(&fixtures.join(name), DType::F32, Device::Cpu).unwrap();
            let text = tokens(&[3, 9, 4, 17, 5, 6, 8], 7);
            let logits = |classifier: &Classifier| classifier.classify(&[&text], true).unwrap().logits;
            assert_eq!(logits(&read.share()), logits(&read), "{name}");
            assert_eq!(logits(&read.copy().unwrap()), logits(&read), "{name}");
            // Its views into the block are all of it, once.
            for (block, pieces) in read.blocks() {
                let numbers: usize = pieces.iter().map(|piece| piece.numel()).sum();
                assert_eq!(numbers, block.numel(), "{name}");
            }
        }
    }

    /// BERT's tensors under another family's names, as that family's files hold them.
    #[test]
    fn other_families_compute_as_bert_does() {
        let bert = Classifier::random(config(classes(2)), 5, Device::Cpu).unwrap();
        let block = bert.encoder.parameters();
        for family in [Family::DistilBert, Family::Roberta] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(WEIGHTS);
            let (mut stored, mut pieces, mut offset) = (Vec::new(), Vec::new(), 0);
            for place in places(&bert.config.shape) {
                let piece = block.narrow(0, place.offset as i64, place.length() as i64);
                let Some(mut renamed) = family.stored(&place) else {
                    continue;
                };
                renamed.offset = offset;
                offset += renamed.length();
                let extra = renamed.length() as i64 - place.length() as i64;
                pieces.push(match extra {
                    0 => piece,
                    1.. => Tensor::cat(&[Tensor::ones([extra], (Kind::Float, Device::Cpu)), piece], 0),
                    _ => piece.narrow(0, 0, renamed.length() as i64),
                });
                stored.push(renamed);
            }
            write_places(&path, &[(stored, &Tensor::cat(&pieces, 0))]).unwrap();
            let config = ClassifierConfig {
                family,
                ..bert.config.clone()
            };
            let read = read_encoder(&path, &config, DType::F32).unwrap();
            let encoder = Encoder::from_parameters(&config.shape, read).unwrap();
            let ids = [[3i64, 4, 5]];
            let run = |encoder: &Encoder| {
                let input = encoder.input(&ids, 3).unwrap();
                encoder.layers(encoder.embed(&input).unwrap(), 0..2, &input, None).unwrap()
            };
            let same = Encoder::from_parameters(&bert.config.shape, block.copy()).unwrap();
            if family == Family::DistilBert {
                // It has no segments, so BERT's are taken away.
                let _ = same.pieces()[2].shallow_clone().zero_();
            }
            assert!(run(&encoder).equal(&run(&same)), "{family:?}");
        }
    }
}
