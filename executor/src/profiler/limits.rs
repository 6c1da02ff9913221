//! The highest rates that a device reaches: of a product of large matrices, and of a copy within its memory.

use std::time::{Duration, Instant};

use tch::{Device, Tensor};
use tenantry_profiles::{DType, Limits};

use super::timing::timed;
use crate::device::{kind, synchronize};
use crate::error::ExecutorError;

/// How long each is measured.
const TIME: Duration = Duration::from_secs(1);
/// How often each is measured at least: the first ones choose kernels and find memory.
const VISITS_LEAST: u32 = 4;
/// Numbers in a row of the matrices: so many that a GPU's cores are all busy for some milliseconds, a core for a tenth
/// of a second.
const ROW: [i64; 2] = [1024, 8192];
/// Bytes of the block that is copied: several times what caches hold.
const BLOCK_BYTES: [i64; 2] = [256 << 20, 1 << 30];

/// Measures both in a number format. The fastest counts: what is held against it should not be faster.
///
/// # Errors
/// No memory, or a device that is lost.
pub(super) fn measure(device: Device, dtype: DType) -> Result<Limits, ExecutorError> {
    let of_device = |[cpu, gpu]: [i64; 2]| if device.is_cuda() { gpu } else { cpu };
    let options = (kind(dtype), device);

    let row = of_device(ROW);
    let matrix = || Ok::<_, ExecutorError>(Tensor::f_randn([row, row], options)?);
    let (a, b) = (matrix()?, matrix()?);
    let product = fastest(device, || Ok(a.f_matmul(&b)?))?;

    let bytes = of_device(BLOCK_BYTES);
    let numbers = bytes / dtype.bytes() as i64;
    let (from, mut to) = (
        Tensor::f_zeros([numbers], options)?,
        Tensor::f_zeros([numbers], options)?,
    );
    let copy = fastest(device, || {
        to.f_copy_(&from)?;
        Ok(())
    })?;
    Ok(Limits {
        dtype,
        matmul_flops_per_s: 2.0 * (row as f64).powi(3) / product.as_secs_f64(),
        // Read and written.
        memory_bytes_per_s: 2.0 * bytes as f64 / copy.as_secs_f64(),
    })
}

fn fastest<T>(device: Device, mut work: impl FnMut() -> Result<T, ExecutorError>) -> Result<Duration, ExecutorError> {
    synchronize(device)?;
    let (start, mut visits, mut fastest) = (Instant::now(), 0, Duration::MAX);
    while visits < VISITS_LEAST || start.elapsed() < TIME {
        fastest = fastest.min(tch::no_grad(|| timed(device, &mut work))?);
        visits += 1;
    }
    Ok(fastest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any processor since 2013 multiplies between one and ten thousand billion times a second on a core, and moves
    /// between half and some hundred billion bytes.
    #[test]
    fn a_core_multiplies_and_copies_as_fast_as_cores_do() {
        let limits = measure(Device::Cpu, DType::F32).unwrap();
        assert_eq!(limits.dtype, DType::F32);
        assert!((1e9..1e13).contains(&limits.matmul_flops_per_s), "{limits:?}");
        assert!((5e8..1e12).contains(&limits.memory_bytes_per_s), "{limits:?}");
    }
}
