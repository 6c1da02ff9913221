//! What a decoder's shape leaves open, and both from Hugging Face's `config.json`.

use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tenantry_profiles::{ModelKind, ModelShape, of_checkpoint};

use super::layout;
use super::rope::{Rope, Written};
use crate::error::ExecutorError;

/// A decoder's shape, with what checkpoints of one shape differ in.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderConfig {
    /// The shape; `gated` is Llama's block, otherwise it is OPT's.
    pub shape: ModelShape,
    /// Added to the variance by norms.
    pub norm_epsilon: f64,
    /// How fast rotary positions turn; OPT has none.
    pub rope: Rope,
}

const CONFIG: &str = "config.json";
/// Llama 2's and OPT's.
const NORM_EPSILON: f64 = 1e-5;

impl DecoderConfig {
    /// A shape with Llama 2's or OPT's numbers.
    ///
    /// # Errors
    /// A shape that is no Llama- or OPT-like decoder's.
    pub fn new(shape: &ModelShape) -> Result<DecoderConfig, ExecutorError> {
        layout::check(shape)?;
        Ok(DecoderConfig {
            shape: shape.clone(),
            norm_epsilon: NORM_EPSILON,
            rope: Rope::default(),
        })
    }

    /// Reads a `config.json` of a `LlamaForCausalLM` or `OPTForCausalLM`; `name` is what the model is to be called.
    ///
    /// # Errors
    /// A file that cannot be read, another architecture, or a variant of these two that is not computed here.
    pub fn read(path: &Path, name: &str) -> Result<DecoderConfig, ExecutorError> {
        let text = text_of(path)?;
        let wrong = |field: &str, must: &str, got: String| ExecutorError::checkpoint(path, field, must, got);
        let kind: Kind = parsed(path, &text)?;
        let config = match kind.model_type.as_str() {
            "llama" => parsed::<Llama>(path, &text)?.config(name, &wrong)?,
            "opt" => parsed::<Opt>(path, &text)?.config(name, &wrong)?,
            other => return Err(wrong("model_type", "llama or opt", other.into())),
        };
        layout::check(&config.shape)?;
        Ok(config)
    }
}

/// Whether a checkpoint's output matrix is that of its token embeddings, as its `config.json` says; false where that
/// says nothing, as in Hugging Face's Llama. None where there is no such file.
///
/// # Errors
/// A file that cannot be read.
pub(super) fn is_tied(checkpoint: &Path) -> Result<Option<bool>, ExecutorError> {
    let path = of_checkpoint(checkpoint, CONFIG);
    if !path.exists() {
        return Ok(None);
    }
    let Tied { tie_word_embeddings } = parsed(&path, &text_of(&path)?)?;
    Ok(Some(tie_word_embeddings.unwrap_or(false)))
}

fn text_of(path: &Path) -> Result<String, ExecutorError> {
    std::fs::read_to_string(path).map_err(ExecutorError::file(path))
}

fn parsed<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, ExecutorError> {
    let must = "that of a Llama or OPT checkpoint";
    serde_json::from_str(text).map_err(|error| ExecutorError::checkpoint(path, "config", must, error))
}

#[derive(Deserialize)]
struct Tied {
    tie_word_embeddings: Option<bool>,
}

type Wrong<'a> = &'a dyn Fn(&str, &str, String) -> ExecutorError;

/// Refuses a field that says anything but what is computed here. What is absent is Hugging Face's default, which is
/// computed.
fn only<T: PartialEq + std::fmt::Debug>(
    field: &str,
    must: T,
    got: &Option<T>,
    wrong: Wrong<'_>,
) -> Result<(), ExecutorError> {
    match got {
        Some(got) if *got != must => Err(wrong(field, &format!("{must:?}"), format!("{got:?}"))),
        _ => Ok(()),
    }
}

#[derive(Deserialize)]
struct Kind {
    model_type: String,
}

#[derive(Deserialize)]
struct Llama {
    hidden_size: u32,
    intermediate_size: u32,
    num_hidden_layers: u32,
    num_attention_heads: u32,
    num_key_value_heads: Option<u32>,
    vocab_size: u32,
    max_position_embeddings: u32,
    rms_norm_eps: f64,
    head_dim: Option<u32>,
    hidden_act: Option<String>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    #[serde(flatten)]
    rope: Written,
}

