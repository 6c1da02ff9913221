//! Where results go: those of a command that was stopped do not take the place of finished ones.

use std::fs;
use std::path::{Path, PathBuf};

use tenantry_reports::manifest::Manifest;

use crate::failure::Failure;
use crate::output::make_folder;

/// What the note begins with that a command leaves which was stopped: see
/// [`interrupted_caveat`](crate::caveats::interrupted_caveat).
const STOPPED: &str = "Stopped before its end: ";

/// Where a command writes what it ran.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// In the folder that was named for it.
    Own(PathBuf),
    /// Beside it, since there are the results of one that ran to its end.
    Beside { folder: PathBuf, finished: PathBuf },
    /// Nowhere: there are such, and not one run is whole that could be set beside them.
    Nowhere { finished: PathBuf },
}

impl Place {
    /// Of a command whose results are to lie in `out`, which may have been stopped, by the user or by what failed, and
    /// then may have a run that is whole. A folder beside `out` is made where it is missing.
    ///
    /// # Errors
    /// A folder that cannot be made.
    pub fn of(out: &Path, is_stopped: bool, any_whole: bool) -> Result<Place, Failure> {
        let finished = out.to_owned();
        if !is_stopped || !is_finished(out) {
            return Ok(Place::Own(finished));
        }
        if !any_whole {
            return Ok(Place::Nowhere { finished });
        }
        let folder = beside(out);
        make_folder(&folder)?;
        Ok(Place::Beside { folder, finished })
    }

    /// The folder; nothing where nothing is to be written.
    pub fn folder(&self) -> Option<&Path> {
        match self {
            Place::Own(folder) | Place::Beside { folder, .. } => Some(folder),
            Place::Nowhere { .. } => None,
        }
    }

    /// What there is of a command that was stopped; `done` is what it does, as `simulated`.
    pub fn until_then(&self, done: &str) -> String {
        match self {
            Place::Own(folder) => format!("what was {done} until then is in {}", folder.display()),
            Place::Beside { folder, finished } => format!(
                "what was {done} until then is in {}; {} keeps the results of an earlier command",
                folder.display(),
                finished.display()
            ),
            Place::Nowhere { finished } => format!(
                "no run was {done} to its end, and nothing is written: {} keeps the results of an earlier command",
                finished.display()
            ),
        }
    }
}

/// Whether a folder has the results of a command on runs that was not stopped. `summary.json` is written last; what
/// cannot be read may be another version's, and is worth keeping.
fn is_finished(folder: &Path) -> bool {
    let manifest = fs::read(folder.join("manifest.json")).unwrap_or_default();
    let manifest: Option<Manifest> = serde_json::from_slice(&manifest).ok();
    let is_stopped = manifest.is_some_and(|of| of.caveats.iter().any(|caveat| caveat.starts_with(STOPPED)));
    folder.join("summary.json").exists() && !is_stopped
}

/// `OUT.partial`. A folder that is there may be named by dots alone.
fn beside(out: &Path) -> PathBuf {
    let named = match out.file_name() {
        Some(_) => out.to_owned(),
        None => out.canonicalize().unwrap_or_else(|_| out.to_owned()),
    };
    let mut name = named.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    named.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caveats::interrupted_caveat;

    /// A folder of results with this note.
    fn results(folder: &Path, caveats: Vec<String>) {
        let manifest = Manifest {
            caveats,
            ..Manifest::default()
        };
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("manifest.json"), serde_json::to_vec(&manifest).unwrap()).unwrap();
        fs::write(folder.join("summary.json"), "{}").unwrap();
    }

    #[test]
    fn what_was_stopped_takes_no_finished_results_place() {
        let place = tempfile::tempdir().unwrap();
        let [out, partial] = ["out", "out.partial"].map(|name| place.path().join(name));
        let of = |is_stopped, any_whole| Place::of(&out, is_stopped, any_whole).unwrap();
        let own = Place::Own(out.clone());
        assert_eq!(
            [of(true, true), of(true, false), of(false, true)],
            [&own; 3].map(Clone::clone)
        );

        results(&out, vec!["All is well.".into()]);
        assert_eq!(of(false, true), own);
        assert_eq!(of(true, false), Place::Nowhere { finished: out.clone() });
        assert!(!partial.exists());
        let beside = of(true, true);
        assert_eq!(beside.folder(), Some(&*partial));
        assert!(partial.is_dir());

        // What was stopped itself gives way.
        results(&out, vec![interrupted_caveat(3, &[], &[])]);
        assert_eq!([of(true, true), of(true, false)], [&own; 2].map(Clone::clone));
    }

    #[test]
    fn a_folder_of_dots_has_a_name_too() {
        let place = tempfile::tempdir().unwrap();
        let inner = place.path().join("runs/a");
        fs::create_dir_all(&inner).unwrap();
        let expected = place.path().canonicalize().unwrap().join("runs.partial");
        assert_eq!(beside(&inner.join("..")), expected);
        assert_eq!(beside(Path::new("out/simulate/")), Path::new("out/simulate.partial"));
    }
}
