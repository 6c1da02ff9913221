//! The folder of a sweep: which sweep it is, and each run that has finished, whole or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use tenantry_reports::curves::{MAX_RUNS_WITH_OPS, RunCurves};
use tenantry_reports::folder::json;
use tenantry_reports::manifest::Manifest;
use tenantry_reports::whole::{remove_unfinished, write_whole};
use tenantry_reports::{Run, RunFolder, RunSummary};

use crate::caveats::{
    AnotherRate, Extrapolated, Measured, TableUsed, another_rate_caveat, extrapolation_caveat, of_runs, once, refusals,
    table_caveats,
};
use crate::failure::Failure;
use crate::keep::earlier_than_sweep;
use crate::output::{Started, check_left_by, make_folder};
use crate::sweep::identity::Sweep;
use crate::sweep::sealed::{sealed, unsealed};

/// Says which sweep a folder holds.
const SWEEP: &str = "sweep.json";
const RESOLVED: &str = "scenario.resolved.yaml";
const AS_WRITTEN: &str = "as `tenantry sweep` of this version writes it";
const RUN_AGAIN: &str = "the same `tenantry sweep` runs it again";

/// A run that has finished, or that its system refuses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedRun {
    /// The digest of the sweep that it is of.
    pub sweep: String,
    /// Its number in it.
    pub run: usize,
    /// [`Sweep::key`].
    #[serde(default)]
    pub key: String,
    /// Why it cannot be run: the system does not fit its cards, or a card lacks a table. There are no figures then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<RunSummary>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curves: Option<RunCurves>,
    pub events: u64,
    pub extrapolated: Vec<Extrapolated>,
    /// What a reader must know of its workload.
    pub caveats: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub another_rate: Option<AnotherRate>,
    /// Of its card, by this run.
    pub tables: BTreeSet<TableUsed>,
}

/// The folder of a sweep.
#[derive(Debug)]
pub struct Saved {
    folder: PathBuf,
    pub sweep: Sweep,
}

impl Saved {
    /// Begins or goes on with `sweep` in `folder`.
    pub fn begin(folder: &Path, sweep: Sweep) -> Result<Saved, Failure> {
        let saved = Saved {
            folder: folder.to_owned(),
            sweep,
        };
        let runs = saved.runs();
        make_folder(&runs)?;
        let path = folder.join(SWEEP);
        let is_begun = path.exists();
        if is_begun {
            let there = read(&path)?;
            if let Some(difference) = saved.sweep.difference(&there) {
                return Err(Failure::BadInput(format!(
                    "--out: must be a new folder, or one with this sweep, got {}, which has {} runs of {} with \
                     {difference}",
                    folder.display(),
                    there.runs,
                    there.scenario
                )));
            }
        }
        // Another command may have written its own scenario here since the sweep was begun.
        write_whole(&folder.join(RESOLVED), saved.sweep.resolved.as_bytes()).map_err(Failure::running)?;
        if !is_begun {
            write_whole(&path, &json(&saved.sweep).map_err(Failure::running)?).map_err(Failure::running)?;
        }
        Ok(saved)
    }

    /// What `sweep` left in `folder`.
    pub fn open(folder: &Path) -> Result<Saved, Failure> {
        check_left_by("tenantry sweep", folder)?;
        let path = folder.join(SWEEP);
        if !path.exists() {
            return Err(Failure::BadInput(format!(
                "{}: must be a folder that `tenantry sweep` left, got one without {SWEEP}",
                folder.display()
            )));
        }
        Ok(Saved {
            folder: folder.to_owned(),
            sweep: read(&path)?,
        })
    }

    fn runs(&self) -> PathBuf {
        self.folder.join("runs")
    }

    fn path(&self, run: usize) -> PathBuf {
        self.runs().join(format!("{run:06}.json"))
    }

    /// Whether run number `run` has been saved.
    fn has(&self, run: usize) -> bool {
        self.path(run).exists()
    }

    /// Run number `run`, where it has been saved, as that run of this sweep, and nobody damaged it since.
    fn done(&self, run: usize) -> Option<SavedRun> {
        read_run(&self.path(run), &self.sweep, run).ok()
    }

    /// Those of these runs that are still to be made. Each is read whole, since damage may be anywhere in it.
    pub fn left_of(&self, runs: &[usize]) -> Vec<usize> {
        runs.par_iter().copied().filter(|&run| self.done(run).is_none()).collect()
    }

    /// The numbers of those of the runs [`left`](Self::left_of) that somebody damaged since they were saved, or that
    /// are not this sweep's; nothing where none are.
    pub fn damaged_of(&self, left: &[usize]) -> Option<(usize, String)> {
        let damaged: Vec<usize> = left.iter().copied().filter(|run| self.has(*run)).collect();
        (!damaged.is_empty()).then(|| (damaged.len(), first_of(&damaged)))
    }

