//! What a command that ran a scenario leaves.

use std::path::{Path, PathBuf};

use tenantry_reports::manifest::Manifest;
use tenantry_reports::{Run, RunFolder, Summary, Validation, terminal};

use super::Loaded;
use crate::cli::OutputArgs;
use crate::failure::Failure;
use crate::output::{print, say, style};

/// What a command that ran a scenario leaves: the folder, and on the terminal the result, what must be known about it,
/// and where the page lies.
pub struct Outcome<'a, T> {
    pub loaded: &'a Loaded,
    pub folder: &'a Path,
    pub runs: &'a [Run],
    pub validation: Option<&'a Validation>,
    pub manifest: &'a Manifest,
    /// Printed where `--json` asks for it.
    pub value: T,
}

impl<T: serde::Serialize> Outcome<'_, T> {
    /// Writes and prints; `text` is the result for people.
    pub fn publish(&self, output: &OutputArgs, text: impl FnOnce() -> String) -> Result<(), Failure> {
        let page = self.loaded.write(self.folder, self.runs, self.validation, self.manifest)?;
        print(output, &self.value, text)?;
        for caveat in &self.manifest.caveats {
            say(output, &format!("note: {caveat}"));
        }
        say(output, &format!("report: {}", page.display()));
        Ok(())
    }
}

/// Writes and prints the outcome of runs on one machine.
pub fn publish(
    loaded: &Loaded,
    folder: &Path,
    runs: &[Run],
    manifest: &Manifest,
    output: &OutputArgs,
) -> Result<(), Failure> {
    let outcome = Outcome {
        loaded,
        folder,
        runs,
        validation: None,
        manifest,
        value: Summary::new(&loaded.scenario.name, loaded.scenario.seed, runs),
    };
    outcome.publish(output, || terminal::systems(runs, style()))
}

impl Loaded {
    /// Writes the folder of results and says where the page lies.
    fn write(
        &self,
        folder: &Path,
        runs: &[Run],
        validation: Option<&Validation>,
        manifest: &Manifest,
    ) -> Result<PathBuf, Failure> {
        let resolved = self.resolved_yaml();
        let results = RunFolder {
            scenario: &self.scenario.name,
            seed: self.scenario.seed,
            resolved_scenario: &resolved,
            runs,
            validation,
            manifest,
        };
        results.write(folder).map_err(Failure::running)
    }
}
