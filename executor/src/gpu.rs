//! What a GPU is, as libtorch and, where there is one, `nvidia-smi` tell it.

use std::process::Command;

use tenantry_profiles::{Device, DeviceKind};

use crate::device::{bus_id, device_memory};
use crate::error::ExecutorError;
use crate::host::{LIBTORCH_VERSION, describe_cpu};

/// Kept free of tenants' parameters: for kernels' code, workspaces, activations, and what the allocator cannot join. As
/// imported cards assume.
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
    let told = Told::ask(device, memory.total);
    Ok(Device {
        name: told.as_ref().map_or_else(|| format!("GPU {index}"), |told| told.name.clone()),
        kind: DeviceKind::Cuda,
        memory_bytes: memory.total,
        reserve_bytes: RESERVE_BYTES.min(memory.total / 4),
        shares_host_memory: false,
        driver: told.map(|told| told.driver),
        libtorch: Some(LIBTORCH_VERSION.to_string()),
        host: host.host,
    })
}

/// A sentence on a GPU's clocks as they are now; nothing for a CPU, or where `nvidia-smi` does not say.
pub(crate) fn clocks(device: tch::Device) -> Option<String> {
    let memory = device_memory(device).ok()??;
    Told::ask(device, memory.total).map(|told| told.clocks())
}

/// Of the memory that `nvidia-smi` counts, libtorch sees at least this much: the rest is the driver's.
const SEEN_MIN: f64 = 0.9;

/// What `nvidia-smi` says of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    /// Where it is on the bus.
    bus_id: String,
    /// All that there is, in MiB.
    memory_mib: u64,
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
    const ASKED: &str =
        "pci.bus_id,memory.total,name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit,temperature.gpu";

    /// Of a device with this much memory. libtorch counts GPUs as CUDA does, fastest first and those of
    /// `CUDA_VISIBLE_DEVICES` only, and `nvidia-smi` by their places on the bus: so it is found by its place.
    fn ask(device: tch::Device, memory_bytes: u64) -> Option<Told> {
        let output = Command::new("nvidia-smi")
            .arg(format!("--query-gpu={}", Told::ASKED))
            .arg("--format=csv,noheader,nounits")
            .output()
            .ok()?;
        let all = Told::read_all(&String::from_utf8_lossy(&output.stdout));
        let bus_id = bus_id(device).ok().flatten();
        Told::of(all, bus_id.as_deref(), memory_bytes)
    }

    /// The GPU at this place, or the only one where the place is not known; none whose memory is another's.
    fn of(all: Vec<Told>, bus_id: Option<&str>, memory_bytes: u64) -> Option<Told> {
        let only = all.len() == 1;
        let here = |told: &Told| match bus_id {
            Some(bus_id) => same_place(&told.bus_id, bus_id),
            None => only,
        };
        let seen = |told: &Told| memory_bytes as f64 / (told.memory_mib << 20) as f64;
        all.into_iter().find(here).filter(|told| (SEEN_MIN..=1.0).contains(&seen(told)))
    }

    fn read_all(lines: &str) -> Vec<Told> {
        lines.lines().filter_map(Told::read).collect()
    }

    fn read(line: &str) -> Option<Told> {
        let fields: Vec<String> = line.split(',').map(|of| of.trim().to_string()).collect();
        let [
            bus_id,
            memory_mib,
            name,
            driver,
            sm,
            sm_max,
            memory,
            power_limit,
            temperature,
        ] = fields.try_into().ok()?;
        Some(Told {
            bus_id,
            memory_mib: memory_mib.parse().ok()?,
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
            "multiprocessors at {sm} MHz of at most {sm_max}, memory at {memory} MHz, power limit {power_limit} W, \
             {temperature} °C"
        )
    }
}

/// Whether two are one place on the bus: `domain:bus:device.function` in hexadecimal digits, of which programs write
/// the domain with four or eight.
fn same_place(one: &str, other: &str) -> bool {
    let parts = |id: &str| {
        let numbers = id.trim().split([':', '.']).map(|part| u64::from_str_radix(part, 16));
        numbers.collect::<Result<Vec<_>, _>>().ok()
    };
    parts(one).is_some_and(|one| parts(other) == Some(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "00000000:3B:00.0, 143771, NVIDIA H200, 580.159.03, 1980, 1980, 3201, 700.00, 41\n\
                       00000000:AF:00.0, 15360, Tesla T4, 580.159.03, 585, 1590, 5001, 70.00, 38\n";

    #[test]
    fn what_nvidia_smi_says_is_read() {
        let told = Told::read(TWO.lines().next().unwrap()).unwrap();
        assert_eq!(
            (told.name.as_str(), told.driver.as_str()),
            ("NVIDIA H200", "580.159.03")
        );
        let clocks = "multiprocessors at 1980 MHz of at most 1980, memory at 3201 MHz, power limit 700.00 W, 41 °C";
        assert_eq!(told.clocks(), clocks);
        for nothing in ["", "No devices were found\n", "a, b, c\n"] {
            assert_eq!(Told::read_all(nothing), [], "{nothing}");
        }
    }

    #[test]
    fn a_gpu_is_found_by_its_place_and_not_by_its_number() {
        let name = |bus_id: Option<&str>, memory_gib: f64| {
            let told = Told::of(Told::read_all(TWO), bus_id, (memory_gib * f64::from(1 << 30)) as u64);
            told.map(|told| told.name)
        };
        // The second of nvidia-smi may be the first, and the only one that this process sees.
        assert_eq!(name(Some("0000:af:00.0"), 14.6).as_deref(), Some("Tesla T4"));
        assert_eq!(name(Some("0000:3b:00.0"), 139.8).as_deref(), Some("NVIDIA H200"));
        assert_eq!(name(Some("0001:3b:00.0"), 139.8), None, "another place");
        assert_eq!(name(Some("0000:3b:00.0"), 70.0), None, "a half of it");
        assert_eq!(name(None, 139.8), None, "either");
        let first: String = TWO.lines().take(1).collect();
        let only = |gib: u64| Told::of(Told::read_all(&first), None, gib << 30).is_some();
        assert!(only(139) && !only(15));
    }

    #[test]
    fn a_cpu_is_described_as_such() {
        assert_eq!(describe(tch::Device::Cpu).unwrap(), describe_cpu().unwrap());
        assert_eq!(clocks(tch::Device::Cpu), None);
    }
}
