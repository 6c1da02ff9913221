//! Weights in files: safetensors in Hugging Face's layout of Llama and OPT, in one file or several.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use serde::Deserialize;
use tch::{Device, Tensor};
use tenantry_profiles::{DType, ModelShape};

use super::config::is_tied;
use super::layout::{Place, check, places};
use crate::device::kind;
use crate::error::ExecutorError;
use crate::tensors_file::{map, numbers_of, parse};

/// How large checkpoints are split.
const INDEX: &str = "model.safetensors.index.json";
const SINGLE: &str = "model.safetensors";
/// Llama's output matrix; where it is tied, that of the token embeddings, the block's first tensor.
const OUTPUT: &str = "lm_head.weight";

/// Reads a checkpoint into a flat block in host memory, `[shape.parameters()]`, for
/// [`Decoder::from_parameters`](super::Decoder::from_parameters). `path` is a safetensors file, or a folder with
/// `model.safetensors`, or else with parts and `model.safetensors.index.json`. Other tensors are left alone. Where
/// `config.json`, in the folder or beside the file, does not say whether Llama's output is tied to the token
/// embeddings, for want of a `config.json`, it is if `lm_head.weight` is left out.
///
/// # Errors
/// A file that cannot be read or is no safetensors file, a tensor that is missing or has another shape than `shape`
/// asks for, an output matrix that is not the embeddings though it is said to be.
pub fn read_decoder(path: &Path, shape: &ModelShape, dtype: DType) -> Result<Tensor, ExecutorError> {
    check(shape)?;
    let block = Tensor::f_empty([shape.parameters() as i64], (kind(dtype), Device::Cpu))?;
    let mut missing: BTreeMap<usize, Place> = places(shape).into_iter().enumerate().collect();
    let tied = is_tied(path)?;
    let embeddings = missing[&0].length() as i64;
    // OPT has no place for an output matrix of its own.
    let output = missing.values().find(|place| place.name == OUTPUT).cloned();
    let is_embeddings = output.is_none() || tied == Some(true);
    if is_embeddings {
        missing.retain(|_, place| place.name != OUTPUT);
    }
    let mut other_output = None;
    for file in &checkpoint_files(path)? {
        let bytes = map(file)?;
        let tensors = parse(file, &bytes)?;
        let mut found = Vec::new();
        for (&index, place) in &missing {
            if let Some((name, tensor)) = find(&tensors, &place.name) {
                copy(file, &name, &tensor, place, &block)?;
                found.push(index);
            }
        }
        for index in found {
            missing.remove(&index);
        }
        if let Some((name, tensor)) = find(&tensors, OUTPUT).filter(|_| is_embeddings) {
            other_output = Some((file.clone(), numbers_of(file, &name, &tensor, block.kind())?));
        }
    }
    let is_left_out = is_embeddings || missing.values().any(|place| place.name == OUTPUT);
    for place in missing.into_values() {
        // Only when all files have been read: the output matrix may be in a later one than the embeddings.
        if place.name != OUTPUT || tied == Some(false) {
            let must = format!("a tensor {:?}", place.stored_shape());
            return Err(ExecutorError::checkpoint(path, &place.name, must, "no such tensor"));
        }
    }
    let words = block.f_narrow(0, 0, embeddings)?;
    // Versions of Hugging Face's library differ in which of the two counts.
    if let Some((file, output)) = other_output.filter(|(_, output)| !output.flatten(0, -1).equal(&words)) {
        let must = "that of the token embeddings, which are the output matrix too (tie_word_embeddings)";
        let got = format!("another {:?}", output.size());
        return Err(ExecutorError::checkpoint(&file, OUTPUT, must, got));
    }
    if let Some(place) = output.filter(|_| is_left_out) {
        block.f_narrow(0, place.offset as i64, embeddings)?.f_copy_(&words)?;
    }
    Ok(block)
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// The files of a checkpoint.
pub(crate) fn checkpoint_files(path: &Path) -> Result<Vec<PathBuf>, ExecutorError> {
    let (single, index) = (path.join(SINGLE), path.join(INDEX));
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    // As Hugging Face's library: an index may be of parts that were saved before.
    if single.is_file() || !index.is_file() {
        return Ok(vec![single]);
    }
    let text = std::fs::read_to_string(&index).map_err(ExecutorError::file(&index))?;
    let parsed: Index = serde_json::from_str(&text)
        .map_err(|error| ExecutorError::checkpoint(&index, "weight_map", "names of tensors and files", error))?;
    let names: BTreeSet<String> = parsed.weight_map.into_values().collect();
    Ok(names.into_iter().map(|name| path.join(name)).collect())
}

fn copy(path: &Path, name: &str, tensor: &TensorView<'_>, place: &Place, block: &Tensor) -> Result<(), ExecutorError> {
    if tensor.shape() != place.stored_shape() {
        let must = format!("of shape {:?}", place.stored_shape());
        return Err(ExecutorError::checkpoint(
            path,
            name,
            must,
            format!("{:?}", tensor.shape()),
        ));
    }
    let rows =
        numbers_of(path, name, tensor, block.kind())?.f_narrow(0, place.skipped_rows as i64, place.shape[0] as i64)?;
    block.f_narrow(0, place.offset as i64, place.length() as i64)?.f_copy_(&rows.f_reshape([-1])?)?;
    Ok(())
}

/// The tensor of that name, with the name that it has in the file: some of OPT's checkpoints leave the first part out.
fn find<'a>(tensors: &SafeTensors<'a>, name: &str) -> Option<(String, TensorView<'a>)> {
    let mut candidates = vec![name];
    candidates.extend(name.strip_prefix("model.").filter(|_| name.starts_with("model.decoder.")));
    candidates
        .into_iter()
        .find_map(|name| tensors.tensor(name).ok().map(|found| (name.to_string(), found)))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::HashMap;

    use safetensors::Dtype;
    use tch::Kind;

    use super::*;
    use crate::decoder::Decoder;
    use crate::tensors_file::write;

    /// Writes a flat block of 32-bit parameters as one file that [`read_decoder`] and Hugging Face's library read. The
    /// file is whole or not there at all.
    ///
    /// # Errors
    /// A shape that is no decoder's, a block of another length, or a file that cannot be written.
    pub(crate) fn write_decoder(path: &Path, shape: &ModelShape, block: &Tensor) -> Result<(), ExecutorError> {
        check(shape)?;
        let block = block.f_to(Device::Cpu)?;
        if block.size() != [shape.parameters() as i64] || block.kind() != Kind::Float {
            let got = format!("{:?} of {:?}", block.size(), block.kind());
            let must = format!("{} of Float", shape.parameters());
            return Err(ExecutorError::input("parameters to write", must, got));
        }
        let mut bytes = vec![0; 4 * shape.parameters() as usize];
        block.f_copy_data_u8(&mut bytes, shape.parameters() as usize)?;
        let stored: Vec<(Place, Vec<u8>)> =
            places(shape).into_iter().map(|place| with_skipped_rows(place, &bytes)).collect();
        let tensors: HashMap<&str, TensorView<'_>> = stored
            .iter()
            .map(|(place, data)| {
                let view = TensorView::new(Dtype::F32, place.stored_shape(), data);
                (
                    place.name.as_str(),
                    view.expect("the data is as long as the shape says"),
                )
            })
            .collect();
        write(path, tensors, None)
    }

    /// A place's bytes as they are stored: OPT's positions after two rows of zeros.
    fn with_skipped_rows(place: Place, bytes: &[u8]) -> (Place, Vec<u8>) {
        let row: usize = place.shape[1..].iter().product();
        let mut data = vec![0; 4 * place.skipped_rows * row];
        data.extend(&bytes[4 * place.offset..4 * (place.offset + place.length())]);
        (place, data)
    }

    fn shape(name: &str) -> ModelShape {
        ModelShape {
            hidden: 16,
            intermediate: 24,
            vocabulary: 20,
            positions: 8,
            ..ModelShape::builtin(name).unwrap()
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["tiny-llama", "tiny-opt"] {
            let decoder = Decoder::random(&shape(name), 5, DType::F32, Device::Cpu).unwrap();
            let path = folder.path().join(SINGLE);
            write_decoder(&path, &shape(name), decoder.parameters()).unwrap();
            let read = |path: &Path, dtype| read_decoder(path, &shape(name), dtype).unwrap();
            assert!(read(&path, DType::F32).equal(decoder.parameters()));
            assert!(read(folder.path(), DType::F32).equal(decoder.parameters()));
            assert!(read(&path, DType::Bf16).equal(&decoder.parameters().to_kind(Kind::BFloat16)));
            assert_eq!(
                std::fs::read_dir(folder.path()).unwrap().count(),
                1,
                "nothing partial is left"
            );
        }
    }

    #[test]
    fn a_checkpoint_in_parts_is_read_by_its_index() {
        let (folder, shape) = (tempfile::tempdir().unwrap(), shape("tiny-llama"));
        let decoder = Decoder::random(&shape, 5, DType::F32, Device::Cpu).unwrap();
        let whole = folder.path().join("whole");
        write_decoder(&whole, &shape, decoder.parameters()).unwrap();
        let bytes = std::fs::read(&whole).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let (mut parts, mut map) = ([Vec::new(), Vec::new()], BTreeMap::new());
        for (index, (name, tensor)) in tensors.iter().enumerate() {
            map.insert(name.to_string(), format!("part-{}.safetensors", index % 2));
            parts[index % 2].push((name, tensor));
        }
        for (index, part) in parts.into_iter().enumerate() {
            safetensors::serialize_to_file(part, None, &folder.path().join(format!("part-{index}.safetensors")))
                .unwrap();
        }
        let index = serde_json::json!({"metadata": {}, "weight_map": map}).to_string();
        std::fs::write(folder.path().join(INDEX), index).unwrap();
        assert!(read_decoder(folder.path(), &shape, DType::F32).unwrap().equal(decoder.parameters()));
    }

    /// Parts that were saved before the whole.
    #[test]
    fn the_whole_counts_before_an_index() {
        let (folder, shape) = (tempfile::tempdir().unwrap(), shape("tiny-llama"));
        let decoder = Decoder::random(&shape, 5, DType::F32, Device::Cpu).unwrap();
        write_decoder(&folder.path().join(SINGLE), &shape, decoder.parameters()).unwrap();
        std::fs::write(
            folder.path().join(INDEX),
            "{\"weight_map\": {\"a\": \"gone.safetensors\"}}",
        )
        .unwrap();
        let read = read_decoder(folder.path(), &shape, DType::F32).unwrap();
        assert!(read.equal(decoder.parameters()));
    }

    /// As Hugging Face's Llama does: its `config.json` decides.
    #[test]
    fn the_output_is_tied_where_the_config_says_so() {
        let (folder, shape) = (tempfile::tempdir().unwrap(), shape("tiny-llama"));
        let decoder = Decoder::random(&shape, 5, DType::F32, Device::Cpu).unwrap();
        let (whole, path) = (folder.path().join("whole"), folder.path().join(SINGLE));
        write_decoder(&whole, &shape, decoder.parameters()).unwrap();
        let bytes = std::fs::read(&whole).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let untied = decoder.parameters();
        let words = places(&shape)[0].length() as i64;
        let tied = Tensor::cat(
            &[
                untied.narrow(0, 0, untied.size()[0] - words),
                untied.narrow(0, 0, words),
            ],
            0,
        );

        let found = |config: Option<&str>, has_output: bool| {
            let kept = tensors.iter().filter(|(name, _)| has_output || *name != OUTPUT);
            safetensors::serialize_to_file(kept, None, &path).unwrap();
            match config {
                Some(text) => std::fs::write(folder.path().join("config.json"), text).unwrap(),
                None => drop(std::fs::remove_file(folder.path().join("config.json"))),
            }
            let read = read_decoder(folder.path(), &shape, DType::F32);
            let of_file = read_decoder(&path, &shape, DType::F32);
            assert_eq!(read.as_ref().ok(), of_file.as_ref().ok(), "the file alone");
            read
        };
        let (yes, no, silent) = (
            Some("{\"tie_word_embeddings\": true}"),
            Some("{\"tie_word_embeddings\": false}"),
            Some("{}"),
        );
        for (config, has_output, expected) in [
            (yes, false, &tied),
            (no, true, untied),
            (silent, true, untied),
            (None, true, untied),
            (None, false, &tied),
        ] {
            let found = found(config, has_output).unwrap();
            assert!(found.equal(expected), "{config:?}, with an output: {has_output}");
        }
        let error = found(yes, true).unwrap_err().to_string();
        let must = "lm_head.weight: must be that of the token embeddings, which are the output matrix too";
        assert!(error.contains(must), "{error}");
        for config in [no, silent] {
            let error = found(config, false).unwrap_err().to_string();
            assert!(
                error.ends_with("lm_head.weight: must be a tensor [20, 16], got no such tensor"),
                "{error}"
            );
        }
    }

    #[test]
    fn errors_name_file_tensor_and_shapes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(SINGLE);
        let (opt, llama) = (shape("tiny-opt"), shape("tiny-llama"));
        let decoder = Decoder::random(&opt, 5, DType::F32, Device::Cpu).unwrap();
        write_decoder(&path, &opt, decoder.parameters()).unwrap();
        let refused = |shape: &ModelShape| read_decoder(&path, shape, DType::F32).unwrap_err().to_string();
        let longer = ModelShape {
            positions: 9,
            ..opt.clone()
        };
        assert!(
            refused(&longer).ends_with(
                "model.safetensors: model.decoder.embed_positions.weight: must be of shape [11, 16], got [10, 16]"
            ),
            "{}",
            refused(&longer)
        );
        assert!(
            refused(&llama).ends_with("model.embed_tokens.weight: must be a tensor [20, 16], got no such tensor"),
            "{}",
            refused(&llama)
        );
    }
}
