//! What a classifier's `config.json` says: the encoder's shape, its family, and what its head answers.

use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tenantry_profiles::{ModelKind, ModelShape};

use crate::error::ExecutorError;
use crate::model::{Distances, Gelu, LAYER_NORM_EPSILON, Variant, check};

/// What a head answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// One of these classes, by name, in the order of the logits.
    Class(Vec<String>),
    /// A number.
    Number,
}

impl Answer {
    /// How many numbers the head puts out.
    pub fn outputs(&self) -> usize {
        match self {
            Answer::Class(names) => names.len(),
            Answer::Number => 1,
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Class(names) => f.write_str(&names.join(", ")),
            Answer::Number => f.write_str("one output, a number"),
        }
    }
}

/// A classifier, without its weights.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassifierConfig {
    /// The encoder's shape. Its name is the folder's.
    pub shape: ModelShape,
    /// How its files name what BERT has.
    pub(crate) family: Family,
    /// What it has otherwise than BERT.
    pub(crate) variant: Variant,
    /// What it answers.
    pub answer: Answer,
}

/// Encoders that compute as BERT does and differ in names, heads and [`Variant`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// `BertForSequenceClassification`.
    Bert,
    /// `DistilBertForSequenceClassification`: no segments, and ReLU before the classifier.
    DistilBert,
    /// `RobertaForSequenceClassification`: positions count from 2, and all tokens are of one segment.
    Roberta,
    /// `AlbertForSequenceClassification`: narrow embeddings, and one layer that stands for all.
    Albert,
    /// `DebertaV2ForSequenceClassification`, as version 3 is configured: positions by distance alone, and GELU before
    /// the classifier.
    DebertaV2,
}

/// A shape as a scenario's `models` write it.
pub fn described(shape: &ModelShape) -> String {
    let ModelShape {
        layers,
        hidden,
        heads,
        intermediate,
        vocabulary,
        positions,
        ..
    } = shape;
    format!(
        "{{ layers: {layers}, hidden: {hidden}, heads: {heads}, intermediate: {intermediate}, vocabulary: \
         {vocabulary}, positions: {positions} }}"
    )
}

/// How many of RoBERTa's positions no token has: those up to and with the padding's id.
pub(crate) const ROBERTA_SKIPPED: u32 = 2;

/// What `DebertaV2Config` has where nothing is said.
const DEBERTA_NORM_EPSILON: f64 = 1e-7;

#[derive(Deserialize)]
struct Stored {
    model_type: String,
    #[serde(alias = "dim")]
    hidden_size: u32,
    #[serde(alias = "n_layers")]
    num_hidden_layers: u32,
    #[serde(alias = "n_heads")]
    num_attention_heads: u32,
    #[serde(alias = "hidden_dim")]
    intermediate_size: u32,
    vocab_size: u32,
    max_position_embeddings: u32,
    #[serde(alias = "activation")]
    hidden_act: Option<String>,
    position_embedding_type: Option<String>,
    layer_norm_eps: Option<f64>,
    embedding_size: Option<u32>,
    num_hidden_groups: Option<u32>,
    inner_group_num: Option<u32>,
    position_buckets: Option<i64>,
    max_relative_positions: Option<i64>,
    /// What else is said, for what only some families have.
    #[serde(flatten)]
    others: Map<String, Value>,
    problem_type: Option<String>,
    id2label: Option<Map<String, Value>>,
    num_labels: Option<usize>,
}

impl ClassifierConfig {
    /// A BERT of this shape that answers so.
    ///
    /// # Errors
    /// A shape that is no BERT-like encoder's, or fewer than two classes.
    pub fn new(shape: &ModelShape, answer: Answer) -> Result<ClassifierConfig, ExecutorError> {
        check(shape)?;
        if let Answer::Class(names) = &answer
            && names.len() < 2
        {
            return Err(ExecutorError::input("classes", "at least 2", names.len()));
        }
        Ok(ClassifierConfig {
            shape: shape.clone(),
            family: Family::Bert,
            variant: Variant::BERT,
            answer,
        })
    }

    /// Reads a `config.json` of a `BertForSequenceClassification`, `DistilBertForSequenceClassification`,
    /// `RobertaForSequenceClassification`, `AlbertForSequenceClassification` or `DebertaV2ForSequenceClassification`;
    /// `name` is what the model is to be called.
    ///
    /// # Errors
    /// A file that cannot be read, another architecture, or a variant of these that is not computed here.
    pub fn read(path: &Path, name: &str) -> Result<ClassifierConfig, ExecutorError> {
        ClassifierConfig::read_with(path, name, Stored::answer)
    }

