//! Weights in files: safetensors in Hugging Face's layout of BERT.

use std::collections::HashMap;
use std::path::Path;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use tch::{Device, Kind, Tensor};
use tenantry_profiles::{DType, ModelShape};

use super::layout::{Place, check, places};
use crate::device::kind;
use crate::error::ExecutorError;
use crate::tensors_file::{map, numbers_of, parse, write};

/// Below this name BERT lies in the checkpoint of a task's whole model.
pub(crate) const BERT: &str = "bert.";

/// Reads a checkpoint into a flat block in host memory, `[shape.parameters()]`, for
/// [`Encoder`](crate::model::Encoder). Other tensors in the file (a pooler, a classifier) are left alone.
///
/// # Errors
/// A file that cannot be read or is no safetensors file, a tensor that is missing or has another shape than `shape`
/// asks for.
pub fn read_checkpoint(path: &Path, shape: &ModelShape, dtype: DType) -> Result<Tensor, ExecutorError> {
    check(shape)?;
    read_places(path, BERT, &places(shape), dtype)
}

/// Reads tensors into the block in host memory that their places make up. Those of the encoder may lie below `prefix`,
/// as in the checkpoint of a task's whole model.
pub(crate) fn read_places(path: &Path, prefix: &str, places: &[Place], dtype: DType) -> Result<Tensor, ExecutorError> {
    let bytes = map(path)?;
    let tensors = parse(path, &bytes)?;

    let length: usize = places.iter().map(Place::length).sum();
    let block = Tensor::f_empty([length as i64], (kind(dtype), Device::Cpu))?;
    for place in places {
        let Some((name, found)) = find(&tensors, prefix, &place.name) else {
            return Err(ExecutorError::checkpoint(
                path,
                &place.name,
                format!("a tensor {:?}", place.shape),
                "no such tensor",
            ));
        };
        if found.shape() != place.shape {
            return Err(ExecutorError::checkpoint(
                path,
                &name,
                format!("of shape {:?}", place.shape),
                format!("{:?}", found.shape()),
            ));
        }
        let stored = numbers_of(path, &name, &found, block.kind())?.f_view([-1])?;
        block.f_narrow(0, place.offset as i64, place.length() as i64)?.f_copy_(&stored)?;
    }
    Ok(block)
}

/// The tensor of that name, with or without prefix, or by the names that the first checkpoints gave to norms; with the
/// name that it has in the file.
fn find<'a>(tensors: &SafeTensors<'a>, prefix: &str, name: &str) -> Option<(String, TensorView<'a>)> {
    let legacy = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta");
    let candidates = [
        name.to_string(),
        format!("{prefix}{name}"),
        legacy.clone(),
        format!("{prefix}{legacy}"),
    ];
    candidates.into_iter().find_map(|name| tensors.tensor(&name).ok().map(|found| (name, found)))
}

/// Writes a flat block of 32-bit parameters as a checkpoint that [`read_checkpoint`] reads.
///
/// # Errors
/// A shape that is no BERT-like encoder's, a block of another length, or a file that cannot be written.
pub fn write_checkpoint(path: &Path, shape: &ModelShape, block: &Tensor) -> Result<(), ExecutorError> {
    check(shape)?;
    write_places(path, &[(places(shape), block)])
}

/// Writes blocks of 32-bit parameters, each with the places of its tensors, into one file.
pub(crate) fn write_places(path: &Path, blocks: &[(Vec<Place>, &Tensor)]) -> Result<(), ExecutorError> {
    let mut bytes = Vec::new();
    for (places, block) in blocks {
        let length: usize = places.iter().map(Place::length).sum();
        let block = block.f_to(Device::Cpu)?;
        if block.size() != [length as i64] || block.kind() != Kind::Float {
            let got = format!("{:?} of {:?}", block.size(), block.kind());
            return Err(ExecutorError::input(
                "parameters to write",
                format!("{length} of Float"),
                got,
            ));
        }
        let mut copied = vec![0; 4 * length];
        block.f_copy_data_u8(&mut copied, length)?;
        bytes.push(copied);
    }
    let mut tensors: HashMap<String, TensorView<'_>> = HashMap::new();
    for ((places, _), bytes) in blocks.iter().zip(&bytes) {
        for place in places {
            let data = &bytes[4 * place.offset..4 * (place.offset + place.length())];
            let view = TensorView::new(Dtype::F32, place.shape.clone(), data);
            tensors.insert(
                place.name.clone(),
                view.expect("the slice is as long as the shape says"),
            );
        }
    }
    // Hugging Face's loader asks for it.
    let metadata = HashMap::from([("format".to_string(), "pt".to_string())]);
    write(path, tensors, Some(metadata))
}

