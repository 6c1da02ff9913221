//! Safetensors files: mapped, parsed, and their numbers.

use std::collections::HashMap;
use std::fmt::Display;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

use memmap2::Mmap;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensorError, SafeTensors};
use tch::{Kind, Tensor};
use tenantry_core::pet::tensors::{FINITE, INFINITE, are_finite};
use tenantry_traces::whole;

use crate::error::ExecutorError;

/// What is looked for in folders.
const LOOKED_FOR: [&str; 2] = ["model.safetensors", "adapter_model.safetensors"];

/// What checkpoints and adapters lie in that are not read: older formats, parts of what is read whole, other libraries'
/// names.
const OTHER_FORMATS: [&str; 7] = [
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "adapter_model.bin",
    "model.safetensors.index.json",
    "pytorch_adapter.bin",
    "adapter.safetensors",
    "adapter_model.safetensors",
];

/// Maps a file into memory.
pub(crate) fn map(path: &Path) -> Result<Mmap, ExecutorError> {
    let file = File::open(path).map_err(|error| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_there = |other: &&&str| path.with_file_name(other).exists();
        let is_looked_for = error.kind() == ErrorKind::NotFound && LOOKED_FOR.contains(&&*name);
        match OTHER_FORMATS.iter().find(is_there) {
            Some(other) if is_looked_for => {
                let got = format!("{other} in its place (save it again as one safetensors file of that name)");
                ExecutorError::checkpoint(path, name, "there", got)
            }
            _ => ExecutorError::file(path)(error),
        }
    })?;
    // SAFETY: the map is read before its reader returns; a file that someone truncates meanwhile is beyond repair.
    unsafe { Mmap::map(&file) }.map_err(ExecutorError::file(path))
}

/// Reads a safetensors file's header.
pub(crate) fn parse<'a>(path: &Path, bytes: &'a [u8]) -> Result<SafeTensors<'a>, ExecutorError> {
    SafeTensors::deserialize(bytes)
        .map_err(|error| ExecutorError::checkpoint(path, "header", "that of a safetensors file", error))
}

/// A tensor's numbers, `[…]` as stored, which another number format may not hold.
///
/// # Errors
/// Numbers of a kind that is not computed with, or that are none: whatever they are multiplied with is none either, and
/// no answer.
pub(crate) fn numbers(path: &Path, name: &str, tensor: &TensorView<'_>) -> Result<Tensor, ExecutorError> {
    let (stored, dtype) = match tensor.dtype() {
        Dtype::F32 => (Kind::Float, "F32"),
        Dtype::F16 => (Kind::Half, "F16"),
        Dtype::BF16 => (Kind::BFloat16, "BF16"),
        other => {
            return Err(ExecutorError::checkpoint(
                path,
                name,
                "of F32, F16 or BF16",
                format!("{other:?}"),
            ));
        }
    };
    if !are_finite(dtype, tensor.data()) {
        return Err(ExecutorError::checkpoint(path, name, FINITE, INFINITE));
    }
    let size: Vec<i64> = tensor.shape().iter().map(|&n| n as i64).collect();
    Ok(Tensor::f_from_data_size(tensor.data(), &size, stored)?)
}

/// As [`numbers`], in the format that is computed with: `[…]` of `kind`.
///
/// # Errors
/// Likewise, and numbers beyond the format's largest (65,504 in half precision), which would become infinite.
pub(crate) fn numbers_of(
    path: &Path,
    name: &str,
    tensor: &TensorView<'_>,
    kind: Kind,
) -> Result<Tensor, ExecutorError> {
    let stored = numbers(path, name, tensor)?;
    let largest = |largest: f64| ExecutorError::checkpoint(path, name, HALF_HOLDS, largest);
    in_format(&stored, kind)?.map_err(largest)
}

/// What numbers must be that are computed with in half precision.
const HALF_HOLDS: &str = "of numbers that half precision holds, 65504 at most";

/// Parameters in the format that is computed with.
///
/// # Errors
/// Numbers that are beyond the format's largest and would become infinite; `what` says whose.
pub(crate) fn converted(what: impl Into<String>, parameters: &Tensor, kind: Kind) -> Result<Tensor, ExecutorError> {
    in_format(parameters, kind)?.map_err(|largest| ExecutorError::input(what, HALF_HOLDS, largest))
}

