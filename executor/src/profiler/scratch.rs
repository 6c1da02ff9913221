//! Where measuring keeps files for a while.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::ExecutorError;

const PREFIX: &str = "tenantry-profile-";
/// Is held by whoever uses the folder, for as long as that runs.
const LOCK: &str = "lock";

/// A folder of this run's own, removed when dropped; if the run is killed, by the next one.
pub(crate) struct Scratch {
    folder: TempDir,
    _lock: File,
}

impl Scratch {
    /// In a folder for such files.
    ///
    /// # Errors
    /// Nothing can be written there.
    pub fn new(within: &Path) -> Result<Scratch, ExecutorError> {
        for left in left_behind(within) {
            // What cannot be removed lies in a folder for such files.
            let _ = std::fs::remove_dir_all(left);
        }
        let failed = ExecutorError::file(within);
        let made = tempfile::Builder::new().prefix(PREFIX).tempdir_in(within);
        let locked = made.and_then(|folder| {
            let lock = File::create(folder.path().join(LOCK))?;
            lock.lock()?;
            Ok(Scratch { folder, _lock: lock })
        });
        locked.map_err(failed)
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Folders of runs that were killed: nobody holds their locks any more. One without a lock is just being made.
fn left_behind(within: &Path) -> Vec<PathBuf> {
    let Ok(entries) = within.read_dir() else {
        return Vec::new();
    };
    let is_scratch = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(PREFIX))
    };
    let is_free = |path: &PathBuf| match File::open(path.join(LOCK)) {
        Ok(lock) => !matches!(lock.try_lock(), Err(TryLockError::WouldBlock | TryLockError::Error(_))),
        Err(_) => false,
    };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.filter(|path| is_scratch(path) && is_free(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_run_left_is_removed_and_what_is_in_use_is_not() {
        let within = tempfile::tempdir().unwrap();
        let in_use = Scratch::new(within.path()).unwrap();
        let killed = within.path().join("tenantry-profile-killed");
        let being_made = within.path().join("tenantry-profile-made");
        let other = within.path().join("other");
        for folder in [&killed, &being_made, &other] {
            std::fs::create_dir(folder).unwrap();
        }
        std::fs::write(killed.join(LOCK), "").unwrap();
        std::fs::write(killed.join("table"), "rows").unwrap();
        std::fs::write(other.join(LOCK), "").unwrap();
        let second = Scratch::new(within.path()).unwrap();
        assert!(!killed.exists());
        assert!(in_use.path().exists() && being_made.exists() && other.exists());
        let path = second.path().to_owned();
        drop(second);
        assert!(!path.exists());
    }
}
