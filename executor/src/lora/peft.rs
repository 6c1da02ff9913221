//! Low-rank matrices in files: PEFT's `adapter_config.json` and `adapter_model.safetensors`.

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::tensor::TensorView;
use serde::Deserialize;
use serde_json::Value;
use tch::{Device, Kind, Tensor};
use tenantry_profiles::did_you_mean;

use super::shape::{Input, LoraShape};
use crate::error::ExecutorError;
use crate::tensors_file::{map, numbers, parse};

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";
/// What PEFT puts before the model's own names.
const PREFIX: &str = "base_model.model.";

/// Reads a folder that PEFT saved an adapter in, into a flat block of 32-bit numbers in host memory,
/// `[shape.parameters()]`, for [`LoraStore::set`](super::LoraStore::set). Projections that it does not adapt are zeros,
/// and so is what its rank leaves of the shape's.
///
/// # Errors
/// Files that cannot be read, a variant of LoRA that is not computed here, a rank above the shape's, or tensors that
/// are missing, unknown, or of another shape than the decoder's.
pub fn read_lora(folder: &Path, shape: &LoraShape) -> Result<Tensor, ExecutorError> {
    let config = Config::read(&folder.join(CONFIG), shape)?;
    let path = folder.join(WEIGHTS);
    let bytes = map(&path)?;
    let tensors = parse(&path, &bytes)?;
    let mut stored: BTreeMap<String, TensorView<'_>> =
        tensors.iter().map(|(name, view)| (name.to_string(), view)).collect();

    let block = Tensor::f_zeros([1, shape.parameters() as i64], (Kind::Float, Device::Cpu))?;
    let wrong = |tensor: &str, must: String, got: String| ExecutorError::checkpoint(&path, tensor, must, got);
    let mut take = |name: &str, size: [usize; 2]| -> Result<Tensor, ExecutorError> {
        let must = format!("a tensor {size:?}");
        let Some(tensor) = stored.remove(name) else {
            return Err(wrong(name, must, "no such tensor".into()));
        };
        if tensor.shape() != size {
            return Err(wrong(name, must, format!("{:?}", tensor.shape())));
        }
        Ok(numbers(&path, name, &tensor)?.f_to_kind(Kind::Float)?)
    };
    let (own, rank) = (config.r as usize, i64::from(shape.rank));
    for module in modules(shape) {
        if !config.adapts(&module.path) {
            continue;
        }
        let (layers, views) = (shape.layer_blocks(module.layer..module.layer + 1), shape);
        let layer = block.f_narrow(1, layers.start as i64, layers.len() as i64)?;
        let views = views.views(&layer, module.input)?;
        let name = |matrix: char| format!("{PREFIX}{}.lora_{matrix}.weight", module.path);
        let down = take(&name('A'), [own, shape.width(module.input) as usize])?;
        let up = take(&name('B'), [module.width as usize, own])?;
        views
            .down
            .f_narrow(2, module.index as i64 * rank, own as i64)?
            .f_select(0, 0)?
            .f_copy_(&down.f_transpose(0, 1)?)?;
        views.ups[module.index]
            .f_narrow(1, 0, own as i64)?
            .f_select(0, 0)?
            .f_copy_(&up.f_transpose(0, 1)?.f_mul_scalar(config.scale())?)?;
    }
    match stored.into_keys().next() {
        None => Ok(block.f_view([-1])?),
        Some(name) => {
            let got = "a tensor that target_modules does not ask for, or of no dense projection of the decoder";
            Err(wrong(&name, "lora_A or lora_B of a target module".into(), got.into()))
        }
    }
}

/// One dense projection of one layer.
struct Module {
    /// Its name in the model.
    path: String,
    layer: usize,
    input: Input,
    /// Which of the input's projections.
    index: usize,
    width: i64,
}