impl Llama {
    fn config(self, name: &str, wrong: Wrong<'_>) -> Result<DecoderConfig, ExecutorError> {
        only("hidden_act", "silu".to_string(), &self.hidden_act, wrong)?;
        only("attention_bias", false, &self.attention_bias, wrong)?;
        only("mlp_bias", false, &self.mlp_bias, wrong)?;
        if let Some(width) = self.hidden_size.checked_div(self.num_attention_heads) {
            only("head_dim", width, &self.head_dim, wrong)?;
        }
        if self.rms_norm_eps <= 0.0 {
            return Err(wrong("rms_norm_eps", "above 0", self.rms_norm_eps.to_string()));
        }
        let rope = self
            .rope
            .rope(self.max_position_embeddings)
            .map_err(|(field, must, got)| wrong(&field, &must, got))?;
        Ok(DecoderConfig {
            shape: ModelShape {
                name: name.into(),
                kind: ModelKind::Decoder,
                layers: self.num_hidden_layers,
                hidden: self.hidden_size,
                heads: self.num_attention_heads,
                kv_heads: self.num_key_value_heads.unwrap_or(self.num_attention_heads),
                intermediate: self.intermediate_size,
                gated: true,
                vocabulary: self.vocab_size,
                positions: self.max_position_embeddings,
            },
            norm_epsilon: self.rms_norm_eps,
            rope,
        })
    }
}

#[derive(Deserialize)]
struct Opt {
    hidden_size: u32,
    ffn_dim: u32,
    num_hidden_layers: u32,
    num_attention_heads: u32,
    vocab_size: u32,
    max_position_embeddings: u32,
    word_embed_proj_dim: Option<u32>,
    activation_function: Option<String>,
    do_layer_norm_before: Option<bool>,
    enable_bias: Option<bool>,
    layer_norm_elementwise_affine: Option<bool>,
    tie_word_embeddings: Option<bool>,
    #[serde(rename = "_remove_final_layer_norm")]
    remove_final_layer_norm: Option<bool>,
}

impl Opt {
    fn config(self, name: &str, wrong: Wrong<'_>) -> Result<DecoderConfig, ExecutorError> {
        only(
            "activation_function",
            "relu".to_string(),
            &self.activation_function,
            wrong,
        )?;
        only(
            "word_embed_proj_dim",
            self.hidden_size,
            &self.word_embed_proj_dim,
            wrong,
        )?;
        only("do_layer_norm_before", true, &self.do_layer_norm_before, wrong)?;
        only("enable_bias", true, &self.enable_bias, wrong)?;
        let affine = &self.layer_norm_elementwise_affine;
        only("layer_norm_elementwise_affine", true, affine, wrong)?;
        only("tie_word_embeddings", true, &self.tie_word_embeddings, wrong)?;
        only("_remove_final_layer_norm", false, &self.remove_final_layer_norm, wrong)?;
        Ok(DecoderConfig {
            shape: ModelShape {
                name: name.into(),
                kind: ModelKind::Decoder,
                layers: self.num_hidden_layers,
                hidden: self.hidden_size,
                heads: self.num_attention_heads,
                kv_heads: self.num_attention_heads,
                intermediate: self.ffn_dim,
                gated: false,
                vocabulary: self.vocab_size,
                positions: self.max_position_embeddings,
            },
            norm_epsilon: NORM_EPSILON,
            rope: Rope::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::rope::RopeScaling;
    use super::*;

    fn read(text: &str) -> Result<DecoderConfig, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        std::fs::write(&path, text).unwrap();
        DecoderConfig::read(&path, "m").map_err(|error| error.to_string().split_once("config.json: ").unwrap().1.into())
    }

    const LLAMA_2_7B: &str = r#"{
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "rope_scaling": null, "hidden_act": "silu"
    }"#;

    /// Llama 3.1's and 3.3's.
    const LLAMA_3: &str = r#""rope_scaling": {
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
        "rope_type": "llama3"
    }"#;