/// Or the largest number, where the format does not hold it.
fn in_format(numbers: &Tensor, kind: Kind) -> Result<Result<Tensor, f64>, ExecutorError> {
    let converted = numbers.f_to_kind(kind)?;
    if kind != Kind::Half || numbers.kind() == kind || bool::try_from(converted.f_isfinite()?.f_all()?)? {
        return Ok(Ok(converted));
    }
    Ok(Err(f64::try_from(numbers.f_abs()?.f_max()?)?))
}

/// Writes tensors, whole or not at all, for all to read who may read what is written beside.
///
/// # Errors
/// A file that cannot be written.
pub(crate) fn write<N: AsRef<str> + Ord + Display>(
    path: &Path,
    tensors: HashMap<N, TensorView<'_>>,
    metadata: Option<HashMap<String, String>>,
) -> Result<(), ExecutorError> {
    let failed = ExecutorError::file(path);
    let (file, beside) = whole::begin(path).map_err(&failed)?;
    // What is put in the place of this one is its owner's alone.
    let permissions = file.metadata().map_err(&failed)?.permissions();
    safetensors::serialize_to_file(tensors, metadata, &beside).map_err(|error| {
        failed(match error {
            SafeTensorError::IoError(source) => source,
            other => std::io::Error::other(other.to_string()),
        })
    })?;
    std::fs::set_permissions(&beside, permissions).map_err(&failed)?;
    let written = File::open(&beside).map_err(&failed)?;
    whole::finish(written, beside, path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_a_files_place_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        assert!(matches!(map(&path), Err(ExecutorError::File { .. })));
        std::fs::write(folder.path().join("pytorch_model.bin"), "").unwrap();
        let error = map(&path).unwrap_err();
        let must = "model.safetensors: must be there, got pytorch_model.bin in its place (save it again as one \
                    safetensors file of that name)";
        assert!(error.to_string().ends_with(must) && error.is_bad_input(), "{error}");
        let part = map(&folder.path().join("part-1.safetensors"));
        assert!(matches!(part, Err(ExecutorError::File { .. })));
    }

    #[test]
    fn what_half_precision_does_not_hold_is_refused() {
        for (largest, holds) in [
            (65_504.0_f32, true),
            (-65_504.0, true),
            (70_000.0, false),
            (-70_000.0, false),
        ] {
            let bytes: Vec<u8> = [1.0, largest].into_iter().flat_map(f32::to_le_bytes).collect();
            let view = TensorView::new(Dtype::F32, vec![2], &bytes).unwrap();
            let read = |kind| numbers_of(Path::new("a.safetensors"), "w", &view, kind);
            assert!(read(Kind::Float).is_ok() && read(Kind::BFloat16).is_ok());
            match read(Kind::Half) {
                Ok(half) => assert!(holds && half.double_value(&[1]) == f64::from(largest), "{largest}"),
                Err(error) => {
                    let message = error.to_string();
                    let must = "w: must be of numbers that half precision holds, 65504 at most, got 70000";
                    assert!(!holds && message.ends_with(must), "{largest}: {message}");
                }
            }
        }
    }

    /// By each kind's own arithmetic, of numbers of any size.
    #[test]
    fn what_is_not_finite_is_refused() {
        let (large, tiny) = (3e4, 1e-7);
        for (dtype, kind, width) in [
            (Dtype::F32, Kind::Float, 4),
            (Dtype::F16, Kind::Half, 2),
            (Dtype::BF16, Kind::BFloat16, 2),
        ] {
            for (last, is_finite) in [
                (large, true),
                (-tiny, true),
                (f64::NAN, false),
                (f64::INFINITY, false),
                (f64::NEG_INFINITY, false),
            ] {
                let values = Tensor::from_slice(&[0.0, large, -large, tiny, last]).to_kind(kind);
                let mut bytes = vec![0; 5 * width];
                values.copy_data_u8(&mut bytes, 5);
                let view = TensorView::new(dtype, vec![5], &bytes).unwrap();
                let read = numbers(Path::new("a.safetensors"), "w", &view);
                match read {
                    Ok(read) => assert!(is_finite && read.equal(&values), "{dtype:?}: {last}"),
                    Err(error) => {
                        let message = error.to_string();
                        assert!(!is_finite, "{dtype:?}: {last}: {message}");
                        let must = "a.safetensors: w: must be of finite numbers, got NaN or infinity";
                        assert!(message.ends_with(must), "{message}");
                    }
                }
            }
        }
    }
}
