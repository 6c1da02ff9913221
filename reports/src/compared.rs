//! Finished folders, read back: for the page of one of them, or of several side by side.

use std::fs;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::curves::{Curves, CurvesFile, Run, shares};
use crate::error::ReportError;
use crate::manifest::{Manifest, quoted};
use crate::page::Page;
use crate::plan::PlanReport;
use crate::summary::Summary;
use crate::validation::{Limits, Validation};

/// What a plan leaves.
const PLAN: &str = "plan.json";
/// What `tenantry reproduce` leaves to be read, with `--sensitivity` the second.
const OF_REPRODUCTIONS: [&str; 2] = ["reproduce.md", "sensitivity.md"];

/// Which folder, and where it comes from.
#[derive(Clone, Debug, Serialize)]
pub struct FolderSource {
    /// As the user calls it.
    pub name: String,
    /// The scenario's name.
    pub scenario: String,
    /// The scenario's seed.
    pub seed: u64,
    /// Its own.
    pub manifest: Manifest,
}

/// A folder that a command has left.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Which.
    pub source: FolderSource,
    /// In its order.
    pub runs: Vec<Run>,
    /// Where both machines ran.
    pub judged: Option<Judged>,
}

/// How runs of both machines were compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judged {
    /// By which limits.
    pub limits: Limits,
    /// Before all was run.
    pub stopped: bool,
}

impl Judged {
    fn again(self, scenario: &str, runs: &[Run]) -> Validation {
        match self.stopped {
            true => Validation::of_stopped(scenario, self.limits, runs),
            false => Validation::new(scenario, self.limits, runs),
        }
    }
}

impl Finished {
    /// Reads a folder that has a `summary.json`. What is drawn is in `curves.json`; where that is missing, so are the
    /// charts.
    ///
    /// # Errors
    /// [`ReportError::File`] where it is no such folder or a file of it is broken.
    pub fn read(folder: &Path) -> Result<Finished, ReportError> {
        if read_plan(folder)?.is_some() {
            return Err(no_run(folder));
        }
        let summary: Summary = read(&folder.join("summary.json"))?.ok_or_else(|| no_run(folder))?;
        if summary.schema != 1 {
            let message = format!("schema: must be 1, got {}", summary.schema);
            return Err(ReportError::file(&folder.join("summary.json"), message));
        }
        let path = folder.join("curves.json");
        let curves = match read::<CurvesFile>(&path)? {
            None => vec![Curves::default(); summary.runs.len()],
            Some(file) if file.runs.len() == summary.runs.len() => {
                let (curves, want): (Vec<Curves>, usize) =
                    (file.runs.into_iter().map(Curves::from).collect(), shares().count());
                for (run, curves) in curves.iter().enumerate() {
                    let got = curves.latency_ms.len();
                    if got != 0 && got != want {
                        let message = format!("runs.{run}.latency_ms: must be 0 or {want} values, got {got}");
                        return Err(ReportError::file(&path, message));
                    }
                }
                curves
            }
            Some(file) => {
                let (want, got) = (summary.runs.len(), file.runs.len());
                let message = format!("runs: must be {want}, as summary.json has, got {got}");
                return Err(ReportError::file(&path, message));
            }
        };
        let pairs = summary.runs.into_iter().zip(curves);
        Ok(Finished {
            source: FolderSource {
                name: folder.display().to_string().trim_end_matches('/').to_owned(),
                scenario: summary.scenario,
                seed: summary.seed,
                manifest: read(&folder.join("manifest.json"))?.unwrap_or_default(),
            },
            runs: pairs.map(|(summary, curves)| Run { summary, curves }).collect(),
            judged: read(&folder.join("validation.json"))?.map(|validation: Value| Judged {
                limits: limits(&validation),
                stopped: validation["stopped"] == true,
            }),
        })
    }
}

