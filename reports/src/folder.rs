//! A run's folder. Each file is whole or not there at all: it is written beside its place and then takes its name.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::curves::{CurvesFile, Run};
use crate::error::ReportError;
use crate::flat;
use crate::manifest::Manifest;
use crate::page::Page;
use crate::summary::Summary;
use crate::validation::Validation;
use crate::whole::write_together;

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
    /// Writes all files, makes the folder where it is missing, and says where the page lies. `summary.json` comes last:
    /// a folder that has one is complete.
    ///
    /// # Errors
    /// When a file cannot be written; the error names it.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, ReportError> {
        fs::create_dir_all(folder).map_err(|source| ReportError::io(folder, source))?;
        let summary = Summary::new(self.scenario, self.seed, self.runs);
        let page = Page {
            scenario: self.scenario,
            runs: self.runs,
            validation: self.validation,
            folders: &[],
            manifest: self.manifest,
        };
        let mut curves = serde_json::to_vec(&CurvesFile::new(self.runs))?;
        curves.push(b'\n');
        let validation = self.validation.map(json).transpose()?;
        let mut files = vec![
            ("scenario.resolved.yaml", self.resolved_scenario.as_bytes().to_vec()),
            ("manifest.json", json(self.manifest)?),
            ("report.html", page.render()?.into_bytes()),
            ("curves.json", curves),
            ("summary.csv", flat::csv(&summary.runs)?),
        ];
        files.extend(validation.map(|validation| ("validation.json", validation)));
        files.push(("summary.json", json(&summary)?));
        let gone = self.validation.is_none().then_some("validation.json");
        write_together(folder, files, gone)?;
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
        let folder = testing::folder(&runs, &validation, &manifest);
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

        // What cannot be finished is not taken for what was there before.
        let curves = place.path().join("deep/run/curves.json");
        fs::remove_file(&curves).unwrap();
        fs::create_dir(&curves).unwrap();
        folder.write(&place.path().join("deep/run")).unwrap_err();
        assert!(!place.path().join("deep/run/summary.json").exists());
        fs::remove_dir(&curves).unwrap();
        folder.write(&place.path().join("deep/run")).unwrap();

        let mut names: Vec<String> = fs::read_dir(place.path().join("deep/run"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let expected = [
            "curves.json",
            "manifest.json",
            "report.html",
            "scenario.resolved.yaml",
            "summary.csv",
            "summary.json",
            "validation.json",
        ];
        assert_eq!(names, expected, "and nothing temporary");
    }
}
