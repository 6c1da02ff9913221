//! What a plan has run: remembered for its other searches, and kept where it is interrupted, so that the same command goes on with it.

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

/// Of a plan that is not finished.
const PARTIAL: &str = "plan.partial.json";

/// What is run: an offer by its place among the plan's ways and its card, the cards, the tenants, and how many times the scenario's load. What
/// a card costs changes nothing of it.
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

    fn path(&self) -> PathBuf {
        self.folder.join(PARTIAL)
    }

    /// What was kept, if this plan was interrupted.
    ///
    /// # Errors
    /// A file that cannot be read, and the runs of another plan: an interruption of this one would write over them, which may have taken hours.
    pub fn read(&self) -> Result<Option<PlanRuns>, Failure> {
        let path = self.path();
        if !path.exists() {
            return Ok(None);
        }
        let bytes = std::fs::read(&path).map_err(|error| Failure::Running(format!("{}: {error}", path.display())))?;
        // Another version's may have another form, and is another plan's.
        match serde_json::from_slice::<Partial>(&bytes) {
            Ok(partial) if partial.digest == self.digest => Ok(Some(partial.runs.into_iter().collect())),
            _ => Err(Failure::BadInput(format!(
                "--out: must be a folder without another plan's runs, got {}, whose {PARTIAL} is of another plan, scenario, \
                 card, recording or build; remove it where nobody goes on with that",
                self.folder.display()
            ))),
        }
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
