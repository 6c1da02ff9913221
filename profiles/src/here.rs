//! The machine that this runs on.

use sysinfo::{CpuRefreshKind, RefreshKind, System};

/// What a processor is called of which the system does not say it.
pub const UNKNOWN_PROCESSOR: &str = "unknown CPU";

/// The processor's model, as the system names it.
pub fn processor() -> Option<String> {
    let system = System::new_with_specifics(RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing())).ok()?;
    let brand = system.cpus().first()?.brand().trim().to_string();
    (!brand.is_empty()).then_some(brand)
}

/// Cores that this process may use; one where the system does not say.
pub fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32)
}

/// What Linux calls the time since this machine was last started: another after each start, and on each machine.
pub fn boot() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(boot.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By which cards were measured, and runs tell whether this is the same machine.
    #[test]
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    fn a_processor_is_called_what_the_kernel_calls_it() {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let line = info.lines().find(|line| line.starts_with("model name")).unwrap();
        let name = line.split_once(':').unwrap().1.trim();
        assert_eq!(processor().as_deref(), Some(name));
    }
}
