//! A run's folder. Each file is whole or not there at all: it is written beside its place and then takes its name.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use tempfile::Builder;

use crate::curves::Run;
use crate::error::ReportError;
use crate::flat;
use crate::manifest::Manifest;
use crate::page::Page;
use crate::summary::Summary;
use crate::validation::Validation;

/// What a run leaves behind.
#[derive(Clone, Copy, Debug)]
pub struct RunFolder<'a> {
    /// The scenario's name.
    pub scenario: &'a str,
    /// The scenario's seed.
    pub seed: u64,
    /// The scenario with every default written out, as YAML.
    pub resolved_scenario: &'a str,
    /// All runs.
    pub runs: &'a [Run],
    /// Where both machines ran.
    pub validation: Option<&'a Validation>,
    /// Where it comes from.
    pub manifest: &'a Manifest,
}

impl RunFolder<'_> {
    /// Writes all files, makes the folder where it is missing, and says where the page lies. `summary.json` comes last: a folder
    /// that has one is complete.
    ///
    /// # Errors
    /// When a file cannot be written; the error names it.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, ReportError> {
        fs::create_dir_all(folder).map_err(|source| ReportError::Io {
            path: folder.to_owned(),
            source,
        })?;
        let file = |name: &str, bytes: &[u8]| write_whole(&folder.join(name), bytes);
        let summary = Summary::new(self.scenario, self.seed, self.runs);
        let page = Page {
            scenario: self.scenario,
            runs: self.runs,
            validation: self.validation,
            manifest: self.manifest,
        };
        file("scenario.resolved.yaml", self.resolved_scenario.as_bytes())?;
        file("manifest.json", &json(self.manifest)?)?;
        file("report.html", page.render()?.as_bytes())?;
        if let Some(validation) = self.validation {
            file("validation.json", &json(validation)?)?;
        }
        file("summary.csv", &flat::csv(&summary.runs)?)?;
        file("summary.json", &json(&summary)?)?;
        Ok(folder.join("report.html"))
    }
}

/// Indented JSON with a final newline, as all of a run's files have it.
///
/// # Errors
/// When a value has no form in JSON.
pub fn json(value: &impl Serialize) -> Result<Vec<u8>, ReportError> {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Writes a file whole or not at all: whoever opens `path` finds the old contents or the new ones, even after a power cut.
///
/// # Errors
/// When the folder is missing, not writable or full; the error names `path`.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), ReportError> {
    let write = || -> io::Result<()> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let mut builder = Builder::new();
        builder.prefix(".tenantry-");
        // Temporary files are private by default; a result is as readable as any new file.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let mut file = builder.tempfile_in(folder)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(|source| ReportError::Io {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use crate::validation::Limits;

    #[test]
    fn a_folder_is_written_whole_and_twice_the_same() {
        let place = tempfile::tempdir().unwrap();
        let (runs, manifest) = (testing::runs(), testing::manifest());
        let validation = Validation::new("quickstart", Limits::default(), &runs);
        let folder = RunFolder {
            scenario: "quickstart",
            seed: 7,
            resolved_scenario: "name: quickstart\n",
            runs: &runs,
            validation: Some(&validation),
            manifest: &manifest,
        };
        let read = |name: &str| fs::read(place.path().join("deep/run").join(name)).unwrap();
        folder.write(&place.path().join("deep/run")).unwrap();
        let summary = read("summary.json");
        let page = folder.write(&place.path().join("deep/run")).unwrap();
        assert_eq!(read("summary.json"), summary);
        assert_eq!(fs::read(page).unwrap(), read("report.html"));
        let found: Summary = serde_json::from_slice(&summary).unwrap();
        assert_eq!(found, Summary::new("quickstart", 7, &runs));
        assert_eq!(
            serde_json::from_slice::<Manifest>(&read("manifest.json")).unwrap(),
            manifest
        );

        let mut names: Vec<String> = fs::read_dir(place.path().join("deep/run"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let expected = [
            "manifest.json",
            "report.html",
            "scenario.resolved.yaml",
            "summary.csv",
            "summary.json",
            "validation.json",
        ];
        assert_eq!(names, expected, "and nothing temporary");
    }

    #[test]
    fn a_failed_write_names_the_file_and_leaves_the_old_one() {
        let place = tempfile::tempdir().unwrap();
        let missing = place.path().join("missing/summary.json");
        let error = write_whole(&missing, b"{}").unwrap_err().to_string();
        assert!(error.starts_with(&missing.display().to_string()), "{error}");

        // A folder cannot be replaced by a file, so that the last step fails.
        let taken = place.path().join("summary.json");
        fs::create_dir(&taken).unwrap();
        fs::write(taken.join("old"), "old").unwrap();
        write_whole(&taken, b"{}").unwrap_err();
        assert_eq!(fs::read_to_string(taken.join("old")).unwrap(), "old");
        assert_eq!(
            fs::read_dir(place.path()).unwrap().count(),
            1,
            "nothing temporary is left"
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_result_is_as_readable_as_any_new_file() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let mode = |name: &str| fs::metadata(place.path().join(name)).unwrap().permissions().mode();
        write_whole(&place.path().join("ours"), b"").unwrap();
        fs::write(place.path().join("any"), b"").unwrap();
        assert_eq!(mode("ours"), mode("any"));
    }
}