    /// Saves a run under its number, whole or not at all.
    pub fn save(&self, saved: &SavedRun) -> Result<(), Failure> {
        let body = serde_json::to_string(saved).map_err(Failure::running)?;
        write_whole(&self.path(saved.run), sealed(&body).as_bytes()).map_err(Failure::running)
    }

    /// Takes over those of another sweep's runs that are among these, each with its number and [`Sweep::key`]; which
    /// there were. A page draws ops of few runs: where they are drawn here, runs without are left to be made.
    pub fn take_over(
        &self,
        other: &Saved,
        wanted: &BTreeMap<usize, String>,
        draws_ops: bool,
    ) -> Result<BTreeSet<usize>, Failure> {
        let mut taken = BTreeSet::new();
        if draws_ops && other.sweep.runs > MAX_RUNS_WITH_OPS {
            return Ok(taken);
        }
        let keys: BTreeSet<&String> = wanted.values().collect();
        let mut found: BTreeMap<String, SavedRun> = BTreeMap::new();
        for saved in (0..other.sweep.runs).filter_map(|run| other.done(run)) {
            // Why a run is refused says where its scenario lies; to find it again takes no time.
            if saved.refused.is_none() && keys.contains(&saved.key) {
                found.insert(saved.key.clone(), saved);
            }
        }
        for (run, key) in wanted {
            let Some(saved) = found.get(key) else { continue };
            let mut saved = SavedRun {
                sweep: self.sweep.digest.clone(),
                run: *run,
                ..saved.clone()
            };
            if let (Some(curves), false) = (&mut saved.curves, draws_ops) {
                curves.ops.clear();
            }
            self.save(&saved)?;
            taken.insert(*run);
        }
        Ok(taken)
    }
}

fn read(path: &Path) -> Result<Sweep, Failure> {
    serde_json::from_slice(&contents(path)?)
        .map_err(|error| Failure::BadInput(format!("{}: must be {AS_WRITTEN}, got {error}", path.display())))
}

/// Reads run number `run` of this sweep.
///
/// Errors: another sweep's run, or another number's, and one that was changed since it was saved.
fn read_run(path: &Path, sweep: &Sweep, run: usize) -> Result<SavedRun, Failure> {
    let refused = |must: &str, got: &str| {
        Failure::BadInput(format!("{}: must be {must}, got {got}; {RUN_AGAIN}", path.display()))
    };
    let contents = contents(path)?;
    let body = unsealed(&String::from_utf8_lossy(&contents))
        .ok_or_else(|| refused(AS_WRITTEN, "contents that its digest, `blake3`, is not of"))?;
    let saved: SavedRun = serde_json::from_str(&body).map_err(|error| refused(AS_WRITTEN, &error.to_string()))?;
    // Shards that began at the same instant with different files have found no other's sweep to compare theirs with.
    if saved.sweep != sweep.digest {
        return Err(refused(
            &format!("a run of the sweep that {SWEEP} describes"),
            "one with another scenario, card, file or version",
        ));
    }
    match saved.run == run {
        true => Ok(saved),
        false => Err(refused(&format!("run {run}"), &format!("run {}", saved.run))),
    }
}

fn contents(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| Failure::Running(format!("{}: {error}", path.display())))
}

