//! Sparse matrices, stored as bits or as CSR, and the product with them.

use tch::{Device, Kind, TchError, Tensor};
use tenantry_traces::draw::Stream;

use super::loaded::Constant;
use crate::error::{ExecutorError, first_line};
use crate::model::Encoder;

/// Up to this share of elements a product goes column by column of the activations, as each element is met only once or
/// twice a row anyhow.
const FEW: f64 = 0.02;
/// About so many tokens are multiplied at once, up to half as many again: what is read and written of them fits a
/// core's own cache, however their rows lie.
const CHUNK_TOKENS: usize = 128;

/// A sparse matrix `[out, in]` on the device, in CSR.
#[derive(Debug)]
pub(crate) struct Sparse(Constant);

/// libtorch tells standard error, once a process, that its CSR matrices are in beta, of which nobody who serves tasks
/// has any use. The first one is made here, while libtorch is to say errors only.
fn make_the_first() {
    unsafe extern "C" {
        /// libc10's: the least severity that is written.
        static mut FLAGS_caffe2_log_level: std::ffi::c_int;
    }
    const ERROR: std::ffi::c_int = 2;
    static FIRST: std::sync::Once = std::sync::Once::new();
    FIRST.call_once(|| {
        let index = Tensor::from_slice(&[0_i32, 0]);
        let none = Tensor::from_slice::<i32>(&[]);
        let (values, like) = (Tensor::from_slice::<f32>(&[]), (Kind::Float, Device::Cpu));
        // SAFETY: an integer that libtorch reads before it writes a message. At worst a warning of another thread is
        // lost meanwhile.
        let before = unsafe { std::ptr::replace(&raw mut FLAGS_caffe2_log_level, ERROR) };
        let first = Tensor::f_sparse_csr_tensor_crow_col_value_size(&index, &none, &values, [1, 1], like);
        // SAFETY: as above.
        unsafe { FLAGS_caffe2_log_level = before };
        drop(first);
    });
}

impl Sparse {
    /// From CSR's three arrays: where each row starts, each element's column, each element's value.
    pub fn new(
        starts: &Tensor,
        columns: &Tensor,
        values: &Tensor,
        size: (usize, usize),
        model: &Encoder,
    ) -> Result<Sparse, ExecutorError> {
        make_the_first();
        let (kind, device) = (model.kind(), model.device());
        let size = [size.0 as i64, size.1 as i64];
        let on_device = |tensor: &Tensor| tensor.f_to(device);
        let csr = Tensor::f_sparse_csr_tensor_crow_col_value_size(
            &on_device(starts)?,
            &on_device(columns)?,
            &on_device(&values.f_to_kind(kind)?)?,
            size,
            (kind, device),
        )?;
        // Not every device multiplies sparse matrices in every number format: better to know when loading.
        probe(kind, device).map_err(|error| ExecutorError::NoSparseProduct {
            number: format!("{kind:?}"),
            reason: first_line(&error).to_owned(),
        })?;
        Ok(Sparse(csr.into()))
    }

    /// With its zeros.
    pub fn dense(&self) -> Result<Tensor, TchError> {
        self.0.f_to_dense(None::<Kind>, false)
    }

    /// `x · Sᵀ` of `x`, `[tokens, in]`: `[tokens, out]`.
    pub fn product(&self, x: &Tensor) -> Result<Tensor, TchError> {
        let (out, inputs, tokens) = (self.0.size()[0], self.0.size()[1], x.size()[0] as usize);
        let few = self.0.f_values()?.size()[0] as f64 <= FEW * (out * inputs) as f64;
        // All but the plain product is about a core's caches.
        if x.device().is_cuda() {
            return self.plain(x);
        }
        let product = Tensor::f_empty([tokens as i64, out], (x.kind(), x.device()))?;
        if few {
            let _ = self.0.f_mm_out(&product.f_transpose(0, 1)?, &x.f_transpose(0, 1)?)?;
            return Ok(product);
        }
        // Equal parts, and no more of them before each is small enough: every chunk reads the matrix again.
        let chunks = ((tokens + CHUNK_TOKENS / 2) / CHUNK_TOKENS).max(1);
        let chunk = tokens.div_ceil(chunks);
        for first in (0..tokens).step_by(chunk) {
            let part = |of: &Tensor| of.f_narrow(0, first as i64, chunk.min(tokens - first) as i64);
            part(&product)?.f_copy_(&self.plain(&part(x)?)?)?;
        }
        Ok(product)
    }