/// What is in a folder that has no run, and what to do with it.
fn no_run(folder: &Path) -> ReportError {
    let has = |file: &str| folder.join(file).exists();
    let name = quoted(&folder.display().to_string());
    let got = if has(PLAN) {
        format!(
            "a plan's: `tenantry report {name}` alone makes its page, and its answer.yaml can be simulated for one to \
             compare"
        )
    } else if has("sweep.json") {
        format!("a sweep's that is not over: `tenantry merge {name}`")
    } else if let Some(page) = OF_REPRODUCTIONS.into_iter().find(|page| has(page)) {
        format!("a reproduction's, which has no other page than its {page}")
    } else {
        "none in it".to_owned()
    };
    ReportError::file(folder, format!("must be a run's folder with a summary.json, got {got}"))
}

/// The plan in a folder that `tenantry plan` left, with where it comes from; nothing where there is none, or where runs
/// were written to the folder after it.
///
/// # Errors
/// [`ReportError::File`] where a file of it is broken.
pub fn read_plan(folder: &Path) -> Result<Option<(PlanReport, Manifest)>, ReportError> {
    let Some(plan) = read::<PlanReport>(&folder.join(PLAN))? else {
        return Ok(None);
    };
    let manifest: Manifest = read(&folder.join("manifest.json"))?.unwrap_or_default();
    let is_its_own = manifest.is_of_plan() || !folder.join("summary.json").exists();
    Ok(is_its_own.then_some((plan, manifest)))
}

/// The limits that a `validation.json` was judged by.
fn limits(validation: &Value) -> Limits {
    let limit = |figure: &str| {
        let figures = validation["comparisons"].as_array()?.iter().filter_map(|c| c["figures"].as_array());
        let found = figures.flatten().find(|f| f["figure"] == figure && f["limit_percent"].is_number())?;
        Some(found["limit_percent"].as_f64()? / 100.0)
    };
    Limits {
        mean: limit("latency_ms.mean"),
        p98: limit("latency_ms.p98"),
        throughput: limit("throughput_rps"),
    }
}

/// Nothing where there is no such file.
fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, ReportError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(ReportError::io(path, source)),
    };
    let broken = |error: serde_json::Error| {
        let text = error.to_string();
        let what = text.split(" at line ").next().unwrap_or_default();
        ReportError::file(
            path,
            format!("{}: must be what Tenantry writes, got {what}", error.line()),
        )
    };
    serde_json::from_slice(&bytes).map(Some).map_err(broken)
}

/// One folder, or several as one.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The scenario's name, or all of them.
    pub scenario: String,
    /// All runs; of several folders, each system is named after its folder too.
    pub runs: Vec<Run>,
    /// The folders, where there are several.
    pub folders: Vec<FolderSource>,
    /// Where one folder has runs of both machines.
    pub validation: Option<Validation>,
    /// The one folder's own, or `manifest` with the caveats of all.
    pub manifest: Manifest,
}

impl Compared {
    /// Of at least one folder. `manifest` is that of who compares.
    pub fn new(mut folders: Vec<Finished>, manifest: Manifest) -> Compared {
        if folders.len() == 1 {
            let Finished { source, runs, judged } = folders.remove(0);
            return Compared {
                validation: judged.map(|judged| judged.again(&source.scenario, &runs)),
                scenario: source.scenario,
                runs,
                folders: Vec::new(),
                manifest: source.manifest,
            };
        }
        let mut names: Vec<String> = Vec::new();
        let mut compared = Compared {
            scenario: String::new(),
            runs: Vec::new(),
            folders: Vec::new(),
            validation: None,
            manifest,
        };
        let short = told_apart(folders.iter().map(|folder| folder.source.name.as_str()));
        compared.manifest.caveats.extend(caveats(&folders, &short));
        for (Finished { source, runs, .. }, short) in folders.into_iter().zip(short) {
            compared.runs.extend(runs.into_iter().map(|mut run| {
                run.summary.system = format!("{short}: {}", run.summary.system);
                run
            }));
            if !names.contains(&source.scenario) {
                names.push(source.scenario.clone());
            }
            compared.folders.push(source);
        }
        compared.scenario = names.join(" and ");
        compared
    }

