//! What a plan has run: remembered for its other searches, and kept where it is interrupted, so that the same command
//! goes on with it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tenantry_reports::RunSummary;
use tenantry_reports::whole::write_whole;
use tenantry_sim::plan::Sample;

use crate::caveats::Extrapolated;
use crate::failure::Failure;
use crate::output::make_folder;
use crate::planning::accuracy::Answers;
use crate::sweep::identity::short;

/// What the names of files with the runs of plans that are not finished begin and end with; between the two is the
/// plan's digest, as [`short`] has it.
const PARTIAL: [&str; 2] = ["plan.", ".partial.json"];

/// What is run: an offer by its place among the plan's ways and its card, the cards, the tenants, and how many times
/// the scenario's load. What a card costs changes nothing of it.
pub type Served = (usize, String, u32, u32, u64);

/// A run of a plan, and what is known by it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlanRun {
    pub sample: Sample,
    /// Whether its sample has the bursts of its load, which are not written with it.
    #[serde(default)]
    pub has_bursts: bool,
    /// Of a first run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<RunSummary>,
    /// Why it is no answer whatever its load, where that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// How often a first run and those made for it were right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<Answers>,
    /// Repeats that were made for the sake of `answers` alone.
    #[serde(default)]
    pub extra_runs: u32,
    /// Ops that were priced beyond what was measured.
    pub extrapolated: Vec<Extrapolated>,
}

impl PlanRun {
    /// Of which nothing is known beside its sample.
    pub fn of(sample: Sample) -> PlanRun {
        PlanRun {
            sample,
            has_bursts: false,
            summary: None,
            refused: None,
            answers: None,
            extra_runs: 0,
            extrapolated: Vec::new(),
        }
    }
}

/// The runs of a plan, by what was run and its repeat.
pub type PlanRuns = BTreeMap<(Served, u32), PlanRun>;

/// What an interrupted plan leaves in its folder.
#[derive(Serialize, Deserialize)]
struct Partial {
    /// All that the plan's figures depend on.
    digest: String,
    runs: Vec<((Served, u32), PlanRun)>,
}

/// The runs of a plan that was interrupted, in its folder.
pub struct KeptRuns<'a> {
    folder: &'a Path,
    /// Of all that the plan's figures depend on, as it was when the plan began.
    digest: &'a str,
}

impl<'a> KeptRuns<'a> {
    /// Of the plan of this `digest`, in `folder`.
    pub fn new(folder: &'a Path, digest: &'a str) -> KeptRuns<'a> {
        KeptRuns { folder, digest }
    }

    /// Each plan has a file of its own, so that no interruption writes over what another plan took hours for.
    fn path(&self) -> PathBuf {
        let [begin, end] = PARTIAL;
        self.folder.join(format!("{begin}{}{end}", short(self.digest)))
    }

    /// What was kept, if this plan was interrupted.
    ///
    /// # Errors
    /// A file that cannot be read, or is not of this plan whatever its name says.
    pub fn read(&self) -> Result<Option<PlanRuns>, Failure> {
        let path = self.path();
        if !path.exists() {
            return Ok(None);
        }
        let bytes = std::fs::read(&path).map_err(|error| Failure::Running(format!("{}: {error}", path.display())))?;
        match serde_json::from_slice::<Partial>(&bytes) {
            Ok(partial) if partial.digest == self.digest => Ok(Some(partial.runs.into_iter().collect())),
            _ => Err(Failure::BadInput(format!(
                "{}: must be the runs that this plan kept, got something else; remove it",
                path.display()
            ))),
        }
    }

    /// What plans of other scenarios, cards, recordings or builds have kept in the folder, by name.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn of_others(&self) -> Result<Vec<PathBuf>, Failure> {
        let [begin, end] = PARTIAL;
        let is_kept = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(begin) && name.ends_with(end)) && *path != self.path()
        };
        if !self.folder.exists() {
            return Ok(Vec::new());
        }
        let entries = std::fs::read_dir(self.folder).map_err(Failure::running)?;
        let paths = entries.map(|entry| entry.map(|entry| entry.path()).map_err(Failure::running));
        let mut paths = paths.collect::<Result<Vec<PathBuf>, Failure>>()?;
        paths.retain(is_kept);
        paths.sort();
        Ok(paths)
    }

    /// Keeps them.
    ///
    /// # Errors
    /// A folder or file that cannot be written.
    pub fn write(&self, runs: PlanRuns) -> Result<PathBuf, Failure> {
        let partial = Partial {
            digest: self.digest.to_owned(),
            runs: runs.into_iter().collect(),
        };
        let bytes = serde_json::to_vec(&partial).map_err(Failure::running)?;
        make_folder(self.folder)?;
        write_whole(&self.path(), &bytes).map_err(Failure::running)?;
        Ok(self.path())
    }

    /// The plan is finished.
    ///
    /// # Errors
    /// A file that cannot be removed.
    pub fn remove(&self) -> Result<(), Failure> {
        let path = self.path();
        std::fs::remove_file(&path).map_err(|error| Failure::Running(format!("{}: {error}", path.display())))
    }
}
