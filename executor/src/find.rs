//! What this machine has to run on.

use tch::{Cuda, Device};

use crate::device::load_cuda;
use crate::error::ExecutorError;

/// The device that a user names: `cpu`, or `cuda:N` for the N-th GPU.
///
/// # Errors
/// Another name, or a GPU that libtorch does not see.
pub fn find_device(name: &str) -> Result<Device, ExecutorError> {
    if name == "cpu" {
        return Ok(Device::Cpu);
    }
    let loaded = load_cuda();
    let must = || match (loaded, Cuda::device_count()) {
        (Err(_), 0) => "cpu, since this libtorch has no part for GPUs (that of a CUDA PyTorch 2.11 is used where \
                        LD_LIBRARY_PATH has its `torch/lib`)"
            .to_owned(),
        (Ok(()), 0) => "cpu, since libtorch sees no GPU here".to_owned(),
        (_, count) => format!("cpu, or cuda:0 to cuda:{}", count - 1),
    };
    // Upper case for lower, and `cuda` or `gpu` for the first.
    let meant = || match name.to_lowercase().as_str() {
        "cpu" => "; did you mean cpu?",
        "cuda" | "gpu" | "cuda:0" if Cuda::device_count() > 0 => "; did you mean cuda:0?",
        _ => "",
    };
    let refused = || ExecutorError::input("device", must(), format!("{name}{}", meant()));
    let index = name.strip_prefix("cuda:").and_then(|index| index.parse::<usize>().ok()).ok_or_else(refused)?;
    if (index as i64) < Cuda::device_count() {
        Ok(Device::Cuda(index))
    } else {
        Err(refused())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_found_by_name() {
        assert_eq!(find_device("cpu").unwrap(), Device::Cpu);
        let refused = |name: &str| find_device(name).unwrap_err().to_string();
        for name in ["gpu", "cuda", "cuda:x", "cuda:99"] {
            let error = refused(name);
            assert!(
                error.starts_with("device: must be cpu") && error.contains(&format!("got {name}")),
                "{error}"
            );
        }
        let error = refused("CPU");
        assert!(error.ends_with("got CPU; did you mean cpu?"), "{error}");
    }
}
