//! Numbers as safetensors files hold them.

use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use tch::{Kind, Tensor};
use tenantry_core::policy::pet_tensors::{FINITE, INFINITE, are_finite};

use crate::error::ExecutorError;

/// A tensor's numbers, `[…]` as stored.
///
/// # Errors
/// Numbers of a kind that is not computed with, or that are none: whatever they are multiplied with is none either, and no answer.
pub(crate) fn numbers(path: &Path, name: &str, tensor: &TensorView<'_>) -> Result<Tensor, ExecutorError> {
    let wrong = |must: &str, got: String| ExecutorError::Checkpoint {
        path: path.to_path_buf(),
        tensor: name.to_string(),
        must: must.into(),
        got,
    };
    let stored = match tensor.dtype() {
        Dtype::F32 => Kind::Float,
        Dtype::F16 => Kind::Half,
        Dtype::BF16 => Kind::BFloat16,
        other => return Err(wrong("of F32, F16 or BF16", format!("{other:?}"))),
    };
    if !are_finite(&format!("{:?}", tensor.dtype()), tensor.data()) {
        return Err(wrong(FINITE, INFINITE.into()));
    }
    let size: Vec<i64> = tensor.shape().iter().map(|&n| n as i64).collect();
    Ok(Tensor::f_from_data_size(tensor.data(), &size, stored)?)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(are_finite("I32", &[255, 255, 255, 255]));
    }
}
