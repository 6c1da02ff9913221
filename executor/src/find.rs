//! What this machine has to run on.

use tch::{Cuda, Device};

use crate::error::ExecutorError;

/// The device that a user names: `cpu`, or `cuda:N` for the N-th GPU.
///
/// # Errors
/// Another name, or a GPU that libtorch does not see.
pub fn find_device(name: &str) -> Result<Device, ExecutorError> {
    let must = || match Cuda::device_count() {
        0 => "cpu, since libtorch sees no GPU here".to_owned(),
        count => format!("cpu, or cuda:0 to cuda:{}", count - 1),
    };
    let refused = || ExecutorError::input("device", must(), name);
    if name == "cpu" {
        return Ok(Device::Cpu);
    }
    let index = name
        .strip_prefix("cuda:")
        .and_then(|index| index.parse::<usize>().ok())
        .ok_or_else(refused)?;
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
        for name in ["gpu", "cuda", "cuda:x", "cuda:99", "CPU"] {
            let error = find_device(name).unwrap_err().to_string();
            assert!(
                error.starts_with("device: must be cpu") && error.ends_with(&format!("got {name}")),
                "{error}"
            );
        }
    }
}
