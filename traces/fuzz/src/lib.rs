//! What the fuzz targets have in common: readers take paths, so that the bytes go through a file in memory.

use std::cell::RefCell;
use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

use tenantry_traces::Duration;
use tenantry_traces::management::ManagementTrace;
use tenantry_traces::read::shape::RateShape;
use tenantry_traces::read::{Changes, Counts, Records, activity};

thread_local! {
    static FILE: RefCell<Option<(File, PathBuf)>> = const { RefCell::new(None) };
}

/// Calls `read` with the path of a file that holds `bytes`.
pub fn with_file(bytes: &[u8], read: impl FnOnce(&Path)) {
    FILE.with_borrow_mut(|slot| {
        let (file, path) = slot.get_or_insert_with(|| {
            let memory = Path::new("/dev/shm");
            let folder = if memory.exists() {
                memory.to_path_buf()
            } else {
                std::env::temp_dir()
            };
            tempfile::NamedTempFile::new_in(folder)
                .expect("a temporary file")
                .keep()
                .expect("a temporary file can be kept")
        });
        file.rewind().and_then(|()| file.set_len(0)).expect("a file in memory");
        file.write_all(bytes).expect("a file in memory");
        read(path);
    });
}

/// Most records of one input: gzip can hold a thousand times its size.
const MOST: usize = 20_000;

/// All requests, with and without broken lines, and all changes.
pub fn read_records(path: &Path) {
    for skip_bad_lines in [false, true] {
        if let Ok(mut records) = Records::open(path, skip_bad_lines) {
            records.by_ref().take(MOST).for_each(drop);
            let _ = (
                records.skipped(),
                records.prefix_hashes(),
                records.invocation_duration(),
            );
        }
    }
    let changes = ManagementTrace {
        path: path.to_path_buf(),
        speed: 1.5,
        from: Duration(3),
        length: Some(Duration(1 << 40)),
    };
    if let Ok(changes) = Changes::open(&changes) {
        changes.take(MOST).for_each(drop);
    }
}

/// All that is not a request a row.
pub fn read_aggregates(path: &Path) {
    for skip_bad_lines in [false, true] {
        if let Ok(counts) = Counts::open(path, skip_bad_lines) {
            counts.take(MOST).for_each(drop);
        }
        let _ = activity::for_each(path, skip_bad_lines, drop);
    }
    let _ = RateShape::read(path);
}

/// The readers turn panics of two libraries into errors, where the fuzzer's own hook would end the process before.
/// Panics anywhere else still end it.
pub fn let_libraries_panic() {
    let end_process = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let held = |at: &std::panic::Location| {
            ["/tokenizers-", "/parquet-"]
                .iter()
                .any(|name| at.file().contains(name))
        };
        if !panic.location().is_some_and(held) {
            end_process(panic);
        }
    }));
}
