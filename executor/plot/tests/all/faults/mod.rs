//! Whatever happens to a table's file, the answer is an error or the right row; whatever happens to its building, it is
//! resumed to the same bytes.

mod building;
mod reading;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::common::{build, corpus};
use tenantry_plot::{Context, PlotError, Select, Shape, Tier};

const MEMORY: Tier = Tier::Memory { locked: false };
const SHAPE: Shape = Shape {
    fragment_tokens: 3,
    context: Context::Both,
    hidden: 64,
};

fn texts() -> Vec<Vec<u32>> {
    corpus(60, 40, 300, 1)
}

fn table(folder: &Path) -> PathBuf {
    let path = folder.join("3.plot");
    build(&path, SHAPE, Select::All, &texts(), 1).unwrap();
    path
}

fn error<T>(result: Result<T, PlotError>) -> PlotError {
    result.err().expect("it is refused")
}

/// Changes the file in place.
fn alter(path: &Path, at: u64, bytes: &[u8]) {
    fs::File::options().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}