    /// The same of an encoder whose head is left alone: what it answers is not looked at.
    ///
    /// # Errors
    /// As [`read`](Self::read), but for the answer.
    pub(crate) fn read_encoder(path: &Path, name: &str) -> Result<ClassifierConfig, ExecutorError> {
        ClassifierConfig::read_with(path, name, |_| Ok(Answer::Number))
    }

    fn read_with(
        path: &Path,
        name: &str,
        answer: impl FnOnce(&Stored) -> Result<Answer, (&'static str, &'static str, String)>,
    ) -> Result<ClassifierConfig, ExecutorError> {
        let text = std::fs::read_to_string(path).map_err(ExecutorError::file(path))?;
        let wrong = |field: &str, must: &str, got: String| ExecutorError::checkpoint(path, field, must, got);
        let stored: Stored = serde_json::from_str(&text)
            .map_err(|error| wrong("config", "that of a BERT-like classifier", error.to_string()))?;
        let family = match stored.model_type.as_str() {
            "bert" => Family::Bert,
            "distilbert" => Family::DistilBert,
            // XLM-RoBERTa and CamemBERT are RoBERTa with other words.
            "roberta" | "xlm-roberta" | "camembert" => Family::Roberta,
            "albert" => Family::Albert,
            "deberta-v2" => Family::DebertaV2,
            other => {
                let must = "bert, distilbert, roberta, xlm-roberta, camembert, albert or deberta-v2";
                return Err(wrong("model_type", must, other.into()));
            }
        };
        let variant = stored.variant(family).map_err(|(field, must, got)| wrong(field, must, got))?;
        let skipped = if family == Family::Roberta { ROBERTA_SKIPPED } else { 0 };
        let config = ClassifierConfig {
            shape: ModelShape {
                name: name.into(),
                kind: ModelKind::Encoder,
                layers: stored.num_hidden_layers,
                hidden: stored.hidden_size,
                heads: stored.num_attention_heads,
                kv_heads: stored.num_attention_heads,
                intermediate: stored.intermediate_size,
                gated: false,
                vocabulary: stored.vocab_size,
                positions: stored.max_position_embeddings.saturating_sub(skipped),
            },
            family,
            variant,
            answer: answer(&stored).map_err(|(field, must, got)| wrong(field, must, got))?,
        };
        check(&config.shape)?;
        Ok(config)
    }

    /// The text of a `config.json` that [`read`](Self::read) and Hugging Face's loader take.
    pub(crate) fn to_json(&self) -> String {
        assert_eq!(self.family, Family::Bert, "only BERT's layout is written");
        let shape = &self.shape;
        let names = match &self.answer {
            Answer::Class(names) => names.clone(),
            Answer::Number => vec!["number".to_string()],
        };
        let id2label: Map<String, Value> =
            (0..).zip(&names).map(|(id, name): (u32, _)| (id.to_string(), json!(name))).collect();
        let label2id: Map<String, Value> =
            (0..).zip(&names).map(|(id, name): (u32, _)| (name.clone(), json!(id))).collect();
        let problem = match self.answer {
            Answer::Class(_) => "single_label_classification",
            Answer::Number => "regression",
        };
        let activation = match self.variant.gelu {
            Gelu::Exact => "gelu",
            Gelu::Tanh => "gelu_new",
        };
        let config = json!({
            "architectures": ["BertForSequenceClassification"],
            "model_type": "bert",
            "hidden_size": shape.hidden,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "intermediate_size": shape.intermediate,
            "vocab_size": shape.vocabulary,
            "max_position_embeddings": shape.positions,
            "type_vocab_size": 2,
            "hidden_act": activation,
            "layer_norm_eps": self.variant.norm_epsilon,
            "problem_type": problem,
            "id2label": id2label,
            "label2id": label2id,
        });
        format!("{config:#}\n")
    }
}

