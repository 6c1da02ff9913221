//! Where the public data lie that some tests read, which are no part of the repository.

use std::fs;
use std::path::{Path, PathBuf};

/// Their folder: `TENANTRY_DATA`, or the one beside the checkout; none where it is absent, which is said.
pub fn public_data() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let folder = std::env::var_os("TENANTRY_DATA").map_or_else(beside, PathBuf::from);
    if !folder.is_dir() {
        eprintln!(
            "SKIPPED: no public data in {}; TENANTRY_DATA may name it",
            folder.display()
        );
        return None;
    }
    Some(folder)
}

/// A file of them, whichever folder it is in.
pub fn find(data: &Path, file: &str) -> PathBuf {
    let folders = fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path());
    let found = folders.map(|folder| folder.join(file)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{file} is in no folder of {}", data.display()))
}