#[cfg(test)]
mod tests {
    use safetensors::serialize_to_file;

    use super::*;
    use crate::model::Encoder;

    fn shape() -> ModelShape {
        ModelShape {
            hidden: 16,
            intermediate: 32,
            vocabulary: 20,
            positions: 8,
            ..ModelShape::builtin("tiny").unwrap()
        }
    }

    fn random() -> Encoder {
        Encoder::random(&shape(), 5, DType::F32, Device::Cpu).unwrap()
    }

    #[test]
    fn what_was_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let encoder = random();
        write_checkpoint(&path, &shape(), encoder.parameters()).unwrap();
        assert!(read_checkpoint(&path, &shape(), DType::F32).unwrap().equal(encoder.parameters()));

        let half = read_checkpoint(&path, &shape(), DType::F16).unwrap();
        assert!(half.equal(&encoder.parameters().to_kind(Kind::Half)));
    }

    /// Writes a checkpoint whose names and shapes `change` may alter, and reads it.
    fn reread(change: impl Fn(&mut String, &mut Vec<usize>) -> bool) -> Result<Tensor, ExecutorError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let encoder = random();
        let numbers: Vec<f32> = encoder.parameters().try_into().unwrap();
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let mut tensors = Vec::new();
        for Place {
            mut name,
            mut shape,
            offset,
        } in places(&shape())
        {
            if change(&mut name, &mut shape) {
                let length: usize = shape.iter().product();
                let data = &bytes[4 * offset..4 * (offset + length)];
                tensors.push((name, TensorView::new(Dtype::F32, shape, data).unwrap()));
            }
        }
        serialize_to_file(tensors, None, &path).unwrap();
        let block = read_checkpoint(&path, &shape(), DType::F32)?;
        assert!(block.equal(encoder.parameters()));
        Ok(block)
    }

    #[test]
    fn prefixed_and_legacy_names_are_known() {
        let _ = reread(|name, _| {
            *name = format!("bert.{}", name.replace("LayerNorm.weight", "LayerNorm.gamma"));
            true
        })
        .unwrap();
    }

    #[test]
    fn errors_name_file_tensor_and_shapes() {
        let missing = reread(|name, _| !name.ends_with("1.intermediate.dense.bias")).unwrap_err().to_string();
        assert!(
            missing.contains("model.safetensors: encoder.layer.1.intermediate.dense.bias: must be"),
            "{missing}"
        );
        assert!(missing.ends_with("a tensor [32], got no such tensor"), "{missing}");

        let misshapen = |name: &mut String, shape: &mut Vec<usize>| {
            if name.ends_with("word_embeddings.weight") {
                shape[0] = 19;
            }
            true
        };
        let misshapen = reread(misshapen).unwrap_err().to_string();
        assert!(
            misshapen.ends_with("embeddings.word_embeddings.weight: must be of shape [20, 16], got [19, 16]"),
            "{misshapen}"
        );
    }

    #[test]
    fn what_is_no_checkpoint_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let read = || read_checkpoint(&path, &shape(), DType::F32).unwrap_err().to_string();
        assert!(
            read().ends_with("model.safetensors: No such file or directory (os error 2)"),
            "{}",
            read()
        );
        std::fs::write(&path, b"not tensors, only words").unwrap();
        assert!(
            read().contains("header: must be that of a safetensors file, got "),
            "{}",
            read()
        );
    }
}
