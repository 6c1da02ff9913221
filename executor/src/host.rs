//! What machine this is, as Linux tells it, and its files.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise, statfs};
use tenantry_profiles::{Device, DeviceKind, Host};

use crate::error::ExecutorError;

/// The libtorch that `tch` is pinned to.
pub const LIBTORCH_VERSION: &str = "2.11.0";

const GIB: u64 = 1 << 30;

/// Describes this machine's CPU as a device that serves: half of its memory is the card's, the other half is left for
/// tenants' parameters in host memory.
///
/// # Errors
/// A machine without `/proc/cpuinfo` and `/proc/meminfo`.
pub fn describe_cpu() -> Result<Device, ExecutorError> {
    let cpu = field("/proc/cpuinfo", "model name").unwrap_or_else(|_| "unknown CPU".to_string());
    let memory_bytes = memory_bytes("MemTotal")? / 2;
    Ok(Device {
        name: cpu.clone(),
        kind: DeviceKind::Cpu,
        memory_bytes,
        reserve_bytes: GIB.min(memory_bytes / 4),
        shares_host_memory: false,
        driver: None,
        libtorch: Some(LIBTORCH_VERSION.to_string()),
        host: Host { cpu, cores: cores() },
    })
}

/// What Linux calls the time since this machine was last started: another after each start, and on each machine.
pub fn boot() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(boot.trim().to_string())
}

/// Cores that this process may use.
pub fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32)
}

/// Host memory that is free or can be freed, in bytes; 1 GiB where the system does not say.
pub fn available_host_bytes() -> u64 {
    memory_bytes("MemAvailable").unwrap_or(GIB)
}

fn memory_bytes(name: &str) -> Result<u64, ExecutorError> {
    let text = field("/proc/meminfo", name)?;
    let kib = text.strip_suffix(" kB").and_then(|number| number.parse::<u64>().ok());
    let kib = kib.ok_or_else(|| ExecutorError::input(format!("/proc/meminfo: {name}"), "a number of kB", text))?;
    Ok(kib * 1024)
}

/// The value of the first line `name: value`.
fn field(path: &str, name: &str) -> Result<String, ExecutorError> {
    let text = std::fs::read_to_string(path).map_err(|source| ExecutorError::File {
        path: PathBuf::from(path),
        source,
    })?;
    let value = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_string())
    });
    value.ok_or_else(|| ExecutorError::input(format!("{path}: {name}"), "a line", "no such line"))
}

/// Asks the operating system to drop its copy of a file's content, so that what is read next comes from the disk.
///
/// # Errors
/// What the operating system says.
pub(crate) fn forget_cached(file: &File) -> io::Result<()> {
    // Only what has reached the disk can be dropped.
    file.sync_all()?;
    fadvise(file, 0, None, Advice::DontNeed)?;
    Ok(())
}

/// Whether files of a folder lie in memory, where forgetting them does nothing.
pub(crate) fn lies_in_memory(folder: &Path) -> bool {
    // As the kernel calls them: TMPFS_MAGIC and RAMFS_MAGIC of linux/magic.h.
    const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
    statfs(folder).is_ok_and(|system| IN_MEMORY.contains(&(system.f_type as u64)))
}

/// Writes a file, whole or not at all, and the folders above it.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), ExecutorError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let write = || {
        std::fs::create_dir_all(folder)?;
        tenantry_traces::whole::write_whole(path, bytes)
    };
    write().map_err(|source| ExecutorError::File {
        path: path.to_path_buf(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_processor_and_memory() {
        let cpu = describe_cpu().unwrap();
        assert!(cpu.host.cores >= 1 && !cpu.name.is_empty());
        assert!(cpu.reserve_bytes < cpu.memory_bytes);
        assert!(cpu.memory_bytes > 64 << 20);
    }

    #[test]
    fn the_host_has_memory() {
        assert!(available_host_bytes() > 64 << 20);
    }
}
