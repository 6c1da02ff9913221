//! Tasks handed in as files: what a file's header says of its task, and whether its tensors are those of the shared model's layers.
//!
//! The whole file is read by the machine that serves it; a simulation needs to know what it is and what it takes.

use std::path::Path;

use safetensors::{Dtype, SafeTensors};
use tenantry_core::command::TaskFault;
use tenantry_profiles::{ModelShape, PetKind};

/// The entries of the header that name the shared model and the kind.
const MODEL: &str = "shared_model";
const KIND: &str = "kind";

/// What a file's header says.
pub(crate) struct TaskHeader {
    pub model: String,
    pub kind: String,
    tensors: Vec<Tensor>,
}

struct Tensor {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
}

/// Why nothing is known of a file.
pub(crate) enum Unread {
    /// It cannot be read.
    Absent(std::io::Error),
    /// It is no task's.
    Foreign(String),
}

impl TaskHeader {
    pub fn read(path: &Path) -> Result<TaskHeader, Unread> {
        let bytes = std::fs::read(path).map_err(Unread::Absent)?;
        let (_, metadata) = SafeTensors::read_metadata(&bytes)
            .map_err(|error| Unread::Foreign(format!("header: must be that of a safetensors file, got {error}")))?;
        let entry = |key: &str| {
            let value = metadata
                .metadata()
                .as_ref()
                .and_then(|entries| entries.get(key))
                .cloned();
            value.ok_or_else(|| Unread::Foreign(format!("header: must be one with an entry {key}, got none")))
        };
        let tensor = |(name, info): (String, &safetensors::tensor::TensorInfo)| Tensor {
            name,
            dtype: info.dtype,
            shape: info.shape.clone(),
        };
        let mut tensors: Vec<Tensor> = metadata.tensors().into_iter().map(tensor).collect();
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(TaskHeader {
            model: entry(MODEL)?,
            kind: entry(KIND)?,
            tensors,
        })
    }

    /// Bytes that the parameters take on the card: numbers and indices of 4 bytes each. Nothing where they are bits, which are no
    /// resident form.
    pub fn resident_bytes(&self) -> Option<u64> {
        let bytes = |tensor: &Tensor| match tensor.dtype {
            Dtype::F32 | Dtype::I32 => Some(4 * tensor.shape.iter().map(|&size| size as u64).product::<u64>()),
            _ => None,
        };
        self.tensors.iter().map(bytes).sum()
    }

    /// The first tensor that does not fit the model's layers, with why.
    pub fn misfit(&self, model: &ModelShape) -> Option<(TaskFault, String)> {
        let mut layers = 0;
        for tensor in &self.tensors {
            let Some((layer, of, part)) = place(&tensor.name) else {
                let must = "layer.<i>.<linear or norm>.<part>";
                return Some((TaskFault::WrongShape, format!("{}: must be called {must}", tensor.name)));
            };
            layers = layers.max(layer + 1);
            if let Some(wanted) = wanted(of, part, model)
                && !fits(&tensor.shape, wanted)
            {
                let fault = match part {
                    "mask" => TaskFault::WrongMask,
                    _ => TaskFault::WrongShape,
                };
                let sizes = wanted.map(|size| size.map_or("any".to_owned(), |size| size.to_string()));
                let must = match sizes.as_slice() {
                    [one, none] if none == "0" => one.clone(),
                    both => both.join(", "),
                };
                let reason = format!("{}: must be of shape [{must}], got {:?}", tensor.name, tensor.shape);
                return Some((fault, reason));
            }
        }
        // LoRA need not be at every layer.
        let few = layers < model.layers && self.kind != PetKind::Lora.name();
        (few || layers > model.layers).then(|| {
            let reason = format!(
                "tensors: must be of {} layers, as {} has, got {layers}",
                model.layers, model.name
            );
            (TaskFault::WrongShape, reason)
        })
    }
}

/// A tensor's layer, what it belongs to there, and which part of it it is.
fn place(name: &str) -> Option<(u32, &str, &str)> {
    let (layer, rest) = name.strip_prefix("layer.")?.split_once('.')?;
    let (of, part) = rest.split_once('.')?;
    Some((layer.parse().ok()?, of, part))
}

/// The shape that a part must have: `None` for any size, and 0 as the second where there is no second dimension.
fn wanted(of: &str, part: &str, model: &ModelShape) -> Option<[Option<usize>; 2]> {
    let (hidden, intermediate) = (model.hidden as usize, model.intermediate as usize);
    let (outputs, inputs) = match of {
        "query_key_value" => (3 * hidden, hidden),
        "attention_output" => (hidden, hidden),
        "intermediate" => (intermediate, hidden),
        "output" => (hidden, intermediate),
        "attention_norm" | "output_norm" => (hidden, 0),
        _ => return None,
    };
    const NONE: Option<usize> = Some(0);
    Some(match part {
        "mask" => [Some(outputs), Some(inputs.div_ceil(8))],
        "bias" | "bias_delta" | "adapter.up_bias" => [Some(outputs), NONE],
        "delta.starts" => [Some(outputs + 1), NONE],
        "lora_a" => [None, Some(inputs)],
        "lora_b" => [Some(outputs), None],
        "adapter.down" => [Some(outputs), None],
        "adapter.up" => [None, Some(outputs)],
        _ => return None,
    })
}

