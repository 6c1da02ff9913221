//! What killed processes left of files that they had begun: removed by whoever begins a file in the folder a day later.

use std::collections::BTreeSet;
use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What temporary names begin with.
pub const PREFIX: &str = ".tenantry-";

/// Who is alive has written to its file within a day: whether its process is, nobody could tell of another machine's.
const A_DAY: Duration = Duration::from_secs(86_400);

/// The folders that this process has looked at.
static LOOKED_AT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Removes what was left over in a folder, the first time that this process asks. What cannot be removed is in nobody's
/// way.
pub fn remove_once(folder: &Path) {
    let is_new = LOOKED_AT.lock().unwrap_or_else(PoisonError::into_inner).insert(folder.to_owned());
    if is_new {
        remove_from(folder);
    }
}

fn remove_from(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten().filter(is_left_over) {
        let _ = fs::remove_file(entry.path());
    }
}

fn is_left_over(entry: &DirEntry) -> bool {
    let is_old = || {
        let changed = entry.metadata().and_then(|metadata| metadata.modified());
        changed.is_ok_and(|changed| changed.elapsed().is_ok_and(|age| age > A_DAY))
    };
    let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
    is_file && entry.file_name().to_string_lossy().starts_with(PREFIX) && is_old()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn what_nobody_has_written_to_for_a_day_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let hour = Duration::from_secs(3600);
        let all = [
            (format!("{PREFIX}killed"), 25 * hour),
            (format!("{PREFIX}written-to"), 23 * hour),
            ("summary.json".to_owned(), 25 * hour),
        ];
        let make = || {
            for (name, age) in &all {
                let file = File::create(place.path().join(name)).unwrap();
                file.set_modified(SystemTime::now() - *age).unwrap();
            }
        };
        let left = || all.each_ref().map(|(name, _)| place.path().join(name).exists());
        make();
        remove_once(place.path());
        assert_eq!(left(), [false, true, true]);
        // A process looks once, however many files it writes.
        make();
        remove_once(place.path());
        assert_eq!(left(), [true; 3]);
    }
}