    const OPT_125M: &str = r#"{
        "model_type": "opt", "hidden_size": 768, "ffn_dim": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
        "vocab_size": 50272, "max_position_embeddings": 2048, "word_embed_proj_dim": 768, "do_layer_norm_before": true
    }"#;

    #[test]
    fn the_published_configs_are_the_built_in_shapes() {
        for (text, name) in [(LLAMA_2_7B, "llama-7b"), (OPT_125M, "opt-125m")] {
            let shape = ModelShape {
                name: "m".into(),
                ..ModelShape::builtin(name).unwrap()
            };
            assert_eq!(read(text).unwrap(), DecoderConfig::new(&shape).unwrap());
        }
    }

    #[test]
    fn both_places_of_the_rotary_base_are_read() {
        let old = LLAMA_2_7B.replace("\"rope_scaling\": null", "\"rope_theta\": 500000.0");
        let new = LLAMA_2_7B.replace(
            "\"rope_scaling\": null",
            "\"rope_parameters\": {\"rope_theta\": 500000.0}",
        );
        assert_eq!(read(&old).unwrap().rope.theta, 500_000.0);
        assert_eq!(read(&new), read(&old));
    }

    #[test]
    fn stretched_positions_are_read_in_both_places() {
        let old = LLAMA_2_7B.replace("\"rope_scaling\": null", LLAMA_3);
        let scaling = RopeScaling::Llama3 {
            factor: 8.0,
            low: 1.0,
            high: 4.0,
            first_context: 8_192.0,
        };
        assert_eq!(read(&old).unwrap().rope.scaling, scaling);
        assert_eq!(read(&old.replace("rope_scaling", "rope_parameters")), read(&old));
        // As version 4 of transformers saves it again, and with a base of its own, which counts before the model's.
        for (linear, theta) in [
            ("\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}", 1e4),
            (
                "\"rope_theta\": 5.0, \"rope_parameters\": {}, \"rope_scaling\": {\"type\": \"linear\", \"rope_type\": \
                 \"linear\", \"factor\": 2.5, \"rope_theta\": 7.0}",
                7.0,
            ),
        ] {
            let linear = read(&LLAMA_2_7B.replace("\"rope_scaling\": null", linear)).unwrap();
            let scaling = RopeScaling::Linear { factor: 2.5 };
            assert_eq!(linear.rope, Rope { theta, scaling });
        }
    }

    #[test]
    fn variants_that_are_not_computed_are_refused() {
        let scaled = |scaling| LLAMA_2_7B.replace("\"rope_scaling\": null", scaling);
        for (text, message) in [
            (
                scaled("\"rope_scaling\": {\"type\": \"longrope\", \"factor\": 8.0}"),
                "rope_scaling.rope_type: must be default, dynamic, linear or llama3, got longrope",
            ),
            (
                scaled("\"rope_scaling\": {\"type\": \"linear\"}"),
                "rope_scaling.factor: must be above 0, got nothing",
            ),
            (
                scaled("\"rope_parameters\": {\"rope_theta\": 1e4}, \"rope_scaling\": {\"rope_type\": \"yarn\"}"),
                "rope_scaling.rope_type: must be default, dynamic, linear or llama3, got yarn",
            ),
            (
                scaled("\"rope_scaling\": {\"factor\": 2.0}"),
                "rope_scaling.rope_type: must be default, dynamic, linear or llama3, got nothing beside a factor",
            ),
            (
                scaled("\"rope_parameters\": {\"rope_theta\": 1e4, \"partial_rotary_factor\": 0.5}"),
                "partial_rotary_factor: must be 1, got 0.5",
            ),
            (
                scaled(&LLAMA_3.replace("\"high_freq_factor\": 4.0", "\"high_freq_factor\": 1.0")),
                "rope_scaling.high_freq_factor: must be above 1, got 1",
            ),
            (
                scaled(&LLAMA_3.replace("rope_scaling", "rope_parameters").replace("8192", "-1")),
                "rope_parameters.original_max_position_embeddings: must be above 0, got -1",
            ),
            (
                LLAMA_2_7B.replace("silu", "gelu"),
                "hidden_act: must be \"silu\", got \"gelu\"",
            ),
            (
                LLAMA_2_7B.replace("\"rope_scaling\": null", "\"head_dim\": 256"),
                "head_dim: must be 128, got 256",
            ),
            (
                LLAMA_2_7B.replace("1e-05", "-1"),
                "rms_norm_eps: must be above 0, got -1",
            ),
            (
                LLAMA_2_7B.replace("\"rope_scaling\": null", "\"rope_theta\": 0"),
                "rope_theta: must be above 0, got 0",
            ),
            (
                LLAMA_2_7B.replace("\"llama\"", "\"bloom\""),
                "model_type: must be llama or opt, got bloom",
            ),
            (
                OPT_125M.replace("\"word_embed_proj_dim\": 768", "\"word_embed_proj_dim\": 512"),
                "word_embed_proj_dim: must be 768, got 512",
            ),
            (
                OPT_125M.replace("before\": true", "before\": false"),
                "do_layer_norm_before: must be true, got false",
            ),
        ] {
            assert_eq!(read(&text).unwrap_err(), message);
        }
        let error = read("{\"model_type\": \"opt\"}").unwrap_err();
        assert!(
            error.starts_with("config: must be that of a Llama or OPT checkpoint, got missing field"),
            "{error}"
        );
    }
}