fn modules(shape: &LoraShape) -> Vec<Module> {
    let layers = if shape.gated {
        "model.layers"
    } else {
        "model.decoder.layers"
    };
    let mut modules = Vec::new();
    for layer in 0..shape.layers as usize {
        for input in Input::ALL {
            for (index, projection) in shape.projections(input).into_iter().enumerate() {
                modules.push(Module {
                    path: format!("{layers}.{layer}.{}", projection.module),
                    layer,
                    input,
                    index,
                    width: projection.width,
                });
            }
        }
    }
    modules
}

/// The fields that say what is computed. Others are about training.
#[derive(Deserialize)]
struct Config {
    peft_type: String,
    r: u32,
    lora_alpha: f64,
    target_modules: Targets,
    use_rslora: Option<bool>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Targets {
    Names(Vec<String>),
    Pattern(String),
}

/// All linear layers but the output matrix.
const ALL_LINEAR: &str = "all-linear";

/// Fields that must be as if they were absent: false, null or empty. Each is a variant that computes something else.
const VARIANTS: [&str; 16] = [
    "use_dora",
    "use_qalora",
    "use_bdlora",
    "lora_bias",
    "modules_to_save",
    "rank_pattern",
    "alpha_pattern",
    "layers_to_transform",
    "layer_replication",
    "exclude_modules",
    "target_parameters",
    "trainable_token_indices",
    "alora_invocation_tokens",
    "arrow_config",
    "megatron_config",
    "kasa_config",
];

/// Ways to begin training that change the backbone's weights, which the adapter's file does not hold.
const CHANGE_THE_BACKBONE: [&str; 5] = ["pissa", "olora", "corda", "loftq", "lora_ga"];

impl Config {
    fn read(path: &Path, shape: &LoraShape) -> Result<Config, ExecutorError> {
        let text = std::fs::read_to_string(path).map_err(ExecutorError::file(path))?;
        let wrong = |field: &str, must: String, got: String| ExecutorError::checkpoint(path, field, must, got);
        let unfit = |error: serde_json::Error| wrong("config", "that of a LoRA adapter".into(), error.to_string());
        let fields: Value = serde_json::from_str(&text).map_err(unfit)?;
        let config = Config::deserialize(&fields).map_err(unfit)?;
        if config.peft_type != "LORA" {
            return Err(wrong("peft_type", "LORA".into(), config.peft_type));
        }
        if !(1..=shape.rank).contains(&config.r) {
            let must = format!("from 1 to {}, the rank of the slots", shape.rank);
            return Err(wrong("r", must, config.r.to_string()));
        }
        for field in VARIANTS {
            let value = &fields[field];
            let absent = match value {
                Value::Null | Value::Bool(false) => true,
                Value::Array(items) => items.is_empty(),
                Value::Object(entries) => entries.is_empty(),
                _ => false,
            };
            if !absent {
                return Err(wrong(
                    field,
                    "off, as that variant is not computed".into(),
                    value.to_string(),
                ));
            }
        }
        if !matches!(&fields["bias"], Value::Null) && fields["bias"] != "none" {
            return Err(wrong("bias", "none".into(), fields["bias"].to_string()));
        }
        if let Value::String(start) = &fields["init_lora_weights"]
            && CHANGE_THE_BACKBONE.iter().any(|name| start.to_lowercase().starts_with(name))
        {
            let must = "one that leaves the backbone's weights alone (convert the adapter with PEFT)";
            return Err(wrong("init_lora_weights", must.into(), start.clone()));
        }
        config.check_targets(shape, &wrong)?;
        Ok(config)
    }

    fn check_targets(
        &self,
        shape: &LoraShape,
        wrong: &dyn Fn(&str, String, String) -> ExecutorError,
    ) -> Result<(), ExecutorError> {
        let projections = Input::ALL.into_iter().flat_map(|input| shape.projections(input));
        let last = |path: &'static str| path.rsplit('.').next().expect("a path has a last part");
        let known: Vec<&str> = projections.map(|projection| last(projection.module)).collect();
        let must = format!("some of {}", known.join(", "));
        match &self.target_modules {
            Targets::Pattern(pattern) if pattern.eq_ignore_ascii_case(ALL_LINEAR) => Ok(()),
            Targets::Pattern(pattern) => {
                let got = format!("the pattern {pattern:?} (list the modules instead)");
                Err(wrong("target_modules", must, got))
            }
            Targets::Names(names) if names.is_empty() => Err(wrong("target_modules", must, "none".into())),
            Targets::Names(names) => {
                // As PEFT: lists are of several families' names, of which a model has some.
                let modules = modules(shape);
                let is_known = |name: &String| modules.iter().any(|module| is_called(&module.path, name));
                if names.iter().any(is_known) {
                    return Ok(());
                }
                let name = &names[0];
                let hint = did_you_mean(name, known.iter().copied());
                Err(wrong("target_modules", must, format!("{}{hint}", names.join(", "))))
            }
        }
    }

