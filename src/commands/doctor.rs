//! `tenantry doctor`: what this machine has, and what to do about what is missing.

use std::path::Path;

use serde::Serialize;
use tenantry_profiles::{Card, DeviceKind, Source, UNKNOWN_PROCESSOR, cores, processor};
use tenantry_reports::human;

use crate::cards::card_folders;
use crate::cli::{DoctorArgs, OutputArgs};
use crate::failure::Failure;
use crate::output::{free_bytes, print, provenance};

/// One thing that was looked at.
#[derive(Serialize)]
struct Finding {
    what: &'static str,
    ok: bool,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Finding {
    fn good(what: &'static str, found: impl Into<String>) -> Finding {
        Finding {
            what,
            ok: true,
            found: found.into(),
            remedy: None,
        }
    }

    fn bad(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding {
            what,
            ok: false,
            found: found.into(),
            remedy: Some(remedy.into()),
        }
    }
}

pub fn run(args: &DoctorArgs, output: &OutputArgs) -> Result<(), Failure> {
    if let Some(device) = &args.device {
        return check(device, output);
    }
    let mut findings = vec![host(), libtorch()];
    findings.extend(gpu());
    findings.extend([cpu_profile(), disk()]);
    let line = |finding: &Finding| {
        let mark = if finding.ok { "ok     " } else { "missing" };
        let remedy = finding
            .remedy
            .as_ref()
            .map_or_else(String::new, |remedy| format!("\n          → {remedy}"));
        format!("{mark} {}: {}{remedy}", finding.what, finding.found)
    };
    if output.quiet && !output.json {
        // Only what is wrong.
        let wrong = findings.iter().filter(|finding| !finding.ok).map(line);
        wrong.for_each(|line| eprintln!("{line}"));
        return Ok(());
    }
    print(output, &findings, || {
        findings.iter().map(line).collect::<Vec<_>>().join("\n")
    })
}

/// Whether what a device computes is right.
#[cfg(feature = "libtorch")]
fn check(device: &str, output: &OutputArgs) -> Result<(), Failure> {
    use tenantry_executor::precision::{self, Check};
    use tenantry_profiles::DType;

    let torch = tenantry_executor::find_device(device).map_err(Failure::bad_input)?;
    let described = tenantry_executor::describe(torch).map_err(Failure::running)?;
    let interrupt = crate::interrupt::flag();
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

#[cfg(not(feature = "libtorch"))]
fn check(_: &str, _: &OutputArgs) -> Result<(), Failure> {
    Err(Failure::without_libtorch())
}

fn host() -> Finding {
    let cores = cores();
    let found = format!(
        "{}, {cores} cores",
        processor().unwrap_or_else(|| UNKNOWN_PROCESSOR.into())
    );
    if cores < 2 {
        let remedy = "real runs want a core for computing and one for arrivals and copies; simulation needs only one";
        return Finding::bad("processor", found, remedy);
    }
    Finding::good("processor", found)
}

#[cfg(feature = "libtorch")]
fn libtorch() -> Finding {
    Finding::good("libtorch", tenantry_executor::LIBTORCH_VERSION)
}

#[cfg(not(feature = "libtorch"))]
fn libtorch() -> Finding {
    Finding::bad(
        "libtorch",
        "not in this build: it simulates but cannot execute or measure",
        "build it with `make build`",
    )
}

/// The first GPU, and its profile.
#[cfg(feature = "libtorch")]
fn gpu() -> Vec<Finding> {
    let described = tenantry_executor::find_device("cuda:0").and_then(tenantry_executor::describe);
    match described {
        Ok(device) => {
            let driver = { device.driver.as_ref() }.map_or_else(String::new, |driver| format!(", driver {driver}"));
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

#[cfg(not(feature = "libtorch"))]
fn gpu() -> Vec<Finding> {
    vec![Finding::good("GPU", "not looked for without libtorch")]
}

/// A card that was measured on a device of this name.
#[cfg(feature = "libtorch")]
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

/// The measured cards that are found by their names alone.
fn measured(which: impl Fn(&Card) -> bool) -> Vec<Card> {
    let folders = card_folders();
    let cards = Card::available(&folders).into_iter();
    cards
        .filter_map(|name| Card::find(&name, &folders).ok())
        .filter(|card| card.provenance.source == Source::Measured && which(card))
        .collect()
}

/// That of `cpu`, which real runs take where nobody names another.
fn cpu_profile() -> Finding {
    let remedy = "measure this machine with `tenantry profile --device cpu --suite quick --out out/here`, and give it \
                  to --profile";
    let card = match Card::find("cpu", &card_folders()) {
        Ok(card) => card,
        Err(error) => return Finding::bad("profile of the CPU", error.to_string(), remedy),
    };
    let found = format!("{} on {}, {}", card.name, card.device.host.cpu, provenance(&card));
    match processor() {
        Some(here) if here != card.device.host.cpu => {
            let alike = measured(|card| card.device.kind == DeviceKind::Cpu && card.device.host.cpu == here);
            let alike: Vec<&str> = alike.iter().map(|card| card.name.as_str()).collect();
            let remedy = match alike.is_empty() {
                true => remedy.to_owned(),
                false => format!(
                    "{remedy}; of a processor that is called as this one is there {}",
                    alike.join(" and ")
                ),
            };
            Finding::bad("profile of the CPU", found, remedy)
        }
        _ => Finding::good("profile of the CPU", found),
    }
}

fn disk() -> Finding {
    const WANTED_BYTES: u64 = 2 << 30;
    match free_bytes(Path::new(".")) {
        Some(free) if free < WANTED_BYTES => {
            let found = format!("{} free here", human::bytes(free as f64));
            Finding::bad(
                "disk",
                found,
                "a build and its downloads want 2 GiB: make room or work elsewhere",
            )
        }
        Some(free) => Finding::good("disk", format!("{} free here", human::bytes(free as f64))),
        None => Finding::good("disk", "free space unknown"),
    }
}