impl Stored {
    /// What it has otherwise than BERT.
    fn variant(&self, family: Family) -> Result<Variant, (&'static str, &'static str, String)> {
        let albert = family == Family::Albert;
        // In files of Hugging Face's since 2020, where nothing is said ALBERT has the near one.
        let gelu = match self.hidden_act.as_deref() {
            None if albert => Gelu::Tanh,
            None | Some("gelu" | "gelu_python") => Gelu::Exact,
            Some("gelu_new" | "gelu_pytorch_tanh") => Gelu::Tanh,
            Some(other) => return Err(("hidden_act", "gelu, gelu_new or gelu_pytorch_tanh", other.into())),
        };
        if self.others.get("is_decoder") == Some(&Value::Bool(true)) {
            return Err(("is_decoder", "false: each token sees all others here", "true".into()));
        }
        // RoBERTa's positions count from the padding's id on: [`ROBERTA_SKIPPED`].
        let padding = self.others.get("pad_token_id").filter(|_| family == Family::Roberta);
        if let Some(other) = padding.filter(|id| **id != 1) {
            return Err(("pad_token_id", "1, behind which positions begin", other.to_string()));
        }
        if let Some(other) = self.position_embedding_type.as_ref().filter(|kind| *kind != "absolute") {
            return Err(("position_embedding_type", "absolute", other.clone()));
        }
        for (field, groups) in [
            ("num_hidden_groups", self.num_hidden_groups),
            ("inner_group_num", self.inner_group_num),
        ] {
            if let Some(groups) = groups.filter(|groups| albert && *groups != 1) {
                return Err((field, "1, as in all published ALBERTs", groups.to_string()));
            }
        }
        if let Some(epsilon) = self.layer_norm_eps.filter(|epsilon| *epsilon <= 0.0) {
            return Err(("layer_norm_eps", "above 0", epsilon.to_string()));
        }
        Ok(Variant {
            // DistilBERT's is no setting, whatever its file says.
            norm_epsilon: match family {
                Family::DistilBert => LAYER_NORM_EPSILON,
                Family::DebertaV2 => self.layer_norm_eps.unwrap_or(DEBERTA_NORM_EPSILON),
                Family::Bert | Family::Roberta | Family::Albert => self.layer_norm_eps.unwrap_or(LAYER_NORM_EPSILON),
            },
            gelu,
            // What `AlbertConfig` has where nothing is said.
            embedding: albert.then(|| self.embedding_size.unwrap_or(128)),
            one_layer: albert,
            relative: match family {
                Family::DebertaV2 => Some(self.distances()?),
                Family::Bert | Family::DistilBert | Family::Roberta | Family::Albert => None,
            },
        })
    }

    /// How a DeBERTa tells distances apart. What version 3 has otherwise than this is refused.
    fn distances(&self) -> Result<Distances, (&'static str, &'static str, String)> {
        let text = |said: &Value| said.as_str().map_or_else(|| said.to_string(), str::to_owned);
        for (field, must, where_nothing_is_said) in [
            ("relative_attention", "true", false),
            ("share_att_key", "true", false),
            ("norm_rel_ebd", "layer_norm", false),
            ("position_biased_input", "false", false),
            ("type_vocab_size", "0", true),
            ("conv_kernel_size", "0", true),
            ("pooler_hidden_act", "gelu", true),
        ] {
            match self.others.get(field).map(text) {
                Some(got) if got != must => return Err((field, must, got)),
                None if !where_nothing_is_said => return Err((field, must, "nothing".into())),
                _ => {}
            }
        }
        // A list, or text with strokes between.
        let kinds = self.others.get("pos_att_type").map(text).unwrap_or_default();
        if !["c2p", "p2c"].iter().all(|kind| kinds.contains(kind)) || kinds.contains("p2p") {
            return Err(("pos_att_type", "c2p and p2c", kinds));
        }
        if let Some(width) = self.embedding_size.filter(|width| *width != self.hidden_size) {
            return Err(("embedding_size", "hidden_size for a DeBERTa", width.to_string()));
        }
        let buckets = self.position_buckets.unwrap_or(-1);
        let longest = self
            .max_relative_positions
            .filter(|longest| *longest > 0)
            .unwrap_or(self.max_position_embeddings.into());
        match (u32::try_from(buckets), u32::try_from(longest)) {
            (Ok(buckets @ 4..), Ok(longest)) if longest > buckets / 2 + 1 => Ok(Distances { buckets, longest }),
            _ => Err((
                "position_buckets",
                "at least 4, half of them fewer than the longest distance",
                format!("{buckets}, with {longest}"),
            )),
        }
    }

