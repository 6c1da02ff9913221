//! What is said on the terminal, and where a result's provenance comes from.

use std::fs;
use std::io::{IsTerminal, Write};
use std::path::{Component, Path, PathBuf};
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

/// Refuses a file that cannot be written, before minutes of work are done for it, and to write over one that is `read`,
/// by whichever of its names: a recording may not be had again.
pub fn check_file(flag: &str, out: &Path, read: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<(), Failure> {
    let got = out.display();
    let refused = |must: &str| Err(Failure::BadInput(format!("{flag}: must be {must}")));
    let no_file = |is: &str| refused(&format!("a file, or one that can be made, got {got}, which is {is}"));
    if out.to_string_lossy().ends_with(std::path::is_separator) {
        return no_file("a folder");
    }
    if let Ok(there) = out.canonicalize() {
        let is_it = |path: &Path| path.canonicalize().is_ok_and(|path| path == there);
        if there.is_dir() {
            return no_file("a folder");
        }
        // A new file would take its place.
        if !there.is_file() {
            return no_file("a device or a pipe");
        }
        if read.into_iter().any(|path| is_it(path.as_ref())) {
            return refused(&format!("another file than those that are read, got {got}"));
        }
    }
    match check_can_write_in(folder_of(out)) {
        Ok(()) => Ok(()),
        Err(Unwritable { must, why }) => refused(&format!("a file{must}, got {got}, {why}")),
    }
}

/// Refuses two flags the same file: the second would take the place of the first.
pub fn check_apart(first: (&str, Option<&Path>), second: (&str, Option<&Path>)) -> Result<(), Failure> {
    let ((flag, Some(path)), (other_flag, Some(other))) = (first, second) else {
        return Ok(());
    };
    match place_of(path) == place_of(other) {
        false => Ok(()),
        true => Err(Failure::BadInput(format!(
            "{flag}: must be another file than {other_flag}, got {} for both",
            path.display()
        ))),
    }
}

/// Where a file lies or is to lie, by whichever path.
fn place_of(file: &Path) -> PathBuf {
    let path = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let (folder, name) = (folder_of(&path), path.file_name());
    let there = folder.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    let (above, mut place) = there.unwrap_or((Path::new(""), PathBuf::new()));
    // Of folders that are not there yet none is a link.
    for part in folder.strip_prefix(above).into_iter().flat_map(Path::components) {
        match part {
            Component::ParentDir => drop(place.pop()),
            part => place.push(part),
        }
    }
    place.extend(name);
    place
}

/// What figures and tables are kept in, and never pages.
const OF_RESULTS: [&str; 8] = ["csv", "gz", "json", "md", "parquet", "safetensors", "sbatch", "yaml"];

/// Refuses a file that cannot be written, and to write it over what lies in folders of results or cards, from which it
/// is made.
pub fn check_no_result(
    flag: &str,
    out: &Path,
    folders: impl IntoIterator<Item = impl AsRef<Path>>,
) -> Result<(), Failure> {
    let there = out.canonicalize().unwrap_or_default();
    // A link in the folder to a file elsewhere is one of its results too.
    let lies_in = folder_of(out).canonicalize().unwrap_or_default();
    let is_in = |folder: &Path| {
        folder
            .canonicalize()
            .is_ok_and(|folder| there.starts_with(&folder) || lies_in.starts_with(&folder))
    };
    let is_inside = folders.into_iter().any(|folder| is_in(folder.as_ref()));
    let extension = out.extension().and_then(|extension| extension.to_str());
    let is_result = is_inside && extension.is_some_and(|extension| OF_RESULTS.contains(&extension));
    check_file(flag, out, is_result.then_some(out))
}

/// How the names of pages end.
pub const OF_PAGES: [&str; 2] = [".html", ".htm"];

/// As [`check_no_result`], of a page, which is called one: under another name it would take the place of what it is not
/// made from, another folder's figures among them.
pub fn check_page(flag: &str, out: &Path, folders: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<(), Failure> {
    check_no_result(flag, out, folders)?;
    check_ending(flag, out, &OF_PAGES)
}

/// Refuses a file that is called something else than what is to be written.
pub fn check_ending(flag: &str, out: &Path, endings: &[&str]) -> Result<(), Failure> {
    let got = out.to_string_lossy();
    match endings.iter().any(|ending| got.ends_with(ending)) {
        true => Ok(()),
        false => Err(Failure::BadInput(format!(
            "{flag}: must end in {}, got {got}",
            endings.join(" or ")
        ))),
    }
}

/// Refuses what cannot be a folder, or not be written to, before hours of work are done for what is to go there.
/// Nothing is made yet.
pub fn check_folder(flag: &str, folder: &Path) -> Result<(), Failure> {
    let got = folder.display();
    check_can_write_in(folder).map_err(|Unwritable { must, why }| {
        Failure::BadInput(format!("{flag}: must be a folder{must}, got {got}, {why}"))
    })
}

/// Refuses what is no folder that `command` can have left its results in.
pub fn check_left_by(command: &str, folder: &Path) -> Result<(), Failure> {
    let got = match folder.is_dir() {
        true => return Ok(()),
        false if folder.exists() => "a file",
        false => "no such folder",
    };
    let folder = folder.display();
    Err(Failure::BadInput(format!(
        "{folder}: must be a folder that `{command}` left, got {got}"
    )))
}

/// Refuses a path beside which nothing can be written, before anything is to be kept there.
pub fn check_beside(flag: &str, path: &Path) -> Result<(), Failure> {
    let got = path.display();
    check_can_write_in(folder_of(path)).map_err(|Unwritable { must, why }| {
        Failure::BadInput(format!("{flag}: must lie in a folder{must}, got {got}, {why}"))
    })
}

/// Refuses a folder in which no card can be saved. One that is there is replaced by one that is written beside it.
pub fn check_card_folder(flag: &str, folder: &Path) -> Result<(), Failure> {
    check_folder(flag, folder)?;
    match folder.join("card.yaml").exists() {
        true => check_beside(flag, folder),
        false => Ok(()),
    }
}

/// Why nothing can be written in a folder: what follows upon what it must be, and where it is otherwise.
struct Unwritable {
    must: &'static str,
    why: String,
}

/// Whether there is such a folder, or one could be made, and be written to.
fn check_can_write_in(folder: &Path) -> Result<(), Unwritable> {
    // Of a relative path the last is nothing: the folder that one is in. A link may lead nowhere.
    let is_there = |folder: &&Path| folder.as_os_str().is_empty() || folder.symlink_metadata().is_ok();
    let there = folder.ancestors().find(is_there);
    let there = there.filter(|there| !there.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let refused = |must, why: &str| {
        let why = format!("where {} {why}", there.display());
        Err(Unwritable { must, why })
    };
    if !there.is_dir() {
        let is = if there.exists() { "is a file" } else { "leads nowhere" };
        return refused(", or one that can be made", is);
    }
    match tempfile::tempfile_in(there) {
        Ok(_) => Ok(()),
        Err(error) => refused(" that can be written to", &format!("cannot be: {}", error.kind())),
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

/// Prints a file that comes with the program as it is, which `--quiet` does not keep from it; as JSON where that was
/// asked for.
pub fn print_yaml(output: &OutputArgs, yaml: &str) -> Result<(), Failure> {
    if output.json {
        let value: serde_yaml::Value = serde_yaml::from_str(yaml).map_err(Failure::running)?;
        return print(output, &value, String::new);
    }
    to_stdout(yaml.as_bytes())
}

/// `1 request`, `2 requests`.
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
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
    rfc3339(SystemTime::now()).split('T').next().expect("a date comes first").to_owned()
}
