//! Where measuring keeps files for a while.

use std::fs::File;
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
        remove_left_behind(within);
        let made = tempfile::Builder::new().prefix(PREFIX).tempdir_in(within);
        let locked = made.and_then(|folder| {
            // It has its name once it is held. Where files cannot be locked, nobody takes it for left behind, and a
            // killed run's folder stays.
            let being_made = folder.path().join("lock.new");
            let lock = File::create(&being_made)?;
            let _ = lock.try_lock();
            std::fs::rename(being_made, folder.path().join(LOCK))?;
            Ok(Scratch { folder, _lock: lock })
        });
        locked.map_err(ExecutorError::file(within))
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes folders of runs that were killed: nobody holds their locks any more. One without a lock is just being made.
fn remove_left_behind(within: &Path) {
    let Ok(entries) = within.read_dir() else { return };
    let is_scratch = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(PREFIX))
    };
    let paths = entries.flatten().map(|entry| entry.path());
    for folder in paths.filter(is_scratch) {
        // Held while it is removed, so that one of two removes it.
        if let Ok(lock) = File::open(folder.join(LOCK))
            && lock.try_lock().is_ok()
        {
            // What cannot be removed lies in a folder for such files.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
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
