//! Which sweep it is: all that its runs' figures depend on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use tenantry_reports::manifest::ProfileSource;
use tenantry_scenarios::RunSpec;

use crate::caveats::{Measured, recording_caveats};
use crate::failure::Failure;
use crate::output::Started;
use crate::runs::Loaded;

/// What a sweep's figures depend on, by the contents: runs of two folders belong together where this is the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// Of the file's form: 3.
    schema: u32,
    /// The scenario's name.
    pub scenario: String,
    /// The scenario's seed.
    pub seed: u64,
    /// How many runs all shards have together.
    pub runs: usize,
    /// Of all that follows down to the files. Each run has it too.
    pub digest: String,
    /// Of Tenantry.
    version: String,
    /// BLAKE3 of the program: two builds of one version need not simulate alike.
    #[serde(default)]
    program: String,
    /// Of the resolved scenario.
    scenario_digest: String,
    cards: Vec<Content>,
    /// The files that the scenario names: recordings, tables, tokenizers.
    files: Vec<Content>,
    /// Of the first run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileSource>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_profiles: Vec<ProfileSource>,
    /// What must be known of the cards.
    pub caveats: Vec<String>,
    /// Whether they are of another machine or day is said where the runs are put together, which need not be where they
    /// were run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measured: Vec<Measured>,
    /// The scenario in full: another command may write its own to the folder. Nothing of sweeps before there was it,
    /// which are only told apart.
    #[serde(default)]
    pub resolved: String,
}

/// A file or card by what is in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Content {
    name: String,
    /// BLAKE3.
    digest: String,
}

impl Sweep {
    /// The sweep of a scenario whose files are `inputs`.
    ///
    /// # Errors
    /// When the program's own file cannot be read.
    pub fn of(loaded: &Loaded, inputs: &Inputs, started: &Started) -> Result<Sweep, Failure> {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let program = std::env::current_exe().and_then(|path| content(&path));
        let program = program.map_err(|error| Failure::Running(format!("the program's own file: {error}")))?.digest;
        let scenario_digest = hex(blake3::hash(loaded.scenario.resolved_yaml().as_bytes()));
        let card = |card: &tenantry_profiles::Card| Content {
            name: card.name.clone(),
            digest: card.digest(),
        };
        let mut cards: Vec<Content> = loaded.cards().map(card).collect();
        // By name and content: another machine may have the same card at another path.
        cards.sort();
        let files = inputs.files.iter().map(|(path, content)| Content {
            name: path.display().to_string(),
            digest: content.digest.clone(),
        });
        let files: Vec<Content> = files.collect();
        let mut hasher = blake3::Hasher::new();
        let of_contents = cards.iter().chain(&files).map(|content| content.digest.as_str());
        for part in [version.as_str(), &program, &scenario_digest].into_iter().chain(of_contents) {
            hasher.update(part.as_bytes()).update(&[0]);
        }
        let manifest = started.manifest(&loaded.all_cards(), None, 0, Vec::new());
        Ok(Sweep {
            schema: 3,
            scenario: loaded.scenario.name.clone(),
            seed: loaded.scenario.seed,
            runs: loaded.runs.len(),
            digest: hex(hasher.finalize()),
            version,
            program,
            scenario_digest,
            cards,
            files,
            profile: manifest.profile,
            other_profiles: manifest.other_profiles,
            caveats: [
                loaded.card_caveats(),
                loaded.refused_tasks(),
                recording_caveats(&loaded.runs),
            ]
            .concat(),
            measured: loaded.measured().collect(),
            resolved: loaded.resolved_yaml(),
        })
    }

    /// What a run's figures depend on, by which another sweep's run is found to be the same: of the sweep's files those
    /// that it reads. `card` is the digest of its card.
    pub fn key(&self, run: &RunSpec, card: &str, inputs: &[PathBuf]) -> String {
        // Where the scenario lies is no part of it.
        let spec = RunSpec {
            file: String::new(),
            ..run.clone()
        };
        let is_read = |content: &&Content| inputs.iter().any(|path| content.name == path.display().to_string());
        let of_files = self.files.iter().filter(is_read).map(|content| content.digest.as_str());
        let mut hasher = blake3::Hasher::new();
        for part in [&self.version, &self.program, card, &format!("{spec:?}")].into_iter().chain(of_files) {
            hasher.update(part.as_bytes()).update(&[0]);
        }
        hex(hasher.finalize())
    }

