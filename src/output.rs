//! What is said on the terminal, and where a result's provenance comes from.

use std::fs;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tenantry_profiles::{Card, Source, cores, processor};
use tenantry_reports::folder::json;
use tenantry_reports::manifest::{Host, Manifest, ProfileSource};
use tenantry_reports::terminal::Style;
use tenantry_reports::whole::write_whole;
use tenantry_traces::whole::folder_of;

use crate::cli::OutputArgs;
use crate::failure::Failure;

/// The style of tables on standard output.
pub fn style() -> Style {
    if !std::io::stdout().is_terminal() {
        return Style::of(None);
    }
    Style::of(comfy_table::Table::new().width())
}

/// Makes a folder, and those that it lies in, where they are missing.
pub fn make_folder(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(|error| Failure::Running(format!("{}: {error}", folder.display())))
}

/// Makes the folder that a file is to lie in, where it is missing.
pub fn make_folder_of(file: &Path) -> Result<(), Failure> {
    make_folder(folder_of(file))
}

/// Writes a file whole or not at all, in a folder that is made where it is missing.
pub fn write_in_folder(path: &Path, text: &str) -> Result<(), Failure> {
    make_folder_of(path)?;
    write_whole(path, text.as_bytes()).map_err(Failure::running)
}

/// Refuses to write over a file that is `read`, by whichever of its names: a recording may not be had again.
pub fn check_not_read(flag: &str, out: &Path, read: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<(), Failure> {
    // Where there is no such file yet, nothing is lost.
    let Ok(there) = out.canonicalize() else {
        return Ok(());
    };
    let is_it = |path: &Path| path.canonicalize().is_ok_and(|path| path == there);
    match read.into_iter().any(|path| is_it(path.as_ref())) {
        false => Ok(()),
        true => Err(Failure::BadInput(format!(
            "{flag}: must be another file than those that are read, got {}",
            out.display()
        ))),
    }
}

/// What figures and tables are kept in, and never pages.
const OF_RESULTS: [&str; 6] = ["csv", "gz", "json", "parquet", "sbatch", "yaml"];

/// Refuses to write a page over what lies in a folder of results or a card, from which it is made.
pub fn check_no_result(flag: &str, page: &Path, folder: &Path) -> Result<(), Failure> {
    // Where there is no such file yet, nothing is lost.
    let (Ok(there), Ok(folder)) = (page.canonicalize(), folder.canonicalize()) else {
        return Ok(());
    };
    // A link in the folder to a file elsewhere is one of its results too.
    let lies_in = folder_of(page).canonicalize().unwrap_or_default();
    let extension = page.extension().and_then(|extension| extension.to_str());
    let is_inside = there.starts_with(&folder) || lies_in.starts_with(&folder);
    let is_result = is_inside && extension.is_some_and(|extension| OF_RESULTS.contains(&extension));
    check_not_read(flag, page, is_result.then_some(page))
}

/// Refuses what cannot be a folder, or not be written to, before hours of work are done for what is to go there. Nothing is made yet.
pub fn check_folder(flag: &str, folder: &Path) -> Result<(), Failure> {
    let refused = |must: &str, why: String| {
        let got = folder.display();
        Err(Failure::BadInput(format!("{flag}: must be {must}, got {got}, {why}")))
    };
    // Of a relative path the last is nothing: the folder that one is in.
    let there = { folder.ancestors() }.find(|folder| folder.as_os_str().is_empty() || folder.exists());
    let there = there
        .filter(|there| !there.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    if !there.is_dir() {
        let why = format!("where {} is a file", there.display());
        return refused("a folder, or one that can be made", why);
    }
    match tempfile::tempfile_in(there) {
        Ok(_) => Ok(()),
        Err(error) => {
            let why = format!("where {} cannot be: {}", there.display(), error.kind());
            refused("a folder that can be written to", why)
        }
    }
}

/// Prints a result: as JSON where that was asked for, else as `text`, else nothing.
pub fn print(output: &OutputArgs, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), Failure> {
    if output.json {
        return to_stdout(&json(value).map_err(Failure::running)?);
    } else if !output.quiet {
        return to_stdout(format!("{}\n", text()).as_bytes());
    }
    Ok(())
}

/// Writes to standard output.
pub fn to_stdout(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    written.map_err(|error| Failure::Running(format!("standard output: {error}")))
}

/// Prints a file that comes with the program as it is, which `--quiet` does not keep from it; as JSON where that was asked for.
pub fn print_yaml(output: &OutputArgs, yaml: &str) -> Result<(), Failure> {
    if output.json {
        let value: serde_yaml::Value = serde_yaml::from_str(yaml).map_err(Failure::running)?;
        return print(output, &value, String::new);
    }
    to_stdout(yaml.as_bytes())
}

/// Says something by the way, on standard error.
pub fn say(output: &OutputArgs, text: &str) {
    if !output.quiet {
        eprintln!("{text}");
    }
}

/// Says which command is worth trying now, on standard error.
pub fn next(output: &OutputArgs, command: &str) {
    say(output, &format!("next: {command}"));
}

/// The start of a command, for its manifest.
pub struct Started {
    clock: Instant,
    date: SystemTime,
}

impl Started {
    /// Now.
    pub fn now() -> Started {
        Started {
            clock: Instant::now(),
            date: SystemTime::now(),
        }
    }

    /// Seconds since.
    pub fn wall_s(&self) -> f64 {
        self.clock.elapsed().as_secs_f64()
    }

    /// The manifest of a command that ends now.
    pub fn manifest(&self, cards: &[&Card], device: Option<&str>, events: u64, caveats: Vec<String>) -> Manifest {
        let wall_s = self.wall_s();
        let mut profiles = cards.iter().map(|card| ProfileSource {
            name: card.name.clone(),
            digest: card.digest(),
            provenance: Some(provenance(card)),
        });
        Manifest {
            version: env!("CARGO_PKG_VERSION").into(),
            command_line: std::env::args().collect(),
            started: Some(rfc3339(self.date)),
            wall_s,
            events_per_s: (events > 0).then(|| events as f64 / wall_s),
            profile: profiles.next(),
            other_profiles: profiles.collect(),
            host: Host {
                name: read_trimmed("/proc/sys/kernel/hostname").unwrap_or_else(|| "unknown".into()),
                processor: processor(),
                cores: cores(),
                device: device.map(str::to_owned),
            },
            caveats,
        }
    }
}

/// Where a card's numbers come from, in a sentence.
pub fn provenance(card: &Card) -> String {
    let (how, of) = (come_by(card.provenance.source), &card.provenance);
    format!("{how} on {} ({})", of.date, of.command)
}

/// How a card's numbers were come by.
pub fn come_by(source: Source) -> &'static str {
    match source {
        Source::Measured => "measured",
        Source::Imported => "imported",
        Source::Fitted => "fitted from a paper",
        Source::Derived => "derived, measured on no device",
        Source::Assumed => "assumed, measured on no device",
    }
}

/// Free bytes of the file system under `path`, as far as a user may have them.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let system = rustix::fs::statvfs(path).ok()?;
    Some(system.f_bavail * system.f_frsize)
}

fn read_trimmed(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// A date and time in UTC, as RFC 3339 has it.
fn rfc3339(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64);
    jiff::Timestamp::from_second(seconds).map_or_else(|_| "unknown".into(), |t| t.to_string())
}

/// Today's date in UTC.
pub fn today() -> String {
    rfc3339(SystemTime::now())
        .split('T')
        .next()
        .expect("a date comes first")
        .to_owned()
}
