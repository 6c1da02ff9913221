//! Embeds the shipped scenarios in the library: one table of (name, text), sorted. Those in a folder are named after
//! it: `hmi/fig-12`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Folders that hold no scenarios.
const OTHERS: [&str; 3] = ["presets", "src", "tests"];

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=.");
    let mut files = entries(Path::new("."))?;
    for folder in files.clone().iter().filter(|path| path.is_dir()) {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        if !OTHERS.contains(&name.as_ref()) && !name.starts_with('.') {
            files.extend(entries(folder)?);
        }
    }
    let mut table = String::from("&[\n");
    for file in files.iter().filter(|path| path.extension().is_some_and(|ending| ending == "yaml")) {
        let path = file.strip_prefix(".").unwrap_or(file).display().to_string();
        let name = path.trim_end_matches(".yaml");
        let text = format!("include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/\", {path:?}))");
        writeln!(table, "    ({name:?}, {text}),").expect("strings are writable");
    }
    table.push_str("]\n");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("shipped.rs"), table)
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}
