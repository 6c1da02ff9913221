//! Embeds the cards of `cards/` in the library: one table of (card, [(file, text)]), sorted.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=cards");
    let mut table = String::from("&[\n");
    for card in entries(Path::new("cards"))?.iter().filter(|path| is_card(path)) {
        writeln!(table, "    ({:?}, &[", name(card)).expect("strings are writable");
        for file in entries(card)?.iter().filter(|path| is_of_a_card(path)) {
            let file = name(file);
            let path = format!("/cards/{}/{file}", name(card));
            let text = format!("include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), {path:?}))");
            writeln!(table, "        ({file:?}, {text}),").expect("strings are writable");
        }
        table.push_str("    ]),\n");
    }
    table.push_str("]\n");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("embedded.rs"), table)
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn name(path: &Path) -> String {
    path.file_name().expect("a folder's entry has a name").to_string_lossy().into_owned()
}

/// Hidden folders are what an interrupted save leaves.
fn is_card(path: &Path) -> bool {
    path.join("card.yaml").is_file() && !name(path).starts_with('.')
}

fn is_of_a_card(path: &Path) -> bool {
    let name = name(path);
    name == "card.yaml" || name.ends_with(".csv")
}
