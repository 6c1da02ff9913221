//! What a reproduction leaves: a file of its figures, a page, and the terminal's tables.

use std::collections::BTreeSet;

use serde::Serialize;
use tenantry_profiles::Card;
use tenantry_reports::folder::json;
use tenantry_reports::whole::write_together;

use crate::cards::find_card;
use crate::cli::{OutputArgs, ReproduceArgs};
use crate::failure::Failure;
use crate::keep::earlier_than_reproduction;
use crate::output::{Started, make_folder, print, say};

/// What a reproduction leaves for people, and where it comes from.
pub struct Pages<'a> {
    /// Of the names of its files.
    pub stem: &'a str,
    /// In Markdown.
    pub pages: Vec<String>,
    /// What is missing of what was interrupted.
    pub missing: Option<&'a str>,
    pub started: Started,
    /// What its figures were simulated on, by name.
    pub cards: BTreeSet<String>,
}

/// Writes `STEM.json`, `STEM.md` and the manifest into the folder, and prints `text`.
pub fn publish(
    args: &ReproduceArgs,
    output: &OutputArgs,
    of: Pages<'_>,
    written: &impl Serialize,
    text: impl FnOnce() -> String,
) -> Result<(), Failure> {
    let (folder, mut pages) = (&args.out, of.pages);
    if let Some(missing) = of.missing {
        pages.insert(0, format!("Interrupted: {missing} are missing.\n"));
    }
    let [figures, page] = ["json", "md"].map(|extension| format!("{}.{extension}", of.stem));
    let earlier = earlier_than_reproduction(folder, &[&figures, &page]);
    let cards = of.cards.iter().map(|name| find_card(name));
    let cards = cards.collect::<Result<Vec<Card>, Failure>>()?;
    let cards: Vec<&Card> = cards.iter().collect();
    let manifest = of.started.manifest(&cards, None, 0, earlier.into_iter().collect());
    make_folder(folder)?;
    let files = vec![
        ("manifest.json", json(&manifest).map_err(Failure::running)?),
        (page.as_str(), pages.join("\n").into_bytes()),
        (figures.as_str(), json(written).map_err(Failure::running)?),
    ];
    write_together(folder, files, None).map_err(Failure::running)?;
    print(output, written, text)?;
    for caveat in &manifest.caveats {
        say(output, &format!("note: {caveat}"));
    }
    say(output, &format!("report: {}", folder.join(&page).display()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::cli::PaperName;

    #[test]
    fn the_folder_is_of_the_reproduction_and_what_lay_there_is_named() {
        let place = tempfile::tempdir().unwrap();
        let out = place.path().to_owned();
        let args = ReproduceArgs {
            paper: PaperName::Hmi,
            profile: None,
            sensitivity: false,
            out: out.clone(),
        };
        let quiet = OutputArgs {
            quiet: true,
            json: false,
        };
        let publish = |stem| {
            let of = Pages {
                stem,
                pages: vec!["# A paper\n".to_owned()],
                missing: None,
                started: Started::now(),
                cards: BTreeSet::from(["paper-p5000".to_owned()]),
            };
            publish(&args, &quiet, of, &"figures", String::new).unwrap();
            let manifest = fs::read(out.join("manifest.json")).unwrap();
            serde_json::from_slice::<tenantry_reports::manifest::Manifest>(&manifest).unwrap()
        };
        fs::write(out.join("summary.json"), "{}").unwrap();
        fs::write(out.join("manifest.json"), "{}").unwrap();
        let manifest = publish("reproduce");
        assert_eq!(manifest.profile.unwrap().name, "paper-p5000");
        let summary = out.join("summary.json");
        assert_eq!(
            manifest.caveats,
            [format!(
                "{} was there before, and is not of this reproduction.",
                summary.display()
            )]
        );
        assert!(out.join("reproduce.md").is_file() && summary.is_file());
        let [caveat] = &publish("sensitivity").caveats[..] else {
            panic!("there is one");
        };
        assert!(
            caveat.contains("reproduce.json") && !caveat.contains("sensitivity."),
            "{caveat}"
        );
    }
}