    /// The same in one go, with tokens side by side.
    fn plain(&self, x: &Tensor) -> Result<Tensor, TchError> {
        self.0.f_matmul(&x.f_transpose(0, 1)?)?.f_transpose(0, 1)
    }
}

/// Multiplies each way that there is, by matrices of one element and of none.
fn probe(kind: Kind, device: Device) -> Result<(), TchError> {
    let (integer, number) = ((Kind::Int, device), (kind, device));
    for elements in [1, 0] {
        let starts = Tensor::f_arange(2, integer)? * elements;
        let columns = Tensor::f_zeros([elements], integer)?;
        let values = Tensor::f_zeros([elements], number)?;
        let csr = Tensor::f_sparse_csr_tensor_crow_col_value_size(&starts, &columns, &values, [1, 1], number)?;
        for tokens in [1, 2 * CHUNK_TOKENS as i64] {
            let _ = Sparse(csr.shallow_clone().into()).product(&Tensor::f_zeros([tokens, 1], number)?)?;
        }
    }
    Ok(())
}

/// The names of a matrix's three arrays.
pub(crate) fn csr_names(prefix: &str) -> [String; 3] {
    ["starts", "columns", "values"].map(|part| format!("{prefix}.{part}"))
}

/// Bytes of a row of bits.
pub(crate) fn row_bytes(columns: usize) -> usize {
    columns.div_ceil(8)
}

/// The columns of a row of bits that are 0, ascending. The first column is a byte's lowest bit.
pub(crate) fn zeros(row: &[u8], columns: usize) -> impl Iterator<Item = usize> + '_ {
    (0..columns).filter(move |column| row[column / 8] >> (column % 8) & 1 == 0)
}

/// `count` different elements of `total`, ascending: one in each of `count` equal stretches.
pub(crate) fn scattered(stream: &mut Stream, total: usize, count: usize) -> Vec<usize> {
    let place = |index: usize| {
        let (first, end) = (index * total / count, (index + 1) * total / count);
        first + stream.below((end - first) as u64) as usize
    };
    (0..count).map(place).collect()
}

#[cfg(test)]
mod tests {
    use tenantry_profiles::{DType, ModelShape};

    use super::*;

    /// Whatever the tokens: fewer than a chunk's, a whole chunk, one more, and several; and however sparse.
    #[test]
    fn products_are_those_of_the_dense_matrix() {
        let model = Encoder::random(&ModelShape::builtin("tiny").unwrap(), 1, DType::F32, Device::Cpu).unwrap();
        let (out, inputs) = (24, 16_i64);
        let float = (Kind::Float, Device::Cpu);
        for every in [3, 100] {
            let elements = Tensor::arange(out * inputs, float).f_remainder(every).unwrap().eq(1.0);
            let dense = (Tensor::rand([out * inputs], float) * elements).view([out, inputs]);
            let csr = dense.to_sparse_csr(None);
            let index = |of: Tensor| of.to_kind(Kind::Int);
            let (starts, columns) = (index(csr.crow_indices()), index(csr.col_indices()));
            let size = (out as usize, inputs as usize);
            let sparse = Sparse::new(&starts, &columns, &csr.values(), size, &model).unwrap();
            for tokens in [
                1,
                15,
                16,
                17,
                CHUNK_TOKENS,
                3 * CHUNK_TOKENS / 2 - 1,
                3 * CHUNK_TOKENS / 2,
                1000,
            ] {
                let x = Tensor::rand([tokens as i64, inputs], float);
                let expected = x.matmul(&dense.transpose(0, 1));
                let product = sparse.product(&x).unwrap();
                assert!(
                    product.allclose(&expected, 1e-5, 1e-6, false),
                    "{tokens} tokens, one in {every}"
                );
            }
        }
    }
}