/// What a message shows of the numbers of many runs.
fn first_of(runs: &[usize]) -> String {
    let shown: Vec<String> = runs.iter().take(8).map(usize::to_string).collect();
    let more = if shown.len() < runs.len() { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

/// All runs of a sweep, from one folder or several.
pub struct Union {
    sweep: Sweep,
    /// Where each run is, in their order.
    paths: Vec<PathBuf>,
    folders: Vec<PathBuf>,
}

impl Union {
    /// Finds every run.
    ///
    /// Errors: folders of different sweeps, a run that is missing, and one that two folders have with different
    /// figures. Of copies the first counts that nobody damaged.
    pub fn of(parts: &[Saved]) -> Result<Union, Failure> {
        let [first, others @ ..] = parts else {
            return Err(Failure::BadInput("DIR: must be at least one folder, got none".into()));
        };
        if first.sweep.resolved.is_empty() {
            return Err(Failure::BadInput(format!(
                "{}: must hold the scenario in full, got none, as earlier versions of tenantry left it; run it again",
                first.folder.join(SWEEP).display()
            )));
        }
        for other in others {
            if let Some(difference) = first.sweep.difference(&other.sweep) {
                return Err(Failure::BadInput(format!(
                    "{}: must hold the same sweep as {}, got {difference}",
                    other.folder.display(),
                    first.folder.display()
                )));
            }
        }
        let mut paths = Vec::new();
        let mut missing = Vec::new();
        for run in 0..first.sweep.runs {
            let copies: Vec<&Saved> = parts.iter().filter(|part| part.has(run)).collect();
            match copies[..] {
                [] => missing.push(run),
                // Read when it is written.
                [only] => paths.push(only.path(run)),
                _ => paths.push(one_of(&copies, run)?),
            }
        }
        if !missing.is_empty() {
            return Err(Failure::BadInput(format!(
                "DIR: must hold all {} runs together, got {} without {}; the same `tenantry sweep` goes on where it was",
                first.sweep.runs,
                paths.len(),
                first_of(&missing)
            )));
        }
        Ok(Union {
            sweep: first.sweep.clone(),
            paths,
            folders: parts.iter().map(Saved::runs).collect(),
        })
    }

    /// Reads all runs and writes them to `folder` as `tenantry simulate` would have.
    /// `here` is how many events the calling command simulated itself.
    ///
    /// Errors: a damaged run, and where none is possible, since there is nothing to write then.
    pub fn write(
        &self,
        folder: &Path,
        started: &Started,
        here: u64,
        interrupt: &AtomicBool,
    ) -> Result<Written, Failure> {
        let mut runs = Vec::new();
        let mut refused: Vec<String> = Vec::new();
        let (mut events, mut extrapolated, mut tables) = (0, Vec::new(), BTreeSet::new());
        let (mut of_workloads, mut another_rate) = (Vec::new(), Vec::new());
        let go_on = || match interrupt.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(Failure::Interrupted(
                "the runs are saved, and not put together yet: the same command does".into(),
            )),
        };
        for (run, path) in self.paths.iter().enumerate() {
            go_on()?;
            let saved = read_run(path, &self.sweep, run)?;
            events += saved.events;
            extrapolated.extend(saved.extrapolated);
            tables.extend(saved.tables);
            of_workloads.extend(saved.caveats);
            another_rate.extend(saved.another_rate);
            refused.extend(saved.refused);
            if let (Some(summary), Some(curves)) = (saved.summary, saved.curves) {
                runs.push(Run {
                    summary,
                    curves: curves.into(),
                });
            }
        }
        let refused = refusals(&refused);
        if runs.is_empty() {
            return Err(Failure::BadInput(format!(
                "{}: must have a run that is possible, got none of {}: {}",
                self.sweep.scenario,
                self.paths.len(),
                refused.join("; ")
            )));
        }
        let mut caveats = self.sweep.caveats.clone();
        caveats.extend(table_caveats(&tables));
        caveats.extend(Measured::otherwise_than_here(self.sweep.measured.iter().cloned()));
        caveats.extend(extrapolation_caveat(&extrapolated));
        caveats.extend(refused.iter().map(|why| format!("Left out, since they cannot run {why}.")));
        caveats.extend(once(&of_workloads));
        caveats.extend(another_rate_caveat(another_rate, runs.len()));
        caveats.extend(of_runs(&runs));
        caveats.extend(earlier_than_sweep(folder));
        // Where others simulated some of them, nobody took the time.
        let in_this_time = if here == events { events } else { 0 };
        let mut manifest = started.manifest(&[], None, in_this_time, caveats);
        manifest.profile.clone_from(&self.sweep.profile);
        manifest.other_profiles.clone_from(&self.sweep.other_profiles);
        let results = RunFolder {
            scenario: &self.sweep.scenario,
            seed: self.sweep.seed,
            resolved_scenario: &self.sweep.resolved,
            runs: &runs,
            validation: None,
            manifest: &manifest,
        };
        // From here on it writes to the end: what lay there before goes.
        go_on()?;
        let page = results.write(folder).map_err(Failure::running)?;
        // Now that every run is there, what killed processes left half written can go.
        for runs in &self.folders {
            remove_unfinished(runs).map_err(Failure::running)?;
        }
        Ok(Written {
            scenario: self.sweep.scenario.clone(),
            seed: self.sweep.seed,
            runs,
            manifest,
            page,
        })
    }
}

/// Where run number `run` is, of which there are copies: the first that nobody damaged, or the first, if all are.
///
/// Errors: copies with different figures.
fn one_of(copies: &[&Saved], run: usize) -> Result<PathBuf, Failure> {
    // Where a card lies, if --profile said so, is no figure: the sweep's digest is of what is in it.
    let elsewhere = |summary: RunSummary| RunSummary {
        card: String::new(),
        ..summary
    };
    let whole = |part: &&Saved| Some((part.path(run), part.done(run)?.summary.map(elsewhere)));
    let mut whole = copies.iter().filter_map(whole);
    let Some((path, figures)) = whole.next() else {
        return Ok(copies[0].path(run));
    };
    match whole.find(|(_, others)| *others != figures) {
        None => Ok(path),
        Some((again, _)) => Err(Failure::BadInput(format!(
            "{}: must have the figures of {}, got others: one of them is from another machine or version",
            again.display(),
            path.display()
        ))),
    }
}

/// What was written of all runs.
pub struct Written {
    pub scenario: String,
    pub seed: u64,
    pub runs: Vec<Run>,
    pub manifest: Manifest,
    pub page: PathBuf,
}
