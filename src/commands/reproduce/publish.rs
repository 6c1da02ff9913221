//! What a reproduction leaves: a file of its figures, a page, and the terminal's tables.

use serde::Serialize;
use tenantry_reports::folder::json;
use tenantry_reports::whole::write_whole;

use crate::cli::{OutputArgs, ReproduceArgs};
use crate::failure::Failure;
use crate::output::{make_folder, print, say};

/// Writes `STEM.json` and `STEM.md` into the folder, and prints `text`. Of what was interrupted the page says what is missing.
pub fn publish(
    args: &ReproduceArgs,
    output: &OutputArgs,
    stem: &str,
    written: &impl Serialize,
    mut pages: Vec<String>,
    missing: Option<&str>,
    text: impl FnOnce() -> String,
) -> Result<(), Failure> {
    let folder = &args.out;
    make_folder(folder)?;
    let bytes = json(written).map_err(Failure::running)?;
    write_whole(&folder.join(format!("{stem}.json")), &bytes).map_err(Failure::running)?;
    if let Some(missing) = missing {
        pages.insert(0, format!("Interrupted: {missing} are missing.\n"));
    }
    let page = folder.join(format!("{stem}.md"));
    write_whole(&page, pages.join("\n").as_bytes()).map_err(Failure::running)?;
    print(output, written, text)?;
    say(output, &format!("report: {}", page.display()));
    Ok(())
}