    /// In what `other` is another sweep; nothing where it is the same.
    pub fn difference(&self, other: &Sweep) -> Option<String> {
        if self.digest == other.digest {
            return None;
        }
        if self.version != other.version {
            return Some(format!("version {} and not {}", other.version, self.version));
        }
        if self.program != other.program {
            let (mine, others) = (short(&self.program), short(&other.program));
            return Some(format!(
                "another build of version {} (BLAKE3 of the program {others}… and not {mine}…), which need not \
                 simulate alike",
                self.version
            ));
        }
        if self.scenario_digest != other.scenario_digest {
            return Some("another scenario (its scenario.resolved.yaml says which)".to_owned());
        }
        let changed = |mine: &[Content], others: &[Content]| {
            let pair = mine.iter().zip(others).find(|(mine, other)| mine != other)?;
            let (mine, other) = pair;
            Some((mine.name.clone(), short(&mine.digest), short(&other.digest)))
        };
        let changed = match changed(&self.cards, &other.cards) {
            Some((name, mine, other)) => Some((format!("card {name}"), mine, other)),
            None => changed(&self.files, &other.files),
        };
        Some(changed.map_or_else(
            || "other cards".to_owned(),
            |(name, mine, other)| format!("other contents of {name} (BLAKE3 {other}… and not {mine}…)"),
        ))
    }
}

/// What a message or a file's name shows of a digest.
pub fn short(digest: &str) -> String {
    digest.chars().take(12).collect()
}

fn hex(hash: blake3::Hash) -> String {
    hash.to_hex().to_string()
}

/// The files that a scenario names, as they were when the sweep began.
#[derive(Debug)]
pub struct Inputs {
    files: BTreeMap<PathBuf, FileContent>,
}

/// What a file holds, and how it is told without reading that it still does.
#[derive(Debug)]
struct FileContent {
    digest: String,
    stamps: Vec<Stamp>,
}

/// Length and time of the last change, of each file where it is a folder.
type Stamp = (PathBuf, u64, Option<SystemTime>);

impl Inputs {
    /// Reads all files, or folders, once.
    pub fn of(files: BTreeSet<PathBuf>) -> Result<Inputs, Failure> {
        let of_file = |path: PathBuf| -> Result<(PathBuf, FileContent), Failure> {
            let content = content(&path).map_err(|error| Failure::unreadable(&path, &error))?;
            Ok((path, content))
        };
        let files = files.into_iter().map(of_file);
        Ok(Inputs {
            files: files.collect::<Result<_, Failure>>()?,
        })
    }

    /// Whether all are still what they were. A run that ended while one of them changed may have read either.
    pub fn check_unchanged(&self) -> Result<(), Failure> {
        for (path, content) in &self.files {
            let now = stamps(path).map_err(|error| Failure::unreadable(path, &error))?;
            if now != content.stamps {
                return Err(Failure::Running(format!(
                    "{}: must stay as it is while runs are made of it, got a change; what was saved before is of the \
                     file as it was, and with it the same command goes on",
                    path.display()
                )));
            }
        }
        Ok(())
    }
}

fn content(path: &Path) -> io::Result<FileContent> {
    let stamps = stamps(path)?;
    let mut hasher = blake3::Hasher::new();
    for (file, length, _) in &stamps {
        // A folder's files have names, which readers go by, and ends.
        if stamps.len() > 1 {
            hasher.update(file.file_name().unwrap_or_default().as_encoded_bytes());
            hasher.update(&length.to_le_bytes());
        }
        hasher.update_reader(File::open(file)?)?;
    }
    Ok(FileContent {
        digest: hex(hasher.finalize()),
        stamps,
    })
}

/// Of a file, or of the files in a folder by name.
fn stamps(path: &Path) -> io::Result<Vec<Stamp>> {
    let stamp = |path: PathBuf| -> io::Result<Stamp> {
        let of = fs::metadata(&path)?;
        Ok((path, of.len(), of.modified().ok()))
    };
    if !fs::metadata(path)?.is_dir() {
        return Ok(vec![stamp(path.to_owned())?]);
    }
    let entries = fs::read_dir(path)?.map(|entry| Ok(entry?.path()));
    let mut files = entries.collect::<io::Result<Vec<PathBuf>>>()?;
    files.retain(|file| file.is_file());
    files.sort();
    files.into_iter().map(stamp).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_told_apart_and_changes_are_seen() {
        let place = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(place.path().join(name), text).unwrap();
        let digest = |path: &Path| content(path).unwrap().digest;
        write("a", "one");
        write("b", "two");
        let (file, folder) = (place.path().join("a"), place.path().to_owned());
        let (of_file, of_folder) = (digest(&file), digest(&folder));
        let inputs = Inputs::of([file.clone(), folder.clone()].into()).unwrap();
        inputs.check_unchanged().unwrap();
        // Other names with the same contents, other ends between two files, another file: another folder.
        fs::rename(place.path().join("b"), place.path().join("c")).unwrap();
        assert_ne!(digest(&folder), of_folder);
        let message = inputs.check_unchanged().unwrap_err().to_string();
        assert!(
            message.contains("must stay as it is while runs are made of it"),
            "{message}"
        );
        fs::rename(place.path().join("c"), place.path().join("b")).unwrap();
        assert_eq!(digest(&folder), of_folder);
        write("a", "onet");
        write("b", "wo");
        assert_ne!((digest(&file), digest(&folder)), (of_file, of_folder));
        let missing = Inputs::of([place.path().join("missing")].into()).unwrap_err().to_string();
        assert!(
            missing.contains("missing: must be a file that can be read, got: "),
            "{missing}"
        );
    }
}
