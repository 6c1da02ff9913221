//! `tenantry doctor` of libtorch and its devices, and what `--device` asks for: whether what one computes is right.

use std::path::Path;

use crate::device::Device;
use tenantry::cli::{DoctorArgs, OutputArgs};
use tenantry::commands::doctor::{Finding, measured, run as report};
use tenantry::failure::Failure;
use tenantry::interrupt;
use tenantry::output::{print, provenance};
use tenantry_executor::precision::{self, Check};
use tenantry_profiles::DType;
use tenantry_reports::human;

pub fn run(args: &DoctorArgs, output: &OutputArgs) -> Result<(), Failure> {
    if let Some(device) = &args.device {
        return check(device, output);
    }
    let mut findings = vec![libtorch()];
    findings.extend(gpu());
    report(findings, output)
}

/// Whether what a device computes is right.
fn check(device: &str, output: &OutputArgs) -> Result<(), Failure> {
    let torch = Device::find(device)?.torch();
    let described = tenantry_executor::describe(torch).map_err(Failure::running)?;
    let interrupt = interrupt::flag();
    let checks = precision::check(torch, DType::ALL, &interrupt);
    let (broken, failed) = (checks.broken().count(), checks.failed.len());
    let row = |check: &Check| {
        let mark = if check.holds() { "ok   " } else { "WRONG" };
        let Check {
            what,
            dtype,
            error,
            tolerance,
            effect,
        } = check;
        format!("{mark} {dtype:4}  {what:38}  off by {error:.1e} of at most {tolerance:.0e}; without it {effect:.1e}")
    };
    let json = serde_json::json!({
        "device": described.name,
        "driver": described.driver,
        "libtorch": described.libtorch,
        "checks": checks.checks.iter().map(|check| serde_json::json!({
            "what": check.what,
            "dtype": check.dtype,
            "holds": check.holds(),
            "error": check.error,
            "tolerance": check.tolerance,
            "effect": check.effect,
        })).collect::<Vec<_>>(),
        "unavailable": checks.unavailable,
        "failed": checks.failed,
    });
    print(output, &json, || {
        let driver = described.driver.as_ref();
        let driver = driver.map_or_else(String::new, |driver| format!(", driver {driver}"));
        let head = format!("{}{driver}, against double precision on the CPU:", described.name);
        let rows = checks.checks.iter().map(row);
        let words = checks.failed.iter().chain(&checks.unavailable).cloned();
        let all = [head].into_iter().chain(rows).chain(words);
        all.collect::<Vec<_>>().join("\n")
    })?;
    match (broken, failed) {
        (0, 0) if checks.interrupted => Err(Failure::Interrupted("the other results were not looked at".into())),
        (0, 0) => Ok(()),
        _ => Err(Failure::Running(format!(
            "{broken} of {} results of {device} are not what the CPU's are in double precision; {failed} more failed",
            checks.checks.len()
        ))),
    }
}

fn libtorch() -> Finding {
    Finding::good("libtorch", tenantry_executor::LIBTORCH_VERSION)
}

/// The first GPU, and its profile.
fn gpu() -> Vec<Finding> {
    let described = tenantry_executor::find_device("cuda:0").and_then(tenantry_executor::describe);
    match described {
        Ok(device) => {
            let driver = device.driver.as_ref().map_or_else(String::new, |driver| format!(", driver {driver}"));
            let found = format!("{}, {}{driver}", device.name, human::bytes(device.memory_bytes as f64));
            vec![Finding::good("GPU", found), gpu_profile(&device.name)]
        }
        // What the driver of an NVIDIA card leaves where it is loaded.
        Err(error) if Path::new("/proc/driver/nvidia").exists() => {
            vec![Finding::bad("GPU", "one that libtorch does not see", error.to_string())]
        }
        Err(_) => vec![Finding::good("GPU", "none; real runs use the CPU")],
    }
}

/// A card that was measured on a device of this name.
fn gpu_profile(device: &str) -> Finding {
    match measured(|card| card.device.name == device).first() {
        Some(card) => Finding::good("profile of the GPU", format!("{}, {}", card.name, provenance(card))),
        None => Finding::bad(
            "profile of the GPU",
            "none that was measured on such a card",
            "measure it with `tenantry profile --device cuda:0 --suite full --out out/gpu`, and give it to --profile",
        ),
    }
}