    /// As [`Manifest::anonymous`], of the page and of each folder.
    pub fn anonymous(mut self) -> Compared {
        self.manifest = self.manifest.anonymous();
        for folder in &mut self.folders {
            folder.manifest = std::mem::take(&mut folder.manifest).anonymous();
        }
        self
    }

    /// The page.
    ///
    /// # Errors
    /// Only when the template is broken.
    pub fn render(&self) -> Result<String, ReportError> {
        self.page().render()
    }

    /// What the page is made of.
    pub fn page(&self) -> Page<'_> {
        Page {
            scenario: &self.scenario,
            runs: &self.runs,
            validation: self.validation.as_ref(),
            folders: &self.folders,
            manifest: &self.manifest,
        }
    }
}

/// What must be known of several folders, each thing once: with the names of those that it is about where it is not
/// about all.
fn caveats(folders: &[Finished], names: &[String]) -> Vec<String> {
    // By their places: names may be alike, and a folder may say the same twice.
    let mut about: Vec<(&str, Vec<usize>)> = Vec::new();
    for (place, folder) in folders.iter().enumerate() {
        for caveat in &folder.source.manifest.caveats {
            match about.iter_mut().find(|(known, _)| known == caveat) {
                Some((_, of)) if of.contains(&place) => {}
                Some((_, of)) => of.push(place),
                None => about.push((caveat, vec![place])),
            }
        }
    }
    let sentence = |(caveat, of): (&str, Vec<usize>)| match of.len() == folders.len() {
        true => caveat.to_owned(),
        false => {
            let of: Vec<&str> = of.iter().map(|&place| names[place].as_str()).collect();
            format!("{}: {caveat}", of.join(", "))
        }
    };
    about.into_iter().map(sentence).collect()
}

