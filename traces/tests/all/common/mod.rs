//! Where the real recordings lie that some tests read, which are not part of the repository; workloads to be looked at.

pub mod described;
pub mod workloads;

use std::path::PathBuf;

/// The file `name` of the data folder: `TENANTRY_DATA`, or `shared/data` beside the checkout. Where it is absent the
/// test is skipped, and says so.
pub fn data(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("TENANTRY_DATA").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data")),
        PathBuf::from,
    );
    let path = folder.join(name);
    if path.exists() {
        Some(path)
    } else {
        eprintln!(
            "skipped: {} does not exist; set TENANTRY_DATA to the folder of public recordings",
            path.display()
        );
        None
    }
}

/// Per-second counts without holes: runs of at least a minute of zeros are left out.
pub fn counts_without_holes(path: &std::path::Path) -> Vec<u32> {
    let counts: Vec<u32> = tenantry_traces::read::Counts::open(path, false).unwrap().collect::<Result<_, _>>().unwrap();
    counts
        .chunk_by(|a, b| (*a == 0) == (*b == 0))
        .filter(|run| run[0] != 0 || run.len() < 60)
        .flatten()
        .copied()
        .collect()
}
