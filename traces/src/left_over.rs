//! What killed processes left of files that they had begun: removed by whoever begins a file in the folder next.
//!
//! Each process holds a lock on the folders that it writes in, which ends with it. Where nobody holds one, no file that is begun there is of a
//! process of this machine. Of other machines, which may not see the lock, names tell; theirs go when they are a day old.

use std::fs::{self, DirEntry, File};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

/// What temporary names begin with.
pub const PREFIX: &str = ".tenantry-";

/// What the names that this machine gives since it was started begin with.
static OF_THIS_MACHINE: LazyLock<String> = LazyLock::new(|| {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let mark: String = boot.chars().filter(char::is_ascii_hexdigit).take(8).collect();
    format!("{PREFIX}{mark}-")
});

/// After which another machine's are left over.
const A_DAY: Duration = Duration::from_secs(86_400);

/// The folders that this process has begun files in last, with their locks.
static FOLDERS: Mutex<Vec<(PathBuf, File)>> = Mutex::new(Vec::new());
/// Each is an open file.
const FOLDERS_HELD: usize = 32;

/// What a file's temporary name begins with in `folder`, from which what was left over is removed first.
pub fn prefix_in(folder: &Path) -> &'static str {
    let mut folders = FOLDERS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if folders.iter().all(|(held, _)| held != folder) {
        if folders.len() == FOLDERS_HELD {
            folders.remove(0);
        }
        folders.extend(hold(folder).map(|lock| (folder.to_owned(), lock)));
    }
    &OF_THIS_MACHINE
}

/// A lock that others may hold too. Nothing where there is no such folder, or where it has no locks.
fn hold(folder: &Path) -> Option<File> {
    let lock = File::open(folder).ok()?;
    if lock.try_lock().is_ok() {
        remove_from(folder);
        lock.unlock().ok()?;
    }
    // Who removes is done at once; who holds it for long is no process of ours.
    let tries = (0..50).map(|_| std::thread::sleep(Duration::from_millis(10)));
    let mut tries = std::iter::once(()).chain(tries);
    tries.any(|()| lock.try_lock_shared().is_ok()).then_some(lock)
}

/// What cannot be removed is in nobody's way.
fn remove_from(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten().filter(is_left_over) {
        let _ = fs::remove_file(entry.path());
    }
}

/// Whether a file is left over where no process of this machine is writing.
fn is_left_over(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    let name = name.to_string_lossy();
    let is_old = || {
        let changed = entry.metadata().and_then(|metadata| metadata.modified());
        changed.is_ok_and(|changed| changed.elapsed().is_ok_and(|age| age > A_DAY))
    };
    let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
    is_file && name.starts_with(PREFIX) && (name.starts_with(OF_THIS_MACHINE.as_str()) || is_old())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_is_being_written_is_not() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path();
        let make = |name: &str, age: Duration| {
            let file = File::create(folder.join(name)).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
        };
        let (own, hour) = (OF_THIS_MACHINE.as_str(), Duration::from_secs(3600));
        let all = [
            (format!("{own}killed"), Duration::ZERO),
            (format!("{PREFIX}ffffffff-other"), hour),
            (format!("{PREFIX}ffffffff-old"), 25 * hour),
            ("summary.json".to_owned(), 25 * hour),
        ];
        for (name, age) in &all {
            make(name, *age);
        }
        let left = || {
            let there = all.iter().map(|(name, _)| folder.join(name).exists());
            there.collect::<Vec<bool>>()
        };
        // As another process that is writing there.
        let other = File::open(folder).unwrap();
        other.lock_shared().unwrap();
        drop(hold(folder).unwrap());
        assert_eq!(left(), [true; 4]);
        drop(other);
        let lock = hold(folder).unwrap();
        assert_eq!(left(), [false, true, false, true]);
        make(&all[0].0, Duration::ZERO);
        drop(hold(folder).unwrap());
        assert_eq!(left(), [true, true, false, true]);
        drop(lock);
        assert_eq!(prefix_in(folder), own);
        assert_eq!(left(), [false, true, false, true]);
    }
}