/// Folders by as much of their paths as tells them apart: without the parents that all of them have.
fn told_apart<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let paths: Vec<Vec<&str>> = names.map(|name| name.split('/').collect()).collect();
    let shared = |depth: &usize| paths.iter().all(|path| path.len() > depth + 1 && path[*depth] == paths[0][*depth]);
    let common = (0..).take_while(shared).count();
    paths.iter().map(|path| path[common..].join("/")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::VIRTUAL;
    use crate::testing;

    fn written(place: &Path, name: &str) -> Finished {
        let (runs, manifest) = (testing::runs(), testing::manifest());
        let limits = Limits {
            mean: Some(0.05),
            ..Limits::default()
        };
        let validation = Validation::new("quickstart", limits, &runs);
        let folder = testing::folder(&runs, &validation, &manifest);
        folder.write(&place.join(name)).unwrap();
        Finished::read(&place.join(name)).unwrap()
    }

    #[test]
    fn a_folder_read_back_has_the_page_that_was_written() {
        let place = tempfile::tempdir().unwrap();
        let finished = written(place.path(), "a");
        assert_eq!(finished.judged.unwrap().limits.mean, Some(0.05));
        let again = Compared::new(vec![finished], Manifest::default()).render().unwrap();
        let page = fs::read_to_string(place.path().join("a/report.html")).unwrap();
        // What is drawn is kept with fewer windows; all that is said is the same.
        let words = |page: &str| page.split_once(r#"id="chart-data""#).unwrap().0.to_owned();
        assert_eq!(
            words(&again).replace(" – Tenantry", ""),
            words(&page).replace(" – Tenantry", "")
        );
    }

    /// What was stopped is not judged when its page is made again, either.
    #[test]
    fn what_was_left_out_of_a_comparison_stays_out() {
        let place = tempfile::tempdir().unwrap();
        let (mut runs, manifest) = (testing::runs(), testing::manifest());
        let stopped = runs.iter_mut().rfind(|run| run.summary.machine != VIRTUAL).unwrap();
        stopped.summary.interrupted = true;
        let alone = stopped.summary.system.clone();
        let validation = Validation::of_stopped("quickstart", Limits::default(), &runs);
        assert!(!validation.comparisons.is_empty());
        assert!(validation.comparisons.iter().all(|of| of.device.is_some()));
        let folder = testing::folder(&runs, &validation, &manifest);
        folder.write(place.path()).unwrap();
        let again = Compared::new(vec![Finished::read(place.path()).unwrap()], Manifest::default());
        assert_eq!(again.validation, Some(validation.clone()), "without {alone}");
        assert_ne!(Validation::new("quickstart", Limits::default(), &runs), validation);
    }

    #[test]
    fn curves_of_another_form_are_refused() {
        let place = tempfile::tempdir().unwrap();
        written(place.path(), "a");
        let path = place.path().join("a/curves.json");
        let mut curves: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let latency_ms = curves["runs"][1]["latency_ms"].as_array_mut().unwrap();
        latency_ms.pop().unwrap();
        fs::write(&path, curves.to_string()).unwrap();
        let error = Finished::read(&place.path().join("a")).unwrap_err().to_string();
        assert!(
            error.contains("curves.json: runs.1.latency_ms: must be 0 or 211 values, got 210"),
            "{error}"
        );
    }

    #[test]
    fn several_folders_are_told_apart() {
        let place = tempfile::tempdir().unwrap();
        let mut folders = vec![written(place.path(), "a"), written(place.path(), "b")];
        let caveats = [["of both", "of a", "of a"], ["of b", "of both", "of both"]];
        for (folder, caveats) in folders.iter_mut().zip(caveats) {
            folder.source.manifest.caveats = caveats.map(str::to_owned).to_vec();
        }
        let compared = Compared::new(folders, Manifest::default());
        assert_eq!(compared.manifest.caveats, ["of both", "a: of a", "b: of b"]);
        assert_eq!(compared.runs.len(), 16);
        let page = compared.render().unwrap();
        assert!(page.contains("The folders") && page.contains(">a: hmi") && page.contains(">b: hmi"));
    }

    #[test]
    fn folders_are_called_by_what_tells_them_apart() {
        for (folders, short) in [
            (vec!["/home/x/out/a", "/home/x/out/b"], vec!["a", "b"]),
            (vec!["out/a/run", "out/b/run"], vec!["a/run", "b/run"]),
            (vec!["out", "out/again"], vec!["out", "out/again"]),
            (vec!["same", "same"], vec!["same", "same"]),
            (vec!["/a", "b"], vec!["/a", "b"]),
        ] {
            assert_eq!(told_apart(folders.into_iter()), short);
        }
    }

    /// What is said of a folder without a run can be done as it is said.
    #[test]
    fn what_a_folder_has_instead_of_a_run_is_named() {
        let place = tempfile::tempdir().unwrap();
        let got = |folder: &str, file: &str| {
            let folder = place.path().join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(file), "").unwrap();
            Finished::read(&folder).unwrap_err().to_string()
        };
        let sweep = got("with spaces", "sweep.json");
        let merge = format!("`tenantry merge '{}'`", place.path().join("with spaces").display());
        assert!(sweep.ends_with(&merge), "{sweep}");
        let reproduced = got("reproduced", "reproduce.md");
        assert!(
            reproduced.ends_with("no other page than its reproduce.md"),
            "{reproduced}"
        );
        let varied = got("varied", "sensitivity.md");
        assert!(varied.ends_with("no other page than its sensitivity.md"), "{varied}");
    }

    #[test]
    fn what_is_no_folder_is_said_so() {
        let place = tempfile::tempdir().unwrap();
        let error = Finished::read(place.path()).unwrap_err().to_string();
        assert!(error.contains("must be a run's folder with a summary.json"), "{error}");
        written(place.path(), "a");
        let broken = |name: &str, text: &str| {
            fs::write(place.path().join("a").join(name), text).unwrap();
            Finished::read(&place.path().join("a")).unwrap_err().to_string()
        };
        assert!(broken("curves.json", r#"{"schema": 1, "runs": []}"#).contains("runs: must be 8"));
        assert!(broken("summary.json", "{\n\"schema\": 1,\n}").contains("summary.json: 3:"));
    }
}
