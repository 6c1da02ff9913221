//! Who is who in a trace whose tenants or service classes had names: files beside it.

use std::path::{Path, PathBuf};

use tenantry_reports::whole::remove_earlier;

use crate::failure::Failure;

/// Of what there are such files.
pub const OF: [&str; 2] = ["tenant", "class"];

/// The file beside the trace: `.tenants.csv` or `.classes.csv` behind its name.
pub fn file(trace: &Path, of: &str) -> PathBuf {
    let all = if of == "class" { "classes" } else { "tenants" };
    let mut name = trace.as_os_str().to_owned();
    name.push(format!(".{all}.csv"));
    name.into()
}

/// Removes those of the trace that had this name before: they would be taken for the new one's.
pub fn remove(trace: &Path) -> Result<(), Failure> {
    OF.iter().try_for_each(|of| remove_earlier(&file(trace, of))).map_err(Failure::running)
}
