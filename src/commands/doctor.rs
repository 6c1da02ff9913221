//! `tenantry doctor`: what this machine has, and what to do about what is missing.

use std::path::Path;

use serde::Serialize;
use tenantry_profiles::{Card, DeviceKind, Source, UNKNOWN_PROCESSOR, cores, processor};
use tenantry_reports::human;

use crate::cards::card_folders;
use crate::cli::OutputArgs;
use crate::failure::Failure;
use crate::output::{free_bytes, print, provenance};

/// One thing that was looked at.
#[derive(Serialize)]
pub struct Finding {
    what: &'static str,
    ok: bool,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Finding {
    pub fn good(what: &'static str, found: impl Into<String>) -> Finding {
        Finding {
            what,
            ok: true,
            found: found.into(),
            remedy: None,
        }
    }

    pub fn bad(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding {
            what,
            ok: false,
            found: found.into(),
            remedy: Some(remedy.into()),
        }
    }
}

/// `of_libtorch` is what was found of libtorch and its devices.
pub fn run(of_libtorch: Vec<Finding>, output: &OutputArgs) -> Result<(), Failure> {
    let mut findings = vec![host()];
    findings.extend(of_libtorch);
    findings.extend([cpu_profile(), disk()]);
    let line = |finding: &Finding| {
        let mark = if finding.ok { "ok     " } else { "missing" };
        let remedy = finding.remedy.as_ref().map_or_else(String::new, |remedy| format!("\n          → {remedy}"));
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

/// The measured cards that are found by their names alone.
pub fn measured(which: impl Fn(&Card) -> bool) -> Vec<Card> {
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