fn fits(shape: &[usize], wanted: [Option<usize>; 2]) -> bool {
    let dimensions = if wanted[1] == Some(0) { 1 } else { 2 };
    let size_fits = |(found, wanted): (&usize, Option<usize>)| wanted.is_none_or(|wanted| wanted == *found);
    shape.len() == dimensions && shape.iter().zip(wanted).all(size_fits)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use safetensors::tensor::TensorView;

    use super::*;

    fn write(path: &Path, header: &[(&str, &str)], tensors: &[(&str, Dtype, &[usize])]) {
        let data: Vec<Vec<u8>> = tensors
            .iter()
            .map(|(_, dtype, shape)| vec![0; shape.iter().product::<usize>() * dtype.bitsize() / 8])
            .collect();
        let views = tensors
            .iter()
            .zip(&data)
            .map(|((name, dtype, shape), data)| (*name, TensorView::new(*dtype, shape.to_vec(), data).unwrap()));
        let header: HashMap<String, String> = header.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        std::fs::write(path, safetensors::serialize(views, Some(header)).unwrap()).unwrap();
    }

    fn tiny() -> ModelShape {
        ModelShape::builtin("tiny").unwrap()
    }

    /// Of a kind that is in every layer.
    fn header_of(tensors: &[(&str, Dtype, &[usize])]) -> TaskHeader {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("task.safetensors");
        write(&path, &[(MODEL, "tiny"), (KIND, "bit-fit")], tensors);
        TaskHeader::read(&path).unwrap_or_else(|_| panic!("it was just written"))
    }

    #[test]
    fn tensors_that_fit_say_what_they_take() {
        // `tiny` has two layers, 128 wide, 512 inside.
        let header = header_of(&[
            ("layer.0.intermediate.lora_a", Dtype::F32, &[8, 128]),
            ("layer.0.intermediate.lora_b", Dtype::F32, &[512, 8]),
            ("layer.1.output.lora_a", Dtype::F32, &[8, 512]),
            ("layer.1.output.lora_b", Dtype::F32, &[128, 8]),
        ]);
        assert_eq!((header.model.as_str(), header.kind.as_str()), ("tiny", "bit-fit"));
        assert_eq!(header.misfit(&tiny()), None);
        assert_eq!(header.resident_bytes(), Some(4 * 2 * 8 * (128 + 512)));
        let masks = header_of(&[("layer.0.output.mask", Dtype::U8, &[128, 64])]);
        assert_eq!(masks.resident_bytes(), None);
    }

    #[test]
    fn the_first_tensor_that_does_not_fit_is_named() {
        let refused = |tensors: &[(&str, Dtype, &[usize])]| header_of(tensors).misfit(&tiny()).unwrap();
        let (fault, reason) = refused(&[("layer.0.output.lora_a", Dtype::F32, &[8, 768])]);
        assert_eq!(fault, TaskFault::WrongShape);
        assert_eq!(
            reason,
            "layer.0.output.lora_a: must be of shape [any, 512], got [8, 768]"
        );
        let (fault, reason) = refused(&[("layer.0.output.mask", Dtype::U8, &[128, 63])]);
        assert_eq!(fault, TaskFault::WrongMask);
        assert!(
            reason.ends_with("must be of shape [128, 64], got [128, 63]"),
            "{reason}"
        );
        let (_, reason) = refused(&[("layer.0.output.bias", Dtype::F32, &[128, 1])]);
        assert!(reason.ends_with("must be of shape [128], got [128, 1]"), "{reason}");
        let (_, reason) = refused(&[("layer.0.output.bias", Dtype::F32, &[128])]);
        assert_eq!(reason, "tensors: must be of 2 layers, as tiny has, got 1");
        let partial = TaskHeader {
            kind: "lora".into(),
            ..header_of(&[("layer.0.output.lora_a", Dtype::F32, &[8, 512])])
        };
        assert_eq!(partial.misfit(&tiny()), None);
        let (_, reason) = refused(&[("layer.2.output.lora_a", Dtype::F32, &[8, 512])]);
        assert_eq!(reason, "tensors: must be of 2 layers, as tiny has, got 3");
        assert!(
            refused(&[("bias", Dtype::F32, &[1])])
                .1
                .starts_with("bias: must be called layer.")
        );
    }

    #[test]
    fn what_is_no_tasks_file_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("task");
        let why = || match TaskHeader::read(&path) {
            Err(Unread::Foreign(why)) => why,
            _ => panic!("it is no task's file"),
        };
        std::fs::write(&path, "text").unwrap();
        assert!(why().starts_with("header: must be that of a safetensors file"));
        write(&path, &[(MODEL, "tiny")], &[]);
        assert_eq!(why(), "header: must be one with an entry kind, got none");
        let absent = TaskHeader::read(&folder.path().join("nothing"));
        assert!(matches!(absent, Err(Unread::Absent(_))));
    }
}
