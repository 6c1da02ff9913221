//! What a GPU is, as libtorch and, where there is one, `nvidia-smi` tell it.

use std::process::Command;

use tenantry_profiles::{Device, DeviceKind};

use crate::device::device_memory;
use crate::error::ExecutorError;
use crate::host::{LIBTORCH_VERSION, describe_cpu};

/// Kept free of tenants' parameters: for kernels' code, workspaces, activations, and what the allocator cannot join. As imported cards
/// assume.
const RESERVE_BYTES: u64 = 2 << 30;

/// Describes a device that serves: a GPU, or this machine's CPU by [`describe_cpu`].
///
/// # Errors
/// A GPU that libtorch does not reach, or what [`describe_cpu`] lacks.
pub fn describe(device: tch::Device) -> Result<Device, ExecutorError> {
    let host = describe_cpu()?;
    let (tch::Device::Cuda(index), Some(memory)) = (device, device_memory(device)?) else {
        return Ok(host);
    };
    let told = Told::ask(index);
    Ok(Device {
        name: told
            .as_ref()
            .map_or_else(|| format!("GPU {index}"), |told| told.name.clone()),
        kind: DeviceKind::Cuda,
        memory_bytes: memory.total,
        reserve_bytes: RESERVE_BYTES.min(memory.total / 4),
        driver: told.map(|told| told.driver),
        libtorch: Some(LIBTORCH_VERSION.to_string()),
        host: host.host,
    })
}

/// A sentence on a GPU's clocks as they are now; nothing for a CPU, or where `nvidia-smi` does not say.
pub(crate) fn clocks(device: tch::Device) -> Option<String> {
    let tch::Device::Cuda(index) = device else { return None };
    Told::ask(index).map(|told| told.clocks())
}

/// What `nvidia-smi` says of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    name: String,
    driver: String,
    /// In MHz: of the multiprocessors now and at most, and of the memory.
    sm: String,
    sm_max: String,
    memory: String,
    /// In watts.
    power_limit: String,
    /// In degrees Celsius.
    temperature: String,
}

impl Told {
    const ASKED: &str = "name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit,temperature.gpu";

    fn ask(index: usize) -> Option<Told> {
        let output = Command::new("nvidia-smi")
            .arg(format!("--query-gpu={}", Told::ASKED))
            .arg("--format=csv,noheader,nounits")
            .arg(format!("--id={index}"))
            .output()
            .ok()?;
        Told::read(&String::from_utf8_lossy(&output.stdout))
    }

    fn read(line: &str) -> Option<Told> {
        let fields: Vec<String> = line
            .lines()
            .next()?
            .split(',')
            .map(|of| of.trim().to_string())
            .collect();
        let [name, driver, sm, sm_max, memory, power_limit, temperature] = fields.try_into().ok()?;
        Some(Told {
            name,
            driver,
            sm,
            sm_max,
            memory,
            power_limit,
            temperature,
        })
    }

    fn clocks(&self) -> String {
        let Told {
            sm,
            sm_max,
            memory,
            power_limit,
            temperature,
            ..
        } = self;
        format!(
            "multiprocessors at {sm} MHz of at most {sm_max}, memory at {memory} MHz, power limit {power_limit} W, {temperature} °C"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nvidia_smi_says_is_read() {
        let told = Told::read("NVIDIA H200, 580.159.03, 1980, 1980, 3201, 700.00, 41\n").unwrap();
        assert_eq!(
            (told.name.as_str(), told.driver.as_str()),
            ("NVIDIA H200", "580.159.03")
        );
        let clocks = "multiprocessors at 1980 MHz of at most 1980, memory at 3201 MHz, power limit 700.00 W, 41 °C";
        assert_eq!(told.clocks(), clocks);
        for nothing in ["", "No devices were found\n", "a, b, c\n"] {
            assert_eq!(Told::read(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn a_cpu_is_described_as_such() {
        assert_eq!(describe(tch::Device::Cpu).unwrap(), describe_cpu().unwrap());
        assert_eq!(clocks(tch::Device::Cpu), None);
    }
}
