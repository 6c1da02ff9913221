//! What machine this is, as Linux tells it, and its files.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{Advice, fadvise, statfs};
use sysinfo::{CGroupLimits, MemoryRefreshKind, Process, ProcessRefreshKind, ProcessesToUpdate, RefreshKind, System};
use tenantry_profiles::{Device, DeviceKind, Host, UNKNOWN_PROCESSOR, processor};

use crate::error::ExecutorError;

/// The libtorch that `tch` is pinned to.
pub const LIBTORCH_VERSION: &str = "2.11.0";

const GIB: u64 = 1 << 30;

/// Describes this machine's CPU as a device that serves: half of its memory is the card's, the other half is left for
/// tenants' parameters in host memory.
///
/// # Errors
/// A machine that does not say how much memory it has.
pub fn describe_cpu() -> Result<Device, ExecutorError> {
    let nothing = || ExecutorError::input("/proc/meminfo", "how much memory there is", "nothing");
    let memory_bytes = memory().ok_or_else(nothing)?.total / 2;
    let cpu = processor().unwrap_or(UNKNOWN_PROCESSOR.to_string());
    Ok(Device {
        name: cpu.clone(),
        kind: DeviceKind::Cpu,
        memory_bytes,
        reserve_bytes: GIB.min(memory_bytes / 4),
        shares_host_memory: false,
        driver: None,
        libtorch: Some(LIBTORCH_VERSION.to_string()),
        host: Host {
            cpu,
            cores: tenantry_profiles::cores(),
        },
    })
}

/// Host memory that is free or can be freed, in bytes; 1 GiB where the system does not say.
pub fn available_host_bytes() -> u64 {
    memory().map_or(GIB, |memory| memory.available)
}

/// What this process may use, in bytes: of the machine, or of the container or control group that it is in.
#[derive(Debug, PartialEq)]
struct Memory {
    total: u64,
    available: u64,
}

fn memory() -> Option<Memory> {
    let ram = MemoryRefreshKind::nothing().with_ram();
    let mut system = System::new_with_specifics(RefreshKind::nothing().with_memory(ram)).ok()?;
    let machine = Memory {
        total: system.total_memory(),
        available: system.available_memory(),
    };
    let own = sysinfo::get_current_pid().ok()?;
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[own]), false, ProcessRefreshKind::nothing());
    let group = system.process(own).and_then(Process::cgroup_limits);
    Some(machine.within(group.as_ref())).filter(|memory| memory.total > 0)
}

impl Memory {
    /// With a group's limits, if there are any. Its free memory leaves out what files hold in memory, though that is
    /// given up when needed, so that what its own processes hold is counted instead. Others below the same limit may
    /// hold some too: then less is available.
    fn within(self, group: Option<&CGroupLimits>) -> Memory {
        let Some(group) = group else { return self };
        Memory {
            total: self.total.min(group.total_memory),
            available: self.available.min(group.total_memory.saturating_sub(group.rss)),
        }
    }
}

/// Asks the operating system to drop its copy of a file's content, so that what is read next comes from the disk.
///
/// # Errors
/// What the operating system says.
pub(crate) fn forget_cached(file: &File) -> io::Result<()> {
    // Only what has reached the disk can be dropped.
    file.sync_all()?;
    forget_synced(file)
}

/// The same of a file whose content has reached the disk: to see to that once more would take longer than to read from
/// it.
///
/// # Errors
/// What the operating system says.
pub(crate) fn forget_synced(file: &File) -> io::Result<()> {
    Ok(fadvise(file, 0, None, Advice::DontNeed)?)
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
    write().map_err(ExecutorError::file(path))
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

    #[test]
    fn a_container_has_what_it_is_given() {
        let machine = || Memory {
            total: 64 * GIB,
            available: 48 * GIB,
        };
        let given = |total, rss| CGroupLimits {
            total_memory: total,
            // All but a GiB is taken, most of it by files that were read.
            free_memory: GIB,
            free_swap: 0,
            rss,
        };
        let within = |group: CGroupLimits| machine().within(Some(&group));
        assert_eq!(machine().within(None), machine());
        let (total, available) = (16 * GIB, 12 * GIB);
        assert_eq!(within(given(total, 4 * GIB)), Memory { total, available });
        // The machine's others have taken what the group has not.
        let (total, available) = (60 * GIB, 48 * GIB);
        assert_eq!(within(given(total, GIB)), Memory { total, available });
    }
}