    /// Whether a module is among the targets.
    fn adapts(&self, path: &str) -> bool {
        match &self.target_modules {
            Targets::Names(names) => names.iter().any(|name| is_called(path, name)),
            Targets::Pattern(_) => true,
        }
    }

    /// What the product is multiplied by; by the root of the rank for rank-stabilised LoRA (Kalajdzievski, 2023).
    fn scale(&self) -> f64 {
        let rank = f64::from(self.r);
        self.lora_alpha
            / if self.use_rslora == Some(true) {
                rank.sqrt()
            } else {
                rank
            }
    }
}

/// Whether a module has that name, or one that ends with it.
fn is_called(path: &str, name: &str) -> bool {
    path == name || path.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use safetensors::Dtype;
    use serde_json::json;
    use tenantry_profiles::ModelShape;

    use super::*;

    fn shape() -> LoraShape {
        LoraShape::new(&ModelShape::builtin("tiny-opt").unwrap(), 8).unwrap()
    }

    /// An adapter of rank 2 on queries and the feed-forward's last matrix, all ones, with some fields and tensors
    /// changed.
    fn read(changes: Value, change: impl Fn(&str) -> Option<(String, [usize; 2])>) -> Result<Tensor, String> {
        let folder = tempfile::tempdir().unwrap();
        let mut config = json!({"peft_type": "LORA", "r": 2, "lora_alpha": 6, "target_modules": ["q_proj", "fc2"],
            "bias": "none", "rank_pattern": {}, "use_dora": false, "lora_dropout": 0.1});
        config.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        std::fs::write(folder.path().join(CONFIG), config.to_string()).unwrap();
        let ones: Vec<u8> = [1f32; 1024].iter().flat_map(|one| one.to_le_bytes()).collect();
        let mut tensors = Vec::new();
        for layer in 0..2 {
            for (module, inputs) in [("self_attn.q_proj", 128), ("fc2", 512)] {
                for (matrix, size) in [("A", [2, inputs]), ("B", [128, 2])] {
                    let name = format!("{PREFIX}model.decoder.layers.{layer}.{module}.lora_{matrix}.weight");
                    let (name, size) = change(&name).unwrap_or((name, size));
                    let data = &ones[..4 * size[0] * size[1]];
                    tensors.push((name, TensorView::new(Dtype::F32, size.to_vec(), data).unwrap()));
                }
            }
        }
        safetensors::serialize_to_file(tensors, None, &folder.path().join(WEIGHTS)).unwrap();
        let tail = |error: ExecutorError| {
            let text = error.to_string();
            text.split_once("adapter_").expect("the file is named").1.to_string()
        };
        read_lora(folder.path(), &shape()).map_err(tail)
    }

    fn unchanged(_: &str) -> Option<(String, [usize; 2])> {
        None
    }

    #[test]
    fn what_is_not_adapted_is_zero_and_the_scale_is_in_the_second_matrix() {
        for (fields, scale) in [(json!({}), 3.0), (json!({"use_rslora": true}), 6.0 / 2f64.sqrt())] {
            let block = read(fields, unchanged).unwrap();
            // Two layers of (queries' A and B, the last matrix' A and B), all of rank 2.
            let sum = 2.0 * 2.0 * (128.0 + 512.0 + 2.0 * 128.0 * scale);
            assert!((block.sum(Kind::Double).double_value(&[]) - sum).abs() < 1e-2);
            let layer = block.view([2, -1]).narrow(0, 0, 1);
            let views = shape().views(&layer, Input::Attention).unwrap();
            assert_eq!(views.down.narrow(2, 2, 22).abs().max().double_value(&[]), 0.0);
            assert!((views.ups[0].double_value(&[0, 1, 5]) - scale).abs() < 1e-6);
        }
    }

    #[test]
    fn names_may_be_longer_or_all() {
        let longer = json!({"target_modules": ["self_attn.q_proj", "model.decoder.layers.0.fc2", "layers.1.fc2"]});
        // Names of other families' modules are passed over, and no matrix here lies the other way round.
        let of_several = json!({"target_modules": ["query_key_value", "q_proj", "fc2"], "fan_in_fan_out": true});
        for alike in [longer, of_several] {
            let read_alike = read(alike, unchanged).unwrap();
            assert!(read_alike.equal(&read(json!({}), unchanged).unwrap()));
        }
        let missing = read(json!({"target_modules": "all-linear"}), unchanged).unwrap_err();
        let message = "model.safetensors: base_model.model.model.decoder.layers.0.self_attn.k_proj.lora_A.weight: \
                       must be a tensor [2, 128], got no such tensor";
        assert_eq!(missing, message);
    }

    #[test]
    fn what_is_not_computed_is_refused_by_its_field() {
        let known = "some of q_proj, k_proj, v_proj, out_proj, fc1, fc2";
        for (fields, message) in [
            (
                json!({"peft_type": "IA3"}),
                "config.json: peft_type: must be LORA, got IA3".to_string(),
            ),
            (
                json!({"r": 16}),
                "config.json: r: must be from 1 to 8, the rank of the slots, got 16".into(),
            ),
            (
                json!({"use_dora": true}),
                "config.json: use_dora: must be off, as that variant is not computed, got true".into(),
            ),
            (
                json!({"rank_pattern": {"fc2": 4}}),
                "config.json: rank_pattern: must be off, as that variant is not computed, got {\"fc2\":4}".into(),
            ),
            (
                json!({"bias": "all"}),
                "config.json: bias: must be none, got \"all\"".into(),
            ),
            (
                json!({"init_lora_weights": "pissa_niter_16"}),
                "config.json: init_lora_weights: must be one that leaves the backbone's weights alone \
                 (convert the adapter with PEFT), got pissa_niter_16"
                    .into(),
            ),
            (
                json!({"init_lora_weights": "OLoRA"}),
                "config.json: init_lora_weights: must be one that leaves the backbone's weights alone \
                 (convert the adapter with PEFT), got OLoRA"
                    .into(),
            ),
            (
                json!({"target_modules": ["q_prj"]}),
                format!("config.json: target_modules: must be {known}, got q_prj; did you mean q_proj?"),
            ),
            (
                json!({"target_modules": ".*proj"}),
                format!(
                    "config.json: target_modules: must be {known}, got the pattern \".*proj\" (list the modules \
                     instead)"
                ),
            ),
        ] {
            assert_eq!(read(fields, unchanged).unwrap_err(), message);
        }
        let error = read(json!({"lora_alpha": null}), unchanged).unwrap_err();
        assert!(
            error.starts_with("config.json: config: must be that of a LoRA adapter, got "),
            "{error}"
        );
    }

    #[test]
    fn tensors_that_do_not_fit_are_refused_by_name() {
        let first = format!("{PREFIX}model.decoder.layers.0.fc2.lora_A.weight");
        let longer = |name: &str| (name == first).then(|| (name.to_string(), [2, 511]));
        let error = read(json!({}), longer).unwrap_err();
        assert_eq!(
            error,
            format!("model.safetensors: {first}: must be a tensor [2, 512], got [2, 511]")
        );
        let error = read(json!({"target_modules": ["q_proj"]}), unchanged).unwrap_err();
        assert!(
            error.starts_with(&format!(
                "model.safetensors: {first}: must be lora_A or lora_B of a target"
            )),
            "{error}"
        );
    }
}