    /// Hugging Face's rules: `problem_type` where there is one, else one output is a number; two classes where nothing
    /// is said.
    fn answer(&self) -> Result<Answer, (&'static str, &'static str, String)> {
        let outputs = match (&self.id2label, self.num_labels) {
            (Some(names), _) => names.len(),
            (None, count) => count.unwrap_or(2),
        };
        match (self.problem_type.as_deref(), outputs) {
            (None | Some("regression"), 1) => return Ok(Answer::Number),
            (None | Some("single_label_classification"), 2..) => {}
            (Some("regression"), _) => return Err(("id2label", "one output for a regression", outputs.to_string())),
            (None | Some("single_label_classification"), _) => {
                return Err(("id2label", "at least 2 classes", outputs.to_string()));
            }
            (Some(other), _) => {
                return Err((
                    "problem_type",
                    "single_label_classification or regression",
                    other.into(),
                ));
            }
        }
        let Some(names) = &self.id2label else {
            return Ok(Answer::Class((0..outputs).map(|id| format!("LABEL_{id}")).collect()));
        };
        let name = |id: usize| {
            let name = names.get(&id.to_string()).and_then(Value::as_str);
            name.map(str::to_owned)
                .ok_or(("id2label", "a name for each class from 0 on", format!("none for {id}")))
        };
        Ok(Answer::Class((0..outputs).map(name).collect::<Result<_, _>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ClassifierConfig, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        std::fs::write(&path, text).unwrap();
        ClassifierConfig::read(&path, "m")
            .map_err(|error| error.to_string().split_once("config.json: ").unwrap().1.into())
    }

    const DISTILBERT_SST_2: &str = r#"{
        "activation": "gelu", "architectures": ["DistilBertForSequenceClassification"], "dim": 768, "hidden_dim": 3072,
        "id2label": {"0": "NEGATIVE", "1": "POSITIVE"}, "max_position_embeddings": 512, "model_type": "distilbert",
        "n_heads": 12, "n_layers": 6, "sinusoidal_pos_embds": false, "vocab_size": 30522
    }"#;

    #[test]
    fn a_published_config_is_read() {
        let config = read(DISTILBERT_SST_2).unwrap();
        assert_eq!(
            (config.shape.layers, config.shape.hidden, config.shape.vocabulary),
            (6, 768, 30522)
        );
        assert_eq!(config.answer, Answer::Class(vec!["NEGATIVE".into(), "POSITIVE".into()]));
        // Hugging Face's DistilBERT has one whatever its file says.
        let other = read(&DISTILBERT_SST_2.replace("\"n_heads\"", "\"layer_norm_eps\": 1e-3, \"n_heads\"")).unwrap();
        assert_eq!(other.variant.norm_epsilon, 1e-12);
        // An encoder's head is left alone, whatever it answers.
        let several = DISTILBERT_SST_2.replace(
            "\"n_heads\"",
            "\"problem_type\": \"multi_label_classification\", \"n_heads\"",
        );
        assert!(read(&several).unwrap_err().starts_with("problem_type: must be"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        std::fs::write(&path, several).unwrap();
        assert_eq!(ClassifierConfig::read_encoder(&path, "m").unwrap().shape, config.shape);
    }

    /// As `albert/albert-base-v2` and `microsoft/deberta-v3-base` say it.
    const ALBERT_BASE: &str = r#"{
        "architectures": ["AlbertForMaskedLM"], "embedding_size": 128, "hidden_act": "gelu_new", "hidden_size": 768, "inner_group_num": 1,
        "intermediate_size": 3072, "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "albert",
        "num_attention_heads": 12, "num_hidden_groups": 1, "num_hidden_layers": 12, "type_vocab_size": 2, "vocab_size": 30000
    }"#;
    const DEBERTA_V3_BASE: &str = r#"{
        "model_type": "deberta-v2", "hidden_act": "gelu", "hidden_size": 768, "intermediate_size": 3072, "max_position_embeddings": 512,
        "relative_attention": true, "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": true,
        "pos_att_type": "p2c|c2p", "layer_norm_eps": 1e-7, "max_relative_positions": -1, "position_biased_input": false,
        "num_attention_heads": 12, "num_hidden_layers": 12, "type_vocab_size": 0, "vocab_size": 128100
    }"#;

    #[test]
    fn variants_are_read_and_others_of_their_families_refused() {
        let albert = read(ALBERT_BASE).unwrap();
        assert_eq!((albert.shape.layers, albert.shape.hidden), (12, 768));
        let expected = Variant {
            gelu: Gelu::Tanh,
            embedding: Some(128),
            one_layer: true,
            ..Variant::BERT
        };
        assert_eq!(albert.variant, expected);
        let deberta = read(DEBERTA_V3_BASE).unwrap();
        assert_eq!((deberta.shape.vocabulary, deberta.shape.positions), (128_100, 512));
        let expected = Variant {
            norm_epsilon: 1e-7,
            relative: Some(Distances {
                buckets: 256,
                longest: 512,
            }),
            ..Variant::BERT
        };
        assert_eq!(deberta.variant, expected);
        for (text, from, to, message) in [
            (
                ALBERT_BASE,
                r#""num_hidden_groups": 1"#,
                r#""num_hidden_groups": 2"#,
                "num_hidden_groups: must be 1, as in all published ALBERTs, got 2",
            ),
            (
                ALBERT_BASE,
                "gelu_new",
                "relu",
                "hidden_act: must be gelu, gelu_new or gelu_pytorch_tanh, got relu",
            ),
            (
                DEBERTA_V3_BASE,
                r#""p2c|c2p""#,
                r#"["c2p"]"#,
                r#"pos_att_type: must be c2p and p2c, got ["c2p"]"#,
            ),
            (
                DEBERTA_V3_BASE,
                r#""type_vocab_size": 0"#,
                r#""type_vocab_size": 0, "conv_kernel_size": 3"#,
                "conv_kernel_size: must be 0, got 3",
            ),
            (
                DEBERTA_V3_BASE,
                r#""share_att_key": true,"#,
                "",
                "share_att_key: must be true, got nothing",
            ),
            (
                DEBERTA_V3_BASE,
                r#""position_buckets": 256"#,
                r#""position_buckets": -1"#,
                "position_buckets: must be at least 4, half of them fewer than the longest distance, got -1, with 512",
            ),
        ] {
            assert!(text.contains(from), "{from}");
            assert_eq!(read(&text.replace(from, to)).unwrap_err(), message);
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let shape = ModelShape {
            name: "m".into(),
            ..ModelShape::builtin("tiny").unwrap()
        };
        for answer in [
            Answer::Class(vec!["no".into(), "yes".into(), "why".into()]),
            Answer::Number,
        ] {
            let mut config = ClassifierConfig::new(&shape, answer).unwrap();
            assert_eq!(read(&config.to_json()).unwrap(), config);
            config.variant.gelu = Gelu::Tanh;
            assert_eq!(read(&config.to_json()).unwrap(), config);
        }
    }

    #[test]
    fn what_is_not_computed_is_refused() {
        for (from, to, message) in [
            (
                r#""0": "NEGATIVE", "#,
                "",
                "id2label: must be at least 2 classes, got 1",
            ),
            (
                r#""0": "NEGATIVE""#,
                r#""2": "NEGATIVE""#,
                "id2label: must be a name for each class from 0 on, got none for 0",
            ),
            (
                r#""gelu""#,
                r#""relu""#,
                "hidden_act: must be gelu, gelu_new or gelu_pytorch_tanh, got relu",
            ),
            (
                r#""n_heads""#,
                r#""is_decoder": true, "n_heads""#,
                "is_decoder: must be false: each token sees all others here, got true",
            ),
            (
                r#""n_heads""#,
                r#""layer_norm_eps": -1, "n_heads""#,
                "layer_norm_eps: must be above 0, got -1",
            ),
            (
                r#""distilbert""#,
                r#""deberta""#,
                "model_type: must be bert, distilbert, roberta, xlm-roberta, camembert, albert or deberta-v2, got \
                 deberta",
            ),
            (
                r#""distilbert""#,
                r#""roberta", "pad_token_id": 0"#,
                "pad_token_id: must be 1, behind which positions begin, got 0",
            ),
            (
                r#""n_heads""#,
                r#""problem_type": "multi_label_classification", "n_heads""#,
                "problem_type: must be single_label_classification or regression, got multi_label_classification",
            ),
        ] {
            let mut text = DISTILBERT_SST_2.replace(from, to);
            if to.is_empty() {
                text = text.replace(
                    "\"n_heads\"",
                    "\"problem_type\": \"single_label_classification\", \"n_heads\"",
                );
            }
            assert_eq!(read(&text).unwrap_err(), message);
        }
    }
}
